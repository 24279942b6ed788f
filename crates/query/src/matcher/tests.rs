//! Tables of filters, the documents that pass and those that do not, and the errors.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::json;

/// Filters, each with documents that pass and documents that do not.
type Cases<'a> = &'a [(&'a str, &'a [&'a str], &'a [&'a str])];

fn check(cases: Cases<'_>) {
    for (filter, passing, failing) in cases {
        let parsed = Filter::parse(&json(filter)).unwrap_or_else(|e| panic!("{filter}: {e}"));
        for (documents, expected) in [(passing, true), (failing, false)] {
            for document in *documents {
                let got = parsed.try_matches(&json(document)).unwrap();
                assert_eq!(got, expected, "{filter} on {document}");
                assert_eq!(
                    parsed.matches(&json(document)),
                    expected,
                    "{filter} on {document}"
                );
            }
        }
    }
}

fn refuse(cases: &[(&str, i32, &str)]) {
    for (filter, code, message) in cases {
        let error = Filter::parse(&json(filter))
            .err()
            .unwrap_or_else(|| panic!("{filter} parsed"));
        assert_eq!(
            (error.code().code(), error.message()),
            (*code, *message),
            "{filter}"
        );
    }
}

#[test]
fn equality() {
    check(&[
        ("{}", &["{}", "{a: 1}"], &[]),
        (
            "{a: 1}",
            &[
                "{a: 1}",
                "{a: 1.0}",
                "{a: NumberLong(1)}",
                "{a: NumberDecimal('1.0')}",
                "{a: [2, 1]}",
            ],
            &[
                "{}",
                "{a: 2}",
                "{a: '1'}",
                "{a: true}",
                "{a: [[1]]}",
                "{a: null}",
            ],
        ),
        ("{a: {$eq: 1}}", &["{a: 1}", "{a: [1]}"], &["{a: 2}"]),
        (
            "{a: 'x'}",
            &["{a: 'x'}", "{a: Symbol('x')}", "{a: ['x']}"],
            &["{a: 'X'}", "{a: /x/}"],
        ),
        (
            "{a: null}",
            &["{a: null}", "{}", "{a: undefined}", "{a: [1, null]}"],
            &["{a: 0}", "{a: false}", "{a: []}"],
        ),
        (
            "{'a.b': null}",
            &["{}", "{a: 1}", "{a: {}}", "{a: [{b: 1}, {}]}"],
            &["{a: [1]}", "{a: []}"],
        ),
        (
            "{a: [1, 2]}",
            &["{a: [1, 2]}", "{a: [1, NumberLong(2)]}", "{a: [[1, 2], 3]}"],
            &["{a: [2, 1]}", "{a: [1, 2, 3]}", "{a: 1}"],
        ),
        (
            "{a: []}",
            &["{a: []}", "{a: [[]]}"],
            &["{a: [1]}", "{}", "{a: null}"],
        ),
        (
            "{a: {b: 1, c: 2}}",
            &[
                "{a: {b: 1, c: 2}}",
                "{a: {b: 1.0, c: 2}}",
                "{a: [{b: 1, c: 2}]}",
            ],
            &[
                "{a: {c: 2, b: 1}}",
                "{a: {b: 1}}",
                "{a: {b: 1, c: 2, d: 3}}",
            ],
        ),
        ("{a: {}}", &["{a: {}}"], &["{a: {b: 1}}", "{a: []}", "{}"]),
        (
            "{'a.b': 1}",
            &["{a: {b: 1}}", "{a: [{b: 2}, {b: [1]}]}"],
            &["{a: {b: 2}}", "{'a.b': 1}"],
        ),
        (
            "{'a.0': 1}",
            &["{a: [1]}", "{a: {'0': 1}}", "{a: [{'0': 1}]}"],
            &["{a: [[1]]}", "{a: [0, 1]}"],
        ),
        (
            "{a: {$ref: 'c', $id: 1}}",
            &["{a: {$ref: 'c', $id: 1}}"],
            &["{a: {$ref: 'c', $id: 2}}"],
        ),
        (
            "{a: NaN}",
            &["{a: NaN}", "{a: NumberDecimal('NaN')}"],
            &["{a: 0}", "{}"],
        ),
        ("{a: 1, b: 2}", &["{a: 1, b: 2}"], &["{a: 1}", "{b: 2}"]),
        (
            "{a: Date(5)}",
            &["{a: Date(5)}"],
            &["{a: 5}", "{a: Timestamp(5, 0)}"],
        ),
        (
            "{a: BinData(0, 'ff')}",
            &["{a: BinData(0, 'ff')}"],
            &["{a: BinData(1, 'ff')}"],
        ),
        (
            "{a: {$eq: /x/i}}",
            &["{a: /x/i}"],
            &["{a: 'x'}", "{a: /x/}"],
        ),
        ("{a: {$eq: {$gt: 1}}}", &["{a: {$gt: 1}}"], &["{a: 2}"]),
        ("{a: MinKey}", &["{a: MinKey}"], &["{a: 1}", "{}"]),
    ]);
    refuse(&[
        ("{a: undefined}", 2, "cannot compare to undefined"),
        ("{a: {$eq: undefined}}", 2, "cannot compare to undefined"),
    ]);
}

#[test]
fn not_equal() {
    check(&[
        (
            "{a: {$ne: 1}}",
            &["{a: 2}", "{}", "{a: 'x'}", "{a: []}"],
            &["{a: 1}", "{a: [2, 1]}"],
        ),
        (
            "{a: {$ne: null}}",
            &["{a: 1}", "{a: []}"],
            &["{}", "{a: null}", "{a: [null]}"],
        ),
    ]);
    refuse(&[("{a: {$ne: /x/}}", 2, "Can't have regex as arg to $ne.")]);
}

#[test]
fn inequalities_stay_within_a_type() {
    check(&[
        (
            "{a: {$gt: 5}}",
            &[
                "{a: 6}",
                "{a: 5.5}",
                "{a: [1, 9]}",
                "{a: NumberDecimal('5.1')}",
                "{a: Infinity}",
            ],
            &[
                "{a: 5}",
                "{a: '6'}",
                "{a: NaN}",
                "{}",
                "{a: null}",
                "{a: true}",
                "{a: Date(9)}",
            ],
        ),
        (
            "{a: {$gte: 5}}",
            &["{a: 5}", "{a: NumberLong(5)}"],
            &["{a: 4.9}", "{a: NaN}"],
        ),
        (
            "{a: {$lt: 5}}",
            &["{a: 4}", "{a: -Infinity}"],
            &["{a: 5}", "{a: NaN}", "{}", "{a: null}"],
        ),
        ("{a: {$lte: 5}}", &["{a: 5}"], &["{a: 5.1}"]),
        (
            "{a: {$gt: 1, $lt: 3}}",
            &["{a: 2}", "{a: [0, 4]}"],
            &["{a: 1}", "{a: 3}"],
        ),
        (
            "{a: {$lt: 'b'}}",
            &["{a: 'a'}", "{a: ''}"],
            &["{a: 'b'}", "{a: 1}"],
        ),
        (
            "{a: {$gt: Date(5)}}",
            &["{a: Date(6)}"],
            &["{a: 6}", "{a: Timestamp(9, 9)}"],
        ),
        (
            "{a: {$gte: null}}",
            &["{a: null}", "{}", "{a: undefined}"],
            &["{a: 1}"],
        ),
        ("{a: {$lte: null}}", &["{a: null}", "{}"], &["{a: 1}"]),
        ("{a: {$gt: null}}", &[], &["{a: null}", "{}", "{a: 1}"]),
        ("{a: {$gte: NaN}}", &["{a: NaN}"], &["{a: 1}"]),
        ("{a: {$lt: NaN}}", &[], &["{a: NaN}", "{a: 1}"]),
        (
            "{a: {$gt: MinKey}}",
            &["{a: 1}", "{}", "{a: 'x'}"],
            &["{a: MinKey}"],
        ),
        ("{a: {$gte: MinKey}}", &["{a: 1}", "{a: MinKey}"], &[]),
        ("{a: {$lt: MaxKey}}", &["{a: 1}", "{}"], &["{a: MaxKey}"]),
        ("{a: {$lt: MinKey}}", &[], &["{a: 1}", "{a: MinKey}"]),
        (
            "{a: {$gt: {b: 1}}}",
            &["{a: {b: 2}}", "{a: {c: 0}}"],
            &["{a: {b: 1}}", "{a: [2]}"],
        ),
        (
            "{a: {$gt: [1]}}",
            &["{a: [2]}", "{a: [1, 0]}", "{a: [[5]]}"],
            &["{a: [1]}", "{a: 2}"],
        ),
        (
            "{a: {$gt: false}}",
            &["{a: true}"],
            &["{a: false}", "{a: 1}"],
        ),
    ]);
    refuse(&[
        (
            "{a: {$gt: /x/}}",
            2,
            "Can't have RegEx as arg to predicate over field 'a'.",
        ),
        ("{a: {$lt: undefined}}", 2, "cannot compare to undefined"),
    ]);
}

#[test]
fn membership() {
    check(&[
        (
            "{a: {$in: [1, 'x']}}",
            &["{a: 1}", "{a: 'x'}", "{a: 1.0}", "{a: [5, 1]}"],
            &["{a: 2}", "{}"],
        ),
        ("{a: {$in: []}}", &[], &["{a: 1}", "{}"]),
        (
            "{a: {$in: [null]}}",
            &["{}", "{a: null}", "{a: undefined}"],
            &["{a: 1}", "{a: []}"],
        ),
        (
            "{a: {$in: [/^x/, 5]}}",
            &["{a: 'xy'}", "{a: 5}", "{a: /^x/}"],
            &["{a: 'yx'}"],
        ),
        (
            "{a: {$in: [[1, 2]]}}",
            &["{a: [1, 2]}", "{a: [[1, 2]]}"],
            &["{a: 1}"],
        ),
        (
            "{a: {$in: [{b: 1}, NaN]}}",
            &["{a: {b: 1}}", "{a: NaN}"],
            &["{a: {b: 2}}"],
        ),
        (
            "{a: {$nin: [1, 2]}}",
            &["{a: 3}", "{}", "{a: []}"],
            &["{a: 1}", "{a: [3, 2]}"],
        ),
        ("{a: {$nin: [null]}}", &["{a: 1}"], &["{}", "{a: null}"]),
        ("{a: {$nin: [/x/]}}", &["{a: 'y'}"], &["{a: 'x'}"]),
    ]);
    refuse(&[
        ("{a: {$in: 1}}", 2, "$in needs an array"),
        ("{a: {$nin: {}}}", 2, "$nin needs an array"),
        ("{a: {$in: [{$gt: 1}]}}", 2, "cannot nest $ under $in"),
    ]);
}

#[test]
fn the_values_of_in_are_sorted_once() {
    let filter = Filter::parse(&json("{a: {$in: [3, 1, 1.0, 'x', null, 2]}}")).unwrap();
    let Expr::Leaf(Leaf {
        op: Op::In(set), ..
    }) = filter.predicates()
    else {
        panic!()
    };
    let values: Vec<String> = set
        .values()
        .iter()
        .map(|v| crate::testing::show(&v.as_value()))
        .collect();
    assert_eq!(values, ["null", "1", "2", "3", "\"x\""]);
    assert!(set.has_null());
}

#[test]
fn exists_and_type() {
    check(&[
        (
            "{a: {$exists: true}}",
            &["{a: 1}", "{a: null}", "{a: []}"],
            &["{}", "{b: 1}"],
        ),
        ("{a: {$exists: false}}", &["{}"], &["{a: null}"]),
        ("{a: {$exists: 1}}", &["{a: 1}"], &["{}"]),
        ("{a: {$exists: 0}}", &["{}"], &["{a: 1}"]),
        (
            "{'a.b': {$exists: true}}",
            &["{a: {b: 1}}", "{a: [1, {b: 1}]}"],
            &["{a: 1}", "{a: [1]}"],
        ),
        (
            "{'a.b': {$exists: false}}",
            &["{a: []}", "{a: [1]}"],
            &["{a: [{}, {b: 1}]}"],
        ),
        (
            "{a: {$type: 'string'}}",
            &["{a: 'x'}", "{a: [1, 'x']}"],
            &["{a: 1}", "{}"],
        ),
        ("{a: {$type: 2}}", &["{a: 'x'}"], &["{a: 1}"]),
        (
            "{a: {$type: 'number'}}",
            &["{a: 1}", "{a: 1.5}", "{a: NumberDecimal('1')}"],
            &["{a: '1'}"],
        ),
        (
            "{a: {$type: ['int', 'null']}}",
            &["{a: 1}", "{a: null}"],
            &["{a: 1.5}", "{}"],
        ),
        (
            "{a: {$type: 'array'}}",
            &["{a: []}", "{a: [1]}"],
            &["{a: 1}"],
        ),
        (
            "{a: {$type: -1}}",
            &["{a: MinKey}"],
            &["{a: MaxKey}", "{a: 1}"],
        ),
        ("{a: {$type: 'maxKey'}}", &["{a: MaxKey}"], &["{a: MinKey}"]),
        ("{a: {$type: 16.0}}", &["{a: 1}"], &["{a: NumberLong(1)}"]),
    ]);
    refuse(&[
        ("{a: {$type: 'float'}}", 2, "Unknown type name alias: float"),
        ("{a: {$type: 100}}", 2, "Invalid numerical type code: 100"),
        ("{a: {$type: 1.5}}", 2, "Invalid numerical type code: 1.5"),
        (
            "{a: {$type: 0}}",
            2,
            "Invalid numerical type code: 0. Instead use {$exists:false}.",
        ),
        (
            "{a: {$type: true}}",
            14,
            "type must be represented as a number or a string",
        ),
        ("{a: {$type: []}}", 9, "a must match at least one type"),
    ]);
}

#[test]
fn logical_operators() {
    check(&[
        (
            "{$and: [{a: 1}, {b: 2}]}",
            &["{a: 1, b: 2}"],
            &["{a: 1}", "{b: 2}"],
        ),
        (
            "{$or: [{a: 1}, {b: 2}]}",
            &["{a: 1}", "{b: 2}"],
            &["{}", "{a: 2}"],
        ),
        ("{$or: [{a: 1}]}", &["{a: 1}"], &["{a: 2}"]),
        (
            "{$nor: [{a: 1}, {b: 2}]}",
            &["{}", "{a: 2}"],
            &["{a: 1}", "{b: 2}"],
        ),
        ("{$and: [{}]}", &["{}"], &[]),
        (
            "{a: 1, $or: [{b: 1}, {b: 2}]}",
            &["{a: 1, b: 2}"],
            &["{a: 1}", "{b: 2}"],
        ),
        (
            "{a: {$not: {$gt: 5}}}",
            &["{a: 5}", "{}", "{a: 'x'}"],
            &["{a: 6}", "{a: [1, 6]}"],
        ),
        (
            "{a: {$not: /x/}}",
            &["{a: 'y'}", "{}", "{a: 1}"],
            &["{a: 'x'}"],
        ),
        ("{a: {$not: {$regex: 'x'}}}", &["{a: 'y'}"], &["{a: 'x'}"]),
        (
            "{a: {$not: {$gt: 5, $lt: 9}}}",
            &["{a: 5}", "{a: 9}"],
            &["{a: 7}"],
        ),
        (
            "{a: {$not: {$not: {$gt: 5}}}}",
            &["{a: 6}"],
            &["{a: 5}", "{}"],
        ),
        ("{a: 1, $comment: 'why'}", &["{a: 1}"], &["{a: 2}"]),
        ("{$alwaysTrue: 1}", &["{}"], &[]),
        ("{$alwaysFalse: 1}", &[], &["{}"]),
    ]);
    refuse(&[
        ("{$and: {a: 1}}", 2, "$and must be an array"),
        ("{$or: 1}", 2, "$or must be an array"),
        ("{$nor: []}", 2, "$and/$or/$nor must be a nonempty array"),
        (
            "{$or: [1]}",
            2,
            "$or/$and/$nor entries need to be full objects",
        ),
        ("{a: {$not: 1}}", 2, "$not needs a regex or a document"),
        ("{a: {$not: {}}}", 2, "$not cannot be empty"),
        ("{a: {$not: {b: 1}}}", 2, "unknown operator: b"),
        (
            "{$alwaysTrue: 2}",
            9,
            "$alwaysTrue must be an integer value of 1",
        ),
        (
            "{$alwaysFalse: 'x'}",
            9,
            "$alwaysFalse must be an integer value of 1",
        ),
    ]);
}

#[test]
fn arrays() {
    check(&[
        (
            "{a: {$all: [1, 2]}}",
            &["{a: [2, 3, 1]}"],
            &["{a: [1]}", "{a: 1}", "{}"],
        ),
        ("{a: {$all: [1]}}", &["{a: 1}", "{a: [1]}"], &["{a: 2}"]),
        ("{a: {$all: []}}", &[], &["{a: []}", "{}", "{a: 1}"]),
        (
            "{a: {$all: [[1, 2]]}}",
            &["{a: [1, 2]}", "{a: [[1, 2]]}"],
            &["{a: [2, 1]}"],
        ),
        (
            "{a: {$all: [/^x/, 'y']}}",
            &["{a: ['xz', 'y']}"],
            &["{a: ['y']}"],
        ),
        ("{a: {$all: [null]}}", &["{}", "{a: null}"], &["{a: 1}"]),
        (
            "{a: {$all: [{$elemMatch: {b: 1}}, {$elemMatch: {b: 2}}]}}",
            &["{a: [{b: 2}, {b: 1}]}"],
            &["{a: [{b: 1}]}", "{a: {b: 1}}"],
        ),
        (
            "{a: {$size: 2}}",
            &["{a: [1, 2]}", "{a: [[], []]}"],
            &["{a: [1]}", "{a: [[1, 2]]}", "{}"],
        ),
        (
            "{a: {$size: 0}}",
            &["{a: []}"],
            &["{}", "{a: null}", "{a: 'x'}"],
        ),
        ("{a: {$size: 1.0}}", &["{a: [5]}"], &[]),
        (
            "{'a.b': {$size: 1}}",
            &["{a: [{b: [1]}]}", "{a: {b: [1]}}"],
            &["{a: [{b: 1}]}"],
        ),
        (
            "{a: {$elemMatch: {b: 1, c: 2}}}",
            &["{a: [{b: 1, c: 2}]}", "{a: [5, {b: [1], c: 2}]}"],
            &["{a: [{b: 1}, {c: 2}]}", "{a: {b: 1, c: 2}}", "{a: []}"],
        ),
        (
            "{a: {$elemMatch: {$gt: 1, $lt: 3}}}",
            &["{a: [0, 2]}"],
            &["{a: [0, 4]}", "{a: 2}", "{a: [[2]]}"],
        ),
        (
            "{a: {$elemMatch: {$in: [1, 2]}}}",
            &["{a: [2]}"],
            &["{a: 2}"],
        ),
        (
            "{a: {$elemMatch: {$not: {$gt: 5}}}}",
            &["{a: [9, 1]}"],
            &["{a: [9]}", "{a: []}"],
        ),
        (
            "{a: {$elemMatch: {$elemMatch: {$eq: 1}}}}",
            &["{a: [[1]]}"],
            &["{a: [1]}", "{a: 1}"],
        ),
        (
            "{a: {$elemMatch: {$or: [{b: 1}, {c: 1}]}}}",
            &["{a: [{c: 1}]}"],
            &["{a: [{d: 1}]}"],
        ),
        (
            "{a: {$elemMatch: {'0': 5}}}",
            &["{a: [[5]]}"],
            &["{a: [5]}"],
        ),
        (
            "{a: {$elemMatch: {$ne: 1}}}",
            &["{a: [1, 2]}"],
            &["{a: [1]}"],
        ),
        (
            "{a: {$elemMatch: {}}}",
            &["{a: [{}]}", "{a: [[]]}"],
            &["{a: [1]}", "{a: []}"],
        ),
        (
            "{a: {$elemMatch: {$ref: 'c', $id: 1}}}",
            &["{a: [{$ref: 'c', $id: 1}]}"],
            &["{a: [{$ref: 'c'}]}"],
        ),
        (
            "{'a.b': {$elemMatch: {$eq: 1}}}",
            &["{a: [{b: [1]}]}"],
            &["{a: [{b: 1}]}"],
        ),
    ]);
    refuse(&[
        ("{a: {$all: 1}}", 2, "$all needs an array"),
        ("{a: {$all: [{$gt: 1}]}}", 2, "no $ expressions in $all"),
        (
            "{a: {$all: [1, {$elemMatch: {}}]}}",
            2,
            "no $ expressions in $all",
        ),
        (
            "{a: {$all: [{$elemMatch: {}}, 1]}}",
            2,
            "$all/$elemMatch has to be consistent",
        ),
        ("{a: {$elemMatch: 1}}", 2, "$elemMatch needs an Object"),
        (
            "{a: {$elemMatch: {$gt: 1, b: 1}}}",
            2,
            "unknown operator: b",
        ),
        (
            "{a: {$elemMatch: {$where: 'x'}}}",
            2,
            "$elemMatch cannot contain $where expression",
        ),
        (
            "{a: {$size: 'x'}}",
            2,
            "Failed to parse $size. Expected a number in: $size: \"x\"",
        ),
        (
            "{a: {$size: 1.5}}",
            2,
            "Failed to parse $size. Expected an integer: $size: 1.5",
        ),
        (
            "{a: {$size: -1}}",
            2,
            "Failed to parse $size. Expected a non-negative number in: $size: -1",
        ),
    ]);
}

#[test]
fn modulo() {
    check(&[
        (
            "{a: {$mod: [4, 1]}}",
            &[
                "{a: 5}",
                "{a: 5.9}",
                "{a: [2, 9]}",
                "{a: NumberDecimal('5.5')}",
            ],
            &["{a: 4}", "{a: '5'}", "{}", "{a: -3}"],
        ),
        (
            "{a: {$mod: [4, -3]}}",
            &["{a: -3}", "{a: -7}"],
            &["{a: 1}", "{a: 5}"],
        ),
        ("{a: {$mod: [4.9, 1.9]}}", &["{a: 5}"], &["{a: 6}"]),
        (
            "{a: {$mod: [-1, 0]}}",
            &["{a: NumberLong(-9223372036854775808)}"],
            &["{a: NaN}", "{a: Infinity}", "{a: 1e300}"],
        ),
    ]);
    refuse(&[
        ("{a: {$mod: 1}}", 2, "malformed mod, needs to be an array"),
        ("{a: {$mod: []}}", 2, "malformed mod, not enough elements"),
        ("{a: {$mod: [1]}}", 2, "malformed mod, not enough elements"),
        (
            "{a: {$mod: [1, 2, 3]}}",
            2,
            "malformed mod, too many elements",
        ),
        (
            "{a: {$mod: ['x', 1]}}",
            2,
            "malformed mod, divisor not a number",
        ),
        (
            "{a: {$mod: [1, 'x']}}",
            2,
            "malformed mod, remainder not a number",
        ),
        ("{a: {$mod: [0, 1]}}", 2, "divisor cannot be 0"),
        ("{a: {$mod: [0.5, 1]}}", 2, "divisor cannot be 0"),
        (
            "{a: {$mod: [NaN, 1]}}",
            2,
            "malformed mod, divisor value is invalid :: caused by :: \
             Unable to coerce NaN/Inf to integral type",
        ),
        (
            "{a: {$mod: [2, 1e300]}}",
            2,
            "malformed mod, remainder value is invalid :: caused by :: \
             Out of bounds coercing to integral value",
        ),
    ]);
}

#[test]
fn regular_expressions() {
    check(&[
        (
            "{a: /^x/}",
            &[
                "{a: 'xy'}",
                "{a: ['a', 'x']}",
                "{a: Symbol('x')}",
                "{a: /^x/}",
            ],
            &["{a: 'yx'}", "{a: 1}", "{}", "{a: /^x/i}"],
        ),
        ("{a: /X/i}", &["{a: 'axb'}"], &["{a: 'y'}"]),
        ("{a: {$regex: 'x'}}", &["{a: 'x'}"], &["{a: 'X'}"]),
        (
            "{a: {$regex: 'x', $options: 'i'}}",
            &["{a: 'X'}"],
            &["{a: 'y'}"],
        ),
        (
            "{a: {$options: 'i', $regex: 'x'}}",
            &["{a: 'X'}"],
            &["{a: 'y'}"],
        ),
        (
            "{a: {$regex: /x/, $options: 'i'}}",
            &["{a: 'X'}"],
            &["{a: 'y'}"],
        ),
        ("{a: {$regex: /x/i}}", &["{a: 'X'}"], &["{a: 'y'}"]),
        (
            "{a: {$regex: 'x', $ne: 'xx'}}",
            &["{a: 'x'}"],
            &["{a: 'xx'}"],
        ),
    ]);
    refuse(&[
        ("{a: {$regex: 1}}", 2, "$regex has to be a string"),
        (
            "{a: {$regex: 'x', $options: 1}}",
            2,
            "$options has to be a string",
        ),
        ("{a: {$options: 'i'}}", 2, "$options needs a $regex"),
        (
            "{a: {$regex: 'x', $options: 'g'}}",
            51108,
            "invalid flag in regex options: g",
        ),
        (
            "{a: {$regex: /x/i, $options: 'm'}}",
            51075,
            "options set in both $regex and $options",
        ),
        (
            "{a: {$regex: 'a\\0b'}}",
            2,
            "Regular expression cannot contain an embedded null byte",
        ),
    ]);
    let error = Filter::parse(&json("{a: {$regex: '('}}")).unwrap_err();
    assert_eq!(error.code().code(), 51091);
    assert!(
        error
            .message()
            .starts_with("Regular expression is invalid: "),
        "{error}"
    );
}

#[test]
fn a_regular_expression_that_runs_away_is_an_error() {
    let filter = Filter::parse(&json("{a: /^(?=(a+)+$)(a|a)*\\1b/}")).unwrap();
    let mut doc = frond_bson::DocBuf::new();
    doc.push("a", &"a".repeat(64));
    assert_eq!(
        filter.try_matches(&doc).unwrap_err().code().code(),
        5_073_414
    );
    assert!(!filter.matches(&doc));
}

#[test]
fn bits() {
    check(&[
        (
            "{a: {$bitsAllSet: 6}}",
            &["{a: 7}", "{a: 6.0}", "{a: NumberLong(14)}"],
            &["{a: 2}", "{a: 6.5}", "{a: 'x'}", "{}"],
        ),
        ("{a: {$bitsAllSet: [1, 2]}}", &["{a: 6}"], &["{a: 4}"]),
        (
            "{a: {$bitsAllClear: [1, 2]}}",
            &["{a: 9}", "{a: 0}"],
            &["{a: 2}"],
        ),
        ("{a: {$bitsAnySet: 6}}", &["{a: 2}", "{a: 4}"], &["{a: 9}"]),
        (
            "{a: {$bitsAnyClear: 6}}",
            &["{a: 2}", "{a: 0}"],
            &["{a: 6}"],
        ),
        // sign extension
        ("{a: {$bitsAllSet: [63, 200]}}", &["{a: -1}"], &["{a: 1}"]),
        (
            "{a: {$bitsAllClear: [200]}}",
            &["{a: 1}", "{a: BinData(0, 'ff')}"],
            &["{a: -1}"],
        ),
        // bytes from the least significant
        (
            "{a: {$bitsAllSet: BinData(0, '0001')}}",
            &["{a: 256}", "{a: BinData(0, '0001')}"],
            &["{a: 1}"],
        ),
        (
            "{a: {$bitsAllSet: [8]}}",
            &["{a: BinData(0, '0001')}"],
            &["{a: BinData(0, '01')}"],
        ),
        ("{a: {$bitsAllSet: []}}", &["{a: 1}"], &["{a: 'x'}"]),
        ("{a: {$bitsAnySet: []}}", &[], &["{a: 1}"]),
    ]);
    refuse(&[
        (
            "{a: {$bitsAllSet: 'x'}}",
            2,
            "$bitsAllSet takes an Array, a number, or a BinData but received: $bitsAllSet: \"x\"",
        ),
        (
            "{a: {$bitsAnySet: 1.5}}",
            9,
            "Expected an integer: $bitsAnySet: 1.5",
        ),
        (
            "{a: {$bitsAnyClear: -1}}",
            9,
            "Expected a non-negative number in: $bitsAnyClear: -1",
        ),
        (
            "{a: {$bitsAllClear: [-1]}}",
            2,
            "Failed to parse bit position. Expected a non-negative number in: 0: -1",
        ),
    ]);
}

#[test]
fn unknown_and_unsupported_operators() {
    refuse(&[
        ("{a: {$foo: 1}}", 2, "unknown operator: $foo"),
        ("{a: {$and: [{}]}}", 2, "unknown operator: $and"),
        ("{a: {$gt: 1, b: 2}}", 2, "unknown operator: b"),
        (
            "{a: {$where: 'x'}}",
            2,
            "$where cannot be applied to a field",
        ),
        (
            "{$foo: 1}",
            2,
            "unknown top level operator: $foo. If you have a field name that starts with a '$' \
             symbol, consider using $getField or $setField.",
        ),
        (
            "{$or: [{$gt: 1}]}",
            2,
            "unknown top level operator: $gt. If you have a field name that starts with a '$' \
             symbol, consider using $getField or $setField.",
        ),
        (
            "{$where: 'x'}",
            238,
            "The query operator '$where' is not supported by this server",
        ),
        (
            "{a: {$near: [1, 2]}}",
            238,
            "The query operator '$near' is not supported by this server",
        ),
    ]);
}

#[test]
fn nesting_is_bounded() {
    fn nested(depth: usize) -> frond_bson::DocBuf {
        (0..depth).fold(json("{a: 1}"), |inner, _| {
            let mut outer = frond_bson::DocBuf::new();
            outer.push_array("$and", |clauses| clauses.push(&inner));
            outer
        })
    }
    assert!(
        Filter::parse(&nested(150))
            .unwrap()
            .matches(&json("{a: 1}"))
    );
    let error = Filter::parse(&nested(250)).unwrap_err();
    assert_eq!(error.code().code(), 15);
}

#[test]
fn positional_index() {
    for (filter, document, expected) in [
        ("{a: 5}", "{a: [4, 5]}", Some(1)),
        ("{a: 5}", "{a: 5}", None),
        ("{a: 6}", "{a: [4, 5]}", None),
        ("{a: [4, 5]}", "{a: [4, 5]}", None),
        ("{'a.b': 5}", "{a: [{b: 4}, {b: [1, 5]}]}", Some(1)),
        ("{'a.b': 5}", "{a: {b: [1, 5]}}", Some(1)),
        ("{'a.1': 5}", "{a: [4, 5]}", None),
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
        ("{a: 5, b: 1}", "{a: [4, 5], b: 1}", Some(1)),
        ("{a: 5, b: 1}", "{a: [4, 5], b: [1]}", Some(0)),
        ("{a: {$not: {$gt: 5}}}", "{a: [4, 5]}", None),
        ("{$or: [{a: 9}, {b: 7}]}", "{a: [4, 5], b: [1, 7]}", Some(1)),
        ("{$or: [{a: 5, c: 1}, {b: 1}]}", "{a: [4, 5], b: 1}", None),
        ("{a: {$in: [5]}}", "{a: [4, 5]}", Some(1)),
        ("{a: {$all: [4, 5]}}", "{a: [4, 5]}", Some(1)),
        ("{a: {$size: 2}}", "{a: [4, 5]}", None),
    ] {
        let parsed = Filter::parse(&json(filter)).unwrap();
        let document = json(document);
        assert_eq!(
            parsed.match_positional(&document),
            expected,
            "{filter} on {document:?}"
        );
        assert_eq!(
            parsed.run(&document).unwrap(),
            (parsed.matches(&document), expected)
        );
    }
}

#[test]
fn equalities_are_found() {
    for (filter, path, expected) in [
        ("{_id: 5}", "_id", Some("5")),
        ("{_id: {$eq: 'x'}, a: 1}", "_id", Some("\"x\"")),
        (
            "{$and: [{a: 1}, {$and: [{_id: 7}, {b: 1}]}]}",
            "_id",
            Some("7"),
        ),
        ("{_id: {$gt: 5}}", "_id", None),
        ("{$or: [{_id: 5}, {_id: 6}]}", "_id", None),
        ("{_id: {$ne: 5}}", "_id", None),
        ("{_id: /x/}", "_id", None),
    ] {
        let parsed = Filter::parse(&json(filter)).unwrap();
        let found = parsed
            .equality(path)
            .map(|value| crate::testing::show(&value));
        assert_eq!(found.as_deref(), expected, "{filter}");
    }
    assert!(Filter::all().is_empty() && !Filter::parse(&json("{a: 1}")).unwrap().is_empty());
}
