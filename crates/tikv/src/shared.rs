//! What all handles of a cluster share.

use std::sync::Arc;

use frond_tree::{MemoryBudget, MergeOperator, TreeId};

use crate::connection::Connection;
use crate::counters::Slots;
use crate::held::Held;
use crate::keys::Keys;
use crate::raiser::Raiser;
use crate::stamps::{DurableStamp, InFlight};
use crate::trees::TreeIds;

pub(crate) struct Shared {
    pub(crate) connection: Connection,
    pub(crate) keys: Keys,
    pub(crate) merge: Arc<dyn MergeOperator>,
    /// See [`crate::ClusterOptions::counters`].
    pub(crate) counters: Option<(TreeId, Vec<u8>)>,
    pub(crate) slots: Slots,
    pub(crate) held: Held,
    pub(crate) tree_ids: TreeIds,
    pub(crate) memory: MemoryBudget,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) durable_stamp: DurableStamp,
    pub(crate) raiser: Raiser,
}

impl Shared {
    /// Whether a key is a counter.
    pub(crate) fn is_counter(&self, tree: TreeId, key: &[u8]) -> bool {
        let counters = self.counters.as_ref();
        counters.is_some_and(|(of, prefix)| *of == tree && key.starts_with(prefix))
    }
}
