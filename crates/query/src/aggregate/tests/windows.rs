//! `$setWindowFields` as tables: outputs over the same documents, and the values that come out.

use super::*;

const INPUT: &str = "[{_id: 1, g: 'a', t: 1, v: 3}, {_id: 2, g: 'a', t: 2, v: 1}, {_id: 3, g: 'b', t: 3, v: 5}, {_id: 4, g: 'a', t: 4, v: 1}, {_id: 5, g: 'a', t: 7}]";

/// Each case is an output, and its values in the order of `t`.
fn check_outputs(options: &str, cases: &[(&str, &str)]) {
    for (output, expected) in cases {
        let stages = format!(
            "[{{$setWindowFields: {{{options}, output: {{r: {output}}}}}}}, {{$sort: {{t: 1}}}}]"
        );
        let found = run(INPUT, &stages).unwrap_or_else(|error| panic!("{output}: {error}"));
        let found: frond_bson::ArrayBuf = found
            .iter()
            .map(|doc| doc.get("r").unwrap_or(Value::String("missing")))
            .collect();
        assert_eq!(
            frond_bson::extjson::to_canonical(&frond_bson::doc! {"r": &found}),
            frond_bson::extjson::to_canonical(&frond_bson::doc! {"r": &value(expected)}),
            "{output}"
        );
    }
}

#[test]
fn windows_of_documents() {
    check_outputs(
        "sortBy: {t: 1}",
        &[
            ("{$sum: '$v'}", "[10, 10, 10, 10, 10]"),
            (
                "{$sum: '$v', window: {documents: ['unbounded', 'current']}}",
                "[3, 4, 9, 10, 10]",
            ),
            (
                "{$sum: '$v', window: {documents: [-1, 1]}}",
                "[4, 9, 7, 6, 1]",
            ),
            (
                "{$sum: '$v', window: {documents: [1, 2]}}",
                "[6, 6, 1, 0, 0]",
            ),
            (
                "{$sum: '$v', window: {documents: [-3, -2]}}",
                "[0, 0, 3, 4, 6]",
            ),
            (
                "{$sum: '$v', window: {documents: ['current', 'unbounded']}}",
                "[10, 7, 6, 1, 0]",
            ),
            (
                "{$avg: '$v', window: {documents: [-1, 0]}}",
                "[3.0, 2.0, 3.0, 3.0, 1.0]",
            ),
            (
                "{$avg: '$v', window: {documents: [2, 3]}}",
                "[3.0, 1.0, null, null, null]",
            ),
            (
                "{$min: '$v', window: {documents: [-1, 1]}}",
                "[1, 1, 1, 1, 1]",
            ),
            (
                "{$max: '$v', window: {documents: [-1, 0]}}",
                "[3, 3, 5, 5, 1]",
            ),
            (
                "{$count: {}, window: {documents: [-1, 1]}}",
                "[2, 3, 3, 3, 2]",
            ),
            (
                "{$push: '$v', window: {documents: [-1, 0]}}",
                "[[3], [3, 1], [1, 5], [5, 1], [1]]",
            ),
            (
                "{$addToSet: '$v', window: {documents: [-2, 0]}}",
                "[[3], [1, 3], [1, 3, 5], [1, 5], [1, 5]]",
            ),
            (
                "{$first: '$v', window: {documents: [-1, 0]}}",
                "[3, 3, 1, 5, 1]",
            ),
            (
                "{$last: '$v', window: {documents: [-1, 1]}}",
                "[1, 5, 1, null, null]",
            ),
            (
                "{$first: '$v', window: {documents: [2, 2]}}",
                "[5, 1, null, null, null]",
            ),
            (
                "{$firstN: {n: 2, input: '$_id'}, window: {documents: [-1, 1]}}",
                "[[1, 2], [1, 2], [2, 3], [3, 4], [4, 5]]",
            ),
            (
                "{$lastN: {n: 1, input: '$_id'}, window: {documents: [-1, 1]}}",
                "[[2], [3], [4], [5], [5]]",
            ),
            (
                "{$minN: {n: 2, input: '$v'}, window: {documents: [-2, 0]}}",
                "[[3], [1, 3], [1, 3], [1, 1], [1, 5]]",
            ),
            (
                "{$maxN: {n: 2, input: '$v'}, window: {documents: [-2, 0]}}",
                "[[3], [3, 1], [5, 3], [5, 1], [5, 1]]",
            ),
            (
                "{$top: {sortBy: {v: -1}, output: '$_id'}, window: {documents: [-1, 1]}}",
                "[1, 3, 3, 3, 4]",
            ),
            (
                "{$bottomN: {n: 2, sortBy: {v: 1}, output: '$_id'}, window: {documents: [-1, 0]}}",
                "[[1], [2, 1], [2, 3], [4, 3], [5, 4]]",
            ),
            (
                "{$stdDevPop: '$v', window: {documents: [-1, 0]}}",
                "[0.0, 1.0, 2.0, 2.0, 0.0]",
            ),
            (
                "{$stdDevSamp: '$v', window: {documents: [0, 0]}}",
                "[null, null, null, null, null]",
            ),
            (
                "{$covariancePop: ['$t', '$v'], window: {documents: [-1, 0]}}",
                "[0.0, -0.5, 1.0, -1.0, 0.0]",
            ),
            (
                "{$covarianceSamp: ['$t', '$v'], window: {documents: [-1, 0]}}",
                "[null, -1.0, 2.0, -2.0, null]",
            ),
            (
                "{$median: {input: '$v', method: 'approximate'}, window: {documents: [-2, 0]}}",
                "[3.0, 1.0, 3.0, 1.0, 1.0]",
            ),
            (
                "{$percentile: {input: '$v', p: [1], method: 'approximate'}, window: {documents: [-1, 0]}}",
                "[[3.0], [3.0], [5.0], [5.0], [1.0]]",
            ),
        ],
    );
}

