//! The server process and its wire protocol: every opcode, compression, order, and malformed bytes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use frond_bson::{DocBuf, doc};
use frond_wire::{
    Compressor, Delete, Flags, Header, Insert, MAX_MESSAGE_BYTES, Query, Reply, Update, compress,
    decompress, msg, op_delete, op_get_more, op_insert, op_query, op_update,
};
use support::{Client, Running, wait_until};

fn numbers(range: std::ops::Range<i32>) -> Vec<DocBuf> {
    range.map(|n| doc! {"_id": n, "a": n % 10}).collect()
}

fn query<'a>(namespace: &'a str, count: i32, body: &'a DocBuf) -> Query<'a> {
    Query {
        flags: 0,
        namespace,
        skip: 0,
        count,
        query: body.as_bytes(),
        projection: None,
    }
}

/// Sends an OP_QUERY and returns the documents and the cursor.
fn old_query<S: Read + Write>(
    client: &mut Client<S>,
    namespace: &str,
    count: i32,
    body: &DocBuf,
) -> (Vec<DocBuf>, i64) {
    client.send(&op_query(7, &query(namespace, count, body)));
    old_reply(client)
}

fn old_reply<S: Read + Write>(client: &mut Client<S>) -> (Vec<DocBuf>, i64) {
    let message = client.receive().expect("a reply");
    let (header, Reply::Reply(reply)) = Reply::parse(&message).unwrap() else {
        panic!()
    };
    assert_eq!(header.response_to, 7);
    let documents = reply
        .documents
        .map(|bytes| DocBuf::from_vec(bytes.to_vec()).unwrap())
        .collect();
    (documents, reply.cursor_id)
}

#[test]
fn old_and_new_opcodes_see_the_same_documents() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    let mut client = server.connect();

    let insert = doc! {"insert": "c"};
    let message = client.build(
        Flags::CHECKSUM_PRESENT,
        "test",
        &insert,
        &[("documents", &numbers(0..300))],
    );
    client.send(&message);
    assert_eq!(client.receive_msg().2.get_i32("n"), Some(300));

    let (first, id) = old_query(&mut client, "test.c", 200, &doc! {});
    assert_eq!(first.len(), 200);
    client.send(&op_get_more(7, "test.c", 200, id));
    assert_eq!(old_reply(&mut client).0.len(), 100);

    let more = numbers(300..310);
    client.send(&op_insert(
        1,
        0,
        "test.c",
        more.iter().map(|doc| doc.as_bytes()),
    ));
    let (filter, change) = (doc! {"_id": {"$gte": 305}}, doc! {"$set": {"a": 77}});
    client.send(&op_update(
        1,
        &Update {
            namespace: "test.c",
            flags: Update::MULTI,
            filter: filter.as_bytes(),
            update: change.as_bytes(),
        },
    ));
    let (last, _) = old_query(
        &mut client,
        "test.$cmd",
        -1,
        &doc! {"getlasterror": 1, "j": true},
    );
    assert_eq!(
        (last[0].get_i32("n"), last[0].get_bool("updatedExisting")),
        (Some(5), Some(true))
    );
    let filter = doc! {"a": 77};
    client.send(&op_delete(
        1,
        &Delete {
            namespace: "test.c",
            flags: 0,
            filter: filter.as_bytes(),
        },
    ));
    let (last, _) = old_query(&mut client, "test.$cmd", -1, &doc! {"getlasterror": 1});
    assert_eq!(last[0].get_i32("n"), Some(5));
    assert_eq!(client.count("c"), 305);

    client.send(&op_insert(
        1,
        Insert::CONTINUE_ON_ERROR,
        "test.c",
        numbers(304..308).iter().map(|doc| doc.as_bytes()),
    ));
    let (last, _) = old_query(&mut client, "test.$cmd", -1, &doc! {"getlasterror": 1});
    assert_eq!(last[0].get_i32("code"), Some(11000));
    assert_eq!(client.count("c"), 308);
    server.stop();
}

