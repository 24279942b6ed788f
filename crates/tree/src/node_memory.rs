//! The memory of internal nodes that are on disk too. They are counted in the budget, and when they take more than a
//! quarter of it, those that were not used lately leave.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use frond_kv::MemoryBudget;
use parking_lot::Mutex;

/// The share of the budget that nodes may take.
const SHARE: u64 = 4;
/// Nodes that are looked at in one search. Those that are used, or shared with another version of their tree, stay.
const TRIED_MAX: usize = 64;

/// Fewer nodes that are gone are not searched for.
const GONE_MIN: usize = 64;

/// A node that can leave the memory.
pub(crate) trait Evict: Send + Sync {
    /// Drops the content, unless it was used since the last call or is shared. True if it is gone.
    fn evict(&self) -> bool;
}

/// The nodes in memory.
#[derive(Default)]
pub(crate) struct NodeMemory {
    /// H1: the bytes and the number of the contents that were added and are not gone. Each is removed once.
    bytes: AtomicU64,
    count: AtomicUsize,
    /// In the order of a clock. Some may be gone.
    nodes: Mutex<VecDeque<Weak<dyn Evict>>>,
}

impl NodeMemory {
    /// Bytes of the nodes that are on disk too.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Adds a node whose content takes `bytes`.
    pub(crate) fn add(&self, node: &Arc<dyn Evict>, bytes: usize, budget: &MemoryBudget) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        budget.pin_always(bytes);
        let mut nodes = self.nodes.lock();
        nodes.push_back(Arc::downgrade(node));
        // Most nodes go because their tree gets newer ones.
        if nodes.len() > GONE_MIN + 2 * count {
            nodes.retain(|node| node.strong_count() > 0);
        }
    }

    /// Called when the content of a node is gone.
    pub(crate) fn remove(&self, bytes: usize, budget: &MemoryBudget) {
        let all = self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        assert!(
            all >= bytes as u64,
            "H1: more memory of nodes is gone than there was"
        );
        let count = self.count.fetch_sub(1, Ordering::Relaxed);
        assert!(count > 0, "H1: a node is gone that was not counted");
        budget.unpin(bytes);
    }

    /// Evicts nodes while they take more than their share.
    pub(crate) fn make_room(&self, budget: &MemoryBudget) {
        let share = budget.bytes() / SHARE;
        if self.bytes() <= share {
            return;
        }
        let Some(mut nodes) = self.nodes.try_lock() else {
            return;
        };
        for _ in 0..TRIED_MAX.min(nodes.len()) {
            let Some(weak) = nodes.pop_front() else {
                return;
            };
            // It is gone if its tree has a newer version of it.
            if let Some(node) = weak.upgrade()
                && !node.evict()
            {
                nodes.push_back(weak);
            }
            if self.bytes() <= share / 8 * 7 {
                return;
            }
        }
    }
}
