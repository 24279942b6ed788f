//! Handles of the store that do not follow its current state: reads at a fixed moment.

use std::sync::Arc;

use crate::catalog::Moment;
use crate::store::DocumentStore;

/// All collections at one moment, for read concern `snapshot`. Cheap to clone. While a clone lives, the data of the moment
/// is kept in memory or on disk.
#[derive(Clone)]
pub struct SnapshotReads(Arc<Moment>);

impl DocumentStore {
    /// The current moment. It sees all commits that were acknowledged before.
    pub fn snapshot_reads(&self) -> SnapshotReads {
        SnapshotReads(Arc::new(self.catalog().moment()))
    }

    /// A handle that reads at a moment. It cannot write: its requests fail with `IllegalOperation` (20).
    #[must_use]
    pub fn at(&self, moment: &SnapshotReads) -> DocumentStore {
        self.with_catalog(self.catalog().at(&moment.0))
    }
}

impl SnapshotReads {
    /// Bytes of memtables that it keeps in memory beyond the current state of the store.
    pub fn retained_bytes(&self, store: &DocumentStore) -> u64 {
        store.engine().retained_by(self.0.snapshot())
    }
}
