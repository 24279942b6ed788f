//! Plans beyond one bounded scan, each compared with a scan of the collection, with the keys and documents that it
//! examines. docs/query-plans.md quotes these cases.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns, outline};
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_query::sort::SortSpec;
use frond_store::{CountRequest, FindRequest, OpContext, Purpose, Task, Verbosity};

const DOCUMENTS: i32 = 2000;

fn fixture() -> Fixture {
    let f = Fixture::new();
    let c = ns("db.c");
    for index in [
        doc! {"key": {"a": 1, "b": 1}},
        doc! {"key": {"c": -1, "b": -1}},
        doc! {"key": {"d.x": 1, "d.y": 1}},
        doc! {"key": {"n": 1}},
        doc! {"key": {"e": 1}},
        doc! {"key": {"t": 1, "b": 1}},
    ] {
        f.store.create_indexes(&c, &[&index]).unwrap();
    }
    let docs: Vec<DocBuf> = (0..DOCUMENTS)
        .map(|i| {
            let mut doc = doc! {
                "_id": i, "a": i % 20, "b": i * 7 % DOCUMENTS, "c": i % 25,
                "d": {"y": i % 10, "x": i % 40, "z": "not in the index"},
                "e": i % 50, "t": [i % 20, i % 19], "s": format!("text {}", i % 9),
            };
            // Some are null and some are missing.
            match i % 4 {
                0 => {}
                1 => doc.push("n", Value::Null),
                _ => doc.push("n", i % 100),
            }
            doc
        })
        .collect();
    f.insert(&c, &docs);
    f
}

struct Case<'a> {
    name: &'a str,
    filter: DocBuf,
    sort: DocBuf,
    projection: DocBuf,
    limit: Option<u64>,
    plan: &'a str,
    keys: i64,
    docs: i64,
}

fn find(f: &Fixture, request: &FindRequest<'_>) -> Vec<DocBuf> {
    let context = OpContext::new();
    let mut cursor = f.store.find(&ns("db.c"), request, &context).unwrap();
    let mut found = Vec::new();
    while let Some(doc) = cursor.next().unwrap() {
        found.push(doc);
    }
    found
}

/// Fields in a canonical order: an index gives them in its own.
fn by_name(doc: &Doc) -> String {
    let mut fields: Vec<String> = doc
        .iter()
        .map(|(name, value)| match value {
            Value::Document(inner) => format!("{name}: {}", by_name(inner)),
            value => format!("{name}: {value:?}"),
        })
        .collect();
    fields.sort();
    format!("{{{}}}", fields.join(", "))
}

fn all_by_name(found: &[DocBuf]) -> Vec<String> {
    let mut all: Vec<String> = found.iter().map(|doc| by_name(doc)).collect();
    all.sort();
    all
}

