//! A scan of a collection by several threads.
//!
//! The keys are divided at the bounds of leaves ([`Snapshot::leaf_bounds`]). The thread that pulls scans the first piece as a
//! scan by one thread does, and passes on rows that are borrowed from their pages. Helpers scan the next pieces, and keep
//! what they find in *parts* until their turn comes. So rows come in the order of keys, and errors where they belong.
//!
//! A scan that proves to be long starts helpers, which end before the pull returns: between two batches of a cursor
//! no thread is at work for it. All scans of the process together have as many helpers as there are processors beside the first one.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::key_scan::{KeyScan, Step};
use super::operator::{ExecContext, Flow, Pulled, RowRef};
use super::reader::Reader;
use super::stats::OperatorStats;
use crate::plan::{KeyInterval, primary_range};
use frond_storage::error::{Error, Result};
use frond_storage::intervals::Intervals;
use frond_storage::keyspace::{Direction, Snapshot, TreeId};
use frond_storage::scripts;

/// Bytes of documents that one pull reads before helpers are started.
pub const START_BYTES: usize = 4 << 20;
/// The interval at which the pulling thread checks its limits while it waits for helpers.
const TICK: Duration = Duration::from_millis(5);

/// Helpers that are at work, of all scans.
static HELPERS: AtomicUsize = AtomicUsize::new(0);

/// Makes parts of what helpers find.
pub trait Collect: Sync {
    /// The rows of a piece, or what is made of them.
    type Part: Send;

    fn begin(&self) -> Self::Part;

    /// Adds a row, the document of which was the `examined`th of its piece. `Pause` if the part is full with it.
    ///
    /// # Errors
    /// Those of making something of the row.
    fn add(&self, part: &mut Self::Part, row: RowRef<'_>, examined: u64) -> Result<Flow>;
}

/// Takes the rows of the scan in their order: one by one, or in parts.
pub trait Take<P> {
    /// Whether parts are taken. If not, they are dropped, and rows come one by one from now on.
    fn takes_parts(&self) -> bool;

    /// Takes a row.
    ///
    /// # Errors
    /// Those of the consumer.
    fn row(&mut self, row: RowRef<'_>) -> Result<Flow>;

    /// Takes the rows of a part that were not taken yet. After `Pause` the part may still have rows, which the next pull takes.
    ///
    /// # Errors
    /// Those of the consumer.
    fn part(&mut self, part: &mut P) -> Result<(Flow, Handed)>;
}

/// The rows of a part that are taken so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Handed {
    pub rows: u64,
    /// Documents that were examined up to the last of them.
    pub examined: u64,
}

/// The reader of a scan, and what is made of its rows.
pub struct Purpose<'a, C> {
    /// Reads and tests the documents.
    pub reader: &'a Reader,
    pub collect: &'a C,
}

/// A scan of all documents upwards, which may be divided.
pub struct ParallelScan<P> {
    tree: TreeId,
    queue: Mutex<Queue<P>>,
    /// Whether the first pull is not over.
    is_new: bool,
}

/// The pieces that were not taken yet.
struct Queue<P> {
    pieces: VecDeque<RangeTask<P>>,
    /// The number of the first of them.
    first: usize,
    /// The first key behind them; `None` if they reach to the end.
    rest: Option<Vec<u8>>,
}

/// Keys from `low` on and below `high`.
struct RangeTask<P> {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    state: State<P>,
}

enum State<P> {
    Waiting,
    /// Some thread scans it.
    Running,
    Held(Box<Progress<P>>),
}

/// The progress of the scan of a piece.
struct Progress<P> {
    /// `None` at its end.
    scan: Option<KeyScan>,
    /// The rows that a helper found; `None` if they are passed on directly.
    part: Option<P>,
    is_full: bool,
    /// The work for the part, and the share of it that was taken.
    stats: OperatorStats,
    handed: Handed,
    /// The failure that ended the scan.
    error: Option<Error>,
}

impl<P> RangeTask<P> {
    fn begin(&self, tree: TreeId, part: Option<P>) -> Box<Progress<P>> {
        let mut range = primary_range(tree, Intervals::all(), Direction::Forward);
        range.interval = KeyInterval {
            low: Some(self.low.clone()),
            high: self.high.clone(),
        };
        Box::new(Progress {
            scan: Some(KeyScan::new(range).of_collection().long()),
            part,
            is_full: false,
            stats: OperatorStats::default(),
            handed: Handed::default(),
            error: None,
        })
    }
}

