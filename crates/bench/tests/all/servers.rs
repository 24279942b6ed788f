//! Runs the workload against servers of every version, simulated by a small server that answers as they
//! did: which opcodes, which commands, which limits.

#![allow(clippy::unwrap_used)]

use crate::store;

use std::collections::HashSet;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use clap::Parser;
use frond_bench::{Command, run};
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_wire::{Compressor, Flags, Header, MAX_MESSAGE_BYTES, OpCode, Request};
use store::{command_of, listen};

/// Behaviour of a fake server.
#[derive(Clone, Copy)]
struct Version {
    /// `None` leaves the field out, as servers before 2.6 did.
    wire_version: Option<i32>,
    /// It knows `hello` instead of `isMaster`.
    knows_hello: bool,
    /// Documents whose number is this or above fail as duplicates.
    fails_from: usize,
    /// Acknowledges but loses documents.
    loses: bool,
}

const MODERN: Version = Version {
    wire_version: Some(21),
    knows_hello: true,
    fails_from: usize::MAX,
    loses: false,
};

/// Name of a fake server in reports.
const NAME: &str = "MongoDB 9.9.9";

/// Requests that a fake server has seen.
#[derive(Default)]
struct Seen {
    ids: HashSet<Vec<u8>>,
    indexes: Vec<String>,
    opcodes: HashSet<i32>,
    compressed: bool,
    journaled: usize,
    dropped: bool,
}

struct FakeServer {
    port: u16,
    seen: Arc<Mutex<Seen>>,
}

fn start(version: Version) -> FakeServer {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let shared = Arc::clone(&seen);
    let port = listen(move |socket| serve(socket, version, &shared));
    FakeServer { port, seen }
}

fn serve(mut socket: TcpStream, version: Version, seen: &Mutex<Seen>) {
    let mut failed_before = false;
    while let Ok(Some(mut message)) = frond_wire::read_message(&mut socket, MAX_MESSAGE_BYTES) {
        let mut header = Header::parse(&message).unwrap();
        let compressed = header.op() == Ok(OpCode::Compressed);
        if compressed {
            message = frond_wire::decompress(&message, MAX_MESSAGE_BYTES)
                .unwrap()
                .0;
            header = Header::parse(&message).unwrap();
        }
        let mut seen = seen.lock().unwrap();
        seen.compressed |= compressed;
        seen.opcodes.insert(header.opcode);
        let id = header.request_id;
        let (_, request) = Request::parse(&message).unwrap();
        let reply = match request {
            Request::Msg(msg) => {
                assert!(version.wire_version >= Some(6), "OP_MSG to an old server");
                let flags = msg.flags;
                let command = command_of(msg);
                let reply = answer(&command, version, &mut seen);
                if flags.has(Flags::MORE_TO_COME) {
                    continue;
                }
                frond_wire::msg(1, id, Flags::NONE, reply.as_bytes())
            }
            Request::Query(query) => {
                let command = Doc::validate(query.query).unwrap();
                let mut reply = answer(command, version, &mut seen);
                if command.get("getlasterror").is_some() && failed_before {
                    reply = doc! { "ok": 1.0, "err": "E11000 duplicate key", "code": 11000 };
                }
                frond_wire::op_reply(1, id, 0, 0, 0, [reply.as_bytes()])
            }
            Request::Insert(insert) => {
                let documents: Vec<&Doc> = insert
                    .documents
                    .map(|bytes| Doc::validate(bytes).unwrap())
                    .collect();
                if insert.namespace.ends_with(".system.indexes") {
                    for index in documents {
                        seen.indexes.push(index.get_str("name").unwrap().to_owned());
                    }
                } else {
                    failed_before = take(&documents, version, &mut seen) < documents.len();
                }
                continue;
            }
            other => unreachable!("{other:?}"),
        };
        let reply = if compressed {
            frond_wire::compress(&reply, Compressor::Snappy).unwrap()
        } else {
            reply
        };
        // The other side may be gone after an error.
        let _ = socket.write_all(&reply);
    }
}

