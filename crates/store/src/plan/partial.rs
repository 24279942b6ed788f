//! When a query may use a partial index.

use frond_bson::Collator;
use frond_query::matcher::{Comparison, Expr, Leaf, Op, Relation};

use crate::intervals::conditions::{is_exact, of_op};

/// Whether every document that passes `query` passes `partial`, by comparing single conditions: false if that
/// does not decide it. `collator` is that of `partial`.
pub fn implies(query: &Expr, partial: &Expr, collator: &Collator) -> bool {
    match partial {
        Expr::And(all) => all.iter().all(|one| implies(query, one, collator)),
        Expr::Or(any) => any.iter().any(|one| implies(query, one, collator)),
        Expr::Leaf(wanted) => implies_leaf(query, wanted, collator),
        _ => false,
    }
}

fn implies_leaf(query: &Expr, wanted: &Leaf, collator: &Collator) -> bool {
    match query {
        Expr::And(all) => all.iter().any(|one| implies_leaf(one, wanted, collator)),
        Expr::Or(any) => {
            !any.is_empty() && any.iter().all(|one| implies_leaf(one, wanted, collator))
        }
        Expr::Leaf(leaf) => leaf.path == wanted.path && implies_op(&leaf.op, &wanted.op, collator),
        Expr::False => true,
        _ => false,
    }
}

fn implies_op(query: &Op, wanted: &Op, collator: &Collator) -> bool {
    match wanted {
        Op::Exists => of_op(query, collator).is_some_and(|(_, matches_missing)| !matches_missing),
        Op::Compare(_) | Op::In(_) if is_exact(query, collator) && is_exact(wanted, collator) => {
            match (of_op(query, collator), of_op(wanted, collator)) {
                (Some((inside, _)), Some((outside, _))) => {
                    inside.intersection(&outside.complement()).is_none()
                }
                _ => false,
            }
        }
        Op::Compare(wanted) => matches!(query, Op::Compare(query) if is_same(query, wanted)),
        _ => false,
    }
}

/// Whether both are the same equality. For null, arrays and other values whose ranges hold more than what matches.
fn is_same(a: &Comparison, b: &Comparison) -> bool {
    a.relation() == Relation::Eq
        && b.relation() == Relation::Eq
        && a.value().type_code() == b.value().type_code()
        && a.collator() == b.collator()
        && a.collator().compare(&a.value(), &b.value()).is_eq()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use frond_bson::{DocBuf, doc};
    use frond_query::matcher::Filter;

    #[test]
    fn implication_by_single_conditions() {
        let cases: Vec<(DocBuf, DocBuf, bool)> = vec![
            (doc! {"a": 5}, doc! {"a": {"$gt": 3}}, true),
            (doc! {"a": 3}, doc! {"a": {"$gt": 3}}, false),
            (doc! {"a": {"$gte": 4}}, doc! {"a": {"$gt": 3}}, true),
            (doc! {"a": {"$gt": 2}}, doc! {"a": {"$gt": 3}}, false),
            (doc! {"a": {"$gt": 4}, "b": 1}, doc! {"a": {"$gt": 3}}, true),
            (doc! {"a": {"$in": [4, 5]}}, doc! {"a": {"$gt": 3}}, true),
            (doc! {"a": {"$in": [1, 5]}}, doc! {"a": {"$gt": 3}}, false),
            (doc! {"a": "x"}, doc! {"a": {"$gt": 3}}, false),
            (doc! {"b": 5}, doc! {"a": {"$gt": 3}}, false),
            (doc! {"a": 1}, doc! {"a": {"$exists": true}}, true),
            (doc! {"a": null}, doc! {"a": {"$exists": true}}, false),
            (doc! {"a": {"$lt": 9}}, doc! {"a": {"$exists": true}}, true),
            (doc! {"a": {"$ne": 9}}, doc! {"a": {"$exists": true}}, false),
            (
                doc! {"$or": [{"a": 5}, {"a": 6}]},
                doc! {"a": {"$gt": 3}},
                true,
            ),
            (
                doc! {"$or": [{"a": 5}, {"b": 6}]},
                doc! {"a": {"$gt": 3}},
                false,
            ),
            (doc! {"a": 5, "b": 1}, doc! {"a": 5, "b": 1}, true),
            (doc! {"a": 5}, doc! {"a": 5, "b": 1}, false),
            (doc! {"a": null}, doc! {"a": null}, true),
            (doc! {"a": f64::NAN}, doc! {"a": {"$lt": 3}}, false),
            (doc! {}, doc! {"a": 1}, false),
        ];
        for (query, partial, expected) in cases {
            let (query_filter, partial_filter) = (
                Filter::parse(&query).unwrap(),
                Filter::parse(&partial).unwrap(),
            );
            assert_eq!(
                implies(
                    query_filter.predicates(),
                    partial_filter.predicates(),
                    Collator::BINARY
                ),
                expected,
                "{query:?} implies {partial:?}"
            );
        }
    }
}
