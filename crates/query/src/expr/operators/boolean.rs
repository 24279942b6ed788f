//! `$and`, `$or`, `$not`.

use super::{Arguments, Entry, lazy, one};

pub(super) const OPERATORS: &[Entry] = &[
    lazy(
        "$and",
        Arguments::Count {
            min: 0,
            max: Arguments::MANY,
        },
        |nodes, context| {
            for node in nodes {
                if !node.eval(context)?.truthy() {
                    return Ok(false.into());
                }
            }
            Ok(true.into())
        },
    ),
    lazy(
        "$or",
        Arguments::Count {
            min: 0,
            max: Arguments::MANY,
        },
        |nodes, context| {
            for node in nodes {
                if node.eval(context)?.truthy() {
                    return Ok(true.into());
                }
            }
            Ok(false.into())
        },
    ),
    one("$not", |value| Ok((!value.truthy()).into())),
];