#[test]
fn finds_examine_few_keys_and_documents() {
    let f = fixture();
    let none = || doc! {};
    let merge = "IXSCAN a_1_b_1, IXSCAN a_1_b_1, IXSCAN a_1_b_1";
    for case in [
        Case {
            name: "a list of values and the order of the next field",
            filter: doc! {"a": {"$in": [1, 2, 3]}},
            sort: doc! {"b": 1},
            projection: none(),
            limit: Some(10),
            plan: &format!("LIMIT > FETCH > SORT_MERGE > [{merge}]"),
            keys: 12,
            docs: 10,
        },
        Case {
            name: "the same downwards, to the end",
            filter: doc! {"a": {"$in": [1, 2, 3]}},
            sort: doc! {"b": -1},
            projection: none(),
            limit: None,
            plan: &format!("FETCH > SORT_MERGE > [{merge}]"),
            keys: 300,
            docs: 300,
        },
        Case {
            name: "a list of values of an array, of which one document can have two",
            filter: doc! {"t": {"$in": [1, 2]}},
            sort: doc! {"b": 1},
            projection: none(),
            limit: Some(30),
            plan: "LIMIT > FETCH > SORT_MERGE > [IXSCAN t_1_b_1, IXSCAN t_1_b_1]",
            keys: 32,
            docs: 30,
        },
        Case {
            name: "branches by two indexes and one order",
            filter: doc! {"$or": [{"a": 1}, {"c": 2}]},
            sort: doc! {"b": 1},
            projection: none(),
            limit: Some(10),
            plan: "SUBPLAN > LIMIT > FETCH > SORT_MERGE > [IXSCAN a_1_b_1, IXSCAN c_-1_b_-1]",
            keys: 11,
            docs: 10,
        },
        Case {
            name: "branches by two indexes",
            filter: doc! {"$or": [{"a": 1, "s": "text 1"}, {"c": 2}]},
            sort: none(),
            projection: none(),
            limit: None,
            plan: "SUBPLAN > FETCH > OR > [IXSCAN a_1_b_1, IXSCAN c_-1_b_-1]",
            keys: 180,
            docs: 180,
        },
        Case {
            name: "a condition on the keys, checked before the fetch",
            filter: doc! {"a": 5, "b": {"$mod": [20, 15]}, "s": {"$exists": true}},
            sort: none(),
            projection: none(),
            limit: None,
            plan: "FETCH > IXSCAN a_1_b_1",
            keys: 100,
            docs: 100,
        },
        Case {
            name: "a negated condition on the keys",
            filter: doc! {"a": 5, "b": {"$not": {"$mod": [3, 0]}}},
            sort: none(),
            projection: none(),
            limit: None,
            plan: "FETCH > IXSCAN a_1_b_1",
            keys: 100,
            docs: 66,
        },
        Case {
            name: "dotted fields from the index alone",
            filter: doc! {"d.x": 3},
            sort: none(),
            projection: doc! {"d.y": 1, "d.x": 1, "_id": 0},
            limit: None,
            plan: "PROJECTION_COVERED > IXSCAN d.x_1_d.y_1",
            keys: 50,
            docs: 0,
        },
        Case {
            name: "a range that does not hold",
            filter: doc! {"e": {"$not": {"$gte": 3}}},
            sort: none(),
            projection: none(),
            limit: None,
            plan: "FETCH > IXSCAN e_1",
            keys: 121,
            docs: 120,
        },
        Case {
            name: "none of two ranges",
            filter: doc! {"$nor": [{"e": {"$gt": 10}}, {"e": {"$lt": 9}}]},
            sort: none(),
            projection: none(),
            limit: None,
            plan: "FETCH > IXSCAN e_1",
            keys: 82,
            docs: 80,
        },
        Case {
            name: "a comparison of an expression",
            filter: doc! {"$expr": {"$gt": ["$e", 47]}},
            sort: none(),
            projection: none(),
            limit: None,
            plan: "FETCH > IXSCAN e_1",
            keys: 80,
            docs: 80,
        },
        Case {
            name: "both ends of an expression",
            filter: doc! {"$expr": {"$and": [{"$gte": ["$e", 3]}, {"$gt": [5, "$e"]}]}},
            sort: none(),
            projection: none(),
            limit: None,
            plan: "FETCH > IXSCAN e_1",
            keys: 80,
            docs: 80,
        },
        Case {
            name: "one document by its _id",
            filter: doc! {"_id": 7},
            sort: none(),
            projection: none(),
            limit: None,
            plan: "IDHACK",
            keys: 1,
            docs: 1,
        },
    ] {
        let Case { name, .. } = case;
        let request = FindRequest {
            filter: Some(&case.filter),
            sort: Some(&case.sort),
            projection: Some(&case.projection),
            limit: case.limit,
            ..FindRequest::default()
        };
        let natural = doc! {"$natural": 1};
        let scan = FindRequest {
            hint: Some(Value::Document(&natural)),
            limit: None,
            ..request.clone()
        };
        let (found, expected) = (find(&f, &request), find(&f, &scan));
        match case.limit {
            None => assert_eq!(all_by_name(&found), all_by_name(&expected), "{name}"),
            Some(limit) => {
                assert_eq!(found.len() as u64, limit, "{name}");
                assert!(found.iter().all(|doc| expected.contains(doc)), "{name}");
            }
        }
        if !case.sort.is_empty() {
            let spec = SortSpec::parse(&case.sort).unwrap();
            let keys = |docs: &[DocBuf]| -> Vec<Vec<u8>> {
                docs.iter().map(|doc| spec.key(doc).unwrap()).collect()
            };
            assert_eq!(keys(&found), keys(&expected[..found.len()]), "{name}");
        }
        let context = OpContext::new();
        let verbosity = Verbosity::ExecutionStats;
        let reply = (f.store)
            .explain_find(&ns("db.c"), &request, verbosity, &context)
            .unwrap();
        let stats = reply.get_doc("executionStats").unwrap();
        let stages = stats.get_doc("executionStages").unwrap();
        assert_eq!(outline(stages), case.plan, "{name}");
        let looked_at = |field| stats.get_i64(field).unwrap();
        let op_stats = (
            looked_at("totalKeysExamined"),
            looked_at("totalDocsExamined"),
        );
        assert_eq!(op_stats, (case.keys, case.docs), "{name}: {reply:?}");
        assert_eq!(looked_at("nReturned"), found.len() as i64, "{name}");
    }
}

