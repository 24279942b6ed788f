//! A small server for tests: keeps documents, finds and changes them, and answers as servers of its
//! version did.

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;

use clap::Parser;
use frond_bench::{Command, run};
use frond_bson::{Doc, DocBuf, OwnedValue, Value, compare, doc};
use frond_wire::{Compressor, Flags, Header, MAX_MESSAGE_BYTES, Msg, OpCode, Request};

/// Faults of a fake server.
#[derive(Clone, Copy, Default, PartialEq)]
pub enum Flaw {
    #[default]
    None,
    /// Ranges lack a document.
    Skips,
    /// Answers are not sorted.
    Unsorted,
    /// Every n-th insert of documents loses one and says nothing.
    Loses(usize),
    /// Every insert of a single document says that its `_id` is taken.
    Refuses,
    /// Documents of a collection are refused from this number on.
    FailsFrom(usize),
    /// One of this many increments is lost.
    LosesIncrements(usize),
    /// Updates say that they changed nothing.
    ChangesNothing,
}

/// Behaviour of a fake server.
#[derive(Clone, Copy)]
pub struct Version {
    /// `None` leaves the field out, as servers before 2.6 did.
    pub wire_version: Option<i32>,
    /// Documents in a batch of a cursor.
    pub batch: usize,
    pub toku: bool,
    pub flaw: Flaw,
}

pub const MODERN: Version = Version::wire(Some(21));

impl Version {
    pub const fn wire(wire_version: Option<i32>) -> Version {
        Version {
            wire_version,
            batch: 101,
            toku: false,
            flaw: Flaw::None,
        }
    }
}

/// The name of a fake server in reports.
pub const NAME: &str = "MongoDB 9.9.9";

/// Documents of a fake server, and the requests it has seen.
#[derive(Default)]
pub struct State {
    pub collections: BTreeMap<String, Vec<DocBuf>>,
    pub indexes: Vec<(String, DocBuf)>,
    /// `create` commands.
    pub creates: Vec<DocBuf>,
    pub commands: BTreeMap<String, usize>,
    pub opcodes: HashSet<i32>,
    pub dropped: HashSet<String>,
    pub journaled: usize,
    pub unanswered: usize,
    /// Updates by commands and by opcodes.
    pub updates: usize,
    pub compressed: bool,
    /// Open ones, with the documents that they still have.
    pub cursors: BTreeMap<i64, Vec<DocBuf>>,
    inserts: usize,
    increments: usize,
    ids: HashSet<(String, Vec<u8>)>,
}

impl State {
    pub fn documents(&self, collection: &str) -> &[DocBuf] {
        self.collections.get(collection).map_or(&[], Vec::as_slice)
    }

    pub fn count(&self, command: &str) -> usize {
        self.commands.get(command).copied().unwrap_or(0)
    }

    /// Takes documents; an error's code and text if one is there already.
    fn insert(
        &mut self,
        name: &str,
        documents: &[DocBuf],
        version: Version,
    ) -> Option<(usize, String)> {
        if name == "system.indexes" {
            for index in documents {
                let namespace = index.get_str("ns").unwrap();
                let (_, collection) = namespace.split_once('.').unwrap();
                self.indexes.push((collection.to_owned(), index.clone()));
            }
            return None;
        }
        self.inserts += 1;
        if version.flaw == Flaw::Refuses && documents.len() == 1 {
            return Some((0, "E11000 duplicate key".to_owned()));
        }
        let loses = matches!(version.flaw, Flaw::Loses(n) if self.inserts.is_multiple_of(n));
        let held = self.collections.entry(name.to_owned()).or_default();
        for (index, document) in documents.iter().enumerate() {
            let fails = matches!(version.flaw, Flaw::FailsFrom(n) if held.len() >= n);
            if fails || !self.ids.insert((name.to_owned(), id_of(document))) {
                return Some((index, "E11000 duplicate key".to_owned()));
            }
            if !loses || index > 0 {
                held.push(document.clone());
            }
        }
        None
    }

