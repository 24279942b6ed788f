//! Fills indexes by commits: of a collection that several servers write to, and of one in the shared log of a replica set.
//!
//! The documents are read in the order of their keys, some at a time, each time in a new snapshot. The commit of their entries
//! guards the keys of the documents, so an entry is that of the document at the commit. It also stores how far the build is.
//! If the server ends, another one goes on from there.
//!
//! A unique index has only what this build has put there: writers use side trees, see the module above. An entry may belong to a
//! document that was changed since; then the next document with the same fields replaces it, and the side tree has the rest.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use frond_bson::Doc;

use super::{Build, Entries, LAST_ENTRIES, SCANNING, all};
use crate::catalog::{Collection, aborted};
use crate::coordination::cluster::{BuildState, Cluster};
use crate::write::duplicate;
use frond_storage::error::{Error, Result, Unannounced};
use frond_storage::index::Index;
use frond_storage::index::entry::{self, EntryParts};
use frond_storage::index::keys::IndexKeys;
use frond_storage::keyspace::{Direction, Durability, Snapshot, TreeId, WriteSet};
use frond_storage::points::point;

/// Documents and bytes of one commit at most.
const DOCUMENTS: usize = 500;
const BYTES: usize = 1 << 20;
/// The number of attempts of one commit. Each attempt has half of the documents.
const ATTEMPTS_MAX: u32 = 100;

/// The parts of a commit of entries.
struct Part {
    batch: WriteSet,
    snapshot: Snapshot,
    documents: usize,
    /// The key of the last document.
    last: Option<Vec<u8>>,
    /// Multikey paths that other servers do not know.
    unannounced: Vec<(TreeId, frond_query::paths::MultikeyPaths)>,
}

