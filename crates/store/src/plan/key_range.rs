//! Ranges of keys: the part of an index, or of the documents of a collection, that a scan reads.

use std::sync::Arc;

use frond_bson::key;

use frond_storage::intervals::Intervals;
use frond_storage::keyspace::{Direction, TreeId};
use frond_storage::record_layout::PartitionSpan;

/// An interval of whole keys.
#[derive(Clone, Debug, Default)]
pub struct KeyInterval {
    /// The first key inside.
    pub low: Option<Vec<u8>>,
    /// The first key outside.
    pub high: Option<Vec<u8>>,
}

/// One field of the keys.
#[derive(Clone, Debug)]
pub struct ScanField {
    /// Ranges in the order of the stored bytes: those of a descending field are inverted.
    pub ranges: Intervals,
    /// The encoding of the field.
    pub direction: key::Direction,
}

/// The keys that a scan reads.
#[derive(Clone, Debug)]
pub struct KeyRange {
    pub tree: TreeId,
    /// The leading fields of its keys, all of them for a unique or primary tree.
    pub fields: Vec<ScanField>,
    /// Bounds of whole keys, besides those of the fields.
    pub interval: KeyInterval,
    pub direction: Direction,
    /// In an index of a partitioned collection, the partitions that are read, ascending. Their numbers precede the fields.
    pub partitions: Option<Arc<[PartitionSpan]>>,
}

/// The range of a scan of the documents of a collection.
pub fn primary_range(tree: TreeId, ranges: Intervals, direction: Direction) -> KeyRange {
    KeyRange {
        tree,
        fields: vec![ScanField {
            ranges,
            direction: key::Direction::Ascending,
        }],
        interval: KeyInterval::default(),
        direction,
        partitions: None,
    }
}
