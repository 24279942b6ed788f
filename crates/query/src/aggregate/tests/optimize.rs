//! Rules change how a pipeline runs, and never what it gives.

use super::several::context;
use super::*;

const INPUT: &str = "[{_id: 1, a: 3, b: ['x', 'y'], item: 'a'}, {_id: 2, a: 1, b: [], item: ['b', 'c']}, {_id: 3, b: 'z'}, {_id: 4, a: 1, c: {d: 1}, item: 'q'}]";

#[test]
fn filters_go_first_where_they_may() {
    // Each case: the stages, the filter that the collection receives, and the number of remaining stages.
    for (stages, filter, left) in [
        ("[{$set: {x: 1}}, {$match: {a: 1}}]", "{a: 1}", 1),
        ("[{$set: {a: 1}}, {$match: {a: 1}}]", "{}", 2),
        ("[{$set: {'a.b': 1}}, {$match: {'a.c': 1}}]", "{}", 2),
        ("[{$project: {a: 1}}, {$match: {a: 1}}]", "{a: 1}", 1),
        ("[{$project: {a: '$b'}}, {$match: {a: 1}}]", "{}", 2),
        ("[{$project: {a: 1}}, {$match: {b: 1}}]", "{}", 2),
        ("[{$project: {a: 0}}, {$match: {b: 1}}]", "{b: 1}", 1),
        ("[{$unset: 'b.c'}, {$match: {b: 1}}]", "{}", 2),
        ("[{$unwind: '$b'}, {$match: {a: 1}}]", "{a: 1}", 1),
        ("[{$unwind: '$b'}, {$match: {b: 1}}]", "{}", 2),
        (
            "[{$unwind: {path: '$b', includeArrayIndex: 'n'}}, {$match: {n: 1}}]",
            "{}",
            2,
        ),
        ("[{$replaceWith: '$a'}, {$match: {b: 1}}]", "{}", 2),
        (
            "[{$set: {x: 1}}, {$unwind: '$b'}, {$match: {a: 1}}, {$match: {c: 2}}]",
            "{$and: [{a: 1}, {c: 2}]}",
            2,
        ),
        (
            "[{$set: {x: 1}}, {$match: {$expr: {$gt: ['$a', '$c']}}}]",
            "{$expr: {$gt: ['$a', '$c']}}",
            1,
        ),
        (
            "[{$set: {x: 1}}, {$match: {$expr: {$eq: ['$$ROOT', 1]}}}]",
            "{}",
            2,
        ),
        ("[{$limit: 1}, {$match: {a: 1}}]", "{}", 1),
        (
            "[{$lookup: {from: 'items', localField: 'item', foreignField: '_id', as: 'f'}}, {$match: {a: 1}}]",
            "{a: 1}",
            1,
        ),
    ] {
        let (front, rest) = parse(stages).unwrap().split_front();
        assert_eq!(front.spec, json(filter), "{stages}");
        assert_eq!(rest.len(), left, "{stages}");
    }
}

#[test]
fn rules_change_no_result() {
    let lookup = "{$lookup: {from: 'items', localField: 'item', foreignField: '_id', as: 'f'}}";
    for stages in [
        "[{$set: {x: {$add: ['$a', 1]}}}, {$match: {a: {$gte: 1}}}]".to_owned(),
        "[{$unwind: '$b'}, {$match: {_id: {$lt: 3}}}, {$sort: {b: -1}}]".to_owned(),
        "[{$sort: {a: 1, _id: -1}}, {$match: {a: 1}}]".to_owned(),
        "[{$project: {a: 1, c: 1}}, {$match: {'c.d': 1}}]".to_owned(),
        format!("[{lookup}, {{$unwind: '$f'}}]"),
        format!("[{lookup}, {{$unwind: {{path: '$f', preserveNullAndEmptyArrays: true}}}}]"),
        format!(
            "[{lookup}, {{$unwind: {{path: '$f', includeArrayIndex: 'n', preserveNullAndEmptyArrays: true}}}}, {{$match: {{n: {{$ne: 1}}}}}}]"
        ),
        format!(
            "[{lookup}, {{$unwind: '$f'}}, {{$match: {{a: 3}}}}, {{$match: {{'f.price': 5}}}}]"
        ),
        format!("[{lookup}, {{$unwind: '$b'}}]"),
    ] {
        let given = |pipeline: Pipeline| {
            let input = Box::new(Docs::new(docs(INPUT)));
            collect(pipeline.execute(input, &context()).unwrap()).unwrap()
        };
        let pipeline = parse(&stages).unwrap();
        assert_eq!(
            given(pipeline.clone().optimized()),
            given(pipeline),
            "{stages}"
        );
    }
    let joined = format!("[{lookup}, {{$unwind: '$f'}}]");
    assert_eq!(parse(&joined).unwrap().optimized().len(), 1);
}

