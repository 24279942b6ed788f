//! Push-down and dependencies.

use super::*;

#[test]
fn the_front_is_what_a_query_can_do() {
    for (stages, filter, sort, skip, limit, rest) in [
        ("[]", "{}", None, 0, None, 0),
        ("[{$match: {a: 1}}]", "{a: 1}", None, 0, None, 0),
        (
            "[{$match: {a: 1}}, {$match: {b: 2}}, {$group: {_id: null}}]",
            "{$and: [{a: 1}, {b: 2}]}",
            None,
            0,
            None,
            1,
        ),
        (
            "[{$match: {a: 1}}, {$sort: {b: 1}}, {$skip: 5}, {$limit: 10}]",
            "{a: 1}",
            Some("{b: 1}"),
            5,
            Some(10),
            0,
        ),
        (
            "[{$sort: {b: 1}}, {$match: {a: 1}}, {$limit: 3}, {$project: {a: 1}}]",
            "{a: 1}",
            Some("{b: 1}"),
            0,
            Some(3),
            1,
        ),
        (
            "[{$limit: 10}, {$skip: 3}, {$limit: 20}, {$skip: 2}]",
            "{}",
            None,
            5,
            Some(5),
            0,
        ),
        ("[{$limit: 2}, {$skip: 5}]", "{}", None, 5, Some(0), 0),
        // These change what would be counted or sorted.
        (
            "[{$limit: 10}, {$match: {a: 1}}]",
            "{}",
            None,
            0,
            Some(10),
            1,
        ),
        (
            "[{$limit: 10}, {$sort: {a: 1}}]",
            "{}",
            None,
            0,
            Some(10),
            1,
        ),
        (
            "[{$project: {a: 1}}, {$match: {a: 1}}]",
            "{a: 1}",
            None,
            0,
            None,
            1,
        ),
        (
            "[{$sort: {a: 1}}, {$sort: {b: 1}}]",
            "{}",
            Some("{a: 1}"),
            0,
            None,
            1,
        ),
        (
            "[{$indexStats: {}}, {$match: {a: 1}}]",
            "{}",
            None,
            0,
            None,
            2,
        ),
    ] {
        let (front, left) = parse(stages).unwrap().split_front();
        assert_eq!(front.spec, json(filter), "{stages}");
        assert_eq!(front.sort, sort.map(json), "{stages}");
        assert_eq!((front.skip, front.limit), (skip, limit), "{stages}");
        assert_eq!(left.len(), rest, "{stages}");
    }
}

#[test]
fn front_and_rest_give_what_the_whole_gives() {
    let input: Vec<DocBuf> = (0..60)
        .map(|n| frond_bson::doc! {"_id": n, "a": n % 5, "b": n * 37 % 11})
        .collect();
    let choices = [
        "{$match: {a: {$lt: 3}}}",
        "{$match: {b: {$gt: 2}}}",
        "{$sort: {b: 1, _id: 1}}",
        "{$sort: {a: -1, _id: 1}}",
        "{$skip: 4}",
        "{$limit: 9}",
        "{$limit: 20}",
        "{$project: {a: 1, b: 1}}",
    ];
    let n = choices.len();
    for code in 0..n * n * n * n {
        let picked = [code % n, code / n % n, code / n / n % n, code / n / n / n];
        let stages = format!("[{}]", picked.map(|at| choices[at]).join(","));
        let whole = run_docs(input.clone(), &stages).unwrap();
        let (front, rest) = parse(&stages).unwrap().split_front();
        let mut query = vec![format!("{{$match: {:?}}}", front.spec)];
        let mut docs = run_docs(input.clone(), &format!("[{}]", query.join(","))).unwrap();
        if let Some(sort) = &front.sort {
            query = vec![format!("{{$sort: {sort:?}}}")];
            docs = run_docs(docs, &format!("[{}]", query.join(","))).unwrap();
        }
        let docs: Vec<DocBuf> = docs
            .into_iter()
            .skip(front.skip as usize)
            .take(front.limit.map_or(usize::MAX, |l| l as usize))
            .collect();
        let source = rest
            .execute(Box::new(Docs::new(docs)), &ExecContext::new(NOW))
            .unwrap();
        assert_eq!(collect(source).unwrap(), whole, "{stages}");
    }
}

#[test]
fn needed_fields_are_known_where_the_result_is_defined() {
    for (stages, expected) in [
        (
            "[{$group: {_id: '$a', s: {$sum: '$b.c'}, n: {$sum: 1}}}]",
            Some("a b.c"),
        ),
        (
            "[{$match: {k: 1}}, {$project: {a: 1, x: '$y.z'}}]",
            Some("_id a k y.z"),
        ),
        ("[{$unwind: '$t'}, {$sortByCount: '$t.n'}]", Some("t")),
        (
            "[{$match: {$or: [{a: 1}, {b: {$not: {$gt: 2}}}]}}, {$count: 'n'}]",
            Some("a b"),
        ),
        (
            "[{$sort: {s: 1}}, {$limit: 5}, {$replaceWith: '$d'}]",
            Some("d s"),
        ),
        (
            "[{$addFields: {x: '$a'}}, {$group: {_id: '$x'}}]",
            Some("a x"),
        ),
        ("[{$group: {_id: null, all: {$push: '$$ROOT'}}}]", None),
        ("[{$match: {a: 1}}]", None),
        ("[{$project: {a: 0}}]", None),
        ("[]", None),
        ("[{$facet: {a: []}}]", None),
    ] {
        let needed = parse(stages).unwrap().needed_fields();
        let needed = needed.map(|set| set.into_iter().collect::<Vec<_>>().join(" "));
        assert_eq!(needed.as_deref(), expected, "{stages}");
    }
}

#[test]
fn stages_that_see_no_metadata_refuse_to_read_it() {
    let score = "{$meta: 'textScore'}";
    for (pipeline, reads) in [
        (format!("[{{$set: {{s: {score}}}}}]"), true),
        (
            format!("[{{$redact: {{$cond: [{score}, '$$KEEP', '$$PRUNE']}}}}]"),
            false,
        ),
        (
            format!("[{{$bucketAuto: {{groupBy: {score}, buckets: 2}}}}]"),
            false,
        ),
        (
            format!(
                "[{{$bucketAuto: {{groupBy: '$a', buckets: 2, output: {{s: {{$sum: {score}}}}}}}}}]"
            ),
            false,
        ),
        (
            format!("[{{$setWindowFields: {{output: {{s: {{$sum: {score}}}}}}}}}]"),
            false,
        ),
        (
            format!("[{{$setWindowFields: {{partitionBy: {score}, output: {{s: {{$sum: 1}}}}}}}}]"),
            false,
        ),
    ] {
        let found = parse(&pipeline).and_then(|parsed| parsed.meta());
        match found {
            Ok(meta) => assert!(reads && !meta.is_empty(), "{pipeline}"),
            Err(error) => assert!(!reads && error.code().code() == 238, "{pipeline}: {error}"),
        }
    }
}
