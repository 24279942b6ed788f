//! The commands that drivers and tools of 2026 send, with each of their fields, taken from their sources.
//!
//! Each command of the tables is sent to a server with some collections. It must succeed, unless the table names the
//! error of a feature that this server does not support. The same command with an unknown field must fail, so that a
//! server that accepts every field would not pass.

#![allow(clippy::unwrap_used)]

use frond_bson::{Doc, DocBuf, Timestamp, Value, doc};

use crate::commands;
use crate::settings::OplogMode;
use crate::testing::TestServer;

mod drivers;
mod tools;

/// One command as a client sends it.
struct Sent {
    db: &'static str,
    command: DocBuf,
    /// The code of the error that it gets; 0 for none.
    code: i32,
}

/// A command that succeeds.
fn takes(db: &'static str, command: DocBuf) -> Sent {
    fails(db, command, 0)
}

/// A command of a feature that this server does not support, with its error.
fn fails(db: &'static str, command: DocBuf, code: i32) -> Sent {
    Sent { db, command, code }
}

/// The command with more fields.
fn with(mut command: DocBuf, fields: &Doc) -> DocBuf {
    command.push_all(fields);
    command
}

/// A server with an oplog, a collection `c` of some documents, with indexes, and a view and a time series.
fn server() -> TestServer {
    let mut server = TestServer::with(|settings| settings.oplog = OplogMode::On);
    server.fill("c", 10);
    for command in [
        doc! {"update": "c", "updates": [{"q": {}, "u": {"$set": {"l": [{"y": 1}]}}, "multi": true}]},
        doc! {"createIndexes": "c", "indexes": [
            {"key": {"a": 1}, "name": "a_1"}, {"key": {"s": "text"}, "name": "s_text"},
            {"key": {"place": "2dsphere"}, "name": "place_2dsphere"},
        ]},
        doc! {"create": "v", "viewOn": "c", "pipeline": []},
        doc! {"create": "series", "timeseries": {"timeField": "at", "metaField": "m"}},
        doc! {"create": "capped", "capped": true, "size": 4096},
    ] {
        server.run("test", command);
    }
    server
}

/// The error of a reply, of its first write error or of its first bulk result; 0 for none.
fn code_of(reply: &Doc) -> i32 {
    if let Some(code) = reply.get_i32("code") {
        return code;
    }
    let first = |array: Option<&Doc>| array?.values().next()?.as_doc()?.get_i32("code");
    let results = || reply.get_doc("cursor")?.get_array("firstBatch");
    let bulk = reply.get("nErrors").and_then(|_| first(results()));
    first(reply.get_array("writeErrors")).or(bulk).unwrap_or(0)
}

/// Returns the commands whose replies differ from the table.
fn check(client: &str, sent: Vec<Sent>) -> Vec<String> {
    const READS: [&str; 5] = ["find", "count", "distinct", "explain", "ping"];
    let mut wrong = Vec::new();
    let mut server = server();
    for Sent { db, command, code } in sent {
        let (name, _) = command.first().unwrap();
        // The others accept any field, as in MongoDB, or check them in the store.
        let strict = commands::find(name).is_some_and(|(_, it)| !it.spec().takes_any_field);
        let strange = with(command.clone(), &doc! {"frondNoSuchField": 1});
        let tries = [
            (strict && code == 0).then_some((strange, 40415)),
            Some((command.clone(), code)),
        ];
        for (command, expected) in tries.into_iter().flatten() {
            let reply = server.reply(db, command.clone());
            if code_of(&reply) != expected {
                wrong.push(format!(
                    "{client}: {expected} expected\n  {command:?}\n  {reply:?}"
                ));
            }
        }
        if !READS.contains(&name) {
            server = self::server();
        }
    }
    wrong
}

/// A session as drivers send it.
fn lsid() -> DocBuf {
    let bytes = [7; 16];
    doc! {"id": Value::Binary { subtype: 4, bytes: &bytes }}
}

fn empty_timestamp() -> Value<'static> {
    Value::Timestamp(Timestamp::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_that_clients_send_is_taken() {
    let clients = drivers::all().into_iter().chain(tools::all());
    let wrong: Vec<String> = clients
        .flat_map(|(client, sent)| check(client, sent))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
