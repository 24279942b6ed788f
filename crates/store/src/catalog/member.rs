//! The catalog of a member of a replica set that does not lead: it follows what the leader has committed.
//!
//! The engine applies the leader's commits to the trees. What the catalog has in memory follows them, commit by commit:
//! - **Definitions.** Before a commit becomes visible that changes entries of collections, indexes, sessions or the oplog, or a
//!   document of `system.views`, the epochs of all collections become odd; after it the changed definitions are read and published.
//!   So readers do what they do beside a change of this server, see [`super`]. There are no writers.
//! - **Multikey paths** are added before the commit becomes visible, as a writer does it.
//! - **Counters** of documents and bytes are changed by what the commit merges into them.
//! - The server is notified of changes of the collections that it watches, tailable cursors of new documents, and readers of the
//!   oplog of new entries.
//!
//! A member that begins to lead reads what only a leader needs ([`Catalog::prepare_to_lead`]): the next record ids, the
//! sizes of sections of the oplog, the bound of the clock.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::view_definition::SYSTEM_VIEWS;
use super::{Catalog, CatalogState, Collection, DROPPED, Uuid, View, persist, reload};
use crate::cluster_time::ClusterTime;
use crate::oplog::Oplog;
use frond_storage::error::{Error, Result};
use frond_storage::index::Index;
use frond_storage::keyspace::{
    ApplyListener, CATALOG_TREE, EngineError, MessageKind, Op, Ops, TreeId,
};
use frond_storage::merge::{self, Counts};

/// The effects of a commit, besides documents of ordinary collections.
#[derive(Clone, Copy, Default)]
struct Effects {
    definitions: bool,
    /// Documents of a collection that the server watches.
    watched: bool,
    /// The oldest entries of the oplog are removed.
    trims_oplog: bool,
    /// Documents of a collection that has tailable cursors.
    tailed: Option<TreeId>,
}

/// The parts of a view that commits are compared with.
struct Known {
    view: Arc<View>,
    collections: HashMap<Uuid, Arc<Collection>>,
    indexes: HashMap<TreeId, Arc<Index>>,
    /// Trees whose documents matter: of `system.views`, of watched collections, of collections in the order of insertion.
    trees: HashMap<TreeId, Kind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Definitions,
    Watched,
    Tailed,
}

impl Known {
    fn new(view: Arc<View>, watched: &[&str]) -> Known {
        let collections: HashMap<_, _> = (view.iter())
            .map(|collection| (collection.uuid, collection.clone()))
            .collect();
        let mut trees = HashMap::new();
        for collection in view.iter() {
            let kind = if collection.ns.coll() == SYSTEM_VIEWS {
                Kind::Definitions
            } else if watched.contains(&collection.ns.as_str()) {
                Kind::Watched
            } else if collection.numbers_records() {
                Kind::Tailed
            } else {
                continue;
            };
            trees.insert(collection.primary, kind);
        }
        let indexes = (view.iter())
            .flat_map(|collection| &collection.indexes)
            .map(|index| (index.tree, index.clone()))
            .collect();
        Known {
            collections,
            indexes,
            trees,
            view,
        }
    }
}

/// Gets the commits of the leader.
struct Follower {
    state: Weak<CatalogState>,
    known: Mutex<Option<Arc<Known>>>,
    /// Of the commit that is being applied.
    effects: Mutex<Effects>,
}

impl Follower {
    fn known(&self, state: &CatalogState) -> Arc<Known> {
        let view = state.current.load_full();
        let mut known = self.known.lock();
        match &*known {
            Some(known) if Arc::ptr_eq(&known.view, &view) => known.clone(),
            _ => {
                let new = Arc::new(Known::new(view, state.hooks.watched()));
                *known = Some(new.clone());
                new
            }
        }
    }
}

impl Effects {
    fn add(&mut self, known: &Known, oplog: Option<TreeId>, op: &Op<'_>) {
        match op {
            Op::Entry {
                tree, key, value, ..
            } if *tree == CATALOG_TREE => self.add_entry(known, key, value),
            Op::Entry { tree, .. } => match known.trees.get(tree) {
                None => {}
                Some(Kind::Definitions) => self.definitions = true,
                Some(Kind::Watched) => self.watched = true,
                Some(Kind::Tailed) => self.tailed = Some(*tree),
            },
            Op::DeleteRange { tree, .. } if Some(*tree) == oplog => self.trims_oplog = true,
            Op::DeleteRange { tree, .. } => {
                self.watched |= known.trees.contains_key(tree);
            }
            // Their entries in the catalog show it.
            Op::CreateTree(..) | Op::DropTree(_) => {}
        }
    }

    /// Adds a change of an entry of the catalog tree.
    fn add_entry(&mut self, known: &Known, key: &[u8], value: &[u8]) {
        match key {
            [persist::MULTIKEY, rest @ ..] => {
                let tree = rest.get(16..).and_then(|tree| tree.try_into().ok());
                let index =
                    tree.and_then(|tree| known.indexes.get(&TreeId(u32::from_be_bytes(tree))));
                if let Some(index) = index
                    && let Ok(paths) = merge::read_multikey(value)
                {
                    index.add_multikey(&paths);
                    index.stored_multikey(&paths);
                }
            }
            [persist::COUNTER, ..] => {}
            _ if key == ClusterTime::KEY || Oplog::is_mark(key) => {}
            _ => self.definitions = true,
        }
    }

