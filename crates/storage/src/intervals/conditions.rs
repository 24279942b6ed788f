//! The conditions of a filter as intervals of values, path by path.
//!
//! The intervals hold every document that can pass, often more: whoever reads through an index applies
//! the filter again. They are those of an index with a certain collator. A condition that compares strings by
//! another one bounds nothing there.

use std::sync::Arc;

use frond_bson::{Collator, Value, key};
use frond_query::matcher::{Comparison, ElemMatch, Expr, InSet, Leaf, Op, Pattern, Relation, Text};
use frond_query::text::TextMatch;

use crate::intervals::{Interval, Intervals, Label};
use crate::keyspace::after_prefix;

/// One condition of the top-level conjunction of a filter, as ranges of one path.
#[derive(Clone, Debug)]
pub struct Condition {
    /// The path that it is about.
    pub path: String,
    /// Ranges that hold every value that can meet it.
    pub intervals: Intervals,
    /// Whether a document without the field can meet it.
    pub matches_missing: bool,
    /// Whether a single element of an array can meet it, unlike a negation, which concerns all elements.
    pub holds_for_elements: bool,
    /// Whether, in an index without arrays, the ranges hold nothing that does not meet it.
    pub is_exact: bool,
    /// The `$elemMatch` conditions around it, outermost first.
    pub elements: Vec<Element>,
}

/// An `$elemMatch`: all conditions inside are met by one element of the array at its path, and so of each array on
/// the way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Its number within the filter.
    number: usize,
    /// The number of components of its path.
    depth: usize,
}

impl Condition {
    /// The number of leading components of the two paths whose array elements are the same for both conditions.
    pub fn shared_depth(&self, other: &Condition) -> usize {
        let pairs = self.elements.iter().zip(&other.elements);
        let shared = pairs.take_while(|(one, other)| one == other);
        shared.last().map_or(0, |(element, _)| element.depth)
    }
}

/// The conditions of a filter's top-level conjunction.
#[derive(Debug, Default)]
pub struct Conditions {
    /// Those that bound a path.
    pub list: Vec<Condition>,
    /// Whether nothing can pass.
    pub impossible: bool,
    /// Whether the filter has conditions that are not in the list.
    pub says_more: bool,
    /// `$text`.
    pub text: Option<Arc<TextMatch>>,
    /// `$elemMatch` conditions seen so far.
    elements: usize,
    /// The collation of the indexes.
    collator: Collator,
}

/// Whether a condition by the collator `own` finds its value in an index by `collator`.
fn fits(value: &Value<'_>, own: &Collator, collator: &Collator) -> bool {
    own == collator || !(own.affects(value) || collator.affects(value))
}

fn point(value: Value<'_>, collator: &Collator) -> Interval {
    let mut encoded = Vec::new();
    collator.encode(&value, &mut encoded);
    Interval::point(encoded, value.to_owned())
}

/// The values that null matches in a filter: null and missing, both of which an index stores as null. As of MongoDB
/// 8.0 it does not match undefined.
fn nulls() -> Intervals {
    Intervals::one(point(Value::Null, Collator::BINARY))
}

/// Values equal to `value`, as an index holds them.
fn equal(value: Value<'_>, collator: &Collator) -> Intervals {
    match value {
        Value::Array(items) => {
            // An array is indexed by its elements; inside another array, as a whole.
            let first = items.values().next().unwrap_or(Value::Undefined);
            Intervals::union_of(vec![point(value, collator), point(first, collator)])
        }
        _ => Intervals::one(point(value, collator)),
    }
}