/// Keeps documents until one fails; how many were kept.
fn take(documents: &[&Doc], version: Version, seen: &mut Seen) -> usize {
    for (index, document) in documents.iter().enumerate() {
        if seen.ids.len() >= version.fails_from {
            return index;
        }
        let Some(Value::ObjectId(id)) = document.get("_id") else {
            unreachable!("every document has an _id");
        };
        if !version.loses || index % 2 == 0 {
            let new = seen.ids.insert(id.to_string().into_bytes());
            assert!(new, "an _id came twice");
        }
    }
    documents.len()
}

fn answer(command: &Doc, version: Version, seen: &mut Seen) -> DocBuf {
    let (name, _) = command.iter().next().unwrap();
    match name {
        "hello" | "isMaster" if (name == "hello") == version.knows_hello => {
            let mut reply = doc! { "ismaster": true, "maxBsonObjectSize": 16_777_216 };
            if let Some(version) = version.wire_version {
                reply.push("maxWireVersion", version);
            }
            reply.push_array("compression", |names| names.push("snappy"));
            reply.push("ok", 1.0);
            reply
        }
        "count" if seen.ids.is_empty() && version.wire_version.is_none() => {
            doc! { "errmsg": "ns missing", "ok": 0.0 }
        }
        "count" => doc! { "n": seen.ids.len() as i32, "ok": 1.0 },
        "createIndexes" => {
            assert!(
                version.wire_version >= Some(2),
                "a command that did not exist"
            );
            for (_, index) in command.get_array("indexes").unwrap().iter() {
                let Value::Document(index) = index else {
                    unreachable!("an index is a document");
                };
                seen.indexes.push(index.get_str("name").unwrap().to_owned());
            }
            doc! { "ok": 1.0 }
        }
        "insert" => {
            assert!(
                version.wire_version >= Some(2),
                "a command that did not exist"
            );
            let concern = command.get_doc("writeConcern").unwrap();
            seen.journaled += usize::from(concern.get_bool("j") == Some(true));
            let array = command.get_array("documents").unwrap();
            let documents: Vec<&Doc> = array
                .iter()
                .map(|(_, value)| match value {
                    Value::Document(document) => document,
                    other => unreachable!("{other:?}"),
                })
                .collect();
            let taken = take(&documents, version, seen);
            let mut reply = doc! { "n": taken as i32, "ok": 1.0 };
            if taken < documents.len() {
                reply.push_array("writeErrors", |errors| {
                    errors.push(&doc! {
                        "index": taken as i32, "code": 11000, "errmsg": "E11000 duplicate key",
                    });
                });
            }
            reply
        }
        "getlasterror" => {
            seen.journaled += usize::from(command.get_bool("j") == Some(true));
            doc! { "ok": 1.0, "err": Value::Null }
        }
        "drop" => {
            seen.dropped = true;
            doc! { "ok": 0.0, "errmsg": "ns not found", "code": 26 }
        }
        "ping" => doc! { "ok": 1.0 },
        "buildInfo" => doc! { "version": "9.9.9", "ok": 1.0 },
        "serverStatus" => doc! { "mem": { "resident": 123 }, "ok": 1.0 },
        _ => doc! { "ok": 0.0, "errmsg": "no such command", "code": 59 },
    }
}

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Runs `frond bench insert` with 2,500 documents in batches of 400.
fn bench(server: &FakeServer, options: &str, folder: &Path, more: &[&str]) -> ExitCode {
    let uri = format!("mongodb://127.0.0.1:{}/test{options}", server.port);
    let mut args = vec!["bench", "insert", "--quiet", "--uri", &uri, "--out"];
    args.push(folder.to_str().unwrap());
    args.extend(["--documents", "2500", "--report-every", "0.05"]);
    if !more.contains(&"--batch") {
        args.extend(["--batch", "400"]);
    }
    args.extend(more);
    run(Cli::parse_from(args).command)
}

