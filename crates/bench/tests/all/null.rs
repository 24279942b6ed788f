//! The null server as a client sees it: answers, counting, bad bytes, and the workloads against it.

use std::io::Write;
use std::net::TcpStream;
use std::process::ExitCode;

use frond_bench::null::{NullServer, start};
use frond_bench::uri::Address;
use frond_bson::{Doc, DocBuf, doc};
use frond_wire::{
    Compressor, Delete, Flags, MAX_MESSAGE_BYTES, MsgBuilder, OpReply, Query, Reply, Update,
};

use crate::store::{bench_at, run_command};

fn server() -> NullServer {
    start(&Address::Tcp("127.0.0.1".to_owned(), 0)).unwrap()
}

struct Client(TcpStream);

impl Client {
    fn connect(server: &NullServer) -> Client {
        let Address::Tcp(host, port) = server.address() else {
            unreachable!("it listens on a port");
        };
        Client(TcpStream::connect((host.as_str(), *port)).unwrap())
    }

    fn send(&mut self, message: &[u8]) {
        self.0.write_all(message).unwrap();
    }

    /// The next message; `None` if the server closed the connection.
    fn receive(&mut self) -> Option<Vec<u8>> {
        frond_wire::read_message(&mut self.0, MAX_MESSAGE_BYTES).ok()?
    }

    fn command(&mut self, body: &Doc) -> DocBuf {
        self.send(&frond_wire::msg(9, 0, Flags::NONE, body.as_bytes()));
        answer(&self.receive().unwrap(), 9)
    }

    fn count(&mut self, collection: &str) -> Option<i64> {
        self.command(&doc! {"count": collection, "$db": "d"})
            .get_i64("n")
    }

    fn query(&mut self, namespace: &str, count: i32, query: &Doc) -> Vec<DocBuf> {
        let query = Query {
            flags: 0,
            namespace,
            skip: 0,
            count,
            query: query.as_bytes(),
            projection: None,
        };
        self.send(&frond_wire::op_query(3, &query));
        let message = self.receive().unwrap();
        let (_, Reply::Reply(reply)) = Reply::parse(&message).unwrap() else {
            panic!("not an OP_REPLY");
        };
        let documents = reply.documents;
        documents
            .map(|bytes| Doc::validate(bytes).unwrap().to_owned())
            .collect()
    }

    fn last_error(&mut self) -> DocBuf {
        self.query("d.$cmd", -1, &doc! {"getlasterror": 1})
            .remove(0)
    }
}

fn answer(message: &[u8], id: i32) -> DocBuf {
    let (header, reply) = Reply::parse(message).unwrap();
    assert_eq!(header.response_to, id);
    let document = Doc::validate(reply.first_document().unwrap()).unwrap();
    document.to_owned()
}

fn documents(count: i32) -> Vec<DocBuf> {
    (0..count).map(|n| doc! {"_id": n, "x": "y"}).collect()
}

/// An insert as drivers send it.
fn insert(flags: Flags, count: i32) -> Vec<u8> {
    let mut message = Vec::new();
    let body = doc! {"insert": "c", "$db": "d"};
    let documents = documents(count);
    MsgBuilder::new(&mut message, 9, 0, flags)
        .body(body.as_bytes())
        .sequence("documents", documents.iter().map(|doc| doc.as_bytes()))
        .finish();
    message
}