/// The end of the values of one type class.
fn class_edge(value: &Value<'_>, upper: bool) -> Label {
    let (low, high) = match value {
        number if number.is_number() => (("-inf.0", true), ("inf.0", true)),
        text if text.string_bytes().is_some() => (("\"\"", true), ("{}", false)),
        Value::Document(_) => (("{}", true), ("[]", false)),
        Value::Binary { .. } => (
            ("BinData(0, )", true),
            ("ObjectId('000000000000000000000000')", false),
        ),
        Value::ObjectId(_) => (
            ("ObjectId('000000000000000000000000')", true),
            ("ObjectId('ffffffffffffffffffffffff')", true),
        ),
        Value::Bool(_) => (("false", true), ("true", true)),
        Value::DateTime(_) => (
            ("new Date(-9223372036854775808)", true),
            ("new Date(9223372036854775807)", true),
        ),
        Value::Timestamp(_) => (
            ("Timestamp(0, 0)", true),
            ("Timestamp(4294967295, 4294967295)", true),
        ),
        _ => (("first of its type", true), ("last of its type", true)),
    };
    let (text, inclusive) = if upper { high } else { low };
    Label::Edge { text, inclusive }
}

/// Values of the operand's type class that have this relation to it.
fn range(relation: Relation, value: Value<'_>, collator: &Collator) -> Intervals {
    match value {
        Value::Null | Value::Undefined if relation.includes_equal() => return nulls(),
        Value::Null | Value::Undefined => return Intervals::none(),
        // MinKey and MaxKey compare with every type. Arrays are indexed by their elements.
        Value::MinKey | Value::MaxKey | Value::Array(_) => return Intervals::all(),
        _ if value.is_nan() && relation.includes_equal() => return equal(value, collator),
        _ if value.is_nan() => return Intervals::none(),
        _ => {}
    }
    let mut encoded = Vec::new();
    collator.encode(&value, &mut encoded);
    let (low, high) = key::bracket(&value, key::Direction::Ascending);
    let end = Label::Value {
        value: value.to_owned(),
        inclusive: relation.includes_equal(),
    };
    let above = matches!(relation, Relation::Gt | Relation::Gte);
    let beyond = if above != relation.includes_equal() {
        // `$gt` begins behind the value, `$lte` ends behind it.
        after_prefix(&encoded)
    } else {
        Some(encoded)
    };
    Intervals::one(if above {
        Interval {
            low: beyond.unwrap_or_default(),
            high: Some(vec![high]),
            low_label: end,
            high_label: class_edge(&value, true),
            point: false,
        }
    } else {
        Interval {
            low: vec![low],
            high: beyond,
            low_label: class_edge(&value, false),
            high_label: end,
            point: false,
        }
    })
}

/// Values of all types that compare so with a value.
fn beyond(relation: Relation, value: Value<'_>, collator: &Collator) -> Intervals {
    let mut encoded = Vec::new();
    collator.encode(&value, &mut encoded);
    let end = Label::Value {
        value: value.to_owned(),
        inclusive: relation.includes_equal(),
    };
    let above = matches!(relation, Relation::Gt | Relation::Gte);
    let cut = if above != relation.includes_equal() {
        after_prefix(&encoded)
    } else {
        Some(encoded)
    };
    Intervals::one(if above {
        Interval {
            low: cut.unwrap_or_default(),
            low_label: end,
            ..Interval::all()
        }
    } else {
        Interval {
            high: cut,
            high_label: end,
            ..Interval::all()
        }
    })
}

/// Strings that can match a regular expression, and the expression itself as a value. The sort keys of a collation
/// do not preserve prefixes.
fn matching(pattern: &Pattern, collator: &Collator) -> Intervals {
    let itself = point(
        Value::Regex {
            pattern: pattern.source(),
            options: pattern.options(),
        },
        collator,
    );
    let (low, high) = key::bracket(&Value::String(""), key::Direction::Ascending);
    let strings = match pattern.prefix().filter(|_| collator.is_binary()) {
        Some(prefix) => {
            let mut encoded = Vec::new();
            key::encode(&Value::String(&prefix.text), &mut encoded);
            // Without its final byte, the encoding of a string is a prefix of all longer strings.
            encoded.pop();
            // The least string after all with this prefix, for `explain`.
            let next = after_prefix(prefix.text.as_bytes())
                .and_then(|bytes| String::from_utf8(bytes).ok());
            Interval {
                high: after_prefix(&encoded),
                low: encoded,
                low_label: Label::Value {
                    value: prefix.text.as_str().into(),
                    inclusive: true,
                },
                high_label: match next {
                    Some(next) => Label::Value {
                        value: next.into(),
                        inclusive: false,
                    },
                    None => class_edge(&Value::String(""), true),
                },
                point: false,
            }
        }
        None => Interval {
            low: vec![low],
            high: Some(vec![high]),
            low_label: class_edge(&Value::String(""), false),
            high_label: class_edge(&Value::String(""), true),
            point: false,
        },
    };
    Intervals::union_of(vec![strings, itself])
}

