//! `compact`: the trees of a collection are emptied of pending messages, and the space that this frees goes back to the file
//! system.

use std::sync::Arc;

use frond_error::ErrorCode;

use crate::catalog::Collection;
use crate::own_files::OwnFiles;
use crate::store::DocumentStore;
use frond_storage::context::OpContext;
use frond_storage::error::{Result, command};
use frond_storage::keyspace::{Engine, FlushPause, TreeId};
use frond_storage::namespace::Namespace;

/// The step that `currentOp` shows.
const STEP: &str = "Compact: moving messages to the leaves";

/// The estimated effect of a compaction of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionEstimate {
    /// About how many bytes of the data file it frees.
    pub freed_bytes: u64,
    /// Bytes of messages that it moves.
    pub pending_bytes: u64,
}

/// Bytes of a tree in the data file that belong to entries which later messages delete or replace. A tree has about this many
/// entries when all messages have reached their leaves.
fn superfluous(engine: &Engine, tree: TreeId, entries: u64) -> u64 {
    let stats = engine.tree_stats(tree);
    // The entries in memory are not in the data file yet.
    let known = stats.entries_estimate;
    if known <= entries {
        return 0;
    }
    let share = (known - entries) as f64 / known as f64;
    (stats.disk_bytes as f64 * share) as u64
}

fn trees_of(collection: &Collection) -> Vec<TreeId> {
    let indexes = collection.indexes.iter().map(|index| index.tree);
    collection.trees().chain(indexes).collect()
}

fn disk_bytes(engine: &Engine, trees: &[TreeId]) -> u64 {
    let bytes = trees.iter().map(|tree| engine.tree_stats(*tree).disk_bytes);
    bytes.sum()
}

impl DocumentStore {
    fn collection_to_compact(&self, ns: &Namespace) -> Result<Arc<Collection>> {
        let collection = self.catalog().existing(ns)?;
        match collection.oplog() {
            None => Ok(collection),
            // Its entries leave in whole sections, which frees their space without a compaction.
            Some(_) => Err(command(
                ErrorCode::IllegalOperation,
                format!("{ns} cannot be compacted: the space of removed entries is free at once"),
            )),
        }
    }

    /// Estimates the effect of [`DocumentStore::compact`]. The entries of multikey, sparse and partial indexes are not known without
    /// reading them, so nothing is estimated for them.
    ///
    /// # Errors
    /// As [`DocumentStore::compact`].
    pub fn estimate_compaction(&self, ns: &Namespace) -> Result<CompactionEstimate> {
        let collection = self.collection_to_compact(ns)?;
        let engine = self.engine();
        let documents = u64::try_from(collection.counts().documents).unwrap_or(0);
        let counted = collection.indexes.iter().filter(|index| {
            let spec = &index.spec;
            let has_all = !spec.sparse && spec.partial.is_none() && spec.method.is_none();
            has_all && !index.is_multikey()
        });
        let counted = counted.map(|index| index.tree);
        let freed = std::iter::once(collection.primary)
            .chain(counted)
            .map(|tree| superfluous(engine, tree, documents));
        let pending = trees_of(&collection)
            .into_iter()
            .map(|tree| engine.tree_stats(tree).pending_bytes);
        Ok(CompactionEstimate {
            freed_bytes: freed.sum(),
            pending_bytes: pending.sum(),
        })
    }

    /// Compacts a collection with its indexes while others read and write. Shows its progress in the context. Returns by how
    /// many bytes its trees have become smaller.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `CommandNotSupportedOnView` (166), `IllegalOperation` (20) for the oplog; the limits of the
    /// context; errors of the engine.
    pub fn compact(&self, ns: &Namespace, context: &OpContext) -> Result<u64> {
        let collection = self.collection_to_compact(ns)?;
        let engine = self.engine();
        // Memtables that are flushed meanwhile would make the trees larger before they become smaller.
        self.checkpoint()?;
        let trees = trees_of(&collection);
        let before = disk_bytes(engine, &trees);
        let mut total = None;
        let mut ended = Ok(());
        OwnFiles::new(engine)
            .require()?
            .compact_trees(&trees, |pending| {
                let total = *total.get_or_insert(pending);
                if let Some(progress) = &context.progress {
                    let done = total.saturating_sub(pending);
                    progress.set(STEP, done >> 10, (total >> 10).max(1));
                }
                ended = context.check();
                ended.is_ok()
            })?;
        ended?;
        Ok(before.saturating_sub(disk_bytes(engine, &trees)))
    }

    /// Writes a checkpoint, and keeps the data files as they are until the result is dropped, so that they can be copied. The
    /// caller sees to it that nothing is committed meanwhile.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn pause_flushing(&self) -> Result<FlushPause> {
        self.flush_log()?;
        Ok(OwnFiles::new(self.engine()).require()?.pause_flushing()?)
    }
}
