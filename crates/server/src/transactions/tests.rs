#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, doc};

use super::*;
use crate::testing::{self, TestServer, wait_until};

/// A session that sends statements.
struct Session {
    id: SessionId,
    number: i64,
    starts: bool,
}

impl Session {
    fn new() -> Session {
        Session {
            id: SessionId::random(),
            number: 0,
            starts: false,
        }
    }

    fn start(&mut self) {
        self.number += 1;
        self.starts = true;
    }

    /// The command as a statement of the current transaction.
    fn statement(&mut self, mut command: DocBuf) -> DocBuf {
        command.push("lsid", &self.id.to_doc());
        command.push("txnNumber", self.number);
        command.push("autocommit", false);
        if std::mem::take(&mut self.starts) {
            command.push("startTransaction", true);
        }
        command
    }

    fn run(&mut self, server: &mut TestServer, command: DocBuf) -> DocBuf {
        let command = self.statement(command);
        server.run(db(&command), command)
    }

    fn reply(&mut self, server: &mut TestServer, command: DocBuf) -> DocBuf {
        let command = self.statement(command);
        server.reply(db(&command), command)
    }

    fn code(&mut self, server: &mut TestServer, command: DocBuf) -> i32 {
        let command = self.statement(command);
        server.code(db(&command), command)
    }

    fn commit(&mut self, server: &mut TestServer) -> DocBuf {
        self.reply(server, doc! {"commitTransaction": 1})
    }
}

fn db(command: &Doc) -> &'static str {
    match command.first().unwrap().0 {
        "commitTransaction" | "abortTransaction" | "bulkWrite" => "admin",
        _ => "test",
    }
}

fn insert(id: i32) -> DocBuf {
    doc! {"insert": "c", "documents": [{"_id": id}]}
}

fn set(id: i32, value: i32) -> DocBuf {
    doc! {"update": "c", "updates": [{"q": {"_id": id}, "u": {"$set": {"a": value}}}]}
}

fn find() -> DocBuf {
    doc! {"find": "c", "sort": {"_id": 1}}
}

fn ids(server: &TestServer, reply: &DocBuf) -> Vec<i32> {
    let batch = server.batch(reply, "firstBatch");
    batch
        .iter()
        .map(|doc| doc.get_i32("_id").unwrap())
        .collect()
}

fn label(reply: &Doc) -> Option<String> {
    let labels = reply.get_array("errorLabels")?;
    assert_eq!(labels.count(), 1);
    labels.get("0")?.as_str().map(str::to_owned)
}

