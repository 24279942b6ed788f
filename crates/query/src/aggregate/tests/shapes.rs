//! `$redact`, `$bucketAuto`, `$densify`, `$fill`, percentiles, and stages that are refused.

use super::*;

#[test]
fn redacting_level_by_level() {
    let input = "[{_id: 1, tags: ['G'], a: {tags: ['S'], x: 1}, b: [{tags: ['G'], y: 2}, {tags: ['S']}, 5]}, {_id: 2, tags: ['S']}]";
    check(
        input,
        &[
            (
                "[{$redact: {$cond: [{$in: ['G', '$tags']}, '$$DESCEND', '$$PRUNE']}}]",
                "[{_id: 1, tags: ['G'], b: [{tags: ['G'], y: 2}, 5]}]",
            ),
            (
                "[{$redact: {$cond: [{$eq: ['$_id', 2]}, '$$KEEP', '$$PRUNE']}}]",
                "[{_id: 2, tags: ['S']}]",
            ),
            // `$$ROOT` stays the whole document.
            (
                "[{$match: {_id: 1}}, {$project: {b: 0}}, {$redact: {$cond: [{$eq: ['$$ROOT._id', 1]}, {$cond: [{$eq: ['$x', 1]}, '$$PRUNE', '$$DESCEND']}, '$$PRUNE']}}]",
                "[{_id: 1, tags: ['G']}]",
            ),
        ],
    );
    check_errors(
        input,
        &[
            ("[{$redact: 'x'}]", 17053, "but returned \"x\""),
            ("[{$redact: '$none'}]", 17053, "MISSING"),
            ("[{$set: {a: '$$PRUNE'}}]", 17276, "PRUNE"),
        ],
    );
}

#[test]
fn buckets_that_are_equally_full() {
    let input = "[{v: 1}, {v: 2}, {v: 2}, {v: 3}, {v: 4}, {v: 5}, {v: 8}]";
    check(
        input,
        &[
            (
                "[{$bucketAuto: {groupBy: '$v', buckets: 3}}]",
                "[{_id: {min: 1, max: 3}, count: 3}, {_id: {min: 3, max: 5}, count: 2}, {_id: {min: 5, max: 8}, count: 2}]",
            ),
            (
                "[{$bucketAuto: {groupBy: '$v', buckets: 2, output: {n: {$sum: 1}, all: {$push: '$v'}}}}]",
                "[{_id: {min: 1, max: 4}, n: 4, all: [1, 2, 2, 3]}, {_id: {min: 4, max: 8}, n: 3, all: [4, 5, 8]}]",
            ),
            (
                "[{$bucketAuto: {groupBy: '$v', buckets: 2, granularity: 'POWERSOF2'}}]",
                "[{_id: {min: 0.5, max: 4.0}, count: 4}, {_id: {min: 4.0, max: 16.0}, count: 3}]",
            ),
            (
                "[{$bucketAuto: {groupBy: '$v', buckets: 20}}, {$count: 'n'}]",
                "[{n: 6}]",
            ),
            (
                "[{$match: {v: 99}}, {$bucketAuto: {groupBy: '$v', buckets: 2}}]",
                "[]",
            ),
        ],
    );
    check(
        "[{v: 0}, {v: 0}, {v: 3}, {v: 7}]",
        &[(
            "[{$bucketAuto: {groupBy: '$v', buckets: 2, granularity: '1-2-5'}}]",
            "[{_id: {min: 0, max: 2.0}, count: 2}, {_id: {min: 2.0, max: 10.0}, count: 2}]",
        )],
    );
    check_errors(
        input,
        &[
            ("[{$bucketAuto: 1}]", 40240, "int"),
            (
                "[{$bucketAuto: {groupBy: 'v', buckets: 1}}]",
                40239,
                "'groupBy'",
            ),
            (
                "[{$bucketAuto: {groupBy: '$v', buckets: 'x'}}]",
                40241,
                "numeric",
            ),
            (
                "[{$bucketAuto: {groupBy: '$v', buckets: 1.5}}]",
                40242,
                "32-bit",
            ),
            (
                "[{$bucketAuto: {groupBy: '$v', buckets: 0}}]",
                40243,
                "greater than 0",
            ),
            (
                "[{$bucketAuto: {groupBy: '$v', buckets: 1, output: 1}}]",
                40244,
                "'output'",
            ),
            (
                "[{$bucketAuto: {groupBy: '$v', buckets: 1, x: 1}}]",
                40245,
                "x",
            ),
            ("[{$bucketAuto: {groupBy: '$v'}}]", 40246, "requires"),
            (
                "[{$bucketAuto: {groupBy: '$v', buckets: 1, granularity: 1}}]",
                40261,
                "string",
            ),
            (
                "[{$bucketAuto: {groupBy: '$v', buckets: 1, granularity: 'x'}}]",
                40257,
                "x",
            ),
            (
                "[{$bucketAuto: {groupBy: '$none', buckets: 1, granularity: 'R5'}}]",
                40258,
                "null",
            ),
            (
                "[{$set: {v: -1}}, {$bucketAuto: {groupBy: '$v', buckets: 1, granularity: 'R5'}}]",
                40260,
                "negative",
            ),
        ],
    );
}

