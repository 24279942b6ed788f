//! State that all handles of a cluster share.

use std::collections::HashMap;
use std::sync::Arc;

use frond_kv::{MemoryBudget, MergeOperator, TreeId};
use parking_lot::Mutex;

use crate::client::connection::Connection;
use crate::client::counters::Slots;
use crate::client::debounce::Debounce;
use crate::client::held_keys::HeldKeys;
use crate::client::keys::Keys;
use crate::client::regions::{Nodes, Regions};
use crate::client::registration::Registration;
use crate::client::sizes::Sizes;
use crate::client::stamps::{DurableStamp, InFlight};
use crate::client::trees::TreeIds;
use crate::collected::Collected;

pub(crate) struct Shared {
    pub(crate) connection: Connection,
    pub(crate) keys: Keys,
    pub(crate) merge: Arc<dyn MergeOperator>,
    /// See [`crate::ClusterOptions::counters`].
    pub(crate) counters: Option<(TreeId, Vec<u8>)>,
    pub(crate) slots: Slots,
    pub(crate) held: HeldKeys,
    pub(crate) tree_ids: TreeIds,
    pub(crate) memory: MemoryBudget,
    pub(crate) in_flight: Arc<InFlight>,
    /// The snapshots of this server.
    pub(crate) snapshots: Arc<InFlight>,
    /// The entry in PD by which TiKV keeps what they see.
    pub(crate) registration: Arc<Registration>,
    pub(crate) durable_stamp: DurableStamp,
    pub(crate) debounce: Debounce,
    pub(crate) regions: Regions,
    pub(crate) nodes: Nodes,
    pub(crate) row_bytes: RowBytes,
    pub(crate) tree_sizes: Sizes,
    /// The work of the garbage collector since the cluster was opened.
    pub(crate) collected: Mutex<Collected>,
}

/// The size of the rows that cursors have met last in each tree, so that the first page of the next one is not too large.
#[derive(Default)]
pub(crate) struct RowBytes {
    by_tree: Mutex<HashMap<TreeId, usize>>,
}

impl RowBytes {
    const TREES_MAX: usize = 16 << 10;

    /// 0 if it is not known.
    pub(crate) fn get(&self, tree: TreeId) -> usize {
        self.by_tree.lock().get(&tree).copied().unwrap_or(0)
    }

    pub(crate) fn set(&self, tree: TreeId, bytes: usize) {
        let mut by_tree = self.by_tree.lock();
        if by_tree.len() >= RowBytes::TREES_MAX {
            by_tree.clear();
        }
        by_tree.insert(tree, bytes);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.registration.end(&self.connection);
    }
}

impl Shared {
    /// Whether a key is a counter.
    pub(crate) fn is_counter(&self, tree: TreeId, key: &[u8]) -> bool {
        let counters = self.counters.as_ref();
        counters.is_some_and(|(of, prefix)| *of == tree && key.starts_with(prefix))
    }
}