    fn find(&self, name: &str, filter: &Doc) -> Vec<DocBuf> {
        let held = self.documents(name).iter();
        let mut found: Vec<DocBuf> = held.filter(|doc| matches(doc, filter)).cloned().collect();
        found.sort_by(|a, b| compare(&a.get("_id").unwrap(), &b.get("_id").unwrap()));
        found
    }

    /// Changes the first document that matches; how many there were.
    fn update(&mut self, name: &str, filter: &Doc, update: &Doc, version: Version) -> i32 {
        self.updates += 1;
        let held = self.collections.entry(name.to_owned()).or_default();
        let Some(document) = held.iter_mut().find(|doc| matches(doc, filter)) else {
            return 0;
        };
        let mut changed = document.clone();
        for (path, value) in update.get_doc("$set").unwrap_or(Doc::empty()) {
            changed = with(&changed, path, &value.to_owned());
        }
        for (path, by) in update.get_doc("$inc").unwrap_or(Doc::empty()) {
            self.increments += 1;
            if matches!(version.flaw, Flaw::LosesIncrements(n) if self.increments.is_multiple_of(n))
            {
                continue;
            }
            let sum = match (document.path(path).unwrap(), by) {
                (Value::Int32(now), Value::Int32(by)) => Value::Int32(now + by),
                (now, by) => {
                    Value::Int64(now.as_i64_lossless().unwrap() + by.as_i64_lossless().unwrap())
                }
            };
            changed = with(&changed, path, &sum.to_owned());
        }
        *document = changed;
        1
    }

    fn delete(&mut self, name: &str, filter: &Doc) -> i32 {
        let held = self.collections.entry(name.to_owned()).or_default();
        match held.iter().position(|doc| matches(doc, filter)) {
            Some(at) => {
                let gone = held.remove(at);
                self.ids.remove(&(name.to_owned(), id_of(&gone)));
                1
            }
            None => 0,
        }
    }

    /// The first batch of documents, and a cursor for the rest.
    fn batch(&mut self, mut documents: Vec<DocBuf>, most: usize) -> (Vec<DocBuf>, i64) {
        if documents.len() <= most {
            return (documents, 0);
        }
        let rest = documents.split_off(most);
        let id = 1 + self.cursors.keys().max().copied().unwrap_or(76);
        self.cursors.insert(id, rest);
        (documents, id)
    }
}

fn id_of(document: &Doc) -> Vec<u8> {
    document.get_raw("_id").unwrap().value_bytes().to_vec()
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

fn matches(document: &Doc, filter: &Doc) -> bool {
    filter.iter().all(|(field, wanted)| {
        let Some(value) = document.get(field) else {
            return false;
        };
        let range = match wanted {
            Value::Document(range)
                if range.first().is_some_and(|(name, _)| name.starts_with('$')) =>
            {
                range
            }
            _ => return value == wanted,
        };
        range.iter().all(|(operator, bound)| match operator {
            "$gte" => compare(&value, &bound).is_ge(),
            "$lte" => compare(&value, &bound).is_le(),
            "$lt" => compare(&value, &bound).is_lt(),
            other => unreachable!("{other}"),
        })
    })
}

/// Documents as a find returns them.
fn shape(
    mut documents: Vec<DocBuf>,
    sort: Option<&Doc>,
    projection: Option<&Doc>,
    version: Version,
) -> Vec<DocBuf> {
    if version.flaw == Flaw::Skips && documents.len() > 1 {
        documents.pop();
    }
    if let Some((field, _)) = sort.and_then(Doc::first)
        && version.flaw != Flaw::Unsorted
    {
        documents.sort_by(|a, b| compare(&a.get(field).unwrap(), &b.get(field).unwrap()));
    }
    let Some(projection) = projection else {
        return documents;
    };
    let mut wanted = projection.iter().filter(|(_, on)| on.truthy());
    let (field, _) = wanted.next().unwrap();
    // One path, wrapped as often as it has dots.
    let only = |document: DocBuf| {
        let mut names: Vec<&str> = field.split('.').collect();
        let mut out = DocBuf::new();
        out.push(names.pop().unwrap(), document.path(field).unwrap());
        names
            .into_iter()
            .rev()
            .fold(out, |out, name| out.into_field(name))
    };
    documents.into_iter().map(only).collect()
}

/// Starts a server. Its threads end with the test's process.
pub fn start(version: Version) -> (u16, Arc<Mutex<State>>) {
    let state = Arc::new(Mutex::new(State::default()));
    let shared = Arc::clone(&state);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let shared = Arc::clone(&shared);
            thread::spawn(move || serve(socket.unwrap(), version, &shared));
        }
    });
    (port, state)
}

