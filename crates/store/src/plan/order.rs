//! The order that a route through an index gives.

use super::sorted::{OrderField, order_fields};
use crate::index::route::Route;
use crate::index::spec::IndexSpec;

impl Route {
    /// The parts that determine the order, followed by the `_id`.
    pub(super) fn order<'a>(&'a self, spec: &'a IndexSpec) -> Vec<OrderField<'a>> {
        let Some(expanded) = &self.expanded else {
            return order_fields(spec, &self.multikey, &self.bounds.fields);
        };
        let parts = expanded.fields.iter().zip(&self.bounds.fields).enumerate();
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
