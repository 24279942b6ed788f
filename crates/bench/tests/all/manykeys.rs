//! Runs `frond bench manykeys` against servers of every version, simulated by a small server that keeps the
//! documents and changes them in place.

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
use frond_bson::{Doc, DocBuf, OwnedValue, Value, doc};
use frond_wire::{Flags, Header, MAX_MESSAGE_BYTES, OpCode, Request};
use store::{command_of, listen};

/// Faults of a fake server.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// One of this many increments is lost.
    Loses(u32),
    /// Updates say that they changed nothing.
    ChangesNothing,
}

#[derive(Clone, Copy)]
struct Version {
    /// `None` leaves the field out, as servers before 2.6 did.
    wire_version: Option<i32>,
    flaw: Flaw,
}

const MODERN: Version = Version {
    wire_version: Some(21),
    flaw: Flaw::None,
};

/// Name of a fake server that does not identify itself.
const NAME: &str = "unknown";

/// Documents of a fake server, and the requests it has seen.
#[derive(Default)]
struct State {
    /// By collection name and in the order of insertion.
    documents: Vec<(String, DocBuf)>,
    indexes: Vec<String>,
    opcodes: HashSet<i32>,
    updates: u32,
    increments: u32,
    journaled: u32,
}

fn start(version: Version) -> (u16, Arc<Mutex<State>>) {
    let state = Arc::new(Mutex::new(State::default()));
    let shared = Arc::clone(&state);
    let port = listen(move |socket| serve(socket, version, &shared));
    (port, state)
}

fn serve(mut socket: TcpStream, version: Version, state: &Mutex<State>) {
    while let Ok(Some(message)) = frond_wire::read_message(&mut socket, MAX_MESSAGE_BYTES) {
        let header = Header::parse(&message).unwrap();
        let mut state = state.lock().unwrap();
        state.opcodes.insert(header.opcode);
        let id = header.request_id;
        let (_, request) = Request::parse(&message).unwrap();
        let reply = match request {
            Request::Msg(msg) => {
                assert!(version.wire_version >= Some(6), "OP_MSG to an old server");
                let flags = msg.flags;
                let command = command_of(msg);
                let reply = answer(&command, version, &mut state);
                if flags.has(Flags::MORE_TO_COME) {
                    continue;
                }
                frond_wire::msg(1, id, Flags::NONE, reply.as_bytes())
            }
            Request::Query(query) if query.namespace.ends_with(".$cmd") => {
                let reply = answer(Doc::validate(query.query).unwrap(), version, &mut state);
                frond_wire::op_reply(1, id, 0, 0, 0, [reply.as_bytes()])
            }
            Request::Query(query) => {
                assert!(
                    version.wire_version < Some(4),
                    "there is a command for this"
                );
                let (_, name) = query.namespace.split_once('.').unwrap();
                let filter = Doc::validate(query.query).unwrap();
                let field = query.projection.map(|bytes| {
                    let projection = Doc::validate(bytes).unwrap();
                    projection.first().unwrap().0.to_owned()
                });
                let found = state.find(name, filter, field.as_deref());
                frond_wire::op_reply(1, id, 0, 0, 0, found.iter().map(|doc| doc.as_bytes()))
            }
            Request::Insert(insert) => {
                let (_, name) = insert.namespace.split_once('.').unwrap();
                for bytes in insert.documents {
                    state.insert(name, Doc::validate(bytes).unwrap());
                }
                continue;
            }
            Request::Update(update) => {
                let (_, name) = update.namespace.split_once('.').unwrap();
                let filter = Doc::validate(update.filter).unwrap();
                state.update(name, filter, Doc::validate(update.update).unwrap(), version);
                continue;
            }
            other => unreachable!("{other:?}"),
        };
        // The other side may be gone after an error.
        let _ = socket.write_all(&reply);
    }
}

impl State {
    fn insert(&mut self, name: &str, document: &Doc) {
        if name == "system.indexes" {
            let index = document.get_str("name").unwrap();
            self.indexes.push(index.to_owned());
        } else {
            self.documents.push((name.to_owned(), document.to_owned()));
        }
    }

    fn find(&self, name: &str, filter: &Doc, field: Option<&str>) -> Option<DocBuf> {
        let (_, document) = self.documents.iter().find(|(collection, document)| {
            collection == name && filter.iter().all(|(k, v)| document.get(k) == Some(v))
        })?;
        let Some(field) = field else {
            return Some(document.clone());
        };
        // One path, wrapped as often as it has dots.
        let mut inner = DocBuf::new();
        let mut names: Vec<&str> = field.split('.').collect();
        inner.push(names.pop().unwrap(), document.path(field).unwrap());
        for name in names.into_iter().rev() {
            inner = inner.into_field(name);
        }
        Some(inner)
    }

