//! The order of the entries of an index.

use frond_bson::key;
use frond_query::paths::MultikeyPaths;
use frond_query::sort::SortSpec;

use frond_storage::index::field::Holds;
use frond_storage::intervals::Intervals;
use frond_storage::intervals::conditions::has_number;
use frond_storage::keyspace::Direction;

/// A field of an index as far as its order matters.
#[derive(Clone, Copy, Debug)]
pub struct OrderField<'a> {
    pub path: &'a str,
    /// Its order when the index is read forward.
    pub direction: key::Direction,
    /// Whether it is bounded to one value.
    pub is_point: bool,
    /// Whether it is multikey, or does not hold the value at its path: then it is not in the
    /// order of a sort.
    pub is_array: bool,
}

impl OrderField<'_> {
    /// The `_id` after the fields of an index that is not unique.
    pub fn id() -> OrderField<'static> {
        OrderField {
            path: "_id",
            direction: key::Direction::Ascending,
            is_point: false,
            is_array: false,
        }
    }
}

/// The fields of an index with their bounds. The `_id` follows the fields of an index that is not
/// unique.
pub fn order_fields<'a>(
    spec: &'a frond_storage::index::spec::IndexSpec,
    multikey: &MultikeyPaths,
    bounds: &[Intervals],
) -> Vec<OrderField<'a>> {
    let mut fields: Vec<OrderField<'a>> = spec
        .fields
        .iter()
        .zip(bounds)
        .enumerate()
        .map(|(position, (field, ranges))| OrderField {
            path: &field.path,
            direction: field.direction,
            is_point: ranges.is_point(),
            is_array: field.holds != Holds::Value || multikey.has_array(position),
        })
        .collect();
    if !spec.unique {
        fields.push(OrderField::id());
    }
    fields
}

/// The direction in which an index gives the order of `sort`; `None` if it does not. A field bounded
/// to one value has every order.
pub fn direction_for(sort: &SortSpec, fields: &[OrderField<'_>]) -> Option<Direction> {
    if !sort.meta().is_empty() {
        return None;
    }
    let mut needed: Option<Direction> = None;
    let mut index = fields.iter().peekable();
    for (path, wanted) in sort.fields() {
        let path = path.as_str();
        let is_pinned =
            |field: &OrderField<'_>| field.path == path && field.is_point && !field.is_array;
        if fields.iter().any(is_pinned) {
            continue;
        }
        while index
            .next_if(|field| field.path != path && field.is_point)
            .is_some()
        {}
        let field = index.next().filter(|field| field.path == path)?;
        if field.is_array || has_number(path) {
            return None;
        }
        let direction = if field.direction == wanted {
            Direction::Forward
        } else {
            Direction::Backward
        };
        if needed.is_some_and(|needed| needed != direction) {
            return None;
        }
        needed = Some(direction);
    }
    Some(needed.unwrap_or(Direction::Forward))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use frond_bson::{DocBuf, doc};

    #[test]
    fn orders_of_an_index() {
        let field = |path, descending, is_point, is_array| OrderField {
            path,
            direction: if descending {
                key::Direction::Descending
            } else {
                key::Direction::Ascending
            },
            is_point,
            is_array,
        };
        let ab = [
            field("a", false, false, false),
            field("b", true, false, false),
        ];
        let pinned = [
            field("a", false, true, false),
            field("b", false, false, false),
            field("c", false, false, false),
        ];
        let arrays = [
            field("a", false, true, true),
            field("b", false, false, false),
            field("c", false, false, true),
        ];
        let (up, down) = (Some(Direction::Forward), Some(Direction::Backward));
        let cases: Vec<(DocBuf, &[OrderField<'_>], Option<Direction>)> = vec![
            (doc! {}, &ab, up),
            (doc! {"a": 1}, &ab, up),
            (doc! {"a": -1}, &ab, down),
            (doc! {"a": 1, "b": -1}, &ab, up),
            (doc! {"a": -1, "b": 1}, &ab, down),
            (doc! {"a": 1, "b": 1}, &ab, None),
            (doc! {"b": 1}, &ab, None),
            (doc! {"a": 1, "c": 1}, &ab, None),
            (doc! {"b": 1}, &pinned, up),
            (doc! {"b": -1, "c": -1}, &pinned, down),
            (doc! {"a": -1, "b": 1}, &pinned, up),
            (doc! {"b": 1, "a": -1, "c": 1}, &pinned, up),
            (doc! {"c": 1}, &pinned, None),
            (doc! {"b": 1}, &arrays, up),
            (doc! {"a": 1}, &arrays, None),
            (doc! {"b": 1, "c": 1}, &arrays, None),
        ];
        for (sort, fields, expected) in cases {
            let spec = SortSpec::parse(&sort).unwrap();
            assert_eq!(
                direction_for(&spec, fields),
                expected,
                "{sort:?} {fields:?}"
            );
        }
    }
}