    fn is_any(&self) -> bool {
        self.definitions || self.watched || self.trims_oplog || self.tailed.is_some()
    }
}

/// Changes the counter in memory as a commit changes the stored one.
fn count(known: &Known, op: &Op<'_>) {
    let Op::Entry {
        tree: CATALOG_TREE,
        kind,
        key: [persist::COUNTER, uuid @ ..],
        value,
    } = op
    else {
        return;
    };
    let uuid: Option<Uuid> = (*uuid).try_into().ok();
    let collection = uuid.and_then(|uuid| known.collections.get(&uuid));
    if let Some((collection, counts)) = collection.zip(Counts::from_bytes(value)) {
        match kind {
            MessageKind::Merge => collection.count(counts),
            MessageKind::Put => collection.set_counts(counts),
            MessageKind::Delete => {}
        }
    }
}

impl ApplyListener for Follower {
    fn before(&self, operations: Ops<'_>) -> bool {
        let Some(state) = self.state.upgrade() else {
            return false;
        };
        let known = self.known(&state);
        let oplog = state.oplog.tree();
        let mut effects = Effects::default();
        for op in operations {
            effects.add(&known, oplog, &op);
            count(&known, &op);
        }
        if effects.definitions {
            state.change_epochs(&known.view);
        }
        *self.effects.lock() = effects;
        if oplog.is_some() {
            // Its entries are visible before the readers are notified of them.
            let before = state.oplog.last().to_u64();
            state.oplog.readers().begin_applying(before);
        }
        // Readers of the oplog wait for stamps.
        effects.is_any() || oplog.is_some()
    }

    fn after(&self, last_stamp: Option<u64>) -> std::result::Result<(), EngineError> {
        let Some(state) = self.state.upgrade() else {
            return Ok(());
        };
        let known = self.known(&state);
        let effects = std::mem::take(&mut *self.effects.lock());
        let followed = state.follow_commit(&known, effects, last_stamp);
        state.oplog.readers().end_applying();
        followed.map_err(|error| match error {
            Error::Engine(error) => error,
            error => EngineError::Failed(format!(
                "following the catalog of the leader: {}",
                error.message()
            )),
        })
    }
}

impl CatalogState {
    /// Makes the epochs of all collections odd, or even again.
    fn change_epochs(&self, view: &View) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        for collection in view.iter() {
            collection.shared.epoch.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Takes over what a commit of the leader has changed.
    fn follow_commit(
        &self,
        known: &Known,
        effects: Effects,
        last_stamp: Option<u64>,
    ) -> Result<()> {
        if effects.definitions {
            let reloaded = self.reload_applied(&known.view);
            self.change_epochs(&known.view);
            reloaded?;
        }
        if effects.trims_oplog {
            self.oplog.find_first(&self.engine.snapshot())?;
        }
        if effects.watched {
            self.hooks.changed();
        }
        if let Some(tree) = effects.tailed {
            let mut collections = known.collections.values();
            if let Some(tailed) = collections.find(|collection| collection.primary == tree) {
                tailed.tail().notify();
            }
        }
        if let Some(stamp) = last_stamp {
            self.oplog.note_applied(stamp);
        }
        Ok(())
    }

    /// Reads the definitions that a commit has changed, and publishes them.
    fn reload_applied(&self, before: &Arc<View>) -> Result<()> {
        let snapshot = self.engine.snapshot();
        let after = reload::load(
            &snapshot,
            before,
            &self.hooks,
            self.large,
            &self.coordination,
        )?;
        self.session_tree.set(persist::session_tree(&snapshot)?);
        self.oplog.reload(&snapshot)?;
        let versions: HashMap<Uuid, u64> = (after.iter())
            .map(|collection| (collection.uuid, collection.version))
            .collect();
        self.show(after);
        for collection in before.iter() {
            let version = *versions.get(&collection.uuid).unwrap_or(&DROPPED);
            if version != collection.version {
                *collection.shared.gate.close_for_sure() = version;
                collection.shared.records.tail.notify();
            }
        }
        Ok(())
    }
}

/// Lets a catalog follow what its engine applies.
pub(super) fn start(state: &Arc<CatalogState>) -> Result<()> {
    let files = state.engine.require_files()?;
    files.set_apply_listener(Arc::new(Follower {
        state: Arc::downgrade(state),
        known: Mutex::default(),
        effects: Mutex::default(),
    }));
    Ok(())
}

impl Catalog {
    /// Reads what a leader has in memory and a follower has not. Nothing is applied meanwhile, and this server does not commit yet.
    ///
    /// # Errors
    /// Errors of the engine, `DataCorruptionDetected` (301).
    pub(crate) fn prepare_to_lead(&self) -> Result<()> {
        let snapshot = self.engine().snapshot();
        for collection in self.view().iter() {
            if collection.numbers_records() {
                let records = &collection.shared.records;
                records.load(&snapshot, collection.primary)?;
            }
        }
        self.oplog().count_again(&snapshot)
    }

    /// Begins the catalog of a new set. This server leads, and nothing else commits yet.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn begin_catalog(&self) -> Result<()> {
        persist::create_missing(self.engine())
    }

    /// Ends what the leader before has left unfinished. This server leads.
    ///
    /// # Errors
    /// As [`Catalog::prepare_to_lead`]; `NotWritablePrimary` (10107).
    pub(crate) fn clean_up_as_leader(&self) -> Result<()> {
        self.drop_temporary()?;
        self.restart_unfinished_indexes()?;
        self.drop_orphaned_trees().map(drop)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
