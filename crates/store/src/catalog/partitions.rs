//! Partitions of a collection: added, dropped, counted.
//!
//! A partition is a range of the keys of the documents, and a range of the keys of each index, which begin with its number
//! (`record_layout.rs` of `frond-storage`). It is dropped by a range delete in each of these trees, under the gate of the collection: every writer has
//! committed before, or finds another version of the collection and starts over. Each commit changes the counters of the partitions it writes
//! to, so that nothing has to be counted.

use std::ops::Bound;
use std::sync::Arc;

use frond_bson::{Doc, DocBuf, Value, doc, key};
use frond_error::ErrorCode;

use super::persist::{self, counter_key};
use super::{Catalog, Collection, Uuid, logged};
use frond_storage::clock;
use frond_storage::error::{Result, command, corrupt};
use frond_storage::keyspace::{CATALOG_TREE, Direction, Snapshot, WriteSet};
use frond_storage::merge::Counts;
use frond_storage::namespace::Namespace;
use frond_storage::options::{Division, ListedPartition, PARTITIONS_MAX};
use frond_storage::record_layout::{PARTITION_BYTES, PartitionId, PartitionSpan, Partitions};

/// Partitions that a command drops.
#[derive(Debug)]
pub enum PartitionSelector {
    /// The one with this number, or that of the period which begins at this date.
    Id(frond_bson::OwnedValue),
    /// All whose documents are not above this bound.
    Through(DocBuf),
}

/// The key of the counter of a partition.
fn partition_counter_key(uuid: &Uuid, id: PartitionId) -> Vec<u8> {
    let mut key = Vec::with_capacity(17 + PARTITION_BYTES);
    key.extend_from_slice(&counter_key(uuid));
    key.extend_from_slice(&id.bytes());
    key
}

/// Adds a change to the counter of a partition.
pub(crate) fn change_partition_counter(
    batch: &mut WriteSet,
    uuid: &Uuid,
    id: PartitionId,
    change: Counts,
) {
    batch.merge(
        CATALOG_TREE,
        &partition_counter_key(uuid, id),
        &change.to_bytes(),
    );
}

/// Replaces the counter of a partition.
pub(crate) fn put_partition_counter(
    batch: &mut WriteSet,
    uuid: &Uuid,
    id: PartitionId,
    counts: Counts,
) {
    batch.put(
        CATALOG_TREE,
        &partition_counter_key(uuid, id),
        &counts.to_bytes(),
    );
}

/// Removes the counters of all partitions.
pub(super) fn delete_partition_counters(batch: &mut WriteSet, uuid: &Uuid) {
    let low = partition_counter_key(uuid, PartitionId(0));
    let mut high = partition_counter_key(uuid, PartitionId(u64::MAX));
    high.push(0);
    batch.delete_range(CATALOG_TREE, &low, Some(&high));
}

/// Documents and bytes of a partition.
///
/// # Errors
/// Errors of the engine, `DataCorruptionDetected` (301).
pub(crate) fn partition_counts(
    snapshot: &Snapshot,
    uuid: &Uuid,
    id: PartitionId,
) -> Result<Counts> {
    match snapshot.get(CATALOG_TREE, &partition_counter_key(uuid, id))? {
        None => Ok(Counts::default()),
        Some(stored) => {
            Counts::from_bytes(&stored).ok_or_else(|| corrupt("the counter of a partition"))
        }
    }
}

fn bound(path: &str, value: Value<'_>) -> DocBuf {
    let mut out = DocBuf::new();
    out.push(path, value);
    out
}

fn not_partitioned(ns: &Namespace) -> frond_storage::error::Error {
    command(
        ErrorCode::IllegalOperation,
        format!("the collection {ns} is not partitioned"),
    )
}