#[test]
fn compressed_requests_get_compressed_replies() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(
        directory.path(),
        &["--networkMessageCompressors", "zlib,zstd,snappy"],
    );
    let mut client = server.connect();
    let hello = client.run(
        "admin",
        &doc! {"hello": 1, "compression": ["snappy", "zstd", "lz4", "zlib"]},
    );
    assert_eq!(hello.get_array("compression").unwrap().count(), 3);
    for compressor in [
        Compressor::Snappy,
        Compressor::Zlib,
        Compressor::Zstd,
        Compressor::Noop,
    ] {
        let name = compressor.name();
        let insert = doc! {"insert": name};
        let message = client.build(
            Flags::NONE,
            "test",
            &insert,
            &[("documents", &numbers(0..1000))],
        );
        client.send(&compress(&message, compressor).unwrap());
        let reply = client.receive().unwrap();
        let (plain, with) = decompress(&reply, MAX_MESSAGE_BYTES).unwrap();
        assert_eq!(with, compressor);
        let (header, reply) = Reply::parse(&plain).unwrap();
        assert_eq!(header.response_to, client.request_id);
        let document = DocBuf::from_vec(reply.first_document().unwrap().to_vec()).unwrap();
        assert_eq!(document.get_i32("n"), Some(1000));
        assert_eq!(client.count(name), 1000);
    }
    server.stop();
}

#[test]
fn a_compressor_that_is_not_offered_closes_the_connection() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(
        directory.path(),
        &["--networkMessageCompressors", "disabled"],
    );
    let mut client = server.connect();
    assert!(
        client
            .run("admin", &doc! {"hello": 1, "compression": ["zstd"]})
            .get("compression")
            .is_none()
    );
    let message = client.build(Flags::NONE, "admin", &doc! {"ping": 1}, &[]);
    client.send(&compress(&message, Compressor::Zstd).unwrap());
    assert!(client.receive().is_none());
    server.connect().run("admin", &doc! {"ping": 1});
    server.stop();
}

#[test]
fn unacknowledged_writes_are_applied_in_order_without_replies() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    let mut client = server.connect();
    // All messages in one write, so that the server reads many at once.
    let mut bytes = Vec::new();
    for n in 0..2000 {
        let set = doc! {
            "update": "c", "writeConcern": {"w": 0},
            "updates": [{"q": {"_id": 0}, "u": {"$set": {"n": n}, "$inc": {"times": 1}}, "upsert": true}],
        };
        bytes.extend(client.build(Flags::MORE_TO_COME, "test", &set, &[]));
    }
    // A failing one is not answered either.
    let wrong = doc! {"update": "c", "updates": 1, "writeConcern": {"w": 0}};
    bytes.extend(client.build(Flags::MORE_TO_COME, "test", &wrong, &[]));
    client.send(&bytes);
    let reply = client.run("test", &doc! {"find": "c"});
    let document = reply
        .get_doc("cursor")
        .unwrap()
        .get_array("firstBatch")
        .unwrap()
        .get_doc("0");
    assert_eq!(document, Some(&*doc! {"_id": 0, "n": 1999, "times": 2000}));
    server.stop();
}

#[test]
fn exhaust_replies_are_sent_without_requests() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    let mut client = server.connect();
    let message = client.build(
        Flags::NONE,
        "test",
        &doc! {"insert": "c"},
        &[("documents", &numbers(0..1000))],
    );
    client.send(&message);
    client.receive_msg();
    let first = client.run("test", &doc! {"find": "c", "batchSize": 0});
    let id = first.get_doc("cursor").unwrap().get_i64("id").unwrap();
    let get_more = doc! {"getMore": id, "collection": "c", "batchSize": 300};
    let message = client.build(Flags::EXHAUST_ALLOWED, "test", &get_more, &[]);
    client.send(&message);
    let (mut seen, mut replies, mut answers) = (0, 0, client.request_id);
    loop {
        let (header, flags, reply) = client.receive_msg();
        assert_eq!(header.response_to, answers);
        answers = header.request_id;
        let cursor = reply.get_doc("cursor").unwrap();
        seen += cursor.get_array("nextBatch").unwrap().count();
        replies += 1;
        assert_eq!(
            flags.has(Flags::MORE_TO_COME),
            cursor.get_i64("id") != Some(0)
        );
        if !flags.has(Flags::MORE_TO_COME) {
            break;
        }
    }
    assert_eq!((seen, replies), (1000, 4));
    client.run("admin", &doc! {"ping": 1});
    server.stop();
}