fn in_set(set: &InSet, collator: &Collator) -> Intervals {
    let mut values = set.values().iter();
    if !values.all(|value| fits(&value.as_value(), set.collator(), collator)) {
        return Intervals::all();
    }
    let values = (set.values().iter()).map(|value| equal(value.as_value(), collator));
    let patterns = (set.patterns().iter()).map(|pattern| matching(pattern, collator));
    let parts = values.chain(patterns);
    Intervals::union_of(parts.flat_map(|part| part.as_slice().to_vec()).collect())
}

/// The ranges of one operator in an index by `collator`, and whether a missing field can meet it. `None`:
/// it bounds nothing.
pub fn of_op(op: &Op, collator: &Collator) -> Option<(Intervals, bool)> {
    match op {
        Op::Compare(comparison) => Some(of_comparison(comparison, collator)),
        Op::In(set) => Some((in_set(set, collator), set.has_null())),
        Op::Regex(pattern) => Some((matching(pattern, collator), false)),
        // Null stands for a missing field, too, so an existing field can be anywhere.
        Op::Exists => Some((Intervals::all(), false)),
        Op::Type(_) | Op::Size(_) | Op::Mod(_) | Op::Bits(_) => Some((Intervals::all(), false)),
        // Only a geospatial index narrows these.
        Op::Geo(_) | Op::Near(_) => Some((Intervals::all(), false)),
        Op::ElemMatch(condition) => match &**condition {
            ElemMatch::Value(conditions) => Some((of_element(conditions, collator), false)),
            ElemMatch::Document(_) => Some((Intervals::all(), false)),
        },
    }
}

fn of_comparison(comparison: &Comparison, collator: &Collator) -> (Intervals, bool) {
    let value = comparison.value();
    if !fits(&value, comparison.collator(), collator) {
        return (Intervals::all(), false);
    }
    let relation = comparison.relation();
    match relation {
        Relation::Eq => (equal(value, collator), value.is_nullish()),
        _ => {
            let missing = value.is_nullish() || matches!(value, Value::MinKey | Value::MaxKey);
            (range(relation, value, collator), missing)
        }
    }
}

/// Ranges for one element of an array that meets all of `conditions`, whose leaves have no path.
fn of_element(conditions: &Expr, collator: &Collator) -> Intervals {
    match conditions {
        Expr::And(all) => all
            .iter()
            .map(|one| of_element(one, collator))
            .fold(Intervals::all(), |a, b| a.intersection(&b)),
        Expr::Or(any) => any
            .iter()
            .map(|one| of_element(one, collator))
            .fold(Intervals::none(), Intervals::union),
        Expr::Not(inner) => match &**inner {
            Expr::Leaf(leaf) => complement(&leaf.op, collator).unwrap_or_else(Intervals::all),
            _ => Intervals::all(),
        },
        // An array directly inside of an array has one entry: itself.
        Expr::Leaf(leaf) if matches!(leaf.op, Op::ElemMatch(_)) => Intervals::all(),
        Expr::Leaf(leaf) => {
            of_op(&leaf.op, collator).map_or_else(Intervals::all, |(ranges, _)| ranges)
        }
        Expr::False => Intervals::none(),
        _ => Intervals::all(),
    }
}

/// Whether the ranges of a value hold exactly what matches it: it is no null, array, NaN, MinKey or MaxKey.
pub fn is_plain(value: Value<'_>) -> bool {
    !value.is_nullish()
        && !value.is_nan()
        && !value.is_regex()
        && !matches!(value, Value::Array(_) | Value::MinKey | Value::MaxKey)
}

