//! Wildcard indexes: one field stands for all paths, `{"$**": 1}`, or for all below one, `{"a.$**": 1}`.
//!
//! The field has two parts: a path and the value there. Documents and arrays are descended into; positions in arrays
//! are not part of the path. The values are scalars, empty documents and arrays, and arrays directly inside
//! arrays. So a condition can use the index if every value that meets it has an entry: no document, no array and no
//! missing field may meet it. A condition that only requires a field to exist reads all entries at its path and
//! below it.

use std::sync::Arc;

use frond_bson::{Doc, DocBuf, Value, key};
use frond_error::{Error, ErrorCode, Result};

use super::{Kind, Parsed, Request, check_path, ordinary_field, refuse};
use crate::index::field::{Holds, IndexField};
use crate::index::route::{ExpandedField, ExpandedIndex, Route};
use crate::index::slots::{Part, Slots};
use crate::index::spec::{IndexMethod, IndexSpec, PlanRequest};
use crate::intervals::conditions::{Condition, has_number, narrowness};
use crate::intervals::{Interval, Intervals, Label};
use crate::keyspace::after_prefix;

/// The line in [`super::KINDS`].
pub(super) const KIND: Kind = Kind {
    name: "wildcard",
    options: &["wildcardProjection"],
    own_only: &["wildcardProjection"],
    parse: Some(parse),
};

/// The name of the part that holds paths.
const PATH: &str = "$_path";

#[derive(Debug)]
struct Wildcard {
    /// The position of the path among the parts; the value follows it.
    position: usize,
    /// Which paths are indexed.
    scope: Scope,
    /// Whether there are ordinary fields, too. Then every document has an entry.
    is_compound: bool,
}

/// Which paths are indexed.
#[derive(Debug)]
enum Scope {
    /// These and what is below.
    Only(Vec<String>),
    AllBut(Vec<String>),
}

/// The relation of a scope to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coverage {
    Inside,
    Outside,
    /// Some of the paths below it are inside, others are not.
    Across,
}

