//! The partitions that a query reads: those whose documents can satisfy its conditions on the first field of the primary key.

use std::sync::Arc;

use frond_query::matcher::Filter;

use crate::catalog::{Collection, existing_partitions};
use frond_storage::error::Result;
use frond_storage::intervals::Intervals;
use frond_storage::intervals::conditions::Conditions;
use frond_storage::keyspace::Snapshot;
use frond_storage::record_layout::{PartitionId, PartitionRange};

/// The partitions that have documents, or may have some, within the conditions of a filter. `None` if the collection has no
/// partitions.
///
/// # Errors
/// Errors of the engine.
pub fn of_query(
    collection: &Collection,
    snapshot: &Snapshot,
    filter: &Filter,
) -> Result<Option<Arc<[PartitionId]>>> {
    let Some((partitioned, partitions)) = collection.partitions() else {
        return Ok(None);
    };
    let conditions = Conditions::from_filter(filter.predicates(), collection.collator());
    if conditions.impossible {
        return Ok(Some(Arc::new([])));
    }
    // The field is no array, so that all conditions bound one value.
    let ranges = conditions
        .list
        .iter()
        .filter(|one| one.path == partitioned.by.as_str())
        .fold(Intervals::all(), |ranges, one| {
            ranges.intersection(&one.intervals)
        });
    let ids = match partitions.listed() {
        Some(mut ids) => {
            ids.retain(|id| {
                let range = partitions.range(*id);
                range.is_some_and(|range| overlaps(&range, &ranges))
            });
            ids
        }
        None => existing_partitions(snapshot, collection.primary, partitions, &ranges)?,
    };
    Ok(Some(ids.into()))
}

fn overlaps(range: &PartitionRange, ranges: &Intervals) -> bool {
    ranges.as_slice().iter().any(|interval| {
        let begins_before = |end: &Option<Vec<u8>>, low: &[u8]| match end {
            Some(end) => low < end.as_slice(),
            None => true,
        };
        begins_before(&interval.high, &range.low) && begins_before(&range.high, &interval.low)
    })
}