impl<P> Queue<P> {
    /// Divides more of the rest, so that there are `wanted` pieces.
    fn refill(&mut self, snapshot: &Snapshot, tree: TreeId, wanted: usize) -> Result<()> {
        if self.pieces.len() >= wanted {
            return Ok(());
        }
        let Some(rest) = self.rest.take() else {
            return Ok(());
        };
        let more = wanted.saturating_sub(self.pieces.len()) + wanted;
        let mut low = rest;
        let bounds = match snapshot.leaf_bounds(tree, &low, None, more) {
            Ok(bounds) => bounds,
            Err(error) => {
                self.rest = Some(low);
                return Err(error.into());
            }
        };
        let is_end = bounds.len() < more;
        for high in bounds {
            let next = high.clone();
            self.push(low, Some(high));
            low = next;
        }
        if is_end {
            self.push(low, None)
        } else {
            self.rest = Some(low)
        }
        Ok(())
    }

    fn push(&mut self, low: Vec<u8>, high: Option<Vec<u8>>) {
        self.pieces.push_back(RangeTask {
            low,
            high,
            state: State::Waiting,
        });
    }

    /// Drops what helpers have found in the pieces behind the first one.
    fn drop_parts(&mut self) {
        for piece in self.pieces.iter_mut().skip(1) {
            if let State::Held(_) = piece.state {
                piece.state = State::Waiting;
            }
        }
    }
}

/// Helpers that a scan may start.
struct Permits(usize);

/// The most helpers at once.
fn helpers_max() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        processors.saturating_sub(1)
    })
}

/// Whether a long scan would get helpers now.
pub fn has_helpers() -> bool {
    HELPERS.load(Ordering::Relaxed) < helpers_max()
}

impl Permits {
    fn acquire() -> Permits {
        let most = helpers_max();
        let taken = HELPERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |busy| {
            (busy < most).then_some(most)
        });
        Permits(taken.map_or(0, |busy| most - busy))
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        HELPERS.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Why the pulling thread stopped.
enum Stop {
    Pulled(Pulled),
    /// The scan is long: helpers would help.
    Long,
}

impl<P: Send> ParallelScan<P> {
    /// A scan of the documents in the tree `tree` from the key `low` on. The rows before it proved that it is long.
    pub fn new(tree: TreeId, low: Vec<u8>) -> ParallelScan<P> {
        ParallelScan {
            tree,
            queue: Mutex::new(Queue {
                pieces: VecDeque::new(),
                first: 0,
                rest: Some(low),
            }),
            is_new: true,
        }
    }

    /// Hands rows to the consumer until it asks for a pause or there are no more.
    ///
    /// # Errors
    /// Errors of the consumer, the limits and the engine.
    pub fn pull<C: Collect<Part = P>>(
        &mut self,
        cx: &ExecContext,
        purpose: &Purpose<'_, C>,
        stats: &mut OperatorStats,
        take: &mut dyn Take<P>,
    ) -> Result<Pulled> {
        let mut work = Work {
            tree: self.tree,
            queue: &self.queue,
            changed: Condvar::new(),
            stops: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            purpose,
            window: 0,
        };
        let mut is_long = std::mem::take(&mut self.is_new);
        loop {
            if !std::mem::take(&mut is_long)
                && let Stop::Pulled(pulled) = work.consume(cx, stats, take, START_BYTES)?
            {
                return Ok(pulled);
            }
            let permits = Permits::acquire();
            if permits.0 == 0 || !take.takes_parts() {
                continue;
            }
            work.window = 2 * permits.0 + 2;
            let pulled = thread::scope(|scope| {
                let work = &work;
                let request = scripts::Shared::of_this_thread();
                let _stop = StopHelpers(work);
                for _ in 0..permits.0 {
                    let cx = cx.for_helper();
                    let helper = thread::Builder::new().name("frond-scan".to_owned());
                    let request = request.clone();
                    // With fewer threads it takes longer.
                    let _ = helper.spawn_scoped(scope, move || request.run(|| work.help(&cx)));
                }
                work.consume(cx, stats, take, usize::MAX)
            });
            return match pulled? {
                Stop::Pulled(pulled) => Ok(pulled),
                Stop::Long => Ok(Pulled::Paused),
            };
        }
    }

    /// Continues on another snapshot of the same moment. What helpers have found ahead is dropped.
    pub fn continue_on(&mut self, snapshot: &Snapshot) {
        let queue = self.queue.get_mut();
        queue.drop_parts();
        let first = queue.pieces.front_mut().map(|piece| &mut piece.state);
        if let Some(State::Held(progress)) = first
            && let Some(scan) = &mut progress.scan
        {
            scan.continue_on(snapshot);
        }
    }
}

/// A pull, as its threads share it.
struct Work<'a, C: Collect> {
    tree: TreeId,
    queue: &'a Mutex<Queue<C::Part>>,
    /// Notified when a piece has changed.
    changed: Condvar,
    /// Whether helpers are to end.
    stops: AtomicBool,
    /// Whether a helper has panicked.
    is_lost: AtomicBool,
    purpose: &'a Purpose<'a, C>,
    /// The number of pieces from the first one on that are worked on; 0 without helpers.
    window: usize,
}