#[test]
fn windows_of_ranges() {
    check_outputs(
        "sortBy: {t: 1}",
        &[
            ("{$sum: '$v', window: {range: [-1, 0]}}", "[3, 4, 6, 6, 0]"),
            (
                "{$sum: '$v', window: {range: [-3, 3]}}",
                "[10, 10, 10, 10, 1]",
            ),
            (
                "{$sum: '$v', window: {range: ['unbounded', 0.5]}}",
                "[3, 4, 9, 10, 10]",
            ),
            (
                "{$push: '$_id', window: {range: [1, 2]}}",
                "[[2, 3], [3, 4], [4], [], []]",
            ),
            (
                "{$push: '$_id', window: {range: ['current', 'unbounded']}}",
                "[[1, 2, 3, 4, 5], [2, 3, 4, 5], [3, 4, 5], [4, 5], [5]]",
            ),
        ],
    );
    // Dates with a unit: days 1, 2 and 5.
    check(
        "[{d: Date(86400000), v: 1}, {d: Date(172800000), v: 2}, {d: Date(432000000), v: 4}]",
        &[(
            "[{$setWindowFields: {sortBy: {d: 1}, output: {s: {$sum: '$v', window: {range: [-1, 0], unit: 'day'}}}}}, {$project: {s: 1}}]",
            "[{s: 1}, {s: 3}, {s: 4}]",
        )],
    );
}