/// Commands in the database `d`, and the fields that their answers must have.
const ANSWERS: &str = r#"
{"hello": 1} → {"isWritablePrimary": true, "maxWireVersion": 21}
{"isMaster": 1} → {"ismaster": true, "minWireVersion": 0}
{"hello": 1, "helloOk": true, "compression": ["lz4", "zlib"]} → {"helloOk": true, "maxBsonObjectSize": 16777216, "maxWriteBatchSize": 100000, "maxMessageSizeBytes": 48000000, "compression": ["zlib"]}
{"buildInfo": 1} → {"version": "7.0.0", "nullServer": true}
{"serverStatus": 1} → {"storageEngine": {"name": "null"}}
{"ping": 1} → {"ok": 1.0}
{"insert": "c", "documents": [{"_id": 1}, {}]} → {"n": 2}
{"count": "c"} → {"n": 2}
{"collStats": "c"} → {"ns": "d.c", "count": 2, "size": 0}
{"update": "c", "updates": [{"q": {"_id": 1}, "u": {}}, {"q": {}, "u": {"$set": {"a": 1}}}, {"q": {}, "u": {}}]} → {"n": 3, "nModified": 3}
{"delete": "c", "deletes": [{"q": {"_id": 5}, "limit": 1}]} → {"n": 1}
{"count": "c"} → {"n": 1}
{"delete": "c", "deletes": [{"q": {"a": 5}, "limit": 0}, {"q": {}, "limit": 0}]} → {"n": 1}
{"count": "c"} → {"n": 0}
{"drop": "c"} → {"ok": 1.0}
{"create": "c"} → {"ok": 1.0}
{"createIndexes": "c", "indexes": []} → {"numIndexesAfter": 2}
{"find": "c", "filter": {"x": 1}} → {"cursor": {"firstBatch": [], "id": {"$numberLong": "0"}, "ns": "d.c"}}
{"find": "c", "filter": {"_id": {"$gte": 4, "$lt": 9}}, "limit": 2, "projection": {"k": 1}} → {"cursor": {"firstBatch": [{"_id": 4, "k": 5000000}, {"_id": 5, "k": 5000000}], "id": {"$numberLong": "0"}, "ns": "d.c"}}
{"aggregate": "c", "pipeline": [], "cursor": {}} → {"cursor": {"firstBatch": [{"_id": null, "sum": 0}], "id": {"$numberLong": "0"}, "ns": "d.c"}}
{"getMore": {"$numberLong": "5"}, "collection": "c"} → {"cursor": {"nextBatch": [], "id": {"$numberLong": "0"}, "ns": "d.c"}}
{"killCursors": "c"} → {"cursorsKilled": []}
{"endSessions": []} → {"ok": 1.0}
{"fsync": 1} → {"ok": 1.0}
{"getLastError": 1} → {"err": null, "n": 0}
"#;

/// Commands, and the codes of their errors.
const ERRORS: &str = r#"
{"findAndModify": "c", "$db": "d"} → {"code": 59}
{"$db": "d"} → {"code": 59}
{"insert": "c", "documents": [{}]} → {"code": 40414}
{"insert": 5, "$db": "d"} → {"code": 73}
{"find": "", "$db": "d"} → {"code": 73}
{"insert": "c", "$db": "d"} → {"code": 40414}
{"insert": "c", "documents": {}, "$db": "d"} → {"code": 14}
{"insert": "c", "documents": [1], "$db": "d"} → {"code": 14}
{"insert": "c", "documents": [{}, 1], "$db": "d"} → {"code": 14}
{"insert": "c", "documents": [], "$db": "d"} → {"code": 16}
{"update": "c", "updates": [{"q": {}}], "$db": "d"} → {"code": 40414}
{"delete": "c", "deletes": [{"q": {}}], "$db": "d"} → {"code": 40414}
{"find": "c", "filter": 5, "$db": "d"} → {"code": 14}
{"find": "c", "limit": "x", "$db": "d"} → {"code": 14}
"#;

#[test]
fn commands_are_answered_plausibly_and_unknown_ones_by_an_error() {
    let server = server();
    let mut client = Client::connect(&server);
    let parse = |text: &str| frond_bson::extjson::parse(text).unwrap();
    for (table, ok) in [(ANSWERS, 1.0), (ERRORS, 0.0)] {
        for line in table.trim().lines() {
            let (command, expected) = line.split_once(" → ").unwrap();
            let mut command = parse(command);
            if ok == 1.0 {
                command.push("$db", "d");
            }
            let reply = client.command(&command);
            assert_eq!(reply.get_f64("ok"), Some(ok), "{line}: {reply:?}");
            assert_eq!(reply.get_str("codeName").is_some(), ok == 0.0, "{line}");
            for (name, value) in parse(expected).iter() {
                assert_eq!(reply.get(name), Some(value), "{line}: {reply:?}");
            }
        }
        // A failed insert is not counted.
        assert_eq!(client.count("c"), Some(0));
    }
    let distinct = client.command(&doc! {"distinct": "c", "key": "c", "$db": "d"});
    assert_eq!(distinct.get_array("values").unwrap().count(), 100);
}