fn counts(server: &mut TestServer) -> DocBuf {
    let status = server.run("admin", doc! {"serverStatus": 1});
    status.get_doc("transactions").unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_seen_by_itself_and_by_others_after_its_commit() {
    let mut server = TestServer::new();
    server.run("test", insert(0));
    let mut session = Session::new();
    session.start();
    let reply = session.run(&mut server, insert(1));
    assert_eq!(reply.get_i32("n"), Some(1));
    session.run(&mut server, set(0, 7));
    let bulk = doc! {"bulkWrite": 1, "nsInfo": [{"ns": "test.d"}], "ops": [{"insert": 0, "document": {"_id": 5}}]};
    session.run(&mut server, bulk);
    let modify =
        doc! {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"b": 1}}, "new": true};
    let value = session.run(&mut server, modify);
    assert_eq!(value.get_doc("value"), Some(&*doc! {"_id": 1, "b": 1}));
    let inside = session.run(&mut server, find());
    assert_eq!(ids(&server, &inside), [0, 1]);
    let outside = server.run("test", find());
    assert_eq!(ids(&server, &outside), [0]);
    let distinct = session.run(&mut server, doc! {"distinct": "c", "key": "a"});
    assert_eq!(distinct.get_array("values").unwrap().count(), 1);
    let grouped = doc! {"aggregate": "c", "pipeline": [{"$group": {"_id": null, "n": {"$sum": 1}}}], "cursor": {}};
    let grouped = session.run(&mut server, grouped);
    assert_eq!(
        server.batch(&grouped, "firstBatch")[0].get_i32("n"),
        Some(2)
    );

    for _ in 0..3 {
        assert_eq!(session.commit(&mut server).get_f64("ok"), Some(1.0));
    }
    let outside = server.run("test", find());
    assert_eq!(ids(&server, &outside), [0, 1]);
    assert_eq!(session.code(&mut server, doc! {"abortTransaction": 1}), 256);
    assert_eq!(session.code(&mut server, find()), 256);
    let status = counts(&mut server);
    let expected = [
        ("totalStarted", 1),
        ("totalCommitted", 1),
        ("totalAborted", 0),
        ("currentOpen", 0),
        ("retriedCommandsCount", 2),
    ];
    for (name, n) in expected {
        assert_eq!(status.get_i64(name), Some(n), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_transaction_leaves_nothing() {
    let mut server = TestServer::new();
    server.run("test", doc! {"create": "c"});
    let mut session = Session::new();
    session.start();
    session.run(&mut server, insert(1));
    session.run(&mut server, doc! {"create": "made"});
    let mut other = Session::new();
    other.start();
    assert_eq!(other.code(&mut server, doc! {"create": "c"}), 48);
    session.run(&mut server, doc! {"abortTransaction": 1});
    for command in [
        doc! {"abortTransaction": 1},
        doc! {"commitTransaction": 1},
        find(),
    ] {
        let reply = session.reply(&mut server, command);
        assert_eq!(reply.get_i32("code"), Some(251));
        assert_eq!(label(&reply).as_deref(), Some("TransientTransactionError"));
    }
    let outside = server.run("test", find());
    assert_eq!(ids(&server, &outside), []);
    let made = server.run(
        "test",
        doc! {"listCollections": 1, "filter": {"name": "made"}},
    );
    assert!(server.batch(&made, "firstBatch").is_empty());
    // A newer number ends an open transaction.
    session.start();
    session.run(&mut server, insert(2));
    session.start();
    session.run(&mut server, insert(3));
    session.run(&mut server, doc! {"commitTransaction": 1});
    let outside = server.run("test", find());
    assert_eq!(ids(&server, &outside), [3]);
    assert_eq!(counts(&mut server).get_i64("totalAborted"), Some(3));
    // So does a retryable write.
    session.start();
    session.run(&mut server, insert(4));
    let mut write = insert(5);
    write.push_all(&doc! {"lsid": &session.id.to_doc(), "txnNumber": session.number + 1});
    server.run("test", write);
    assert_eq!(server.server.clients.sessions.open_transactions().len(), 0);
    assert_eq!(
        session.code(&mut server, doc! {"commitTransaction": 1}),
        225
    );
    let outside = server.run("test", find());
    assert_eq!(ids(&server, &outside), [3, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_fails_aborts_the_transaction() {
    let mut server = TestServer::new();
    server.run("test", insert(1));
    let bulk = |ordered: bool| {
        doc! {
            "bulkWrite": 1, "nsInfo": [{"ns": "test.c"}], "ordered": ordered, "ops": [
                {"insert": 0, "document": {"_id": 1}}, {"insert": 0, "document": {"_id": 9}},
            ],
        }
    };
    let duplicate =
        doc! {"insert": "c", "ordered": false, "documents": [{"_id": 8}, {"_id": 1}, {"_id": 9}]};
    let failing = [
        (duplicate, 0),
        (bulk(true), 0),
        (bulk(false), 0),
        (
            doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"_id": 2}}}]},
            0,
        ),
        (doc! {"find": "c", "filter": {"$x": 1}}, 2),
        (doc! {"findAndModify": "c"}, 9),
    ];
    for (command, code) in failing {
        let mut session = Session::new();
        session.start();
        session.run(&mut server, insert(7));
        let reply = session.reply(&mut server, command.clone());
        assert_eq!(reply.get_i32("code").unwrap_or(0), code, "{reply:?}");
        assert_eq!(label(&reply), None);
        if let Some(errors) = reply.get_array("writeErrors") {
            // The first error ends the command.
            assert_eq!(errors.count(), 1, "{reply:?}");
        }
        assert_eq!(
            session.code(&mut server, doc! {"commitTransaction": 1}),
            251,
            "{command:?}"
        );
    }
    let outside = server.run("test", find());
    assert_eq!(ids(&server, &outside), [1]);
    assert_eq!(counts(&mut server).get_i64("currentOpen"), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_may_be_tried_again_as_a_whole() {
    let mut server = TestServer::new();
    server.run("test", insert(1));
    let (mut one, mut two) = (Session::new(), Session::new());
    let bulk = doc! {
        "bulkWrite": 1, "nsInfo": [{"ns": "test.c"}],
        "ops": [{"update": 0, "filter": {"_id": 1}, "updateMods": {"$set": {"a": 2}}}],
    };
    let modify = doc! {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"a": 2}}};
    for command in [set(1, 2), bulk, modify] {
        one.start();
        one.run(&mut server, set(1, 10 + i32::try_from(one.number).unwrap()));
        two.start();
        let reply = two.reply(&mut server, command);
        assert_eq!(
            (reply.get_f64("ok"), reply.get_i32("code")),
            (Some(0.0), Some(112)),
            "{reply:?}"
        );
        assert_eq!(label(&reply).as_deref(), Some("TransientTransactionError"));
        assert_eq!(two.code(&mut server, doc! {"commitTransaction": 1}), 251);
        assert_eq!(one.commit(&mut server).get_f64("ok"), Some(1.0));
    }
    // A statement outside of transactions waits.
    one.start();
    one.run(&mut server, set(1, 20));
    let increment = doc! {"$inc": {"n": 1}};
    for update in [doc! {"$set": {"a": 30}}, increment] {
        let mut waiting = doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": &update}]};
        waiting.push("maxTimeMS", 30);
        assert_eq!(server.code("test", waiting), 50, "{update:?}");
    }
    assert_eq!(one.commit(&mut server).get_f64("ok"), Some(1.0));
    // Committed by another after the snapshot.
    two.start();
    two.run(&mut server, find());
    server.run("test", set(1, 9));
    let reply = two.reply(&mut server, set(1, 3));
    assert_eq!(reply.get_i32("code"), Some(112));
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_belong_to_their_transaction() {
    let mut server = TestServer::new();
    server.fill("c", 10);
    let mut session = Session::new();
    session.start();
    let query = doc! {"find": "c", "batchSize": 2};
    let reply = session.run(&mut server, query.clone());
    let id = |reply: &DocBuf| reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
    let cursor = id(&reply);
    let get_more = |id: i64| doc! {"getMore": id, "collection": "c", "batchSize": 2};
    session.run(&mut server, get_more(cursor));
    let lsid = doc! {"lsid": &session.id.to_doc()};
    let in_session = |mut command: DocBuf| {
        command.push_all(&lsid);
        command
    };
    assert_eq!(server.code("test", get_more(cursor)), 50737);
    assert_eq!(server.code("test", in_session(get_more(cursor))), 50740);
    // It is still there.
    session.run(&mut server, get_more(cursor));
    session.run(&mut server, doc! {"commitTransaction": 1});
    assert_eq!(server.code("test", in_session(get_more(cursor))), 43);

    let outside = id(&server.run("test", in_session(query.clone())));
    session.start();
    let first = id(&session.run(&mut server, query.clone()));
    session.start();
    session.run(&mut server, find());
    assert_eq!(session.code(&mut server, get_more(first)), 43);
    session.start();
    session.run(&mut server, query.clone());
    assert_eq!(session.code(&mut server, get_more(outside)), 50739);
    // That aborted the transaction, and closed its cursor.
    assert_eq!(server.server.clients.cursors.counts().open, 1);
    session.start();
    let killed = id(&session.run(&mut server, query));
    let reply = session.run(&mut server, doc! {"killCursors": "c", "cursors": [killed]});
    assert_eq!(reply.get_array("cursorsKilled").unwrap().count(), 1);
    session.run(&mut server, doc! {"hello": 1});
    session.run(&mut server, doc! {"commitTransaction": 1});
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_are_open_for_too_long_are_aborted() {
    let mut server = TestServer::new();
    let limit = "transactionLifetimeLimitSeconds";
    assert_eq!(
        server
            .run("admin", doc! {"getParameter": 1, limit: 1})
            .get_i32(limit),
        Some(60)
    );
    server.run("admin", doc! {"setParameter": 1, limit: 5});
    assert_eq!(server.code("admin", doc! {"setParameter": 1, limit: 0}), 2);
    server.run("test", doc! {"create": "c"});
    let mut session = Session::new();
    session.start();
    session.run(&mut server, insert(1));
    // The limit is that of the begin.
    server.run("admin", doc! {"setParameter": 1, limit: 1});
    let now = Instant::now();
    assert_eq!(
        abort_expired(&server.server, now + Duration::from_secs(4)),
        0
    );
    assert_eq!(
        abort_expired(&server.server, now + Duration::from_secs(6)),
        1
    );
    let reply = session.reply(&mut server, insert(2));
    assert_eq!(reply.get_i32("code"), Some(251));
    assert_eq!(label(&reply).as_deref(), Some("TransientTransactionError"));
    assert_eq!(counts(&mut server).get_i64("totalExpired"), Some(1));
}

/// A lock of the session may be that of someone who only looks at it.
#[tokio::test(flavor = "multi_thread")]
async fn a_condemned_transaction_is_aborted_when_its_session_is_free() {
    let mut server = TestServer::new();
    server.run("test", doc! {"create": "c"});
    let mut session = Session::new();
    session.start();
    session.run(&mut server, insert(1));
    let used = server
        .server
        .clients
        .sessions
        .enter(session.id, || Ok(()))
        .unwrap();
    server.run("admin", doc! {"killAllSessions": []});
    assert_eq!(server.server.clients.sessions.open_transactions().len(), 1);
    drop(used);
    assert_eq!(abort_expired(&server.server, Instant::now()), 0);
    assert_eq!(server.server.clients.sessions.open_transactions().len(), 0);
    let status = counts(&mut server);
    let totals = ["totalAborted", "totalExpired"].map(|name| status.get_i64(name));
    assert_eq!(totals, [Some(1), Some(0)]);
}

/// It is committed, and its session ended, after someone else found it open.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_ends_once() {
    let mut server = TestServer::new();
    server.run("test", doc! {"create": "c"});
    let mut session = Session::new();
    session.start();
    session.run(&mut server, insert(1));
    let found = server.server.clients.sessions.open_transactions();
    session.commit(&mut server);
    let later = Instant::now() + Duration::from_secs(31 * 60);
    server
        .server
        .clients
        .sessions
        .expire(later, &server.server.store);
    assert_eq!(server.server.clients.sessions.len(), 0);
    abort_soon(&server.server, &found[0], AbortReason::Expired);
    let status = counts(&mut server);
    let totals = ["totalCommitted", "totalAborted", "totalExpired"];
    assert_eq!(
        totals.map(|name| status.get_i64(name)),
        [Some(1), Some(0), Some(0)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_session_aborts_its_transaction() {
    let mut server = TestServer::new();
    server.run("test", doc! {"create": "c"});
    for by in [
        "endSessions",
        "killSessions",
        "killAllSessions",
        "killAllSessionsByPattern",
    ] {
        let mut session = Session::new();
        session.start();
        session.run(&mut server, insert(1));
        let lsid = session.id.to_doc();
        let command = match by {
            "killAllSessions" => doc! {by: []},
            "killAllSessionsByPattern" => doc! {by: [{"lsid": &lsid}]},
            _ => doc! {by: [&lsid]},
        };
        server.run("admin", command);
        assert_eq!(
            server.server.clients.sessions.open_transactions().len(),
            0,
            "{by}"
        );
        assert_eq!(
            session.code(&mut server, doc! {"commitTransaction": 1}),
            251,
            "{by}"
        );
    }
    let mut session = Session::new();
    session.start();
    session.run(&mut server, insert(1));
    let later = Instant::now() + Duration::from_secs(31 * 60);
    for open in server
        .server
        .clients
        .sessions
        .expire(later, &server.server.store)
    {
        abort_soon(&server.server, &open, AbortReason::Killed);
    }
    assert_eq!(server.server.clients.sessions.open_transactions().len(), 0);
    let outside = server.run("test", find());
    assert_eq!(ids(&server, &outside), []);
}

/// Runs a command on a connection of its own.
fn on_other_connection(server: &Server, command: &DocBuf) -> DocBuf {
    testing::on_other_connection(server, db(command), command)
}

/// A long statement, which an interruption ends: then its transaction is aborted, and the client gets the reason.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_statement_aborts_its_transaction() {
    let mut server = TestServer::new();
    server.fill("c", 20_000);
    // Some milliseconds for each document: together longer than any test takes.
    let sum = doc! {"$reduce": {
        "input": {"$range": [0, 50_000]}, "initialValue": "$a", "in": {"$add": ["$$value", "$$this"]},
    }};
    let long = doc! {
        "aggregate": "c", "cursor": {}, "pipeline": [
            {"$lookup": {"from": "c", "as": "x", "pipeline": [{"$match": {"$expr": {"$lt": [&sum, -1]}}}]}},
            {"$match": {"x": {"$ne": []}}},
        ],
    };
    let long_write = doc! {
        "update": "c", "updates": [{"q": {"$expr": {"$lt": [&sum, -1]}}, "u": {"$set": {"b": 1}}, "multi": true}],
    };
    for (why, command, expected) in [
        ("killOp", &long, 11601),
        ("killSessions", &long, 11601),
        ("time", &long, 290),
        ("time", &long_write, 290),
        ("maxTimeMS", &long, 50),
    ] {
        let mut session = Session::new();
        session.start();
        session.run(&mut server, set(1, 1));
        let mut command = session.statement(command.clone());
        if why == "maxTimeMS" {
            command.push("maxTimeMS", 20);
        }
        let shared = server.server.clone();
        let id = session.id;
        let reply = std::thread::scope(|scope| {
            let running = scope.spawn(|| on_other_connection(&shared, &command));
            let is_active = || {
                let open = shared.clients.sessions.open_transaction(id);
                open.is_some_and(|open| open.activity().is_active())
            };
            if why != "maxTimeMS" {
                wait_until("a statement that runs", is_active);
            }
            match why {
                "killOp" => {
                    let connections = shared.clients.connections.list();
                    let operation = connections.iter().find_map(|connection| {
                        let running = connection.running.lock();
                        (running.session == Some(id) && running.active).then_some(running.id)
                    });
                    shared
                        .clients
                        .connections
                        .kill_operation(operation.unwrap(), |_| true);
                }
                "killSessions" => {
                    let kill = doc! {"killSessions": [&id.to_doc()]};
                    server.run("admin", kill);
                }
                "time" => {
                    let later = Instant::now() + Duration::from_secs(61);
                    assert_eq!(abort_expired(&shared, later), 1);
                }
                _ => {}
            }
            running.join().unwrap()
        });
        assert_eq!(reply.get_i32("code"), Some(expected), "{why} {reply:?}");
        assert_eq!(label(&reply), None, "{why}");
        assert_eq!(
            server.server.clients.sessions.open_transactions().len(),
            0,
            "{why}"
        );
        assert_eq!(
            session.code(&mut server, doc! {"commitTransaction": 1}),
            251,
            "{why}"
        );
    }
}

/// Another statement of the same session waits for the one that runs, unless it is interrupted.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_runs_one_statement_at_a_time() {
    let mut server = TestServer::new();
    server.run("test", doc! {"create": "c"});
    let mut session = Session::new();
    session.start();
    session.run(&mut server, insert(1));
    let used = server
        .server
        .clients
        .sessions
        .enter(session.id, || Ok(()))
        .unwrap();
    let mut waiting = session.statement(insert(2));
    waiting.push("maxTimeMS", 50);
    assert_eq!(server.code("test", waiting), 50);
    let statement = session.statement(insert(2));
    let shared = server.server.clone();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| on_other_connection(&shared, &statement));
        let waits = || {
            let connections = shared.clients.connections.list();
            connections
                .iter()
                .any(|other| other.running.lock().waits_for == Some("its session"))
        };
        wait_until("a statement that waits", waits);
        // The end of the transaction interrupts the statement that runs, not this one.
        shared
            .clients
            .connections
            .kill_transaction(session.id, session.number);
        assert!(!running.is_finished());
        drop(used);
        assert_eq!(running.join().unwrap().get_f64("ok"), Some(1.0));
    });
    // The statement that waited in vain did not abort the transaction.
    assert_eq!(session.commit(&mut server).get_f64("ok"), Some(1.0));
    let outside = server.run("test", find());
    assert_eq!(ids(&server, &outside), [1, 2]);
}

