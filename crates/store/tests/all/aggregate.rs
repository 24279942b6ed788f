//! Pipelines over collections: first stages that become queries, and stages that read or write other collections.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{ArrayBuf, DocBuf, Value, array, doc};
use frond_store::{AggregateRequest, Durability, OpContext, Result};

fn try_run(f: &Fixture, pipeline: &ArrayBuf, variables: Option<&DocBuf>) -> Result<Vec<DocBuf>> {
    try_run_within(f, pipeline, variables, &OpContext::new())
}

fn try_run_within(
    f: &Fixture,
    pipeline: &ArrayBuf,
    variables: Option<&DocBuf>,
    limits: &OpContext,
) -> Result<Vec<DocBuf>> {
    let request = AggregateRequest {
        collation: None,
        pipeline,
        hint: None,
        variables: variables.map(|doc| &**doc),
        durability: Durability::Logged,
        bypass_validation: false,
        allow_disk_use: None,
    };
    let mut cursor = f
        .store
        .aggregate("db", Some(&ns("db.c")), &request, limits)?;
    let mut found = Vec::new();
    while let Some(doc) = cursor.next()? {
        found.push(doc);
    }
    Ok(found)
}

fn run(f: &Fixture, pipeline: ArrayBuf) -> Vec<DocBuf> {
    try_run(f, &pipeline, None).unwrap()
}

fn fixture() -> Fixture {
    let f = Fixture::new();
    let (c, other) = (ns("db.c"), ns("db.other"));
    f.store
        .create_indexes(&c, &[&doc! {"key": {"a": 1}}])
        .unwrap();
    let docs: Vec<DocBuf> = (0..100)
        .map(|i| doc! {"_id": i, "a": i % 10, "b": i, "tags": ["x", i % 2]})
        .collect();
    f.insert(&c, &docs);
    let others: Vec<DocBuf> = (0..5)
        .map(|i| doc! {"_id": i, "name": format!("n{i}")})
        .collect();
    f.insert(&other, &others);
    f
}