#[test]
fn partitions_ranks_and_neighbours() {
    check_outputs(
        "partitionBy: '$g', sortBy: {v: 1}",
        &[
            (
                "{$documentNumber: {}}",
                "[NumberLong(4), NumberLong(2), NumberLong(1), NumberLong(3), NumberLong(1)]",
            ),
            (
                "{$rank: {}}",
                "[NumberLong(4), NumberLong(2), NumberLong(1), NumberLong(2), NumberLong(1)]",
            ),
            (
                "{$denseRank: {}}",
                "[NumberLong(3), NumberLong(2), NumberLong(1), NumberLong(2), NumberLong(1)]",
            ),
            ("{$count: {}}", "[4, 4, 1, 4, 4]"),
            ("{$shift: {output: '$_id', by: 1}}", "[null, 4, null, 1, 2]"),
            (
                "{$shift: {output: '$_id', by: -1, default: 'none'}}",
                "[4, 5, 'none', 2, 'none']",
            ),
        ],
    );
    check_outputs(
        "sortBy: {t: 1}",
        &[
            (
                "{$derivative: {input: '$t'}, window: {documents: [-1, 0]}}",
                "[null, 1.0, 1.0, 1.0, 1.0]",
            ),
            (
                "{$expMovingAvg: {input: '$v', N: 3}}",
                "[3.0, 2.0, 3.5, 2.25, 2.25]",
            ),
            (
                "{$expMovingAvg: {input: '$v', alpha: 0.5}}",
                "[3.0, 2.0, 3.5, 2.25, 2.25]",
            ),
            ("{$locf: '$v'}", "[3, 1, 5, 1, 1]"),
            (
                "{$linearFill: {$cond: [{$in: ['$_id', [2, 4]]}, null, '$t']}}",
                "[1, 2.0, 3, 4.0, 7]",
            ),
            (
                "{$integral: {input: '$t'}, window: {documents: [-1, 0]}}",
                "[0, 1.5, 2.5, 3.5, 16.5]",
            ),
            // Decimals stay decimals.
            (
                "{$integral: {input: {$toDecimal: '$t'}}, window: {documents: [-1, 0]}}",
                "[0, NumberDecimal('1.5'), NumberDecimal('2.5'), NumberDecimal('3.5'), NumberDecimal('16.5')]",
            ),
            (
                "{$covariancePop: [{$toDecimal: '$t'}, {$toDecimal: '$v'}], window: {documents: [-1, 0]}}",
                "[NumberDecimal('0'), NumberDecimal('-0.5'), NumberDecimal('1'), NumberDecimal('-1'), NumberDecimal('0')]",
            ),
            (
                "{$covarianceSamp: [{$multiply: ['$t', NumberDecimal('1E-400')]}, {$toDecimal: '$v'}], window: {documents: [-1, 0]}}",
                "[null, NumberDecimal('-1E-400'), NumberDecimal('2E-400'), NumberDecimal('-2E-400'), null]",
            ),
            (
                "{$derivative: {input: {$multiply: ['$t', NumberDecimal('1E-400')]}}, window: {documents: [-1, 0]}}",
                "[null, NumberDecimal('1E-400'), NumberDecimal('1E-400'), NumberDecimal('1E-400'), NumberDecimal('1E-400')]",
            ),
            (
                "{$expMovingAvg: {input: {$toDecimal: '$t'}, alpha: NumberDecimal('1E-400')}}",
                "[NumberDecimal('1'), NumberDecimal('1.000000000000000000000000000000000'), NumberDecimal('1.000000000000000000000000000000000'), NumberDecimal('1.000000000000000000000000000000000'), NumberDecimal('1.000000000000000000000000000000000')]",
            ),
        ],
    );
}

#[test]
fn outputs_go_to_their_paths() {
    check(
        "[{_id: 1, a: {b: 1}}, {_id: 2, a: [{b: 1}, {c: 2}]}]",
        &[
            (
                "[{$setWindowFields: {output: {'a.n': {$count: {}}, m: {$max: '$_id'}}}}]",
                "[{_id: 1, a: {b: 1, n: 2}, m: 2}, {_id: 2, a: [{b: 1, n: 2}, {c: 2, n: 2}], m: 2}]",
            ),
            (
                "[{$setWindowFields: {partitionBy: {$mod: ['$_id', 2]}, output: {}}}, {$count: 'n'}]",
                "[{n: 2}]",
            ),
        ],
    );
}

