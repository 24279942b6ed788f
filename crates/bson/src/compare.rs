//! MongoDB's order of values across types.

use std::cmp::Ordering;

use crate::collate::{Bytes, Foreign, Rules};
use crate::{Collator, Doc, MAX_DEPTH, Text, Value, number, tag};

/// The rank of a type in the order of types. Types with the same rank compare by value.
///
/// The order is that of MongoDB: MinKey, Undefined, Null, numbers, strings and symbols, documents, arrays,
/// binary, ObjectId, booleans, dates, timestamps, regular expressions, DBPointer, JavaScript, JavaScript
/// with scope, MaxKey.
pub fn canonical_class(type_code: u8) -> u8 {
    match type_code {
        tag::MIN_KEY => 0,
        tag::UNDEFINED => 1,
        tag::NULL => 5,
        tag::DOUBLE | tag::INT32 | tag::INT64 | tag::DECIMAL128 => 10,
        tag::STRING | tag::SYMBOL => 15,
        tag::DOCUMENT => 20,
        tag::ARRAY => 25,
        tag::BINARY => 30,
        tag::OBJECT_ID => 35,
        tag::BOOL => 40,
        tag::DATE_TIME => 45,
        tag::TIMESTAMP => 47,
        tag::REGEX => 50,
        tag::DB_POINTER => 55,
        tag::JAVASCRIPT => 60,
        tag::JAVASCRIPT_WITH_SCOPE => 65,
        _ => 127, // MaxKey
    }
}

/// Compares two values in MongoDB's order.
///
/// Numbers compare by their exact value across types; NaN equals NaN and is less than every other number.
/// Documents compare element by element: class, then name, then value; arrays in the same way without
/// names. Binary compares by length, subtype and bytes, text by its bytes.
pub fn compare(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    at_depth(a, b, 0, &Bytes)
}

/// Compares two documents in MongoDB's order, see [`compare`].
pub fn compare_docs(a: &Doc, b: &Doc) -> Ordering {
    documents(a, b, true, 0, &Bytes)
}

impl Collator {
    /// The order of two values. Strings inside documents and arrays are compared by the collator, names of fields by
    /// their bytes.
    pub fn compare(&self, a: &Value<'_>, b: &Value<'_>) -> Ordering {
        match self.rules() {
            None => compare(a, b),
            Some(rules) => at_depth(a, b, 0, &Foreign(rules)),
        }
    }
}

fn at_depth<R: Rules>(a: &Value<'_>, b: &Value<'_>, depth: usize, rules: &R) -> Ordering {
    match (a, b) {
        (Value::Int32(a), Value::Int32(b)) => a.cmp(b),
        (Value::Int64(a), Value::Int64(b)) => a.cmp(b),
        (Value::String(a) | Value::Symbol(a), Value::String(b) | Value::Symbol(b)) => {
            rules.compare(a, b)
        }
        (Value::Document(a), Value::Document(b)) => documents(a, b, true, depth, rules),
        (Value::Array(a), Value::Array(b)) => documents(a, b, false, depth, rules),
        (
            Value::Binary {
                subtype: s,
                bytes: a,
            },
            Value::Binary {
                subtype: t,
                bytes: b,
            },
        ) => a
            .len()
            .cmp(&b.len())
            .then_with(|| s.cmp(t))
            .then_with(|| a.cmp(b)),
        (Value::ObjectId(a), Value::ObjectId(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::DateTime(a), Value::DateTime(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (
            Value::Regex {
                pattern: a,
                options: o,
            },
            Value::Regex {
                pattern: b,
                options: p,
            },
        ) => a.cmp(b).then_with(|| o.cmp(p)),
        (Value::DbPointer { ns: a, id: i }, Value::DbPointer { ns: b, id: j }) => a
            .len()
            .cmp(&b.len())
            .then_with(|| a.cmp(b))
            .then_with(|| i.cmp(j)),
        (Value::JavaScript(a), Value::JavaScript(b)) => a.cmp(b),
        (
            Value::JavaScriptWithScope { code: a, scope: s },
            Value::JavaScriptWithScope { code: b, scope: t },
        ) => a.cmp(b).then_with(|| documents(s, t, true, depth, rules)),
        _ => {
            let classes = canonical_class(a.type_code()).cmp(&canonical_class(b.type_code()));
            classes.then_with(|| {
                number::compare(a, b)
                    .or_else(|| texts(a, b, depth, rules))
                    .unwrap_or(Ordering::Equal)
            })
        }
    }
}

/// Compares two values of one class by their text, UTF-8 or not, in the same way as UTF-8 values.
fn texts<R: Rules>(a: &Value<'_>, b: &Value<'_>, depth: usize, rules: &R) -> Option<Ordering> {
    Some(match (a.text()?, b.text()?) {
        (Text::Plain(x), Text::Plain(y)) => match (a.string_bytes(), b.string_bytes()) {
            (Some(x), Some(y)) => rules.compare_bytes(x, y),
            _ => x.cmp(y),
        },
        (
            Text::Regex {
                pattern: a,
                options: o,
            },
            Text::Regex {
                pattern: b,
                options: p,
            },
        ) => a.cmp(b).then_with(|| o.cmp(p)),
        (Text::Pointer { ns: a, id: i }, Text::Pointer { ns: b, id: j }) => {
            (a.len().cmp(&b.len())).then_with(|| a.cmp(b).then_with(|| i.cmp(&j)))
        }
        (Text::Scoped { code: a, scope: s }, Text::Scoped { code: b, scope: t }) => {
            a.cmp(b).then_with(|| documents(s, t, true, depth, rules))
        }
        _ => return None,
    })
}

fn documents<R: Rules>(a: &Doc, b: &Doc, names: bool, depth: usize, rules: &R) -> Ordering {
    // Validated documents are never this deep; damaged ones must not overflow the stack.
    if depth > MAX_DEPTH || a.as_bytes() == b.as_bytes() {
        return Ordering::Equal;
    }
    let (mut left, mut right) = (a.iter_raw(), b.iter_raw());
    loop {
        let (x, y) = match (left.next(), right.next()) {
            (Some(x), Some(y)) => (x, y),
            (x, y) => return x.is_some().cmp(&y.is_some()),
        };
        let mut order = canonical_class(x.tag).cmp(&canonical_class(y.tag));
        if order.is_eq() && names {
            order = x.name.cmp(y.name);
        }
        if order.is_eq() {
            order = match (x.value(), y.value()) {
                (Some(x), Some(y)) => at_depth(&x, &y, depth + 1, rules),
                (x, y) => x.is_some().cmp(&y.is_some()),
            };
        }
        if order.is_ne() {
            return order;
        }
    }
}
