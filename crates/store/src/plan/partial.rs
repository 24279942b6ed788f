//! Partial indexes: which filters they take, and when a query may use one.

use frond_bson::Collator;
use frond_query::error::{Error, ErrorCode, Result};
use frond_query::matcher::{Comparison, Expr, Filter, Leaf, Op, Relation};

use super::bounds::{is_exact, of_op};

/// Checks the filter of a partial index.
///
/// # Errors
/// `CannotCreateIndex` (67) for a condition that MongoDB does not allow there.
pub fn check_supported(filter: &Filter) -> Result<()> {
    check(filter.predicates())
}

fn check(expr: &Expr) -> Result<()> {
    let refuse = |what: &str| {
        Err(Error::new(
            ErrorCode::CannotCreateIndex,
            format!("Expression not supported in partial index: {what}"),
        ))
    };
    match expr {
        Expr::And(children) | Expr::Or(children) => children.iter().try_for_each(check),
        Expr::Leaf(leaf) => match &leaf.op {
            Op::Compare(_) | Op::Exists | Op::Type(_) | Op::In(_) => Ok(()),
            Op::Size(_) => refuse("$size"),
            Op::Mod(_) => refuse("$mod"),
            Op::Regex(_) => refuse("$regex"),
            Op::Bits(_) => refuse("bit tests"),
            Op::ElemMatch(_) => refuse("$elemMatch"),
            Op::Geo(_) | Op::Near(_) => refuse("geospatial conditions"),
        },
        Expr::Nor(_) => refuse("$nor"),
        Expr::Not(_) => refuse("$not"),
        Expr::Computed(_) => refuse("$expr"),
        Expr::Schema(_) => refuse("$jsonSchema"),
        Expr::Text(_) => refuse("$text"),
        Expr::Sample(_) => refuse("$sampleRate"),
        Expr::False => refuse("$alwaysFalse"),
    }
}

/// Whether every document that passes `query` passes `partial`, as far as a look at the conditions
/// one by one can tell. `collator` is how `partial` compares strings.
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

/// The same equality with null, an array or another value whose ranges are wider than it.
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

    #[test]
    fn unsupported_filters_are_refused() {
        for filter in [
            doc! {"a": {"$not": {"$gt": 1}}},
            doc! {"a": {"$ne": 1}},
            doc! {"$nor": [{"a": 1}]},
            doc! {"a": {"$regex": "x"}},
        ] {
            let error = check_supported(&Filter::parse(&filter).unwrap()).unwrap_err();
            assert_eq!(error.code(), ErrorCode::CannotCreateIndex, "{filter:?}");
        }
    }
}