#[test]
fn a_streaming_hello_continues_until_the_client_disconnects() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    let mut client = server.connect();
    let hello = client.run("admin", &doc! {"hello": 1});
    let version = hello.get_doc("topologyVersion").unwrap().to_owned();
    let wait = doc! {"hello": 1, "topologyVersion": &version, "maxAwaitTimeMS": 100};
    let message = client.build(Flags::EXHAUST_ALLOWED, "admin", &wait, &[]);
    let began = std::time::Instant::now();
    client.send(&message);
    for _ in 0..3 {
        let (_, flags, reply) = client.receive_msg();
        assert!(flags.has(Flags::MORE_TO_COME));
        assert_eq!(reply.get_bool("isWritablePrimary"), Some(true));
    }
    assert!(began.elapsed() >= Duration::from_millis(300));
    drop(client);
    // The server notices, and a waiting heartbeat does not delay its shutdown.
    let waiting = |count: i64| {
        let mut client = server.connect();
        wait_until("hellos that wait", || {
            let status = client.run("admin", &doc! {"serverStatus": 1});
            let connections = status.get_doc("connections").unwrap();
            let waiting = connections.get("awaitingTopologyChanges").unwrap();
            waiting.as_i64_lossless() == Some(count)
        });
    };
    waiting(0);
    let mut idle = server.connect();
    let long = doc! {"hello": 1, "topologyVersion": &version, "maxAwaitTimeMS": 600_000};
    let message = idle.build(Flags::NONE, "admin", &long, &[]);
    idle.send(&message);
    waiting(1);
    server.stop();
}

#[test]
fn clients_of_other_protocols_get_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    // The ClientHello of a TLS client, up to its session id.
    let mut hello = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    hello.extend((0..60u8).map(|n| n.wrapping_mul(37)));
    let http = b"GET / HTTP/1.1\r\nHost: a.b\r\n\r\n".to_vec();
    let cases: [(Vec<u8>, &[u8], &str); 2] = [
        (
            hello,
            &[0x15, 3, 1, 0, 2, 2, 40],
            "connect without tls=true",
        ),
        (http, b"HTTP/1.0 200 OK\r\n", "speaks HTTP"),
    ];
    for (bytes, answer, logged) in cases {
        let mut client = server.connect();
        client.send(&bytes);
        let mut received = Vec::new();
        client.stream.read_to_end(&mut received).unwrap();
        assert!(received.starts_with(answer), "{received:?}");
        assert!(
            server
                .line_with("Malformed message from client")
                .contains(logged),
            "{logged}"
        );
    }
    // The length of the text is that of its header.
    let mut client = server.connect();
    client.send(b"POST /x HTTP/1.1\r\n\r\n");
    let mut text = String::new();
    client.stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains(&format!("Content-Length: {}", body.len())),
        "{text}"
    );
    server.connect().run("admin", &doc! {"ping": 1});
    server.stop();
}