#[test]
fn window_errors() {
    let stage = |options: &str, output: &str| {
        format!("[{{$setWindowFields: {{{options} output: {{r: {output}}}}}}}]")
    };
    for (options, output, code, message) in [
        ("x: 1,", "{$sum: 1}", 40415, "x"),
        ("", "1", 9, "'r' must be an object"),
        ("", "{sum: 1}", 9, "$-prefixed"),
        ("", "{$summ: 1}", 9, "$summ"),
        ("", "{$sum: 1, $avg: 1}", 9, "two functions"),
        ("", "{$sum: 1, x: 1}", 9, "unknown argument: x"),
        ("", "{$sum: 1, window: 1}", 9, "'window'"),
        ("", "{$sum: 1, window: {documents: [1]}}", 9, "2-element"),
        (
            "",
            "{$sum: 1, window: {documents: ['x', 1]}}",
            9,
            "unbounded",
        ),
        ("", "{$sum: 1, window: {documents: [0, 1.5]}}", 9, "integer"),
        (
            "",
            "{$sum: 1, window: {documents: [1, 0]}}",
            5339900,
            "exceed",
        ),
        (
            "",
            "{$sum: 1, window: {documents: [0, 1]}}",
            5339901,
            "sortBy",
        ),
        (
            "",
            "{$sum: 1, window: {range: [0, 1]}}",
            5339902,
            "single field",
        ),
        (
            "sortBy: {t: -1},",
            "{$sum: 1, window: {range: [0, 1]}}",
            8947401,
            "ascending",
        ),
        (
            "sortBy: {g: 1},",
            "{$sum: 1, window: {range: [0, 1]}}",
            5429414,
            "string",
        ),
        (
            "sortBy: {t: 1},",
            "{$sum: 1, window: {range: [0, 1], unit: 'day'}}",
            5429513,
            "Date",
        ),
        ("", "{$rank: {}}", 5371602, "sortBy"),
        ("sortBy: {t: 1},", "{$rank: 1}", 5371603, "'{}'"),
        (
            "sortBy: {t: 1},",
            "{$rank: {}, window: {}}",
            5371601,
            "no other",
        ),
        ("", "{$shift: {output: 1, by: 1}}", 9, "sortBy"),
        (
            "sortBy: {t: 1},",
            "{$shift: {output: 1, by: 'x'}}",
            9,
            "integer",
        ),
        (
            "sortBy: {t: 1},",
            "{$derivative: {input: '$v'}}",
            9,
            "explicit window",
        ),
        (
            "sortBy: {t: 1},",
            "{$derivative: {input: '$v', unit: 'month'}, window: {documents: [-1, 0]}}",
            5490710,
            "week",
        ),
        (
            "sortBy: {t: 1},",
            "{$derivative: {input: '$v'}, window: {documents: [-1, 0]}}",
            5624903,
            "null",
        ),
        (
            "sortBy: {t: 1},",
            "{$integral: {input: '$v'}}",
            5423900,
            "vector",
        ),
        (
            "sortBy: {t: 1},",
            "{$expMovingAvg: {input: '$v'}}",
            9,
            "two fields",
        ),
        (
            "sortBy: {t: 1},",
            "{$expMovingAvg: {input: '$v', alpha: 1}}",
            9,
            "between",
        ),
        ("sortBy: {v: 1},", "{$linearFill: '$t'}", 14, "Sort field"),
        (
            "sortBy: {t: 1},",
            "{$locf: '$v', window: {}}",
            9,
            "not allowed",
        ),
        ("partitionBy: ['$g'],", "{$sum: 1}", 14, "array"),
        (
            "partitionBy: {$concatArrays: [['$g']]},",
            "{$sum: 1}",
            14,
            "array",
        ),
    ] {
        let stages = stage(options, output);
        let error = run(INPUT, &stages).map_or_else(|e| e, |r| panic!("{stages} gave {r:?}"));
        assert_eq!(error.code().code(), code, "{stages}: {error}");
        assert!(error.message().contains(message), "{stages}: {error}");
    }
    check_errors(
        "[]",
        &[
            ("[{$setWindowFields: {}}]", 40414, "output"),
            (
                "[{$setWindowFields: {output: {a: {$sum: 1}, 'a.b': {$sum: 1}}}}]",
                6307900,
                "conflicting",
            ),
        ],
    );
}
