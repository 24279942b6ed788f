//! Which queries each kind of index serves, as `explain` shows it.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_store::{FindRequest, OpContext, Verbosity};

fn innermost(stage: &Doc) -> &Doc {
    stage.get_doc("inputStage").map_or(stage, innermost)
}

/// The names of the stages, the outermost first.
fn stages(stage: &Doc) -> Vec<String> {
    let mut out = vec![stage.get_str("stage").unwrap().to_owned()];
    if let Some(inner) = stage.get_doc("inputStage") {
        out.extend(stages(inner));
    }
    out
}

/// The winning plan, and the documents and keys examined.
fn explain(f: &Fixture, filter: &Doc, sort: &Doc) -> (DocBuf, i64, i64, i64) {
    let request = FindRequest {
        filter: Some(filter),
        sort: Some(sort),
        ..FindRequest::default()
    };
    let (verbosity, context) = (Verbosity::ExecutionStats, OpContext::new());
    let reply = f
        .store
        .explain_find(&ns("db.c"), &request, verbosity, &context)
        .unwrap();
    let plan = reply.get_doc("queryPlanner").unwrap();
    let stats = reply.get_doc("executionStats").unwrap();
    let figure = |name: &str| stats.get_i64(name).unwrap();
    (
        plan.get_doc("winningPlan").unwrap().to_owned(),
        figure("nReturned"),
        figure("totalKeysExamined"),
        figure("totalDocsExamined"),
    )
}

#[test]
fn a_parallel_array_index_serves_a_query_on_both_fields() {
    let f = Fixture::new();
    let c = ns("db.c");
    f.store
        .create_indexes(&c, &[&doc! {"key": {"x": 1, "y": 1}}])
        .unwrap();
    let docs: Vec<DocBuf> = (0..200)
        .map(|id| {
            let twenty = |from: i32| -> ArrayBuf { (from..from + 20).collect() };
            doc! {"_id": id, "x": twenty(id * 10), "y": twenty(id * 100)}
        })
        .collect();
    assert_eq!(f.insert(&c, &docs).inserted, 200);
    let report = f.store.verify(&c).unwrap();
    assert_eq!(
        (report.errors.len(), report.indexes[1].keys),
        (0, 200 * 400)
    );
    let (plan, returned, keys, docs) = explain(&f, &doc! {"x": 505, "y": 5010}, &doc! {});
    let scan = innermost(&plan);
    assert_eq!(scan.get_str("indexName"), Some("x_1_y_1"));
    assert_eq!(
        scan.get_doc("indexBounds").unwrap(),
        &doc! {"x": ["[505, 505]"], "y": ["[5010, 5010]"]}
    );
    assert_eq!(
        scan.get_doc("multiKeyPaths").unwrap(),
        &doc! {"x": ["x"], "y": ["y"]}
    );
    assert_eq!((returned, keys, docs), (1, 1, 1));
}

