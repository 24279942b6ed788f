//! The output of `explain` over a store.

#![allow(clippy::unwrap_used)]

use frond_bson::{Doc, DocBuf, Value, doc};

use crate::testing::TestServer;

#[tokio::test(flavor = "multi_thread")]
async fn every_command_that_finds_is_explained() {
    let mut server = TestServer::new();
    server.fill("c", 20);
    server.run(
        "test",
        doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
    );
    let filter = doc! {"a": {"$gte": 150}};
    let commands: Vec<DocBuf> = vec![
        doc! {"find": "c", "filter": &filter},
        doc! {"count": "c", "query": &filter},
        doc! {"distinct": "c", "key": "a", "query": &filter},
        doc! {"findAndModify": "c", "query": &filter, "remove": true},
        doc! {"update": "c", "updates": [{"q": &filter, "u": {"$set": {"b": 1}}, "multi": true}]},
        doc! {"delete": "c", "deletes": [{"q": &filter, "limit": 0}]},
    ];
    for command in commands {
        let explain = doc! {"explain": &command, "verbosity": "executionStats"};
        let reply = server.run("test", explain);
        let plan = format!("{:?}", reply.get_doc("queryPlanner").unwrap());
        let scans = ["IXSCAN", "COUNT_SCAN", "DISTINCT_SCAN"];
        let scans = scans.iter().any(|scan| plan.contains(scan));
        assert!(scans && plan.contains("a_1"), "{plan}");
        let stats = reply.get_doc("executionStats").unwrap();
        assert!(
            stats.get_i32("totalKeysExamined").unwrap() <= 6,
            "{stats:?}"
        );
        assert_eq!(reply.get_doc("command"), Some(&*command));
    }
    // Nothing was changed.
    assert_eq!(
        server.run("test", doc! {"count": "c"}).get_i32("n"),
        Some(20)
    );
    let reply = server.run(
        "test",
        doc! {"explain": {"find": "c"}, "verbosity": "queryPlanner"},
    );
    assert!(reply.get("executionStats").is_none() && reply.get_doc("serverInfo").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_and_counts_are_stages_of_their_own() {
    let mut server = TestServer::new();
    server.fill("c", 20);
    server.run(
        "test",
        doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
    );
    let q = doc! {"a": {"$gte": 150}};
    let cases: Vec<(DocBuf, &str, &str, DocBuf)> = vec![
        (
            doc! {"count": "c"},
            "RECORD_STORE_FAST_COUNT",
            "",
            doc! {"nCounted": 20},
        ),
        (
            doc! {"count": "c", "query": &q, "skip": 1},
            "COUNT",
            "COUNT_SCAN",
            doc! {"nCounted": 4, "nSkipped": 1},
        ),
        (
            doc! {"update": "c", "updates": [{"q": &q, "u": {"$set": {"a": 150}}, "multi": true}]},
            "UPDATE",
            "FETCH",
            doc! {"nMatched": 5, "nWouldModify": 4, "nWouldUpsert": 0},
        ),
        (
            doc! {"update": "c", "updates": [{"q": {"a": -1}, "u": {"$set": {"b": 1}}, "upsert": true}]},
            "UPDATE",
            "FETCH",
            doc! {"nMatched": 0, "nWouldModify": 0, "nWouldUpsert": 1},
        ),
        (
            doc! {"delete": "c", "deletes": [{"q": &q, "limit": 1}]},
            "DELETE",
            "FETCH",
            doc! {"nWouldDelete": 1},
        ),
        (
            doc! {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"b": 1}}},
            "UPDATE",
            "IDHACK",
            doc! {"nMatched": 1, "nWouldModify": 1},
        ),
    ];
    for (command, outer, inner, expected_stats) in cases {
        let explain = doc! {"explain": &command, "verbosity": "executionStats"};
        let reply = server.run("test", explain);
        let stats = reply.get_doc("executionStats").unwrap();
        let stage = stats.get_doc("executionStages").unwrap();
        assert_eq!(stage.get_str("stage"), Some(outer), "{command:?}");
        let below = stage
            .get_doc("inputStage")
            .and_then(|stage| stage.get_str("stage"));
        assert_eq!(below.unwrap_or(""), inner, "{command:?}");
        for (name, value) in expected_stats.iter() {
            assert_eq!(stage.get(name), Some(value), "{command:?} {name}");
        }
    }
    let reply = server.run("test", doc! {"count": "c", "query": {"b": 1}});
    assert_eq!(reply.get_i32("n"), Some(0), "nothing was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelines_are_explained() {
    let mut server = TestServer::new();
    server.fill("c", 20);
    server.run(
        "test",
        doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
    );
    let pipeline = doc! {"pipeline": [
        {"$match": {"a": {"$gte": 150}}}, {"$match": {"_id": {"$ne": 3}}}, {"$group": {"_id": null, "n": {"$sum": 1}}},
    ]};
    let mut inner = doc! {"aggregate": "c"};
    inner.push_all(&pipeline);
    inner.push("cursor", &doc! {});
    let outer = doc! {"explain": &inner, "verbosity": "queryPlanner"};
    let mut old = inner.clone();
    old.push("explain", true);
    for command in [outer, old] {
        let reply = server.run("test", command);
        let stages = reply.get_array("stages").unwrap();
        assert_eq!(stages.count(), 2);
        let cursor = format!("{:?}", stages.get_doc("0"));
        assert!(
            cursor.contains("$cursor") && cursor.contains("IXSCAN"),
            "{cursor}"
        );
        assert!(stages.get_doc("1").unwrap().contains_key("$group"));
    }
    let simple =
        doc! {"explain": {"aggregate": "c", "pipeline": [{"$match": {"a": 10}}], "cursor": {}}};
    let reply = server.run("test", simple);
    assert!(reply.get_doc("queryPlanner").is_some());
}

/// The innermost stage of a plan.
fn scan(stage: &Doc) -> &Doc {
    stage.get_doc("inputStage").map_or(stage, scan)
}

/// Fields that are longs, with their paths.
fn longs(doc: &Doc, path: &str, found: &mut Vec<String>) {
    for (name, value) in doc.iter() {
        match value {
            Value::Document(inner) | Value::Array(inner) => {
                longs(inner, &format!("{path}.{name}"), found);
            }
            Value::Int64(_) => found.push(format!("{path}.{name}")),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_ints_and_seeks_are_counted() {
    let mut server = TestServer::new();
    server.fill("c", 20);
    let index = doc! {"key": {"a": 1}, "name": "a_1"};
    server.run("test", doc! {"createIndexes": "c", "indexes": [&index]});
    // A filter, the keys that its plan looks at, and the times that it searches for one.
    let cases = [
        (doc! {"a": 50}, 1, 1),
        (doc! {"a": {"$gte": 100}}, 10, 1),
        (doc! {"a": {"$in": [10, 90]}}, 3, 2),
        (doc! {"_id": {"$gt": 10, "$lt": 15}}, 4, 1),
    ];
    for (filter, keys, seeks) in cases {
        let find = doc! {"find": "c", "filter": &filter, "sort": {"b": 1}, "skip": 1, "limit": 3, "projection": {"a": 1}};
        for verbosity in ["executionStats", "allPlansExecution"] {
            let reply = server.run("test", doc! {"explain": &find, "verbosity": verbosity});
            let stats = reply.get_doc("executionStats").unwrap();
            let stage = scan(stats.get_doc("executionStages").unwrap());
            assert_eq!(stage.get_str("stage"), Some("IXSCAN"), "{filter:?}");
            let expected_stats = (stage.get_i32("keysExamined"), stage.get_i32("seeks"));
            assert_eq!(expected_stats, (Some(keys), Some(seeks)), "{filter:?}");
            let mut found = Vec::new();
            longs(&reply, "", &mut found);
            assert!(found.is_empty(), "{found:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn later_stages_tell_what_they_returned() {
    let mut server = TestServer::new();
    server.fill("c", 20);
    let pipelines: Vec<(DocBuf, Vec<(&str, i32)>)> = vec![
        (
            doc! {"p": [
                {"$match": {"a": {"$gte": 100}}},
                {"$project": {"a": 1, "half": {"$floor": {"$divide": ["$_id", 2]}}}},
                {"$match": {"half": {"$gt": 5}}},
                {"$group": {"_id": "$half", "n": {"$sum": 1}}},
                {"$sort": {"_id": 1}},
                {"$limit": 3},
                {"$unwind": "$none"},
            ]},
            vec![
                ("$cursor", 10),
                ("$project", 10),
                ("$match", 8),
                ("$group", 4),
                ("$sort", 3),
                ("$limit", 3),
                ("$unwind", 0),
            ],
        ),
        (
            doc! {"p": [{"$lookup": {"from": "c", "localField": "_id", "foreignField": "a", "as": "b"}}, {"$unwind": "$b"}, {"$count": "n"}]},
            vec![
                ("$cursor", 20),
                ("$lookup", 20),
                ("$unwind", 2),
                ("$count", 1),
            ],
        ),
    ];
    for (pipeline, expected) in pipelines {
        let pipeline = pipeline.get_array("p").unwrap();
        let inner = doc! {"aggregate": "c", "pipeline": Value::Array(pipeline), "cursor": {}};
        let reply = server.run(
            "test",
            doc! {"explain": &inner, "verbosity": "executionStats"},
        );
        let stages = reply.get_array("stages").unwrap();
        let shown: Vec<(&str, i32)> = stages
            .values()
            .filter_map(|stage| {
                let stage = stage.as_doc()?;
                assert!(
                    stage.get_i32("executionTimeMillisEstimate").is_some(),
                    "{stage:?}"
                );
                Some((stage.first()?.0, stage.get_i32("nReturned")?))
            })
            .collect();
        assert_eq!(shown, expected);
        let reply = server.run(
            "test",
            doc! {"explain": &inner, "verbosity": "queryPlanner"},
        );
        let stage = reply.get_array("stages").unwrap().get_doc("1").unwrap();
        assert!(!stage.contains_key("nReturned"), "nothing was run");
    }
    // A stage that writes is not run.
    let inner =
        doc! {"aggregate": "c", "pipeline": [{"$project": {"a": 1}}, {"$out": "d"}], "cursor": {}};
    let reply = server.run(
        "test",
        doc! {"explain": &inner, "verbosity": "executionStats"},
    );
    let stages = reply.get_array("stages").unwrap();
    assert_eq!(stages.get_doc("1").unwrap().get_i32("nReturned"), Some(20));
    assert!(!stages.get_doc("2").unwrap().contains_key("nReturned"));
    let count = server.run("test", doc! {"count": "d"});
    assert_eq!(count.get_i32("n"), Some(0));
    // $geoNear is a part of the query.
    server.run(
        "test",
        doc! {"createIndexes": "g", "indexes": [{"key": {"at": "2d"}, "name": "at"}]},
    );
    server.run(
        "test",
        doc! {"insert": "g", "documents": [{"at": [1, 1]}, {"at": [2, 2]}, {"at": [50, 50]}]},
    );
    let near = doc! {"aggregate": "g", "cursor": {}, "pipeline": [
        {"$geoNear": {"near": [0, 0], "distanceField": "far", "maxDistance": 10}}, {"$match": {"far": {"$gt": 2}}},
    ]};
    let reply = server.run(
        "test",
        doc! {"explain": &near, "verbosity": "executionStats"},
    );
    let stages = reply.get_array("stages").unwrap();
    let returned: Vec<_> = stages
        .values()
        .map(|stage| stage.as_doc().unwrap().get_i32("nReturned"))
        .collect();
    assert_eq!(returned, [Some(2), Some(1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_explanations_are_refused() {
    let mut server = TestServer::new();
    let cases = [
        (doc! {"explain": 1}, 14),
        (doc! {"explain": {}}, 59),
        (doc! {"explain": {"nonsense": 1}}, 59),
        (doc! {"explain": {"ping": 1}}, 59),
        (doc! {"explain": {"insert": "c"}}, 59),
        (doc! {"explain": {"find": "c", "x": 1}}, 40415),
        (doc! {"explain": {"find": "c"}, "verbosity": "all"}, 2),
        (doc! {"explain": {"update": "c", "updates": []}}, 16),
    ];
    for (command, code) in cases {
        assert_eq!(server.code("test", command.clone()), code, "{command:?}");
    }
}
