//! Merging scans that are each in the order of the sort: for `$in` and `$or` with a sort.
//!
//! `{a: {$in: [1, 2]}}` sorted by `b` reads an index on `{a: 1, b: 1}` twice, once for each value of `a`. Each scan is
//! in the order of `b`, so the smallest head of all is always the next row, and nothing has to be sorted. (MongoDB calls
//! this the explosion of a scan, and the stage `SORT_MERGE`.)

use std::cell::Cell;
use std::sync::Arc;

use frond_bson::key;
use frond_query::sort::SortSpec;

use super::sorted::{OrderField, direction_for, order_fields};
use super::{Access, IndexAccess};
use frond_storage::index::entry::EntryParts;
use frond_storage::index::spec::IndexSpec;
use frond_storage::intervals::{Intervals, invert};
use frond_storage::record_layout::PartitionId;

/// Maximum scans that one scan is exploded into, as in MongoDB (`internalQueryMaxScansToExplode`).
pub const SCANS_MAX: usize = 200;

/// Most intervals of all these scans together: each has a copy of those that it does not take apart.
const INTERVALS_MAX: usize = 10_000;

/// Scans whose rows are merged.
#[derive(Clone, Debug)]
pub struct MergeAccess {
    /// Each in the order of the sort.
    pub branches: Vec<MergeBranch>,
    /// The scan that was exploded; `None` if the branches are those of an `$or`.
    pub exploded: Option<IndexAccess>,
    /// Whether one document can come from several branches.
    pub may_repeat: bool,
}

/// One of the scans.
#[derive(Clone, Debug)]
pub struct MergeBranch {
    /// Ranges of `_id`, or a scan of an index.
    pub access: Access,
    /// The fields of its entries that give the order of the sort.
    pub order: Vec<OrderPart>,
}

/// A field of an entry that a merge orders by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderPart {
    /// Its position among the fields of the index; the one after the last is the `_id`.
    pub position: usize,
    /// Whether its bytes are in the reverse of the wanted order.
    pub inverted: bool,
}

impl OrderPart {
    /// The fields of an index with these parts that give the order of `sort`, in its order. `None` if one is missing.
    pub fn from_sort(sort: &SortSpec, fields: &[OrderField<'_>]) -> Option<Vec<OrderPart>> {
        let parts = sort.fields().map(|(path, wanted)| {
            let position = fields
                .iter()
                .position(|field| field.path == path.as_str())?;
            Some(OrderPart {
                position,
                inverted: fields.get(position)?.direction != wanted,
            })
        });
        parts.collect()
    }

    /// Writes bytes that compare as the sort does into a buffer, which is cleared first. `None` if the entry is
    /// damaged.
    pub fn write(
        parts: &[OrderPart],
        spec: &IndexSpec,
        entry: &EntryParts<'_>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        out.clear();
        for part in parts {
            let mut rest = entry.fields;
            for field in spec.fields.iter().take(part.position) {
                rest = rest.get(key::skip(rest, field.direction)?..)?;
            }
            let bytes = match spec.fields.get(part.position) {
                Some(field) => rest.get(..key::skip(rest, field.direction)?)?,
                None => entry.id,
            };
            let start = out.len();
            out.extend_from_slice(bytes);
            if part.inverted {
                invert(out.get_mut(start..)?);
            }
        }
        Some(())
    }
}

/// Explodes the access into scans of single values of its leading fields, each in the order of `sort`. `order` is that
/// of the fields of the index, with the `_id` after them. `None` if the scans are not in that order, or would be too
/// many. With `partitions`, each of them has scans of its own.
fn explode(
    access: &IndexAccess,
    sort: &SortSpec,
    order: &[OrderField<'_>],
    partitions: &[PartitionId],
    limit_reached: &Cell<bool>,
) -> Option<Vec<IndexAccess>> {
    let mut order = order.to_vec();
    let mut points: Vec<&Intervals> = Vec::new();
    // The scans of each partition are in the order, but not one after the other.
    let mut scans = partitions.len().max(1);
    let direction = loop {
        if let Some(direction) = direction_for(sort, &order) {
            break direction;
        }
        let ranges = access.bounds.fields.get(points.len())?;
        scans = scans.saturating_mul(ranges.as_slice().len());
        if !ranges.all_points() || ranges.is_none() {
            return None;
        }
        order.get_mut(points.len())?.is_point = true;
        points.push(ranges);
    };
    if scans > SCANS_MAX {
        limit_reached.set(true);
        return None;
    }
    let rest = access.bounds.fields.iter().skip(points.len());
    let intervals = rest.map(|ranges| ranges.as_slice().len()).sum::<usize>();
    if scans.saturating_mul(points.len() + intervals) > INTERVALS_MAX {
        limit_reached.set(true);
        return None;
    }
    let mut branches = vec![IndexAccess {
        direction,
        covered: false,
        // The merge removes duplicates.
        may_repeat: false,
        ..access.clone()
    }];
    for (position, ranges) in points.into_iter().enumerate() {
        let values = ranges.as_slice();
        branches = branches
            .iter()
            .flat_map(|branch| {
                values.iter().map(|value| {
                    let mut one = branch.clone();
                    if let Some(field) = one.bounds.fields.get_mut(position) {
                        *field = Intervals::one(value.clone());
                    }
                    one
                })
            })
            .collect();
    }
    if partitions.is_empty() {
        return Some(branches);
    }
    let each = branches.iter().flat_map(|branch| {
        partitions.iter().map(|partition| IndexAccess {
            partitions: Some(Arc::new([(*partition, *partition)])),
            ..branch.clone()
        })
    });
    Some(each.collect())
}

/// The scan of an index as a merge of scans that give the order of `sort`; `None` if they do not give it. With `partitions`, of scans
/// of each partition.
pub fn of_index(
    access: &IndexAccess,
    sort: &SortSpec,
    order: &[OrderField<'_>],
    partitions: &[PartitionId],
    limit_reached: &Cell<bool>,
) -> Option<MergeAccess> {
    let parts = OrderPart::from_sort(sort, order)?;
    let branches = explode(access, sort, order, partitions, limit_reached)?
        .into_iter()
        .map(|branch| MergeBranch {
            access: Access::Index(branch),
            order: parts.clone(),
        });
    Some(MergeAccess {
        branches: branches.collect(),
        exploded: Some(access.clone()),
        may_repeat: !access.multikey.is_empty(),
    })
}

/// A plan for a branch of an `$or` that gives the order of `sort`, as branches of a merge; `None` if there is none.
pub fn branches(access: Access, sort: &SortSpec, by_record: bool) -> Option<Vec<MergeBranch>> {
    let order = match &access {
        Access::Merge(_) => Vec::new(),
        Access::Index(scan) if scan.index.spec.method.is_none() && scan.expanded.is_none() => {
            let mut order = order_fields(&scan.index.spec, &scan.multikey, &scan.bounds.fields);
            if by_record {
                // An entry ends with the record id, not with the `_id`.
                order.truncate(scan.bounds.fields.len());
            }
            OrderPart::from_sort(sort, &order)?
        }
        Access::IdRange { .. } => OrderPart::from_sort(sort, &[OrderField::id()])?,
        _ => return None,
    };
    Some(match access {
        Access::Merge(merge) => merge.branches,
        access => vec![MergeBranch { access, order }],
    })
}