    /// Changes the first document that matches; whether there was one.
    fn update(&mut self, name: &str, filter: &Doc, update: &Doc, version: Version) -> bool {
        self.updates += 1;
        let found = self.documents.iter_mut().find(|(collection, document)| {
            collection == name && filter.iter().all(|(k, v)| document.get(k) == Some(v))
        });
        let Some((_, document)) = found else {
            return false;
        };
        let mut changed = document.clone();
        for (path, value) in update.get_doc("$set").unwrap() {
            changed = with(&changed, path, &value.to_owned());
        }
        for (path, by) in update.get_doc("$inc").unwrap() {
            self.increments += 1;
            if matches!(version.flaw, Flaw::Loses(one_in) if self.increments.is_multiple_of(one_in))
            {
                continue;
            }
            let before = document.path(path).unwrap().as_i64_lossless().unwrap();
            let after = before + by.as_i64_lossless().unwrap();
            changed = with(&changed, path, &Value::Int64(after).to_owned());
        }
        *document = changed;
        true
    }
}

/// A copy with another value at a path that is there.
fn with(document: &Doc, path: &str, value: &OwnedValue) -> DocBuf {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let mut out = DocBuf::new();
    for (name, old) in document.iter() {
        match old {
            _ if name != first => out.push(name, old),
            Value::Document(inner) if !rest.is_empty() => out.push(name, &with(inner, rest, value)),
            _ => out.push(name, value.as_value()),
        }
    }
    out
}

fn answer(command: &Doc, version: Version, state: &mut State) -> DocBuf {
    let (name, target) = command.iter().next().unwrap();
    let collection = target.as_str().unwrap_or_default();
    let journaled = command
        .get_doc("writeConcern")
        .is_some_and(|concern| concern.get_bool("j") == Some(true));
    state.journaled += u32::from(journaled);
    let elements = |field: &str| -> Vec<DocBuf> {
        let array = command.get_array(field).unwrap();
        array
            .values()
            .map(|v| v.as_doc().unwrap().to_owned())
            .collect()
    };
    match name {
        "isMaster" | "hello" => {
            let mut reply = doc! { "ismaster": true, "maxBsonObjectSize": 16_777_216 };
            if let Some(version) = version.wire_version {
                reply.push("maxWireVersion", version);
            }
            reply.push("ok", 1.0);
            reply
        }
        "count" => {
            let count = state
                .documents
                .iter()
                .filter(|(name, _)| name == collection);
            doc! { "n": count.count() as i32, "ok": 1.0 }
        }
        "createIndexes" => {
            for index in elements("indexes") {
                state
                    .indexes
                    .push(index.get_str("name").unwrap().to_owned());
            }
            doc! { "ok": 1.0 }
        }
        "insert" => {
            let documents = elements("documents");
            for document in &documents {
                state.insert(collection, document);
            }
            doc! { "n": documents.len() as i32, "ok": 1.0 }
        }
        "update" => {
            let updates = elements("updates");
            assert_eq!(updates.len(), 1);
            let (filter, change) = (updates[0].get_doc("q"), updates[0].get_doc("u"));
            let hit = state.update(collection, filter.unwrap(), change.unwrap(), version);
            let modified = hit && version.flaw != Flaw::ChangesNothing;
            doc! { "n": i32::from(hit), "nModified": i32::from(modified), "ok": 1.0 }
        }
        "find" => {
            let projection = command.get_doc("projection");
            let field = projection.map(|p| p.first().unwrap().0.to_owned());
            let filter = command.get_doc("filter").unwrap();
            let found = state.find(collection, filter, field.as_deref());
            let mut reply = DocBuf::new();
            reply.push_doc("cursor", |cursor| {
                cursor.push_array("firstBatch", |batch| {
                    if let Some(found) = &found {
                        batch.push(found);
                    }
                });
            });
            reply.push("ok", 1.0);
            reply
        }
        "getlasterror" => doc! { "ok": 1.0, "err": Value::Null, "n": 1 },
        "ping" | "serverStatus" | "fsync" => doc! { "ok": 1.0 },
        _ => doc! { "ok": 0.0, "errmsg": "no such command", "code": 59 },
    }
}

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Runs the workload: 7 documents of 30 keys, two rounds of 20 updates.
fn bench(ports: &[u16], folder: &Path, more: &[&str]) -> ExitCode {
    let uris: Vec<String> = ports
        .iter()
        .map(|port| format!("mongodb://127.0.0.1:{port}/test"))
        .collect();
    let mut args = vec!["bench", "manykeys", "--quiet", "--out"];
    args.push(folder.to_str().unwrap());
    for uri in &uris {
        args.extend(["--uri", uri]);
    }
    args.extend(["--documents", "7", "--keys", "30", "--updates", "20"]);
    args.extend(["--rounds", "2", "--reads", "3"]);
    if !more.contains(&"--verify") {
        args.extend(["--verify", "all"]);
    }
    args.extend(more);
    run(Cli::parse_from(args).command)
}

