//! Conditions on single values.

use super::*;

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
            &["{a: null}", "{}", "{a: [1, null]}"],
            &[
                "{a: 0}",
                "{a: false}",
                "{a: []}",
                "{a: undefined}",
                "{a: [1, undefined]}",
            ],
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
            &["{a: null}", "{}"],
            &["{a: 1}", "{a: undefined}"],
        ),
        (
            "{a: {$lte: null}}",
            &["{a: null}", "{}"],
            &["{a: 1}", "{a: undefined}"],
        ),
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
            &["{}", "{a: null}"],
            &["{a: 1}", "{a: []}", "{a: undefined}"],
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