/// Whether the ranges of an operator in an index by `collator` hold exactly the values that match, arrays
/// aside.
pub fn is_exact(op: &Op, collator: &Collator) -> bool {
    match op {
        Op::Compare(comparison) => {
            let value = comparison.value();
            is_plain(value) && fits(&value, comparison.collator(), collator)
        }
        Op::In(set) => {
            let exact =
                |value: Value<'_>| is_plain(value) && fits(&value, set.collator(), collator);
            set.patterns().is_empty() && set.values().iter().all(|value| exact(value.as_value()))
        }
        _ => false,
    }
}

/// The ranges where a comparison does not hold. Only of values that an index stores as they are.
fn complement(op: &Op, collator: &Collator) -> Option<Intervals> {
    let plain = |value: &Value<'_>, own: &Collator| {
        !matches!(value, Value::Array(_)) && fits(value, own, collator)
    };
    match op {
        Op::Compare(comparison) if comparison.relation() == Relation::Eq => {
            let value = comparison.value();
            plain(&value, comparison.collator()).then(|| equal(value, collator).complement())
        }
        Op::Compare(comparison) => {
            let value = comparison.value();
            let is_exact = is_plain(value) && fits(&value, comparison.collator(), collator);
            is_exact.then(|| range(comparison.relation(), value, collator).complement())
        }
        Op::In(set) if set.patterns().is_empty() => {
            let mut values = set.values().iter();
            let all_plain = values.all(|value| plain(&value.as_value(), set.collator()));
            all_plain.then(|| in_set(set, collator).complement())
        }
        _ => None,
    }
}

impl Conditions {
    /// Collects the conditions that every document must meet, as ranges of indexes by `collator`.
    pub fn from_filter(filter: &Expr, collator: &Collator) -> Conditions {
        let mut conditions = Conditions {
            collator: collator.clone(),
            ..Conditions::default()
        };
        conditions.add(filter, "", &[]);
        conditions
    }

    /// The conditions of a filter, and then those of the filters around it.
    pub fn of_all(filters: &[&Expr], collator: &Collator) -> Conditions {
        let mut filters = filters
            .iter()
            .map(|filter| Conditions::from_filter(filter, collator));
        let mut all = filters.next().unwrap_or_default();
        filters.for_each(|outer| all.add_outer(&outer));
        all
    }

    /// Adds the conditions of the filter around this one.
    pub fn add_outer(&mut self, outer: &Conditions) {
        // Each filter numbers its `$elemMatch` conditions from 1.
        let numbered = self.elements;
        self.list.extend(outer.list.iter().cloned().map(|mut one| {
            let elements = one.elements.iter_mut();
            elements.for_each(|element| element.number += numbered);
            one
        }));
        self.elements += outer.elements;
        self.says_more = true;
    }

    /// Whether ranges of these paths, in an index without arrays, hold nothing that does not pass.
    pub fn are_exact_for(&self, has: impl Fn(&str) -> bool) -> bool {
        let mut list = self.list.iter();
        !self.impossible && !self.says_more && list.all(|one| one.is_exact && has(&one.path))
    }

    /// The conditions on one path.
    pub fn about<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Condition> {
        self.list.iter().filter(move |one| one.path == path)
    }

    /// The intersection of the conditions on one path, if it has no arrays.
    pub fn ranges_of(&self, path: &str) -> Intervals {
        self.about(path).fold(Intervals::all(), |ranges, one| {
            ranges.intersection(&one.intervals)
        })
    }

    fn add(&mut self, expr: &Expr, prefix: &str, elements: &[Element]) {
        match expr {
            Expr::And(children) => {
                for child in children {
                    self.add(child, prefix, elements);
                }
            }
            Expr::Leaf(leaf) => self.add_leaf(leaf, prefix, elements),
            Expr::Not(inner) => self.add_negation(inner, prefix, elements),
            Expr::Nor(children) => {
                for child in children {
                    self.add_negation(child, prefix, elements);
                }
            }
            Expr::False => self.impossible = true,
            Expr::Computed(computed) => {
                computed.comparisons(|path, relation, value, collator| {
                    self.add_computed(path, relation, value.as_value(), collator);
                });
                self.says_more = true;
            }
            Expr::Text(text) => {
                self.says_more = true;
                if let Text::Bound(bound) = text {
                    self.text = Some(bound.clone());
                }
            }
            Expr::Or(_) | Expr::Schema(_) | Expr::Sample(_) => {
                self.says_more = true;
            }
        }
    }

