//! Pipelines over collections: first stages that become queries, and stages that read or write other collections.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{ArrayBuf, DocBuf, Value, array, doc};
use frond_store::{AggregateRequest, Durability, EngineOptions, OpContext, Result};

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

/// Runs stages on `source` with the collection `target` made of `existing`, with a unique index on `k`.
fn merged(
    existing: &[DocBuf],
    source: &[DocBuf],
    spec: &DocBuf,
) -> (Result<Vec<DocBuf>>, Vec<DocBuf>) {
    let f = Fixture::new();
    let (source_ns, target) = (ns("db.c"), ns("db.target"));
    f.insert(&source_ns, source);
    let unique = doc! {"key": {"k": 1}, "unique": true};
    f.store.create_indexes(&target, &[&unique]).unwrap();
    f.insert(&target, existing);
    let result = try_run(&f, &array![{"$unset": "drop"}, {"$merge": spec}], None);
    let sort = doc! {"k": 1};
    let request = frond_store::FindRequest {
        sort: Some(&sort),
        ..frond_store::FindRequest::default()
    };
    (result, f.find(&target, &request))
}

/// The `_id` of a stored document never changes. Only a document that is left as it is does not need the same one.
#[test]
fn merge_on_another_field_than_the_id_refuses_another_id() {
    let existing = [doc! {"_id": 10, "k": 1, "old": true}];
    let source = [doc! {"_id": 20, "k": 1, "n": 1}];
    let set = |value: &str| array![{"$set": {"from": value}}];
    let kept = existing[0].clone();
    for (matched, expected) in [
        (Value::String("merge"), Err(66)),
        (Value::String("replace"), Err(66)),
        (Value::String("keepExisting"), Ok(kept.clone())),
        (Value::String("fail"), Err(11000)),
        (
            set("$$new._id").as_value(),
            Ok(doc! {"_id": 10, "k": 1, "old": true, "from": 20}),
        ),
        (array![{"$replaceWith": "$$new"}].as_value(), Err(66)),
    ] {
        for not_matched in ["insert", "discard", "fail"] {
            let mut spec = doc! {"into": "target", "on": "k"};
            spec.push("whenMatched", matched);
            spec.push("whenNotMatched", not_matched);
            let only_inserts = matches!(matched, Value::String("keepExisting" | "fail"));
            if only_inserts && not_matched != "insert" {
                continue;
            }
            let (result, found) = merged(&existing, &source, &spec);
            let result = result.map_err(|error| (error.code().code(), error.message()));
            match &expected {
                Ok(after) => {
                    assert_eq!(result, Ok(vec![]), "{spec:?}");
                    assert_eq!(found, std::slice::from_ref(after), "{spec:?}");
                }
                Err(code) => {
                    let (got, message) = result.unwrap_err();
                    assert_eq!(got, *code, "{spec:?}: {message}");
                    assert!(
                        message.starts_with("$merge failed to update the matching document")
                            || message.starts_with("$merge with whenMatched: fail found"),
                        "{message}"
                    );
                    assert_eq!(found, std::slice::from_ref(&kept), "{spec:?}");
                }
            }
        }
    }
    // The same `_id`, or none, is no change of it; without a counterpart the document comes with its own.
    for (source, matched, after) in [
        (
            doc! {"_id": 10, "k": 1, "n": 1},
            "merge",
            doc! {"_id": 10, "k": 1, "old": true, "n": 1},
        ),
        (
            doc! {"_id": 10, "k": 1, "n": 1},
            "replace",
            doc! {"_id": 10, "k": 1, "n": 1},
        ),
    ] {
        let spec = doc! {"into": "target", "on": "k", "whenMatched": matched};
        let (result, found) = merged(&existing, &[source], &spec);
        assert!(result.is_ok());
        assert_eq!(found, [after]);
    }
    for matched in ["merge", "replace", "keepExisting", "fail"] {
        let spec = doc! {"into": "target", "on": "k", "whenMatched": matched};
        let (result, found) = merged(&existing, &[doc! {"_id": 20, "k": 2, "n": 1}], &spec);
        assert!(result.is_ok());
        assert_eq!(found[1], doc! {"_id": 20, "k": 2, "n": 1}, "{matched}");
    }
}

