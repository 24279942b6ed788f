//! All collections at one moment.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::View;
use frond_storage::keyspace::Snapshot;

/// All collections at one moment: a view of the catalog and a snapshot that agree.
pub(crate) struct CatalogSnapshot {
    pub(super) view: ArcSwap<View>,
    pub(super) snapshot: Snapshot,
}

impl CatalogSnapshot {
    pub(super) fn new(view: Arc<View>, snapshot: Snapshot) -> CatalogSnapshot {
        let view = ArcSwap::from(view);
        CatalogSnapshot { view, snapshot }
    }

    pub(super) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}