/// A report on the workload.
struct Report(DocBuf);

impl Report {
    fn read(folder: &Path) -> Report {
        let text = std::fs::read_to_string(folder.join("summary.json")).unwrap();
        Report(frond_bson::extjson::parse(&text).unwrap())
    }

    fn part(&self, name: &str) -> &Doc {
        let workloads = self.0.get_doc("workloads").unwrap();
        let workload = workloads.get_doc("manykeys").unwrap();
        workload.get_doc(name).unwrap()
    }

    fn ended(&self, server: &str) -> &str {
        self.part("ended").get_str(server).unwrap()
    }

    /// A server's figure; `None` if it has none.
    fn figure(&self, name: &str, server: &str) -> Option<f64> {
        let figure = self.part("figures").get_doc(name);
        let figure = figure.unwrap_or_else(|| panic!("no {name}"));
        figure.get(server).unwrap().as_f64()
    }
}

#[test]
fn servers_of_every_age_are_updated() {
    let (insert, update) = (OpCode::Insert as i32, OpCode::Update as i32);
    let (query, msg) = (OpCode::Query as i32, OpCode::Msg as i32);
    for (wire_version, concern, opcodes) in [
        (None, "both", vec![query, insert, update]),
        (Some(3), "1", vec![query]),
        (Some(3), "0", vec![query, update]),
        (Some(5), "both", vec![query, update]),
        (Some(21), "both", vec![query, msg]),
    ] {
        let flaw = Flaw::None;
        let (port, state) = start(Version { wire_version, flaw });
        let folder = tempfile::tempdir().unwrap();
        let more = ["--write-concern", concern, "--connections", "2"];
        let code = bench(&[port], folder.path(), &more);
        let case = format!("wire version {wire_version:?}, w: {concern}");
        assert_eq!(code, ExitCode::SUCCESS, "{case}");
        let state = state.lock().unwrap();
        assert_eq!(state.documents.len(), 14, "{case}");
        let concerns = if concern == "both" { 2 } else { 1 };
        assert_eq!(state.updates, concerns * 2 * 40, "{case}");
        let index = "appver_1_deploytype_1_g_1_guid_1_timeslice_1";
        assert_eq!(state.indexes, [index, index], "{case}");
        assert_eq!(state.opcodes, opcodes.into_iter().collect(), "{case}");
        let report = Report::read(folder.path());
        assert_eq!(report.ended(NAME), "complete", "{case}");
        for schema in ["plain", "bucketed"] {
            let compared = format!("{schema}: documents compared, all right");
            assert_eq!(report.figure(&compared, NAME), Some(7.0), "{case}");
            for w in ["0", "1"] {
                if concern != "both" && concern != w {
                    continue;
                }
                let of = format!("{schema}, w: {w}");
                assert!(report.figure(&of, NAME) > Some(0.0), "{case}");
                let updates = report.figure(&format!("{of}: updates"), NAME);
                assert_eq!(updates, Some(40.0), "{case}");
                // This server counts no bytes, so the report has none.
                let bytes = report.figure(&format!("{of}: log bytes an update"), NAME);
                assert_eq!(bytes, None, "{case}");
            }
        }
    }
}

#[test]
fn a_run_leaves_its_files() {
    let (port, _) = start(MODERN);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(bench(&[port], folder.path(), &[]), ExitCode::SUCCESS);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    // Two schemas, two write concerns, two rounds of each.
    assert_eq!(read("rounds.csv").lines().count(), 1 + 8);
    assert!(read("statistics.csv").lines().count() > 1);
    let trace = read("trace.csv");
    for name in ["manykeys plain load", "manykeys bucketed w:1"] {
        let start = format!("{name},{NAME},");
        assert!(trace.lines().any(|line| line.starts_with(&start)), "{name}");
    }
    for title in ["Updates: plain, w: 0", "Updates: bucketed, w: 1"] {
        assert!(read("manykeys.svg").contains(title), "{title}");
        assert!(read("report.html").contains(title), "{title}");
    }
    assert!(read("results.csv").contains("manykeys,unknown,\"plain, w: 1: latency p50\",ms,"));
    assert!(read("summary.md").contains("# W3: documents with very many keys"));
}

#[test]
fn journal_and_no_index_are_passed_on() {
    let (port, state) = start(MODERN);
    let folder = tempfile::tempdir().unwrap();
    let more = [
        "--journal",
        "--no-index",
        "--schema",
        "plain",
        "--batch",
        "5",
    ];
    assert_eq!(bench(&[port], folder.path(), &more), ExitCode::SUCCESS);
    let state = state.lock().unwrap();
    // Two inserts, and the updates that are answered.
    assert_eq!(state.journaled, 2 + 40);
    assert!(state.indexes.is_empty());
}

