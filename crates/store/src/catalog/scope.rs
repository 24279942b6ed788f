//! A handle of the catalog decides which state is read and where writes go: the current state of the store, a transaction, or a fixed
//! moment.
//!
//! Requests take a [`Catalog`] and do not know its scope. They get definitions with a snapshot that agrees from
//! [`Catalog::read`], and write through [`Catalog::write`] and [`Catalog::commit_on`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use frond_error::ErrorCode;

use super::{
    Catalog, CatalogSnapshot, Collection, Effects, OpenTransaction, PUBLICATION_WAIT, SYSTEM_VIEWS,
    View,
};
use crate::coordination::{AtGate, Coordination};
use frond_oplog::entry::Session;
use frond_storage::error::{Result, command};
use frond_storage::keyspace::{Interrupt, Snapshot, WriteSet};
use frond_storage::merge::Counts;
use frond_storage::namespace::Namespace;
use frond_storage::points::point;

/// The scope of a handle.
#[derive(Clone)]
pub(super) enum Scope {
    Live,
    /// A transaction: the moment of its begin, and its own writes.
    Transaction(Arc<OpenTransaction>),
    /// A fixed moment, which takes no writes.
    Snapshot(Arc<CatalogSnapshot>),
}

impl Catalog {
    /// The views of this handle.
    pub(super) fn views(&self) -> &ArcSwap<View> {
        match &self.scope {
            Scope::Live => &self.state.current,
            Scope::Transaction(transaction) => transaction.view(),
            Scope::Snapshot(catalog_snapshot) => &catalog_snapshot.view,
        }
    }

    /// A handle of the same catalog in another scope.
    fn with_scope(&self, scope: Scope) -> Catalog {
        Catalog {
            state: self.state.clone(),
            scope,
            written: self.written.clone(),
        }
    }

    /// A handle that reads at a moment.
    pub(crate) fn at(&self, catalog_snapshot: &Arc<CatalogSnapshot>) -> Catalog {
        self.with_scope(Scope::Snapshot(catalog_snapshot.clone()))
    }

    /// Begins a transaction at a moment, of a client or of the server.
    pub(crate) fn begin(
        &self,
        catalog_snapshot: &CatalogSnapshot,
        of_server: bool,
    ) -> OpenTransaction {
        OpenTransaction::begin(&self.state, catalog_snapshot, of_server)
    }

    /// A handle that reads and writes in a transaction.
    pub(crate) fn in_transaction(&self, transaction: &Arc<OpenTransaction>) -> Catalog {
        self.with_scope(Scope::Transaction(transaction.clone()))
    }

    /// Commits a transaction together with what `extra` puts into its write set. Returns whether anything was written.
    /// `session` is that of its entry in the oplog.
    ///
    /// # Errors
    /// `WriteConflict` (112), `NoSuchTransaction` (251), errors of the engine. The transaction is aborted then.
    pub(crate) fn commit_transaction(
        &self,
        transaction: &OpenTransaction,
        session: Option<Session>,
        extra: impl FnOnce(&mut WriteSet),
    ) -> Result<bool> {
        transaction.commit(&self.state, session, extra)
    }

    /// Whether the transaction of this handle has created the collection, so that it is known to this transaction only.
    pub(crate) fn has_created(&self, collection: &Collection) -> bool {
        self.transaction()
            .is_some_and(|transaction| transaction.has_created(collection))
    }

    /// The transaction of this handle.
    pub(super) fn transaction(&self) -> Option<&Arc<OpenTransaction>> {
        match &self.scope {
            Scope::Transaction(transaction) => Some(transaction),
            Scope::Live | Scope::Snapshot(_) => None,
        }
    }

