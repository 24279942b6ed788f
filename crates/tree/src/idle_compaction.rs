//! Idle compaction: when there are no commits, pending messages are moved down to the leaves, so that reads find one
//! place to look.
//!
//! Idle compaction writes leaves that a later flush would have written anyway, so its writes are limited: to a multiple
//! of what was flushed since the store was opened.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::damage::Activity;
use crate::engine::Engine;
use crate::fail_stop::watch;
use crate::{Result, TreeId, buffers};

/// The interval at which the flusher checks whether the store is idle.
pub(crate) const IDLE_CHECK: Duration = Duration::from_millis(250);
/// The store is idle when there were no commits for this long.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// Fewer operations than this between two checks count as none.
const IDLE_OPS: u64 = 32;
/// An active memtable with more bytes than this is flushed too.
const SEAL_BYTES: usize = 1 << 20;

/// Notices that there are no commits.
pub(crate) struct IdleWatch {
    sequence: u64,
    busy_at: Instant,
}

impl IdleWatch {
    pub(crate) fn new() -> IdleWatch {
        IdleWatch {
            sequence: 0,
            busy_at: Instant::now(),
        }
    }

    /// Called at each check, with the last visible sequence number.
    fn is_idle(&mut self, sequence: u64) -> bool {
        if sequence.saturating_sub(self.sequence) >= IDLE_OPS {
            self.busy_at = Instant::now();
        }
        self.sequence = sequence;
        self.busy_at.elapsed() >= IDLE_AFTER
    }
}

impl Engine {
    /// Called by the flusher when it has nothing to flush. True when there is nothing to compact either.
    pub(crate) fn compact_when_idle(&self, watch: &mut IdleWatch) -> Result<bool> {
        if !watch.is_idle(self.publisher.visible()) {
            return Ok(false);
        }
        // The log of flushed memtables can be deleted, so if there is anything to do, everything is flushed.
        let bytes = if self.pending_trees().is_empty() {
            SEAL_BYTES
        } else {
            0
        };
        self.seal_if_over(bytes);
        self.flush_all()?;
        self.spare_blocks.keep(0);
        self.spare_sets.lock().clear();
        buffers::clear();
        self.runs.budget.age(u32::MAX);
        self.runs.cache.share();
        let before = self.publisher.visible();
        let is_wanted = || {
            self.flusher.compaction_credit.load(Ordering::Relaxed) > 0
                && self.publisher.visible() - before < IDLE_OPS
                && !self.flusher.has_work()
        };
        let done = self.compact_all(is_wanted)?
            || self.flusher.compaction_credit.load(Ordering::Relaxed) == 0;
        if done {
            self.give_back_space()?;
        }
        Ok(done)
    }

    /// Flushes everything that is committed and moves all messages down to the leaves.
    pub(crate) fn compact_now(&self) -> Result<()> {
        self.checkpoint_all()?;
        self.compact_all(|| true)?;
        self.give_back_space()
    }

    /// Returns unused space to the file system.
    pub(crate) fn give_back_space(&self) -> Result<()> {
        self.runs.data.punch_free();
        if let Some(log) = self.log.get() {
            // Once both superblocks describe the current trees, no older log is needed.
            self.checkpoint_trees()?;
            log.leave_segment();
        }
        Ok(())
    }

    pub(crate) fn pending_trees(&self) -> Vec<TreeId> {
        let trees = self.trees();
        let pages = trees.pages().iter().flat_map(|page| page.trees());
        let pending = pages.filter(|(_, tree)| !tree.loading && tree.root.has_pending());
        pending.map(|(id, _)| *id).collect()
    }

    /// Flushes until nothing is pending, or until `is_wanted` says no; then the answer is false.
    fn compact_all(&self, is_wanted: impl Fn() -> bool) -> Result<bool> {
        let trees = self.pending_trees();
        if trees.is_empty() {
            return Ok(true);
        }
        let bytes = self.pending_bytes(&trees);
        self.report(Activity::Compaction, bytes, || {
            self.compact_trees_while(trees, is_wanted)
        })
    }

    /// The bytes of messages that are pending in some trees, by estimate.
    pub(crate) fn pending_bytes(&self, trees: &[TreeId]) -> u64 {
        let version = self.version.load_full();
        let roots = trees.iter().filter_map(|tree| version.trees.get(*tree));
        roots.map(|tree| tree.root.stats().pending_bytes).sum()
    }

    fn compact_trees_while(
        &self,
        trees: Vec<TreeId>,
        is_wanted: impl Fn() -> bool,
    ) -> Result<bool> {
        let (_, _, mut saved) = self.runs.data.io_stats();
        let mut changed = false;
        let mut wanted = true;
        for id in trees {
            wanted = is_wanted();
            while wanted && self.compact_tree_once(id)? {
                changed = true;
                wanted = is_wanted();
                let (_, _, written) = self.runs.data.io_stats();
                if written - saved >= self.disk_space.step_bytes() {
                    self.checkpoint_trees()?;
                    saved = written;
                }
            }
            if !wanted {
                break;
            }
        }
        if changed {
            self.checkpoint_trees()?;
        }
        Ok(wanted)
    }

    /// One flush in one tree; false if nothing is pending there.
    pub(crate) fn compact_tree_once(&self, id: TreeId) -> Result<bool> {
        let _working = self.flusher.working.lock();
        let tree = self.trees().get(id).cloned();
        let Some(tree) = tree.filter(|tree| !tree.loading) else {
            return Ok(false);
        };
        let (_, _, before) = self.runs.data.io_stats();
        let mut builder = self.builder(id, &tree);
        let root = loop {
            match watch(|| builder.compact_step(&tree.root)) {
                // It has needed more than was expected, which is free again. A smaller step may fit.
                Err(error) if error.is_disk_full() && builder.has_smaller_steps() => {
                    self.runs.data.return_free()?;
                    builder.step_max = builder.step_max / 4 * 3;
                }
                stepped => break stepped?,
            }
        };
        let (_, _, after) = self.runs.data.io_stats();
        assert!(after >= before, "Z1: fewer bytes were written than before");
        let spend = |credit: u64| Some(credit.saturating_sub(after - before));
        let _ = (self.flusher.compaction_credit).fetch_update(
            Ordering::Relaxed,
            Ordering::Relaxed,
            spend,
        );
        let Some(root) = root else {
            return Ok(false);
        };
        self.publish_roots([(id, root)]);
        Ok(true)
    }
}