#[test]
fn a_projection_that_passes_on_what_a_group_reads_is_left_out() {
    let sum = "{$group: {_id: '$item', n: {$sum: '$a'}, c: {$sum: 1}}}";
    let nested = "{$group: {_id: '$c.d', n: {$sum: 1}}}";
    let pushed = "{$group: {_id: null, all: {$push: '$$ROOT'}}}";
    for (front, group, left) in [
        ("{$project: {a: 1, item: 1, _id: 0}}", sum, 1),
        ("{$project: {a: 1, item: true, b: 1}}", sum, 1),
        ("{$project: {b: 0}}", sum, 1),
        ("{$unset: ['b', 'c.d']}", sum, 1),
        ("{$project: {a: 1, item: 1}}, {$project: {b: 0}}", sum, 1),
        ("{$project: {c: 1}}", nested, 1),
        (
            "{$project: {b: 1}}",
            "{$group: {_id: null, n: {$sum: 1}}}",
            1,
        ),
        // The field that the group reads is removed, changed or unknown.
        ("{$project: {a: 1}}", sum, 2),
        ("{$project: {a: 0}}", sum, 2),
        ("{$project: {a: '$_id', item: 1}}", sum, 2),
        (
            "{$project: {a: 1, item: 1, x: {$divide: [1, '$a']}}}",
            sum,
            2,
        ),
        ("{$set: {x: 1}}", sum, 2),
        ("{$project: {'c.e': 1}}", nested, 2),
        ("{$project: {'c.d': 1}}", nested, 2),
        ("{$project: {a: 1}}", pushed, 2),
        ("{$unwind: '$b'}", sum, 2),
    ] {
        let pipeline = parse(&format!("[{front}, {group}]")).unwrap();
        let optimized = pipeline.clone().optimized();
        assert_eq!(optimized.len(), left, "{front}, {group}");
        let given = |pipeline: Pipeline| {
            let input = Box::new(Docs::new(docs(INPUT)));
            collect(pipeline.execute(input, &context()).unwrap()).unwrap()
        };
        assert_eq!(given(optimized), given(pipeline), "{front}, {group}");
    }
}

#[test]
fn counts_come_from_the_counter() {
    for (stages, count, expected) in [
        (
            "[{$group: {_id: 1, n: {$sum: 1}}}]",
            7,
            Some("[{_id: 1, n: 7}]"),
        ),
        (
            "[{$group: {_id: null, n: {$count: {}}, m: {$sum: 1}}}]",
            2,
            Some("[{_id: null, n: 2, m: 2}]"),
        ),
        ("[{$count: 'n'}]", 3, Some("[{n: 3}]")),
        ("[{$count: 'n'}]", 0, Some("[]")),
        (
            "[{$count: 'n'}]",
            5_000_000_000,
            Some("[{n: NumberLong(5000000000)}]"),
        ),
        ("[{$group: {_id: 1, n: {$sum: 2}}}]", 7, None),
        ("[{$group: {_id: '$a', n: {$sum: 1}}}]", 7, None),
        ("[{$match: {a: 1}}, {$count: 'n'}]", 7, None),
    ] {
        let counted = parse(stages).unwrap().counted(|| count);
        let Some(expected) = expected else {
            assert!(counted.is_err(), "{stages}");
            continue;
        };
        let (input, rest) = counted.unwrap();
        let source = rest.execute(Box::new(Docs::new(input)), &ExecContext::new(NOW));
        assert_eq!(
            collect(source.unwrap()).unwrap(),
            docs(expected),
            "{stages}"
        );
    }
}

#[test]
fn options_and_places_are_checked() {
    check_errors(
        "[]",
        &[
            (
                "[{$merge: {into: 'm', let: {new: 1}, whenMatched: []}}]",
                51273,
                "'new'",
            ),
            (
                "[{$merge: {into: 'm', let: {X: 1}, whenMatched: []}}]",
                9,
                "X",
            ),
            ("[{$match: {}}, {$currentOp: {}}]", 40602, "first"),
            ("[{$match: {}}, {$planCacheStats: {}}]", 40602, "first"),
            ("[{$collStats: 1}]", 40166, "nested object"),
            ("[{$collStats: {x: 1}}]", 40415, "x"),
            ("[{$collStats: {count: 1}}]", 14, "$collStats.count"),
            ("[{$planCacheStats: {x: 1}}]", 40415, "x"),
        ],
    );
}