#[test]
fn malformed_bytes_do_not_harm_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    let ping = {
        let mut body = doc! {"ping": 1};
        body.push("$db", "admin");
        msg(1, 0, Flags::NONE, body.as_bytes())
    };
    let patched = |at: usize, bytes: &[u8]| {
        let mut message = ping.clone();
        message[at..at + bytes.len()].copy_from_slice(bytes);
        message
    };
    let header = |length: i32, opcode: i32| {
        Header {
            length,
            request_id: 1,
            response_to: 0,
            opcode,
        }
        .to_bytes()
        .to_vec()
    };
    let not_bson = {
        let mut body = doc! {"ping": 1, "$db": "admin"}.into_vec();
        body[4] = 0x77;
        body
    };
    let deep = {
        let mut inner = doc! {};
        for _ in 0..300 {
            inner = doc! {"a": &inner};
        }
        doc! {"ping": 1, "deep": &inner, "$db": "admin"}
    };
    // The bytes to send, and whether the server replies (with an error) or closes the connection.
    let cases: Vec<(&str, Vec<u8>, bool)> = vec![
        ("length 0", header(0, 2013), false),
        ("length 15", header(15, 2013), false),
        ("negative length", header(-5, 2013), false),
        ("length above the limit", header(i32::MAX, 2013), false),
        ("opcode 0", header(64, 0), false),
        (
            "OP_REPLY from a client",
            patched(12, &1i32.to_le_bytes()),
            false,
        ),
        ("no room for flags", header(16, 2013), false),
        ("unknown required flag", patched(16, &[0x40]), false),
        ("wrong checksum", patched(16, &[1]), false),
        ("section kind 9", patched(20, &[9]), true),
        (
            "body past the end",
            patched(21, &5000i32.to_le_bytes()),
            true,
        ),
        ("body of length 0", patched(21, &0i32.to_le_bytes()), true),
        (
            "a type that is none",
            msg(1, 0, Flags::NONE, &not_bson),
            true,
        ),
        (
            "no $db",
            msg(1, 0, Flags::NONE, doc! {"ping": 1}.as_bytes()),
            true,
        ),
        (
            "an empty body",
            msg(1, 0, Flags::NONE, doc! {"$db": "x"}.as_bytes()),
            true,
        ),
        (
            "nested too deep",
            msg(1, 0, Flags::NONE, deep.as_bytes()),
            true,
        ),
        (
            "compressed rubbish",
            [header(30, 2012), vec![0xff; 14]].concat(),
            false,
        ),
        (
            "a truncated query",
            [header(20, 2004), vec![0; 4]].concat(),
            false,
        ),
    ];
    for (name, bytes, answered) in cases {
        let mut client = server.connect();
        client.send(&bytes);
        if answered {
            let (_, _, reply) = client.receive_msg();
            assert_eq!(reply.get_f64("ok"), Some(0.0), "{name}: {reply:?}");
            assert!(reply.get_i32("code").is_some(), "{name}: {reply:?}");
            client.run("admin", &doc! {"ping": 1});
        } else {
            assert!(client.receive().is_none(), "{name}");
        }
        server.connect().run("admin", &doc! {"ping": 1});
    }
    // Half a message, then nothing.
    let mut client = server.connect();
    client.send(&ping[..20]);
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert!(client.receive().is_none());
    // Many random bytes after a valid header.
    let mut seed: u32 = 7;
    for _ in 0..200 {
        let mut client = server.connect();
        let mut bytes = ping.clone();
        for byte in &mut bytes[16..] {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if seed >> 30 == 0 {
                *byte = (seed >> 16) as u8;
            }
        }
        client.send(&bytes);
        client.stream.shutdown(Shutdown::Write).unwrap();
        let _ = client.receive();
    }
    let mut client = server.connect();
    let status = client.run("admin", &doc! {"serverStatus": 1});
    let asserts = status.get_doc("asserts").unwrap();
    assert_eq!(asserts.get_i64("regular"), Some(0), "nothing panicked");
    assert!(asserts.get_i64("msg").unwrap() > 10);
    server.stop();
}

#[test]
fn a_client_that_does_not_read_delays_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    let mut client = server.connect();
    let large = "x".repeat(1 << 20);
    for n in 0..15 {
        client.run(
            "test",
            &doc! {"insert": "c", "documents": [{"_id": n, "x": &large}]},
        );
    }
    let mut greedy: Vec<_> = (0..6).map(|_| server.connect()).collect();
    for client in &mut greedy {
        let message = client.build(Flags::NONE, "test", &doc! {"find": "c"}, &[]);
        client.send(&message);
    }
    for n in 0..50 {
        client.run("test", &doc! {"insert": "d", "documents": [{"_id": n}]});
    }
    for client in &mut greedy {
        let (_, _, reply) = client.receive_msg();
        let batch = reply
            .get_doc("cursor")
            .unwrap()
            .get_array("firstBatch")
            .unwrap();
        assert_eq!(batch.count(), 15);
    }
    server.stop();
}