impl Collection {
    /// Refuses a document whose key lies in no partition.
    ///
    /// # Errors
    /// `BadValue` (2).
    pub(crate) fn check_partition(&self, record: &[u8]) -> Result<()> {
        let Some((partitioned, partitions)) = self.partitions() else {
            return Ok(());
        };
        match partitions {
            Partitions::Listed { from: None, .. } => Ok(()),
            Partitions::Listed {
                from: Some(from), ..
            } => {
                if partitions.is_above(record, from) {
                    return Ok(());
                }
                Err(command(
                    ErrorCode::BadValue,
                    format!(
                        "the document is older than the oldest partition of {}: '{}' must be greater than what the dropped \
                         partitions contained",
                        self.ns, partitioned.by
                    ),
                ))
            }
            Partitions::Periods { millis } => {
                let Some(date) = key::leading_date(record) else {
                    return Err(command(
                        ErrorCode::BadValue,
                        format!(
                            "'{}' must be present and a date in each document of {}, which is partitioned by it",
                            partitioned.by, self.ns
                        ),
                    ));
                };
                // A late measurement expires in the next pass, as in MongoDB.
                let is_series = self.settings.time_series.is_some();
                let Some(seconds) = self.settings.expire_after_seconds.filter(|_| !is_series)
                else {
                    return Ok(());
                };
                let end = date
                    .div_euclid(*millis)
                    .saturating_add(1)
                    .saturating_mul(*millis);
                if end.saturating_add(seconds.saturating_mul(1000)) > clock::now_ms() {
                    return Ok(());
                }
                Err(command(
                    ErrorCode::BadValue,
                    format!(
                        "the document is older than the oldest partition of {}: its '{}' has expired ({seconds} seconds after the \
                         end of its partition)",
                        self.ns, partitioned.by
                    ),
                ))
            }
        }
    }

    /// The partitions of some spans that have documents in a snapshot, or were added. `None` if there are more than `most`.
    /// Each costs one search of the collection.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn partitions_within(
        &self,
        snapshot: &Snapshot,
        spans: &[PartitionSpan],
        most: usize,
    ) -> Result<Option<Vec<PartitionId>>> {
        let Some((_, partitions)) = self.partitions() else {
            return Ok(Some(Vec::new()));
        };
        let mut found: Vec<PartitionId> = Vec::new();
        if let Some(mut listed) = partitions.listed() {
            listed.retain(|id| spans.iter().any(|(first, last)| first <= id && id <= last));
            return Ok((listed.len() <= most).then_some(listed));
        }
        for (first, last) in spans {
            let low = partitions
                .range(*first)
                .map(|range| range.low)
                .unwrap_or_default();
            let high = partitions.range(*last).and_then(|range| range.high);
            let high = match &high {
                Some(high) => Bound::Excluded(high.as_slice()),
                None => Bound::Unbounded,
            };
            let mut cursor = snapshot.cursor(
                self.primary,
                Bound::Included(&low),
                high,
                Direction::Forward,
            )?;
            while let Some((key, _)) = cursor.next()? {
                let id = partitions.containing(key);
                found.push(id);
                if found.len() > most {
                    return Ok(None);
                }
                match partitions.range(id).and_then(|range| range.high) {
                    Some(end) => cursor.seek(&end)?,
                    None => break,
                }
            }
        }
        Ok(Some(found))
    }

    /// The partitions that have documents in a snapshot, and those that were added.
    ///
    /// # Errors
    /// `IllegalOperation` (20) if there are no partitions; errors of the engine.
    pub(crate) fn partitions_in(&self, snapshot: &Snapshot) -> Result<Vec<PartitionId>> {
        let (_, partitions) = self.partitions().ok_or_else(|| not_partitioned(&self.ns))?;
        match partitions.listed() {
            Some(ids) => Ok(ids),
            None => {
                let all = [(PartitionId(0), PartitionId(u64::MAX))];
                Ok(self
                    .partitions_within(snapshot, &all, usize::MAX)?
                    .unwrap_or_default())
            }
        }
    }
}

