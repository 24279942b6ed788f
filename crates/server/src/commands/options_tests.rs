//! Options of several commands: null ones, those of other types, and how errors of their execution begin.
#![allow(clippy::unwrap_used)]

use frond_bson::{DocBuf, Value, doc};

use crate::testing::TestServer;

/// The code of a command, 0 if it succeeds.
fn code(server: &mut TestServer, db: &str, command: &DocBuf) -> i32 {
    server
        .reply(db, command.clone())
        .get_i32("code")
        .unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn null_options_are_left_out() {
    let mut server = TestServer::new();
    server.fill("c", 5);
    let update = doc! {
        "q": {}, "u": {"$set": {"b": 1}}, "multi": null, "upsert": null, "arrayFilters": null, "collation": null,
        "hint": null, "sort": null,
    };
    let lookup = doc! {"from": "c", "as": "x", "localField": null, "foreignField": null, "let": null, "pipeline": []};
    let fill = doc! {"sortBy": null, "partitionByFields": null, "output": {"a": {"value": 1}}};
    let collation = doc! {
        "locale": "en", "caseLevel": null, "caseFirst": null, "strength": null, "numericOrdering": null, "alternate": null,
        "maxVariable": null, "normalization": null, "version": null,
    };
    let stages = doc! {"aggregate": "c", "cursor": {}, "pipeline": [
        {"$lookup": &lookup}, {"$fill": &fill},
        {"$setWindowFields": {"sortBy": null, "output": {"n": {"$sum": 1}}}},
        {"$unionWith": {"coll": "c", "pipeline": []}},
    ]};
    let describing = doc! {"aggregate": "c", "cursor": {}, "pipeline": [
        {"$collStats": {"count": {}, "storageStats": null, "latencyStats": null}},
    ]};
    let documents = doc! {"aggregate": "c", "cursor": {}, "pipeline": [
        {"$unionWith": {"coll": null, "pipeline": [{"$documents": []}]}},
    ]};
    let commands = [
        doc! {
            "find": "c", "filter": null, "sort": null, "limit": null, "batchSize": null, "singleBatch": null, "hint": null,
            "collation": null, "let": null, "allowDiskUse": null, "readConcern": null, "maxTimeMS": null, "txnNumber": null,
            "autocommit": null, "startTransaction": null, "lsid": null, "apiVersion": null, "apiStrict": null,
            "apiDeprecationErrors": null, "$readPreference": null, "comment": null,
        },
        doc! {"find": "c", "collation": &collation},
        doc! {"update": "c", "updates": [update], "ordered": null, "writeConcern": null, "bypassDocumentValidation": null},
        doc! {"count": "c", "query": null, "limit": null, "skip": null, "hint": null},
        doc! {"distinct": "c", "key": "a", "query": null, "collation": null},
        doc! {"create": "d", "capped": null, "size": null, "max": null, "timeseries": null, "validator": null, "collation": null},
        doc! {"create": "s", "timeseries": {"timeField": "t", "metaField": null, "granularity": null}},
        doc! {"create": "k", "clusteredIndex": {"key": {"_id": 1}, "unique": true, "name": null, "v": null}},
        doc! {"collMod": "s", "timeseries": {"granularity": null, "bucketMaxSpanSeconds": null}},
        doc! {"listCollections": 1, "filter": null, "nameOnly": null, "cursor": null},
        stages,
        describing,
        documents,
    ];
    for command in commands {
        let reply = server.reply("test", command.clone());
        let failed = reply.get_array("writeErrors").is_some();
        assert!(
            !failed && reply.get_f64("ok") == Some(1.0),
            "{command:?} {reply:?}"
        );
    }
    // A required field is missing, an unknown one stays unknown, and a few take null for a value of the wrong type.
    for (command, expected) in [
        (doc! {"find": "c", "collation": {"locale": null}}, 40414),
        (
            doc! {"find": "c", "collation": {"locale": "en", "backwards": null}},
            14,
        ),
        (doc! {"find": "c", "x": null}, 40415),
        (
            doc! {"create": "s2", "timeseries": {"timeField": null}},
            40414,
        ),
        (
            doc! {"create": "s2", "timeseries": {"timeField": "t", "x": null}},
            40415,
        ),
        (
            doc! {"aggregate": "c", "cursor": {}, "pipeline": [{"$setWindowFields": {"output": null}}]},
            40414,
        ),
        (
            doc! {"aggregate": "c", "cursor": {}, "pipeline": [{"$fill": {"partitionBy": null, "output": {"a": {"method": "locf"}}}}]},
            14,
        ),
        (
            doc! {"aggregate": "c", "cursor": {}, "pipeline": [{"$lookup": {"from": "c", "as": "x", "pipeline": null}}]},
            14,
        ),
        (doc! {"distinct": "c", "key": null}, 40414),
    ] {
        assert_eq!(code(&mut server, "test", &command), expected, "{command:?}");
    }
}

/// Booleans of MongoDB's commands take no numbers, except options that always did.
#[tokio::test(flavor = "multi_thread")]
async fn booleans_are_strict_where_those_of_mongodb_are() {
    let mut server = TestServer::new();
    server.fill("c", 2);
    let strict = [
        (
            "test",
            doc! {"insert": "c", "documents": [{"a": 1}]},
            "ordered",
        ),
        (
            "test",
            doc! {"insert": "c", "documents": [{"a": 1}]},
            "bypassEmptyTsReplacement",
        ),
        ("test", doc! {"find": "c"}, "singleBatch"),
        ("test", doc! {"find": "c"}, "noCursorTimeout"),
        ("test", doc! {"find": "c"}, "returnKey"),
        ("test", doc! {"find": "c"}, "showRecordId"),
        ("test", doc! {"find": "c"}, "allowDiskUse"),
        (
            "test",
            doc! {"aggregate": "c", "pipeline": [], "cursor": {}},
            "allowDiskUse",
        ),
        ("test", doc! {"listCollections": 1}, "nameOnly"),
        ("test", doc! {"listCollections": 1}, "authorizedCollections"),
        ("admin", doc! {"listDatabases": 1}, "authorizedDatabases"),
        (
            "admin",
            doc! {"renameCollection": "test.c", "to": "test.d"},
            "dropTarget",
        ),
        (
            "admin",
            doc! {"bulkWrite": 1, "ops": [{"insert": 0, "document": {"a": 1}}], "nsInfo": [{"ns": "test.c"}]},
            "errorsOnly",
        ),
    ];
    for (db, command, option) in strict {
        for value in [Value::Int32(1), Value::Double(0.0), Value::String("yes")] {
            let mut command = command.clone();
            command.push_value(option, &value);
            assert_eq!(code(&mut server, db, &command), 14, "{command:?}");
        }
    }
    for option in ["multi", "upsert"] {
        let mut update = doc! {"q": {}, "u": {"$set": {"a": 1}}};
        update.push(option, 1);
        let update = doc! {"update": "c", "updates": [update]};
        assert_eq!(code(&mut server, "test", &update), 14, "{update:?}");
    }
    let lax = [
        (
            "test",
            doc! {"insert": "c", "documents": [{"a": 1}]},
            "bypassDocumentValidation",
        ),
        ("admin", doc! {"listDatabases": 1}, "nameOnly"),
        (
            "test",
            doc! {"findAndModify": "c", "query": {"_id": 9}, "update": {"a": 1}},
            "new",
        ),
        (
            "test",
            doc! {"findAndModify": "c", "query": {"_id": 9}, "update": {"a": 1}},
            "upsert",
        ),
        ("test", doc! {"dbStats": 1}, "freeStorage"),
    ];
    for (db, command, option) in lax {
        let mut command = command.clone();
        command.push(option, 1);
        assert_eq!(code(&mut server, db, &command), 0, "{command:?}");
        command.push("x", 1);
        assert_eq!(code(&mut server, db, &command), 40415, "{command:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_an_execution_name_the_command_and_the_collection() {
    let mut server = TestServer::new();
    server.run(
        "test",
        doc! {"insert": "c", "documents": [{"_id": 1, "a": 1}, {"_id": 2, "a": 0}]},
    );
    let divides = doc! {"$expr": {"$eq": [{"$divide": [1, "$a"]}, 5]}};
    let cause = "can't $divide by zero";
    let inc = doc! {"$inc": {"s": 1}};
    let cases = [
        (
            doc! {"find": "c", "filter": &divides},
            "Executor error during find command: test.c",
        ),
        (
            doc! {"aggregate": "c", "cursor": {}, "pipeline": [{"$match": &divides}]},
            "Executor error during aggregate command on namespace: test.c",
        ),
        (
            doc! {"aggregate": "c", "cursor": {}, "pipeline": [{"$project": {"x": {"$divide": [1, "$a"]}}}]},
            "Executor error during aggregate command on namespace: test.c",
        ),
        (
            doc! {"count": "c", "query": &divides},
            "Executor error during count command on namespace: test.c",
        ),
        (
            doc! {"distinct": "c", "key": "a", "query": &divides},
            "Executor error during distinct command on namespace: test.c",
        ),
        (
            doc! {"update": "c", "updates": [{"q": &divides, "u": &inc}]},
            "Plan executor error during update",
        ),
        (
            doc! {"delete": "c", "deletes": [{"q": &divides, "limit": 0}]},
            "Plan executor error during delete",
        ),
        (
            doc! {"findAndModify": "c", "query": &divides, "update": &inc},
            "Plan executor error during findAndModify",
        ),
    ];
    for (command, plan) in cases {
        let reply = server.reply("test", command.clone());
        let errors = reply.get_array("writeErrors");
        let of_write = errors.and_then(|errors| errors.get_doc("0"));
        let message = of_write.unwrap_or(&reply).get_str("errmsg").unwrap();
        let expected = format!("{plan} :: caused by :: ");
        assert!(message.starts_with(&expected), "{command:?}: {message}");
        assert!(message.contains(cause), "{command:?}: {message}");
    }
    // The second batch.
    let reply = server.run(
        "test",
        doc! {"find": "c", "filter": &divides, "batchSize": 0},
    );
    let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
    let reply = server.reply("test", doc! {"getMore": id, "collection": "c"});
    let message = reply.get_str("errmsg").unwrap();
    assert!(
        message.starts_with("Executor error during getMore :: caused by :: "),
        "{message}"
    );
    // Errors of a request are not reported as errors of its execution.
    for command in [
        doc! {"find": "c", "filter": {"$nosuch": 1}},
        doc! {"find": "c", "hint": "none"},
        doc! {"aggregate": "c", "cursor": {}, "pipeline": [{"$nosuch": 1}]},
    ] {
        let reply = server.reply("test", command.clone());
        let message = reply.get_str("errmsg").unwrap();
        assert!(!message.contains("xecutor error"), "{command:?}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_stored_and_listed_as_in_mongodb() {
    let mut server = TestServer::new();
    let index = |key: DocBuf, name: &str| doc! {"key": &key, "name": name};
    let a = || index(doc! {"a": 1}, "a_1");
    let create = |indexes: &[DocBuf]| {
        let mut command = doc! {"createIndexes": "c"};
        command.push_array("indexes", |list| {
            for index in indexes {
                list.push(index);
            }
        });
        command
    };
    // Two specifications of one command.
    let twice = [
        ([a(), a()], 68),
        ([a(), index(doc! {"a": 1}, "other")], 85),
        ([a(), index(doc! {"b": 1}, "a_1")], 86),
    ];
    for filled in [false, true] {
        if filled {
            server.fill("c", 3);
        }
        for (indexes, expected) in &twice {
            assert_eq!(
                code(&mut server, "test", &create(indexes)),
                *expected,
                "{indexes:?}"
            );
        }
    }
    // Nothing is created for indexes that are refused.
    let other = doc! {"createIndexes": "other", "indexes": [a(), a()]};
    assert_eq!(code(&mut server, "test", &other), 68);
    assert_eq!(server.code("test", doc! {"listIndexes": "other"}), 26);
    server.run("test", create(&[a()]));
    // Each is there already.
    server.run("test", create(&[a(), a()]));

    for (name, seconds) in [("l", Value::Int64(5)), ("f", Value::Double(5.9))] {
        let mut spec = index(doc! {name: 1}, name);
        spec.push_value("expireAfterSeconds", &seconds);
        server.run("test", create(&[spec]));
        let reply = server.run("test", doc! {"listIndexes": "c"});
        let listed = server.batch(&reply, "firstBatch");
        let stored = listed.last().unwrap().get("expireAfterSeconds");
        assert_eq!(stored, Some(Value::Int32(5)), "{name}");
    }

    server.run(
        "test",
        doc! {"create": "s", "timeseries": {"timeField": "t", "metaField": "m"}},
    );
    server.run(
        "test",
        doc! {"create": "n", "timeseries": {"timeField": "t"}},
    );
    let reply = server.run("test", doc! {"listIndexes": "s"});
    assert_eq!(
        server.batch(&reply, "firstBatch"),
        [doc! {"v": 2, "key": {"m": 1, "t": 1}, "name": "m_1_t_1"}]
    );
    let reply = server.run("test", doc! {"listIndexes": "n"});
    assert!(server.batch(&reply, "firstBatch").is_empty());
    // As a restore of a dump does.
    let same =
        doc! {"createIndexes": "s", "indexes": [{"key": {"m": 1, "t": 1}, "name": "m_1_t_1"}]};
    let reply = server.run("test", same);
    assert_eq!(
        (
            reply.get_i32("numIndexesBefore"),
            reply.get_i32("numIndexesAfter")
        ),
        (Some(1), Some(1))
    );
    let reply = server.run(
        "test",
        doc! {"listCollections": 1, "filter": {"type": "timeseries"}},
    );
    for listed in server.batch(&reply, "firstBatch") {
        assert_eq!(
            listed.get_doc("info"),
            Some(&*doc! {"readOnly": false}),
            "{listed:?}"
        );
    }

    let stats = doc! {"aggregate": "none", "cursor": {}, "pipeline": [{"$indexStats": {}}]};
    let reply = server.run("test", stats);
    assert!(server.batch(&reply, "firstBatch").is_empty());
}
