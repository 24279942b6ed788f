//! The order of array elements: by themselves, or by some of their fields. `$push` and `$sortArray` have it.
//!
//! It is not the order of a `$sort`: an array on a path is not entered, and one at its end compares as an array.

use crate::bounded_sort::{sort_by, sort_values};
use crate::bounds;
use frond_bson::{Collator, Doc, Value};
use std::cmp::Ordering;

#[derive(Debug)]
pub(crate) enum ElementOrder {
    Whole { descending: bool },
    Fields(Vec<(String, bool)>),
}

/// An invalid specification. Each operator has its own codes for these.
#[derive(Debug)]
pub(crate) enum OrderFault {
    /// In the fields of a document.
    Fields(String),
    /// A number other than 1 and -1.
    Direction,
    /// Neither a number nor a document.
    Type,
}

impl OrderFault {
    pub(crate) fn message(self) -> String {
        match self {
            OrderFault::Fields(message) => message,
            OrderFault::Direction => "The $sort element value must be either 1 or -1".to_owned(),
            OrderFault::Type => {
                "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort \
                                 embedded fields"
                    .to_owned()
            }
        }
    }
}

fn is_descending(value: &Value<'_>) -> Option<bool> {
    match value.as_f64() {
        Some(1.0) => Some(false),
        Some(-1.0) => Some(true),
        _ => None,
    }
}

impl ElementOrder {
    /// Reads 1, -1, or a document of paths and directions.
    pub(crate) fn parse(value: Value<'_>) -> Result<ElementOrder, OrderFault> {
        let fields = match value {
            Value::Document(fields) => fields,
            value if value.is_number() => {
                let descending = is_descending(&value).ok_or(OrderFault::Direction)?;
                return Ok(ElementOrder::Whole { descending });
            }
            _ => return Err(OrderFault::Type),
        };
        let mut parsed = Vec::new();
        for (path, direction) in fields.iter() {
            let descending = is_descending(&direction).ok_or_else(|| {
                OrderFault::Fields("The sort element value must be either 1 or -1".to_owned())
            })?;
            if path.is_empty() {
                return Err(OrderFault::Fields(
                    "The sort field cannot be empty".to_owned(),
                ));
            }
            if path.split('.').any(str::is_empty) {
                return Err(OrderFault::Fields(format!(
                    "The sort field is a dotted field but has an empty part: {path}"
                )));
            }
            parsed.push((path.to_owned(), descending));
        }
        if parsed.is_empty() {
            return Err(OrderFault::Fields(
                "The sort pattern is empty when it should be a set of fields.".to_owned(),
            ));
        }
        Ok(ElementOrder::Fields(parsed))
    }

    /// Sorts; equal elements keep their order.
    ///
    /// # Errors
    /// Those of the bounds of the evaluation.
    pub(crate) fn sort(
        &self,
        elements: &mut Vec<Value<'_>>,
        collator: &Collator,
    ) -> frond_error::Result<()> {
        let directed = |order: Ordering, descending: bool| {
            if descending { order.reverse() } else { order }
        };
        let fields = match self {
            ElementOrder::Whole { descending } => {
                return sort_values(elements, |a, b| {
                    directed(collator.compare(a, b), *descending)
                });
            }
            ElementOrder::Fields(fields) => fields,
        };
        // The fields are found once for each element, not in each comparison. The keys lie in one list, so that a merge does not
        // copy them.
        bounds::reserve_list::<Value<'_>>(elements.len().saturating_mul(fields.len()))?;
        let mut keys = Vec::with_capacity(elements.len() * fields.len());
        type Keyed<'v> = (usize, Value<'v>);
        bounds::reserve_list::<Keyed<'_>>(elements.len())?;
        let mut keyed: Vec<Keyed<'_>> = Vec::with_capacity(elements.len());
        for element in elements.iter() {
            bounds::work_on(element.len_bytes())?;
            keyed.push((keys.len(), *element));
            keys.extend(fields.iter().map(|(path, _)| field(element, path)));
        }
        let key = |(at, _): &Keyed<'_>| keys.get(*at..at + fields.len()).unwrap_or_default();
        let bytes = |one: &Keyed<'_>| key(one).iter().map(Value::len_bytes).sum();
        sort_by(&mut keyed, bytes, |a, b| {
            let parts = key(a).iter().zip(key(b)).zip(fields);
            parts
                .map(|((a, b), (_, descending))| directed(collator.compare(a, b), *descending))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        })?;
        elements.clear();
        elements.extend(keyed.into_iter().map(|(_, element)| element));
        Ok(())
    }
}

