//! When a query may use a partial index: when each document that passes the query passes the filter of the index.
//!
//! Conditions of the query are compared with those of the filter one by one, by the values that can meet them. A
//! condition on a path is met by one of the values that the path leads to, so it implies another one on the same path if
//! each value that meets the first meets the second. What remains undecided counts as not implied.

use frond_bson::{Collator, Value, canonical_class, tag};
use frond_query::matcher::{Comparison, ElemMatch, Expr, Leaf, Op, Pattern, Relation, TypeSet};

use frond_storage::intervals::conditions::{has_number, is_exact, of_op};

/// Pairs of conditions that are compared at most; the number of pairs grows with the nesting of both filters.
const PAIRS_MAX: usize = 100_000;

/// Whether every document that passes all filters of `query` passes `partial`, the filter of an index by `collator`:
/// false if comparing single conditions does not decide it.
pub fn implies(query: &[&Expr], partial: &Expr, collator: &Collator) -> bool {
    let mut search = Search {
        collator,
        pairs_left: PAIRS_MAX,
    };
    search.implies(query, partial)
}

struct Search<'a> {
    collator: &'a Collator,
    pairs_left: usize,
}

impl Search<'_> {
    fn implies(&mut self, query: &[&Expr], partial: &Expr) -> bool {
        if self.pairs_left == 0 {
            return false;
        }
        self.pairs_left = self.pairs_left.saturating_sub(1 + query.len());
        if let Expr::And(all) = partial {
            return all.iter().all(|one| self.implies(query, one));
        }
        let by_a_part = query.iter().any(|part| match part {
            Expr::And(all) => {
                let all: Vec<&Expr> = all.iter().collect();
                self.implies(&all, partial)
            }
            Expr::Or(any) => !any.is_empty() && any.iter().all(|one| self.implies(&[one], partial)),
            Expr::False => true,
            Expr::Leaf(_) | Expr::Not(_) | Expr::Nor(_) => match partial {
                Expr::Leaf(wanted) => self.implies_leaf(part, wanted),
                _ => false,
            },
            _ => false,
        });
        match partial {
            // Conditions of several parts may imply one branch together.
            Expr::Or(any) => by_a_part || any.iter().any(|one| self.implies(query, one)),
            _ => by_a_part,
        }
    }

    fn implies_leaf(&self, part: &Expr, wanted: &Leaf) -> bool {
        let (path, op) = (wanted.path.as_str(), &wanted.op);
        match part {
            Expr::Not(inner) => matches!(op, Op::Exists) && matches_if_missing(inner, path),
            Expr::Nor(any) => {
                matches!(op, Op::Exists) && any.iter().any(|one| matches_if_missing(one, path))
            }
            part => self.reaches(part, path, op, false),
        }
    }

    /// Whether a condition holds only where the path has a value that meets `wanted`. `in_element`: the condition is on
    /// an element of an array, and the path that of the element.
    fn reaches(&self, expr: &Expr, path: &str, wanted: &Op, in_element: bool) -> bool {
        match expr {
            Expr::And(all) => all
                .iter()
                .any(|one| self.reaches(one, path, wanted, in_element)),
            Expr::Or(any) => {
                let mut each = any.iter();
                !any.is_empty() && each.all(|one| self.reaches(one, path, wanted, in_element))
            }
            Expr::False => true,
            Expr::Leaf(leaf) if leaf.path.as_str() == path => {
                // An element that is an array lacks the field and is not on the path.
                let counts = !in_element || !matches_missing(&leaf.op);
                (counts && self.implies_op(&leaf.op, wanted))
                    || (!path.is_empty() && self.by_element(&leaf.op, wanted))
            }
            Expr::Leaf(leaf) => match &leaf.op {
                Op::ElemMatch(condition) => match (&**condition, below(path, leaf)) {
                    (ElemMatch::Document(filter), Some(rest)) if !has_number(rest) => {
                        self.reaches(filter, rest, wanted, true)
                    }
                    _ => false,
                },
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether an `$elemMatch` on values has an element that meets `wanted`: the elements are values of the path. Those of
    /// an element that is an array are not.
    fn by_element(&self, op: &Op, wanted: &Op) -> bool {
        let Op::ElemMatch(condition) = op else {
            return false;
        };
        match &**condition {
            ElemMatch::Value(conditions) => self.reaches(conditions, "", wanted, true),
            ElemMatch::Document(_) => false,
        }
    }

    /// Whether each value that meets one operator meets the other one.
    fn implies_op(&self, op: &Op, wanted: &Op) -> bool {
        match wanted {
            Op::Exists => !matches_missing(op),
            Op::Type(types) => has_only(op, *types),
            Op::Compare(_) | Op::In(_) => self.implies_comparison(op, wanted),
            Op::Geo(wanted) => matches!(op, Op::Geo(query) if query.lies_in(wanted)),
            _ => false,
        }
    }

    /// As [`Search::implies_op`], of a comparison or an `$in`.
    fn implies_comparison(&self, op: &Op, wanted: &Op) -> bool {
        match op {
            Op::Compare(comparison) if is_equality(comparison) => {
                equal_implies(comparison.value(), comparison.collator(), wanted)
            }
            Op::Compare(comparison) => {
                self.by_ranges(op, wanted)
                    || matches!(wanted, Op::Compare(wanted) if range_implies(comparison, wanted))
            }
            Op::In(set) => {
                let values = &mut set.values().iter().map(|value| value.as_value());
                values.all(|value| equal_implies(value, set.collator(), wanted))
                    && set.patterns().iter().all(|one| lists(wanted, one))
            }
            Op::Regex(pattern) => lists(wanted, pattern),
            _ => false,
        }
    }

    fn by_ranges(&self, op: &Op, wanted: &Op) -> bool {
        if !is_exact(op, self.collator) || !is_exact(wanted, self.collator) {
            return false;
        }
        match (of_op(op, self.collator), of_op(wanted, self.collator)) {
            (Some((inside, _)), Some((outside, _))) => {
                inside.intersection(&outside.complement()).is_none()
            }
            _ => false,
        }
    }
}

/// The rest of a path that begins with the path of a condition.
fn below<'p>(path: &'p str, leaf: &Leaf) -> Option<&'p str> {
    path.strip_prefix(leaf.path.as_str())?.strip_prefix('.')
}