#[test]
fn counts_read_the_index_alone() {
    let f = fixture();
    let natural = doc! {"$natural": 1};
    for (filter, plan, keys, docs) in [
        (doc! {"a": 5}, "COUNT > COUNT_SCAN a_1_b_1", 100, 0),
        (
            doc! {"a": {"$gte": 5, "$lt": 8}, "b": {"$lt": 1000}},
            "COUNT > COUNT_SCAN a_1_b_1",
            153,
            0,
        ),
        (
            doc! {"a": 5, "b": {"$mod": [3, 0]}},
            "COUNT > IXSCAN a_1_b_1",
            100,
            0,
        ),
        (
            doc! {"_id": {"$gte": 100, "$lt": 300}},
            "COUNT > COUNT_SCAN _id_",
            200,
            0,
        ),
        // An entry with null may stand for a missing field, but both match.
        (doc! {"n": Value::Null}, "COUNT > IXSCAN n_1", 1000, 0),
        (
            doc! {"n": {"$exists": true}},
            "COUNT > COLLSCAN",
            0,
            i64::from(DOCUMENTS),
        ),
    ] {
        let count = |hint| {
            let request = CountRequest {
                filter: Some(&filter),
                hint,
                ..CountRequest::default()
            };
            (f.store)
                .count(&ns("db.c"), &request, &OpContext::new())
                .unwrap()
        };
        let counted = count(None);
        assert_eq!(
            counted,
            count(Some(Value::Document(&natural))),
            "{filter:?}"
        );
        let request = FindRequest {
            filter: Some(&filter),
            ..FindRequest::default()
        };
        let purpose = Purpose {
            task: Task::Count,
            ..Purpose::FIND
        };
        let verbosity = Verbosity::ExecutionStats;
        let context = OpContext::new();
        let reply = (f.store)
            .explain(&ns("db.c"), &request, &purpose, verbosity, &context)
            .unwrap();
        let stats = reply.get_doc("executionStats").unwrap();
        let stages = stats.get_doc("executionStages").unwrap();
        assert_eq!(outline(stages), plan, "{filter:?}");
        assert_eq!(
            stages.get_i64("nCounted"),
            Some(counted as i64),
            "{filter:?}"
        );
        let looked_at = |field| stats.get_i64(field).unwrap();
        assert_eq!(
            (
                looked_at("totalKeysExamined"),
                looked_at("totalDocsExamined")
            ),
            (keys, docs),
            "{filter:?}"
        );
    }
}

#[test]
fn distinct_values_skip_through_an_index() {
    let f = fixture();
    let natural = doc! {"$natural": 1};
    for (path, filter, plan, keys_max, docs_max) in [
        ("e", doc! {}, "DISTINCT_SCAN e_1", 50 * 7, 0),
        ("c", doc! {}, "DISTINCT_SCAN c_-1_b_-1", 25 * 7, 0),
        ("d.x", doc! {}, "DISTINCT_SCAN d.x_1_d.y_1", 40 * 7, 0),
        (
            "d.y",
            doc! {"d.x": 3},
            "DISTINCT_SCAN d.x_1_d.y_1",
            10 * 7,
            0,
        ),
        (
            "a",
            doc! {"a": {"$gt": 15}},
            "DISTINCT_SCAN a_1_b_1",
            5 * 7,
            0,
        ),
        // A condition on a further field of the index.
        (
            "a",
            doc! {"b": {"$mod": [1000, 999]}},
            "DISTINCT_SCAN a_1_b_1",
            2000,
            0,
        ),
        // Missing fields have null in the index, but no value.
        ("n", doc! {}, "DISTINCT_SCAN n_1", 1000, 10),
        ("e", doc! {"s": "text 1"}, "COLLSCAN", 0, 2000),
        ("t", doc! {}, "COLLSCAN", 0, 2000),
    ] {
        let values = |hint| {
            let (ns, context) = (ns("db.c"), OpContext::new());
            let found = f
                .store
                .distinct(&ns, path, Some(&filter), hint, None, &context);
            found.unwrap()
        };
        let found = values(None);
        assert_eq!(
            found,
            values(Some(Value::Document(&natural))),
            "{path} {filter:?}"
        );
        let request = FindRequest {
            filter: Some(&filter),
            ..FindRequest::default()
        };
        let purpose = Purpose {
            distinct: Some(path),
            ..Purpose::FIND
        };
        let verbosity = Verbosity::ExecutionStats;
        let context = OpContext::new();
        let reply = (f.store)
            .explain(&ns("db.c"), &request, &purpose, verbosity, &context)
            .unwrap();
        let stats = reply.get_doc("executionStats").unwrap();
        let stages = stats.get_doc("executionStages").unwrap();
        assert_eq!(outline(stages), plan, "{path} {filter:?}");
        let looked_at = |field| stats.get_i64(field).unwrap();
        assert!(
            looked_at("totalKeysExamined") <= keys_max,
            "{path}: {reply:?}"
        );
        assert!(
            looked_at("totalDocsExamined") <= docs_max,
            "{path}: {reply:?}"
        );
    }
}

