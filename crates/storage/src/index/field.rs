//! A part of the entries of an index.

use frond_bson::key;

/// One part of the entries of an index: a field of the key pattern, or a part of a computed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexField {
    /// The dotted path, or the name that `explain` shows.
    pub path: String,
    /// The order in which its values are stored.
    pub direction: key::Direction,
    pub holds: Holds,
}

/// The content of a part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The value at the path.
    Value,
    /// A part of the computed field with this number, counted from 0.
    Computed(usize),
}