/// Ends the helpers, also when the pulling thread panics.
struct StopHelpers<'a, C: Collect>(&'a Work<'a, C>);

impl<C: Collect> Drop for StopHelpers<'_, C> {
    fn drop(&mut self) {
        // Under the lock, so that no helper misses it between its check and its wait.
        let _queue = self.0.queue.lock();
        self.0.stops.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }
}

/// Notifies the others if a helper panics; the scope of the threads passes the panic on.
struct NoteLoss<'a, C: Collect>(&'a Work<'a, C>);

impl<C: Collect> Drop for NoteLoss<'_, C> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.is_lost.store(true, Ordering::Relaxed);
            self.0.changed.notify_all();
        }
    }
}

type Taken<P> = (usize, Box<Progress<P>>);

impl<C: Collect> Work<'_, C> {
    /// The loop of a helper.
    fn help(&self, cx: &ExecContext) {
        let _note = NoteLoss(self);
        loop {
            let claimed = {
                let mut queue = self.queue.lock();
                loop {
                    if self.stops.load(Ordering::Relaxed) {
                        return;
                    }
                    // The thread that pulls meets and reports the error.
                    let _ = queue.refill(cx.snapshot(), self.tree, self.window);
                    if let Some(claimed) = self.claim(&mut queue) {
                        break claimed;
                    }
                    self.changed.wait(&mut queue);
                }
            };
            self.fill(cx, claimed);
        }
    }

    /// Takes a piece behind the first one.
    fn claim(&self, queue: &mut MutexGuard<'_, Queue<C::Part>>) -> Option<Taken<C::Part>> {
        let collect = self.purpose.collect;
        let first = queue.first;
        let pieces = queue.pieces.iter_mut().enumerate();
        for (index, piece) in pieces.take(self.window).skip(1) {
            let progress = match std::mem::replace(&mut piece.state, State::Running) {
                State::Waiting => piece.begin(self.tree, Some(collect.begin())),
                State::Held(progress) if progress.scan.is_some() && !progress.is_full => progress,
                other => {
                    piece.state = other;
                    continue;
                }
            };
            return Some((first + index, progress));
        }
        None
    }

    /// Scans a piece into its part.
    fn fill(&self, cx: &ExecContext, (number, mut progress): Taken<C::Part>) {
        let Progress {
            scan,
            part,
            stats,
            is_full,
            ..
        } = &mut *progress;
        let collect = self.purpose.collect;
        if let (Some(keys), Some(part)) = (scan.as_mut(), part) {
            let filled = keys.for_each(cx, stats, |key, record, _, stats| {
                let examined = stats.docs_examined + 1;
                let row = RowRef::of_key(key);
                let add = &mut |row: RowRef<'_>| {
                    let flow = collect.add(part, row, examined)?;
                    *is_full = flow == Flow::Pause;
                    Ok(flow)
                };
                let flow = self.purpose.reader.read(cx, row, record, stats, add)?;
                Ok(if self.stops.load(Ordering::Relaxed) {
                    Step::Pause
                } else {
                    flow.into()
                })
            });
            match filled {
                Ok(Pulled::Paused) => {}
                Ok(Pulled::End) => *scan = None,
                Err(error) => (*scan, progress.error) = (None, Some(error)),
            }
        }
        self.put_back(number, progress);
    }

    fn put_back(&self, number: usize, progress: Box<Progress<C::Part>>) {
        let mut queue = self.queue.lock();
        let index = number - queue.first;
        if let Some(piece) = queue.pieces.get_mut(index) {
            piece.state = State::Held(progress);
        }
        self.changed.notify_all();
    }

    /// Hands on the pieces in their order. Without helpers it stops after `bytes` bytes of documents.
    fn consume(
        &self,
        cx: &ExecContext,
        stats: &mut OperatorStats,
        take: &mut dyn Take<C::Part>,
        mut bytes: usize,
    ) -> Result<Stop> {
        loop {
            if cx.must_stop() || self.is_lost.load(Ordering::Relaxed) {
                return Ok(Stop::Pulled(Pulled::Paused));
            }
            let Some(mut progress) = self.head(cx, take)? else {
                return Ok(Stop::Pulled(Pulled::End));
            };
            let Some(progress) = &mut progress else {
                continue;
            };
            let mut behind = None;
            let limit = match self.window {
                0 => Some((&mut bytes, &mut behind)),
                _ => None,
            };
            let stop = self.take_piece(cx, stats, take, progress, limit)?;
            let mut queue = self.queue.lock();
            let Some(piece) = queue.pieces.front_mut() else {
                return Ok(Stop::Pulled(Pulled::End));
            };
            match stop {
                Stop::Pulled(Pulled::End) => {
                    queue.pieces.pop_front();
                    queue.first += 1;
                    self.changed.notify_all();
                }
                Stop::Pulled(Pulled::Paused) => {
                    piece.state =
                        State::Held(std::mem::replace(progress, Box::new(Progress::nothing())));
                    return Ok(Stop::Pulled(Pulled::Paused));
                }
                Stop::Long => {
                    // The rest of the piece is divided.
                    piece.low = behind.unwrap_or_default();
                    piece.state = State::Waiting;
                    if piece.high.is_none() {
                        queue.rest = queue.pieces.pop_back().map(|piece| piece.low);
                    }
                    return Ok(Stop::Long);
                }
            }
        }
    }

    /// Takes the first piece. The inner `None`: a helper has it, and the thread has done something else meanwhile. The outer one:
    /// there are no more.
    #[expect(clippy::type_complexity, reason = "as described")]
    fn head(
        &self,
        cx: &ExecContext,
        take: &dyn Take<C::Part>,
    ) -> Result<Option<Option<Box<Progress<C::Part>>>>> {
        let mut queue = self.queue.lock();
        queue.refill(cx.snapshot(), self.tree, self.window.max(1))?;
        let takes_parts = take.takes_parts();
        if !takes_parts {
            self.stops.store(true, Ordering::Relaxed);
            queue.drop_parts();
        }
        let Some(piece) = queue.pieces.front_mut() else {
            return Ok(None);
        };
        match std::mem::replace(&mut piece.state, State::Running) {
            State::Held(progress) if takes_parts || progress.part.is_none() => {
                return Ok(Some(Some(progress)));
            }
            State::Waiting | State::Held(_) => return Ok(Some(Some(piece.begin(self.tree, None)))),
            State::Running => {}
        }
        let claimed = if takes_parts {
            self.claim(&mut queue)
        } else {
            None
        };
        match claimed {
            Some(claimed) => {
                drop(queue);
                self.fill(cx, claimed);
            }
            None => {
                self.changed.wait_for(&mut queue, TICK);
                drop(queue);
                cx.check()?;
            }
        }
        Ok(Some(None))
    }

    /// Hands on what is left of a piece: its part, and then what no helper has scanned. `limit` has the bytes after which it
    /// stops, and takes the first key behind.
    fn take_piece(
        &self,
        cx: &ExecContext,
        stats: &mut OperatorStats,
        take: &mut dyn Take<C::Part>,
        progress: &mut Progress<C::Part>,
        mut limit: Option<(&mut usize, &mut Option<Vec<u8>>)>,
    ) -> Result<Stop> {
        if let Some(part) = &mut progress.part {
            let (flow, handed) = take.part(part)?;
            if flow == Flow::Pause {
                let before = std::mem::replace(&mut progress.handed, handed);
                stats.works += handed.examined - before.examined;
                stats.docs_examined += handed.examined - before.examined;
                stats.advanced += handed.rows - before.rows;
                return Ok(Stop::Pulled(Pulled::Paused));
            }
            let (done, before) = (std::mem::take(&mut progress.stats), progress.handed);
            stats.works += done.works - before.examined;
            stats.docs_examined += done.docs_examined - before.examined;
            stats.large_examined += done.large_examined;
            stats.advanced += done.advanced - before.rows;
            progress.part = None;
        }
        if let Some(error) = progress.error.take() {
            return Err(error);
        }
        let Some(scan) = &mut progress.scan else {
            return Ok(Stop::Pulled(Pulled::End));
        };
        let mut is_long = false;
        let reader = self.purpose.reader;
        let pulled = scan.for_each(cx, stats, |key, record, _, stats| {
            let row = RowRef::of_key(key);
            let flow = reader.read(cx, row, record, stats, &mut |row| take.row(row))?;
            if let Some((bytes, behind)) = &mut limit {
                **bytes = bytes.saturating_sub(record.len());
                if **bytes == 0 && flow == Flow::Continue {
                    **behind = Some([key, &[0]].concat());
                    is_long = true;
                    return Ok(Step::Pause);
                }
            }
            Ok(flow.into())
        })?;
        Ok(if is_long {
            Stop::Long
        } else {
            Stop::Pulled(pulled)
        })
    }
}

impl<P> Progress<P> {
    fn nothing() -> Progress<P> {
        Progress {
            scan: None,
            part: None,
            is_full: false,
            stats: OperatorStats::default(),
            handed: Handed::default(),
            error: None,
        }
    }
}
