//! Deletes all documents of a collection or of whole partitions at once.
//!
//! A range delete in each tree takes the place of messages for each document and each of its index entries. It is blind: a document
//! that another writer inserts meanwhile could lose its place and keep its entries. Therefore it is committed under the gate of the
//! collection, as the drop of a partition is, and the next version of the collection makes writers and transactions that have begun
//! start over. This pays for many documents only. The counters say how many there are, so nothing is read.

use std::sync::Arc;

use frond_query::matcher::Filter;

use super::partitions::{clear_partition, partition_counts};
use super::persist::{self, put_counter};
use super::{Catalog, Collection};
use frond_storage::error::Result;
use frond_storage::intervals::Interval;
use frond_storage::intervals::conditions::Conditions;
use frond_storage::keyspace::Snapshot;
use frond_storage::merge::Counts;
use frond_storage::namespace::Namespace;
use frond_storage::record_layout::PartitionId;

/// A collection or partition with fewer documents is emptied one document at a time.
const DOCUMENTS_MIN: i64 = 10_000;

/// The documents that a filter selects completely.
enum Whole {
    Collection,
    Partitions(Vec<PartitionId>),
}

impl Catalog {
    /// Deletes the documents of a collection that lie in whole partitions, or all of them, if a filter selects exactly these and there
    /// are many. Returns how many there were; the caller deletes the others.
    ///
    /// # Errors
    /// Errors of the engine; `NotWritablePrimary` (10107) and others of changes of the catalog.
    pub(crate) fn delete_at_once(&self, ns: &Namespace, filter: &Filter) -> Result<u64> {
        // Most deletes are of few documents: they need no snapshot here.
        let may_empty = |collection: Arc<Collection>| {
            self.has_no_followers(&collection) && may_select(&collection, filter)
        };
        if !self.collection(ns).is_some_and(may_empty) {
            return Ok(0);
        }
        let Some((collection, snapshot)) = self.read(ns)? else {
            return Ok(0);
        };
        if selected(&collection, &snapshot, filter)?.is_none() {
            return Ok(0);
        }
        drop((collection, snapshot));
        let _changing = self.begin_change()?;
        let Some(collection) = self.collection(ns) else {
            return Ok(0);
        };
        if !self.has_no_followers(&collection) {
            return Ok(0);
        }
        self.empty(&collection, filter)
    }

    /// Whether nothing has to see the documents one by one as they are deleted.
    fn has_no_followers(&self, collection: &Collection) -> bool {
        let settings = &collection.settings;
        self.is_live()
            && !self.coordination().has_others()
            && self.engine().files().is_some()
            && self.log(&collection.ns).is_none()
            && collection.oplog().is_none()
            && settings.capped.is_none()
            && !settings.keeps_pre_images()
            && !collection.hooks().watches(&collection.ns)
            && collection.changes.is_none()
            && collection.indexes.iter().all(|index| index.ready)
    }

    /// Deletes what the filter selects completely. The lock on changes is held.
    fn empty(&self, collection: &Arc<Collection>, filter: &Filter) -> Result<u64> {
        let mut deleted = Counts::default();
        self.replace_with(collection, || {
            let snapshot = self.engine().snapshot();
            let mut batch = self.batch(&collection.ns);
            match selected(collection, &snapshot, filter)? {
                None => {}
                Some(Whole::Partitions(ids)) => {
                    for id in ids {
                        deleted = deleted + clear_partition(&mut batch, collection, &snapshot, id)?;
                    }
                    persist::change_counter(
                        &mut batch,
                        &collection.uuid,
                        Counts::default() - deleted,
                    );
                }
                Some(Whole::Collection) => {
                    let indexes = collection.indexes.iter().map(|index| index.tree);
                    for tree in collection.trees().chain(indexes) {
                        batch.delete_range(tree, &[], None);
                    }
                    deleted = collection.stored_counts(&snapshot)?;
                    put_counter(&mut batch, &collection.uuid, Counts::default());
                }
            }
            batch.set_frees_space();
            let after = collection.next_version();
            persist::put_collection(&mut batch, &after);
            Ok((Some(after), batch))
        })?;
        collection.count(Counts::default() - deleted);
        Ok(u64::try_from(deleted.documents).unwrap_or(0))
    }
}

/// Returns whether [`selected`] can find anything, by what is in memory.
fn may_select(collection: &Collection, filter: &Filter) -> bool {
    collection.counts().documents >= DOCUMENTS_MIN
        && (filter.is_empty() || collection.partitions().is_some())
}

/// The collection or its partitions that a filter selects completely, if they have many documents.
fn selected(
    collection: &Collection,
    snapshot: &Snapshot,
    filter: &Filter,
) -> Result<Option<Whole>> {
    let counts = collection.stored_counts(snapshot)?;
    // The counter does not know what fast upserts have inserted.
    if counts.documents < DOCUMENTS_MIN || (counts.upserts, counts.updates) != (0, 0) {
        return Ok(None);
    }
    let Some((partitioned, partitions)) = collection.partitions() else {
        return Ok(filter.is_empty().then_some(Whole::Collection));
    };
    let conditions = Conditions::from_filter(filter.predicates(), collection.collator());
    if !conditions.are_exact_for(|path| path == partitioned.by) {
        return Ok(None);
    }
    let ranges = conditions.ranges_of(&partitioned.by);
    let mut whole = Vec::new();
    for id in collection.partitions_in(snapshot)? {
        let Some(range) = partitions.range(id) else {
            continue;
        };
        let is_inside = |interval: &Interval| {
            interval.low <= range.low
                && match (&interval.high, &range.high) {
                    (None, _) => true,
                    (Some(end), Some(high)) => high <= end,
                    (Some(_), None) => false,
                }
        };
        if ranges.as_slice().iter().any(is_inside)
            && partition_counts(snapshot, &collection.uuid, id)?.documents >= DOCUMENTS_MIN
        {
            whole.push(id);
        }
    }
    Ok((!whole.is_empty()).then_some(Whole::Partitions(whole)))
}