#[test]
fn wrong_results_are_noticed() {
    for (flaw, concern, part) in [
        (Flaw::Loses(50), "0", "instead of"),
        (Flaw::Loses(50), "1", "instead of"),
        (Flaw::Loses(6), "0", "stats.events"),
        (Flaw::ChangesNothing, "1", "nModified: Some(0)"),
    ] {
        let (port, _) = start(Version { flaw, ..MODERN });
        let folder = tempfile::tempdir().unwrap();
        let more = ["--write-concern", concern, "--schema", "plain"];
        let code = bench(&[port], folder.path(), &more);
        assert_eq!(code, ExitCode::FAILURE, "{concern}");
        let report = Report::read(folder.path());
        let ending = report.ended(NAME);
        assert!(ending.contains(part), "{ending}");
    }
}

#[test]
fn a_collection_that_holds_documents_is_not_touched_unasked() {
    let (port, state) = start(MODERN);
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert_eq!(bench(&[port], first.path(), &[]), ExitCode::SUCCESS);
    let updates = state.lock().unwrap().updates;
    assert_eq!(bench(&[port], second.path(), &[]), ExitCode::FAILURE);
    let state = state.lock().unwrap();
    assert_eq!((state.documents.len(), state.updates), (14, updates));
}

#[test]
fn servers_take_turns_by_rounds_and_each_is_compared_with_its_own_model() {
    let (good, good_state) = start(MODERN);
    let (bad, bad_state) = start(Version {
        flaw: Flaw::Loses(50),
        ..MODERN
    });
    let folder = tempfile::tempdir().unwrap();
    let more = ["--null", "--schema", "plain", "--connections", "3"];
    assert_eq!(bench(&[good, bad], folder.path(), &more), ExitCode::FAILURE);
    let report = Report::read(folder.path());
    let (first, second, null) = ("unknown #1", "unknown #2", "null server");
    assert_eq!(report.ended(first), "complete");
    assert!(report.ended(second).contains("wrong result"));
    // It stores nothing, so there is nothing to compare.
    assert_eq!(report.ended(null), "complete");
    let compared = "plain: documents compared, all right";
    assert_eq!(report.figure(compared, first), Some(7.0));
    assert_eq!(report.figure(compared, second), None);
    assert_eq!(report.figure(compared, null), None);
    assert!(report.figure("plain, w: 1", null) > Some(0.0));
    for state in [good_state, bad_state] {
        assert_eq!(state.lock().unwrap().updates, 2 * 40);
    }
    let trace = std::fs::read_to_string(folder.path().join("trace.csv")).unwrap();
    let order: Vec<&str> = trace
        .lines()
        .filter(|line| line.starts_with("manykeys plain w:1,"))
        .filter_map(|line| line.split(',').nth(1))
        .collect();
    assert_eq!(order, [first, second, null, first, second, null]);
    for n in 1..=3 {
        assert!(folder.path().join(format!("statistics-{n}.csv")).exists());
    }
    let summary = std::fs::read_to_string(folder.path().join("summary.md")).unwrap();
    assert!(summary.contains("| null server | it stores nothing |"));
}

#[test]
fn a_server_without_time_is_updated_in_part_and_still_compared() {
    let (port, state) = start(MODERN);
    let folder = tempfile::tempdir().unwrap();
    // Too many updates for the time: each kind gets its share, and the model knows which were done.
    let more = [
        "--minutes",
        "0.01",
        "--updates",
        "60000",
        "--rounds",
        "1",
        "--schema",
        "plain",
    ];
    let mut args = vec!["bench", "manykeys", "--quiet", "--documents", "7"];
    let uri = format!("mongodb://127.0.0.1:{port}/test");
    args.extend(["--uri", &uri, "--out", folder.path().to_str().unwrap()]);
    args.extend(["--verify", "all", "--keys", "30"]);
    args.extend(more);
    assert_eq!(run(Cli::parse_from(args).command), ExitCode::SUCCESS);
    let report = Report::read(folder.path());
    assert_eq!(report.ended(NAME), "ended by --minutes");
    let compared = "plain: documents compared, all right";
    assert_eq!(report.figure(compared, NAME), Some(7.0));
    let mut sum = 0.0;
    for w in ["0", "1"] {
        let updates = report.figure(&format!("plain, w: {w}: updates"), NAME);
        assert!(updates > Some(0.0) && updates < Some(6e4), "{updates:?}");
        sum += updates.unwrap();
    }
    assert_eq!(f64::from(state.lock().unwrap().updates), sum);
}
