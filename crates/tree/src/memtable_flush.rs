//! Flushing sealed memtables to the trees, each flush followed by a checkpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use frond_kv::PANICKED;
use parking_lot::Mutex;

use crate::checkpoint::Pinned;
use crate::damage::Activity;
use crate::data_file::DATA_FILE;
use crate::engine::Engine;
use crate::fail_stop::watch;
use crate::flush_scope::{FlushScope, Task};
use crate::flusher::Stall;
use crate::log::Log;
use crate::manifest::Position;
use crate::memtable::Memtable;
use crate::node::{Builder, Subtree};
use crate::worker_pool::Work;
use crate::{Error, Result, TreeId};

/// Bytes that idle compaction may write for each byte that was flushed.
const COMPACTION_CREDIT: u64 = 3;

/// Nodes that are read after each flush because nothing refers to them any more.
const ORPHANS_PER_FLUSH: usize = 64;

/// The flush of one memtable. One thread leads, and the others of the pool help.
///
/// F1: it is the oldest sealed one, so the trees get the commits in their order.
/// F2: nothing is inserted into it any more.
/// F3: all of its commits are visible, so no snapshot is older than what the trees have and newer than what it sees.
/// F5: on a member of a replica set, all of its commits are committed by the set, because the others may be discarded.
/// F4: there is a new root for each tree that has messages in it, or an error.
struct MemtableFlush {
    scope: Arc<FlushScope>,
    /// The trees, until a thread takes them and leads.
    trees: Mutex<Option<Vec<Task<Flushed>>>>,
    flushed: Mutex<Vec<(TreeId, Subtree)>>,
    failure: Mutex<Option<Error>>,
}

/// The new root of a tree; `None` if the flush of another tree had failed before.
type Flushed = Option<(TreeId, Subtree)>;

/// The share of one tree.
struct Part {
    id: TreeId,
    bytes: u64,
    root: Subtree,
    loading: bool,
    builder: Builder,
}

impl Part {
    fn flush(self, memtable: &Arc<Memtable>, has_failed: &AtomicBool) -> Result<Flushed> {
        if has_failed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Part { builder, root, .. } = &self;
        let flushed = if self.loading {
            builder.flush_memtable_while_loading(root, memtable)
        } else {
            builder.flush_memtable(root, memtable, self.bytes)
        };
        let flushed = flushed.inspect_err(|_| has_failed.store(true, Ordering::Relaxed));
        flushed.map(|root| Some((self.id, root)))
    }
}

impl Work for MemtableFlush {
    fn run(&self) {
        let trees = self.trees.lock().take();
        let Some(trees) = trees else {
            return self.scope.help();
        };
        let results = self.scope.run(trees);
        self.scope.close();
        for result in results {
            match result {
                Ok(flushed) => self.flushed.lock().extend(flushed),
                Err(error) => {
                    self.failure.lock().get_or_insert(error);
                }
            }
        }
    }

    fn panicked(&self) {
        self.failure.lock().get_or_insert(Error::Internal(PANICKED));
        self.scope.close();
    }
}