/// The value that an element is sorted by; null if it has no such field.
fn field<'a>(element: &Value<'a>, path: &str) -> Value<'a> {
    match element {
        Value::Document(doc) => at_path(doc, path).unwrap_or(Value::Null),
        _ => Value::Null,
    }
}

/// The value at a path; a number may name an element of an array. A field whose name has the dots goes before a path.
fn at_path<'a>(mut doc: &'a Doc, mut path: &str) -> Option<Value<'a>> {
    loop {
        if let Some(value) = doc.get(path) {
            return Some(value);
        }
        let (first, rest) = path.split_once('.')?;
        doc = match doc.get(first)? {
            Value::Document(below) | Value::Array(below) => below,
            _ => return None,
        };
        path = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{json, show};

    fn sorted(spec: &str, elements: &str) -> String {
        let (spec, elements) = (json(spec), json(elements));
        let order = spec.get("by").map(ElementOrder::parse);
        let list = elements.get("l").and_then(|list| list.as_array());
        let (Some(Ok(order)), Some(list)) = (order, list) else {
            panic!("{spec:?} {elements:?}")
        };
        let mut values: Vec<Value<'_>> = list.values().collect();
        assert!(order.sort(&mut values, Collator::BINARY).is_ok());
        let shown: Vec<String> = values.iter().map(show).collect();
        shown.join(", ")
    }

    #[test]
    fn arrays_are_values_and_not_entered() {
        for (spec, elements, expected) in [
            // An array sorts behind numbers, whatever is in it.
            (
                "{by: {k: 1}}",
                "{l: [{k: [1]}, {k: 5}, {k: []}, {k: [0, 9]}]}",
                "{l: [{k: 5}, {k: []}, {k: [0, 9]}, {k: [1]}]}",
            ),
            (
                "{by: {k: -1}}",
                "{l: [{k: 5}, {k: [0, 9]}, {k: [1]}, {}]}",
                "{l: [{k: [1]}, {k: [0, 9]}, {k: 5}, {}]}",
            ),
            // A path does not lead into the documents of an array: both have no such field.
            (
                "{by: {'a.b': 1}}",
                "{l: [{a: [{b: 9}]}, {a: {b: 1}}, {a: [{b: 0}]}, {a: {b: -1}}]}",
                "{l: [{a: [{b: 9}]}, {a: [{b: 0}]}, {a: {b: -1}}, {a: {b: 1}}]}",
            ),
            // A number names an element.
            (
                "{by: {'a.1': -1}}",
                "{l: [{a: [5, 1]}, {a: [0, 2]}, {a: {'1': 3}}]}",
                "{l: [{a: {'1': 3}}, {a: [0, 2]}, {a: [5, 1]}]}",
            ),
            (
                "{by: {'a.b': 1}}",
                "{l: [{a: {b: 2}}, {'a.b': 1, a: {b: 3}}]}",
                "{l: [{'a.b': 1, a: {b: 3}}, {a: {b: 2}}]}",
            ),
            (
                "{by: {a: 1, b: -1}}",
                "{l: [{a: 1, b: 1}, {a: 1, b: 2}, 7, {a: 0}, null]}",
                "{l: [7, null, {a: 0}, {a: 1, b: 2}, {a: 1, b: 1}]}",
            ),
            ("{by: -1}", "{l: [1, [3], 'x', 2]}", "{l: [[3], 'x', 2, 1]}"),
        ] {
            let expected = json(expected);
            let list = expected.get("l").and_then(|list| list.as_array());
            let expected: Vec<String> = (list.into_iter())
                .flat_map(Doc::values)
                .map(|v| show(&v))
                .collect();
            assert_eq!(
                sorted(spec, elements),
                expected.join(", "),
                "{spec} {elements}"
            );
        }
    }
}
