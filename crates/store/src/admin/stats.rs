//! Figures about collections and databases: `collStats`, `dbStats`.

use crate::catalog::Collection;
use crate::store::DocumentStore;
use frond_storage::error::Result;
use frond_storage::keyspace::{Engine, TreeId};
use frond_storage::namespace::{Namespace, check_database_name};
use frond_storage::options::Capped;

/// Figures about one collection. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectionStats {
    pub count: u64,
    /// Fast updates that may have inserted or enlarged documents which are not in `count` and `size`.
    pub uncounted_updates: u64,
    /// Sum of the documents' BSON sizes.
    pub size: u64,
    /// Mean size of a document, rounded down; 0 without documents.
    pub avg_obj_size: u64,
    /// Space of the documents: their compressed size in the data file, plus the uncompressed size, rounded up to
    /// blocks, of those that are only in memory and in the log. In a cluster sizes are estimates, of one copy.
    pub storage_size: u64,
    /// Space of all indexes.
    pub total_index_size: u64,
    /// Space of each index, by name. The documents lie in the index on `_id`; its own share is its search structure:
    /// internal nodes, indexes of runs, filters, and the nodes of memtables. With `storage_size` that is the space of
    /// the tree, so nothing is counted twice.
    pub index_sizes: Vec<(String, u64)>,
    /// Indexes, the one on `_id` included.
    pub indexes: u64,
    /// Its limits, if it is capped.
    pub capped: Option<Capped>,
}

/// Figures about one database. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DatabaseStats {
    pub collections: u64,
    pub views: u64,
    pub objects: u64,
    /// Sum of the documents' BSON sizes.
    pub data_size: u64,
    /// Space of the documents, as [`CollectionStats::storage_size`].
    pub storage_size: u64,
    /// Indexes, those on `_id` included.
    pub indexes: u64,
    /// Space of the indexes, as [`CollectionStats::total_index_size`].
    pub index_size: u64,
}

/// The unit of allocation of the data file.
const BLOCK_BYTES: u64 = 4096;

/// Space of a tree.
#[derive(Clone, Copy, Default)]
struct Space {
    bytes: u64,
    /// The part of search structures: of a cluster's tree, that of its keys.
    search_bytes: u64,
}

/// Returns the space of a tree. Only a cluster uses the number of entries, for its estimate. Data that no checkpoint has written counts with
/// its size in memory and in the log, which is larger than its compressed size in the data file.
fn space(engine: &Engine, tree: TreeId, entries: u64) -> Space {
    if let Some(cluster) = engine.cluster() {
        // Without an answer the size is not known.
        let size = cluster.tree_size(tree, entries).unwrap_or_default();
        return Space {
            bytes: size.bytes,
            search_bytes: size.key_bytes,
        };
    }
    let stats = engine.tree_stats(tree);
    let bytes = stats.disk_bytes + stats.memtable_bytes.next_multiple_of(BLOCK_BYTES);
    Space {
        bytes,
        search_bytes: stats.search_bytes.min(bytes),
    }
}

/// Space of a collection with its indexes, including those that are being built.
pub(crate) fn size(engine: &Engine, collection: &Collection) -> u64 {
    let documents = u64::try_from(collection.counts().documents).unwrap_or(0);
    let indexes = collection.indexes.iter().map(|index| index.tree);
    (collection.trees())
        .chain(indexes)
        .map(|tree| space(engine, tree, documents).bytes)
        .sum()
}

fn collection_stats(engine: &Engine, collection: &Collection) -> CollectionStats {
    let counts = collection.counts();
    let count = u64::try_from(counts.documents).unwrap_or(0);
    let size = u64::try_from(counts.bytes).unwrap_or(0);
    let mut index_sizes = Vec::new();
    let space = |tree| space(engine, tree, count);
    let primary = space(collection.primary);
    let segments = collection.segments.map(space).unwrap_or_default();
    let mut storage_size = primary.bytes + segments.bytes;
    if let Some(name) = collection.own_index_name() {
        index_sizes.push((name.to_owned(), primary.search_bytes));
        storage_size -= primary.search_bytes;
    }
    for index in collection.ready_indexes() {
        index_sizes.push((index.spec.name.clone(), space(index.tree).bytes));
    }
    CollectionStats {
        count,
        uncounted_updates: u64::try_from(counts.updates).unwrap_or(0),
        size,
        avg_obj_size: size.checked_div(count).unwrap_or(0),
        storage_size,
        total_index_size: index_sizes.iter().map(|(_, bytes)| bytes).sum(),
        indexes: index_sizes.len() as u64,
        capped: collection.settings.capped,
        index_sizes,
    }
}

impl DocumentStore {
    /// Figures about a collection; all zero if it does not exist, as in MongoDB.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView` (166).
    pub fn collection_stats(&self, ns: &Namespace) -> Result<CollectionStats> {
        if self.catalog().is_view(ns) {
            return Err(crate::catalog::is_a_view(ns));
        }
        let collection = self.catalog().collection(ns);
        Ok(
            collection.map_or_else(CollectionStats::default, |collection| {
                collection_stats(self.engine(), &collection)
            }),
        )
    }

    /// Figures about a database; all zero if it does not exist.
    ///
    /// # Errors
    /// `InvalidNamespace` (73).
    pub fn database_stats(&self, db: &str) -> Result<DatabaseStats> {
        check_database_name(db)?;
        let view = self.catalog().view();
        let mut total = DatabaseStats {
            views: view.definitions(db).len() as u64,
            ..DatabaseStats::default()
        };
        let oplog = self.catalog().oplog_collection();
        let oplog = oplog.filter(|oplog| oplog.ns.db() == db);
        for collection in view.database(db).into_iter().chain(oplog) {
            let stats = collection_stats(self.engine(), &collection);
            total.collections += 1;
            total.objects += stats.count;
            total.data_size += stats.size;
            total.storage_size += stats.storage_size;
            total.indexes += stats.indexes;
            total.index_size += stats.total_index_size;
        }
        Ok(total)
    }
}