    /// Adds that a condition does not hold.
    fn add_negation(&mut self, negated: &Expr, prefix: &str, elements: &[Element]) {
        self.says_more = true;
        let Expr::Leaf(leaf) = negated else { return };
        let path = join(prefix, leaf.path.as_str());
        if let Some(intervals) = complement(&leaf.op, &self.collator) {
            self.list.push(Condition {
                path,
                // `{$ne: null}` is the only one that a missing field cannot meet.
                matches_missing: !of_op(&leaf.op, &self.collator)
                    .is_some_and(|(_, missing)| missing),
                intervals,
                holds_for_elements: false,
                is_exact: false,
                elements: elements.to_vec(),
            });
        } else if matches!(leaf.op, Op::Exists) {
            self.list.push(Condition {
                path,
                intervals: nulls(),
                matches_missing: true,
                holds_for_elements: true,
                is_exact: false,
                elements: elements.to_vec(),
            });
        }
    }

    /// Adds a comparison of `$expr`. There values of all types compare, and a missing field is less than null.
    fn add_computed(
        &mut self,
        path: String,
        relation: Relation,
        value: Value<'_>,
        collator: &Collator,
    ) {
        if !fits(&value, collator, &self.collator) {
            return;
        }
        let is_less = matches!(relation, Relation::Lt | Relation::Lte);
        // An index has null for a missing field.
        let matches_missing = is_less || value.is_nullish() || matches!(value, Value::MinKey);
        let mut intervals = match relation {
            // An array never equals the constant, so this holds for the elements of arrays, too.
            Relation::Eq => equal(value, &self.collator),
            // An array compares as a whole, and its elements may lie anywhere.
            _ if has_number(&path) => return,
            _ => beyond(relation, value, &self.collator),
        };
        if matches_missing {
            intervals = intervals.union(nulls());
        }
        self.list.push(Condition {
            path,
            intervals,
            matches_missing,
            holds_for_elements: relation == Relation::Eq,
            is_exact: false,
            elements: Vec::new(),
        });
    }

    fn add_leaf(&mut self, leaf: &Leaf, prefix: &str, elements: &[Element]) {
        let path = join(prefix, leaf.path.as_str());
        if let Op::ElemMatch(condition) = &leaf.op
            && let ElemMatch::Document(filter) = &**condition
        {
            self.says_more = true;
            self.elements += 1;
            let element = Element {
                number: self.elements,
                depth: depth(&path),
            };
            self.add(filter, &path, &[elements, &[element]].concat());
            return;
        }
        if let Some((intervals, matches_missing)) = of_op(&leaf.op, &self.collator) {
            self.list.push(Condition {
                path,
                intervals,
                matches_missing,
                holds_for_elements: true,
                is_exact: is_exact(&leaf.op, &self.collator),
                elements: elements.to_vec(),
            });
        }
    }
}

fn join(prefix: &str, path: &str) -> String {
    if prefix.is_empty() {
        path.to_owned()
    } else {
        format!("{prefix}.{path}")
    }
}

/// Whether a path has a component that may be the number of an array element.
pub fn has_number(path: &str) -> bool {
    path.split('.')
        .any(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The number of components of a path.
fn depth(path: &str) -> usize {
    path.split('.').count()
}

/// An estimate of how few entries a set of ranges holds; greater is narrower.
pub fn narrowness(intervals: &Intervals) -> u32 {
    if intervals.is_none() {
        6
    } else if intervals.is_point() {
        5
    } else if intervals.all_points() {
        4
    } else {
        let closed = |one: &Interval| {
            let value = |label: &Label| matches!(label, Label::Value { .. });
            value(&one.low_label) && value(&one.high_label)
        };
        match intervals.as_slice() {
            [one] if one.is_all() => 0,
            parts if parts.iter().all(closed) => 3,
            [_] => 2,
            _ => 1,
        }
    }
}
