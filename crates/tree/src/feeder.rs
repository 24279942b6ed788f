//! The background thread that feeds sealed memtables to the trees and writes checkpoints.

use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::checkpoint::Position;
use crate::crew::{Crew, Work};
use crate::memtable::Memtable;
use crate::merge::Resolver;
use crate::node::{Builder, Subtree};
use crate::pace::FeedSpeed;
use crate::settle::{CREDIT, IDLE_CHECK, IdleWatch};
use crate::store::Inner;
use crate::version::{Tree, Version};
use crate::{Error, Result, TreeId};

/// The thread and how to wake it.
#[derive(Default)]
pub(crate) struct Feeder {
    signal: Mutex<Signal>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Further threads that feed trees side by side with it.
    crew: Crew,
    /// How fast memtables are fed, for committers.
    pub(crate) speed: FeedSpeed,
    /// Where the log of the last checkpoint starts.
    last_log_start: AtomicU64,
    /// Bytes that settling may write.
    pub(crate) credit: AtomicU64,
    /// One feed, flush or checkpoint at a time. Whether a checkpoint is owed.
    pub(crate) working: Mutex<bool>,
    /// Why the last feed failed, while it is tried again and again.
    stalled: Mutex<Option<Stall>>,
}

/// A failure that may go away.
#[derive(Clone)]
struct Stall {
    disk_full: bool,
    reason: String,
}

/// The pause before a feed that failed is tried again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Signal {
    work: bool,
    stop: bool,
}

impl Feeder {
    /// Tells the thread that a memtable was sealed.
    pub(crate) fn wake(&self) {
        self.signal.lock().work = true;
        self.wake.notify_one();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.signal.lock().stop = true;
        self.wake.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        self.crew.stop();
    }

    /// Starts the thread of a store.
    pub(crate) fn start(inner: &Arc<Inner>) -> Result<()> {
        if inner.options.inline {
            return Ok(());
        }
        inner.feeder.crew.start(inner.options.flush_threads - 1)?;
        let for_thread = inner.clone();
        let thread = std::thread::Builder::new()
            .name("feeder".to_owned())
            .spawn(move || for_thread.feeder.run(&for_thread))
            .map_err(Error::io("starting the feeder thread"))?;
        *inner.feeder.thread.lock() = Some(thread);
        Ok(())
    }

    /// Whether the thread has been told to feed or to stop.
    pub(crate) fn has_work(&self) -> bool {
        let signal = self.signal.lock();
        signal.work || signal.stop
    }

    fn run(&self, inner: &Inner) {
        let mut watch = IdleWatch::new();
        // What was settled before the store was opened is.
        let mut settled = true;
        let mut pause: Option<Duration> = None;
        loop {
            let mut signal = self.signal.lock();
            if let Some(pause) = pause.filter(|_| !signal.stop) {
                self.wake.wait_for(&mut signal, pause);
            } else {
                while !signal.work && !signal.stop {
                    if settled {
                        self.wake.wait(&mut signal);
                    } else if self.wake.wait_for(&mut signal, IDLE_CHECK).timed_out() {
                        break;
                    }
                }
            }
            if signal.stop {
                return;
            }
            let work = std::mem::take(&mut signal.work);
            drop(signal);
            // A panic here would leave committers waiting for ever.
            let outcome = catch_unwind(AssertUnwindSafe(|| match work || pause.is_some() {
                true => inner.feed_all().map(|()| false),
                false => inner.settle_when_idle(&mut watch),
            }));
            pause = match outcome {
                Ok(Ok(done)) => {
                    settled = done;
                    None
                }
                Ok(Err(error)) if !inner.may_go_away(&error) => {
                    inner.fail(format!("feeding the trees failed: {error}"));
                    return;
                }
                Ok(Err(_)) => Some(pause.map_or(PAUSE_MIN, |pause| (pause * 2).min(PAUSE_MAX))),
                Err(_) => {
                    inner.fail(DEFECT.to_owned());
                    return;
                }
            };
        }
    }

    /// The error of a commit that needs room, if none can be made for now.
    pub(crate) fn stall(&self) -> Option<Error> {
        let stall = self.stalled.lock().clone()?;
        let Stall { disk_full, reason } = stall;
        Some(Error::Stalled { disk_full, reason })
    }
}