/// The client of a statement is gone when the statement ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_client_aborts_its_transaction() {
    let mut server = TestServer::new();
    server.run("test", doc! {"create": "c"});
    let mut session = Session::new();
    session.start();
    session.run(&mut server, insert(1));
    assert_eq!(server.server.clients.sessions.open_transactions().len(), 1);
    server.connection.gone.store(true, Ordering::Relaxed);
    session.reply(&mut server, find());
    assert_eq!(server.server.clients.sessions.open_transactions().len(), 0);
    server.connection.gone.store(false, Ordering::Relaxed);
    assert_eq!(
        session.code(&mut server, doc! {"commitTransaction": 1}),
        251
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn open_transactions_are_shown() {
    let mut server = TestServer::new();
    let mut session = Session::new();
    session.start();
    let mut first = doc! {"find": "c"};
    first.push("readConcern", &doc! {"level": "snapshot"});
    session.run(&mut server, first);
    let reply = server.run("admin", doc! {"currentOp": 1, "type": "idleSession"});
    let idle = reply.get_array("inprog").unwrap().get_doc("0").unwrap();
    assert_eq!(idle.get_str("desc"), Some("inactive transaction"));
    assert_eq!(idle.get_doc("lsid"), Some(&*session.id.to_doc()));
    assert_eq!(idle.get_bool("active"), Some(false));
    let transaction = idle.get_doc("transaction").unwrap();
    let parameters =
        doc! {"txnNumber": 1i64, "autocommit": false, "readConcern": {"level": "snapshot"}};
    assert_eq!(transaction.get_doc("parameters"), Some(&*parameters));
    assert!(transaction.get_i64("timeInactiveMicros").unwrap() > 0);
    assert!(transaction.get_str("expiryTime") > transaction.get_str("startWallClockTime"));
    let stage = |idle: bool| {
        doc! {
            "aggregate": 1, "pipeline": [{"$currentOp": {"idleSessions": idle}}, {"$match": {"type": "idleSession"}}], "cursor": {},
        }
    };
    for (idle, expected) in [(true, 1), (false, 0)] {
        let reply = server.run("admin", stage(idle));
        assert_eq!(server.batch(&reply, "firstBatch").len(), expected);
    }
    let status = counts(&mut server);
    let current = ["currentOpen", "currentInactive", "currentActive"];
    assert_eq!(current.map(|name| status.get_i64(name).unwrap()), [1, 1, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_outside_of_a_transaction_is_refused() {
    let mut server = TestServer::new();
    for name in ["commitTransaction", "abortTransaction"] {
        assert_eq!(server.code("admin", doc! {name: 1}), 125);
        assert_eq!(server.code("test", doc! {name: 1}), 13);
        let lsid = SessionId::random().to_doc();
        let unknown = doc! {
            name: 1, "lsid": &lsid, "txnNumber": 3i64, "autocommit": false, "recoveryToken": {"x": 1},
            "writeConcern": {"w": "majority"},
        };
        let reply = server.reply("admin", unknown);
        assert_eq!(reply.get_i32("code"), Some(251));
        assert_eq!(label(&reply).as_deref(), Some("TransientTransactionError"));
    }
}

/// Fail points of the drivers' specifications: the commit is applied although its reply says otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn commits_and_aborts_fail_on_demand() {
    let mut server = TestServer::with(|settings| settings.test_commands = true);
    server.run("test", doc! {"create": "c"});
    let mut session = Session::new();
    let fail = |data: &DocBuf| {
        doc! {"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": data}
    };
    session.start();
    session.run(&mut server, insert(1));
    let error = doc! {"code": 91, "errmsg": "Replication is being shut down"};
    server.run(
        "admin",
        fail(&doc! {"failCommands": ["commitTransaction"], "writeConcernError": &error}),
    );
    let reply = session.commit(&mut server);
    assert_eq!(reply.get_f64("ok"), Some(1.0));
    assert_eq!(reply.get_doc("writeConcernError"), Some(&*error));
    assert_eq!(label(&reply).as_deref(), Some("RetryableWriteError"));
    assert_eq!(session.commit(&mut server).get("writeConcernError"), None);
    // It is also there after a wait for the journal.
    server.run("admin", fail(&doc! {
        "failCommands": ["commitTransaction"], "writeConcernError": &error, "blockConnection": true, "blockTimeMS": 5,
    }));
    let waits = session.statement(doc! {"commitTransaction": 1, "writeConcern": {"j": true}});
    let answer = server.answer("admin", &waits, false);
    assert_eq!(answer.reply.get_doc("writeConcernError"), Some(&*error));
    assert_eq!(label(&answer.reply).as_deref(), Some("RetryableWriteError"));
    assert_eq!(answer.wait, Some(Duration::from_millis(5)));
    // Here it is not applied.
    session.start();
    session.run(&mut server, insert(2));
    for (code, expected) in [
        (10107, Some("RetryableWriteError")),
        (251, Some("TransientTransactionError")),
        (50, None),
    ] {
        server.run(
            "admin",
            fail(&doc! {"failCommands": ["commitTransaction"], "errorCode": code}),
        );
        let reply = session.commit(&mut server);
        assert_eq!(reply.get_i32("code"), Some(code));
        assert_eq!(label(&reply).as_deref(), expected);
    }
    let chosen = doc! {"failCommands": ["abortTransaction"], "errorCode": 50, "errorLabels": ["RetryableWriteError"]};
    server.run("admin", fail(&chosen));
    let reply = session.reply(&mut server, doc! {"abortTransaction": 1});
    assert_eq!(label(&reply).as_deref(), Some("RetryableWriteError"));
    // A statement that a fail point stops never reached its transaction.
    server.run(
        "admin",
        fail(&doc! {"failCommands": ["insert"], "errorCode": 89}),
    );
    let reply = session.reply(&mut server, insert(3));
    assert_eq!(label(&reply).as_deref(), Some("TransientTransactionError"));
    assert_eq!(session.commit(&mut server).get_f64("ok"), Some(1.0));
    let outside = server.run("test", find());
    assert_eq!(ids(&server, &outside), [1, 2]);
}
