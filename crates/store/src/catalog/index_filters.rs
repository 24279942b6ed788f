//! Index filters: which indexes queries of a shape may use, until the server stops. Shapes are hashes that the planner computes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frond_bson::DocBuf;
use parking_lot::Mutex;

use frond_storage::plan_rules::AllowedIndexes;

/// A filter of `planCacheSetFilter`: the indexes that queries of one shape may use.
#[derive(Clone, Debug)]
pub struct IndexFilter {
    /// An example of the queries: `query`, `sort`, `projection` and `collation`, as they were given.
    pub query: DocBuf,
    /// The indexes that they may use.
    pub allowed: Arc<AllowedIndexes>,
}

/// The index filters of a collection.
#[derive(Debug, Default)]
pub struct IndexFilters {
    /// Whether there are any.
    is_used: AtomicBool,
    by_shape: Mutex<BTreeMap<u64, IndexFilter>>,
}

impl IndexFilters {
    /// Sets the filter of a shape.
    pub(crate) fn set(&self, shape: u64, filter: IndexFilter) {
        let mut by_shape = self.by_shape.lock();
        by_shape.insert(shape, filter);
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Removes the filter of a shape, or all.
    pub(crate) fn clear(&self, shape: Option<u64>) {
        let mut by_shape = self.by_shape.lock();
        match shape {
            Some(shape) => {
                by_shape.remove(&shape);
            }
            None => by_shape.clear(),
        }
        self.is_used.store(!by_shape.is_empty(), Ordering::Relaxed);
    }

    pub(crate) fn list(&self) -> Vec<IndexFilter> {
        self.by_shape.lock().values().cloned().collect()
    }

    /// The indexes that queries of a shape may use; none if all.
    #[inline]
    pub(crate) fn allowed(&self, shape: impl FnOnce() -> u64) -> Option<Arc<AllowedIndexes>> {
        if !self.is_used.load(Ordering::Relaxed) {
            return None;
        }
        let shape = shape();
        let by_shape = self.by_shape.lock();
        by_shape.get(&shape).map(|filter| filter.allowed.clone())
    }
}
