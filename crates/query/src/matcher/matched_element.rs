//! The array element that the positional operator `$` stands for.
//!
//! MongoDB evaluates conditions in an order of its own: by their kind, then by their path. The last one that an array
//! element satisfies names the element. So which element it is depends neither on how a filter is written nor on the
//! plan that finds the document.

use std::ops::ControlFlow;

use frond_bson::{Doc, Value};

use super::state::State;
use super::{BitTestKind, ElemMatch, Expr, InSet, Leaf, Op, Relation};
use crate::paths::{Path, walk};
use frond_error::Result;

/// The conditions of a filter that can name an array element.
#[derive(Clone, Debug)]
pub struct MatchedElement {
    /// In the order in which MongoDB evaluates them.
    conditions: Vec<Condition>,
}

/// A condition on a path.
#[derive(Clone, Debug)]
struct Condition {
    path: Path,
    /// One of them has to hold: a disjunction of equalities on one path is an `$in`.
    any_of: Vec<Op>,
}

impl MatchedElement {
    pub(super) fn from_filter(filter: &Expr) -> MatchedElement {
        let mut found = Vec::new();
        collect(filter, &mut found);
        // Stable: equal conditions stay in the order in which they are written.
        found.sort_by_cached_key(Condition::rank);
        MatchedElement { conditions: found }
    }

    /// The index of the element in `doc`, which passes the filter. `None` if no condition was met by an element of an array.
    ///
    /// # Errors
    /// As [`super::Filter::try_matches`].
    pub fn index(&self, doc: &Doc) -> Result<Option<usize>> {
        let mut state = State::default();
        let mut last_first = self.conditions.iter().rev();
        let found = last_first.find_map(|condition| condition.index(doc, &mut state));
        match state.error {
            Some(error) => Err(*error),
            None => Ok(found),
        }
    }
}

impl Condition {
    fn from_leaf(leaf: &Leaf) -> Condition {
        Condition {
            path: leaf.path.clone(),
            any_of: vec![leaf.op.clone()],
        }
    }

    fn rank(&self) -> Rank {
        let path = self.path.as_str();
        match self.any_of.as_slice() {
            [op] => Rank::of_op(path, op),
            several => Rank::new(membership_kind(several), path, Vec::new()),
        }
    }

    /// The index of the first element that satisfies the condition. Of nested arrays it is that of the outermost.
    fn index(&self, doc: &Doc, state: &mut State) -> Option<usize> {
        let arrays = self.any_of.first()?.leaf_arrays();
        let mut found = None;
        let _ = walk(doc, &self.path, arrays, &mut |value, index| {
            let holds = self.any_of.iter().any(|op| match (op, value) {
                (Op::ElemMatch(condition), Some(Value::Array(items))) => {
                    found = condition.first_match(items, state);
                    found.is_some()
                }
                (op, value) => op.matches(value, state),
            });
            if !holds {
                return ControlFlow::Continue(());
            }
            found = index.or(found);
            ControlFlow::Break(())
        });
        found
    }
}

/// Adds the conditions of a conjunction. Those that are negated or alternatives name no element.
fn collect(expr: &Expr, found: &mut Vec<Condition>) {
    match expr {
        Expr::And(all) => all.iter().for_each(|one| collect(one, found)),
        Expr::Or(branches) => {
            let mut possible = Vec::new();
            alternatives(branches, &mut possible);
            match possible.as_slice() {
                [only] => collect(only, found),
                several => found.extend(membership(several)),
            }
        }
        Expr::Leaf(leaf) => found.push(Condition::from_leaf(leaf)),
        Expr::Nor(_)
        | Expr::Not(_)
        | Expr::Computed(_)
        | Expr::Schema(_)
        | Expr::Text(_)
        | Expr::Sample(_)
        | Expr::False => {}
    }
}

/// The branches of a disjunction that can hold, with those of disjunctions inside.
fn alternatives<'e>(branches: &'e [Expr], found: &mut Vec<&'e Expr>) {
    for branch in branches {
        match branch {
            Expr::Or(inner) => {
                let mut possible = Vec::new();
                alternatives(inner, &mut possible);
                if possible.len() > 1 && membership(&possible).is_some() {
                    // An `$in` is not part of a larger one.
                    found.push(branch)
                } else {
                    found.append(&mut possible)
                }
            }
            Expr::False => {}
            possible => found.push(possible),
        }
    }
}

/// The `$in` that MongoDB makes of equalities and patterns on one path.
fn membership(branches: &[&Expr]) -> Option<Condition> {
    let mut made: Option<Condition> = None;
    for branch in branches {
        let Expr::Leaf(leaf) = branch else {
            return None;
        };
        if !is_equality(&leaf.op) {
            return None;
        }
        match &mut made {
            None => made = Some(Condition::from_leaf(leaf)),
            Some(one) if one.path == leaf.path => one.any_of.push(leaf.op.clone()),
            Some(_) => return None,
        }
    }
    made
}