/// The other documents of a batch are written, and the first error is returned.
#[test]
fn merge_goes_on_behind_a_document_that_is_refused() {
    let existing = [doc! {"_id": 1, "k": 1}, doc! {"_id": 2, "k": 2}];
    let source = [
        doc! {"_id": 3, "k": 3},
        doc! {"_id": 20, "k": 2, "n": 1},
        doc! {"_id": 1, "k": 1, "n": 1},
        doc! {"_id": 4, "k": 4},
    ];
    let keys = |found: &[DocBuf]| -> Vec<i64> {
        found.iter().map(|doc| doc.get_i64("k").unwrap()).collect()
    };
    for (matched, code) in [("merge", 66), ("replace", 66), ("fail", 11000)] {
        let spec = doc! {"into": "target", "on": "k", "whenMatched": matched};
        let (result, found) = merged(&existing, &source, &spec);
        assert_eq!(result.unwrap_err().code().code(), code, "{matched}");
        assert_eq!(keys(&found), [1, 2, 3, 4], "{matched}");
        assert_eq!(found[0].contains_key("n"), matched != "fail", "{matched}");
        assert!(!found[1].contains_key("n"), "{matched}");
    }
    let spec = doc! {"into": "target", "on": "k", "whenNotMatched": "fail"};
    let source = [doc! {"_id": 3, "k": 3}, doc! {"_id": 1, "k": 1, "n": 1}];
    let (result, found) = merged(&existing, &source, &spec);
    assert_eq!(result.unwrap_err().code().code(), 13113);
    assert_eq!(found[0].get_i64("n"), Some(1));
    // Keys are read before anything is written.
    for (wrong, code) in [
        (doc! {"_id": 5}, 51132),
        (doc! {"_id": 5, "k": null}, 51132),
        (doc! {"_id": 5, "k": [1]}, 51185),
    ] {
        let spec = doc! {"into": "target", "on": "k"};
        let source = [doc! {"_id": 3, "k": 3}, wrong];
        let (result, found) = merged(&existing, &source, &spec);
        assert_eq!(result.unwrap_err().code().code(), code);
        assert_eq!(keys(&found), [1, 2]);
    }
}

#[test]
fn merge_creates_its_target_with_the_first_document() {
    let f = fixture();
    let names = |f: &Fixture| -> Vec<String> {
        let listed = f.store.list_collections("db").unwrap();
        listed.into_iter().map(|one| one.name).collect()
    };
    let nothing = |stage: DocBuf| array![{"$match": {"_id": "none"}}, &stage];
    run(&f, nothing(doc! {"$merge": "target"}));
    run(
        &f,
        array![{"$merge": {"into": "target", "whenNotMatched": "discard"}}],
    );
    assert_eq!(names(&f), ["c", "other"]);
    run(&f, nothing(doc! {"$out": "empty"}));
    assert_eq!(names(&f), ["c", "empty", "other"]);
    run(
        &f,
        array![{"$limit": 1}, {"$merge": {"into": {"coll": "target"}}}],
    );
    assert_eq!(names(&f), ["c", "empty", "other", "target"]);
    for (stage, code) in [
        (doc! {"$merge": "system.x"}, 31319),
        (
            doc! {"$merge": {"into": {"db": "admin", "coll": "x"}}},
            31320,
        ),
        (doc! {"$out": "system.x"}, 17385),
        (doc! {"$out": {"db": "config", "coll": "x"}}, 31321),
        (doc! {"$merge": {"into": "target", "on": "none"}}, 51183),
    ] {
        let error = try_run(&f, &nothing(stage.clone()), None).unwrap_err();
        assert_eq!(error.code().code(), code, "{stage:?}");
    }
}

