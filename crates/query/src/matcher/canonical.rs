//! Filters as `explain` shows them: one operator a condition, conditions in MongoDB's order.

use std::cmp::Ordering;

use frond_bson::{ArrayBuf, Doc, DocBuf, Value, compare, doc};

use super::parse::operators_of;
use crate::geo::is_near;

/// A filter in the form that `explain` shows: `{a: 5, b: {$gte: 1, $ne: 3}}` becomes
/// `{$and: [{a: {$eq: 5}}, {b: {$gte: 1}}, {b: {$not: {$eq: 3}}}]}`. The filter has been parsed before.
pub fn canonical(filter: &Doc) -> DocBuf {
    together(canonical_conditions(filter))
}

/// The conditions of a filter that all have to hold, each in the form that `explain` shows.
pub fn canonical_conditions(filter: &Doc) -> Vec<DocBuf> {
    let mut found = Vec::new();
    collect(filter, &mut found);
    // A stable order: by kind, then by path.
    found.sort_by(order);
    found
}

/// Conditions that all have to hold as one filter.
pub fn together(mut conditions: Vec<DocBuf>) -> DocBuf {
    match conditions.len() {
        0 => DocBuf::new(),
        1 => conditions.remove(0),
        _ => {
            let all: ArrayBuf = conditions.iter().map(|one| &**one).collect();
            doc! {"$and": all}
        }
    }
}

fn collect(filter: &Doc, found: &mut Vec<DocBuf>) {
    for (name, value) in filter.iter() {
        match (name, value) {
            ("$comment", _) => {}
            ("$and", Value::Array(branches)) => {
                for branch in branches.values().filter_map(|branch| branch.as_doc()) {
                    collect(branch, found);
                }
            }
            ("$or" | "$nor", Value::Array(branches)) => {
                let mut each: Vec<DocBuf> = branches
                    .values()
                    .filter_map(|branch| branch.as_doc().map(canonical))
                    .collect();
                if let ("$or", [_]) = (name, each.as_slice()) {
                    found.append(&mut each);
                    continue;
                }
                each.sort_by(order);
                let list: ArrayBuf = each.iter().map(|one| &**one).collect();
                found.push(doc! {name: list});
            }
            _ if name.starts_with('$') => found.push(one(name, &value)),
            (path, value) => field(path, &value, found),
        }
    }
}

fn one(name: &str, value: &Value<'_>) -> DocBuf {
    let mut out = DocBuf::new();
    out.push_value(name, value);
    out
}

/// `{path: {operator: value}}`.
fn on(path: &str, operator: &str, value: &Value<'_>) -> DocBuf {
    let mut out = DocBuf::new();
    out.push_doc(path, |condition| condition.push_value(operator, value));
    out
}

/// The conditions on one path.
fn field(path: &str, value: &Value<'_>, found: &mut Vec<DocBuf>) {
    match (operators_of(value), value) {
        // Its other operators are its parameters.
        (Some(operators), _) if operators.first().is_some_and(|(name, _)| is_near(name)) => {
            found.push(one(path, value));
        }
        (Some(operators), _) => {
            for (operator, operand) in operators.iter() {
                condition(path, operator, &operand, operators, found);
            }
        }
        (None, Value::Regex { pattern, options }) => found.push(regex(path, pattern, options)),
        (None, value) => found.push(on(path, "$eq", value)),
    }
}

fn condition(path: &str, operator: &str, operand: &Value<'_>, all: &Doc, found: &mut Vec<DocBuf>) {
    let not = |inner: DocBuf| {
        let inner = inner.get_doc(path).unwrap_or(Doc::empty());
        doc! {path: {"$not": inner}}
    };
    match (operator, operand) {
        ("$ne", value) => found.push(not(on(path, "$eq", value))),
        ("$in", Value::Array(items)) => found.push(membership(path, items)),
        ("$nin", Value::Array(items)) => found.push(not(membership(path, items))),
        ("$exists", value) if !value.truthy() => {
            found.push(not(on(path, "$exists", &Value::Bool(true))));
        }
        ("$exists", _) => found.push(on(path, "$exists", &Value::Bool(true))),
        ("$not", Value::Regex { pattern, options }) => {
            found.push(not(regex(path, pattern, options)))
        }
        ("$not", inner) => {
            let mut each = Vec::new();
            field(path, inner, &mut each);
            match each.as_slice() {
                [only] => found.push(not(only.clone())),
                // Not both: neither of several would say something else.
                several => {
                    let list: ArrayBuf = several.iter().map(|one| &**one).collect();
                    let both = doc! {"$and": list};
                    let list: ArrayBuf = [&*both].into_iter().collect();
                    found.push(doc! {"$nor": list});
                }
            }
        }
        ("$all", Value::Array(items)) => {
            for item in items.values() {
                field(path, &item, found);
            }
        }
        ("$elemMatch", Value::Document(inner)) => {
            let mut out = DocBuf::new();
            let is_value = operators_of(operand).is_some();
            out.push_doc(path, |outer| {
                let shown = if is_value {
                    (*inner).to_owned()
                } else {
                    canonical(inner)
                };
                outer.push("$elemMatch", &shown);
            });
            found.push(out);
        }
        ("$regex", Value::Regex { pattern, options }) => {
            found.push(regex(
                path,
                pattern,
                all.get_str("$options").unwrap_or(options),
            ));
        }
        ("$regex", Value::String(pattern)) => {
            found.push(regex(path, pattern, all.get_str("$options").unwrap_or("")));
        }
        ("$options", _) => {}
        (operator, operand) => found.push(on(path, operator, operand)),
    }
}