/// Whether an `$in` can list what the condition looks for.
fn is_equality(op: &Op) -> bool {
    match op {
        // An `$in` would take it for a pattern.
        Op::Compare(comparison) if comparison.value().is_regex() => false,
        Op::Compare(comparison) => comparison.relation() == Relation::Eq,
        Op::In(set) => matches!(kind_of_set(set), Kind::Eq | Kind::Regex),
        Op::Regex(_) => true,
        _ => false,
    }
}

/// The kinds of conditions in MongoDB's order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    And,
    Or,
    ElemMatchObject,
    ElemMatchValue,
    Size,
    Eq,
    Lte,
    Lt,
    Gt,
    Gte,
    Regex,
    Mod,
    Exists,
    In,
    BitsAllSet,
    BitsAllClear,
    BitsAnySet,
    BitsAnyClear,
    Not,
    Nor,
    Type,
    Geo,
    Expression,
    AlwaysFalse,
    GeoNear,
    Text,
}

/// The place of a condition among others: by kind, by path, and then by the conditions inside.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    kind: Kind,
    path: String,
    inside: Vec<Rank>,
}

impl Rank {
    fn new(kind: Kind, path: &str, mut inside: Vec<Rank>) -> Rank {
        inside.sort();
        Rank {
            kind,
            path: path.to_owned(),
            inside,
        }
    }

    fn from_expr(expr: &Expr) -> Rank {
        let all = |kind, children: &[Expr]| {
            let inside = children.iter().map(Rank::from_expr).collect();
            Rank::new(kind, "", inside)
        };
        match expr {
            Expr::And(children) => all(Kind::And, children),
            Expr::Or(children) => {
                let mut possible = Vec::new();
                alternatives(children, &mut possible);
                match (possible.as_slice(), membership(&possible)) {
                    ([only], _) => Rank::from_expr(only),
                    (_, Some(set)) => set.rank(),
                    (several, None) => {
                        let inside = several.iter().map(|one| Rank::from_expr(one)).collect();
                        Rank::new(Kind::Or, "", inside)
                    }
                }
            }
            Expr::Nor(children) if children.len() == 1 => all(Kind::Not, children),
            Expr::Nor(children) => all(Kind::Nor, children),
            Expr::Not(child) => Rank::new(Kind::Not, "", vec![Rank::from_expr(child)]),
            Expr::Leaf(leaf) => Rank::of_op(leaf.path.as_str(), &leaf.op),
            Expr::Computed(_) | Expr::Schema(_) | Expr::Sample(_) => {
                Rank::new(Kind::Expression, "", Vec::new())
            }
            Expr::Text(_) => Rank::new(Kind::Text, "_fts", Vec::new()),
            Expr::False => Rank::new(Kind::AlwaysFalse, "", Vec::new()),
        }
    }

    fn of_op(path: &str, op: &Op) -> Rank {
        let (kind, inside) = match op {
            Op::Compare(comparison) => (
                match comparison.relation() {
                    Relation::Eq => Kind::Eq,
                    Relation::Lt => Kind::Lt,
                    Relation::Lte => Kind::Lte,
                    Relation::Gt => Kind::Gt,
                    Relation::Gte => Kind::Gte,
                },
                Vec::new(),
            ),
            Op::In(set) => (kind_of_set(set), Vec::new()),
            Op::Exists => (Kind::Exists, Vec::new()),
            Op::Type(_) => (Kind::Type, Vec::new()),
            Op::Size(_) => (Kind::Size, Vec::new()),
            Op::Mod(_) => (Kind::Mod, Vec::new()),
            Op::Regex(_) => (Kind::Regex, Vec::new()),
            Op::Bits(test) => (
                match test.kind() {
                    BitTestKind::AllSet => Kind::BitsAllSet,
                    BitTestKind::AllClear => Kind::BitsAllClear,
                    BitTestKind::AnySet => Kind::BitsAnySet,
                    BitTestKind::AnyClear => Kind::BitsAnyClear,
                },
                Vec::new(),
            ),
            Op::ElemMatch(condition) => match &**condition {
                ElemMatch::Document(inner) => (Kind::ElemMatchObject, vec![Rank::from_expr(inner)]),
                ElemMatch::Value(Expr::And(all)) => (
                    Kind::ElemMatchValue,
                    all.iter().map(Rank::from_expr).collect(),
                ),
                ElemMatch::Value(only) => (Kind::ElemMatchValue, vec![Rank::from_expr(only)]),
            },
            Op::Geo(_) => (Kind::Geo, Vec::new()),
            Op::Near(_) => (Kind::GeoNear, Vec::new()),
        };
        Rank::new(kind, path, inside)
    }
}