impl Build<'_> {
    /// Puts the entries of all documents into the indexes.
    pub(super) fn backfill(&self, cluster: Option<&Arc<Cluster>>) -> Result<()> {
        let mut state = match cluster {
            Some(cluster) => self.begun(cluster)?,
            None => BuildState::default(),
        };
        let total = self
            .catalog
            .by_uuid(self.uuid)
            .ok_or_else(aborted)?
            .counts();
        let total = u64::try_from(total.documents).unwrap_or(0);
        let (mut done, mut attempts): (u64, u32) = (0, 0);
        while !state.is_filled {
            self.look()?;
            self.show(SCANNING, done, total.max(done));
            let (collection, indexes) = self.catalog.built(self.uuid, self.indexes)?;
            let most = (DOCUMENTS >> attempts.min(9)).max(1);
            let part = self.part(&collection, &indexes, state.after.as_deref(), most)?;
            if !part.unannounced.is_empty() {
                self.catalog.announce_multikey(&Unannounced {
                    uuid: *self.uuid,
                    paths: part.unannounced,
                })?;
                continue;
            }
            let next = BuildState {
                builder: None,
                is_filled: part.last.is_none(),
                after: part.last.or_else(|| state.after.clone()),
            };
            let set = match cluster {
                Some(cluster) => {
                    self.as_builder(cluster, &part.snapshot, &part.batch, Some(&next))?
                }
                None => part.batch,
            };
            match self.catalog.engine().commit(set, Durability::Logged) {
                Ok(_) => {
                    done += part.documents as u64;
                    attempts = 0;
                    state = next;
                    point("a part of an index is filled");
                }
                // A writer was faster, with one of the documents.
                Err(error) => {
                    let error = Error::from(error);
                    attempts += 1;
                    if !error.is_conflict() || attempts > ATTEMPTS_MAX {
                        return Err(error);
                    }
                }
            }
        }
        // Those that another server has not finished.
        let (collection, indexes) = self.catalog.built(self.uuid, self.indexes)?;
        for index in &indexes {
            if let Some((_, older)) = index.sides.split_last() {
                for side in older {
                    self.work_in(&collection, index, *side, false)?;
                }
            }
        }
        Ok(())
    }

    /// The progress of the build.
    fn begun(&self, cluster: &Cluster) -> Result<BuildState> {
        let snapshot = self.catalog.engine().snapshot();
        let mut least: Option<BuildState> = None;
        for index in self.indexes {
            let state = cluster.build(&snapshot, self.uuid, index.tree)?;
            let state = state.ok_or_else(aborted)?;
            least = Some(match least {
                Some(least)
                    if (least.is_filled, &least.after) <= (state.is_filled, &state.after) =>
                {
                    least
                }
                _ => state,
            });
        }
        least.ok_or_else(aborted)
    }

    /// The entries of the next documents.
    fn part(
        &self,
        collection: &Collection,
        indexes: &[Arc<Index>],
        after: Option<&[u8]>,
        most: usize,
    ) -> Result<Part> {
        let snapshot = self.catalog.engine().snapshot();
        let low = after.map_or(Bound::Unbounded, Bound::Excluded);
        let forward = Direction::Forward;
        let mut cursor = snapshot.cursor(collection.primary, low, Bound::Unbounded, forward)?;
        let reader = collection.document_reader(&snapshot);
        let mut entries = Entries::for_indexes(indexes);
        let mut batch = WriteSet::with_snapshot(&snapshot);
        let (mut documents, mut bytes, mut last) = (0, 0, None);
        // The unique entries of this part.
        let mut uniques: HashMap<(usize, Vec<u8>), Vec<u8>> = HashMap::new();
        while documents < most
            && bytes < BYTES
            && batch.bytes() < BYTES
            && let Some((id, stored)) = cursor.next()?
        {
            documents += 1;
            bytes += stored.len();
            batch.guard(collection.primary, id);
            let doc = reader.whole(id, stored)?;
            entries.visit(&doc, id, |place, key, value| {
                let Some(index) = indexes.get(place) else {
                    return Ok(());
                };
                if index.spec.unique {
                    let holder = match uniques.get(&(place, key.to_vec())) {
                        Some(holder) => Some(holder.clone()),
                        None => self.holder(collection, index, &snapshot, key)?,
                    };
                    if holder.is_some_and(|holder| holder != id) {
                        return Err(duplicate::of_index(collection, index, key, None));
                    }
                    uniques.insert((place, key.to_vec()), id.to_vec());
                }
                batch.put(index.tree, key, value);
                Ok(())
            })?;
            last = Some(id.to_vec());
        }
        drop(cursor);
        let found = indexes.iter().zip(&entries.multikey);
        let unannounced = found
            .filter(|(index, paths)| !index.is_multikey_stored(paths))
            .map(|(index, paths)| (index.tree, paths.clone()))
            .collect();
        Ok(Part {
            batch,
            snapshot,
            documents,
            last,
            unannounced,
        })
    }

    /// The document that has an entry in a unique index, if it still has these fields.
    fn holder(
        &self,
        collection: &Collection,
        index: &Index,
        snapshot: &Snapshot,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let Some(value) = snapshot.get(index.tree, key)? else {
            return Ok(None);
        };
        let EntryParts { fields, id, .. } = entry::split(&index.spec, key, &value)?;
        let Some(stored) = snapshot.get(collection.primary, id)? else {
            return Ok(None);
        };
        let reader = collection.document_reader(snapshot);
        let doc = reader.whole(id, &stored)?;
        let doc: &Doc = &doc;
        let mut keys = IndexKeys::default();
        keys.generate(&index.spec, doc, id.len())?;
        Ok(keys.contains(fields).then(|| id.to_vec()))
    }

    /// A write set whose commit fails if this server does not build the indexes any more.
    fn as_builder(
        &self,
        cluster: &Cluster,
        snapshot: &Snapshot,
        set: &WriteSet,
        progress: Option<&BuildState>,
    ) -> Result<WriteSet> {
        let trees = self.indexes.iter().map(|index| index.tree);
        cluster.as_builder(snapshot, set, self.uuid, trees, progress)
    }

    /// Fails if this server does not build the indexes any more.
    pub(super) fn check_builder(&self) -> Result<()> {
        self.guarded(WriteSet::new())?;
        Ok(())
    }

    /// Commits changes of the indexes that only the builder makes.
    pub(super) fn commit_part(&self, batch: WriteSet) -> Result<()> {
        let batch = self.guarded(batch)?;
        self.catalog.engine().commit(batch, Durability::Logged)?;
        Ok(())
    }

    fn guarded(&self, batch: WriteSet) -> Result<WriteSet> {
        let trees = self.indexes.iter().map(|index| index.tree);
        (self.coordination).as_builder(self.catalog.engine(), batch, self.uuid, trees)
    }

    /// About how many entries a side tree has. With several servers they are counted, up to what is merged at the end.
    pub(super) fn side_entries(&self, side: TreeId) -> Result<u64> {
        let engine = self.catalog.engine();
        if let Some(estimate) = self.coordination.entries_estimate(engine, side) {
            return Ok(estimate);
        }
        let snapshot = engine.snapshot();
        let mut cursor = all(&snapshot, side)?;
        let mut entries = 0;
        while entries <= LAST_ENTRIES && cursor.next()?.is_some() {
            entries += 1;
        }
        Ok(entries)
    }
}
