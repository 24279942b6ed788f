//! A route: one way to find documents through an index. It has bounds for the parts of the entries, and what they
//! guarantee.

use std::sync::Arc;

use frond_bson::{DocBuf, key};
use frond_query::paths::MultikeyPaths;

use crate::intervals::Intervals;

/// The bounds of an index: one set of ranges for each field, in ascending terms.
#[derive(Clone, Debug)]
pub struct IndexBounds {
    /// By field of the index.
    pub fields: Vec<Intervals>,
    /// Whether a document without the first field can pass. Such documents may be missing from a
    /// sparse index.
    pub may_be_missing: bool,
}

impl IndexBounds {
    /// Whether nothing can be inside.
    pub fn is_none(&self) -> bool {
        self.fields.iter().any(Intervals::is_none)
    }

    /// Whether every field is bounded to one value.
    pub fn all_points(&self) -> bool {
        self.fields.iter().all(Intervals::is_point)
    }

    /// Leading fields that are bounded to single values.
    pub fn leading_points(&self) -> usize {
        self.fields
            .iter()
            .take_while(|field| field.is_point())
            .count()
    }
}

/// A way to find the documents of a query through an index.
#[derive(Clone, Debug)]
pub struct Route {
    /// Ranges of the parts of an entry.
    pub bounds: IndexBounds,
    /// The components of the parts that have several values in some document.
    pub multikey: MultikeyPaths,
    /// Whether one document can have several entries inside the bounds.
    pub may_repeat: bool,
    /// Whether every document inside the bounds passes the filter.
    pub is_exact: bool,
    /// The index as this route uses it; `None` if that is its specification.
    pub expanded: Option<Arc<ExpandedIndex>>,
}

/// A wildcard index, expanded for one path: to a plan it is an index on that path.
#[derive(Debug)]
pub struct ExpandedIndex {
    /// The key pattern as `explain` shows it.
    pub key: DocBuf,
    /// The parts of an entry.
    pub fields: Vec<ExpandedField>,
}

/// One part of an entry as a plan sees it.
#[derive(Clone, Debug)]
pub struct ExpandedField {
    /// Its path, or its name.
    pub path: String,
    pub direction: key::Direction,
    /// Whether it holds the value at that path, so that it can give an order.
    pub holds_value: bool,
}
