//! Limits of operations and cursors: time, kills, idle time-outs, sessions.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;

use std::time::{Duration, Instant};

use frond_bson::{ArrayBuf, Doc, DocBuf, doc};
use frond_wire::Flags;
use support::{Running, wait_for, wait_until};

/// A server with a collection of this many documents.
fn filled(directory: &tempfile::TempDir, documents: i32, more: &[&str]) -> Running {
    let server = Running::start(directory.path(), more);
    let mut client = server.connect();
    let all: Vec<DocBuf> = (0..documents)
        .map(|n| doc! {"_id": n, "a": n % 100})
        .collect();
    let message = client.build(
        Flags::NONE,
        "test",
        &doc! {"insert": "c"},
        &[("documents", &all)],
    );
    client.send(&message);
    assert_eq!(client.receive_msg().2.get_i32("n"), Some(documents));
    server
}

/// A command that compares every document with every other, which takes longer than any test.
fn endless() -> DocBuf {
    doc! {"aggregate": "c", "cursor": {}, "pipeline": [
        {"$lookup": {"from": "c", "localField": "nothing", "foreignField": "a", "as": "b",
            "pipeline": [{"$match": {"a": -1}}]}},
        {"$match": {"b": 1}},
    ]}
}

/// The operation that runs on the collection, as `currentOp` shows it.
fn running_operation(server: &Running) -> DocBuf {
    running_on(server, "test.c")
}

fn running_on(server: &Running, namespace: &str) -> DocBuf {
    wait_for("an operation in currentOp", || {
        server.operations(namespace).into_iter().next()
    })
}

#[test]
fn an_operation_ends_at_its_time_limit() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(&directory, 20_000, &[]);
    let mut client = server.connect();
    let mut command = endless();
    command.push("maxTimeMS", 200);
    let began = Instant::now();
    let reply = client.reply("test", &command);
    assert_eq!(reply.get_i32("code"), Some(50), "{reply:?}");
    assert!(began.elapsed() >= Duration::from_millis(200));
    client.run("admin", &doc! {"ping": 1});
    server.stop();
}

#[test]
fn an_operation_is_shown_and_killed_while_others_continue() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(&directory, 20_000, &[]);
    // More operations than the server has threads for short work.
    let mut slow: Vec<_> = (0..12).map(|_| server.connect()).collect();
    for client in &mut slow {
        let message = client.build(Flags::NONE, "test", &endless(), &[]);
        client.send(&message);
    }
    let shown = running_operation(&server);
    assert_eq!(shown.get_str("op"), Some("command"));
    assert_eq!(
        shown
            .get_doc("command")
            .and_then(|c| c.get_str("aggregate")),
        Some("c")
    );
    wait_until("all operations", || server.operations("test.c").len() == 12);
    // Others are served while all of these run.
    let mut other = server.connect();
    for n in 0..20 {
        other.run("test", &doc! {"insert": "d", "documents": [{"_id": n}]});
    }
    let operations = server.operations("test.c");
    assert_eq!(operations.len(), 12);
    for operation in operations {
        let id = operation.get_i64("opid").unwrap();
        other.run("admin", &doc! {"killOp": 1, "op": id});
    }
    for client in &mut slow {
        let (_, _, reply) = client.receive_msg();
        assert_eq!(reply.get_i32("code"), Some(11601), "{reply:?}");
        client.run("admin", &doc! {"ping": 1});
    }
    server.stop();
}

/// The counter of `serverStatus` at a path.
fn figure(status: &DocBuf, path: &str) -> i64 {
    let (sections, name) = path.rsplit_once('.').unwrap();
    let mut section: &Doc = status;
    for name in sections.split('.') {
        section = section.get_doc(name).unwrap();
    }
    section.get_i64(name).unwrap()
}