impl Catalog {
    /// The partitions of a collection, in the order of their keys.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `IllegalOperation` (20) if there are no partitions.
    pub(crate) fn partition_info(&self, ns: &Namespace) -> Result<Vec<DocBuf>> {
        let Some((collection, snapshot)) = self.read(ns)? else {
            return Err(super::not_found(ns));
        };
        let (partitioned, partitions) =
            (collection.partitions()).ok_or_else(|| not_partitioned(ns))?;
        let mut infos = Vec::new();
        for id in collection.partitions_in(&snapshot)? {
            let mut doc = DocBuf::new();
            doc.push("_id", partitions.shown(id));
            match &partitioned.division {
                Division::Listed { partitions, .. } => {
                    let listed = partitions.iter().find(|one| u64::from(one.id) == id.0);
                    let max = listed.and_then(|one| one.max.as_deref());
                    match max {
                        Some(max) => doc.push("max", max),
                        None => doc.push("max", &bound(&partitioned.by, Value::MaxKey)),
                    }
                    let created = listed.map_or(0, |one| one.created_ms);
                    doc.push("createTime", Value::DateTime(created));
                }
                Division::Periods { millis, .. } => {
                    if let Value::DateTime(start) = partitions.shown(id) {
                        doc.push("min", &bound(&partitioned.by, Value::DateTime(start)));
                        let end = Value::DateTime(start.saturating_add(*millis));
                        doc.push("end", &bound(&partitioned.by, end));
                    }
                }
            }
            let counts = partition_counts(&snapshot, &collection.uuid, id)?;
            doc.push("count", counts.documents);
            doc.push("size", counts.bytes);
            infos.push(doc);
        }
        Ok(infos)
    }

    /// Ends the last partition with `max`, or with the greatest value that it contains, and begins the next one. Returns the number
    /// of the new one.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26); `IllegalOperation` (20) if partitions are not added by commands, or the last one is empty;
    /// `BadValue` (2) if `max` is not above the other bounds, or below a document.
    pub(crate) fn add_partition(&self, ns: &Namespace, max: Option<&Doc>) -> Result<i64> {
        let _changing = self.begin_change()?;
        self.check_writable(ns)?;
        let collection = self.existing(ns)?;
        let (partitioned, partitions) =
            (collection.partitions()).ok_or_else(|| not_partitioned(ns))?;
        let Division::Listed {
            partitions: listed,
            from,
        } = &partitioned.division
        else {
            return Err(command(
                ErrorCode::IllegalOperation,
                format!(
                    "the partitions of {ns} are those of its option 'partitioned.every'; none can be added"
                ),
            ));
        };
        if listed.len() >= PARTITIONS_MAX {
            return Err(command(
                ErrorCode::BadValue,
                format!("a collection has at most {PARTITIONS_MAX} partitions"),
            ));
        }
        let next = listed.iter().map(|one| one.id).max().map_or(0, |id| id + 1);
        self.replace_with(&collection, || {
            let snapshot = self.engine().snapshot();
            let greatest = greatest_value(&collection, &snapshot, &partitioned.by)?;
            let last = listed.last().map(|one| PartitionId(u64::from(one.id)));
            let in_last =
                greatest.filter(|(record, _)| Some(partitions.containing(record)) == last);
            let max = match (max, &in_last) {
                (Some(max), _) => {
                    let end = partitioned.encode(max, collection.collator())?;
                    if let Some((record, _)) = &in_last
                        && partitions.is_above(record, &end)
                    {
                        return Err(command(
                            ErrorCode::BadValue,
                            format!("'newMax' must not be below a document of {ns}"),
                        ));
                    }
                    max.to_owned()
                }
                (None, Some((_, max))) => max.clone(),
                (None, None) => {
                    return Err(command(
                        ErrorCode::IllegalOperation,
                        format!("the last partition of {ns} is empty; give 'newMax' to end it"),
                    ));
                }
            };
            let mut listed = listed.clone();
            if let Some(last) = listed.last_mut() {
                last.max = Some(max.clone());
            }
            listed.push(ListedPartition {
                id: next,
                max: None,
                created_ms: clock::now_ms(),
            });
            let division = Division::Listed {
                partitions: listed,
                from: from.clone(),
            };
            let after = collection
                .divided(division)
                .map_err(|error| command(ErrorCode::BadValue, error.message()))?;
            let mut batch = self.batch(ns);
            persist::put_collection(&mut batch, &after);
            logged::log_partition(
                &mut batch,
                &collection,
                "addPartition",
                &doc! {"id": i64::from(next), "newMax": &max},
            );
            Ok((Some(after), batch))
        })?;
        Ok(i64::from(next))
    }

