//! A way through one index: bounds for the parts of its entries, and what they promise.

use std::sync::Arc;

use frond_bson::{DocBuf, key};
use frond_query::paths::MultikeyPaths;

use super::bounds::{Conditions, IndexBounds};
use super::sorted::{OrderField, order_fields};
use crate::index::spec::IndexSpec;

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
    /// What this way makes of the index's key pattern; `None` to show it as it is.
    pub face: Option<Arc<Face>>,
}

/// A wildcard index looks different on every path. This is what a plan sees of an index, where that is not its
/// specification.
#[derive(Debug)]
pub struct Face {
    /// The key pattern as `explain` shows it.
    pub key: DocBuf,
    /// The parts of an entry.
    pub fields: Vec<FaceField>,
}

/// One part of an entry as a plan sees it.
#[derive(Clone, Debug)]
pub struct FaceField {
    /// Its path, or its name.
    pub path: String,
    /// Its order.
    pub direction: key::Direction,
    /// Whether it holds the value at that path, so that it can give an order.
    pub holds_value: bool,
}

impl Route {
    /// The way through an index without special parts, or through the ordinary ones of a special index: the
    /// special parts are not bounded.
    pub fn ordinary(spec: &IndexSpec, multikey: &MultikeyPaths, conditions: &Conditions) -> Route {
        let bounds = IndexBounds::of(spec, multikey, conditions);
        let has_field = |path: &str| spec.value_fields().any(|field| field.path == path);
        Route {
            may_repeat: !multikey.is_empty() && !bounds.all_points(),
            is_exact: multikey.is_empty() && conditions.are_exact_for(has_field),
            bounds,
            multikey: multikey.clone(),
            face: None,
        }
    }

    /// The parts as far as their order matters, with the `_id` behind them.
    pub(super) fn order<'a>(&'a self, spec: &'a IndexSpec) -> Vec<OrderField<'a>> {
        let Some(face) = &self.face else {
            return order_fields(spec, &self.multikey, &self.bounds.fields);
        };
        let parts = face.fields.iter().zip(&self.bounds.fields).enumerate();
        let mut fields: Vec<OrderField<'a>> = parts
            .map(|(position, (field, ranges))| OrderField {
                path: &field.path,
                direction: field.direction,
                is_point: ranges.is_point(),
                is_array: !field.holds_value || self.multikey.has_array(position),
            })
            .collect();
        fields.push(OrderField::id());
        fields
    }
}
