//! Settling: when nobody commits, pending messages are moved down to the leaves, so that reads find one place to look.
//!
//! Settling writes leaves that a later flush would have written anyway, so it gets a credit: what it writes is at most
//! a multiple of what was committed since the store was opened.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::store::Inner;
use crate::{Result, TreeId, buffers};

/// How often the feeder looks whether nobody commits.
pub(crate) const IDLE_CHECK: Duration = Duration::from_millis(250);
/// So long nobody commits before anything is settled.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// Fewer operations than this between two looks count as none.
const IDLE_OPS: u64 = 32;
/// An active memtable with at least this many bytes is fed too.
const SEAL_BYTES: usize = 1 << 20;
/// Bytes that settling may write for each byte that was fed.
pub(crate) const CREDIT: u64 = 3;
/// A checkpoint is written when settling has written so much, so that space is used again.
const CHECKPOINT_BYTES: u64 = 64 << 20;

/// Notices that nobody commits.
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

    /// Called at each look.
    fn is_idle(&mut self, sequence: u64) -> bool {
        if sequence.saturating_sub(self.sequence) >= IDLE_OPS {
            self.busy_at = Instant::now();
        }
        self.sequence = sequence;
        self.busy_at.elapsed() >= IDLE_AFTER
    }
}

impl Inner {
    /// Called by the feeder when it has nothing to feed. True when there is nothing to settle either.
    pub(crate) fn settle_when_idle(&self, watch: &mut IdleWatch) -> Result<bool> {
        if !watch.is_idle(self.publisher.visible()) {
            return Ok(false);
        }
        // The log of what is fed can go, so it is all fed if there is anything to do at all.
        let bytes = if self.pending_trees().is_empty() {
            SEAL_BYTES
        } else {
            0
        };
        self.seal_if_over(bytes);
        self.feed_all()?;
        self.spare_blocks.clear();
        self.spare_sets.lock().clear();
        buffers::clear();
        self.runs.cache.share();
        let before = self.publisher.visible();
        let is_wanted = || {
            self.feeder.credit.load(Ordering::Relaxed) > 0
                && self.publisher.visible() - before < IDLE_OPS
                && !self.feeder.has_work()
        };
        let done = self.settle_all(is_wanted)? || self.feeder.credit.load(Ordering::Relaxed) == 0;
        if done {
            self.give_back_space()?;
        }
        Ok(done)
    }

    /// Feeds everything that is committed and moves all messages down to the leaves.
    pub(crate) fn settle_now(&self) -> Result<()> {
        self.checkpoint_all()?;
        self.settle_all(|| true)?;
        self.give_back_space()
    }

    /// Gives space that is not needed back to the file system.
    fn give_back_space(&self) -> Result<()> {
        self.runs.data.punch_free();
        if let Some(log) = self.log.get() {
            // Both superblocks should stand for the trees as they are: then no log before is needed.
            self.checkpoint_trees()?;
            log.leave_segment();
        }
        Ok(())
    }

    fn pending_trees(&self) -> Vec<TreeId> {
        let trees = self.trees();
        let pages = trees.pages().iter().flat_map(|page| page.trees());
        let pending = pages.filter(|(_, tree)| !tree.loading && tree.root.has_pending());
        pending.map(|(id, _)| *id).collect()
    }

    /// Flushes until nothing is pending, or until `is_wanted` says no; then the answer is false.
    fn settle_all(&self, is_wanted: impl Fn() -> bool) -> Result<bool> {
        let (_, _, mut saved) = self.runs.data.io_figures();
        let mut changed = false;
        let mut wanted = true;
        for id in self.pending_trees() {
            wanted = is_wanted();
            while wanted && self.settle_tree_once(id)? {
                changed = true;
                wanted = is_wanted();
                let (_, _, written) = self.runs.data.io_figures();
                if written - saved >= CHECKPOINT_BYTES {
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
    fn settle_tree_once(&self, id: TreeId) -> Result<bool> {
        let _working = self.feeder.working.lock();
        let tree = self.trees().get(id).cloned();
        let Some(tree) = tree.filter(|tree| !tree.loading) else {
            return Ok(false);
        };
        let (_, _, before) = self.runs.data.io_figures();
        let root = self.builder(id, &tree).settle_step(&tree.root)?;
        let (_, _, after) = self.runs.data.io_figures();
        let spend = |credit: u64| Some(credit.saturating_sub(after - before));
        let _ = (self.feeder.credit).fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend);
        let Some(root) = root else {
            return Ok(false);
        };
        self.publish_roots([(id, root)]);
        Ok(true)
    }
}