#[test]
fn writes_that_nobody_waits_for_are_counted_and_not_answered() {
    let server = server();
    let mut client = Client::connect(&server);
    let quiet = Flags::MORE_TO_COME;
    for message in [
        insert(quiet, 1000),
        insert(quiet, 7),
        // Even an error is not answered.
        frond_wire::msg(9, 0, quiet, doc! {"x": 1, "$db": "d"}.as_bytes()),
        insert(quiet.with(Flags::CHECKSUM_PRESENT), 30_000),
        insert(Flags::NONE, 5),
    ] {
        client.send(&message);
    }
    let reply = answer(&client.receive().unwrap(), 9);
    assert_eq!(reply.get_i64("n"), Some(5));
    assert_eq!(client.count("c"), Some(31_012));
    let mut other = Client::connect(&server);
    assert_eq!(other.count("c"), Some(31_012));
    other.command(&doc! {"dropDatabase": 1, "$db": "d"});
    assert_eq!(client.count("c"), Some(0));
}

#[test]
fn legacy_opcodes_are_taken() {
    let server = server();
    let mut client = Client::connect(&server);
    let documents = documents(12);
    let documents = documents.iter().map(|doc| doc.as_bytes());
    client.send(&frond_wire::op_insert(1, 0, "d.c", documents));
    assert_eq!(client.last_error().get_i64("n"), Some(0));
    let update = Update {
        namespace: "d.c",
        flags: 0,
        filter: Doc::empty().as_bytes(),
        update: Doc::empty().as_bytes(),
    };
    client.send(&frond_wire::op_update(1, &update));
    let last = client.last_error();
    assert_eq!(last.get_i64("n"), Some(1));
    assert_eq!(last.get_bool("updatedExisting"), Some(true));
    for (flags, n, left) in [(1, 1, 11), (0, 11, 0)] {
        let delete = Delete {
            namespace: "d.c",
            flags,
            filter: Doc::empty().as_bytes(),
        };
        client.send(&frond_wire::op_delete(1, &delete));
        assert_eq!(client.last_error().get_i64("n"), Some(n));
        assert_eq!(client.count("c"), Some(left));
    }
    let range = doc! {"_id": {"$gte": 3, "$lte": 6}};
    for (query, count, found) in [
        (doc! {"_id": 5}, 1, 1),
        (range.clone(), 0, 4),
        (doc! {"$query": (&range)}, -2, 2),
        (doc! {"x": 1}, 0, 0),
    ] {
        let documents = client.query("d.c", count, &query);
        assert_eq!(documents.len(), found, "{query:?}");
        assert!(documents.iter().all(|document| document.count() == 4));
    }
    client.send(&frond_wire::op_kill_cursors(1, &[5]));
    client.send(&frond_wire::op_get_more(4, "d.c", 0, 5));
    let message = client.receive().unwrap();
    let (_, Reply::Reply(reply)) = Reply::parse(&message).unwrap() else {
        panic!("not an OP_REPLY");
    };
    assert_eq!(reply.flags, OpReply::CURSOR_NOT_FOUND);
}

