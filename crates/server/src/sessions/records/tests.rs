#![allow(clippy::unwrap_used)]

use std::time::Duration;

use frond_bson::Value;

use super::*;
use crate::testing::TestServer;

/// Sends a retryable write. Returns its reply.
fn send(server: &mut TestServer, lsid: SessionId, number: i64, command: &DocBuf) -> DocBuf {
    let mut command = command.clone();
    command.push_all(&doc! {"lsid": lsid.to_doc(), "txnNumber": number});
    server.run("test", command)
}

/// Forgets all sessions, as a server that is started again has.
fn restart(server: &TestServer) {
    server.server.clients.sessions.all.lock().clear();
}

fn count(server: &mut TestServer) -> Option<i32> {
    server.run("test", doc! {"count": "c"}).get_i32("n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_a_restart_is_not_executed_again() {
    let mut server = TestServer::new();
    server.run(
        "test",
        doc! {"insert": "c", "documents": [{"_id": 1, "n": 0}, {"_id": 2, "n": 0}, {"_id": 3, "n": 0}]},
    );
    let increment = doc! {"$inc": {"n": 1}};
    // Without an `_id`, each execution would insert other documents.
    let many = |n: i32| {
        let mut insert = doc! {"insert": "c", "ordered": false};
        insert.push_array("documents", |list| {
            (0..n).for_each(|k| list.push(&doc! {"k": k}))
        });
        insert
    };
    let commands = [
        doc! {"insert": "c", "documents": [{"a": 1}]},
        many(2500),
        doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": &increment}]},
        doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": &increment}, {"q": {"_id": 2}, "u": &increment}, {"q": {"_id": 99}, "u": &increment}]},
        doc! {"update": "c", "updates": [{"q": {"u": 1}, "u": {"$inc": {"u": 1}}, "upsert": true}]},
        doc! {"delete": "c", "deletes": [{"q": {"k": {"$gte": 0}}, "limit": 1}]},
        doc! {"findAndModify": "c", "query": {"_id": 1}, "update": &increment, "new": true},
        doc! {"findAndModify": "c", "query": {"_id": 1}, "update": &increment, "fields": {"n": 1}},
        doc! {"findAndModify": "c", "query": {"f": 1}, "update": {"$inc": {"f": 1}}, "upsert": true, "new": true},
        doc! {"findAndModify": "c", "query": {"_id": 3}, "remove": true},
        doc! {"insert": "c", "documents": [{"_id": 1}, {"b": 1}, {"b": 2}], "ordered": false},
    ];
    let lsid = SessionId::random();
    for (number, command) in (1..).zip(&commands) {
        let first = send(&mut server, lsid, number, command);
        let before = (
            count(&mut server),
            server.run("test", doc! {"find": "c", "filter": {"_id": 1}}),
        );
        for _ in 0..2 {
            restart(&server);
            assert_eq!(
                send(&mut server, lsid, number, command),
                first,
                "{command:?}"
            );
        }
        let after = (
            count(&mut server),
            server.run("test", doc! {"find": "c", "filter": {"_id": 1}}),
        );
        assert_eq!(after, before, "{command:?}");
        // Each number replaces the records of the one before.
        let history = server.server.store.session_history(&lsid.key()).unwrap();
        assert_eq!(history.number, Some(number));
    }
    restart(&server);
    let mut old = commands[0].clone();
    old.push_all(&doc! {"lsid": lsid.to_doc(), "txnNumber": 3i64});
    assert_eq!(server.code("test", old), 225);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_has_one_record_and_older_ones_are_cleared() {
    let mut server = TestServer::new();
    let lsid = SessionId::random();
    let history = |server: &TestServer| server.server.store.session_history(&lsid.key()).unwrap();
    let insert = doc! {"insert": "c", "documents": [{"a": 1}, {"a": 2}, {"a": 3}]};
    send(&mut server, lsid, 1, &insert);
    let executed = history(&server).executed;
    assert_eq!(
        (executed.len(), executed[0].first, executed[0].count),
        (1, 0, 3)
    );
    // The second document is refused, so there is a record for those before and one for those behind.
    let insert = doc! {
        "insert": "c", "ordered": false, "documents": [{"_id": 1}, {"_id": 1}, {"_id": 2}, {"_id": 3}],
    };
    send(&mut server, lsid, 2, &insert);
    let places: Vec<_> = history(&server)
        .executed
        .iter()
        .map(|done| (done.first, done.count))
        .collect();
    assert_eq!(places, [(0, 1), (2, 2)]);
    let one = doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}]};
    send(&mut server, lsid, 3, &one);
    let last = history(&server);
    assert_eq!(
        (last.number, last.executed.len(), last.has_more),
        (Some(3), 1, false)
    );
    // A statement that changes nothing has no record, and leaves the others.
    let nothing = doc! {"update": "c", "updates": [{"q": {"_id": 77}, "u": {"$set": {"a": 1}}}]};
    let first = send(&mut server, lsid, 4, &nothing);
    assert_eq!(send(&mut server, lsid, 4, &nothing), first);
    assert_eq!(history(&server).number, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_repeated_after_a_restart() {
    let mut server = TestServer::new();
    server.run("test", doc! {"create": "c"});
    let lsid = SessionId::random();
    let statement = |mut command: DocBuf, number: i64, starts: bool| {
        command.push_all(&doc! {"lsid": lsid.to_doc(), "txnNumber": number, "autocommit": false});
        if starts {
            command.push("startTransaction", true);
        }
        command
    };
    let insert = doc! {"insert": "c", "documents": [{"a": 1}]};
    server.run("test", statement(insert.clone(), 1, true));
    server.run("admin", statement(doc! {"commitTransaction": 1}, 1, false));
    restart(&server);
    server.run("admin", statement(doc! {"commitTransaction": 1}, 1, false));
    assert_eq!(count(&mut server), Some(1));
    assert_eq!(
        server.code("test", statement(insert.clone(), 1, false)),
        256
    );
    // One that was open is lost.
    server.run("test", statement(insert.clone(), 2, true));
    restart(&server);
    assert_eq!(
        server.code("admin", statement(doc! {"commitTransaction": 1}, 2, false)),
        251
    );
    // The number of a transaction is none of a retryable write.
    let mut write = insert.clone();
    write.push_all(&doc! {"lsid": lsid.to_doc(), "txnNumber": 1i64});
    assert_eq!(server.code("test", write), 217);
    send(&mut server, lsid, 3, &insert);
    restart(&server);
    send(&mut server, lsid, 3, &insert);
    assert_eq!(count(&mut server), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_go_with_their_sessions() {
    let mut server = TestServer::new();
    let insert = doc! {"insert": "c", "documents": [{"a": 1}, {"a": 2}]};
    let ids: Vec<_> = (0..4).map(|_| SessionId::random()).collect();
    for id in &ids {
        send(&mut server, *id, 1, &insert);
    }
    let known = |server: &TestServer, id: SessionId| {
        let history = server.server.store.session_history(&id.key()).unwrap();
        history.number.is_some()
    };
    server.run("admin", doc! {"endSessions": [ids[0].to_doc()]});
    let store = &server.server.store;
    server.server.clients.sessions.expire(Instant::now(), store);
    assert!(!known(&server, ids[0]) && known(&server, ids[1]));
    // One that is not in memory is found by a search, once it is old; one that is in memory is not touched.
    server.server.clients.sessions.all.lock().remove(&ids[1]);
    let (sessions, store) = (&server.server.clients.sessions, &server.server.store);
    assert_eq!(sessions.search_expired(store).unwrap(), 0);
    assert!(known(&server, ids[1]));
    std::thread::sleep(Duration::from_millis(5));
    let soon = Sessions::new(Duration::from_millis(1), Duration::from_secs(60));
    let used = soon.touch(ids[2]);
    used.lock().is_loaded = true;
    assert_eq!(soon.search_expired(store).unwrap(), 2);
    assert!(!known(&server, ids[1]) && known(&server, ids[2]) && !known(&server, ids[3]));
    assert_eq!(soon.len(), 1);
    let later = Instant::now() + Duration::from_secs(31 * 60);
    sessions.expire(later, store);
    assert!(!known(&server, ids[2]));
    assert_eq!(sessions.len(), 0);
}

#[test]
fn results_are_read_as_they_were_stored() {
    let upserted = Some(OwnedValue::from(Value::Int32(5)));
    for recorded in [
        Recorded::Insert,
        Recorded::Delete(1),
        Recorded::Update(Updated {
            n: 1,
            modified: 1,
            upserted: None,
        }),
        Recorded::Update(Updated {
            n: 1,
            modified: 0,
            upserted,
        }),
        Recorded::FindAndModify(doc! {"value": {"a": 1}}),
    ] {
        assert_eq!(Recorded::read(&recorded.to_doc()), Some(recorded));
    }
    for damaged in [doc! {}, doc! {"x": 1}, doc! {"u": 1}, doc! {"d": -1}] {
        assert_eq!(Recorded::read(&damaged), None);
    }
}