    /// Drops partitions with their documents. Returns how many documents there were, by partition.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26); `IllegalOperation` (20) if there are no partitions; `BadValue` (2) if the selector names none;
    /// `IndexBuildAlreadyInProgress` (285) while an index is built.
    pub(crate) fn drop_partitions(
        &self,
        ns: &Namespace,
        which: &PartitionSelector,
    ) -> Result<Vec<(PartitionId, Counts)>> {
        let _changing = self.begin_change()?;
        self.check_writable(ns)?;
        let collection = self.existing(ns)?;
        let (partitioned, partitions) =
            (collection.partitions()).ok_or_else(|| not_partitioned(ns))?;
        let none = || command(ErrorCode::BadValue, format!("{ns} has no such partition"));
        let ids = match which {
            PartitionSelector::Id(shown) => {
                let id = partitions.named(&shown.as_value()).ok_or_else(none)?;
                let all = collection.partitions_in(&self.engine().snapshot())?;
                vec![all.into_iter().find(|one| *one == id).ok_or_else(none)?]
            }
            PartitionSelector::Through(max) => {
                let end = partitioned.encode(max, collection.collator())?;
                let mut all = collection.partitions_in(&self.engine().snapshot())?;
                all.retain(|id| {
                    let range = partitions.range(*id);
                    let high = range.and_then(|range| range.high);
                    // All its keys begin with values that are not above the bound.
                    high.is_some_and(|high| {
                        frond_storage::keyspace::after_prefix(&end).is_none_or(|end| high <= end)
                    })
                });
                all
            }
        };
        self.remove_partitions(&collection, &ids)
    }

    /// Drops the partitions of periods whose documents have all expired. Returns how many documents there were.
    ///
    /// # Errors
    /// As [`Catalog::drop_partitions`].
    pub(crate) fn drop_expired_partitions(&self, ns: &Namespace, until_ms: i64) -> Result<u64> {
        let Some((collection, snapshot)) = self.read(ns)? else {
            return Ok(0);
        };
        let expired = |collection: &Collection, snapshot: &Snapshot| -> Result<Vec<PartitionId>> {
            let mut ids = collection.partitions_in(snapshot)?;
            let millis = collection.settings.partition_period().unwrap_or(i64::MAX);
            let partitions = collection.partitions();
            ids.retain(|id| match partitions.map(|(_, all)| all.shown(*id)) {
                Some(Value::DateTime(start)) => start.saturating_add(millis) <= until_ms,
                _ => false,
            });
            Ok(ids)
        };
        if collection.settings.partition_period().is_none()
            || expired(&collection, &snapshot)?.is_empty()
        {
            return Ok(0);
        }
        drop((collection, snapshot));
        let _changing = self.begin_change()?;
        let collection = self.existing(ns)?;
        let ids = expired(&collection, &self.engine().snapshot())?;
        let dropped = self.remove_partitions(&collection, &ids)?;
        let documents = dropped
            .iter()
            .map(|(_, counts)| counts.documents)
            .sum::<i64>();
        Ok(u64::try_from(documents).unwrap_or(0))
    }

