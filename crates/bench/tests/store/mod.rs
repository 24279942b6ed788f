//! A small server for tests: keeps documents, finds and changes them, and answers as servers of its
//! version did.

#![allow(clippy::unwrap_used, dead_code)]

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;

use clap::Parser;
use frond_bench::{Command, run};
use frond_bson::{Doc, DocBuf, Value, compare, doc};
use frond_wire::{Flags, MAX_MESSAGE_BYTES, Msg, OpCode, Request};

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
}

/// Behaviour of a fake server.
#[derive(Clone, Copy, Default)]
pub struct Version {
    /// `None` leaves the field out, as servers before 2.6 did.
    pub wire_version: Option<i32>,
    /// Documents in a batch of a cursor.
    pub batch: usize,
    pub toku: bool,
    /// Takes documents without a look whether their `_id` is there, which takes time.
    pub unchecked_ids: bool,
    pub flaw: Flaw,
}

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
    /// Open ones, with the documents that they still have.
    pub cursors: BTreeMap<i64, Vec<DocBuf>>,
    inserts: usize,
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
            let id = document.get("_id");
            if !version.unchecked_ids && held.iter().any(|other| other.get("_id") == id) {
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
    fn update(&mut self, name: &str, filter: &Doc, update: &Doc) -> i32 {
        let held = self.collections.entry(name.to_owned()).or_default();
        let Some(document) = held.iter_mut().find(|doc| matches(doc, filter)) else {
            return 0;
        };
        let mut changed = DocBuf::new();
        for (field, old) in document.iter() {
            let inc = update.get_doc("$inc").and_then(|inc| inc.get_i32(field));
            match update.get_doc("$set").and_then(|set| set.get(field)) {
                Some(new) => changed.push(field, new),
                None => match inc {
                    Some(by) => changed.push(field, document.get_i32(field).unwrap() + by),
                    None => changed.push(field, old),
                },
            }
        }
        *document = changed;
        1
    }

    fn delete(&mut self, name: &str, filter: &Doc) -> i32 {
        let held = self.collections.entry(name.to_owned()).or_default();
        match held.iter().position(|doc| matches(doc, filter)) {
            Some(at) => {
                held.remove(at);
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

fn matches(document: &Doc, filter: &Doc) -> bool {
    filter.iter().all(|(field, wanted)| {
        let Some(value) = document.get(field) else {
            return false;
        };
        let Value::Document(range) = wanted else {
            return value == wanted;
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
    let only = |document: DocBuf| {
        let mut out = DocBuf::new();
        out.push(field, document.get(field).unwrap());
        out
    };
    documents.into_iter().map(only).collect()
}

/// Starts a server. Its threads end with the test's process.
pub fn start(version: Version) -> (u16, Arc<Mutex<State>>) {
    let state = Arc::new(Mutex::new(State::default()));
    let shared = Arc::clone(&state);
    let port = listen(move |socket| serve(socket, version, &shared));
    (port, state)
}

/// Listens on a free port, which is returned, and serves each connection on a thread of its own. The
/// threads end with the test's process.
pub fn listen(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let serve = serve.clone();
            thread::spawn(move || serve(socket.unwrap()));
        }
    });
    port
}

/// The command of an OP_MSG, its document sequences as arrays.
pub fn command_of(msg: Msg<'_>) -> DocBuf {
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

fn serve(mut socket: TcpStream, version: Version, state: &Mutex<State>) {
    // `getLastError` reports the last write of this connection.
    let mut last = doc! { "ok": 1.0, "err": Value::Null, "n": 0 };
    while let Ok(Some(message)) = frond_wire::read_message(&mut socket, MAX_MESSAGE_BYTES) {
        let (header, request) = Request::parse(&message).unwrap();
        let mut state = state.lock().unwrap();
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
                let (batch, cursor) = state.batch(found, most);
                let batch = batch.iter().map(|document| document.as_bytes());
                frond_wire::op_reply(1, id, 0, cursor, 0, batch)
            }
            Request::GetMore(more) => {
                let rest = state.cursors.remove(&more.cursor_id).unwrap();
                let most = match more.count {
                    0 => version.batch,
                    count => version.batch.min(count.unsigned_abs() as usize),
                };
                let (batch, cursor) = state.batch(rest, most);
                let batch = batch.iter().map(|document| document.as_bytes());
                frond_wire::op_reply(1, id, 0, cursor, 0, batch)
            }
            Request::KillCursors(kill) => {
                for id in kill.ids() {
                    assert!(state.cursors.remove(&id).is_some(), "a cursor that is gone");
                }
                continue;
            }
            Request::Insert(insert) => {
                let name = collection(insert.namespace);
                let documents: Vec<DocBuf> = insert
                    .documents
                    .map(|bytes| Doc::validate(bytes).unwrap().to_owned())
                    .collect();
                last = match state.insert(&name, &documents, version) {
                    None => doc! { "ok": 1.0, "err": Value::Null, "n": 0 },
                    Some((_, text)) => {
                        doc! { "ok": 1.0, "err": text.as_str(), "code": 11000, "n": 0 }
                    }
                };
                continue;
            }
            Request::Update(update) => {
                let filter = Doc::validate(update.filter).unwrap();
                let change = Doc::validate(update.update).unwrap();
                let n = state.update(&collection(update.namespace), filter, change);
                last = doc! { "ok": 1.0, "err": Value::Null, "n": n };
                continue;
            }
            Request::Delete(delete) => {
                assert_eq!(delete.flags, frond_wire::Delete::SINGLE_REMOVE);
                let filter = Doc::validate(delete.filter).unwrap();
                let n = state.delete(&collection(delete.namespace), filter);
                last = doc! { "ok": 1.0, "err": Value::Null, "n": n };
                continue;
            }
        };
        drop(state);
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
    if matches!(name, "insert" | "update" | "delete" | "createIndexes") {
        assert!(
            version.wire_version >= Some(2),
            "a command that did not exist"
        );
    }
    if matches!(name, "find" | "getMore") {
        assert!(
            version.wire_version >= Some(4),
            "a command that did not exist"
        );
    }
    let concern = command.get_doc("writeConcern");
    state.journaled += usize::from(concern.is_some_and(|c| c.get_bool("j") == Some(true)));
    let list = |field: &str| -> Vec<DocBuf> {
        let values = command.get_array(field).unwrap().values();
        values
            .map(|value| value.as_doc().unwrap().to_owned())
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
            match state.collections.remove(collection) {
                Some(_) => doc! { "ok": 1.0 },
                None => doc! { "ok": 0.0, "errmsg": "ns not found", "code": 26 },
            }
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
            let updates = list("updates");
            assert_eq!(updates.len(), 1);
            let (q, u) = (updates[0].get_doc("q"), updates[0].get_doc("u"));
            let n = state.update(collection, q.unwrap(), u.unwrap());
            doc! { "n": n, "nModified": n, "ok": 1.0 }
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

/// Runs a workload against servers at these ports.
pub fn bench(workload: &str, ports: &[u16], folder: &Path, more: &[&str]) -> ExitCode {
    let mut args = vec![
        "bench".to_owned(),
        workload.to_owned(),
        "--quiet".to_owned(),
    ];
    for port in ports {
        args.push(format!("--uri=mongodb://127.0.0.1:{port}/test"));
    }
    args.push(format!("--out={}", folder.to_str().unwrap()));
    args.extend(["--compaction-wait=0", "--report-every=0.05"].map(str::to_owned));
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    run(Cli::parse_from(args).command)
}

/// The part of a workload in `summary.json`.
pub fn summary(folder: &Path, workload: &str) -> DocBuf {
    let text = std::fs::read_to_string(folder.join("summary.json")).unwrap();
    let summary = frond_bson::extjson::parse(&text).unwrap();
    let workloads = summary.get_doc("workloads").unwrap();
    workloads.get_doc(workload).unwrap().to_owned()
}

/// A figure of the only or first server.
pub fn figure(summary: &Doc, server: &str, name: &str) -> Option<f64> {
    let figure = summary.get_doc("figures").unwrap().get_doc(name);
    figure
        .unwrap_or_else(|| panic!("no figure {name:?}"))
        .get(server)?
        .as_f64()
}

/// The ending of the workload on a server.
pub fn ending(summary: &Doc, server: &str) -> String {
    let endings = summary.get_doc("ended").unwrap();
    endings.get_str(server).unwrap().to_owned()
}

/// The numbers of opcodes.
pub fn opcodes(codes: &[OpCode]) -> HashSet<i32> {
    codes.iter().map(|code| *code as i32).collect()
}
