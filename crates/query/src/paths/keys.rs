//! The key tuples of a compound index or a sort: several paths followed in step.

use frond_bson::{Doc, Value};

use super::{Component, MultikeyPaths, Path};
use frond_error::{Error, Result};

/// The most fields that a compound index or a sort may have.
pub const MAX_KEY_FIELDS: usize = 32;

/// Keys with at most this many fields take less space on the stack.
const FEW_FIELDS: usize = 2;

/// More nested arrays than this are refused, which bounds the recursion.
const MAX_ARRAY_DEPTH: usize = 200;

/// The policy for a document where two fields of a key lead through different arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParallelArrays {
    /// Refuse it, as a sort does.
    Refuse,
    /// Every combination of their elements is a key.
    Product,
}

/// The paths of the fields of an index or a sort.
#[derive(Clone, Debug)]
pub struct KeyPaths {
    paths: Box<[Path]>,
}

/// A field whose path stopped at an array; `rest` is what follows the array.
#[derive(Clone, Copy)]
struct Pending<'a, 'p> {
    field: usize,
    items: &'a Doc,
    rest: &'p [Component],
}

/// Where a path leads without entering an array.
enum Step<'a, 'p> {
    Value(Option<Value<'a>>),
    Array(&'a Doc, &'p [Component]),
}

impl KeyPaths {
    /// The fields in order, at most [`MAX_KEY_FIELDS`] (error 13103).
    pub fn new(paths: impl IntoIterator<Item = Path>) -> Result<KeyPaths> {
        let paths: Box<[Path]> = paths.into_iter().collect();
        if paths.len() > MAX_KEY_FIELDS {
            return Err(Error::location(13103, "too many compound keys"));
        }
        Ok(KeyPaths { paths })
    }