/// Whether `path` is `top` or below it.
fn is_below(path: &str, top: &str) -> bool {
    path.strip_prefix(top)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Scope {
    fn coverage(&self, path: &str) -> Coverage {
        let (listed, all, none) = match self {
            Scope::Only(paths) => (paths, Coverage::Inside, Coverage::Outside),
            Scope::AllBut(paths) => (paths, Coverage::Outside, Coverage::Inside),
        };
        if listed.iter().any(|top| is_below(path, top)) {
            all
        } else if listed.iter().any(|one| is_below(one, path)) {
            Coverage::Across
        } else {
            none
        }
    }
}

fn parse(request: &Request<'_>) -> Result<Parsed> {
    let mut fields = Vec::new();
    let mut wildcard: Option<(usize, &str)> = None;
    for (path, direction) in request.key.iter() {
        let root = if path == "$**" {
            ""
        } else if let Some(root) = path.strip_suffix(".$**") {
            root
        } else {
            fields.push(ordinary_field(path, direction)?);
            continue;
        };
        if !root.is_empty() {
            check_path(root)?;
        }
        if wildcard.is_some() {
            return Err(Error::location(
                7246201,
                "Index Key can contain only one wildcard index field",
            ));
        }
        wildcard = Some((fields.len(), root));
        fields.push(IndexField {
            path: PATH.to_owned(),
            direction: key::Direction::Ascending,
            holds: Holds::Computed(0),
        });
        fields.push(IndexField {
            holds: Holds::Computed(0),
            ..ordinary_field("value", direction)?
        });
    }
    let (position, root) = wildcard.ok_or_else(no_wildcard)?;
    let others: Vec<&str> = fields
        .iter()
        .filter(|field| field.holds == Holds::Value)
        .map(|field| field.path.as_str())
        .collect();
    let is_compound = !others.is_empty();
    if let Some(other) = others
        .iter()
        .find(|path| !root.is_empty() && is_below(path, root))
    {
        return Err(Error::location(
            7246204,
            format!(
                "A wildcard index field should not overlap with and index key fields if wildcard \
                 projection is empty, however '{other}' is overlapping with the wildcard index field."
            ),
        ));
    }
    let mut options = DocBuf::new();
    let scope = match request.spec.get("wildcardProjection") {
        None if root.is_empty() && is_compound => {
            return Err(refuse(
                "Compound wildcard indexes on all fields must also specify 'wildcardProjection' \
                 option",
            ));
        }
        None if root.is_empty() => Scope::AllBut(vec!["_id".to_owned()]),
        None => Scope::Only(vec![root.to_owned()]),
        Some(Value::Document(projection)) => {
            if !root.is_empty() {
                return Err(Error::new(
                    ErrorCode::FailedToParse,
                    "The field 'wildcardProjection' is only allowed when 'key' is {\"$**\": ±1} or \
                     {\"$**\": \"columnstore\"}",
                ));
            }
            options.push("wildcardProjection", projection);
            let scope = projected(projection)?;
            if is_compound {
                check_overlap(&scope, &others)?;
            }
            scope
        }
        Some(other) => {
            return Err(Error::new(
                ErrorCode::TypeMismatch,
                format!(
                    "The field 'wildcardProjection' must be a non-empty object, but got {}",
                    other.type_name()
                ),
            ));
        }
    };
    Ok(Parsed {
        fields,
        key: None,
        options,
        method: Some(Arc::new(Wildcard {
            position,
            scope,
            is_compound,
        })),
    })
}

#[cold]
fn no_wildcard() -> Error {
    Error::location(
        7246202,
        "No wildcard index field is specified for the wildcard index",
    )
}

/// Reads a `wildcardProjection`.
fn projected(projection: &Doc) -> Result<Scope> {
    if projection.is_empty() {
        return Err(Error::new(
            ErrorCode::FailedToParse,
            "The 'wildcardProjection' field can't be an empty object",
        ));
    }
    let (mut included, mut excluded) = (Vec::new(), Vec::new());
    collect(projection, "", &mut included, &mut excluded)?;
    for list in [&mut included, &mut excluded] {
        list.sort_unstable();
        let pair = list
            .windows(2)
            .find(|pair| matches!(pair, [a, b] if is_below(b, a)));
        if let Some([first, second]) = pair {
            return Err(Error::location(
                7246200,
                format!(
                    "Fields in Wildcard Projection cannot overlap, however '{first}' is overlapped \
                     with '{second}'"
                ),
            ));
        }
    }
    let of_id = |paths: &[String]| paths.iter().map(String::as_str).eq(["_id"]);
    match (included.as_slice(), excluded.as_slice()) {
        (_, []) => Ok(Scope::Only(included)),
        ([], _) => {
            if !excluded.iter().any(|path| path == "_id") {
                excluded.push("_id".to_owned());
            }
            Ok(Scope::AllBut(excluded))
        }
        (some, _) if of_id(&excluded) => Ok(Scope::Only(some.to_vec())),
        (_, some) if of_id(&included) => Ok(Scope::AllBut(some.to_vec())),
        (included, _) => Err(Error::location(
            31253,
            format!(
                "Failed to parse projection: wildcardProjection :: caused by :: Cannot do inclusion \
                 on field {} in exclusion projection",
                included.first().map_or("", String::as_str)
            ),
        )),
    }
}

fn collect(
    projection: &Doc,
    prefix: &str,
    included: &mut Vec<String>,
    excluded: &mut Vec<String>,
) -> Result<()> {
    for (name, value) in projection.iter() {
        let path = match prefix {
            "" => name.to_owned(),
            _ => format!("{prefix}.{name}"),
        };
        match value {
            Value::Document(inner) if !inner.is_empty() => {
                collect(inner, &path, included, excluded)?;
                continue;
            }
            Value::Bool(_) => {}
            number if number.is_number() => {}
            _ => {
                return Err(Error::bad_value(
                    "Failed to parse projection: wildcardProjection :: caused by :: Bad projection \
                     specification, cannot use expressions in a wildcardProjection",
                ));
            }
        }
        check_path(&path)?;
        if value.truthy() {
            &mut *included
        } else {
            &mut *excluded
        }
        .push(path);
    }
    Ok(())
}

/// The ordinary fields of a compound index may not be among the paths of the wildcard.
fn check_overlap(scope: &Scope, others: &[&str]) -> Result<()> {
    for other in others {
        match scope {
            Scope::Only(_) if scope.coverage(other) == Coverage::Inside => {
                return Err(Error::location(
                    7246208,
                    format!(
                        "Index Key and Wildcard Projection cannot contain overlapping fields, \
                         however '{other}' index field is ovverlapping with the wildcardProjection."
                    ),
                ));
            }
            Scope::AllBut(_) if scope.coverage(other) != Coverage::Outside => {
                return Err(Error::location(
                    7246210,
                    format!(
                        "wildcardProjection paths must exclude all regular index fields, however \
                         '{other}'is not excluded."
                    ),
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Collects the entries of a document.
struct Walk<'w, 'a> {
    scope: &'w Scope,
    out: &'w mut Slots<'a>,
    /// The part that holds the value.
    value_part: usize,
    /// The path so far.
    path: String,
    entries: usize,
}

impl<'a> Walk<'_, 'a> {
    fn document(&mut self, doc: &'a Doc, inside: bool) {
        for (name, value) in doc.iter() {
            let end = self.path.len();
            if end > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            if name.contains('.') {
                // Its path is also that of a field inside of documents, so entries with it do not show which of the
                // two they are of. As with arrays, the document decides.
                self.out.set_multikey(self.value_part);
            }
            let coverage = if inside {
                Coverage::Inside
            } else {
                self.scope.coverage(&self.path)
            };
            if coverage != Coverage::Outside {
                self.value(value, coverage == Coverage::Inside, false);
            }
            self.path.truncate(end);
        }
    }

    /// `inside`: the path and all below it are in the scope.
    fn value(&mut self, value: Value<'a>, inside: bool, in_array: bool) {
        match value {
            Value::Document(inner) if !inner.is_empty() => self.document(inner, inside),
            Value::Array(items) if !in_array => {
                self.out.set_multikey(self.value_part);
                if items.is_empty() {
                    self.push(Value::Undefined, inside);
                }
                for item in items.values() {
                    self.value(item, inside, true);
                }
            }
            scalar => self.push(scalar, inside),
        }
    }

    fn push(&mut self, value: Value<'a>, inside: bool) {
        if inside {
            self.entries += 1;
            let path = Part::Text(self.path.clone());
            self.out.push(0, [path, Part::Value(value)]);
        }
    }
}

fn at(path: &str) -> Interval {
    let value = Value::String(path);
    let mut encoded = Vec::new();
    key::encode(&value, &mut encoded);
    Interval::point(encoded, value.to_owned())
}

fn below(path: &str) -> Interval {
    let (first, end) = (format!("{path}."), format!("{path}/"));
    let mut low = Vec::new();
    key::encode(&Value::String(&first), &mut low);
    // Without its final byte, the encoding of a string is a prefix of all longer strings.
    low.pop();
    let label = |text: &str, inclusive| Label::Value {
        value: Value::String(text).to_owned(),
        inclusive,
    };
    Interval {
        high: after_prefix(&low),
        low,
        low_label: label(&first, true),
        high_label: label(&end, false),
        point: false,
    }
}

/// Whether a non-empty document or an array may lie in these ranges.
fn holds_containers(ranges: &Intervals) -> bool {
    let (low, _) = key::bracket(&Value::Document(Doc::empty()), key::Direction::Ascending);
    let (_, high) = key::bracket(&Value::Array(Doc::empty()), key::Direction::Ascending);
    let containers = Intervals::one(Interval {
        low: vec![low],
        high: Some(vec![high]),
        ..Interval::all()
    });
    let shared = ranges.intersection(&containers);
    let is_empty = |one: &Interval| match one.value() {
        Some(Value::Document(inner) | Value::Array(inner)) => inner.is_empty(),
        _ => false,
    };
    !shared.as_slice().iter().all(is_empty)
}

/// Whether a condition compares with a whole document or array, which the index lacks unless it is empty. An empty array
/// has an entry as an array of no elements, or inside another one.
fn compares_containers(condition: &Condition) -> bool {
    let is_container = |label: &Label| match label {
        Label::Value { value, .. } => match value.as_value() {
            Value::Document(inner) | Value::Array(inner) => !inner.is_empty(),
            _ => false,
        },
        Label::Edge { .. } => false,
    };
    let mut ranges = condition.intervals.as_slice().iter();
    ranges.any(|range| is_container(&range.low_label) || is_container(&range.high_label))
}

impl Wildcard {
    /// The ranges of paths and of values for the conditions on a path. `None` if the index cannot be used for
    /// them.
    fn ranges(
        &self,
        path: &str,
        request: &PlanRequest<'_>,
        is_array: bool,
    ) -> Option<(Intervals, Intervals)> {
        let about = || {
            request
                .conditions
                .list
                .iter()
                .filter(|one| one.path == path)
        };
        if self.scope.coverage(path) != Coverage::Inside || (is_array && has_number(path)) {
            return None;
        }
        let values = if is_array {
            // Different elements may meet different conditions.
            let usable = |one: &&Condition| {
                one.holds_for_elements && !one.matches_missing && !compares_containers(one)
            };
            about()
                .filter(usable)
                .map(|one| &one.intervals)
                .max_by_key(|ranges| (!holds_containers(ranges), narrowness(ranges)))?
                .clone()
        } else {
            if about().all(|one| one.matches_missing || compares_containers(one)) {
                return None;
            }
            request.conditions.ranges_of(path)
        };
        Some(if holds_containers(&values) {
            let paths = Intervals::union_of(vec![at(path), below(path)]);
            (paths, Intervals::all())
        } else {
            (Intervals::one(at(path)), values)
        })
    }

    /// The index, expanded for one path.
    fn expanded(&self, spec: &IndexSpec, path: &str, holds_value: bool) -> ExpandedIndex {
        let mut expanded = ExpandedIndex {
            key: DocBuf::new(),
            fields: Vec::new(),
        };
        for (position, field) in spec.fields.iter().enumerate() {
            let direction = match field.direction {
                key::Direction::Ascending => 1,
                key::Direction::Descending => -1,
            };
            let is_value = position == self.position + 1;
            let shown = if is_value { path } else { &field.path };
            expanded.key.push(shown, direction);
            expanded.fields.push(ExpandedField {
                path: shown.to_owned(),
                direction: field.direction,
                holds_value: if is_value {
                    holds_value
                } else {
                    field.holds == Holds::Value
                },
            });
        }
        expanded
    }
}

impl IndexMethod for Wildcard {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn check(&self, spec: &IndexSpec) -> Result<()> {
        for (option, set) in [("sparse", spec.sparse), ("unique", spec.unique)] {
            if set {
                return Err(refuse(format!(
                    "Index type 'wildcard' does not support the {option} option"
                )));
            }
        }
        if spec.expire_after.is_some() {
            return Err(refuse("Index type 'wildcard' cannot be a TTL index"));
        }
        Ok(())
    }

    fn parts<'a>(&self, doc: &'a Doc, out: &mut Slots<'a>) -> Result<()> {
        let mut walk = Walk {
            scope: &self.scope,
            out,
            value_part: self.position + 1,
            path: String::new(),
            entries: 0,
        };
        walk.document(doc, false);
        if walk.entries == 0 && self.is_compound {
            out.push_missing(0, [Value::MinKey, Value::MinKey].map(Part::Value));
        }
        Ok(())
    }

    fn is_affected(&self, touches: &dyn Fn(&str) -> bool) -> bool {
        match &self.scope {
            Scope::Only(paths) => paths.iter().any(|path| touches(path)),
            Scope::AllBut(_) => true,
        }
    }

    fn routes(&self, request: &PlanRequest<'_>) -> Vec<Route> {
        let spec = &request.index.spec;
        let ordinary = Route::ordinary(spec, request.multikey, request.conditions);
        let is_array = request.multikey.has_array(self.position + 1);
        let mut paths: Vec<&str> = Vec::new();
        for one in &request.conditions.list {
            if !paths.contains(&one.path.as_str()) {
                paths.push(&one.path);
            }
        }
        let mut routes = Vec::new();
        for path in paths {
            let Some((at, values)) = self.ranges(path, request, is_array) else {
                continue;
            };
            let one_path = at.is_point();
            let mut route = ordinary.clone();
            let parts = route.bounds.fields.iter_mut().skip(self.position);
            parts
                .zip([at, values])
                .for_each(|(part, ranges)| *part = ranges);
            let has =
                |other: &str| other == path || spec.value_fields().any(|field| field.path == other);
            route.bounds.may_be_missing = false;
            route.is_exact =
                one_path && request.multikey.is_empty() && request.conditions.are_exact_for(has);
            route.may_repeat =
                !one_path || (!request.multikey.is_empty() && !route.bounds.all_points());
            route.expanded = Some(Arc::new(self.expanded(spec, path, one_path)));
            routes.push(route);
        }
        // A compound index has an entry of every document, so its first fields alone can be used.
        if routes.is_empty() && self.position > 0 {
            routes.push(Route {
                may_repeat: true,
                is_exact: false,
                ..ordinary
            });
        }
        routes
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::index::keys::IndexKeys;
    use frond_bson::{ArrayBuf, doc};

    fn keys(spec: &DocBuf, doc: &Doc) -> (Vec<String>, bool) {
        let spec = IndexSpec::parse(spec).unwrap();
        let mut keys = IndexKeys::default();
        keys.generate(&spec, doc, 5).unwrap();
        let show = |(fields, lost): (&[u8], &[u8])| {
            let entry = crate::index::covered::fields_document(&spec, fields, lost).unwrap();
            let values: Vec<String> = entry.values().map(crate::text::value).collect();
            values.join(" ")
        };
        (
            keys.iter().map(show).collect(),
            keys.multikey().has_array(1),
        )
    }

    #[test]
    fn entries_of_documents() {
        let all = doc! {"key": {"$**": 1}};
        let mut nested = ArrayBuf::new();
        [1, 2].iter().for_each(|c| nested.push(&doc! {"c": *c}));
        let inner: ArrayBuf = [5].into_iter().collect();
        let mut lists = ArrayBuf::new();
        lists.push(&inner);
        let empty = ArrayBuf::new();
        for (spec, doc, expected, multikey) in [
            (
                &all,
                doc! {"_id": 1, "a": 1, "b": {"c": "x"}},
                &["\"a\" 1", "\"b.c\" \"x\""][..],
                false,
            ),
            (
                &all,
                doc! {"a": nested.clone()},
                &["\"a.c\" 1", "\"a.c\" 2"],
                true,
            ),
            (&all, doc! {"a": lists}, &["\"a\" [ 5 ]"], true),
            (
                &all,
                doc! {"a": empty, "b": {}},
                &["\"a\" undefined", "\"b\" {}"],
                true,
            ),
            (&all, doc! {"_id": 1}, &[], false),
            // The entry does not distinguish that path from `{a: {b: {c: 1}}}`.
            (&all, doc! {"a": {"b.c": 1}}, &["\"a.b.c\" 1"], true),
            (
                &doc! {"key": {"a.$**": 1}},
                doc! {"a": {"b": 1}, "ab": 2},
                &["\"a.b\" 1"],
                false,
            ),
            (
                &doc! {"key": {"a.$**": -1}},
                doc! {"a": 7},
                &["\"a\" 7"],
                false,
            ),
            (
                &doc! {"key": {"$**": 1}, "wildcardProjection": {"a": {"b": 1}, "_id": 1}},
                doc! {"_id": 3, "a": {"b": 1, "c": 2}, "d": 4},
                &["\"_id\" 3", "\"a.b\" 1"],
                false,
            ),
            (
                &doc! {"key": {"$**": 1}, "wildcardProjection": {"a.b": 0}},
                doc! {"_id": 3, "a": {"b": 1, "c": 2}, "d": 4},
                &["\"a.c\" 2", "\"d\" 4"],
                false,
            ),
            (
                &doc! {"key": {"x": 1, "a.$**": 1, "y": -1}},
                doc! {"x": 1, "a": {"p": 1, "q": 2}, "y": 3},
                &["1 \"a.p\" 1 3", "1 \"a.q\" 2 3"],
                false,
            ),
            (
                &doc! {"key": {"x": 1, "a.$**": 1}},
                doc! {"x": 1},
                &["1 MinKey MinKey"],
                false,
            ),
        ] {
            let (found, met_array) = keys(spec, &doc);
            assert_eq!(found, expected, "{spec:?} {doc:?}");
            assert_eq!(met_array, multikey, "{spec:?} {doc:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let all = doc! {"$**": 1};
        for (wrong, code) in [
            (doc! {"key": {"a.$**": 1, "b.$**": 1}}, 7246201),
            (doc! {"key": {"a.$**": 1, "a.b": 1}}, 7246204),
            (doc! {"key": {"$**": 1, "a": 1}}, 67),
            (doc! {"key": &all, "unique": true}, 67),
            (doc! {"key": &all, "sparse": true}, 67),
            (doc! {"key": &all, "wildcardProjection": {}}, 9),
            (doc! {"key": &all, "wildcardProjection": 1}, 14),
            (
                doc! {"key": &all, "wildcardProjection": {"a": 1, "b": 0}},
                31253,
            ),
            (
                doc! {"key": &all, "wildcardProjection": {"a": 1, "a.b": 1}},
                7246200,
            ),
            (
                doc! {"key": &all, "wildcardProjection": {"a": {"$add": 1}}},
                67,
            ),
            (
                doc! {"key": {"a.$**": 1}, "wildcardProjection": {"a": 1}},
                9,
            ),
            (
                doc! {"key": {"$**": 1, "a": 1}, "wildcardProjection": {"a": 1}},
                7246208,
            ),
            (
                doc! {"key": {"$**": 1, "a": 1}, "wildcardProjection": {"b": 0}},
                7246210,
            ),
        ] {
            let error = IndexSpec::parse(&wrong).unwrap_err();
            assert_eq!(error.code().code(), code, "{wrong:?}: {error}");
        }
        let listed = doc! {
            "v": 2, "key": {"$**": 1, "a": 1}, "name": "$**_1_a_1", "wildcardProjection": {"a": 0},
        };
        assert_eq!(IndexSpec::parse(&listed).unwrap().doc, listed);
    }
}
