//! New collections of a commit that other collections take part in.
//!
//! Such a commit becomes visible in the engine before the catalog's view has its collections. In between a snapshot may
//! have its documents, and the view not. So the collections are announced before the commit: who finds their trees in a
//! snapshot knows that they exist.

use std::sync::Arc;

use super::{CatalogState, Collection, View};
use frond_storage::error::Result;
use frond_storage::keyspace::Snapshot;
use frond_storage::namespace::Namespace;
use frond_storage::points::point;

/// Collections that are about to be created. Dropping it withdraws those that are not published.
pub(super) struct Announced<'a> {
    state: &'a CatalogState,
    collections: Vec<Arc<Collection>>,
}

impl CatalogState {
    /// Announces collections. The lock on changes is held, if there are any.
    ///
    /// # Errors
    /// With other servers: as [`crate::coordination::Coordination::announce`].
    pub(super) fn announce(&self, collections: Vec<Arc<Collection>>) -> Result<Announced<'_>> {
        if !collections.is_empty() {
            self.coordination.announce()?;
            for collection in &collections {
                *collection.shared.gate.close_for_sure() = collection.version;
            }
            self.announced.store(Some(Arc::new(collections.clone())));
        }
        Ok(Announced {
            state: self,
            collections,
        })
    }

    /// The announced collection of this name, if its commit is done.
    pub(super) fn announced(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        let announced = self.announced.load();
        let found = announced.as_ref()?.iter().find(|one| one.ns == *ns)?;
        // While a cluster does not answer, the reads and writes that follow fail.
        let is_done = self.engine.has_tree(found.primary).unwrap_or(false);
        is_done.then(|| found.clone())
    }

    /// A collection that a view loaded before does not have: announced, or published since.
    pub(super) fn announced_or_published(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        if let Some(found) = self.announced(ns) {
            return Some(found);
        }
        point("a collection is neither in the view nor announced");
        // A collection that was announced when the view was loaded may have been published, or withdrawn.
        self.current.load().get(ns).cloned()
    }

    /// The view, which was loaded before the snapshot was taken, with the announced collections that are in the snapshot.
    pub(super) fn with_announced(&self, view: Arc<View>, snapshot: &Snapshot) -> Arc<View> {
        let announced = self.announced.load_full();
        let Some(announced) = announced.filter(|all| all.iter().any(|one| one.is_in(snapshot)))
        else {
            return view;
        };
        let mut view = View::clone(&view);
        for collection in announced.iter() {
            view.insert(collection.clone());
        }
        Arc::new(view)
    }
}

impl Announced<'_> {
    /// Publishes them, after the commit.
    pub(super) fn publish(self) {
        if !self.collections.is_empty() {
            self.state.publish(|view| {
                for collection in &self.collections {
                    view.insert(collection.clone());
                }
            });
        }
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        if !self.collections.is_empty() {
            self.state.announced.store(None);
        }
    }
}
