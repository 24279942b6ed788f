//! `$group` with every accumulator, `$bucket`.

use super::*;

const INPUT: &str = "[{_id: 1, k: 'x', v: 5, o: {a: 1}}, {_id: 2, k: 'y', v: 2.5, o: {b: 2}}, {_id: 3, k: 'x', v: 1, o: {a: 3}}, {_id: 4, v: null}, {_id: 5, k: null, v: 'text'}]";

#[test]
fn groups_by_expression() {
    check(
        INPUT,
        &[
            (
                "[{$group: {_id: '$k', n: {$sum: 1}}}]",
                "[{_id: 'x', n: 2}, {_id: 'y', n: 1}, {_id: null, n: 2}]",
            ),
            (
                "[{$group: {_id: null, n: {$count: {}}}}]",
                "[{_id: null, n: 5}]",
            ),
            (
                "[{$group: {_id: 1, ids: {$push: '$_id'}}}]",
                "[{_id: 1, ids: [1, 2, 3, 4, 5]}]",
            ),
            (
                "[{$group: {_id: {k: '$k', odd: {$mod: ['$_id', 2]}}}}]",
                "[{_id: {k: 'x', odd: 1}}, {_id: {k: 'y', odd: 0}}, {_id: {odd: 0}}, {_id: {k: null, odd: 1}}]",
            ),
            ("[{$group: {_id: '$none'}}]", "[{_id: null}]"),
            (
                "[{$match: {_id: 99}}, {$group: {_id: null, n: {$sum: 1}}}]",
                "[]",
            ),
        ],
    );
    // Equal numbers of different types are one group, named by the first.
    check(
        "[{a: 1}, {a: 1.0}, {a: NumberLong(1)}, {a: '1'}]",
        &[(
            "[{$group: {_id: '$a', n: {$sum: 1}}}]",
            "[{_id: 1, n: 3}, {_id: '1', n: 1}]",
        )],
    );
}

#[test]
fn accumulators() {
    check(
        INPUT,
        &[
            (
                "[{$group: {_id: null, s: {$sum: '$v'}, a: {$avg: '$v'}}}]",
                "[{_id: null, s: 8.5, a: 2.8333333333333335}]",
            ),
            (
                "[{$group: {_id: '$k', s: {$sum: '$v'}}}]",
                "[{_id: 'x', s: 6}, {_id: 'y', s: 2.5}, {_id: null, s: 0}]",
            ),
            (
                "[{$group: {_id: null, lo: {$min: '$v'}, hi: {$max: '$v'}}}]",
                "[{_id: null, lo: 1, hi: 'text'}]",
            ),
            (
                "[{$group: {_id: null, f: {$first: '$v'}, l: {$last: '$k'}}}]",
                "[{_id: null, f: 5, l: null}]",
            ),
            (
                "[{$group: {_id: null, p: {$push: '$k'}}}]",
                "[{_id: null, p: ['x', 'y', 'x', null]}]",
            ),
            (
                "[{$group: {_id: null, p: {$push: {k: '$k', v: '$v'}}}}, {$project: {p: {$slice: ['$p', 2]}}}]",
                "[{_id: null, p: [{k: 'x', v: 5}, {k: 'y', v: 2.5}]}]",
            ),
            (
                "[{$group: {_id: null, s: {$addToSet: '$k'}}}]",
                "[{_id: null, s: ['x', 'y', null]}]",
            ),
            (
                "[{$group: {_id: null, m: {$mergeObjects: '$o'}}}]",
                "[{_id: null, m: {a: 3, b: 2}}]",
            ),
            (
                "[{$match: {k: 'x'}}, {$group: {_id: null, p: {$stdDevPop: '$v'}, q: {$stdDevSamp: '$v'}}}]",
                "[{_id: null, p: 2.0, q: 2.8284271247461903}]",
            ),
            (
                "[{$group: {_id: null, a: {$avg: '$k'}, d: {$stdDevPop: '$k'}, n: {$min: '$none'}}}]",
                "[{_id: null, a: null, d: null, n: null}]",
            ),
            (
                "[{$group: {_id: null, f: {$firstN: {n: 2, input: '$_id'}}, l: {$lastN: {n: 2, input: '$_id'}}}}]",
                "[{_id: null, f: [1, 2], l: [4, 5]}]",
            ),
            (
                "[{$group: {_id: null, lo: {$minN: {n: 2, input: '$v'}}, hi: {$maxN: {n: 2, input: '$v'}}}}]",
                "[{_id: null, lo: [1, 2.5], hi: ['text', 5]}]",
            ),
            (
                "[{$group: {_id: null, t: {$top: {sortBy: {_id: -1}, output: '$_id'}}, b: {$bottom: {sortBy: {_id: -1}, output: ['$_id', '$k']}}}}]",
                "[{_id: null, t: 5, b: [1, 'x']}]",
            ),
            (
                "[{$group: {_id: {k: '$k'}, f: {$firstN: {n: {$cond: [{$eq: ['$k', 'x']}, 2, 1]}, input: '$_id'}}}}, {$match: {'_id.k': 'x'}}, {$project: {_id: 0, n: {$size: '$f'}}}]",
                "[{n: 2}]",
            ),
            (
                "[{$group: {_id: null, t: {$topN: {n: 2, sortBy: {_id: -1}, output: '$_id'}}, b: {$bottomN: {n: 2, sortBy: {_id: -1}, output: '$_id'}}}}]",
                "[{_id: null, t: [5, 4], b: [2, 1]}]",
            ),
        ],
    );
}

