//! A route: one way to find documents through an index. It has bounds for the parts of the entries, and what they
//! guarantee.

use std::sync::Arc;

use frond_bson::{DocBuf, key};
use frond_query::paths::MultikeyPaths;

use super::bounds::IndexBounds;
use super::spec::IndexSpec;
use crate::intervals::conditions::Conditions;

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

impl Route {
    /// The route through an index by its ordinary fields. Computed parts are not bounded.
    pub fn ordinary(spec: &IndexSpec, multikey: &MultikeyPaths, conditions: &Conditions) -> Route {
        let bounds = IndexBounds::from_conditions(spec, multikey, conditions);
        let has_field = |path: &str| spec.value_fields().any(|field| field.path == path);
        Route {
            may_repeat: !multikey.is_empty() && !bounds.all_points(),
            is_exact: multikey.is_empty() && conditions.are_exact_for(has_field),
            bounds,
            multikey: multikey.clone(),
            expanded: None,
        }
    }
}