/// A server's figure in `results.csv`.
fn figure(folder: &Path, server: &str, name: &str) -> f64 {
    let text = std::fs::read_to_string(folder.join("results.csv")).unwrap();
    let start = format!("insert,{server},{name},");
    let line = text.lines().find(|line| line.starts_with(&start)).unwrap();
    line.rsplit(',').next().unwrap().parse().unwrap()
}

/// The ending of the workload on a server, from `summary.json`.
fn ending(folder: &Path, server: &str) -> String {
    let text = std::fs::read_to_string(folder.join("summary.json")).unwrap();
    let (_, rest) = text.split_once("\"ended\":{").unwrap();
    let (_, rest) = rest.split_once(&format!("\"{server}\":\"")).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn servers_of_every_age_take_all_documents() {
    let first = Version {
        wire_version: None,
        knows_hello: false,
        ..MODERN
    };
    let (insert, query, msg) = (
        OpCode::Insert as i32,
        OpCode::Query as i32,
        OpCode::Msg as i32,
    );
    for (wire_version, knows_hello, concern, opcodes) in [
        (None, false, "1", vec![query, insert]),
        (None, false, "0", vec![query, insert]),
        (Some(3), false, "1", vec![query]),
        (Some(3), false, "0", vec![query, insert]),
        (Some(21), true, "1", vec![query, msg]),
        (Some(21), true, "0", vec![query, msg]),
    ] {
        let version = Version {
            wire_version,
            knows_hello,
            ..first
        };
        let server = start(version);
        let folder = tempfile::tempdir().unwrap();
        let more = ["--write-concern", concern, "--threads", "3", "--drop"];
        let code = bench(&server, "", folder.path(), &more);
        let case = format!("wire version {wire_version:?}, w: {concern}");
        assert_eq!(code, ExitCode::SUCCESS, "{case}");
        let seen = server.seen.lock().unwrap();
        assert_eq!(seen.ids.len(), 2500, "{case}");
        assert_eq!(
            seen.indexes,
            ["URI_1", "name_1", "origin_1", "creation_1"],
            "{case}"
        );
        assert_eq!(seen.opcodes, opcodes.into_iter().collect(), "{case}");
        assert_eq!(seen.journaled, 0, "{case}");
        assert!(seen.dropped, "{case}");
        assert_eq!(figure(folder.path(), NAME, "documents"), 2500.0, "{case}");
        assert_eq!(ending(folder.path(), NAME), "complete", "{case}");
    }
}

#[test]
fn journal_and_compression_are_asked_for() {
    let server = start(MODERN);
    let folder = tempfile::tempdir().unwrap();
    let more = ["--journal", "--indexes", "1"];
    let code = bench(&server, "?compressors=zstd,snappy", folder.path(), &more);
    assert_eq!(code, ExitCode::SUCCESS);
    let seen = server.seen.lock().unwrap();
    assert_eq!(seen.journaled, 7);
    assert!(seen.compressed);
    assert_eq!(seen.indexes, ["URI_1"]);
    for name in [
        "trace.csv",
        "summary.md",
        "insert.svg",
        "report.html",
        "results.csv",
    ] {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(text.len() > 50, "{name}");
    }
    let html = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(html.contains("<svg") && html.contains("</html>"));
}

#[test]
fn a_failed_document_ends_the_run_with_a_partial_report() {
    for wire_version in [None, Some(3), Some(21)] {
        let server = start(Version {
            wire_version,
            fails_from: 1000,
            ..MODERN
        });
        let folder = tempfile::tempdir().unwrap();
        let code = bench(&server, "", folder.path(), &[]);
        assert_eq!(code, ExitCode::FAILURE, "{wire_version:?}");
        let documents = figure(folder.path(), NAME, "documents");
        assert_eq!(documents, 800.0, "{wire_version:?}");
        let ending = ending(folder.path(), NAME);
        assert!(ending.contains("E11000"), "{wire_version:?}: {ending}");
        assert!(folder.path().join("insert.svg").exists());
    }
}

#[test]
fn lost_documents_are_noticed() {
    let server = start(Version {
        loses: true,
        ..MODERN
    });
    let folder = tempfile::tempdir().unwrap();
    let code = bench(&server, "", folder.path(), &["--write-concern", "0"]);
    assert_eq!(code, ExitCode::FAILURE);
    let ending = ending(folder.path(), NAME);
    assert!(
        ending.contains("holds 1250 documents instead of 2500"),
        "{ending}"
    );
}

#[test]
fn a_collection_that_holds_documents_is_not_touched_unasked() {
    let server = start(MODERN);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(bench(&server, "", folder.path(), &[]), ExitCode::SUCCESS);
    assert_eq!(
        bench(&server, "", folder.path(), &["--seed", "2"]),
        ExitCode::FAILURE
    );
    assert_eq!(server.seen.lock().unwrap().ids.len(), 2500);
    assert_eq!(
        bench(&server, "", folder.path(), &["--seed", "2", "--keep"]),
        ExitCode::SUCCESS
    );
    assert_eq!(server.seen.lock().unwrap().ids.len(), 5000);
    assert_eq!(
        bench(&server, "", folder.path(), &["--drop", "--keep"]),
        ExitCode::FAILURE
    );
    assert!(!server.seen.lock().unwrap().dropped);
}

#[test]
fn limits_of_the_server_are_kept() {
    let server = start(MODERN);
    let folder = tempfile::tempdir().unwrap();
    // This server names no maxWriteBatchSize, so it is one that takes 1,000.
    let code = bench(&server, "", folder.path(), &["--batch", "1001"]);
    assert_eq!(code, ExitCode::FAILURE);
    assert!(server.seen.lock().unwrap().ids.is_empty());
}

#[test]
fn several_servers_take_turns_and_an_error_ends_only_its_own() {
    let bad = start(Version {
        fails_from: 600,
        ..MODERN
    });
    let good = start(MODERN);
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("mongodb://127.0.0.1:{}", good.port);
    let more = ["--uri", &uri, "--turns", "5"];
    assert_eq!(bench(&bad, "", folder.path(), &more), ExitCode::FAILURE);
    let (first, second) = ("MongoDB 9.9.9 #1", "MongoDB 9.9.9 #2");
    // Its second turn was the first one to fail.
    assert_eq!(figure(folder.path(), first, "documents"), 500.0);
    assert!(ending(folder.path(), first).contains("E11000"));
    assert_eq!(figure(folder.path(), second, "documents"), 2500.0);
    assert_eq!(ending(folder.path(), second), "complete");
    assert_eq!(good.seen.lock().unwrap().ids.len(), 2500);
    let html = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(html.contains("times better than MongoDB 9.9.9 #2"));
    let trace = std::fs::read_to_string(folder.path().join("trace.csv")).unwrap();
    assert!(trace.contains(&format!("insert,{second},")), "{trace}");
}

#[test]
fn connection_strings_of_unknown_kinds_are_refused() {
    let server = start(MODERN);
    let folder = tempfile::tempdir().unwrap();
    let more = ["--uri", "mysql://127.0.0.1/"];
    assert_eq!(bench(&server, "", folder.path(), &more), ExitCode::FAILURE);
    assert!(server.seen.lock().unwrap().ids.is_empty());
}

#[test]
fn a_server_whose_time_is_up_leaves_what_it_did() {
    let server = start(MODERN);
    let folder = tempfile::tempdir().unwrap();
    let more = ["--minutes", "0.00001"];
    assert_eq!(bench(&server, "", folder.path(), &more), ExitCode::SUCCESS);
    assert_eq!(ending(folder.path(), NAME), "ended by --minutes");
    let done = figure(folder.path(), NAME, "documents");
    assert!(done < 2500.0, "{done}");
    assert_eq!(server.seen.lock().unwrap().ids.len() as f64, done);
}
