//! Stages that filter, order and multiply documents.

use super::*;

const INPUT: &str = "[{_id: 1, a: 3, t: ['x', 'y']}, {_id: 2, a: 1, t: []}, {_id: 3, a: 2}, {_id: 4, a: 1, t: null}, {_id: 5, a: 5, t: 'z'}]";

#[test]
fn filter_sort_and_range() {
    check(
        INPUT,
        &[
            (
                "[{$match: {a: {$gte: 2}}}, {$project: {a: 1}}]",
                "[{_id: 1, a: 3}, {_id: 3, a: 2}, {_id: 5, a: 5}]",
            ),
            (
                "[{$sort: {a: 1, _id: -1}}, {$project: {_id: 1}}]",
                "[{_id: 4}, {_id: 2}, {_id: 3}, {_id: 1}, {_id: 5}]",
            ),
            (
                "[{$sort: {a: 1}}, {$skip: 1}, {$limit: 2}, {$project: {_id: 1}}]",
                "[{_id: 4}, {_id: 3}]",
            ),
            ("[{$skip: 9}]", "[]"),
            ("[{$limit: 1}, {$project: {_id: 1}}]", "[{_id: 1}]"),
            (
                "[{$limit: 2.0}, {$skip: NumberLong(1)}, {$project: {_id: 1}}]",
                "[{_id: 2}]",
            ),
            ("[{$skip: 0}, {$limit: 100}, {$count: 'n'}]", "[{n: 5}]"),
            ("[]", INPUT),
        ],
    );
    check_errors(
        INPUT,
        &[
            ("[{$match: 1}]", 15959, "expression in an object"),
            ("[{$match: {a: {$foo: 1}}}]", 2, "$foo"),
            ("[{$sort: {}}]", 15976, "at least one sort key"),
            ("[{$sort: 1}]", 15973, "must be an object"),
            ("[{$sort: {a: 2}}]", 15975, "a"),
            ("[{$limit: 0}]", 15958, "the limit must be positive"),
            ("[{$limit: -1}]", 5107201, "non-negative"),
            ("[{$limit: 'x'}]", 5107201, "Expected a number in"),
            ("[{$skip: -1}]", 5107200, "$skip"),
            ("[{$skip: 1.5}]", 5107200, "integer"),
        ],
    );
}

#[test]
fn sort_with_limit_gives_what_sort_alone_gives() {
    let input: Vec<DocBuf> = (0..500)
        .map(|n| frond_bson::doc! {"_id": n, "k": n * 7919 % 17})
        .collect();
    for order in ["{k: 1}", "{k: -1}", "{k: 1, _id: -1}"] {
        let all = run_docs(input.clone(), &format!("[{{$sort: {order}}}]")).unwrap();
        for (skip, limit) in [(0, 1), (0, 40), (30, 40), (490, 40), (600, 1)] {
            let stages = format!("[{{$sort: {order}}}, {{$skip: {skip}}}, {{$limit: {limit}}}]");
            let pipeline = parse(&stages).unwrap().limited_sorts();
            let source = pipeline
                .execute(Box::new(Docs::new(input.clone())), &ExecContext::new(NOW))
                .unwrap();
            let expected: Vec<DocBuf> = all.iter().skip(skip).take(limit).cloned().collect();
            assert_eq!(collect(source).unwrap(), expected, "{stages}");
        }
    }
}

#[test]
fn unwind() {
    check(
        INPUT,
        &[
            (
                "[{$unwind: '$t'}, {$project: {a: 0}}]",
                "[{_id: 1, t: 'x'}, {_id: 1, t: 'y'}, {_id: 5, t: 'z'}]",
            ),
            (
                "[{$unwind: {path: '$t', preserveNullAndEmptyArrays: true}}, {$project: {a: 0}}]",
                "[{_id: 1, t: 'x'}, {_id: 1, t: 'y'}, {_id: 2}, {_id: 3}, {_id: 4, t: null}, {_id: 5, t: 'z'}]",
            ),
            (
                "[{$unwind: {path: '$t', includeArrayIndex: 'i'}}, {$project: {a: 0}}]",
                "[{_id: 1, t: 'x', i: NumberLong(0)}, {_id: 1, t: 'y', i: NumberLong(1)}, {_id: 5, t: 'z', i: null}]",
            ),
            (
                "[{$match: {_id: 2}}, {$unwind: {path: '$t', preserveNullAndEmptyArrays: true, includeArrayIndex: 'm.i'}}]",
                "[{_id: 2, a: 1, m: {i: null}}]",
            ),
        ],
    );
    check(
        "[{_id: 1, a: {b: [1, {c: 2}], d: 0}, e: 1}]",
        &[
            (
                "[{$unwind: '$a.b'}]",
                "[{_id: 1, a: {b: 1, d: 0}, e: 1}, {_id: 1, a: {b: {c: 2}, d: 0}, e: 1}]",
            ),
            ("[{$unwind: '$a.b.c'}]", "[]"),
            (
                "[{$unwind: '$e'}]",
                "[{_id: 1, a: {b: [1, {c: 2}], d: 0}, e: 1}]",
            ),
        ],
    );
    check_errors(
        INPUT,
        &[
            ("[{$unwind: 1}]", 15981, "got int"),
            ("[{$unwind: {}}]", 28812, "no path specified"),
            ("[{$unwind: 'a'}]", 28818, "prefixed with a '$': a"),
            ("[{$unwind: {path: 1}}]", 28808, "got int"),
            (
                "[{$unwind: {path: '$a', preserveNullAndEmptyArrays: 1}}]",
                28809,
                "got int",
            ),
            (
                "[{$unwind: {path: '$a', includeArrayIndex: ''}}]",
                28810,
                "non-empty",
            ),
            (
                "[{$unwind: {path: '$a', includeArrayIndex: '$i'}}]",
                28822,
                "$i",
            ),
            ("[{$unwind: {path: '$a', x: 1}}]", 28811, "x"),
        ],
    );
}