/// The command of an OP_MSG, its document sequences as arrays.
fn command_of(msg: Msg<'_>) -> DocBuf {
    let mut command = Doc::validate(msg.body).unwrap().to_owned();
    for (name, documents) in msg.sequences {
        command.push_array(name, |array| {
            for document in documents {
                array.push(Doc::validate(document).unwrap());
            }
        });
    }
    command
}

fn validated(bytes: &[u8]) -> DocBuf {
    Doc::validate(bytes).unwrap().to_owned()
}

fn last_error(n: i32) -> DocBuf {
    doc! { "ok": 1.0, "err": Value::Null, "n": n }
}

/// Sends a batch of a cursor by an OP_REPLY.
fn op_reply(id: i32, (batch, cursor): (Vec<DocBuf>, i64)) -> Vec<u8> {
    let batch = batch.iter().map(|document| document.as_bytes());
    frond_wire::op_reply(1, id, 0, cursor, 0, batch)
}

fn serve(mut socket: TcpStream, version: Version, state: &Mutex<State>) {
    // `getLastError` reports the last write of this connection.
    let mut last = last_error(0);
    while let Ok(Some(mut message)) = frond_wire::read_message(&mut socket, MAX_MESSAGE_BYTES) {
        let compressed = Header::parse(&message).unwrap().op() == Ok(OpCode::Compressed);
        if compressed {
            message = frond_wire::decompress(&message, MAX_MESSAGE_BYTES)
                .unwrap()
                .0;
        }
        let (header, request) = Request::parse(&message).unwrap();
        let mut state = state.lock().unwrap();
        state.compressed |= compressed;
        state.opcodes.insert(header.opcode);
        let id = header.request_id;
        let collection = |namespace: &str| namespace.split_once('.').unwrap().1.to_owned();
        let reply = match request {
            Request::Msg(msg) => {
                assert!(version.wire_version >= Some(6), "OP_MSG to an old server");
                let flags = msg.flags;
                let command = command_of(msg);
                let reply = answer(&command, version, &mut state);
                if flags.has(Flags::MORE_TO_COME) {
                    state.unanswered += 1;
                    continue;
                }
                frond_wire::msg(1, id, Flags::NONE, reply.as_bytes())
            }
            Request::Query(query) if query.namespace.ends_with(".$cmd") => {
                let command = Doc::validate(query.query).unwrap();
                let reply = match command.first().unwrap().0 {
                    "getlasterror" => {
                        assert!(version.wire_version < Some(2), "there are write commands");
                        last.clone()
                    }
                    _ => answer(command, version, &mut state),
                };
                frond_wire::op_reply(1, id, 0, 0, 0, [reply.as_bytes()])
            }
            Request::Query(query) => {
                assert!(
                    version.wire_version < Some(4),
                    "there is a command for this"
                );
                let whole = Doc::validate(query.query).unwrap();
                let filter = whole.get_doc("$query").unwrap_or(whole);
                let projection = query.projection.map(|bytes| Doc::validate(bytes).unwrap());
                let found = state.find(&collection(query.namespace), filter);
                let mut found = shape(found, whole.get_doc("$orderby"), projection, version);
                if query.count == 1 || query.count < 0 {
                    found.truncate(query.count.unsigned_abs() as usize);
                }
                let most = match query.count {
                    0 | 1 => version.batch,
                    count => version.batch.min(count.unsigned_abs() as usize),
                };
                op_reply(id, state.batch(found, most))
            }
            Request::GetMore(more) => {
                let rest = state.cursors.remove(&more.cursor_id).unwrap();
                let most = match more.count {
                    0 => version.batch,
                    count => version.batch.min(count.unsigned_abs() as usize),
                };
                op_reply(id, state.batch(rest, most))
            }
            Request::KillCursors(kill) => {
                for id in kill.ids() {
                    assert!(state.cursors.remove(&id).is_some(), "a cursor that is gone");
                }
                continue;
            }
            Request::Insert(insert) => {
                let name = collection(insert.namespace);
                let documents: Vec<DocBuf> = insert.documents.map(validated).collect();
                last = match state.insert(&name, &documents, version) {
                    None => last_error(0),
                    Some((_, text)) => {
                        doc! { "ok": 1.0, "err": text.as_str(), "code": 11000, "n": 0 }
                    }
                };
                continue;
            }
            Request::Update(update) => {
                let (filter, change) = (validated(update.filter), validated(update.update));
                let name = collection(update.namespace);
                last = last_error(state.update(&name, &filter, &change, version));
                continue;
            }
            Request::Delete(delete) => {
                assert_eq!(delete.flags, frond_wire::Delete::SINGLE_REMOVE);
                let name = collection(delete.namespace);
                last = last_error(state.delete(&name, &validated(delete.filter)));
                continue;
            }
        };
        drop(state);
        let reply = if compressed {
            frond_wire::compress(&reply, Compressor::Snappy).unwrap()
        } else {
            reply
        };
        // The other side may be gone after an error.
        let _ = socket.write_all(&reply);
    }
}