    /// Whether this handle is that of a transaction. A conflict ends it; nothing is tried again in it.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.transaction().is_some()
    }

    /// A handle for a read of several steps: in a transaction, one that does not see its later writes.
    ///
    /// # Errors
    /// `NoSuchTransaction` (251) after its end.
    pub(crate) fn for_one_read(&self) -> Result<Option<Catalog>> {
        let Some(transaction) = self.transaction() else {
            return Ok(None);
        };
        Ok(Some(self.at(&Arc::new(transaction.catalog_snapshot()?))))
    }

    /// Stages a commit of documents, in a transaction.
    ///
    /// # Errors
    /// As [`OpenTransaction::stage`].
    pub(crate) fn stage(
        &self,
        collection: &Collection,
        batch: WriteSet,
        effects: Effects,
    ) -> Result<()> {
        match &self.scope {
            Scope::Transaction(transaction) => {
                transaction.stage(&self.state, collection, batch, effects)
            }
            Scope::Live | Scope::Snapshot(_) => Err(read_only()),
        }
    }

    /// The change of a collection's counter that waits for the commit of the transaction.
    pub(crate) fn pending_counts(&self, collection: &Collection) -> Counts {
        let transaction = self.transaction();
        transaction.map_or(Counts::default(), |open| open.pending_counts(collection))
    }

    /// Refuses writes of documents that this scope does not take.
    ///
    /// # Errors
    /// `IllegalOperation` (20) at a fixed moment; in a transaction `OperationNotSupportedInTransaction` (263), and 50791 for
    /// system collections.
    pub(super) fn check_scope_writable(&self, ns: &Namespace) -> Result<()> {
        match &self.scope {
            Scope::Live => Ok(()),
            Scope::Snapshot(_) => Err(read_only()),
            Scope::Transaction(transaction) if transaction.is_of_server() => Ok(()),
            Scope::Transaction(_) => self.check_writable_in_transaction(ns),
        }
    }

    fn check_writable_in_transaction(&self, ns: &Namespace) -> Result<()> {
        if matches!(ns.db(), "admin" | "config" | "local") {
            return Err(unsupported(format!(
                "Cannot run command against the '{}' database in a transaction.",
                ns.db()
            )));
        }
        if ns.coll().starts_with("system.") && ns.coll() != SYSTEM_VIEWS {
            return Err(command(
                ErrorCode::Location(50791),
                format!("Cannot write to system collection {ns} within a transaction."),
            ));
        }
        let Some(collection) = self.collection(ns) else {
            return Ok(());
        };
        if collection.settings.capped.is_some() {
            return Err(unsupported(format!(
                "Collection '{ns}' is a capped collection. Writes in transactions are not allowed on capped collections."
            )));
        }
        if collection.settings.time_series.is_some() {
            return Err(unsupported(format!(
                "Cannot write to time-series collection {ns} in a multi-document transaction."
            )));
        }
        Ok(())
    }

    /// The error of a stage that this scope does not take.
    pub(crate) fn unsupported_stage(&self, stage: &str) -> frond_storage::error::Error {
        match &self.scope {
            Scope::Transaction(_) => unsupported(format!(
                "Stage not supported inside of a multi-document transaction: {stage}"
            )),
            Scope::Live | Scope::Snapshot(_) => command(
                ErrorCode::InvalidOptions,
                format!("The stage {stage} cannot be used with read concern 'snapshot'"),
            ),
        }
    }

    /// Whether this handle follows the current state of the store. Counters of documents are those of its collections then.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.scope, Scope::Live)
    }

    /// Refuses what works on the current state only: changes of the catalog, and work beside writers.
    ///
    /// # Errors
    /// `OperationNotSupportedInTransaction` (263), `IllegalOperation` (20) at a fixed moment.
    pub(crate) fn check_live(&self) -> Result<()> {
        match &self.scope {
            Scope::Live => Ok(()),
            Scope::Snapshot(_) => Err(read_only()),
            Scope::Transaction(_) => Err(unsupported(
                "this operation works on the current state of the store; run it outside of the multi-document transaction",
            )),
        }
    }

    /// All collections at the current moment.
    ///
    /// It waits for no change of a definition, for the reasons of [`Catalog::read`].
    pub(crate) fn catalog_snapshot(&self) -> CatalogSnapshot {
        let state = &self.state;
        if let Coordination::Cluster(cluster) = &state.coordination {
            return self.catalog_snapshot_shared(cluster);
        }
        loop {
            let before = state.epoch.load(Ordering::SeqCst);
            let view = state.current.load_full();
            let snapshot = state.engine.snapshot();
            let after = state.epoch.load(Ordering::SeqCst);
            let with_announced = state.with_announced(view.clone(), &snapshot);
            if Arc::ptr_eq(&view, &state.current.load()) {
                let is_at_rest = before == after && before.is_multiple_of(2);
                if is_at_rest || view.iter().all(|collection| collection.is_in(&snapshot)) {
                    return CatalogSnapshot::new(with_announced, snapshot);
                }
                std::thread::sleep(PUBLICATION_WAIT);
            }
        }
    }

    /// A snapshot of this scope, for an operation that has its definition already.
    ///
    /// # Errors
    /// `NoSuchTransaction` (251) after the end of the transaction.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        match &self.scope {
            Scope::Live => Ok(self.state.engine.snapshot()),
            Scope::Transaction(transaction) => transaction.snapshot(),
            Scope::Snapshot(catalog_snapshot) => Ok(catalog_snapshot.snapshot.clone()),
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
        if let Coordination::Cluster(cluster) = &self.state.coordination {
            return self.read_shared(ns, cluster);
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
                if (before == after && before.is_multiple_of(2)) || collection.is_in(&snapshot) {
                    return Ok(Some((collection, snapshot)));
                }
                Interrupt::check_current()?;
                std::thread::sleep(PUBLICATION_WAIT);
            }
        }
    }

    /// Runs `commit` while `collection` is the current definition and cannot change. `None`, without
    /// running it, if the definition has changed since. In a transaction the definition is checked by
    /// [`Catalog::stage`] and by the transaction's commit.
    ///
    /// # Errors
    /// The operation was interrupted while it waited for a change of the definition.
    pub fn commit_on<R>(
        &self,
        collection: &Collection,
        commit: impl FnOnce() -> R,
    ) -> Result<Option<R>> {
        if !self.is_live() {
            return Ok(Some(commit()));
        }
        point("staged documents are about to be committed");
        let _here = self.before_gate();
        let gate = collection.shared.gate.pass()?;
        Ok((*gate == collection.version).then(commit))
    }

    /// With other servers, waits for the lease. The result is dropped behind the gate.
    fn before_gate(&self) -> Option<AtGate<'_>> {
        self.await_lease();
        self.state.coordination.at_gate()
    }

    /// Runs `write` with the current definition of a collection, which cannot change meanwhile.
    /// `write` commits once and returns soon. `None` if there is no such collection.
    ///
    /// # Errors
    /// The operation was interrupted while it waited for a change of the definition.
    pub fn write<R>(
        &self,
        ns: &Namespace,
        write: impl FnOnce(&Collection) -> R,
    ) -> Result<Option<R>> {
        loop {
            let Some(collection) = self.collection(ns) else {
                return Ok(None);
            };
            if !self.is_live() {
                return Ok(Some(write(&collection)));
            }
            let _here = self.before_gate();
            let gate = collection.shared.gate.pass()?;
            if *gate == collection.version {
                return Ok(Some(write(&collection)));
            }
            // The definition changed between the two lines above, or is about to be published.
            drop(gate);
            Interrupt::check_current()?;
            std::thread::yield_now();
        }
    }
}

/// Error 263.
pub(super) fn unsupported(what: impl Into<String>) -> frond_storage::error::Error {
    command(ErrorCode::OperationNotSupportedInTransaction, what)
}

/// The error of a write at a fixed moment.
fn read_only() -> frond_storage::error::Error {
    command(
        ErrorCode::IllegalOperation,
        "this reads a snapshot of the past, and cannot write; write without read concern 'snapshot'",
    )
}