#[test]
fn densifying_numbers() {
    let input = "[{_id: 1, v: 1, p: 'a'}, {_id: 2, v: 4, p: 'a'}, {_id: 3, v: 2.5, p: 'b'}, {_id: 4, p: 'a'}]";
    check(
        input,
        &[
            (
                "[{$densify: {field: 'v', range: {step: 1, bounds: 'full'}}}]",
                "[{_id: 4, p: 'a'}, {_id: 1, v: 1, p: 'a'}, {v: 2}, {_id: 3, v: 2.5, p: 'b'}, {v: 3}, {_id: 2, v: 4, p: 'a'}]",
            ),
            (
                "[{$match: {v: {$gt: 0}}}, {$densify: {field: 'v', partitionByFields: ['p'], range: {step: 1, bounds: 'partition'}}}]",
                "[{_id: 1, v: 1, p: 'a'}, {p: 'a', v: 2}, {p: 'a', v: 3}, {_id: 2, v: 4, p: 'a'}, {_id: 3, v: 2.5, p: 'b'}]",
            ),
            (
                "[{$match: {v: {$gt: 0}}}, {$densify: {field: 'v', partitionByFields: ['p'], range: {step: 1, bounds: 'full'}}}]",
                "[{_id: 1, v: 1, p: 'a'}, {p: 'b', v: 1}, {p: 'b', v: 2}, {_id: 3, v: 2.5, p: 'b'}, {p: 'a', v: 2}, {p: 'a', v: 3}, {_id: 2, v: 4, p: 'a'}, {p: 'b', v: 3}, {p: 'b', v: 4}]",
            ),
            (
                "[{$match: {p: 'a', v: {$gt: 0}}}, {$densify: {field: 'v', range: {step: 2, bounds: [0, 8]}}}]",
                "[{v: 0}, {_id: 1, v: 1, p: 'a'}, {v: 2}, {_id: 2, v: 4, p: 'a'}, {v: 6}]",
            ),
            (
                "[{$match: {_id: 99}}, {$densify: {field: 'a.b', range: {step: 1, bounds: [0, 2]}}}]",
                "[{a: {b: 0}}, {a: {b: 1}}]",
            ),
        ],
    );
    check_errors(
        input,
        &[
            ("[{$densify: 1}]", 9, "object"),
            ("[{$densify: {field: 'v'}}]", 40414, "range"),
            (
                "[{$densify: {field: 1, range: {step: 1, bounds: 'full'}}}]",
                14,
                "$densify.field",
            ),
            (
                "[{$densify: {field: 'v', x: 1, range: {step: 1, bounds: 'full'}}}]",
                40415,
                "x",
            ),
            (
                "[{$densify: {field: 'v', range: {step: 0, bounds: 'full'}}}]",
                5733401,
                "positive",
            ),
            (
                "[{$densify: {field: 'v', range: {step: 1, bounds: 'all'}}}]",
                5946802,
                "'full'",
            ),
            (
                "[{$densify: {field: 'v', range: {step: 1, bounds: [2, 1]}}}]",
                5733402,
                "ascending",
            ),
            (
                "[{$densify: {field: 'v', range: {step: 1, bounds: [1]}}}]",
                5733403,
                "two",
            ),
            (
                "[{$densify: {field: 'v', range: {step: 1, bounds: 1}}}]",
                5733404,
                "bounds",
            ),
            (
                "[{$densify: {field: 'v', range: {step: 1.5, bounds: [1, 2]}}}]",
                5876900,
                "same type",
            ),
            (
                "[{$densify: {field: 'v', range: {step: 1, bounds: 'partition'}}}]",
                5733408,
                "partitionByFields",
            ),
            (
                "[{$densify: {field: 'v', range: {step: 1.5, bounds: 'full', unit: 'day'}}}]",
                6586400,
                "whole",
            ),
            (
                "[{$densify: {field: 'v', range: {step: 1, bounds: [1, 2], unit: 'day'}}}]",
                5733409,
                "unit",
            ),
            (
                "[{$densify: {field: 'v', range: {step: 1, bounds: 'full', unit: 'day'}}}]",
                6053600,
                "unit",
            ),
            (
                "[{$densify: {field: 'p', range: {step: 1, bounds: 'full'}}}]",
                5733201,
                "string",
            ),
            (
                "[{$densify: {field: 'v', range: {step: 1, bounds: [0, 600000]}}}]",
                5897900,
                "limit",
            ),
        ],
    );
}