/// A reply with the first or next batch of a cursor.
fn cursor(name: &str, batch: &[DocBuf], id: i64) -> DocBuf {
    let mut reply = DocBuf::new();
    reply.push_doc("cursor", |cursor| {
        cursor.push("id", id);
        cursor.push_array(name, |array| {
            batch.iter().for_each(|document| array.push(document))
        });
    });
    reply.push("ok", 1.0);
    reply
}

fn answer(command: &Doc, version: Version, state: &mut State) -> DocBuf {
    let (name, target) = command.first().unwrap();
    let collection = target.as_str().unwrap_or_default();
    *state.commands.entry(name.to_owned()).or_default() += 1;
    let since = match name {
        "insert" | "update" | "delete" | "createIndexes" => Some(2),
        "find" | "getMore" => Some(4),
        _ => None,
    };
    assert!(version.wire_version >= since, "{name} did not exist");
    let concern = command.get_doc("writeConcern").unwrap_or(command);
    state.journaled += usize::from(concern.get_bool("j") == Some(true));
    let list = |field: &str| -> Vec<DocBuf> {
        let values = command.get_array(field).unwrap().values();
        values
            .map(|value| value.as_doc().unwrap().to_owned())
            .collect()
    };
    match name {
        // Modern servers are asked by the new name only, and others know only the old one.
        "isMaster" | "hello" if (name == "hello") == (version.wire_version >= Some(6)) => {
            let mut reply = doc! { "ismaster": true, "maxBsonObjectSize": 16_777_216 };
            if let Some(version) = version.wire_version {
                reply.push("maxWireVersion", version);
            }
            reply.push_array("compression", |names| names.push("snappy"));
            reply.push("ok", 1.0);
            reply
        }
        "buildInfo" if version.toku => {
            doc! { "version": "2.4.10", "tokumxVersion": "2.0.1", "ok": 1.0 }
        }
        "buildInfo" => doc! { "version": "9.9.9", "ok": 1.0 },
        "create" => {
            state.creates.push(command.to_owned());
            doc! { "ok": 1.0 }
        }
        "createIndexes" => {
            for index in list("indexes") {
                state.indexes.push((collection.to_owned(), index));
            }
            doc! { "ok": 1.0 }
        }
        "drop" => {
            state.dropped.insert(collection.to_owned());
            state.ids.retain(|(of, _)| of != collection);
            match state.collections.remove(collection) {
                Some(_) => doc! { "ok": 1.0 },
                None => doc! { "ok": 0.0, "errmsg": "ns not found", "code": 26 },
            }
        }
        "count" if version.wire_version.is_none() && state.documents(collection).is_empty() => {
            doc! { "errmsg": "ns missing", "ok": 0.0 }
        }
        "count" => doc! { "n": state.documents(collection).len() as i32, "ok": 1.0 },
        "collStats" => {
            let documents = state.documents(collection);
            let size: usize = documents.iter().map(|doc| doc.as_bytes().len()).sum();
            let count = documents.len() as i32;
            doc! { "count": count, "size": size as i64, "storageSize": size as i64 / 2,
            "totalIndexSize": i64::from(count) * 10, "ok": 1.0 }
        }
        "insert" => {
            let documents = list("documents");
            match state.insert(collection, &documents, version) {
                None => doc! { "n": documents.len() as i32, "ok": 1.0 },
                Some((index, text)) => doc! {
                    "n": index as i32, "ok": 1.0,
                    "writeErrors": [{ "index": index as i32, "code": 11000, "errmsg": text.as_str() }],
                },
            }
        }
        "update" => {
            let mut n = 0;
            for update in list("updates") {
                let (q, u) = (update.get_doc("q").unwrap(), update.get_doc("u").unwrap());
                let mut found = state.update(collection, q, u, version);
                if found == 0 && update.get("upsert").is_some() {
                    let mut counter = q.to_owned();
                    counter.push_all(u.get_doc("$inc").unwrap());
                    assert!(state.insert(collection, &[counter], version).is_none());
                    found = 1;
                }
                n += found;
            }
            let modified = if version.flaw == Flaw::ChangesNothing {
                0
            } else {
                n
            };
            doc! { "n": n, "nModified": modified, "ok": 1.0 }
        }
        "delete" => {
            let deletes = list("deletes");
            assert_eq!((deletes.len(), deletes[0].get_i32("limit")), (1, Some(1)));
            let n = state.delete(collection, deletes[0].get_doc("q").unwrap());
            doc! { "n": n, "ok": 1.0 }
        }
        "find" => {
            let found = state.find(collection, command.get_doc("filter").unwrap());
            let (sort, projection) = (command.get_doc("sort"), command.get_doc("projection"));
            let mut found = shape(found, sort, projection, version);
            if let Some(limit) = command.get_i64("limit") {
                found.truncate(limit as usize);
            }
            let (batch, id) = state.batch(found, version.batch);
            cursor("firstBatch", &batch, id)
        }
        "getMore" => {
            let rest = state
                .cursors
                .remove(&target.as_i64_lossless().unwrap())
                .unwrap();
            let (batch, id) = state.batch(rest, version.batch);
            cursor("nextBatch", &batch, id)
        }
        "aggregate" => {
            let stages = list("pipeline");
            let last = stages.last().unwrap().get_doc("$group").unwrap();
            if last.contains_key("total") {
                let filter = stages[0].get_doc("$match").map(Doc::to_owned);
                let found = state.find(collection, &filter.unwrap_or_default());
                let found = shape(found, None, None, version);
                return cursor("firstBatch", &groups(&found), 0);
            }
            if last.contains_key("counters") {
                let counters = state.documents(collection);
                let sum: i64 = counters.iter().map(|doc| doc.get_i64("n").unwrap()).sum();
                let group =
                    doc! { "_id": Value::Null, "counters": counters.len() as i32, "sum": sum };
                return cursor("firstBatch", &[group], 0);
            }
            assert_eq!(stages.len(), 3);
            let found = state.find(collection, stages[0].get_doc("$match").unwrap());
            let found = shape(found, None, None, version);
            let sum: i32 = found.iter().map(|doc| doc.get_i32("k").unwrap()).sum();
            let group = doc! { "_id": Value::Null, "sum": sum };
            if command.contains_key("cursor") {
                assert!(
                    version.wire_version >= Some(1),
                    "an option that did not exist"
                );
                return cursor("firstBatch", &[group], 0);
            }
            assert!(
                version.wire_version.is_none(),
                "a newer server wants a cursor"
            );
            doc! { "result": [&group], "ok": 1.0 }
        }
        "distinct" => {
            let found = state.find(collection, command.get_doc("query").unwrap());
            let key = command.get_str("key").unwrap();
            let mut reply = DocBuf::new();
            reply.push_array("values", |values| {
                for document in shape(found, None, None, version) {
                    values.push(document.get(key).unwrap());
                }
            });
            reply.push("ok", 1.0);
            reply
        }
        "ping" | "serverStatus" | "fsync" => doc! { "ok": 1.0 },
        _ => doc! { "ok": 0.0, "errmsg": "no such command", "code": 59 },
    }
}

