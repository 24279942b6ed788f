//! The partitions that a query reads: those whose documents can satisfy its conditions on the first field of the primary key.

use std::sync::Arc;

use frond_bson::key;
use frond_query::matcher::Filter;
use frond_query::sort::SortSpec;

use super::sorted::OrderField;
use crate::catalog::Collection;
use frond_storage::error::Result;
use frond_storage::intervals::Intervals;
use frond_storage::intervals::conditions::Conditions;
use frond_storage::keyspace::Snapshot;
use frond_storage::record_layout::{PartitionId, PartitionSpan};

/// The partitions that may have documents of a query.
pub struct PartitionsRead<'a> {
    /// The field that divides the collection.
    by: &'a str,
    pub spans: Arc<[PartitionSpan]>,
    collection: &'a Collection,
    snapshot: &'a Snapshot,
}

impl<'a> PartitionsRead<'a> {
    /// Those of a query with this filter. `None` if the collection has no partitions.
    pub fn new(
        collection: &'a Collection,
        snapshot: &'a Snapshot,
        filter: &Filter,
    ) -> Option<PartitionsRead<'a>> {
        let (partitioned, partitions) = collection.partitions()?;
        let by = partitioned.by.as_str();
        let conditions = Conditions::from_filter(filter.predicates(), collection.collator());
        // The field is no array, so that all conditions bound one value.
        let ranges = conditions
            .list
            .iter()
            .filter(|one| one.path == by)
            .fold(Intervals::all(), |ranges, one| {
                ranges.intersection(&one.intervals)
            });
        let mut spans: Vec<PartitionSpan> = Vec::new();
        if !conditions.impossible {
            for interval in ranges.as_slice() {
                for (first, last) in partitions.spans(&interval.low, interval.high.as_deref()) {
                    match spans.last_mut() {
                        // Several values of one period, for example.
                        Some(before) if before.1 >= first => before.1 = before.1.max(last),
                        _ => spans.push((first, last)),
                    }
                }
            }
        }
        Some(PartitionsRead {
            by,
            spans: spans.into(),
            collection,
            snapshot,
        })
    }

    /// Whether one partition after the other, each in the order of an index, gives the order of a sort: it begins with the field
    /// that divides the collection, or there is just one partition.
    pub fn is_ordered(&self, sort: &SortSpec, order: &[OrderField<'_>]) -> bool {
        if matches!(*self.spans, [(first, last)] if first == last) {
            return true;
        }
        let field = |path: &str| order.iter().find(|field| field.path == path);
        let mut fields = sort.fields().map(|(path, _)| path.as_str());
        let first = fields.find(|path| !field(path).is_some_and(|field| field.is_point));
        first.is_none_or(|path| {
            path == self.by
                && field(path).is_some_and(|field| field.direction == key::Direction::Ascending)
        })
    }

    /// The partitions that there are. `None` if there are more than `most`, or they cannot be read.
    pub fn existing(&self, most: usize) -> Option<Vec<PartitionId>> {
        self.collection
            .partitions_within(self.snapshot, &self.spans, most)
            .ok()?
    }

    /// All partitions that there are, for `explain`.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn all(&self) -> Result<Vec<PartitionId>> {
        let all = self
            .collection
            .partitions_within(self.snapshot, &self.spans, usize::MAX)?;
        Ok(all.unwrap_or_default())
    }
}