/// Waits until counters of `serverStatus` have these values.
fn wait_for_counters(server: &Running, name: &str, expected: &[(&str, i64)]) {
    let mut client = server.connect();
    wait_until(&format!("{name}: {expected:?}"), || {
        let status = client.run("admin", &doc! {"serverStatus": 1});
        let is_so = |(path, count): &(&str, i64)| figure(&status, path) == *count;
        expected.iter().all(is_so)
    });
}

#[test]
fn operations_are_named_and_counted_as_readers_and_writers() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(&directory, 20_000, &[]);
    let mut other = server.connect();
    // Takes milliseconds for each document; the operation can be killed after each of them.
    let slow = doc! {"$expr": {"$lt": [
        {"$sum": {"$map": {"input": {"$range": [0, 10_000]}, "as": "n", "in": {"$sqrt": "$$n"}}}}, 0,
    ]}};
    other.run("test", &doc! {"create": "checked", "validator": &slow});
    let mut inserted = ArrayBuf::new();
    for _ in 0..20_000 {
        inserted.push(&doc! {});
    }
    let limited = doc! {"$match": &slow};
    let delete = doc! {"delete": 0, "filter": &slow};
    let writes = |command: DocBuf, op: &'static str| (command, op, true);
    let reads = |command: DocBuf, op: &'static str| (command, op, false);
    for (command, op, is_writer) in [
        reads(doc! {"find": "c", "filter": &slow}, "query"),
        reads(doc! {"count": "c", "query": &slow}, "command"),
        reads(
            doc! {"aggregate": "c", "pipeline": [&limited], "cursor": {}},
            "command",
        ),
        writes(
            doc! {"aggregate": "c", "pipeline": [&limited, {"$out": "o"}], "cursor": {}},
            "command",
        ),
        writes(
            doc! {"insert": "checked", "documents": &inserted, "ordered": false},
            "insert",
        ),
        writes(
            doc! {"update": "c", "updates": [{"q": &slow, "u": {"$set": {"b": 1}}}]},
            "update",
        ),
        writes(
            doc! {"delete": "c", "deletes": [{"q": &slow, "limit": 1}]},
            "remove",
        ),
        writes(
            doc! {"findAndModify": "c", "query": &slow, "remove": true},
            "command",
        ),
        writes(
            doc! {"bulkWrite": 1, "ops": [&delete], "nsInfo": [{"ns": "test.c"}]},
            "bulkWrite",
        ),
    ] {
        let name = command.first().unwrap().0;
        let db = if name == "bulkWrite" { "admin" } else { "test" };
        let mut client = server.connect();
        let message = client.build(Flags::NONE, db, &command, &[]);
        client.send(&message);
        // `serverStatus` itself needs no ticket.
        let (readers, writers) = if is_writer { (0, 1) } else { (1, 0) };
        let expected = [
            ("queues.execution.read.out", readers),
            ("queues.execution.write.out", writers),
            ("globalLock.activeClients.writers", writers),
        ];
        wait_for_counters(&server, name, &expected);
        let field = format!("command.{name}");
        let filter = doc! {"currentOp": 1, field: {"$exists": true}};
        let shown = other.run("admin", &filter);
        let shown = shown
            .get_array("inprog")
            .and_then(|list| list.get_doc("0"))
            .unwrap();
        assert_eq!(shown.get_str("op"), Some(op), "{name}");
        other.run(
            "admin",
            &doc! {"killOp": 1, "op": shown.get_i64("opid").unwrap()},
        );
        let reply = client.receive_msg().2;
        assert_ne!(reply.get_i32("n"), Some(1), "{name}: {reply:?}");
    }
    server.stop();
}