/// Whether a document without the field can meet the operator. A search near a point finds only what has a place.
fn matches_missing(op: &Op) -> bool {
    !matches!(op, Op::Near(_)) && op.holds_for(None)
}

/// Whether a condition on this path holds if the document lacks it, so that its negation implies that it is there.
/// Not of a path with several components: with an empty array on the way it leads to no value, not even to a missing
/// one.
fn matches_if_missing(condition: &Expr, path: &str) -> bool {
    match condition {
        Expr::Leaf(leaf) if leaf.path.as_str() == path && !path.contains('.') => match &leaf.op {
            Op::Compare(comparison) => {
                comparison.value() == Value::Null && comparison.relation().includes_equal()
            }
            Op::In(set) => set.has_null(),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a comparison is met by values equal to its operand only. For null and NaN `$lte` and `$gte` are.
fn is_equality(comparison: &Comparison) -> bool {
    let (relation, value) = (comparison.relation(), comparison.value());
    relation == Relation::Eq
        || (relation.includes_equal() && (value == Value::Null || value.is_nan()))
}

/// Whether all values that equal `value` by the collator `own` meet `wanted`. A missing field equals null.
fn equal_implies(value: Value<'_>, own: &Collator, wanted: &Op) -> bool {
    let compares_alike = match wanted {
        Op::Compare(comparison) => comparison.collator() == own,
        Op::In(set) => set.collator() == own && set.patterns().is_empty(),
        _ => false,
    };
    (compares_alike || !own.affects(&value))
        && wanted.holds_for(Some(value))
        && (!value.is_nullish() || wanted.holds_for(None))
}

/// Whether an `$in` lists this regular expression.
fn lists(wanted: &Op, pattern: &Pattern) -> bool {
    match wanted {
        Op::In(set) => set.patterns().iter().any(|listed| {
            (listed.source(), listed.options()) == (pattern.source(), pattern.options())
        }),
        _ => false,
    }
}

/// Whether a range of values lies within another one, by its end. Of all types, for those that have no exact ranges in
/// an index.
fn range_implies(range: &Comparison, wanted: &Comparison) -> bool {
    let (value, end) = (range.value(), wanted.value());
    let collator = range.collator();
    if canonical_class(value.type_code()) != canonical_class(end.type_code())
        || value.is_nan()
        || end.is_nan()
        || !compare_alike(range, wanted)
    {
        return false;
    }
    let order = collator.compare(&value, &end);
    let is_inside = match (range.relation(), wanted.relation()) {
        (Relation::Gt, Relation::Gt | Relation::Gte) => order.is_ge(),
        (Relation::Gte, Relation::Gt) => order.is_gt(),
        (Relation::Gte, Relation::Gte) => order.is_ge(),
        (Relation::Lt, Relation::Lt | Relation::Lte) => order.is_le(),
        (Relation::Lte, Relation::Lt) => order.is_lt(),
        (Relation::Lte, Relation::Lte) => order.is_le(),
        _ => false,
    };
    // Null, MinKey and MaxKey compare with missing fields and other types: alike only for the same relation.
    let is_plain = !matches!(value, Value::Null | Value::MinKey | Value::MaxKey);
    is_inside && (is_plain || range.relation() == wanted.relation())
}

/// Whether two comparisons order the values between their operands in the same way.
fn compare_alike(a: &Comparison, b: &Comparison) -> bool {
    a.collator() == b.collator()
        || !(a.collator().affects(&a.value()) || b.collator().affects(&b.value()))
}

/// Whether values that meet the operator have only types of the set.
fn has_only(op: &Op, types: TypeSet) -> bool {
    let all = |codes: &[u8]| codes.iter().all(|code| types.contains_code(*code));
    const NUMBERS: [u8; 4] = [tag::DOUBLE, tag::INT32, tag::INT64, tag::DECIMAL128];
    let pattern = || all(&[tag::STRING, tag::SYMBOL, tag::REGEX]);
    match op {
        Op::Compare(comparison) => match (comparison.relation(), comparison.value()) {
            (Relation::Eq, value) => has_class_of(value, types),
            // These compare with values of all types.
            (_, Value::MinKey | Value::MaxKey) => false,
            (_, value) => has_class_of(value, types),
        },
        Op::In(set) => {
            let mut values = set.values().iter();
            values.all(|value| has_class_of(value.as_value(), types))
                && (set.patterns().is_empty() || pattern())
        }
        Op::Type(own) => every_type().all(|code| !own.contains_code(code) || all(&[code])),
        Op::Mod(_) => all(&NUMBERS),
        Op::Bits(_) => all(&NUMBERS) && all(&[tag::BINARY]),
        Op::Regex(_) => pattern(),
        Op::Size(_) | Op::ElemMatch(_) => all(&[tag::ARRAY]),
        Op::Geo(_) => all(&[tag::DOCUMENT, tag::ARRAY]),
        Op::Exists | Op::Near(_) => false,
    }
}

/// Whether the set has all types whose values can equal this one. A missing field equals null.
fn has_class_of(value: Value<'_>, types: TypeSet) -> bool {
    let class = canonical_class(value.type_code());
    let mut alike = every_type().filter(|code| canonical_class(*code) == class);
    !value.is_nullish() && alike.all(|code| types.contains_code(code))
}

fn every_type() -> impl Iterator<Item = u8> {
    (1..=19).chain([tag::MIN_KEY, tag::MAX_KEY])
}

#[cfg(test)]
mod tests;