/// An `$in` of one value is an equality, and of one pattern that pattern.
fn kind_of_set(set: &InSet) -> Kind {
    match (set.values(), set.patterns()) {
        ([_], []) => Kind::Eq,
        ([], [_]) => Kind::Regex,
        ([], []) => Kind::AlwaysFalse,
        _ => Kind::In,
    }
}

/// The kind of an `$in` that is made of equalities: repeated values count once.
fn membership_kind(ops: &[Op]) -> Kind {
    let value_of = |op: &Op| match op {
        Op::Compare(comparison) => {
            Some((comparison.value().to_owned(), comparison.collator().clone()))
        }
        Op::In(set) => Some((set.values().first()?.clone(), set.collator().clone())),
        _ => None,
    };
    let Some((first, collator)) = ops.first().and_then(value_of) else {
        return Kind::In;
    };
    let is_repeated = ops.iter().all(|op| {
        value_of(op).is_some_and(|(value, _)| {
            collator
                .compare(&value.as_value(), &first.as_value())
                .is_eq()
        })
    });
    if is_repeated { Kind::Eq } else { Kind::In }
}

#[cfg(test)]
mod tests {
    use super::super::Filter;
    use crate::testing::json;

    fn index(filter: &str, document: &str) -> Option<usize> {
        let filter = Filter::parse(&json(filter)).unwrap();
        let document = json(document);
        assert!(filter.matches(&document), "{filter:?} on {document:?}");
        filter.matched_element().index(&document).unwrap()
    }

    #[test]
    fn one_condition_names_the_first_element_that_satisfies_it() {
        for (filter, document, expected) in [
            ("{a: 5}", "{a: [4, 5]}", Some(1)),
            ("{a: 5}", "{a: 5}", None),
            ("{a: [4, 5]}", "{a: [4, 5]}", None),
            ("{'a.b': 5}", "{a: [{b: 4}, {b: [1, 5]}]}", Some(1)),
            ("{'a.b': 5}", "{a: {b: [1, 5]}}", Some(1)),
            ("{'a.1': 5}", "{a: [4, 5]}", None),
            ("{'a.1.b': 5}", "{a: [4, {b: [1, 5]}]}", Some(1)),
            ("{a: {$elemMatch: {$gt: 4}}}", "{a: [4, 5]}", Some(1)),
            (
                "{'a.b': {$elemMatch: {$gt: 4}}}",
                "{a: [{b: [9]}]}",
                Some(0),
            ),
            (
                "{'a.b': {$elemMatch: {$gt: 4}}}",
                "{a: {b: [1, 2, 9]}}",
                Some(2),
            ),
            (
                "{a: {$elemMatch: {$elemMatch: {$eq: 3}}}}",
                "{a: [[1, 2], [3, 4]]}",
                Some(1),
            ),
            (
                "{a: {$elemMatch: {p: {$elemMatch: {$eq: 6}}}}}",
                "{a: [{p: [1]}, {p: [5, 6]}]}",
                Some(1),
            ),
            ("{a: {$in: [2, 3]}}", "{a: [1, 2, 3]}", Some(1)),
            ("{a: {$in: [/c/, 'b']}}", "{a: ['a', 'b', 'c']}", Some(1)),
            ("{a: {$exists: true}}", "{a: [1, 2]}", Some(0)),
            ("{a: {$exists: true}}", "{a: []}", None),
            ("{a: {$type: 'string'}}", "{a: [1, 'x']}", Some(1)),
            ("{a: {$mod: [2, 0]}}", "{a: [1, 2]}", Some(1)),
            ("{a: {$bitsAllSet: [1]}}", "{a: [1, 2]}", Some(1)),
            ("{a: /b/}", "{a: ['a', 'b']}", Some(1)),
            ("{a: {$size: 2}}", "{a: [4, 5]}", None),
            ("{a: {$not: {$gt: 5}}}", "{a: [4, 5]}", None),
            ("{a: {$ne: 6}}", "{a: [4, 5]}", None),
            ("{a: {$nin: [6]}}", "{a: [4, 5]}", None),
            ("{$nor: [{a: 6}]}", "{a: [4, 5]}", None),
        ] {
            assert_eq!(index(filter, document), expected, "{filter} on {document}");
        }
    }

