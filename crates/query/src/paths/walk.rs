//! The values that a query condition on a path examines.

use std::ops::ControlFlow;

use frond_bson::{Doc, Value};

use super::{Component, Path};

/// Treatment of an array at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafArrays {
    /// Visit its elements, then the array itself: as most conditions need.
    Expand,
    /// Visit only the array itself: `$size`, `$elemMatch`.
    Whole,
}

/// Visits every value that `path` leads to in `doc`, until `visit` breaks.
///
/// An array on the way is entered element by element; elements that are not documents lead nowhere,
/// and an array directly inside an array is not entered, except by its index. A numeric component
/// names a field of a document, and an element of an array by index (a document in an array gets
/// both readings); an element addressed by index is visited as it is, even if it is an array.
///
/// `visit` gets the value, or `None` where a field is missing, and the index of the element of the
/// outermost array that was entered implicitly, which is what the positional operator `$` names.
pub fn walk<'a, F>(doc: &'a Doc, path: &Path, leaf: LeafArrays, visit: &mut F) -> ControlFlow<()>
where
    F: FnMut(Option<Value<'a>>, Option<usize>) -> ControlFlow<()>,
{
    in_document(doc, path.components(), leaf, None, visit)
}

/// Calls `visit` with every value that a query condition on `path` sees in `doc`: the elements of
/// an array at its end, then the array. Missing fields are left out. See [`walk`] for the rules.
pub fn for_each_value<'a>(doc: &'a Doc, path: &Path, mut visit: impl FnMut(Value<'a>)) {
    let _ = walk(doc, path, LeafArrays::Expand, &mut |value, _| {
        if let Some(value) = value {
            visit(value);
        }
        ControlFlow::Continue(())
    });
}

fn in_document<'a, F>(
    mut doc: &'a Doc,
    mut path: &[Component],
    leaf: LeafArrays,
    outer: Option<usize>,
    visit: &mut F,
) -> ControlFlow<()>
where
    F: FnMut(Option<Value<'a>>, Option<usize>) -> ControlFlow<()>,
{
    while let Some((first, rest)) = path.split_first() {
        match doc.get(first.name()) {
            Some(Value::Array(items)) if !rest.is_empty() || leaf == LeafArrays::Expand => {
                return in_array(items, rest, leaf, outer, visit);
            }
            Some(value) if rest.is_empty() => return visit(Some(value), outer),
            Some(Value::Document(inner)) => (doc, path) = (inner, rest),
            Some(_) | None => return visit(None, outer),
        }
    }
    ControlFlow::Continue(())
}

fn in_array<'a, F>(
    items: &'a Doc,
    rest: &[Component],
    leaf: LeafArrays,
    outer: Option<usize>,
    visit: &mut F,
) -> ControlFlow<()>
where
    F: FnMut(Option<Value<'a>>, Option<usize>) -> ControlFlow<()>,
{
    let Some((first, after)) = rest.split_first() else {
        for (index, (_, item)) in items.iter().enumerate() {
            visit(Some(item), outer.or(Some(index)))?;
        }
        return visit(Some(Value::Array(items)), outer);
    };
    for (index, (_, item)) in items.iter().enumerate() {
        if let Value::Document(inner) = item {
            in_document(inner, rest, leaf, outer.or(Some(index)), visit)?;
        }
        if first.index() != Some(index) {
            continue;
        }
        match item {
            _ if after.is_empty() => visit(Some(item), outer)?,
            Value::Document(inner) => in_document(inner, after, leaf, outer, visit)?,
            Value::Array(inner) => in_array(inner, after, leaf, outer, visit)?,
            _ => {}
        }
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{json, show};

    /// The visited values as extended JSON with the positional index: `5@0`, `missing`.
    fn visits(document: &str, path: &str, leaf: LeafArrays) -> Vec<String> {
        let doc = json(document);
        let mut seen = Vec::new();
        let _ = walk(&doc, &Path::new(path), leaf, &mut |value, index| {
            let mut text = value.map_or("missing".to_string(), |value| show(&value));
            if let Some(index) = index {
                text += &format!("@{index}");
            }
            seen.push(text);
            ControlFlow::Continue(())
        });
        seen
    }

    #[test]
    fn visits_what_conditions_see() {
        for (document, path, expected) in [
            ("{a: 1}", "a", &["1"][..]),
            ("{a: 1}", "b", &["missing"]),
            ("{a: 1}", "a.b", &["missing"]),
            ("{a: {b: 2}}", "a.b", &["2"]),
            ("{a: {b: 2}}", "a", &[r#"{"b":2}"#]),
            ("{a: {}}", "a.b", &["missing"]),
            ("{a: [1, 2]}", "a", &["1@0", "2@1", "[1,2]"]),
            ("{a: []}", "a", &["[]"]),
            ("{a: []}", "a.b", &[]),
            ("{a: [1, 2]}", "a.b", &[]),
            ("{a: [{b: 1}, {c: 1}, 3]}", "a.b", &["1@0", "missing@1"]),
            ("{a: [{b: [1, 2]}]}", "a.b", &["1@0", "2@0", "[1,2]@0"]),
            ("{a: [[1, 2]]}", "a", &["[1,2]@0", "[[1,2]]"]),
            ("{a: [[{b: 1}]]}", "a.b", &[]),
            // an index names an element
            ("{a: [5, 7, 3]}", "a.1", &["7"]),
            ("{a: [5, [2, 4], 3]}", "a.1", &["[2,4]"]),
            ("{a: [5, {\"1\": 4}, 3]}", "a.1", &["4@1", r#"{"1":4}"#]),
            ("{a: [5, {b: 4}, 3]}", "a.1.b", &["missing@1", "4"]),
            ("{a: [5, [{b: 4}], 3]}", "a.1.b", &["4@0"]),
            ("{a: [[[1, 2]]]}", "a.0.0", &["[1,2]"]),
            ("{a: [5]}", "a.01", &[]),
            ("{a: [5]}", "a.0.b", &[]),
            ("{a: {\"0\": 5}}", "a.0", &["5"]),
        ] {
            assert_eq!(
                visits(document, path, LeafArrays::Expand),
                expected,
                "{document} {path}"
            );
        }
    }

    #[test]
    fn whole_arrays_are_not_entered_at_the_end() {
        for (document, path, expected) in [
            ("{a: [1, 2]}", "a", &["[1,2]"][..]),
            ("{a: [{b: [1]}, {b: 2}]}", "a.b", &["[1]@0", "2@1"]),
            ("{a: [[1], 2]}", "a.0", &["[1]"]),
        ] {
            assert_eq!(
                visits(document, path, LeafArrays::Whole),
                expected,
                "{document} {path}"
            );
        }
    }

    #[test]
    fn for_each_value_leaves_out_missing_fields() {
        let doc = json("{a: [{b: 1}, {c: 1}, {b: [2]}]}");
        let mut seen = Vec::new();
        for_each_value(&doc, &Path::new("a.b"), |value| seen.push(show(&value)));
        assert_eq!(seen, ["1", "2", "[2]"]);
    }
}
