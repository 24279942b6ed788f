//! Limits of operations and cursors: time, kills, idle time-outs, sessions.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;

use std::time::{Duration, Instant};

use frond_bson::{ArrayBuf, Doc, DocBuf, doc};
use frond_wire::Flags;
use support::{PATIENCE, Running, wait_for};

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
    let end = Instant::now() + PATIENCE;
    let mut client = server.connect();
    loop {
        let reply = client.run("admin", &doc! {"currentOp": 1, "ns": namespace});
        if let Some(operation) = reply.get_array("inprog").and_then(|list| list.get_doc("0")) {
            return operation.to_owned();
        }
        assert!(Instant::now() < end, "the operation does not show");
    }
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
    assert!(began.elapsed() < Duration::from_secs(20));
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
    let mut other = server.connect();
    let began = Instant::now();
    for n in 0..20 {
        other.run("test", &doc! {"insert": "d", "documents": [{"_id": n}]});
    }
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    // On a busy machine the last of them may not have started.
    let reply = loop {
        let reply = other.run("admin", &doc! {"currentOp": 1, "ns": "test.c"});
        let running = reply.get_array("inprog").unwrap().count();
        if running == 12 || began.elapsed() > Duration::from_secs(30) {
            assert_eq!(running, 12);
            break reply;
        }
    };
    let operations = reply.get_array("inprog").unwrap();
    for operation in operations.values().filter_map(|value| value.as_doc()) {
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

/// Repeats `serverStatus` until the counters have these values. Returns their last values.
fn status_with(server: &Running, expected: &[(&str, i64)]) -> Vec<i64> {
    let end = Instant::now() + PATIENCE;
    let mut client = server.connect();
    loop {
        let status = client.run("admin", &doc! {"serverStatus": 1});
        let figures: Vec<i64> = expected
            .iter()
            .map(|(path, _)| figure(&status, path))
            .collect();
        let as_expected = expected
            .iter()
            .zip(&figures)
            .all(|((_, one), figure)| one == figure);
        if as_expected || Instant::now() > end {
            return figures;
        }
    }
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
    for _ in 0..500 {
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
        let figures = status_with(&server, &expected);
        assert_eq!(figures, [readers, writers, writers], "{name}");
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
    let reader = "queues.execution.read.out";
    assert_eq!(status_with(&server, &[(reader, 0)]), [0]);
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
    let began = Instant::now();
    server.stop();
    assert!(
        began.elapsed() < Duration::from_secs(14),
        "{:?}",
        began.elapsed()
    );
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
    let status = wait_for("a cursor that has timed out", || {
        let status = client.run("admin", &doc! {"serverStatus": 1});
        (figure(&status, "metrics.cursor.timedOut") == 1).then_some(status)
    });
    assert_eq!(figure(&status, "metrics.cursor.open.total"), 1);
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