#[test]
fn sums_widen_and_averages_are_doubles() {
    check(
        "[{a: 2147483647, b: NumberLong(1), c: NumberDecimal('0.1')}, {a: 1, b: 1, c: 1}]",
        &[
            (
                "[{$group: {_id: null, a: {$sum: '$a'}, b: {$sum: '$b'}, c: {$sum: '$c'}}}]",
                "[{_id: null, a: NumberLong(2147483648), b: NumberLong(2), c: NumberDecimal('1.1')}]",
            ),
            (
                "[{$group: {_id: null, a: {$avg: '$b'}, c: {$avg: '$c'}}}]",
                "[{_id: null, a: 1.0, c: NumberDecimal('0.55')}]",
            ),
        ],
    );
}

#[test]
fn group_errors() {
    check_errors(
        INPUT,
        &[
            ("[{$group: 1}]", 15947, "object"),
            (
                "[{$group: {a: {$sum: 1}}}]",
                15955,
                "a group specification must include an _id",
            ),
            (
                "[{$group: {_id: null, a: 1}}]",
                40234,
                "The field 'a' must be an accumulator object",
            ),
            (
                "[{$group: {_id: null, a: {$foo: 1}}}]",
                15952,
                "unknown group operator '$foo'",
            ),
            (
                "[{$group: {_id: null, a: {$sum: 1, $avg: 1}}}]",
                40238,
                "must specify one accumulator",
            ),
            (
                "[{$group: {_id: null, 'a.b': {$sum: 1}}}]",
                40235,
                "The field name 'a.b' cannot contain '.'",
            ),
            (
                "[{$group: {_id: null, $a: {$sum: 1}}}]",
                40236,
                "operator name",
            ),
            (
                "[{$group: {_id: null, a: {$sum: [1, 2]}}}]",
                40237,
                "The $sum accumulator is a unary operator",
            ),
            (
                "[{$group: {_id: null, a: {$count: 1}}}]",
                14,
                "no arguments",
            ),
            (
                "[{$group: {_id: null, a: {$mergeObjects: '$_id'}}}]",
                40400,
                "object inputs",
            ),
            (
                "[{$group: {_id: null, a: {$percentile: {}}}}]",
                40414,
                "$percentile",
            ),
            (
                "[{$group: {_id: null, a: {$firstN: {n: 0, input: 1}}}}]",
                5787908,
                "greater than 0",
            ),
            (
                "[{$group: {_id: null, a: {$firstN: {input: 1}}}}]",
                5787906,
                "'n'",
            ),
            (
                "[{$group: {_id: null, a: {$topN: {n: 1, output: 1}}}}]",
                5788005,
                "sortBy",
            ),
            ("[{$group: {_id: {$foo: 1}}}]", 168, "$foo"),
        ],
    );
}

#[test]
fn buckets() {
    let input = "[{_id: 1, p: 5}, {_id: 2, p: 25}, {_id: 3, p: 10}, {_id: 4, p: 99}, {_id: 5}]";
    check(
        input,
        &[
            (
                "[{$bucket: {groupBy: '$p', boundaries: [0, 10, 50], default: 'other'}}]",
                "[{_id: 0, count: 1}, {_id: 10, count: 2}, {_id: 'other', count: 2}]",
            ),
            (
                "[{$match: {p: {$lt: 50}}}, {$bucket: {groupBy: '$p', boundaries: [0, 10, 50], output: {ids: {$push: '$_id'}}}}]",
                "[{_id: 0, ids: [1]}, {_id: 10, ids: [2, 3]}]",
            ),
        ],
    );
    check_errors(
        input,
        &[
            (
                "[{$bucket: {groupBy: '$p', boundaries: [0, 10]}}]",
                40066,
                "$switch",
            ),
            (
                "[{$bucket: {groupBy: '$p', boundaries: [0]}}]",
                40192,
                "at least 2 values, but found 1",
            ),
            (
                "[{$bucket: {groupBy: '$p', boundaries: [0, 'x']}}]",
                40193,
                "same type",
            ),
            (
                "[{$bucket: {groupBy: '$p', boundaries: [5, 5]}}]",
                40194,
                "sorted",
            ),
            (
                "[{$bucket: {groupBy: '$p', boundaries: ['$a', 5]}}]",
                40191,
                "constant",
            ),
            (
                "[{$bucket: {groupBy: '$p', boundaries: [0, 9], default: 5}}]",
                40199,
                "default",
            ),
            (
                "[{$bucket: {groupBy: 'p', boundaries: [0, 9]}}]",
                40202,
                "$-prefixed",
            ),
            ("[{$bucket: {groupBy: '$p'}}]", 40198, "boundaries"),
            (
                "[{$bucket: {groupBy: '$p', boundaries: [0, 9], x: 1}}]",
                40197,
                "x",
            ),
            ("[{$bucket: 1}]", 40201, "int"),
        ],
    );
}
