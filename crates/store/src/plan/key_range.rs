//! Where an index, or the documents of a collection, are read: intervals of each field of the keys.

use frond_bson::key;

use crate::intervals::Intervals;
use crate::keyspace::{Direction, TreeId};

/// Whole keys between which to read.
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
    /// Ranges in the order of the stored bytes: inverted already for a descending field.
    pub ranges: Intervals,
    /// How the field is encoded.
    pub direction: key::Direction,
}

/// Where to read.
#[derive(Clone, Debug)]
pub struct KeyRange {
    /// The tree.
    pub tree: TreeId,
    /// The leading fields of its keys, all of them for a unique or primary tree.
    pub fields: Vec<ScanField>,
    /// Bounds of whole keys, besides those of the fields.
    pub interval: KeyInterval,
    /// Up or down.
    pub direction: Direction,
}

/// Where to read the documents of a collection.
pub fn primary_range(tree: TreeId, ranges: Intervals, direction: Direction) -> KeyRange {
    KeyRange {
        tree,
        fields: vec![ScanField {
            ranges,
            direction: key::Direction::Ascending,
        }],
        interval: KeyInterval::default(),
        direction,
    }
}
