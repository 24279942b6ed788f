//! Secondary indexes: what they are ([`spec`]), of which kinds ([`kinds`]), which keys a document has in them ([`keys`]), the
//! layout of their entries ([`entry`]), the documents that can be rebuilt from them ([`covered`]),
//! how an index is filled over existing documents ([`build`]), and documents that expire ([`ttl`]).

pub mod build;
mod compare;
pub mod covered;
pub mod entry;
pub mod keys;
pub mod kinds;
pub mod spec;
pub mod ttl;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::keyspace::TreeId;
use spec::IndexSpec;

/// A secondary index of a collection.
#[derive(Debug)]
pub struct Index {
    /// What `createIndexes` was given.
    pub spec: IndexSpec,
    /// The tree that holds the entries.
    pub tree: TreeId,
    /// Whether queries may use it. Writers keep an index up to date while it is being built.
    pub ready: bool,
    /// Side trees, only of a unique index that is being built; writers write to the last one. See [`build`].
    pub sides: Vec<TreeId>,
    /// One bit for each field that has met an array, from the lowest. Only ever gains bits.
    multikey: AtomicU32,
    /// Those of the bits that a commit has stored in the catalog.
    multikey_stored: AtomicU32,
    uses: Usage,
}

/// How often something was used.
#[derive(Debug)]
pub struct Usage {
    /// Queries.
    queries: AtomicU64,
    /// When counting began, in milliseconds since 1970.
    pub since_ms: i64,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage {
            queries: AtomicU64::new(0),
            since_ms: crate::write::now_ms(),
        }
    }
}

impl Usage {
    /// Queries since then.
    pub fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }

    /// Counts a query.
    pub(crate) fn add(&self) {
        self.queries.fetch_add(1, Ordering::Relaxed);
    }
}

impl Index {
    /// An index as the catalog holds it.
    pub fn new(spec: IndexSpec, tree: TreeId, ready: bool, multikey: u32) -> Index {
        Index {
            spec,
            tree,
            ready,
            sides: Vec::new(),
            multikey: AtomicU32::new(multikey),
            multikey_stored: AtomicU32::new(multikey),
            uses: Usage::default(),
        }
    }

    /// The same index, ready for queries.
    pub fn to_ready(&self) -> Index {
        let ready = Index::new(self.spec.clone(), self.tree, true, self.multikey());
        let stored = self.multikey_stored.load(Ordering::SeqCst);
        ready.multikey_stored.store(stored, Ordering::SeqCst);
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

    /// An index like this one with another specification, in another tree; nothing of it is stored yet.
    pub fn with_tree(&self, spec: IndexSpec, tree: TreeId) -> Index {
        let fresh = Index::new(spec, tree, true, 0);
        fresh.add_multikey(self.multikey());
        fresh
    }

    /// The same index, being built, with these side trees.
    pub fn with_sides(&self, sides: Vec<TreeId>) -> Index {
        Index {
            ready: false,
            sides,
            ..self.to_ready()
        }
    }

    /// The side tree that writers write to instead of the index.
    pub fn side(&self) -> Option<TreeId> {
        self.sides.last().copied()
    }

    /// Whether an entry is nothing but a put of fields and `_id`, with what their encoding lost.
    pub(crate) fn is_plain(&self) -> bool {
        let spec = &self.spec;
        let special = spec.unique || spec.prepare_unique || spec.clustering;
        !special && self.sides.is_empty()
    }

    /// All trees of the index.
    pub fn trees(&self) -> impl Iterator<Item = TreeId> {
        std::iter::once(self.tree).chain(self.sides.iter().copied())
    }

    /// The fields that have met an array. A reader asks after it took its snapshot: the bit is set
    /// before the commit of the first document that needs it.
    pub fn multikey(&self) -> u32 {
        self.multikey.load(Ordering::SeqCst)
    }

    /// Whether any field has met an array.
    pub fn is_multikey(&self) -> bool {
        self.multikey() != 0
    }

    /// Adds bits. To be called before the commit of the document that needs them, which also
    /// stores them in the catalog.
    pub(crate) fn add_multikey(&self, fields: u32) {
        self.multikey.fetch_or(fields, Ordering::SeqCst);
    }

    /// Whether the catalog holds all of these bits.
    pub(crate) fn is_multikey_stored(&self, fields: u32) -> bool {
        fields & !self.multikey_stored.load(Ordering::SeqCst) == 0
    }

    /// To be called after the commit that stored these bits in the catalog.
    pub(crate) fn stored_multikey(&self, fields: u32) {
        self.multikey_stored.fetch_or(fields, Ordering::SeqCst);
    }

    /// How often queries used it since it was made or the server started.
    pub fn uses(&self) -> &Usage {
        &self.uses
    }
}
