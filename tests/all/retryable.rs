//! Retryable writes over `kill -9`: a driver that got no reply sends its command again to the server that was started again,
//! and the write is applied once.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;

use std::net::TcpStream;
use std::time::Duration;

use frond_bson::{DocBuf, Value, doc};
use frond_wire::Flags;
use support::{Client, Running};

const ROUNDS: i64 = 8;
const BULK: i64 = 1500;
const SPARE: i64 = 100;

/// A command of a session.
struct Writer {
    /// The number of the session.
    session: u8,
    command: DocBuf,
}

/// The commands of a round.
fn writers(round: i64) -> Vec<Writer> {
    let increment = doc! {"$inc": {"n": 1}};
    let mut bulk = doc! {"insert": "c"};
    bulk.push_array("documents", |list| {
        (0..BULK).for_each(|_| list.push(&doc! {"k": "bulk"}));
    });
    let commands = [
        doc! {"insert": "c", "documents": [{"k": "one"}]},
        bulk,
        doc! {"update": "c", "updates": [{"q": {"_id": "u"}, "u": &increment}]},
        doc! {
            "update": "c",
            "updates": [{"q": {"_id": "v"}, "u": &increment}, {"q": {"_id": "w"}, "u": &increment}],
        },
        doc! {"update": "c", "updates": [{"q": {"k": "upsert", "r": round}, "u": &increment, "upsert": true}]},
        doc! {"delete": "c", "deletes": [{"q": {"k": "delete"}, "limit": 1}]},
        doc! {"findAndModify": "c", "query": {"_id": "f"}, "update": &increment, "new": true},
        doc! {"findAndModify": "c", "query": {"k": "remove"}, "remove": true},
    ];
    let numbered = (0..).zip(commands);
    numbered
        .map(|(session, mut command)| {
            let id = [session; 16];
            let uuid = Value::Binary {
                subtype: 4,
                bytes: &id,
            };
            command.push_all(&doc! {"lsid": {"id": uuid}, "txnNumber": round});
            Writer { session, command }
        })
        .collect()
}

fn count(client: &mut Client<TcpStream>, filter: DocBuf) -> i64 {
    let reply = client.run("test", &doc! {"count": "c", "query": filter});
    reply.get_i64("n").unwrap()
}

fn n(client: &mut Client<TcpStream>, id: &str) -> Option<i64> {
    let reply = client.run("test", &doc! {"find": "c", "filter": {"_id": id}});
    let batch = reply.get_doc("cursor").unwrap().get_array("firstBatch");
    batch.unwrap().get_doc("0").unwrap().get_i64("n")
}

#[test]
fn a_write_is_applied_once_over_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Running::start(directory.path(), &["--replSet", "rs0"]);
    let mut client = server.connect();
    client.run("admin", &doc! {"replSetInitiate": {}});
    client.run(
        "admin",
        &doc! {"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": 1}},
    );
    let mut spare = doc! {"insert": "c"};
    spare.push_array("documents", |list| {
        for id in ["u", "v", "w", "f"] {
            list.push(&doc! {"_id": id, "n": 0});
        }
        for _ in 0..SPARE {
            list.push(&doc! {"k": "delete"});
            list.push(&doc! {"k": "remove"});
        }
    });
    client.run("test", &spare);
    let mut last_time = None;
    for round in 1..=ROUNDS {
        let writers = writers(round);
        // The replies are not read. In the last round, all of them are: then the retries find complete writes.
        let mut clients: Vec<_> = writers.iter().map(|_| server.connect()).collect();
        for (writer, client) in writers.iter().zip(&mut clients) {
            let message = client.build(Flags::NONE, "test", &writer.command, &[]);
            client.send(&message);
        }
        let first: Vec<_> = if round == ROUNDS {
            clients
                .iter_mut()
                .map(|client| client.receive_msg().2)
                .collect()
        } else {
            Vec::new()
        };
        std::thread::sleep(Duration::from_millis((round as u64 - 1) * 3));
        server.signal("KILL");
        server.wait();
        server = Running::start(directory.path(), &["--replSet", "rs0"]);
        let mut client = server.connect();
        for writer in &writers {
            let retried = client.run("test", &writer.command);
            assert!(!retried.contains_key("writeErrors"), "{retried:?}");
            let again = client.run("test", &writer.command);
            for field in ["n", "nModified", "upserted", "lastErrorObject", "value"] {
                let session = writer.session;
                assert_eq!(again.get(field), retried.get(field), "{round} {session}");
                if let Some(first) = first.get(usize::from(session)) {
                    assert_eq!(first.get(field), retried.get(field), "{round} {session}");
                }
            }
            // The cluster time goes on after the crash.
            let time = retried.get("operationTime").and_then(|time| match time {
                Value::Timestamp(time) => Some(time),
                _ => None,
            });
            // A retry writes nothing, and has the time of the last entry.
            assert!(time >= last_time, "{time:?} {last_time:?}");
            last_time = time;
        }
        assert_eq!(count(&mut client, doc! {"k": "one"}), round);
        assert_eq!(count(&mut client, doc! {"k": "bulk"}), round * BULK);
        for id in ["u", "v", "w", "f"] {
            assert_eq!(n(&mut client, id), Some(round), "{id}");
        }
        assert_eq!(count(&mut client, doc! {"k": "upsert", "n": 1}), round);
        assert_eq!(count(&mut client, doc! {"k": "delete"}), SPARE - round);
        assert_eq!(count(&mut client, doc! {"k": "remove"}), SPARE - round);
    }
    server.stop();
}

#[test]
fn a_commit_is_applied_once_over_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Running::start(directory.path(), &[]);
    let mut client = server.connect();
    client.run("test", &doc! {"create": "c"});
    let id = [7; 16];
    let uuid = Value::Binary {
        subtype: 4,
        bytes: &id,
    };
    let statement = |mut command: DocBuf, number: i64| {
        command.push_all(&doc! {"lsid": {"id": uuid}, "txnNumber": number, "autocommit": false});
        command
    };
    let mut committed = 0;
    for round in 1..=ROUNDS {
        let mut first = doc! {"insert": "c", "documents": [{"r": round}]};
        first.push("startTransaction", true);
        client.run("test", &statement(first, round));
        let commit = statement(doc! {"commitTransaction": 1}, round);
        let message = client.build(Flags::NONE, "admin", &commit, &[]);
        client.send(&message);
        if round == ROUNDS {
            client.receive_msg();
        }
        std::thread::sleep(Duration::from_millis((round as u64 - 1) * 2));
        server.signal("KILL");
        server.wait();
        server = Running::start(directory.path(), &[]);
        client = server.connect();
        let reply = client.reply("admin", &commit);
        match reply.get_f64("ok") {
            Some(1.0) => committed += 1,
            // It was lost as a whole, and the driver may run it again.
            _ => {
                assert_eq!(reply.get_i32("code"), Some(251), "{reply:?}");
                assert_ne!(round, ROUNDS);
            }
        }
        assert_eq!(client.count("c"), committed);
    }
    assert!(committed > 0);
    server.stop();
}