/// Documents and the sum of their `v` for each `k`.
fn groups(found: &[DocBuf]) -> Vec<DocBuf> {
    let mut groups = std::collections::BTreeMap::new();
    for doc in found {
        let (n, total) = groups.entry(doc.get_i32("k").unwrap()).or_insert((0, 0));
        *n += 1;
        *total += i64::from(doc.get_i32("v").unwrap());
    }
    let groups = groups.into_iter();
    groups
        .map(|(k, (n, total))| doc! { "_id": k, "n": n, "total": total })
        .collect()
}

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Runs a command of `frond bench`.
pub fn run_command(args: &[&str]) -> ExitCode {
    let args = ["bench"].iter().chain(args);
    run(Cli::parse_from(args).command)
}

/// The report of a run.
pub struct Report {
    folder: tempfile::TempDir,
    workload: String,
    pub code: ExitCode,
    pub servers: Vec<String>,
}

/// Runs a workload against servers at these ports, each of which may have options behind it.
pub fn bench(workload: &str, ports: &[u16], args: &[&str]) -> Report {
    let uris: Vec<String> = ports
        .iter()
        .map(|port| format!("--uri=mongodb://127.0.0.1:{port}/test"))
        .collect();
    let uris = uris.iter().map(String::as_str);
    bench_at(
        workload,
        &uris.chain(args.iter().copied()).collect::<Vec<_>>(),
    )
}