#[test]
fn bad_bytes_close_the_connection_and_no_other() {
    let server = server();
    let mut other = Client::connect(&server);
    let ping = frond_wire::msg(9, 0, Flags::NONE, doc! {"ping": 1, "$db": "d"}.as_bytes());
    let changed = |at: usize, byte: u8| {
        let mut message = ping.clone();
        message[at] = byte;
        message
    };
    let mut bad_document = insert(Flags::NONE, 3);
    let end = bad_document.len() - 1;
    bad_document[end] = 1;
    let no_collection = doc! {"_id": 1};
    for (what, bytes) in [
        ("no header", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("length", changed(3, 0x7f)),
        ("length below a header", changed(0, 3)),
        ("opcode", changed(12, 1)),
        ("flags", changed(16, 0x80)),
        ("section", changed(20, 5)),
        ("document length", changed(21, 4)),
        ("type of a field", changed(25, 0x77)),
        ("a document of a sequence", bad_document),
        ("checksum", changed(16, Flags::CHECKSUM_PRESENT.0 as u8)),
        (
            "not negotiated",
            frond_wire::compress(&ping, Compressor::Zlib).unwrap(),
        ),
        (
            "namespace",
            frond_wire::op_insert(1, 0, "d", [no_collection.as_bytes()]),
        ),
    ] {
        let mut client = Client::connect(&server);
        // Earlier requests are still answered.
        client.send(&[&ping[..], &bytes].concat());
        assert!(client.receive().is_some(), "{what}");
        assert_eq!(client.receive(), None, "{what}");
    }
    // A message that never ends.
    let mut client = Client::connect(&server);
    client.send(&ping[..ping.len() - 1]);
    drop(client);
    assert_eq!(other.count("c"), Some(0));
}

#[test]
fn messages_may_be_compressed_once_that_is_agreed() {
    let server = server();
    let mut client = Client::connect(&server);
    client.command(&doc! {"hello": 1, "compression": ["snappy", "zstd"], "$db": "admin"});
    for compressor in [Compressor::Snappy, Compressor::Zstd] {
        client.send(&frond_wire::compress(&insert(Flags::NONE, 50), compressor).unwrap());
        let message = client.receive().unwrap();
        let (message, used) = frond_wire::decompress(&message, 1 << 20).unwrap();
        assert_eq!(used, compressor);
        assert_eq!(answer(&message, 9).get_i64("n"), Some(50));
    }
    assert_eq!(client.count("c"), Some(100));
    client.send(&frond_wire::compress(&insert(Flags::NONE, 50), Compressor::Zlib).unwrap());
    assert_eq!(client.receive(), None);
}

#[test]
fn its_end_is_the_end_of_its_connections() {
    let server = server();
    let mut client = Client::connect(&server);
    client.count("c");
    let Address::Tcp(_, port) = server.address().clone() else {
        unreachable!("it listens on a port");
    };
    drop(server);
    assert_eq!(client.receive(), None);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn the_insertion_workload_runs_against_it() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("null.sock");
    let unix = start(&Address::Unix(socket.clone())).unwrap();
    let tcp = server();
    let size = ["--documents=2500", "--batch=100"];
    for (uri, more) in [
        (tcp.uri(), &[][..]),
        (tcp.uri() + "?compressors=zstd", &["--drop"]),
        (unix.uri(), &["--write-concern=0", "--threads=3"]),
    ] {
        let args = [&size[..], &["--uri", &uri], more].concat();
        bench_at("insert", &args).assert_complete(&uri);
    }
    // Ratios are of the server asked for, and its share is that of the one beside it.
    let uri = tcp.uri() + "other";
    let report = bench_at("insert", &[&size[..], &["--null", "--uri", &uri]].concat());
    report.assert_complete("beside");
    assert_eq!(report.servers, ["null server #1", "null server #2"]);
    for server in 0..2 {
        assert_eq!(report.figure(server, "documents"), Some(2500.0));
    }
    drop(unix);
    assert!(!socket.exists());
    let mut client = Client::connect(&tcp);
    let count = client.command(&doc! {"count": "w1", "$db": "frond_bench"});
    assert_eq!(count.get_i64("n"), Some(2500));
}

#[test]
fn connections_read_while_others_insert() {
    let server = server();
    let uri = format!("--uri={}", server.uri());
    let size = [
        "--documents=20000",
        "--batch=100",
        "--readers=2",
        "--turns=3",
    ];
    let report = bench_at("insert", &[&size[..], &[&uri]].concat());
    report.assert_complete("readers");
    assert!(report.figure(0, "finds beside the inserts") > Some(0.0));
}

#[test]
fn commands_without_a_report_run_against_it() {
    let server = server();
    let uri = format!("--uri={}", server.uri());
    for args in [
        // It knows no sums.
        &[
            "operations",
            "--documents=200",
            "--seconds=0.01",
            "--only=ping,find,range,ordered,distinct,update-plain,update-indexed",
        ][..],
        &[
            "operations",
            "--documents=200",
            "--seconds=0.01",
            "--only=insert-one,insert-batch,insert-indexes,insert-array",
        ],
        &["logins", "--logins=20", "--threads=4", "--seconds=1"],
        &["roundtrip", "--documents=200", "--seconds=1", "--rounds=1"],
    ] {
        let code = run_command(&[args, &[&uri]].concat());
        assert_eq!(code, ExitCode::SUCCESS, "{args:?}");
    }
}
