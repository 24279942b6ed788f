//! One immutable state of the catalog in memory.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use super::Collection;
use super::view_definition::ViewDefinition;
use frond_storage::namespace::Namespace;

/// Shards of the map. A change copies one shard, so that creating thousands of collections one after the
/// other does not copy all of them each time.
const SHARDS: usize = 128;

type Hasher = BuildHasherDefault<DefaultHasher>;
pub(super) type Shard = HashMap<Namespace, Arc<Collection>, Hasher>;

/// All collections at one moment. A database exists as long as it has a collection.
#[derive(Clone, Debug)]
pub struct View {
    shards: Vec<Arc<Shard>>,
    /// The views, in MongoDB's sense: queries with a name.
    definitions: Arc<HashMap<Namespace, Arc<ViewDefinition>, Hasher>>,
    /// The version of the catalog, if several servers share it; otherwise 0.
    pub(super) version: i64,
}

fn shard_of(name: &str) -> usize {
    // The map inside of a shard uses the low bits of the same hash.
    (Hasher::default().hash_one(name) >> 40) as usize % SHARDS
}

impl View {
    pub fn empty() -> View {
        View {
            shards: vec![Arc::default(); SHARDS],
            definitions: Arc::default(),
            version: 0,
        }
    }

    /// The collection of this name.
    pub fn get(&self, ns: &Namespace) -> Option<&Arc<Collection>> {
        self.shards.get(shard_of(ns.as_str()))?.get(ns.as_str())
    }

    /// Whether the collection of a name is the same in another view, with the same definition.
    pub(super) fn has_same(&self, other: &View, name: &str) -> bool {
        let find = |view: &View| {
            let shard = view.shards.get(shard_of(name));
            shard.and_then(|shard| shard.get(name).cloned())
        };
        match (find(self), find(other)) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(&own, &other),
            _ => false,
        }
    }

    /// The definition of the view of this name.
    pub fn definition(&self, ns: &Namespace) -> Option<&Arc<ViewDefinition>> {
        self.definitions.get(ns.as_str())
    }

    /// Whether a collection or a view has this name.
    pub(super) fn has_name(&self, ns: &Namespace) -> bool {
        self.get(ns).is_some() || self.definition(ns).is_some()
    }

    /// The views of a database, by name.
    pub fn definitions(&self, db: &str) -> Vec<Arc<ViewDefinition>> {
        let of_db = self.definitions.values().filter(|view| view.ns.db() == db);
        let mut found: Vec<_> = of_db.cloned().collect();
        found.sort_by(|a, b| a.ns.cmp(&b.ns));
        found
    }

    /// The number of views.
    pub fn definition_count(&self) -> usize {
        self.definitions.len()
    }

    /// The pairs of shards in which two views differ.
    pub(super) fn changed_shards<'a>(
        &'a self,
        other: &'a View,
    ) -> impl Iterator<Item = (&'a Shard, &'a Shard)> {
        let pairs = self.shards.iter().zip(&other.shards);
        let changed = pairs.filter(|(own, other)| !Arc::ptr_eq(own, other));
        changed.map(|(own, other)| (&**own, &**other))
    }

    /// Whether the views, in MongoDB's sense, are known to be the same as in another state of the catalog.
    pub(super) fn has_same_definitions(&self, other: &View) -> bool {
        Arc::ptr_eq(&self.definitions, &other.definitions)
    }

    /// All views, in MongoDB's sense, in no order.
    pub(super) fn all_definitions(&self) -> impl Iterator<Item = &Arc<ViewDefinition>> {
        self.definitions.values()
    }

    /// Adds or replaces a view.
    pub(super) fn define(&mut self, definition: Arc<ViewDefinition>) {
        let definitions = Arc::make_mut(&mut self.definitions);
        definitions.insert(definition.ns.clone(), definition);
    }

    pub(super) fn undefine(&mut self, gone: impl Fn(&Namespace) -> bool) {
        Arc::make_mut(&mut self.definitions).retain(|ns, _| !gone(ns));
    }

    /// Adds or replaces a collection.
    pub(super) fn insert(&mut self, collection: Arc<Collection>) {
        if let Some(shard) = self.shards.get_mut(shard_of(collection.ns.as_str())) {
            Arc::make_mut(shard).insert(collection.ns.clone(), collection);
        }
    }

    pub(super) fn remove(&mut self, ns: &Namespace) {
        if let Some(shard) = self.shards.get_mut(shard_of(ns.as_str())) {
            Arc::make_mut(shard).remove(ns.as_str());
        }
    }

    /// All collections, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.shards.iter().flat_map(|shard| shard.values())
    }

    /// The collections of a database, by name.
    pub fn database(&self, db: &str) -> Vec<Arc<Collection>> {
        let of_db = self.iter().filter(|collection| collection.ns.db() == db);
        let mut found: Vec<_> = of_db.cloned().collect();
        found.sort_by(|a, b| a.ns.cmp(&b.ns));
        found
    }
}
