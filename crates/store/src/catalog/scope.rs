//! What a handle of the catalog reads, and where its writes go: the current state of the store, or a fixed moment.
//!
//! Requests take a [`Catalog`] and do not know its scope. They get definitions with a snapshot that agrees from
//! [`Catalog::read`], and write through [`Catalog::write`] and [`Catalog::commit_on`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use frond_error::ErrorCode;

use super::{Catalog, Collection, PUBLICATION_WAIT, View};
use crate::error::{Result, command};
use crate::keyspace::Snapshot;
use crate::namespace::Namespace;

/// The scope of a handle.
#[derive(Clone)]
pub(super) enum Scope {
    /// The current state.
    Live,
    /// A fixed moment, which takes no writes.
    Moment(Arc<Moment>),
}

/// All collections at one moment: a view of the catalog and a snapshot that agree.
pub(crate) struct Moment {
    view: ArcSwap<View>,
    snapshot: Snapshot,
}

impl Moment {
    /// Its snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl Catalog {
    /// The views of this handle.
    pub(super) fn views(&self) -> &ArcSwap<View> {
        match &self.scope {
            Scope::Live => &self.state.current,
            Scope::Moment(moment) => &moment.view,
        }
    }

    /// A handle of the same catalog in another scope.
    fn with_scope(&self, scope: Scope) -> Catalog {
        Catalog {
            state: self.state.clone(),
            scope,
        }
    }

    /// A handle that reads at a moment.
    pub(crate) fn at(&self, moment: &Arc<Moment>) -> Catalog {
        self.with_scope(Scope::Moment(moment.clone()))
    }

    /// Whether this handle follows the current state of the store. Counters of documents are those of its collections then.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.scope, Scope::Live)
    }

    /// Refuses what works on the current state only: changes of the catalog, and work beside writers.
    ///
    /// # Errors
    /// `IllegalOperation` (20) at a fixed moment.
    pub(crate) fn check_live(&self) -> Result<()> {
        match &self.scope {
            Scope::Live => Ok(()),
            Scope::Moment(_) => Err(read_only()),
        }
    }

    /// All collections at the current moment.
    ///
    /// It waits for no change of a definition, for the reasons of [`Catalog::read`].
    pub(crate) fn moment(&self) -> Moment {
        let state = &self.state;
        loop {
            let before = state.epoch.load(Ordering::SeqCst);
            let view = state.current.load_full();
            let snapshot = state.engine.snapshot();
            let after = state.epoch.load(Ordering::SeqCst);
            if Arc::ptr_eq(&view, &state.current.load()) {
                let is_at_rest = before == after && before.is_multiple_of(2);
                if is_at_rest || view.iter().all(|collection| collection.is_in(&snapshot)) {
                    let view = ArcSwap::from(view);
                    return Moment { view, snapshot };
                }
                std::thread::sleep(PUBLICATION_WAIT);
            }
        }
    }

    /// A snapshot of this scope, for an operation that has its definition already.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        match &self.scope {
            Scope::Live => Ok(self.state.engine.snapshot()),
            Scope::Moment(moment) => Ok(moment.snapshot.clone()),
        }
    }

    /// A collection's definition and a snapshot that agree: all its trees exist in the snapshot, with what belongs to this
    /// definition. `None` if there is no such collection.
    ///
    /// It waits for no change of the definition. While one is under way, the collection has no other writers, so any
    /// snapshot that has the trees of the previous definition will do; those of a change that drops some have them until its
    /// commit, and then the next definition is about to be published.
    pub fn read(&self, ns: &Namespace) -> Result<Option<(Arc<Collection>, Snapshot)>> {
        if !self.is_live() {
            let Some(collection) = self.collection(ns) else {
                return Ok(None);
            };
            return Ok(Some((collection, self.snapshot()?)));
        }
        loop {
            let Some(collection) = self.collection(ns) else {
                return Ok(None);
            };
            let before = collection.shared.epoch.load(Ordering::SeqCst);
            let snapshot = self.state.engine.snapshot();
            // The view is published before the epoch becomes even again, so an unchanged epoch says that this definition
            // and the snapshot are of the same moment.
            let current = self.collection(ns);
            if current.is_some_and(|now| Arc::ptr_eq(&now, &collection)) {
                let after = collection.shared.epoch.load(Ordering::SeqCst);
                if before == after && before.is_multiple_of(2) || collection.is_in(&snapshot) {
                    return Ok(Some((collection, snapshot)));
                }
                std::thread::sleep(PUBLICATION_WAIT);
            }
        }
    }

    /// Runs `commit` while `collection` is the current definition and cannot change. `None`, without
    /// running it, if the definition has changed since.
    pub fn commit_on<R>(&self, collection: &Collection, commit: impl FnOnce() -> R) -> Option<R> {
        let gate = collection.shared.gate.read();
        (*gate == collection.version).then(commit)
    }

    /// Runs `write` with the current definition of a collection, which cannot change meanwhile.
    /// `write` commits once and returns soon. `None` if there is no such collection.
    pub fn write<R>(&self, ns: &Namespace, write: impl FnOnce(&Collection) -> R) -> Option<R> {
        loop {
            let collection = self.collection(ns)?;
            let gate = collection.shared.gate.read();
            if *gate == collection.version {
                return Some(write(&collection));
            }
            // The definition changed between the two lines above, or is about to be published.
            drop(gate);
            std::thread::yield_now();
        }
    }
}

/// The error of a write at a fixed moment.
fn read_only() -> crate::error::Error {
    command(
        ErrorCode::IllegalOperation,
        "this reads a snapshot of the past, and cannot write; write without read concern 'snapshot'",
    )
}
