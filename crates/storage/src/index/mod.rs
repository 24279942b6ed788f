//! Secondary indexes, each by itself: its definition ([`spec`], read by [`parse`]) and kind ([`kinds`]), the keys of a document
//! ([`keys`]), the layout of entries ([`entry`], [`side`]), documents rebuilt from entries ([`covered`]), the bounds
//! of a scan ([`bounds`]), and what a plan can expect of it ([`route`]). Collections and queries lie above.

pub mod bounds;
mod compare;
pub mod covered;
pub mod entry;
pub mod field;
pub mod keys;
pub mod kinds;
pub mod parse;
mod partial;
pub mod route;
pub mod side;
pub mod slots;
pub mod spec;
pub mod ttl;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use frond_query::paths::MultikeyPaths;

use crate::keyspace::TreeId;
use spec::IndexSpec;

/// A secondary index of a collection.
#[derive(Debug)]
pub struct Index {
    /// Its specification in `createIndexes`.
    pub spec: IndexSpec,
    /// The tree that holds the entries.
    pub tree: TreeId,
    /// Whether queries may use it. Writers keep an index up to date while it is being built.
    pub ready: bool,
    /// Side trees, only of a unique index that is being built; writers write to the last one. See [`side`].
    pub sides: Vec<TreeId>,
    /// The tree of the index in whose place this one comes when it is built. It has the same name and key. The catalog on
    /// disk does not know it before: after a crash its trees are dropped.
    pub replaces: Option<TreeId>,
    /// The path components that were arrays in some document. Components are only added.
    multikey: AtomicPaths,
    /// Those that a commit has stored in the catalog.
    multikey_stored: AtomicPaths,
    uses: Usage,
}

/// Use of an index by queries.
#[derive(Debug)]
pub struct Usage {
    queries: AtomicU64,
    /// When counting began, in milliseconds since 1970.
    pub since_ms: i64,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage {
            queries: AtomicU64::new(0),
            since_ms: crate::clock::now_ms(),
        }
    }
}

impl Usage {
    /// The number of queries.
    pub fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }

    pub fn add(&self) {
        self.queries.fetch_add(1, Ordering::Relaxed);
    }
}

/// [`MultikeyPaths`] that many threads read and add to: a set of components for each field.
#[derive(Debug)]
struct AtomicPaths(Box<[AtomicU32]>);

impl AtomicPaths {
    /// No component of this many fields.
    fn new(fields: usize) -> AtomicPaths {
        AtomicPaths((0..fields).map(|_| AtomicU32::new(0)).collect())
    }

    fn load(&self) -> MultikeyPaths {
        let mut paths = MultikeyPaths::default();
        for (field, components) in self.0.iter().enumerate() {
            paths.insert_set(field, components.load(Ordering::SeqCst));
        }
        paths
    }

    fn contains(&self, paths: &MultikeyPaths) -> bool {
        let mut sets = self.0.iter().zip(paths.sets());
        sets.all(|(here, wanted)| wanted & !here.load(Ordering::SeqCst) == 0)
    }

    fn add(&self, paths: &MultikeyPaths) {
        for (here, components) in self.0.iter().zip(paths.sets()) {
            here.fetch_or(*components, Ordering::SeqCst);
        }
    }
}

impl Index {
    /// An index in which no document had an array yet.
    pub fn new(spec: IndexSpec, tree: TreeId, ready: bool) -> Index {
        let fields = spec.fields.len();
        Index {
            spec,
            tree,
            ready,
            sides: Vec::new(),
            replaces: None,
            multikey: AtomicPaths::new(fields),
            multikey_stored: AtomicPaths::new(fields),
            uses: Usage::default(),
        }
    }

    /// The same index, ready for queries.
    pub fn to_ready(&self) -> Index {
        let ready = Index::new(self.spec.clone(), self.tree, true);
        ready.add_multikey(&self.multikey());
        ready.stored_multikey(&self.multikey_stored.load());
        ready
    }

    /// The same index with another specification of the same entries.
    pub fn with_spec(&self, spec: IndexSpec) -> Index {
        let mut changed = self.to_ready();
        changed.spec = spec;
        changed.ready = self.ready;
        changed.sides.clone_from(&self.sides);
        changed
    }

    /// The same index, being built, with these side trees.
    pub fn with_sides(&self, sides: Vec<TreeId>) -> Index {
        Index {
            ready: false,
            sides,
            replaces: self.replaces,
            ..self.to_ready()
        }
    }

    /// The side tree that writers write to instead of the index.
    pub fn side(&self) -> Option<TreeId> {
        self.sides.last().copied()
    }

    /// Whether an entry is a plain put: the key is fields and `_id`, the value what their encoding lost.
    pub fn is_plain(&self) -> bool {
        let spec = &self.spec;
        let is_partitioned = spec.records.partitions().is_some();
        let special = spec.unique || spec.prepare_unique || spec.clustering || is_partitioned;
        !special && self.sides.is_empty()
    }

    /// All trees of the index.
    pub fn trees(&self) -> impl Iterator<Item = TreeId> {
        std::iter::once(self.tree).chain(self.sides.iter().copied())
    }

    /// The path components that were arrays in some document. Readers take their snapshot first and call this
    /// afterwards: components are added before the commit of the first document that needs them.
    pub fn multikey(&self) -> MultikeyPaths {
        self.multikey.load()
    }

    /// Whether any field was an array in some document.
    pub fn is_multikey(&self) -> bool {
        !self.multikey().is_empty()
    }

    /// Whether all of these components are marked as arrays.
    pub fn has_multikey(&self, paths: &MultikeyPaths) -> bool {
        self.multikey.contains(paths)
    }

    /// Marks components as arrays. Call it before the commit of the document that needs them, which also
    /// stores them in the catalog.
    pub fn add_multikey(&self, paths: &MultikeyPaths) {
        self.multikey.add(paths);
    }

    /// Whether the catalog holds all of these components.
    pub fn is_multikey_stored(&self, paths: &MultikeyPaths) -> bool {
        self.multikey_stored.contains(paths)
    }

    /// Records that the catalog holds these components. Call it after the commit that stored them.
    pub fn stored_multikey(&self, paths: &MultikeyPaths) {
        self.multikey_stored.add(paths);
    }

    /// The number of queries that used it since it was created or the server started.
    pub fn uses(&self) -> &Usage {
        &self.uses
    }
}