#[test]
fn stages_of_all_kinds() {
    let f = fixture();
    for (pipeline, expected) in [
        (
            array![{"$match": {"a": 3}}, {"$count": "n"}],
            vec![doc! {"n": 10}],
        ),
        (
            array![{"$match": {"a": {"$lt": 2}}},
                   {"$group": {"_id": "$a", "sum": {"$sum": "$b"}}}, {"$sort": {"_id": 1}}],
            vec![doc! {"_id": 0, "sum": 450}, doc! {"_id": 1, "sum": 460}],
        ),
        (
            array![{"$sort": {"a": -1, "_id": 1}}, {"$skip": 1}, {"$limit": 2}, {"$project": {"b": 1}}],
            vec![doc! {"_id": 19, "b": 19}, doc! {"_id": 29, "b": 29}],
        ),
        (
            array![{"$match": {"_id": 7}}, {"$unwind": "$tags"}, {"$project": {"_id": 0, "tags": 1}}],
            vec![doc! {"tags": "x"}, doc! {"tags": 1}],
        ),
        (
            array![{"$match": {"_id": 4}},
                   {"$lookup": {"from": "other", "localField": "a", "foreignField": "_id", "as": "o"}},
                   {"$project": {"o": 1}}],
            vec![doc! {"_id": 4, "o": [{"_id": 4, "name": "n4"}]}],
        ),
        (
            array![{"$match": {"_id": 3}},
                   {"$lookup": {"from": "other", "let": {"x": "$a"}, "as": "o", "pipeline": [
                       {"$match": {"$expr": {"$eq": ["$_id", "$$x"]}}}, {"$project": {"_id": 0}}]}},
                   {"$project": {"o": 1}}],
            vec![doc! {"_id": 3, "o": [{"name": "n3"}]}],
        ),
        (
            array![{"$match": {"_id": 1}}, {"$project": {"_id": 1}},
                   {"$unionWith": {"coll": "other", "pipeline": [{"$match": {"_id": 2}}]}}],
            vec![doc! {"_id": 1}, doc! {"_id": 2, "name": "n2"}],
        ),
        (array![{"$match": {"a": 99}}], vec![]),
        (
            array![{"$indexStats": {}}, {"$project": {"name": 1}}],
            vec![doc! {"name": "_id_"}, doc! {"name": "a_1"}],
        ),
        (
            array![{"$collStats": {"count": {}}}, {"$unset": "localTime"}],
            vec![doc! {"ns": "db.c", "count": 100}],
        ),
    ] {
        let text = format!("{pipeline:?}");
        let mut found = run(&f, pipeline);
        for doc in &mut found {
            if let Some(n) = doc.get_i64("n") {
                *doc = doc! {"n": n as i32};
            }
        }
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn variables_and_errors() {
    let f = fixture();
    let pipeline = array![{"$match": {"$expr": {"$eq": ["$b", "$$wanted"]}}}];
    let variables = doc! {"wanted": 42};
    let found = try_run(&f, &pipeline, Some(&variables)).unwrap();
    assert_eq!(found.len(), 1);
    for (pipeline, code) in [
        (array![{"$nonsense": 1}], 40324),
        (array![{"$match": {"$nonsense": 1}}], 2),
        (array![{"$sort": {"a": 2}}], 15975),
        (
            array![{"$lookup": {"from": "$bad", "as": "x", "pipeline": []}}],
            73,
        ),
    ] {
        let error = try_run(&f, &pipeline, None).unwrap_err();
        assert_eq!(error.code().code(), code, "{pipeline:?}: {error}");
    }
    let request = AggregateRequest {
        collation: None,
        pipeline: &array![{"$match": {}}],
        hint: None,
        variables: None,
        durability: Durability::Logged,
        bypass_validation: false,
        allow_disk_use: None,
    };
    let error = f
        .store
        .aggregate("db", None, &request, &OpContext::new())
        .err()
        .unwrap();
    assert_eq!(error.code().code(), 73);
    let documents = AggregateRequest {
        pipeline: &array![{"$documents": [{"x": 1}]}],
        ..request
    };
    let mut cursor = f
        .store
        .aggregate("db", None, &documents, &OpContext::new())
        .unwrap();
    assert_eq!(cursor.next().unwrap(), Some(doc! {"x": 1}));
}

#[test]
fn a_killed_pipeline_stops() {
    let f = fixture();
    let request = AggregateRequest {
        collation: None,
        pipeline: &array![{"$unwind": "$tags"}],
        hint: None,
        variables: None,
        durability: Durability::Logged,
        bypass_validation: false,
        allow_disk_use: None,
    };
    let context = OpContext::new();
    let mut cursor = f
        .store
        .aggregate("db", Some(&ns("db.c")), &request, &context)
        .unwrap();
    assert!(cursor.next().unwrap().is_some());
    context
        .killed
        .store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(cursor.next().unwrap_err().code().code(), 11601);
}

#[test]
fn out_replaces_a_collection_and_keeps_its_indexes() {
    let f = fixture();
    let target = ns("db.target");
    f.insert(&target, &[doc! {"_id": 1000}]);
    f.store
        .create_indexes(&target, &[&doc! {"key": {"b": 1}, "unique": true}])
        .unwrap();
    let made = run(
        &f,
        array![{"$match": {"a": 3}}, {"$project": {"b": 1}}, {"$out": "target"}],
    );
    assert!(made.is_empty());
    assert_eq!(f.find_all(&target, doc! {}).len(), 10);
    assert_eq!(f.store.list_indexes(&target).unwrap().len(), 2);
    let failing = array![{"$project": {"b": "same"}}, {"$out": "target"}];
    assert_eq!(
        try_run(&f, &failing, None).unwrap_err().code().code(),
        11000
    );
    assert_eq!(f.find_all(&target, doc! {}).len(), 10);
    let names = f.store.list_collections("db").unwrap();
    assert_eq!(names.len(), 3);
}

#[test]
fn merge_inserts_merges_replaces_or_fails() {
    let f = fixture();
    let target = ns("db.target");
    let reset = || {
        let filter = doc! {};
        let request = frond_store::DeleteRequest {
            collation: None,
            filter: &filter,
            limit_one: false,
            hint: None,
            variables: None,
        };
        let context = OpContext::new();
        f.store
            .delete(&target, &request, Durability::Logged, &context)
            .unwrap();
        f.insert(&target, &[doc! {"_id": 1, "old": true}]);
    };
    let old = doc! {"_id": 1, "old": true};
    let new = |id: i32| doc! {"_id": id, "b": id};
    for (options, expected) in [
        (
            doc! {},
            Ok(vec![doc! {"_id": 1, "old": true, "b": 1}, new(2)]),
        ),
        (doc! {"whenMatched": "replace"}, Ok(vec![new(1), new(2)])),
        (
            doc! {"whenMatched": "keepExisting"},
            Ok(vec![old.clone(), new(2)]),
        ),
        (doc! {"whenMatched": "fail"}, Err(11000)),
        (
            doc! {"whenNotMatched": "discard"},
            Ok(vec![doc! {"_id": 1, "old": true, "b": 1}]),
        ),
        (doc! {"whenNotMatched": "fail"}, Err(13113)),
        (
            doc! {"whenMatched": [{"$set": {"sum": {"$add": ["$$new.b", 10]}}}]},
            Ok(vec![doc! {"_id": 1, "old": true, "sum": 11}, new(2)]),
        ),
        (doc! {"on": "b"}, Err(51183)),
        (
            doc! {"whenMatched": "fail", "whenNotMatched": "discard"},
            Err(51181),
        ),
        (doc! {"whenMatched": "nonsense"}, Err(2)),
    ] {
        reset();
        let mut spec = doc! {"into": "target"};
        spec.push_all(&options);
        let pipeline = array![
            {"$match": {"_id": {"$in": [1, 2]}}}, {"$project": {"b": 1}}, {"$merge": &spec}
        ];
        let result = try_run(&f, &pipeline, None).map(|_| f.find_all(&target, doc! {}));
        let result = result.map_err(|error| error.code().code());
        assert_eq!(result, expected, "{options:?}");
    }
    f.store
        .create_indexes(&target, &[&doc! {"key": {"b": 1}, "unique": true}])
        .unwrap();
    let pipeline = array![
        {"$match": {"_id": 5}}, {"$project": {"_id": 0, "b": 1, "a": 1}},
        {"$merge": {"into": "target", "on": "b"}}
    ];
    run(&f, pipeline.clone());
    run(&f, pipeline);
    let found = f.find_all(&target, doc! {"b": 5});
    assert_eq!(found.len(), 1);
    assert!(matches!(found[0].get("_id"), Some(Value::ObjectId(_))));
}

/// One call of the cursor processes all documents, so the inner loops have to check the time limit.
#[test]
fn a_time_limit_interrupts_a_join() {
    let f = Fixture::new();
    let c = ns("db.c");
    let docs: Vec<DocBuf> = (0..300).map(|i| doc! {"_id": i}).collect();
    f.insert(&c, &docs);
    let pipeline = array![
        {"$lookup": {"from": "c", "let": {"id": "$_id"}, "as": "all", "pipeline": [
            {"$set": {"sum": {"$add": ["$_id", "$$id"]}}},
        ]}},
        {"$count": "n"},
    ];
    let soon = std::time::Instant::now() + std::time::Duration::from_millis(2);
    let limits = OpContext::with_deadline(Some(soon));
    let error = try_run_within(&f, &pipeline, None, &limits).unwrap_err();
    assert_eq!(error.code().code(), 50);
}
