//! The filters that a partial index may have.

use frond_error::{Error, ErrorCode, Result};
use frond_query::matcher::{Expr, Filter, Op};

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
            Op::Compare(_) | Op::Exists | Op::Type(_) | Op::In(_) | Op::Geo(_) => Ok(()),
            Op::Size(_) => refuse("$size"),
            Op::Mod(_) => refuse("$mod"),
            Op::Regex(_) => refuse("$regex"),
            Op::Bits(_) => refuse("bit tests"),
            Op::ElemMatch(_) => refuse("$elemMatch"),
            Op::Near(_) => refuse("$near"),
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use frond_bson::doc;

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

    #[test]
    fn areas_are_conditions_of_partial_indexes() {
        let square = doc! {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]};
        for filter in [
            doc! {"p": {"$geoWithin": {"$box": [[0, 0], [1, 1]]}}},
            doc! {"g": {"$geoWithin": {"$centerSphere": [[0, 0], 0.1]}}, "a": {"$gt": 1}},
            doc! {"$or": [{"g": {"$geoWithin": {"$geometry": &square}}}, {"a": 1}]},
            doc! {"g": {"$geoIntersects": {"$geometry": &square}}},
        ] {
            let parsed = Filter::parse(&filter).unwrap();
            assert_eq!(check_supported(&parsed), Ok(()), "{filter:?}");
        }
    }
}