    /// The paths in order.
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// Calls `visit` with every key of `doc`: one value for each field, `None` where it is missing. Returns which
    /// components of the paths led to arrays.
    ///
    /// A document without arrays on these paths has exactly one key. An array gives one key for each
    /// element (fields that share an array take their values from the same element); an empty array
    /// at the end of a path counts as undefined (to a sort also at a position in another array), and an
    /// element other than a document lacks the rest of the path. Keys may repeat; they come in no particular order.
    ///
    /// Fails on parallel arrays if they are refused (code 2), when a numeric component is both an
    /// index and a field of an element (code 16746), and with any error of `visit`.
    pub fn for_each<'a, F>(
        &self,
        doc: &'a Doc,
        parallel: ParallelArrays,
        mut visit: F,
    ) -> Result<MultikeyPaths>
    where
        F: FnMut(&[Option<Value<'a>>]) -> Result<()>,
    {
        // Most keys have few fields, and room for all is a kilobyte to fill.
        match self.paths.len() {
            0..=FEW_FIELDS => self.keys::<FEW_FIELDS, _>(doc, parallel, &mut visit),
            _ => self.keys::<MAX_KEY_FIELDS, _>(doc, parallel, &mut visit),
        }
    }

    /// The same with room for `N` fields: at least as many as there are.
    fn keys<'a, const N: usize, F>(
        &self,
        doc: &'a Doc,
        parallel: ParallelArrays,
        visit: &mut F,
    ) -> Result<MultikeyPaths>
    where
        F: FnMut(&[Option<Value<'a>>]) -> Result<()>,
    {
        let mut values = [None; N];
        let mut pending = Vec::new();
        for ((field, path), slot) in self.paths.iter().enumerate().zip(&mut values) {
            match descend(doc, path.components()) {
                Step::Value(value) => *slot = value,
                Step::Array(items, rest) => pending.push(Pending { field, items, rest }),
            }
        }
        let count = self.paths.len();
        let mut expansion = Expansion {
            paths: &self.paths,
            values: &mut values[..count],
            parallel,
            arrays: MultikeyPaths::default(),
            visit,
        };
        expansion.run(&pending, 0)?;
        Ok(expansion.arrays)
    }
}

struct Expansion<'v, 'a, F> {
    paths: &'v [Path],
    values: &'v mut [Option<Value<'a>>],
    parallel: ParallelArrays,
    arrays: MultikeyPaths,
    visit: &'v mut F,
}

impl<'a, F> Expansion<'_, 'a, F>
where
    F: FnMut(&[Option<Value<'a>>]) -> Result<()>,
{
    /// Expands the first pending array, for all fields that wait for it, and then the others.
    fn run(&mut self, pending: &[Pending<'a, '_>], depth: usize) -> Result<()> {
        let Some(first) = pending.first() else {
            return (self.visit)(self.values);
        };
        if depth > MAX_ARRAY_DEPTH {
            return Err(Error::overflow(format!(
                "a key goes through more than {MAX_ARRAY_DEPTH} arrays inside each other"
            )));
        }
        let items = first.items;
        let (group, mut next): (Vec<_>, Vec<_>) = pending
            .iter()
            .copied()
            .partition(|other| std::ptr::eq(other.items, items));
        if !next.is_empty() && self.parallel == ParallelArrays::Refuse {
            return Err(Error::bad_value(
                "cannot sort with keys that are parallel arrays",
            ));
        }
        for member in &group {
            let components = self.paths.get(member.field).map_or(0, Path::depth);
            let component = components.saturating_sub(member.rest.len() + 1);
            self.arrays.insert(member.field, component);
        }
        if items.is_empty() {
            for member in &group {
                let value = member.rest.is_empty().then_some(Value::Undefined);
                self.set(member.field, value);
            }
            return self.run(&next, depth + 1);
        }

        // An element that a numeric component addresses is the same for every element of the array.
        let addressed: Vec<Option<Value<'a>>> = group
            .iter()
            .map(|member| {
                let index = member.rest.first()?.index()?;
                items.iter().nth(index).map(|(_, item)| item)
            })
            .collect();
        let others = next.len();
        let mut all_addressed_done = false;
        for (_, item) in items.iter() {
            let mut depends_on_item = false;
            for (member, addressed) in group.iter().zip(&addressed) {
                let step = match (member.rest, addressed) {
                    ([], _) => Step::Value(Some(item)),
                    ([first, ..], Some(_)) if has_field(&item, first.name()) => {
                        return Err(ambiguous(first.name()));
                    }
                    // A sort takes this empty array as undefined, as MongoDB does. An index stores the array; that
                    // is safe, as no sort is read from an index whose path has a number.
                    ([_], Some(Value::Array(empty)))
                        if empty.is_empty() && self.parallel == ParallelArrays::Refuse =>
                    {
                        Step::Value(Some(Value::Undefined))
                    }
                    ([_], Some(value)) => Step::Value(Some(*value)),
                    ([_, after @ ..], Some(Value::Document(inner))) => descend(inner, after),
                    ([_, after @ ..], Some(Value::Array(inner))) => Step::Array(inner, after),
                    (_, Some(_)) => Step::Value(None),
                    (rest, None) => match item {
                        Value::Document(inner) => descend(inner, rest),
                        _ => Step::Value(None),
                    },
                };
                depends_on_item |= member.rest.is_empty() || addressed.is_none();
                match step {
                    Step::Value(value) => self.set(member.field, value),
                    Step::Array(items, rest) => {
                        next.push(Pending {
                            field: member.field,
                            items,
                            rest,
                        });
                    }
                }
            }
            if depends_on_item || !all_addressed_done {
                self.run(&next, depth + 1)?;
            }
            all_addressed_done |= !depends_on_item;
            next.truncate(others);
        }
        Ok(())
    }

    fn set(&mut self, field: usize, value: Option<Value<'a>>) {
        if let Some(slot) = self.values.get_mut(field) {
            *slot = value;
        }
    }
}

fn has_field(item: &Value<'_>, name: &str) -> bool {
    matches!(item, Value::Document(inner) if inner.get(name).is_some())
}

#[cold]
fn ambiguous(name: &str) -> Error {
    Error::location(
        16746,
        format!(
            "Ambiguous field name found in array (do not use numeric field names in embedded \
             elements in an array), field: '{name}'"
        ),
    )
}

/// Follows `path` through documents to its end or to the first array.
fn descend<'a, 'p>(mut doc: &'a Doc, mut path: &'p [Component]) -> Step<'a, 'p> {
    while let Some((first, rest)) = path.split_first() {
        match doc.get(first.name()) {
            Some(Value::Array(items)) => return Step::Array(items, rest),
            value if rest.is_empty() => return Step::Value(value),
            Some(Value::Document(inner)) => (doc, path) = (inner, rest),
            _ => break,
        }
    }
    Step::Value(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{json, show};

    fn keys(document: &str, paths: &[&str], parallel: ParallelArrays) -> Result<Vec<String>> {
        let doc = json(document);
        let paths = KeyPaths::new(paths.iter().map(|path| Path::new(path)))?;
        let mut seen = Vec::new();
        paths.for_each(&doc, parallel, |values| {
            let texts: Vec<String> = values
                .iter()
                .map(|value| value.map_or("-".to_string(), |value| show(&value)))
                .collect();
            seen.push(texts.join(" "));
            Ok(())
        })?;
        Ok(seen)
    }

    #[test]
    fn keys_of_documents() {
        for (document, paths, expected) in [
            ("{a: 1, b: 2}", &["a", "b"][..], &["1 2"][..]),
            ("{a: 1}", &["a", "b"], &["1 -"]),
            ("{a: {b: 3}}", &["a.b"], &["3"]),
            ("{a: [1, 2]}", &["a"], &["1", "2"]),
            ("{a: [1, 2], b: 3}", &["a", "b"], &["1 3", "2 3"]),
            ("{a: []}", &["a"], &[r#"{"$undefined":true}"#]),
            ("{a: []}", &["a.b"], &["-"]),
            ("{a: [1, {b: 2}]}", &["a.b"], &["-", "2"]),
            ("{a: [[1, 2], 3]}", &["a"], &["[1,2]", "3"]),
            (
                "{a: [{b: 1, c: 2}, {b: 3}]}",
                &["a.b", "a.c"],
                &["1 2", "3 -"],
            ),
            ("{a: [{b: [1, 2], c: 3}]}", &["a.b", "a.c"], &["1 3", "2 3"]),
            (
                "{a: [{b: 1}], c: 5}",
                &["a", "a.b", "c"],
                &[r#"{"b":1} 1 5"#],
            ),
            // by index
            ("{a: [5, 7]}", &["a.1"], &["7"]),
            ("{a: [[1, 2]]}", &["a.0"], &["[1,2]"]),
            ("{a: [5, {b: [1, 2]}]}", &["a.1.b"], &["1", "2"]),
            ("{a: [5, [{b: 1}, {b: 2}]]}", &["a.1.b"], &["1", "2"]),
            ("{a: [5]}", &["a.1"], &["-"]),
            ("{a: [{b: 1}, {b: 2}]}", &["a.0.b", "a.b"], &["1 1", "1 2"]),
        ] {
            let seen = keys(document, paths, ParallelArrays::Refuse).unwrap();
            assert_eq!(seen, expected, "{document} {paths:?}");
        }
    }

    /// Issue 13: an empty array at a position sorts as undefined, before null; a filled one as an array.
    #[test]
    fn an_empty_array_at_a_position_is_undefined_to_a_sort() {
        const UNDEFINED: &str = r#"{"$undefined":true}"#;
        for (document, path, sort, index) in [
            ("{a: [[]]}", "a.0", UNDEFINED, "[]"),
            ("{a: [1, []]}", "a.1", UNDEFINED, "[]"),
            ("{a: [[[]]]}", "a.0.0", UNDEFINED, "[]"),
            ("{a: [[[]]]}", "a.0", "[[]]", "[[]]"),
            ("{a: [[1]]}", "a.0", "[1]", "[1]"),
            ("{a: [[]]}", "a.0.b", "-", "-"),
            ("{a: [[]]}", "a.0.0", "-", "-"),
            ("{a: []}", "a.0", "-", "-"),
            ("{a: [{b: []}]}", "a.0.b", UNDEFINED, UNDEFINED),
            ("{a: {\"0\": []}}", "a.0", UNDEFINED, UNDEFINED),
            ("{a: [[]]}", "a", "[]", "[]"),
        ] {
            for (parallel, expected) in [
                (ParallelArrays::Refuse, sort),
                (ParallelArrays::Product, index),
            ] {
                let seen = keys(document, &[path], parallel).unwrap();
                assert_eq!(seen, [expected], "{document} {path} {parallel:?}");
            }
        }
    }

    #[test]
    fn parallel_arrays_are_refused_or_multiplied() {
        let document = "{a: [1, 2], b: [3, 4]}";
        let refused = keys(document, &["a", "b"], ParallelArrays::Refuse).unwrap_err();
        assert_eq!(
            refused.message(),
            "cannot sort with keys that are parallel arrays"
        );
        assert_eq!(
            keys(document, &["a", "b"], ParallelArrays::Product).unwrap(),
            ["1 3", "1 4", "2 3", "2 4"]
        );
        assert_eq!(
            keys(
                "{a: [{b: [1, 2], c: [3, 4]}]}",
                &["a.b", "a.c"],
                ParallelArrays::Product
            )
            .unwrap(),
            ["1 3", "1 4", "2 3", "2 4"]
        );
    }

    #[test]
    fn a_number_that_is_index_and_field_is_refused() {
        let error = keys("{a: [{\"0\": 1}]}", &["a.0"], ParallelArrays::Product).unwrap_err();
        assert_eq!(error.code().code(), 16746);
    }

    #[test]
    fn components_that_are_arrays_are_reported() {
        for (document, paths, expected) in [
            ("{a: 1, b: {c: 2}}", &["a", "b.c"][..], &[][..]),
            (
                "{a: [1], b: 2, c: [{d: 1}]}",
                &["a", "b", "c.d"],
                &[1, 0, 1],
            ),
            ("{a: []}", &["a.b", "a"], &[1, 1]),
            ("{a: {b: [{c: 1}]}}", &["a.b.c", "a.d"], &[0b10]),
            (
                "{a: [{b: [{c: 1}]}, {b: 2}]}",
                &["a.b.c", "a.b.d"],
                &[0b11, 0b11],
            ),
            ("{a: [{b: {c: [1, 2]}}]}", &["a.b.c", "a.b"], &[0b101, 0b1]),
            // An element that a number addresses is an array: that is the number's component.
            ("{a: [5, [{b: 1}]]}", &["a.1.b"], &[0b11]),
            ("{a: [5, {b: [1]}]}", &["a.1.b"], &[0b101]),
        ] {
            let doc = json(document);
            let paths = KeyPaths::new(paths.iter().map(|path| Path::new(path))).unwrap();
            let arrays = paths.for_each(&doc, ParallelArrays::Product, |_| Ok(()));
            assert_eq!(arrays.unwrap().sets(), expected, "{document} {paths:?}");
        }
    }

    #[test]
    fn too_many_fields_are_refused() {
        let paths = (0..33).map(|number| Path::new(&number.to_string()));
        assert_eq!(KeyPaths::new(paths).unwrap_err().code().code(), 13103);
    }
}