impl Engine {
    /// Flushes every sealed memtable, each followed by a checkpoint.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.flush_at_most(usize::MAX)
    }

    /// Flushes up to `most` sealed memtables.
    pub(crate) fn flush_at_most(&self, most: usize) -> Result<()> {
        let mut checkpoint_due = self.flusher.working.lock();
        let result = self.flush_sealed(&mut checkpoint_due, most).map(drop);
        // Under the lock, so that the outcome of an older flush never replaces that of a newer one.
        self.note_outcome(&result);
        result
    }

    /// Flushes up to `most` sealed memtables, and writes a checkpoint after each and if one is due. Returns the checkpoint that has
    /// all that was flushed, if this call has written it. The caller holds the lock on `working`.
    pub(crate) fn flush_sealed(
        &self,
        checkpoint_due: &mut bool,
        most: usize,
    ) -> Result<Option<Pinned>> {
        let mut flushed = None;
        let mut left = most;
        if self.options.inline {
            // Without threads it must not depend on the time.
            while self.sweep_some() {}
            self.release_orphans(ORPHANS_PER_FLUSH);
        }
        loop {
            let mut written = None;
            if *checkpoint_due {
                written = self.write_checkpoint()?;
                *checkpoint_due = written.is_none();
            }
            if written.is_some()
                && let Some(bytes) = flushed.take()
            {
                self.flusher.rate.end(bytes);
                let credit = bytes as u64 * COMPACTION_CREDIT;
                (self.flusher.compaction_credit).fetch_add(credit, Ordering::Relaxed);
            }
            let oldest = self.version.load().sealed.last().cloned();
            let Some(memtable) = oldest.filter(|_| left > 0) else {
                return Ok(written);
            };
            // While it is pinned, the next checkpoint takes it for a snapshot that uses space.
            drop(written);
            left -= 1;
            self.flusher.rate.begin();
            self.flush_memtable(&memtable)?;
            *checkpoint_due = true;
            flushed = Some(memtable.bytes());
        }
    }

    /// Whether a flush or a checkpoint that failed may succeed later. Nothing was published then, what was
    /// written is released, and the memtables are still there.
    pub(crate) fn is_retryable(&self, error: &Error) -> bool {
        // A checkpoint waits for the log, which may be stalled itself.
        let may_pass = matches!(
            error,
            Error::Io { .. } | Error::Internal(_) | Error::Stalled { .. }
        );
        (error.is_damage() || may_pass) && self.runs.data.failure().is_none()
    }

    /// Stops the store after a permanent failure, and records a retryable one as a stall.
    pub(crate) fn note_outcome(&self, result: &Result<()>) {
        if let Err(error) = result {
            self.note_if_full(error);
        }
        let stall = match result {
            Ok(()) => None,
            Err(error) if self.is_retryable(error) => Some(Stall {
                disk_full: error.is_disk_full(),
                reason: error.to_string(),
            }),
            Err(error) => {
                self.fail(format!("flushing a memtable failed: {error}"));
                None
            }
        };
        let is_stalled = stall.is_some();
        self.flusher.set_stall(stall);
        self.report_condition(Activity::Stall, is_stalled, 0, result.as_ref().err());
        if is_stalled {
            // Under the lock, so that no committer misses it between its check and its wait.
            let _state = self.commit_lock.lock();
            self.flushed.notify_all();
        }
    }

    /// Seals the active memtable, flushes all sealed ones and writes a checkpoint.
    pub(crate) fn checkpoint_all(&self) -> Result<()> {
        self.check_running()?;
        self.seal_if_over(0);
        self.checkpoint_trees()
    }

    /// As [`Engine::checkpoint_all`], as far as the replica set has committed what is in memory. The rest is in the log.
    pub(crate) fn checkpoint_committed(&self) -> Result<()> {
        self.of_committed(self.checkpoint_all())
    }

    /// The result of a checkpoint that leaves out what the set has not committed.
    fn of_committed(&self, checkpoint: Result<()>) -> Result<()> {
        match checkpoint {
            Err(Error::Stalled { .. } | Error::NotLeading) if self.options.member => Ok(()),
            result => result,
        }
    }

    /// As [`Engine::checkpoint_trees`], without what a member's set has not committed.
    pub(crate) fn checkpoint_committed_trees(&self) -> Result<()> {
        self.of_committed(self.checkpoint_trees())
    }

    /// Flushes all sealed memtables and writes a checkpoint, even if there are none.
    pub(crate) fn checkpoint_trees(&self) -> Result<()> {
        let mut checkpoint_due = self.flusher.working.lock();
        *checkpoint_due = true;
        let result = self.flush_sealed(&mut checkpoint_due, usize::MAX).map(drop);
        self.note_outcome(&result);
        result
    }

    /// Writes a checkpoint of the trees as they are, without what is in memory.
    pub(crate) fn checkpoint_unflushed(&self) -> Result<()> {
        let mut checkpoint_due = self.flusher.working.lock();
        *checkpoint_due = self.write_checkpoint()?.is_none();
        Ok(())
    }

    /// Flushes the oldest sealed memtable to all its trees and publishes the new roots.
    fn flush_memtable(&self, memtable: &Arc<Memtable>) -> Result<()> {
        let bytes = memtable.bytes() as u64;
        self.report(Activity::Flush, bytes, || {
            watch(|| self.flush_oldest(memtable))
        })
    }

    fn flush_oldest(&self, memtable: &Arc<Memtable>) -> Result<()> {
        // No insert begins in a sealed memtable. Those that have begun are finished when the memtable's last
        // commit is visible, or were cancelled.
        while !memtable.has_no_writers() {
            std::thread::yield_now();
        }
        self.publisher.wait(memtable.last_sequence());
        let version = self.version.load_full();
        let oldest = version.sealed.last().cloned();
        if let Some(log) = self.log.get() {
            log.await_committed(version.log_end_of_oldest())?;
        }
        drop(version);
        assert!(
            oldest.is_some_and(|oldest| Arc::ptr_eq(&oldest, memtable)),
            "F1: the memtable that is flushed is not the oldest one"
        );
        assert!(
            memtable.has_no_writers(),
            "F2: a writer has entered a sealed memtable"
        );
        assert!(
            memtable.last_sequence() <= self.publisher.visible(),
            "F3: a memtable is flushed before its commits are visible"
        );
        let trees = self.trees();
        let mut parts: Vec<Part> = memtable
            .trees()
            .into_iter()
            .filter_map(|(id, _, bytes)| {
                let tree = trees.get(id).cloned().or_else(|| trees.gathering(id))?;
                Some(Part {
                    id,
                    bytes,
                    builder: self.builder(id, &tree),
                    root: tree.root,
                    loading: tree.loading,
                })
            })
            .collect();
        let count = parts.len();
        // While all trees are flushed in parallel, each may only take its share of the room.
        let spare = self.disk_space.spare_bytes() / parts.len().max(1) as u64;
        // Without threads the order depends on the commits alone.
        let seed = self.options.inline.then(|| memtable.last_sequence());
        let scope = FlushScope::new(self.options.flush_threads, seed);
        for part in &mut parts {
            part.builder.limit_work(spare);
            part.builder.scope = scope.clone();
        }
        // The largest tree is flushed first, so that the threads finish at about the same time.
        parts.sort_by_key(|part| std::cmp::Reverse((part.bytes, part.id)));
        let has_failed = Arc::new(AtomicBool::new(false));
        let task = |part: Part| -> Task<Flushed> {
            let (memtable, has_failed) = (memtable.clone(), has_failed.clone());
            Box::new(move || part.flush(&memtable, &has_failed))
        };
        let flush = Arc::new(MemtableFlush {
            scope,
            trees: Mutex::new(Some(parts.into_iter().map(task).collect())),
            flushed: Mutex::default(),
            failure: Mutex::default(),
        });
        self.flusher.pool.run(flush.clone());
        if let Some(error) = flush.failure.lock().take() {
            return Err(error);
        }

        let flushed = std::mem::take(&mut *flush.flushed.lock());
        assert!(
            flushed.len() == count,
            "F4: a tree has no root after a flush without an error"
        );
        assert!(
            memtable.has_no_writers(),
            "F2: a writer has entered during a flush"
        );
        self.publish_flushed(flushed, memtable);
        // Before the checkpoint that follows, so that it knows what they free.
        self.release_orphans(ORPHANS_PER_FLUSH);
        self.flushed.notify_all();
        self.counters
            .memtables_flushed
            .fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the current trees durable and releases the log before them. `None` if that has to wait for a flush.
    ///
    /// The checkpoint is pinned while its trees are in memory for certain: a commit that creates or drops a tree replaces
    /// them at any moment, and the store does not keep the old ones.
    fn write_checkpoint(&self) -> Result<Option<Pinned>> {
        self.report(Activity::Checkpoint, 0, || {
            watch(|| self.write_checkpoint_of_trees())
        })
    }

    fn write_checkpoint_of_trees(&self) -> Result<Option<Pinned>> {
        let (version, position, unflushed, point) = {
            let state = self.commit_lock.lock();
            let version = self.version.load_full();
            let changes_trees = version.memtables().any(|memtable| memtable.changes_trees());
            if changes_trees && !self.options.journal {
                // The checkpoint would make the created and dropped trees durable without the rest of their
                // commits, which are not flushed yet.
                if version.active.changes_trees() {
                    self.seal(&state, 0);
                }
                return Ok(None);
            }
            let loaded_at = self.loaded_at.load(Ordering::Relaxed);
            let position = Position {
                log_start: version.log_start(),
                sequence: version.sequence_in_trees(),
                next_tree: self.next_tree.load(Ordering::Acquire),
                complete_at: match self.log.get() {
                    Some(_) if changes_trees => self.log_position(),
                    _ => loaded_at.max(version.log_start()),
                },
                last_stamp: version.stamp_in_trees(),
            };
            assert!(
                position.sequence < state.next_sequence,
                "K3: a checkpoint has numbers that were not given out"
            );
            assert!(
                position.sequence <= self.publisher.visible(),
                "F3: a checkpoint has commits that are not visible"
            );
            let end = self.log.get().map_or(u64::MAX, Log::end);
            assert!(
                position.log_start <= end,
                "K4: a checkpoint needs log that does not exist"
            );
            let log = self.log.get().filter(|_| changes_trees);
            let point = match self.log.get() {
                Some(log) => log.commit_point(),
                None => self.replayed_point.lock().clone(),
            };
            let unflushed = log.map(|log| (log, self.log_position()));
            (version, position, unflushed, point)
        };
        if let Some((log, end)) = unflushed {
            // For the same reason the log of these commits, and of those before them, must be durable, and committed by the
            // replica set.
            log.await_committed(end)?;
            log.wait_durable(end)?;
        }
        if let Some(point) = &point {
            assert!(
                position.log_start <= point.to,
                "F5: a checkpoint has commits that may be discarded"
            );
            if let Some(log) = self.log.get() {
                // A replay goes as far as this, at least.
                log.wait_durable(point.to)?;
            }
        }
        let trees = version.trees.clone();
        drop(version);
        let is_alone = || {
            let is_alone = trees.is_only_version()
                && Arc::strong_count(&self.loaders) == 1
                && self.runs.orphans.is_empty();
            // The releases of a loader are seen from here on.
            fence(Ordering::Acquire);
            is_alone
        };
        // Before extents that were released can be used again.
        let space = &self.runs.data.space;
        (self.runs.damage).forget_unused(
            DATA_FILE,
            |offset| space.is_used(offset),
            |tree| trees.get(tree).is_some(),
        );
        let pinned = {
            let mut checkpointer = self.checkpointer.lock();
            checkpointer.write(&trees, position, point, is_alone)?;
            checkpointer.pin()
        };
        if let Some(log) = self.log.get() {
            // With its log, the previous checkpoint can replace this one if it is damaged.
            let before = self
                .flusher
                .last_log_start
                .swap(position.log_start, Ordering::Relaxed);
            assert!(
                before <= position.log_start,
                "K3: log was released that a checkpoint needs"
            );
            let is_low = self.disk_space.is_low();
            if is_low {
                log.end_holds();
            }
            // While the disk is nearly full, its room is worth more than this second chance.
            log.release_before(if is_low { position.log_start } else { before });
        }
        self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(pinned)
    }
}