#[test]
fn densifying_dates() {
    // 2024-01-30, 2024-02-02 and 2024-03-30.
    check(
        "[{d: Date(1706572800000)}, {d: Date(1706832000000)}]",
        &[(
            "[{$densify: {field: 'd', range: {step: 1, unit: 'day', bounds: 'full'}}}]",
            "[{d: Date(1706572800000)}, {d: Date(1706659200000)}, {d: Date(1706745600000)}, {d: Date(1706832000000)}]",
        )],
    );
    check(
        "[{d: Date(1706572800000)}, {d: Date(1711756800000)}]",
        &[(
            "[{$densify: {field: 'd', range: {step: 1, unit: 'month', bounds: 'full'}}}, {$project: {m: {$dateToString: {date: '$d', format: '%m-%d'}}}}]",
            "[{m: '01-30'}, {m: '02-29'}, {m: '03-29'}, {m: '03-30'}]",
        )],
    );
    check_errors(
        "[{d: Date(0)}]",
        &[
            (
                "[{$densify: {field: 'd', range: {step: 1, bounds: 'full'}}}]",
                6053600,
                "date",
            ),
            (
                "[{$densify: {field: 'd', range: {step: 1, bounds: [Date(0), Date(1)]}}}]",
                5733410,
                "unit",
            ),
        ],
    );
}

#[test]
fn filling_gaps() {
    let input = "[{t: 1, v: 2, w: 'x'}, {t: 2, v: null}, {t: 3}, {t: 4, v: 8, w: null}]";
    check(
        input,
        &[
            (
                "[{$fill: {sortBy: {t: 1}, output: {v: {method: 'linear'}, w: {method: 'locf'}}}}]",
                "[{t: 1, v: 2, w: 'x'}, {t: 2, v: 4.0, w: 'x'}, {t: 3, v: 6.0, w: 'x'}, {t: 4, v: 8, w: 'x'}]",
            ),
            (
                "[{$fill: {output: {v: {value: 0}, w: {value: '$t'}}}}]",
                "[{t: 1, v: 2, w: 'x'}, {t: 2, v: 0, w: 2}, {t: 3, v: 0, w: 3}, {t: 4, v: 8, w: 4}]",
            ),
            (
                "[{$fill: {sortBy: {t: 1}, partitionByFields: ['w'], output: {v: {method: 'locf'}}}}, {$sort: {t: 1}}]",
                "[{t: 1, v: 2, w: 'x'}, {t: 2, v: null}, {t: 3, v: null}, {t: 4, v: 8, w: null}]",
            ),
        ],
    );
    check_errors(
        input,
        &[
            ("[{$fill: 1}]", 9, "object"),
            ("[{$fill: {}}]", 40414, "output"),
            ("[{$fill: {output: {}}}]", 6050203, "at least one"),
            ("[{$fill: {output: {v: 1}}}]", 6050200, "exactly one"),
            (
                "[{$fill: {output: {v: {method: 'locf', value: 1}}}}]",
                6050201,
                "not both",
            ),
            (
                "[{$fill: {output: {v: {method: 'magic'}}}}]",
                6050202,
                "locf",
            ),
            (
                "[{$fill: {output: {v: {method: 'linear'}}}}]",
                605001,
                "sortBy",
            ),
            (
                "[{$fill: {partitionBy: '$t', partitionByFields: ['t'], output: {v: {method: 'locf'}}}}]",
                6050204,
                "partitionBy",
            ),
        ],
    );
}