const DEFECT: &str = "a defect of the engine; the standard error names it";

/// One memtable on its way into the trees.
struct Feed {
    memtable: Arc<Memtable>,
    parts: Mutex<Vec<Part>>,
    fed: Mutex<HashMap<TreeId, Subtree>>,
    failure: Mutex<Option<Error>>,
}

/// What one tree gets.
struct Part {
    id: TreeId,
    bytes: u64,
    root: Subtree,
    loading: bool,
    builder: Builder,
}

impl Feed {
    fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.parts.lock().clear();
    }
}

impl Work for Feed {
    fn run(&self) {
        let take = || self.parts.lock().pop();
        while let Some(part) = take() {
            let fed = match part.loading {
                true => part.builder.feed_loading(&part.root, &self.memtable),
                false => part.builder.feed(&part.root, &self.memtable, part.bytes),
            };
            match fed {
                Ok(root) => {
                    self.fed.lock().insert(part.id, root);
                }
                Err(error) => self.fail(error),
            }
        }
    }

    fn panicked(&self) {
        self.fail(Error::Closed(DEFECT.to_owned()));
    }
}

impl Inner {
    /// Feeds every sealed memtable, each followed by a checkpoint.
    pub(crate) fn feed_all(&self) -> Result<()> {
        let mut owes_checkpoint = self.feeder.working.lock();
        let result = self.feed_sealed(&mut owes_checkpoint);
        drop(owes_checkpoint);
        self.note_outcome(&result);
        result
    }

    /// Feeds every sealed memtable, and writes a checkpoint after each and if one is owed. Called by the holder
    /// of the lock on `working`.
    pub(crate) fn feed_sealed(&self, owes_checkpoint: &mut bool) -> Result<()> {
        let mut fed = None;
        loop {
            if *owes_checkpoint && self.write_checkpoint()? {
                *owes_checkpoint = false;
                if let Some(bytes) = fed.take() {
                    self.feeder.speed.end(bytes);
                    let credit = bytes as u64 * CREDIT;
                    self.feeder.credit.fetch_add(credit, Ordering::Relaxed);
                }
            }
            let Some(memtable) = self.version.load().sealed.last().cloned() else {
                return Ok(());
            };
            self.feeder.speed.begin();
            self.feed(&memtable)?;
            *owes_checkpoint = true;
            fed = Some(memtable.bytes());
        }
    }

    /// Whether a failure of a feed or a checkpoint may go away: nothing was published then, what was
    /// written is released, and the memtables are still there.
    fn may_go_away(&self, error: &Error) -> bool {
        matches!(error, Error::Io { .. } | Error::Corrupt { .. })
            && self.runs.data.failure().is_none()
    }

    /// Stops the store after a failure that is final, and notes one that may go away.
    fn note_outcome(&self, result: &Result<()>) {
        let stall = match result {
            Ok(()) => None,
            Err(error) if self.may_go_away(error) => Some(Stall {
                disk_full: error.is_disk_full(),
                reason: error.to_string(),
            }),
            Err(error) => {
                self.fail(format!("feeding the trees failed: {error}"));
                None
            }
        };
        let is_stalled = stall.is_some();
        *self.feeder.stalled.lock() = stall;
        if is_stalled {
            // Under the lock, so that nobody misses it between a check and a wait.
            let _state = self.commit_lock.lock();
            self.room.notify_all();
        }
    }

    /// Seals what there is, feeds it and writes a checkpoint.
    pub(crate) fn checkpoint_all(&self) -> Result<()> {
        self.check_running()?;
        self.seal_if_over(0);
        self.checkpoint_trees()
    }

    /// Feeds what is sealed and writes a checkpoint, also if nothing is.
    pub(crate) fn checkpoint_trees(&self) -> Result<()> {
        let mut owes_checkpoint = self.feeder.working.lock();
        *owes_checkpoint = true;
        let result = self.feed_sealed(&mut owes_checkpoint);
        drop(owes_checkpoint);
        self.note_outcome(&result);
        result
    }