#[test]
fn statistics_are_those_of_each_stage() {
    let f = fixture();
    let filter = doc! {"a": {"$in": [1, 2]}, "b": {"$mod": [3, 1]}, "s": "text 1"};
    let sort = doc! {"s": 1, "b": 1};
    let request = FindRequest {
        filter: Some(&filter),
        sort: Some(&sort),
        skip: 1,
        ..FindRequest::default()
    };
    let context = OpContext::new();
    let verbosity = Verbosity::AllPlansExecution;
    let reply = (f.store)
        .explain_find(&ns("db.c"), &request, verbosity, &context)
        .unwrap();
    let stats = reply.get_doc("executionStats").unwrap();
    let skip = stats.get_doc("executionStages").unwrap();
    let sort = skip.get_doc("inputStage").unwrap();
    let fetch = sort.get_doc("inputStage").unwrap();
    let scan = fetch.get_doc("inputStage").unwrap();
    let figure = |stage: &Doc, name: &str| stage.get_i64(name).unwrap();
    assert_eq!(outline(skip), "SKIP > SORT > FETCH > IXSCAN a_1_b_1");
    // 200 entries: every third passes the conditions on its key, and every ninth of these those on its document.
    let on_keys = doc! {"a": {"$in": [1, 2]}, "b": {"$mod": [3, 1]}};
    let on_keys = f.find_all(&ns("db.c"), on_keys).len() as i64;
    assert!((60..=70).contains(&on_keys));
    assert_eq!(figure(scan, "keysExamined"), 200);
    assert_eq!(figure(scan, "works"), 201);
    assert_eq!(figure(scan, "nReturned"), on_keys);
    assert_eq!(figure(scan, "needTime"), 200 - on_keys);
    assert_eq!(figure(fetch, "docsExamined"), on_keys);
    let passed = figure(fetch, "nReturned");
    assert!((5..=10).contains(&passed), "{fetch:?}");
    assert_eq!(figure(sort, "nReturned"), passed);
    assert_eq!(figure(skip, "nReturned"), passed - 1);
    assert_eq!(figure(stats, "nReturned"), passed - 1);
    for stage in [skip, sort, fetch, scan] {
        assert_eq!(figure(stage, "isEOF"), 1);
        let works = figure(stage, "works");
        let parts = figure(stage, "advanced") + figure(stage, "needTime") + 1;
        assert_eq!(works, parts, "{stage:?}");
    }
}

#[test]
fn trial_runs_are_shown_with_their_statistics() {
    let f = fixture();
    let filter = doc! {"a": 1, "c": 1, "e": 1};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    let context = OpContext::new();
    let explain = |verbosity| {
        let ns = ns("db.c");
        f.store
            .explain_find(&ns, &request, verbosity, &context)
            .unwrap()
    };
    let reply = explain(Verbosity::AllPlansExecution);
    let planner = reply.get_doc("queryPlanner").unwrap();
    let rejected = planner.get_array("rejectedPlans").unwrap().count();
    let stats = reply.get_doc("executionStats").unwrap();
    let runs = stats.get_array("allPlansExecution").unwrap();
    assert_eq!((runs.count(), rejected), (3, 2), "{reply:?}");
    let of = |run: &Doc| {
        let stages = run.get_doc("executionStages").unwrap();
        let innermost = stages.get_doc("inputStage").unwrap();
        assert_eq!(stages.get_i64("nReturned"), run.get_i64("nReturned"));
        assert_eq!(
            innermost.get_i64("keysExamined"),
            run.get_i64("totalKeysExamined")
        );
        (outline(stages), run.get_f64("score").unwrap())
    };
    let runs: Vec<_> = runs.values().map(|run| of(run.as_doc().unwrap())).collect();
    let best = runs.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert_eq!(best.0, outline(planner.get_doc("winningPlan").unwrap()));
    let without = explain(Verbosity::ExecutionStats);
    let stats = without.get_doc("executionStats").unwrap();
    assert!(!stats.contains_key("allPlansExecution"));
}
