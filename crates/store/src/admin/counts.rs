//! The numbers of collections by kind.

use crate::store::DocumentStore;

/// The numbers of collections and views in the catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogCounts {
    /// Collections of users, of any kind but views.
    pub collections: u64,
    /// Capped ones of them.
    pub capped: u64,
    /// Time series of them.
    pub time_series: u64,
    pub views: u64,
    /// Collections of the server.
    pub internal: u64,
}

impl DocumentStore {
    pub fn catalog_counts(&self) -> CatalogCounts {
        let view = self.catalog().view();
        let mut counts = CatalogCounts {
            views: view.definition_count() as u64,
            ..CatalogCounts::default()
        };
        for collection in view.iter() {
            let ns = &collection.ns;
            if ns.coll().starts_with("system.") || matches!(ns.db(), "admin" | "config" | "local") {
                counts.internal += 1;
                continue;
            }
            counts.collections += 1;
            counts.capped += u64::from(collection.settings.capped.is_some());
            counts.time_series += u64::from(collection.settings.time_series.is_some());
        }
        counts
    }
}
