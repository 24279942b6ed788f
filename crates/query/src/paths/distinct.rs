//! The values that the `distinct` command collects.

use frond_bson::{Doc, Value};

use super::{Component, Path};

/// Calls `visit` with the values of `path` in `doc` as the `distinct` command counts them.
///
/// An array at the end of the path counts as its elements, one level only. On the way, the documents
/// inside an array are all entered, unless the next component is a number: then only the element
/// with that index is. Missing fields and empty arrays give nothing.
pub fn distinct_values<'a>(doc: &'a Doc, path: &Path, mut visit: impl FnMut(Value<'a>)) {
    collect(doc, path.components(), &mut visit);
}

fn collect<'a>(doc: &'a Doc, path: &[Component], visit: &mut impl FnMut(Value<'a>)) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    match (doc.get(first.name()), rest.first()) {
        (Some(Value::Array(items)), None) => items.iter().for_each(|(_, item)| visit(item)),
        (Some(value), None) => visit(value),
        (Some(Value::Document(inner)), Some(_)) => collect(inner, rest, visit),
        (Some(Value::Array(items)), Some(next)) => match next.index() {
            Some(_) => collect(items, rest, visit),
            None => items.iter().for_each(|(_, item)| {
                if let Value::Document(inner) = item {
                    collect(inner, rest, visit);
                }
            }),
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{json, show};

    #[test]
    fn arrays_count_as_their_elements() {
        for (document, path, expected) in [
            ("{a: 1}", "a", &["1"][..]),
            ("{a: null}", "a", &["null"]),
            ("{}", "a", &[]),
            ("{a: []}", "a", &[]),
            ("{a: [1, [2, 3]]}", "a", &["1", "[2,3]"]),
            ("{a: {b: [1, 2]}}", "a.b", &["1", "2"]),
            ("{a: [{b: 1}, {b: [2, 3]}, 4]}", "a.b", &["1", "2", "3"]),
            ("{a: [{b: 1}, {b: 2}]}", "a.1.b", &["2"]),
            ("{a: [7, 8]}", "a.1", &["8"]),
            ("{a: [[{b: 1}]]}", "a.b", &[]),
            ("{a: [[{b: 1}]]}", "a.0.b", &["1"]),
            ("{a: 1}", "a.b", &[]),
        ] {
            let doc = json(document);
            let mut seen = Vec::new();
            distinct_values(&doc, &Path::new(path), |value| seen.push(show(&value)));
            assert_eq!(seen, expected, "{document} {path}");
        }
    }
}