    #[test]
    fn the_last_condition_in_the_order_of_mongodb_names_the_element() {
        let numbers = "{_id: 0, arr: [1, 2, 3, 4, 5], b: [3, 1]}";
        for (filter, expected) in [
            // However they are written: $lt before $gt.
            ("{arr: {$gt: 1, $lt: 5}}", 1),
            ("{arr: {$lt: 5, $gt: 1}}", 1),
            ("{$and: [{arr: {$gt: 1}}, {arr: {$lt: 5}}]}", 1),
            // $lte, $lt, $gt, $gte.
            ("{arr: {$gte: 3, $gt: 1, $lt: 5, $lte: 4}}", 2),
            ("{arr: {$gt: 3, $lte: 2}}", 3),
            // Equality before comparisons; $in behind them.
            ("{arr: {$gt: 2, $eq: 5}}", 2),
            ("{arr: {$in: [4, 5], $gt: 0}}", 3),
            // An $in of one value is an equality.
            ("{arr: {$in: [5], $gt: 2}}", 2),
            ("{arr: {$exists: true, $eq: 4}}", 0),
            ("{arr: {$type: 'number', $in: [3, 4]}}", 0),
            ("{arr: {$mod: [4, 0], $gte: 5}}", 3),
            ("{arr: {$bitsAllSet: [2], $exists: true}}", 3),
            // $elemMatch before everything else.
            ("{arr: {$elemMatch: {$gt: 3}, $eq: 2}}", 1),
            // Of one kind by path.
            ("{b: 1, arr: 4}", 1),
            ("{arr: 4, b: 1}", 1),
            // Of one kind and path as written.
            ("{$and: [{arr: 1}, {arr: 2}, {arr: 3}]}", 2),
            ("{$and: [{arr: 3}, {arr: 2}, {arr: 1}]}", 0),
            ("{arr: {$all: [5, 2]}}", 1),
            // A conjunction inside of another one follows its other conditions.
            ("{$and: [{arr: 1}, {arr: 2}], arr: 3}", 1),
            ("{$and: [{arr: 1}], arr: 3}", 2),
            ("{arr: {$all: [1, 2], $eq: 3}}", 1),
            // A condition that names no element leaves that of the others.
            ("{arr: {$gt: 3, $ne: 9, $size: 5}}", 3),
            ("{arr: 4, _id: 0}", 3),
        ] {
            assert_eq!(index(filter, numbers), Some(expected), "{filter}");
        }
    }

    #[test]
    fn alternatives_name_no_element_unless_they_are_an_in() {
        let document = "{a: [1, 2, 3], b: [4, 5], s: ['x', 'y']}";
        for (filter, expected) in [
            ("{$or: [{a: 1}, {b: 5}]}", None),
            ("{$or: [{a: 0}, {b: 5}]}", None),
            ("{$or: [{a: {$gt: 1}}, {a: {$lt: 0}}]}", None),
            ("{$or: [{a: 3, b: 5}, {a: 9}]}", None),
            ("{$or: [{a: 3}]}", Some(2)),
            ("{$or: [{a: 3, b: 5}]}", Some(1)),
            ("{$or: [{a: 2}, {a: 3}]}", Some(1)),
            ("{$or: [{a: 3}, {a: 2}]}", Some(1)),
            ("{$or: [{a: 3}, {a: {$in: [2]}}]}", Some(1)),
            ("{$or: [{a: 3}, {a: {$in: [2, 9]}}]}", None),
            ("{$or: [{a: 3}, {$alwaysFalse: 1}]}", Some(2)),
            ("{$or: [{a: 9}, {$or: [{b: 5}, {a: 3}]}]}", None),
            ("{$or: [{a: 9}, {$or: [{a: 2}, {a: 3}]}]}", None),
            ("{$or: [{a: 9}, {$or: [{b: 5, a: 3}]}]}", None),
            ("{$or: [{s: /y/}, {s: 'z'}]}", Some(1)),
            ("{$or: [{a: 1}, {b: 5}], a: 3}", Some(2)),
            ("{$or: [{a: 2}, {a: 3}], a: {$gte: 3}}", Some(1)),
            ("{$or: [{a: 2}, {a: 2}], a: {$gte: 3}}", Some(2)),
            ("{$nor: [{a: 9}], a: 2}", Some(1)),
        ] {
            assert_eq!(index(filter, document), expected, "{filter}");
        }
    }

    #[test]
    fn elem_matches_on_one_path_are_ordered_by_the_conditions_inside() {
        let document = "{a: [{x: 1}, {y: 1}, {x: 1, y: 1, z: 1}]}";
        for (filter, expected) in [
            (
                "{a: {$all: [{$elemMatch: {y: 1}}, {$elemMatch: {x: 1}}]}}",
                1,
            ),
            (
                "{a: {$all: [{$elemMatch: {x: 1}}, {$elemMatch: {y: 1}}]}}",
                1,
            ),
            (
                "{a: {$all: [{$elemMatch: {z: 1, x: 1}}, {$elemMatch: {x: 1}}]}}",
                0,
            ),
        ] {
            assert_eq!(index(filter, document), Some(expected), "{filter}");
        }
    }
}