    /// Drops partitions of one version of a collection. The lock on changes is held.
    fn remove_partitions(
        &self,
        collection: &Arc<Collection>,
        ids: &[PartitionId],
    ) -> Result<Vec<(PartitionId, Counts)>> {
        let ns = &collection.ns;
        let (partitioned, partitions) =
            (collection.partitions()).ok_or_else(|| not_partitioned(ns))?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        if collection.changes.is_some() || collection.indexes.iter().any(|index| !index.ready) {
            return Err(command(
                ErrorCode::IndexBuildAlreadyInProgress,
                format!(
                    "cannot drop a partition of {ns} while an index is built or the collection is copied"
                ),
            ));
        }
        let mut dropped = Vec::new();
        let mut total = Counts::default();
        self.replace_with(collection, || {
            let snapshot = self.engine().snapshot();
            let mut batch = self.batch(ns);
            batch.set_frees_space();
            for id in ids {
                let counts = clear_partition(&mut batch, collection, &snapshot, *id)?;
                dropped.push((*id, counts));
                total = total + counts;
                let mut o = DocBuf::new();
                o.push("id", partitions.shown(*id));
                o.push("numRecords", counts.documents);
                logged::log_partition(&mut batch, collection, "dropPartition", &o);
            }
            persist::change_counter(&mut batch, &collection.uuid, Counts::default() - total);
            let after = match &partitioned.division {
                Division::Periods { .. } => collection.next_version(),
                Division::Listed { partitions, from } => {
                    collection.divided(without(partitions, from.as_ref(), ids))?
                }
            };
            persist::put_collection(&mut batch, &after);
            Ok((Some(after), batch))
        })?;
        collection.count(Counts::default() - total);
        Ok(dropped)
    }
}

/// Deletes the documents of a partition with their entries and its counter. Returns how many documents there were.
///
/// # Errors
/// Errors of the engine, `DataCorruptionDetected` (301).
pub(super) fn clear_partition(
    batch: &mut WriteSet,
    collection: &Collection,
    snapshot: &Snapshot,
    id: PartitionId,
) -> Result<Counts> {
    let range = collection
        .partitions()
        .and_then(|(_, partitions)| partitions.range(id));
    let Some(range) = range else {
        return Ok(Counts::default());
    };
    for tree in collection.trees() {
        batch.delete_range(tree, &range.low, range.high.as_deref());
    }
    let end = id.0.checked_add(1).map(|end| PartitionId(end).bytes());
    for index in &collection.indexes {
        let high = end.as_ref().map(<[u8; PARTITION_BYTES]>::as_slice);
        batch.delete_range(index.tree, &id.bytes(), high);
    }
    let counts = partition_counts(snapshot, &collection.uuid, id)?;
    batch.delete(CATALOG_TREE, &partition_counter_key(&collection.uuid, id));
    Ok(counts)
}

/// The partitions that are left. The last one is replaced by an empty one; documents of the first ones are refused from then on.
fn without(partitions: &[ListedPartition], from: Option<&DocBuf>, ids: &[PartitionId]) -> Division {
    let next = partitions
        .iter()
        .map(|one| one.id)
        .max()
        .map_or(0, |id| id + 1);
    let is_gone = |one: &ListedPartition| ids.contains(&PartitionId(u64::from(one.id)));
    let first_gone = partitions.iter().take_while(|one| is_gone(one));
    let from = first_gone
        .filter_map(|one| one.max.as_ref())
        .last()
        .or(from);
    let mut left: Vec<ListedPartition> = partitions
        .iter()
        .filter(|one| !is_gone(one))
        .cloned()
        .collect();
    if left.last().is_none_or(|last| last.max.is_some()) {
        left.push(ListedPartition {
            id: next,
            max: None,
            created_ms: clock::now_ms(),
        });
    }
    Division::Listed {
        partitions: left,
        from: from.cloned(),
    }
}

/// The greatest key of a collection, and the value that it begins with as a bound. `None` if the collection is empty.
fn greatest_value(
    collection: &Collection,
    snapshot: &Snapshot,
    by: &str,
) -> Result<Option<(Vec<u8>, DocBuf)>> {
    let (low, high) = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = snapshot.cursor(collection.primary, low, high, Direction::Backward)?;
    let Some((key, stored)) = cursor.next()? else {
        return Ok(None);
    };
    let key = key.to_vec();
    let doc = collection.document_reader(snapshot).whole(&key, stored)?;
    let value = frond_bson::path::get_path(&doc, by).unwrap_or(Value::Null);
    Ok(Some((key, bound(by, value))))
}