/// The index has to compare strings as the pipeline does.
#[test]
fn merge_needs_a_unique_index_of_its_collation() {
    let f = fixture();
    let no_case = doc! {"locale": "en", "strength": 2};
    let index = doc! {"key": {"s": 1}, "unique": true, "collation": &no_case};
    f.store.create_indexes(&ns("db.target"), &[&index]).unwrap();
    let pipeline = array![
        {"$limit": 1}, {"$project": {"_id": 0, "s": "x"}}, {"$merge": {"into": "target", "on": "s"}}
    ];
    for (collation, code) in [(None, Some(51183)), (Some(no_case), None)] {
        let collation = collation.map(|spec| frond_query::collation::parse(&spec).unwrap());
        let request = AggregateRequest {
            pipeline: &pipeline,
            hint: None,
            variables: None,
            durability: Durability::Logged,
            bypass_validation: false,
            allow_disk_use: None,
            collation,
        };
        let context = OpContext::new();
        let done = f
            .store
            .aggregate("db", Some(&ns("db.c")), &request, &context)
            .and_then(|mut cursor| cursor.next());
        assert_eq!(done.err().map(|error| error.code().code()), code);
    }
}

/// Changes made while the documents are written would be lost with the collection that they replace.
#[test]
fn out_fails_if_its_target_is_changed_meanwhile() {
    for (exists, change) in [
        (true, "index"),
        (true, "options"),
        (true, "drop"),
        (false, "create"),
    ] {
        let f = fixture();
        let target = ns("db.target");
        if exists {
            f.insert(&target, &[doc! {"_id": "old"}]);
        }
        let (store, to) = (f.store.clone(), target.clone());
        let act = frond_store::at_points(move |name| {
            if name != "a part of a result is written" {
                return;
            }
            match change {
                "index" => {
                    store
                        .create_indexes(&to, &[&doc! {"key": {"b": 1}}])
                        .unwrap();
                }
                "drop" => {
                    store.drop_collection(&to).unwrap();
                }
                "create" => {
                    store.create_collection(&to, &doc! {}).unwrap();
                }
                _ => {
                    let changes = doc! {"validator": {"a": 1}};
                    store.modify_collection(&to, &changes).unwrap();
                }
            }
        });
        let error = try_run(&f, &array![{"$out": "target"}], None).unwrap_err();
        drop(act);
        assert_eq!(error.code().code(), 125, "{change}: {}", error.message());
        let found = f.find_all(&target, doc! {});
        let expected = usize::from(exists && change != "drop");
        assert_eq!(found.len(), expected, "{change}");
        let listed = f.store.list_collections("db").unwrap();
        assert!(listed.iter().all(|one| !one.name.starts_with("tmp")));
    }
}