#[test]
fn percentiles() {
    let input = "[{v: 1}, {v: 2}, {v: 3}, {v: 10}, {v: 'x'}, {v: null}]";
    check(
        input,
        &[
            (
                "[{$group: {_id: null, m: {$median: {input: '$v', method: 'approximate'}}, p: {$percentile: {input: '$v', p: [0.25, 0.9, 0, 1], method: 'approximate'}}}}]",
                "[{_id: null, m: 2.0, p: [1.0, 10.0, 1.0, 10.0]}]",
            ),
            (
                "[{$match: {v: 'x'}}, {$group: {_id: null, m: {$median: {input: '$v', method: 'approximate'}}, p: {$percentile: {input: '$v', p: [0.5], method: 'approximate'}}}}]",
                "[{_id: null, m: null, p: [null]}]",
            ),
            (
                "[{$limit: 1}, {$project: {_id: 0, m: {$median: {input: [4, 1, 9], method: 'approximate'}}, p: {$percentile: {input: '$v', p: [{$add: [0.1, 0.2]}], method: 'approximate'}}}}]",
                "[{m: 4.0, p: [1.0]}]",
            ),
        ],
    );
    check_errors(
        input,
        &[
            (
                "[{$group: {_id: 1, p: {$percentile: 1}}}]",
                7429703,
                "object",
            ),
            (
                "[{$group: {_id: 1, p: {$percentile: {input: 1, method: 'approximate'}}}}]",
                40414,
                "p",
            ),
            (
                "[{$group: {_id: 1, p: {$percentile: {input: 1, p: [0.5], method: 'x'}}}}]",
                2,
                "approximate",
            ),
            (
                "[{$group: {_id: 1, p: {$percentile: {input: 1, p: ['$v'], method: 'approximate'}}}}]",
                7750300,
                "constant",
            ),
            (
                "[{$group: {_id: 1, p: {$percentile: {input: 1, p: [], method: 'approximate'}}}}]",
                7750301,
                "array",
            ),
            (
                "[{$group: {_id: 1, p: {$percentile: {input: 1, p: ['x'], method: 'approximate'}}}}]",
                7750302,
                "numbers",
            ),
            (
                "[{$group: {_id: 1, p: {$percentile: {input: 1, p: [NaN], method: 'approximate'}}}}]",
                7750303,
                "NaN",
            ),
            (
                "[{$group: {_id: 1, p: {$median: {input: 1, p: [0.5], method: 'approximate'}}}}]",
                40415,
                "p",
            ),
            (
                "[{$group: {_id: 1, p: {$accumulator: {}}}}]",
                4544707,
                "init",
            ),
        ],
    );
}

#[test]
fn stages_of_other_servers() {
    check_errors(
        "[]",
        &[
            ("[{$changeStream: {}}]", 40573, "replica sets"),
            ("[{$search: {}}]", 31082, "$search"),
            ("[{$vectorSearch: {}}]", 31082, "$vectorSearch"),
        ],
    );
}
