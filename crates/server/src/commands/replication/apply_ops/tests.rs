#![allow(clippy::unwrap_used)]

use frond_bson::{DocBuf, Value, doc};

use crate::testing::TestServer;

fn apply(server: &mut TestServer, entry: DocBuf) -> DocBuf {
    server.reply("admin", doc! {"applyOps": [&entry]})
}

fn applied(server: &mut TestServer, entry: DocBuf) {
    let reply = apply(server, entry.clone());
    let expected = doc! {"applied": 1, "results": [true], "ok": 1.0};
    assert_eq!(reply, expected, "{entry:?}");
}

fn all(server: &mut TestServer, collection: &str) -> Vec<DocBuf> {
    let reply = server.run("test", doc! {"find": collection, "sort": {"_id": 1}});
    server.batch(&reply, "firstBatch")
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_inserted_updated_and_deleted() {
    let mut server = TestServer::new();
    server.run("test", doc! {"create": "c"});
    let insert = doc! {
        "op": "i", "ns": "test.c", "o": {"_id": 1, "a": 1, "list": [1, 2, 3], "in": {"x": 1, "y": 2}}, "v": 2i64,
    };
    for _ in 0..2 {
        applied(&mut server, insert.clone());
    }
    assert_eq!(all(&mut server, "c").len(), 1);
    let cases = [
        (
            doc! {"$v": 2, "diff": {"u": {"a": 2}, "i": {"b": 3}, "sin": {"d": {"x": false}}, "slist": {"a": true, "u0": 9, "l": 2}}},
            doc! {"_id": 1, "a": 2, "list": [9, 2], "in": {"y": 2}, "b": 3},
        ),
        (
            doc! {"$v": 1, "$set": {"a": 7}, "$unset": {"in": true}},
            doc! {"_id": 1, "a": 7, "list": [9, 2], "b": 3},
        ),
        (
            doc! {"$set": {"list": 0}},
            doc! {"_id": 1, "a": 7, "list": 0, "b": 3},
        ),
        (
            doc! {"_id": 1, "whole": true},
            doc! {"_id": 1, "whole": true},
        ),
    ];
    for (object, expected) in cases {
        let entry = doc! {"op": "u", "ns": "test.c", "o2": {"_id": 1}, "o": &object};
        applied(&mut server, entry);
        assert_eq!(all(&mut server, "c"), [expected], "{object:?}");
    }
    for _ in 0..2 {
        applied(
            &mut server,
            doc! {"op": "d", "ns": "test.c", "o": {"_id": 1}},
        );
    }
    assert!(all(&mut server, "c").is_empty());
}

/// A dump of a running server has entries of documents that were deleted before they were dumped.
#[tokio::test(flavor = "multi_thread")]
async fn an_update_of_a_missing_document_inserts_it_unless_told_otherwise() {
    let mut server = TestServer::new();
    server.run("test", doc! {"create": "c"});
    let diff = doc! {"$v": 2, "diff": {"u": {"a": 2}}};
    let entry = doc! {"op": "u", "ns": "test.c", "o2": {"_id": 5}, "o": &diff};
    let command = doc! {"applyOps": [&entry], "alwaysUpsert": false};
    let reply = server.reply("admin", command);
    assert_eq!(reply.get_i32("code"), Some(8));
    assert_eq!(reply.get_i32("applied"), Some(1));
    assert_eq!(reply.get_array("results"), Some(doc! {"0": false}.as_doc()));
    applied(&mut server, entry);
    assert_eq!(all(&mut server, "c"), [doc! {"_id": 5, "a": 2}]);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_change_the_catalog() {
    let mut server = TestServer::new();
    let command = |o: DocBuf| doc! {"op": "c", "ns": "test.$cmd", "o": &o};
    let id = doc! {"v": 2, "key": {"_id": 1}, "name": "_id_"};
    for _ in 0..2 {
        applied(&mut server, command(doc! {"create": "c", "idIndex": &id}));
    }
    let index = doc! {"createIndexes": "c", "v": 2, "key": {"a": 1}, "name": "a_1"};
    applied(&mut server, command(index));
    let built =
        doc! {"commitIndexBuild": "c", "indexes": [{"v": 2, "key": {"b": 1}, "name": "b_1"}]};
    applied(&mut server, command(built));
    let mut names = || -> Vec<String> {
        let reply = server.run("test", doc! {"listIndexes": "c"});
        let all = server.batch(&reply, "firstBatch");
        all.iter()
            .map(|index| index.get_str("name").unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(), ["_id_", "a_1", "b_1"]);
    applied(
        &mut server,
        command(doc! {"dropIndexes": "c", "index": "a_1"}),
    );
    applied(
        &mut server,
        command(doc! {"collMod": "c", "validator": {"x": 1}}),
    );
    let nested = doc! {"applyOps": [
        {"op": "i", "ns": "test.c", "o": {"_id": 1, "x": 1}},
        {"op": "n", "ns": "", "o": {}},
        {"op": "i", "ns": "test.c", "o": {"_id": 2, "x": 1}},
    ]};
    applied(&mut server, command(nested));
    assert_eq!(all(&mut server, "c").len(), 2);
    server.run("test", doc! {"create": "d"});
    let target = Value::Binary {
        subtype: 4,
        bytes: &[7; 16],
    };
    applied(
        &mut server,
        command(doc! {"renameCollection": "test.c", "to": "test.d", "dropTarget": target}),
    );
    assert_eq!(all(&mut server, "d").len(), 2);
    for _ in 0..2 {
        applied(&mut server, command(doc! {"drop": "d"}));
    }
    applied(&mut server, command(doc! {"dropDatabase": 1}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_tells_what_was_applied() {
    let mut server = TestServer::new();
    server.run("test", doc! {"create": "c"});
    let entries = doc! {"applyOps": [
        {"op": "i", "ns": "test.c", "o": {"_id": 1}},
        {"op": "i", "ns": "test.none", "o": {"_id": 1}},
        {"op": "i", "ns": "test.c", "o": {"_id": 2}},
    ]};
    let reply = server.reply("admin", entries);
    assert_eq!(reply.get_i32("code"), Some(26));
    assert_eq!(reply.get_i32("applied"), Some(2));
    assert_eq!(all(&mut server, "c").len(), 1);
    let uuid = Value::Binary {
        subtype: 4,
        bytes: &[7; 16],
    };
    let entry = doc! {"op": "i", "ns": "test.c", "ui": uuid, "o": {"_id": 3}};
    assert_eq!(apply(&mut server, entry).get_i32("code"), Some(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_entries_are_refused() {
    let mut server = TestServer::new();
    server.run("test", doc! {"create": "c"});
    server.run("test", doc! {"create": "v", "viewOn": "c"});
    let entries = [
        (doc! {}, 20),
        (doc! {"op": ""}, 20),
        (doc! {"op": "i"}, 20),
        (doc! {"op": "i", "ns": ""}, 20),
        (doc! {"op": "x", "ns": "test.c"}, 9),
        (doc! {"op": "i", "ns": "test.c", "o": {"a": 1}}, 4),
        (doc! {"op": "i", "ns": "test.c", "o": [{"_id": 1}]}, 9),
        (doc! {"op": "i", "ns": "test.v", "o": {"_id": 1}}, 166),
        (doc! {"op": "u", "ns": "test.c", "o": {"a": 1}}, 4),
        (
            doc! {"op": "u", "ns": "test.c", "o2": {"_id": 1}, "o": {"$v": 3}},
            40682,
        ),
        (doc! {"op": "d", "ns": "test.c", "o": {}}, 4),
        (
            doc! {"op": "c", "ns": "test.$cmd", "o": {"nonsense": 1}},
            238,
        ),
        (
            doc! {"op": "c", "ns": "test.$cmd", "o": {"create": "d", "nonsense": 1}},
            40415,
        ),
        (
            doc! {"op": "c", "ns": "test.$cmd", "o": {"applyOps": [{"op": "c", "ns": "test.$cmd", "o": {"dropDatabase": 1}}]}},
            9_585_500,
        ),
        (
            doc! {"op": "c", "ns": "test.$cmd", "o": {"applyOps": [], "partialTxn": true}},
            31056,
        ),
    ];
    for (entry, code) in entries {
        let reply = apply(&mut server, entry.clone());
        assert_eq!(reply.get_i32("code"), Some(code), "{entry:?}");
    }
    let commands = [
        (doc! {"applyOps": 1}, 9),
        (doc! {"applyOps": [1]}, 9),
        (
            doc! {"applyOps": [], "preCondition": [{"ns": "test.c"}]},
            238,
        ),
        (
            doc! {"applyOps": [], "oplogApplicationMode": "Secondary"},
            238,
        ),
        (doc! {"applyOps": [], "oplogApplicationMode": "x"}, 9),
        (doc! {"applyOps": [], "prepare": true}, 2),
    ];
    for (command, code) in commands {
        assert_eq!(server.code("admin", command.clone()), code, "{command:?}");
    }
    let none = server.run("admin", doc! {"applyOps": []});
    assert_eq!(none.get_i32("applied"), Some(0));
    // Entries may be nested ten deep.
    let nested = |depth: usize| {
        let mut command = doc! {"applyOps": []};
        for _ in 0..depth {
            let entry = doc! {"op": "c", "ns": "test.$cmd", "o": &command};
            command = doc! {"applyOps": [&entry]};
        }
        command
    };
    server.run("admin", nested(10));
    assert_eq!(server.code("admin", nested(11)), 9);
}