/// Runs a workload with these options, of which a later one wins.
pub fn bench_at(workload: &str, args: &[&str]) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let out = format!("--out={}", folder.path().to_str().unwrap());
    let mut all = vec![workload, "--quiet", &out, "--compaction-wait=0"];
    all.push("--report-every=0.05");
    all.extend(args);
    let code = run_command(&all);
    let mut report = Report {
        folder,
        workload: workload.to_owned(),
        code,
        servers: Vec::new(),
    };
    if report.path("summary.json").exists() {
        let ended = report.part("ended");
        report.servers = ended.iter().map(|(name, _)| name.to_owned()).collect();
    }
    report
}

impl Report {
    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn part(&self, name: &str) -> DocBuf {
        let summary = frond_bson::extjson::parse(&self.read("summary.json")).unwrap();
        let workloads = summary.get_doc("workloads").unwrap();
        let workload = workloads.get_doc(&self.workload).unwrap();
        workload.get_doc(name).unwrap().to_owned()
    }

    /// The ending of the workload on a server, in the order of the command line.
    pub fn ending(&self, server: usize) -> String {
        let ended = self.part("ended");
        ended.get_str(&self.servers[server]).unwrap().to_owned()
    }

    pub fn figure_names(&self) -> Vec<String> {
        let figures = self.part("figures");
        figures.iter().map(|(name, _)| name.to_owned()).collect()
    }

    /// A figure of a server; `None` if it has none.
    pub fn figure(&self, server: usize, name: &str) -> Option<f64> {
        let figures = self.part("figures");
        let figure = figures
            .get_doc(name)
            .unwrap_or_else(|| panic!("no figure {name:?}"));
        figure.get(&self.servers[server])?.as_f64()
    }

    /// Everything was done on all servers.
    #[track_caller]
    pub fn assert_complete(&self, case: &str) {
        assert_eq!(self.code, ExitCode::SUCCESS, "{case}");
        for server in 0..self.servers.len() {
            assert_eq!(self.ending(server), "complete", "{case}");
        }
    }

    /// The last server failed with such an error.
    #[track_caller]
    pub fn assert_failed(&self, part: &str) {
        assert_eq!(self.code, ExitCode::FAILURE, "{part}");
        let ending = self.ending(self.servers.len() - 1);
        assert!(ending.contains(part), "{ending} instead of {part}");
    }
}

/// The numbers of opcodes.
pub fn opcodes(codes: &[OpCode]) -> HashSet<i32> {
    codes.iter().map(|code| *code as i32).collect()
}