#[test]
fn hashed_indexes_serve_equality_and_in() {
    let f = Fixture::new();
    let c = ns("db.c");
    for index in [
        doc! {"key": {"h": "hashed"}},
        doc! {"key": {"a": 1, "b": "hashed", "c": 1}},
    ] {
        f.store.create_indexes(&c, &[&index]).unwrap();
    }
    let docs: Vec<DocBuf> = (0..500)
        .map(|i| doc! {"_id": i, "h": i, "a": i % 5, "b": i % 10, "c": i})
        .collect();
    f.insert(&c, &docs);
    for (filter, sort, expected, op_stats) in [
        (doc! {"h": 7}, doc! {}, &["FETCH", "IXSCAN"][..], (1, 1, 1)),
        (doc! {"h": 7.5}, doc! {}, &["FETCH", "IXSCAN"], (0, 1, 1)),
        (
            doc! {"h": {"$in": [3, 4]}},
            doc! {},
            &["FETCH", "IXSCAN"],
            (2, 2, 2),
        ),
        (
            doc! {"h": {"$gt": 497}},
            doc! {},
            &["COLLSCAN"],
            (2, 0, 500),
        ),
        (doc! {}, doc! {"h": 1}, &["SORT", "COLLSCAN"], (500, 0, 500)),
        (
            doc! {"a": 2},
            doc! {},
            &["FETCH", "IXSCAN"],
            (100, 100, 100),
        ),
        (
            doc! {"a": 2, "b": 7},
            doc! {"c": -1},
            &["FETCH", "IXSCAN"],
            (50, 50, 50),
        ),
    ] {
        let (plan, returned, keys, docs) = explain(&f, &filter, &sort);
        assert_eq!(stages(&plan), expected, "{filter:?}");
        let (wanted, keys_max, docs_wanted) = op_stats;
        assert_eq!((returned, docs), (wanted, docs_wanted), "{filter:?}");
        assert!(keys <= keys_max + 1, "{filter:?}: {keys} keys");
    }
    let (plan, ..) = explain(&f, &doc! {"h": 42}, &doc! {});
    assert_eq!(
        innermost(&plan)
            .get_doc("indexBounds")
            .unwrap()
            .get_array("h")
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn wildcard_indexes_serve_conditions_on_any_path() {
    let f = Fixture::new();
    let c = ns("db.c");
    f.store
        .create_indexes(&c, &[&doc! {"key": {"$**": 1}}])
        .unwrap();
    let docs: Vec<DocBuf> = (0..500)
        .map(|i| {
            let mut doc = doc! {"_id": i, "a": i, "d": {"e": i % 10, "f": {"g": i}}};
            if i % 50 == 0 {
                doc.push("rare", &doc! {"x": 1});
            }
            doc
        })
        .collect();
    f.insert(&c, &docs);
    let used = &["FETCH", "IXSCAN"][..];
    let scan = &["COLLSCAN"][..];
    for (filter, sort, expected, keys_max) in [
        (doc! {"a": 7}, doc! {}, used, 1),
        (doc! {"d.f.g": {"$gte": 490, "$lt": 495}}, doc! {}, used, 6),
        (doc! {"a": {"$in": [3, 4]}}, doc! {"a": -1}, used, 4),
        (doc! {"a": {"$gt": 490}}, doc! {"a": 1}, used, 11),
        (doc! {"rare": {"$exists": true}}, doc! {}, used, 11),
        (doc! {"rare.x": {"$exists": true}}, doc! {}, used, 11),
        (doc! {"d.e": 3, "a": 13}, doc! {}, used, 2),
        // Documents without an entry in the index could match.
        (doc! {"rare": null}, doc! {}, scan, 0),
        (doc! {"rare": {"$exists": false}}, doc! {}, scan, 0),
        (doc! {"a": {"$ne": 3}}, doc! {}, scan, 0),
        (doc! {"rare": {"x": 1}}, doc! {}, scan, 0),
        (doc! {}, doc! {"a": 1}, &["SORT", "COLLSCAN"], 0),
    ] {
        let (plan, _, keys, _) = explain(&f, &filter, &sort);
        assert_eq!(stages(&plan), expected, "{filter:?}");
        assert!(keys <= keys_max, "{filter:?}: {keys} keys");
    }
    let (plan, ..) = explain(&f, &doc! {"d.e": 3}, &doc! {});
    let scan = innermost(&plan);
    assert_eq!(
        scan.get_doc("keyPattern").unwrap(),
        &doc! {"$_path": 1, "d.e": 1}
    );
    assert_eq!(
        scan.get_doc("indexBounds").unwrap(),
        &doc! {"$_path": ["[\"d.e\", \"d.e\"]"], "d.e": ["[3, 3]"]}
    );
    let hint = doc! {"$**": 1};
    let request = FindRequest {
        hint: Some(Value::Document(&hint)),
        ..FindRequest::default()
    };
    let error = f.store.find(&c, &request, &OpContext::new()).err().unwrap();
    assert_eq!(error.code().code(), 291);
}

/// Values compare by the collation, names of fields never do.
#[test]
fn wildcard_indexes_may_have_a_collation() {
    let f = Fixture::new();
    let c = ns("db.c");
    let folded = doc! {"locale": "en", "strength": 2};
    f.store
        .create_indexes(&c, &[&doc! {"key": {"$**": 1}, "collation": &folded}])
        .unwrap();
    let docs: Vec<DocBuf> = (0..200)
        .map(|i| match i {
            0 => doc! {"_id": 0, "a": "x"},
            1 => doc! {"_id": 1, "a": "X"},
            2 => doc! {"_id": 2, "A": "x"},
            3 => doc! {"_id": 3, "a": {"b": "Y"}},
            4 => doc! {"_id": 4, "a": ["z", "Z"]},
            _ => doc! {"_id": i, "a": i, "n": "x"},
        })
        .collect();
    assert_eq!(f.insert(&c, &docs).inserted, 200);
    assert_eq!(f.store.verify(&c).unwrap().errors, Vec::<String>::new());
    let cases = [
        (doc! {"a": "x"}, true, vec![0, 1]),
        (doc! {"A": "X"}, true, vec![2]),
        (doc! {"a.b": "y"}, true, vec![3]),
        (doc! {"a": "Z"}, true, vec![4]),
        (doc! {"a": {"$gt": "X"}}, true, vec![4]),
        // Equal bytes are equal by every collation, and the document decides. Of another order only the type is of use.
        (doc! {"a": "x"}, false, vec![0]),
        (doc! {"a": {"$gt": "X"}}, false, vec![0, 4]),
        (doc! {"a": 7}, false, vec![7]),
    ];
    for (filter, is_folded, expected) in cases {
        let request = FindRequest {
            filter: Some(&filter),
            collation: is_folded.then(|| frond_query::collation::parse(&folded).unwrap()),
            ..FindRequest::default()
        };
        let (verbosity, context) = (Verbosity::QueryPlanner, OpContext::new());
        let plan = (f.store)
            .explain_find(&c, &request, verbosity, &context)
            .unwrap();
        let plan = plan.get_doc("queryPlanner").unwrap();
        let plan = stages(plan.get_doc("winningPlan").unwrap());
        assert_eq!(plan.last().unwrap(), "IXSCAN", "{filter:?}");
        let mut found = f.store.find(&c, &request, &context).unwrap();
        let mut ids = Vec::new();
        while let Some(doc) = found.next().unwrap() {
            ids.push(doc.get_i32("_id").unwrap());
        }
        ids.sort_unstable();
        assert_eq!(ids, expected, "{filter:?} {is_folded}");
    }
}

#[test]
fn clustering_indexes_need_no_fetch() {
    let f = Fixture::new();
    let c = ns("db.c");
    f.store
        .create_indexes(&c, &[&doc! {"key": {"a": 1}, "clustering": true}])
        .unwrap();
    let docs: Vec<DocBuf> = (0..500)
        .map(|i| doc! {"_id": i, "a": i, "b": i % 3})
        .collect();
    f.insert(&c, &docs);
    let filter = doc! {"a": {"$gte": 100, "$lt": 200}, "b": 1};
    let (plan, returned, keys, docs) = explain(&f, &filter, &doc! {"a": 1});
    assert_eq!(stages(&plan), ["IXSCAN"]);
    assert_eq!((returned, keys, docs), (34, 100, 0));
    let found = f.find_all(&c, filter);
    assert_eq!(found.first().unwrap(), &doc! {"_id": 100, "a": 100, "b": 1});
}

/// Issue 13: `a.0` of `[[]]` sorts before null, with and without an index on it, and is found as an empty array.
#[test]
fn an_empty_array_at_a_position_sorts_the_same_through_every_plan() {
    let f = Fixture::new();
    let c = ns("db.c");
    f.store
        .create_indexes(
            &c,
            &[
                &doc! {"key": {"a.0": 1}},
                &doc! {"key": {"a.0": -1, "n": 1}},
            ],
        )
        .unwrap();
    let nothing: ArrayBuf = [Value::Array(Doc::empty())].into_iter().collect();
    let docs = [
        doc! {"_id": 0, "a": &nothing, "n": 1},
        doc! {"_id": 1, "a": [null], "n": 1},
        doc! {"_id": 2, "n": 1},
        doc! {"_id": 3, "a": [5], "n": 1},
        doc! {"_id": 4, "a": [[5]], "n": 1},
        doc! {"_id": 5, "a": [], "n": 1},
    ];
    f.insert(&c, &docs);
    let ids = |found: Vec<DocBuf>| -> Vec<i32> {
        found
            .iter()
            .map(|doc| doc.get_i32("_id").unwrap())
            .collect()
    };
    for (sort, expected) in [
        (doc! {"a.0": 1, "_id": 1}, [0, 1, 2, 5, 3, 4]),
        (doc! {"a.0": -1, "_id": 1}, [4, 3, 1, 2, 5, 0]),
    ] {
        for hint in [
            doc! {"$natural": 1},
            doc! {"a.0": 1},
            doc! {"a.0": -1, "n": 1},
        ] {
            let request = FindRequest {
                sort: Some(&sort),
                hint: Some(Value::Document(&hint)),
                ..FindRequest::default()
            };
            assert_eq!(ids(f.find(&c, &request)), expected, "{sort:?} {hint:?}");
        }
    }
    for (filter, expected) in [
        (doc! {"a.0": []}, &[0][..]),
        (doc! {"a.0": {"$size": 0}}, &[0]),
        (doc! {"a.0": null}, &[1, 2]),
        (doc! {"a.0": {"$gte": 5}}, &[3]),
    ] {
        for hint in [doc! {"$natural": 1}, doc! {"a.0": 1}] {
            let request = FindRequest {
                filter: Some(&filter),
                hint: Some(Value::Document(&hint)),
                ..FindRequest::default()
            };
            let mut found = ids(f.find(&c, &request));
            found.sort_unstable();
            assert_eq!(found, expected, "{filter:?} {hint:?}");
        }
    }
}