#[test]
fn out_makes_a_time_series() {
    let f = Fixture::new();
    let (c, target) = (ns("db.c"), ns("db.target"));
    let docs: Vec<DocBuf> = (0..5)
        .map(|i| doc! {"_id": i, "t": Value::DateTime(i64::from(i) * 1000), "m": i % 2})
        .collect();
    f.insert(&c, &docs);
    let series = doc! {"timeField": "t", "metaField": "m"};
    let out = |options: &DocBuf| {
        let stage = doc! {"$out": {"db": "db", "coll": "target", "timeseries": options}};
        try_run(&f, &array![&stage], None).map_err(|error| error.code().code())
    };
    let kind = || {
        let listed = f.store.list_collections("db").unwrap();
        let found = listed.into_iter().find(|one| one.name == "target");
        found.map(|one| one.kind)
    };
    for (wrong, code) in [
        (doc! {}, 40414),
        (doc! {"timeField": 1}, 14),
        (doc! {"timeField": "t", "metaField": "t"}, 72),
        (doc! {"timeField": "t", "x": 1}, 40415),
        // Documents without that time are no measurements.
        (doc! {"timeField": "none"}, 2),
    ] {
        assert_eq!(out(&wrong), Err(code), "{wrong:?}");
        assert_eq!(kind(), None);
    }
    for _ in 0..2 {
        assert_eq!(out(&series), Ok(vec![]));
        assert_eq!(kind(), Some(frond_store::CollectionKind::TimeSeries));
        assert_eq!(f.find_all(&target, doc! {}).len(), 5);
    }
    // Without the option it stays one.
    run(&f, array![{"$limit": 2}, {"$out": "target"}]);
    assert_eq!(kind(), Some(frond_store::CollectionKind::TimeSeries));
    assert_eq!(f.find_all(&target, doc! {}).len(), 2);
    assert_eq!(out(&doc! {"timeField": "t"}), Err(7_406_103));
    let merge = array![{"$merge": "target"}];
    assert_eq!(
        try_run(&f, &merge, None).unwrap_err().code().code(),
        1_074_330
    );
    f.store.drop_collection(&target).unwrap();
    f.store.create_collection(&target, &doc! {}).unwrap();
    assert_eq!(out(&series), Err(7_268_700));
    f.store.drop_collection(&target).unwrap();
    f.store
        .create_collection(&target, &doc! {"viewOn": "c"})
        .unwrap();
    assert_eq!(out(&series), Err(7_268_700));
}

