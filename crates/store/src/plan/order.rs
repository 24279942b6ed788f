//! The order that a route through an index gives.

use super::sorted::{OrderField, order_fields};
use frond_storage::index::route::Route;
use frond_storage::index::spec::IndexSpec;

/// The parts of an entry that determine the order, followed by the `_id`.
pub(super) fn order_of_route<'a>(route: &'a Route, spec: &'a IndexSpec) -> Vec<OrderField<'a>> {
    let Some(expanded) = &route.expanded else {
        return order_fields(spec, &route.multikey, &route.bounds.fields);
    };
    let parts = expanded.fields.iter().zip(&route.bounds.fields).enumerate();
    let mut fields: Vec<OrderField<'a>> = parts
        .map(|(position, (field, ranges))| OrderField {
            path: &field.path,
            direction: field.direction,
            is_point: ranges.is_point(),
            is_array: !field.holds_value || route.multikey.has_array(position),
        })
        .collect();
    fields.push(OrderField::id());
    fields
}