    /// Seals the active memtable if it has more than `bytes` bytes.
    pub(crate) fn seal_if_over(&self, bytes: usize) {
        let _state = self.commit_lock.lock();
        let version = self.version.load();
        if !version.active.is_empty() && version.active.bytes() > bytes {
            self.seal(0);
        }
    }

    /// Feeds the oldest sealed memtable to all its trees and publishes the new roots.
    fn feed(&self, memtable: &Arc<Memtable>) -> Result<()> {
        // Nobody starts to insert into a sealed memtable; those who have started are done when
        // its last commit is visible, or were cancelled.
        while !memtable.is_quiet() {
            std::thread::yield_now();
        }
        self.publisher.wait(memtable.last_sequence());
        let trees = self.trees();
        let mut parts: Vec<Part> = memtable
            .trees()
            .into_iter()
            .filter_map(|(id, _, bytes)| {
                let tree = trees.get(id)?;
                Some(Part {
                    id,
                    bytes,
                    root: tree.root.clone(),
                    loading: tree.loading,
                    builder: self.builder(id, tree),
                })
            })
            .collect();
        // The largest is taken first, so that the threads end at about the same time.
        parts.sort_by_key(|part| (part.bytes, part.id));
        let feed = Arc::new(Feed {
            memtable: memtable.clone(),
            parts: Mutex::new(parts),
            fed: Mutex::default(),
            failure: Mutex::default(),
        });
        self.feeder.crew.run(feed.clone());
        if let Some(error) = feed.failure.lock().take() {
            return Err(error);
        }

        let fed: Vec<_> = feed.fed.lock().drain().collect();
        self.publish(fed, true);
        self.room.notify_all();
        self.figures.memtables_fed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Puts new roots in the place of old ones.
    pub(crate) fn publish_roots(&self, roots: impl IntoIterator<Item = (TreeId, Subtree)>) {
        self.publish(roots, false);
    }

    /// Publishes new roots; they may hold all of the oldest sealed memtable, which is let go then.
    fn publish(&self, roots: impl IntoIterator<Item = (TreeId, Subtree)>, fed: bool) {
        let _state = self.commit_lock.lock();
        let version = self.version.load_full();
        let mut trees = (*version.trees).clone();
        for (id, root) in roots {
            // A tree that was dropped in the meantime stays dropped.
            trees.set_root(id, root);
        }
        let mut sealed = version.sealed.clone();
        if fed {
            sealed.pop();
        }
        self.version.store(Arc::new(Version {
            active: version.active.clone(),
            sealed,
            trees: Arc::new(trees),
        }));
    }

    pub(crate) fn builder(&self, id: TreeId, tree: &Tree) -> Builder {
        Builder {
            store: self.runs.clone(),
            options: tree.options.clone(),
            resolver: Resolver {
                tree: id,
                operator: self.options.merge.clone(),
            },
            fanout: self.options.fanout,
            allowance: Cell::new(u64::MAX),
        }
    }

    /// Makes the current trees durable and lets the log before them go. False if that has to wait for a feed.
    fn write_checkpoint(&self) -> Result<bool> {
        let (version, position, unfed) = {
            let state = self.commit_lock.lock();
            let version = self.version.load_full();
            let changes_trees = version.memtables().any(|memtable| memtable.changes_trees());
            if changes_trees && !self.options.journal {
                // Trees that were created or dropped by commits that are not fed yet would be durable
                // without the rest of these commits.
                if version.active.changes_trees() {
                    self.seal(0);
                }
                return Ok(false);
            }
            let position = Position {
                log_start: version.log_start(),
                sequence: state.next_sequence - 1,
                next_tree: self.next_tree.load(Ordering::Acquire),
            };
            let log = self.log.get().filter(|_| changes_trees);
            (version, position, log.map(|log| (log, log.end())))
        };
        if let Some((log, end)) = unfed {
            // For the same reason the log of these commits, and of those before them, must be durable.
            log.wait_durable(end)?;
        }
        let trees = version.trees.clone();
        drop(version);
        self.checkpointer.lock().write(&trees, position)?;
        if let Some(log) = self.log.get() {
            // With its log, the checkpoint before can stand in for this one when it is damaged.
            let before = self
                .feeder
                .last_log_start
                .swap(position.log_start, Ordering::Relaxed);
            log.release_before(before);
        }
        self.figures.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}