fn regex(path: &str, pattern: &str, options: &str) -> DocBuf {
    if options.is_empty() {
        doc! {path: {"$regex": pattern}}
    } else {
        doc! {path: {"$regex": pattern, "$options": options}}
    }
}

/// `$in`, its values in order and once; of one value `$eq`.
fn membership(path: &str, items: &Doc) -> DocBuf {
    let mut values: Vec<Value<'_>> = items.values().collect();
    values.sort_by(compare);
    values.dedup_by(|a, b| compare(a, b).is_eq());
    match values.as_slice() {
        [Value::Regex { pattern, options }] => regex(path, pattern, options),
        [only] => on(path, "$eq", only),
        _ => {
            let list: ArrayBuf = values.into_iter().collect();
            doc! {path: {"$in": list}}
        }
    }
}

/// The kinds of conditions in the order in which MongoDB writes them.
const KINDS: [&str; 22] = [
    "$and",
    "$or",
    "$elemMatch",
    "$size",
    "$eq",
    "$lte",
    "$lt",
    "$gt",
    "$gte",
    "$regex",
    "$mod",
    "$exists",
    "$in",
    "$bitsAllSet",
    "$bitsAllClear",
    "$bitsAnySet",
    "$bitsAnyClear",
    "$not",
    "$nor",
    "$type",
    "$where",
    "$expr",
];

fn order(a: &DocBuf, b: &DocBuf) -> Ordering {
    let key = |one: &DocBuf| {
        let (name, value) = one.first().unwrap_or(("", Value::Null));
        let (path, kind) = match value.as_doc() {
            Some(inner) if !name.starts_with('$') => {
                (name.to_owned(), inner.first().map_or("", |(kind, _)| kind))
            }
            _ => (String::new(), name),
        };
        let rank = KINDS.iter().position(|known| *known == kind);
        (rank.unwrap_or(KINDS.len()), path)
    };
    key(a).cmp(&key(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::json;

    #[test]
    fn filters_are_shown_with_one_operator_a_condition() {
        for (filter, expected) in [
            ("{}", "{}"),
            ("{a: 5}", "{a: {$eq: 5}}"),
            ("{a: {x: 1}}", "{a: {$eq: {x: 1}}}"),
            (
                "{a: {$gte: 5, $lt: 9}}",
                "{$and: [{a: {$lt: 9}}, {a: {$gte: 5}}]}",
            ),
            ("{b: 1, a: 2}", "{$and: [{a: {$eq: 2}}, {b: {$eq: 1}}]}"),
            ("{a: {$ne: 3}}", "{a: {$not: {$eq: 3}}}"),
            ("{a: {$in: [3, 1, 3]}}", "{a: {$in: [1, 3]}}"),
            ("{a: {$in: [3]}}", "{a: {$eq: 3}}"),
            ("{a: {$nin: [3, 1]}}", "{a: {$not: {$in: [1, 3]}}}"),
            ("{a: {$exists: false}}", "{a: {$not: {$exists: true}}}"),
            ("{a: {$exists: 1}}", "{a: {$exists: true}}"),
            ("{a: {$not: {$gt: 1}}}", "{a: {$not: {$gt: 1}}}"),
            (
                "{a: {$regex: '^x', $options: 'i'}}",
                "{a: {$regex: '^x', $options: 'i'}}",
            ),
            (
                "{a: {$all: [1, 2]}}",
                "{$and: [{a: {$eq: 1}}, {a: {$eq: 2}}]}",
            ),
            (
                "{a: {$elemMatch: {b: 1}}}",
                "{a: {$elemMatch: {b: {$eq: 1}}}}",
            ),
            ("{a: {$elemMatch: {$gt: 1}}}", "{a: {$elemMatch: {$gt: 1}}}"),
            (
                "{$and: [{a: 1}, {$and: [{b: 2}]}]}",
                "{$and: [{a: {$eq: 1}}, {b: {$eq: 2}}]}",
            ),
            (
                "{$or: [{b: 1}, {a: {$gt: 2}}]}",
                "{$or: [{b: {$eq: 1}}, {a: {$gt: 2}}]}",
            ),
            ("{$or: [{b: 1}]}", "{b: {$eq: 1}}"),
            ("{$nor: [{b: 1}], $comment: 'x'}", "{$nor: [{b: {$eq: 1}}]}"),
        ] {
            assert_eq!(canonical(&json(filter)), json(expected), "{filter}");
        }
    }
}