#[test]
fn an_operation_that_waits_for_documents_is_not_a_reader() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    let mut client = server.connect();
    client.run(
        "test",
        &doc! {"create": "log", "capped": true, "size": 4096},
    );
    client.run("test", &doc! {"insert": "log", "documents": [{"_id": 1}]});
    let find = doc! {"find": "log", "tailable": true, "awaitData": true};
    let found = client.run("test", &find);
    let id = found.get_doc("cursor").unwrap().get_i64("id").unwrap();
    let more = doc! {"getMore": id, "collection": "log", "maxTimeMS": 600_000};
    let message = client.build(Flags::NONE, "test", &more, &[]);
    client.send(&message);
    let shown = running_on(&server, "test.log");
    assert_eq!(shown.get_str("op"), Some("getmore"));
    wait_for_counters(&server, "getMore", &[("queues.execution.read.out", 0)]);
    // It is still running.
    assert_eq!(
        running_on(&server, "test.log").get_bool("active"),
        Some(true)
    );
    server
        .connect()
        .run("test", &doc! {"insert": "log", "documents": [{"_id": 2}]});
    let batch = client.receive_msg().2;
    let batch = batch
        .get_doc("cursor")
        .unwrap()
        .get_array("nextBatch")
        .unwrap();
    assert_eq!(batch.count(), 1);
    server.stop();
}

#[test]
fn a_running_operation_does_not_delay_the_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(&directory, 20_000, &[]);
    let mut client = server.connect();
    let message = client.build(Flags::NONE, "test", &endless(), &[]);
    client.send(&message);
    running_operation(&server);
    // It waits for less time than the operation takes.
    server.stop();
    // It got an error, or its connection was closed.
    if let Some(message) = client.receive() {
        let (_, reply) = frond_wire::Reply::parse(&message).unwrap();
        let reply = Doc::validate(reply.first_document().unwrap()).unwrap();
        assert_eq!(reply.get_i32("code"), Some(11600), "{reply:?}");
    }
}

#[test]
fn idle_cursors_are_closed_except_those_without_a_timeout() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(&directory, 100, &[]);
    let mut client = server.connect();
    client.run(
        "admin",
        &doc! {"setParameter": 1, "cursorTimeoutMillis": 200},
    );
    let mut open = |more: DocBuf| {
        let mut find = doc! {"find": "c", "batchSize": 2};
        find.push_all(&more);
        let reply = client.run("test", &find);
        reply
            .get_doc("cursor")
            .and_then(|cursor| cursor.get_i64("id"))
            .unwrap()
    };
    let (patient, idle) = (open(doc! {"noCursorTimeout": true}), open(doc! {}));
    let closed = [
        ("metrics.cursor.timedOut", 1),
        ("metrics.cursor.open.total", 1),
    ];
    wait_for_counters(&server, "cursors", &closed);
    let more = |id: i64| doc! {"getMore": id, "collection": "c"};
    assert_eq!(client.reply("test", &more(idle)).get_i32("code"), Some(43));
    let rest = client.run("test", &more(patient));
    let batch = rest
        .get_doc("cursor")
        .and_then(|cursor| cursor.get_array("nextBatch"))
        .unwrap();
    assert_eq!(batch.count(), 98);
    server.stop();
}

#[test]
fn a_write_retried_over_another_connection_is_applied_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    let session = server.connect().run("admin", &doc! {"startSession": 1});
    let lsid = session.get_doc("id").unwrap().to_owned();
    let insert = doc! {
        "insert": "c", "documents": [{"a": 1}], "lsid": &lsid, "txnNumber": 1i64,
    };
    for _ in 0..3 {
        let reply = server.connect().run("test", &insert);
        assert_eq!(reply.get_i32("n"), Some(1));
    }
    let mut client = server.connect();
    assert_eq!(client.count("c"), 1);
    let begin = doc! {
        "insert": "c", "documents": [{}], "lsid": &lsid, "txnNumber": 2i64,
        "startTransaction": true, "autocommit": false,
    };
    client.run("test", &begin);
    let commit = doc! {
        "commitTransaction": 1, "lsid": &lsid, "txnNumber": 2i64, "autocommit": false,
    };
    // Commits are retried over another connection, too.
    for _ in 0..3 {
        server.connect().run("admin", &commit);
    }
    assert_eq!(client.count("c"), 2);
    server.stop();
}