/// A join by `_id` takes no pipeline for each document, unless it has a stage.
#[test]
fn a_join_by_id_finds_what_a_pipeline_finds() {
    let f = Fixture::new();
    let other: Vec<DocBuf> = array![
        {"_id": 1, "name": "one"},
        {"_id": 2.5, "name": "a half more than two"},
        {"_id": "a", "name": "text"},
        {"_id": "B", "name": "capital"},
        {"_id": Value::Null, "name": "null"},
        {"_id": {"x": 1}, "name": "document"},
        {"_id": true, "name": "true"},
    ]
    .values()
    .filter_map(|doc| Some(doc.as_doc()?.to_owned()))
    .collect();
    f.insert(&ns("db.other"), &other);
    let mut large = doc! {"_id": 77};
    for field in 0..3000 {
        large.push(&format!("field{field}"), "x".repeat(20).as_str());
    }
    f.insert(&ns("db.other"), &[large]);
    let local: Vec<DocBuf> = array![
        {"_id": 0, "r": 1},
        {"_id": 1, "r": 1.0},
        {"_id": 2, "r": 2.5},
        {"_id": 3, "r": "a"},
        {"_id": 4, "r": "b"},
        {"_id": 5, "r": Value::Null},
        {"_id": 6},
        {"_id": 7, "r": {"x": 1}},
        {"_id": 8, "r": [1, "a", 9]},
        {"_id": 9, "r": [1]},
        {"_id": 10, "r": []},
        {"_id": 11, "r": true},
        {"_id": 12, "r": 77},
        {"_id": 13, "r": [{"deep": 1}, {"deep": "a"}]},
        {"_id": 14, "r": "absent"},
    ]
    .values()
    .filter_map(|doc| Some(doc.as_doc()?.to_owned()))
    .collect();
    f.insert(&ns("db.c"), &local);
    for path in ["r", "r.deep", "absent"] {
        let join = |stages: ArrayBuf| {
            let mut spec = doc! {
                "from": "other", "localField": path, "foreignField": "_id", "as": "o",
            };
            if !stages.is_empty() {
                spec.push("pipeline", &stages);
            }
            run(&f, array![{"$sort": {"_id": 1}}, {"$lookup": spec}])
        };
        let found = join(ArrayBuf::new());
        assert_eq!(found.len(), local.len());
        assert_eq!(
            found,
            join(array![{"$match": {"_id": {"$exists": true}}}]),
            "{path}"
        );
    }
    let joined = run(
        &f,
        array![{"$match": {"_id": {"$in": [1, 12, 14]}}}, {"$sort": {"_id": 1}},
               {"$lookup": {"from": "other", "localField": "r", "foreignField": "_id", "as": "o"}},
               {"$project": {"o.name": 1}}],
    );
    assert_eq!(
        joined,
        [
            doc! {"_id": 1, "o": [{"name": "one"}]},
            doc! {"_id": 12, "o": [{}]},
            doc! {"_id": 14, "o": []},
        ]
    );
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

#[test]
fn a_small_sample_reads_random_documents_and_not_the_collection() {
    // A cluster reads the collection for every sample.
    let f = Fixture::with(|directory| {
        let mut options = EngineOptions::new(directory);
        options.cache_bytes = 32 << 20;
        options
    });
    let c = ns("db.c");
    let documents = 20_000;
    let docs: Vec<DocBuf> = (0..documents)
        .map(|i| doc! {"_id": i, "text": "x".repeat(200)})
        .collect();
    for part in docs.chunks(1000) {
        f.insert(&c, part);
    }
    f.store.compact(&c, &OpContext::new()).unwrap();
    let (deleted_from, deleted_to) = (5000, 9000);
    for id in deleted_from..deleted_to {
        let filter = doc! {"_id": id};
        let request = frond_store::DeleteRequest {
            filter: &filter,
            limit_one: true,
            hint: None,
            variables: None,
            collation: None,
        };
        let deleted = f
            .store
            .delete(&c, &request, Durability::Logged, &OpContext::new());
        assert_eq!(deleted.unwrap(), 1);
    }
    f.insert(&c, &[doc! {"_id": -1}]);
    let ids = |size: i32| -> Vec<i32> {
        let found = run(&f, array![{"$sample": {"size": size}}]);
        found
            .iter()
            .map(|doc| doc.get_i32("_id").unwrap())
            .collect()
    };
    for size in [1, 7, 100, 320, 321, 16_001, 30_000] {
        let found = ids(size);
        let expected = (size as usize).min(16_001);
        assert_eq!(found.len(), expected, "size {size}");
        let unique: std::collections::BTreeSet<_> = found.iter().collect();
        assert_eq!(unique.len(), expected, "size {size}");
        let is_there =
            |id: &i32| (-1..documents).contains(id) && !(deleted_from..deleted_to).contains(id);
        assert!(found.iter().all(is_there), "size {size}");
    }
    // Each eighth of the documents has about its share of 25 samples, whose order is random, too.
    let mut shares = [0; 8];
    let mut ascents = 0;
    for _ in 0..25 {
        let found = ids(320);
        ascents += found.windows(2).filter(|pair| pair[0] < pair[1]).count();
        for id in found {
            let rank = if id < deleted_from {
                id
            } else {
                id - (deleted_to - deleted_from)
            };
            shares[rank.max(0) as usize / 2000] += 1;
        }
    }
    for share in shares {
        assert!((750..1250).contains(&share), "{shares:?}");
    }
    assert!(
        (3000..5000).contains(&ascents),
        "{ascents} of 7,975 neighbours ascend"
    );
    // A fiftieth of the documents is chosen at random; more, or a part of a query, is read with the rest.
    for (pipeline, stage, docs_max) in [
        (array![{"$sample": {"size": 320}}], "MULTI_ITERATOR", 400),
        (array![{"$sample": {"size": 321}}], "COLLSCAN", 16_001),
        (
            array![{"$match": {"text": {"$ne": 1}}}, {"$sample": {"size": 10}}],
            "COLLSCAN",
            16_001,
        ),
        (
            array![{"$limit": 100}, {"$sample": {"size": 10}}],
            "COLLSCAN",
            100,
        ),
    ] {
        let (_, figures) = frond_store::watch_part(|| run(&f, pipeline.clone()));
        let summary = figures.plan.map(|plan| plan.summary());
        assert_eq!(summary.as_deref(), Some(stage), "{pipeline:?}");
        assert!(
            figures.docs_examined <= docs_max,
            "{} {pipeline:?}",
            figures.docs_examined
        );
    }
}