#[test]
fn counting() {
    check(
        INPUT,
        &[
            ("[{$count: 'n'}]", "[{n: 5}]"),
            ("[{$match: {a: 99}}, {$count: 'n'}]", "[]"),
            (
                "[{$sortByCount: '$a'}]",
                "[{_id: 1, count: 2}, {_id: 3, count: 1}, {_id: 2, count: 1}, {_id: 5, count: 1}]",
            ),
            (
                "[{$sortByCount: {$mod: ['$a', 2]}}]",
                "[{_id: 1, count: 4}, {_id: 0, count: 1}]",
            ),
        ],
    );
    check_errors(
        INPUT,
        &[
            ("[{$count: ''}]", 40157, "non-empty"),
            ("[{$count: 1}]", 40156, "non-empty string"),
            ("[{$count: '$a'}]", 40158, "$-prefixed"),
            ("[{$count: 'a.b'}]", 40160, "'.'"),
            ("[{$sortByCount: 'a'}]", 40148, "$-prefixed"),
            ("[{$sortByCount: {a: 1}}]", 40147, "expression"),
            ("[{$sortByCount: 1}]", 40149, "string or as an object"),
        ],
    );
}

#[test]
fn sample_takes_each_document_at_most_once() {
    let input: Vec<DocBuf> = (0..100).map(|n| frond_bson::doc! {"_id": n}).collect();
    let sampled = run_docs(input.clone(), "[{$sample: {size: 10}}]").unwrap();
    let mut ids: Vec<i64> = sampled.iter().map(|d| d.get_i64("_id").unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 10);
    assert_eq!(
        run_docs(input.clone(), "[{$sample: {size: 1000}}]")
            .unwrap()
            .len(),
        100
    );
    // Over many seeds every document has its turn.
    let pipeline = parse("[{$sample: {size: 5}}]").unwrap();
    let mut seen = std::collections::HashSet::new();
    for seed in 0..400 {
        let context = ExecContext {
            seed,
            ..ExecContext::new(NOW)
        };
        let source = pipeline
            .execute(Box::new(Docs::new(input.clone())), &context)
            .unwrap();
        seen.extend(collect(source).unwrap().iter().map(|d| d.get_i64("_id")));
    }
    assert_eq!(seen.len(), 100);
    check_errors(
        "[]",
        &[
            ("[{$sample: 1}]", 28745, "object"),
            ("[{$sample: {}}]", 28749, "size"),
            ("[{$sample: {size: 'x'}}]", 28746, "number"),
            ("[{$sample: {size: -1}}]", 28747, "positive"),
            ("[{$sample: {size: 1, x: 1}}]", 28748, "x"),
        ],
    );
}

#[test]
fn pipelines_are_checked() {
    check_errors(
        "[]",
        &[
            (
                "[{$foo: 1}]",
                40324,
                "Unrecognized pipeline stage name: '$foo'",
            ),
            ("[{$queryStats: 1}]", 9, "$queryStats must take"),
            ("[{$match: {}, $limit: 1}]", 40323, "exactly one field"),
            ("[{}]", 40323, "exactly one field"),
            ("[1]", 14, "must be an object"),
            (
                "[{$limit: 1}, {$collStats: {}}]",
                40602,
                "$collStats is only valid as the first stage in a pipeline",
            ),
            (
                "[{$out: 'x'}, {$limit: 1}]",
                40601,
                "$out can only be the final stage in the pipeline",
            ),
            ("[{$out: 'x'}]", 238, "$out"),
            ("[{$collStats: {}}]", 238, "$collStats"),
            ("[{$indexStats: {x: 1}}]", 28803, "empty object"),
            ("[{$merge: {into: 'x', foo: 1}}]", 40415, "$merge.foo"),
            ("[{$merge: {on: 'x'}}]", 40414, "$merge.into"),
            ("[{$out: 5}]", 16990, "int"),
        ],
    );
    let long = format!("[{}]", vec!["{$limit: 1}"; MAX_STAGES + 1].join(","));
    assert_eq!(parse(&long).unwrap_err().code().code(), 7749501);
    assert_eq!(
        parse("[{$match: {}}, {$out: 'x'}]").unwrap().writes(),
        Some("$out")
    );
    assert!(parse("[{$indexStats: {}}]").unwrap().has_own_source());
}

#[test]
fn expressions_in_filters() {
    check(
        "[{_id: 1, a: 5, b: 3}, {_id: 2, a: 1, b: 3}]",
        &[
            (
                "[{$match: {$expr: {$gt: ['$a', '$b']}}}, {$project: {_id: 1}}]",
                "[{_id: 1}]",
            ),
            ("[{$match: {$expr: {$lt: ['$$NOW', '$a']}}}]", "[]"),
        ],
    );
    check_errors(
        "[{a: 1}]",
        &[("[{$match: {$expr: {$divide: ['$a', 0]}}}]", 2, "$divide")],
    );
}

#[test]
fn the_longest_pipeline_fits_the_stack() {
    let step = "{$set: {n: {$add: ['$n', 1]}}}";
    let stages = format!("[{}]", vec![step; MAX_STAGES].join(","));
    check("[{n: 0}]", &[(&*stages, "[{n: 1000}]")]);
    let mut nested = "'$n'".to_owned();
    for _ in 0..90 {
        nested = format!("{{$add: [{nested}, 1]}}");
    }
    check(
        "[{n: 0}]",
        &[(&*format!("[{{$set: {{n: {nested}}}}}]"), "[{n: 90}]")],
    );
}
