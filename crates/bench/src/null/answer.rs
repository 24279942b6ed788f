//! Plausible answers to commands.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use frond_bson::{Doc, DocBuf, Value, doc, tag};
use frond_error::{Error, ErrorCode};
use frond_wire::{Compressor, DocIter, MAX_MESSAGE_BYTES};

use super::counts::{COLLECTIONS_MAX, Counts};
use super::documents::text;
use super::find::{Finds, Selection};
use super::{BUILD_INFO_FIELD, ENGINE, VERSION};

const BATCH_MAX: usize = 100_000;

/// The newest wire version spoken, that of MongoDB 7.0; the oldest is 0.
const WIRE_VERSION_MAX: i32 = 21;

/// Strings in the answer to `distinct`.
const DISTINCT: usize = 100;

/// A command as it came, its documents validated.
#[derive(Clone, Copy)]
pub struct Command<'a> {
    /// The database; `None` if the message names none.
    pub database: Option<&'a str>,
    pub body: &'a Doc,
    /// Document sequences of the message.
    pub sequences: &'a [(&'a str, DocIter<'a>)],
}

/// A command and its target, after its required parts were found.
#[derive(Clone, Copy)]
struct Target<'a> {
    name: &'a str,
    database: &'a str,
    collection: &'a str,
}

/// Result of the last legacy write, for `getLastError`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastWrite {
    /// Documents, 0 after an insert.
    pub n: u64,
    /// Whether it was an update.
    pub update: bool,
}

/// State of a connection that outlives one message.
pub struct Answers<'s> {
    counts: &'s Counts,
    connection: i32,
    finds: Finds,
    /// Small answers are built here.
    reply: DocBuf,
    /// The result of the last legacy write.
    pub last: LastWrite,
    /// Compressors that the client accepts.
    pub compressors: Vec<Compressor>,
}

impl<'s> Answers<'s> {
    pub fn new(counts: &'s Counts, connection: i32) -> Self {
        Answers {
            counts,
            connection,
            finds: Finds::default(),
            reply: DocBuf::new(),
            last: LastWrite::default(),
            compressors: Vec::new(),
        }
    }

    pub fn answer(&mut self, command: Command<'_>, out: &mut Vec<u8>) {
        let at = out.len();
        self.reply.clear();
        if let Err(error) = self.run(command, out) {
            out.truncate(at);
            self.reply.clear();
            self.reply.push("ok", 0.0);
            self.reply.push("errmsg", error.message());
            self.reply.push("code", error.code().code());
            self.reply.push("codeName", error.code().name().as_ref());
        }
        if out.len() == at {
            out.extend_from_slice(self.reply.as_bytes());
        }
    }

    /// Appends a large answer to `out`, or leaves a small one in `self.reply`.
    fn run(&mut self, command: Command<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let (name, value) = command.body.first().unwrap_or(("", Value::Null));
        let target = || target(command.database, name, value);
        match name {
            "insert" => return self.insert(target()?, command),
            "update" => return self.update(target()?, command),
            "delete" => return self.delete(target()?, command),
            "find" => return self.find(target()?, command.body, out),
            "aggregate" => return aggregate(command.database, name, value, out),
            "count" => {
                let n = self.count(target()?);
                push_count(&mut self.reply, "n", n);
            }
            "distinct" => {
                target()?;
                out.extend_from_slice(distinct().as_bytes());
                return Ok(());
            }
            "ping" | "fsync" | "endSessions" | "create" => {}
            "hello" | "isMaster" | "ismaster" => self.hello(name, command.body),
            "buildInfo" | "buildinfo" => self.reply.push_all(&build_info()),
            "serverStatus" => self.reply.push_all(&doc! {
                "process": "frond bench null", "version": VERSION,
                "storageEngine": { "name": ENGINE },
            }),
            "drop" => {
                let to = target()?;
                self.counts.take(to.database, to.collection, None);
            }
            "dropDatabase" => {
                let database = command.database.ok_or_else(no_database)?;
                self.counts.drop_database(database);
            }
            "createIndexes" => self.reply.push_all(&doc! {
                "numIndexesBefore": 1, "numIndexesAfter": 2, "createdCollectionAutomatically": false,
            }),
            "collStats" | "collstats" => self.coll_stats(target()?),
            "getMore" => {
                let collection = command.body.get_str("collection").unwrap_or_default();
                let database = command.database.ok_or_else(no_database)?;
                cursor(out, "nextBatch", (database, collection), |_| {});
            }
            "killCursors" => {
                for list in ["cursorsKilled", "cursorsNotFound", "cursorsAlive", "cursorsUnknown"] {
                    self.reply.push_array(list, |_| {});
                }
            }
            "getLastError" | "getlasterror" => {
                self.reply.push("connectionId", self.connection);
                if self.last.update {
                    self.reply.push("updatedExisting", true);
                }
                push_count(&mut self.reply, "n", self.last.n);
                self.reply.push("err", Value::Null);
            }
            _ => {
                let text = format!("no such command: '{name}'");
                return Err(Error::new(ErrorCode::CommandNotFound, text));
            }
        }
        self.reply.push("ok", 1.0);
        Ok(())
    }

    pub fn inserted(&mut self, database: &str, collection: &str, n: usize) -> Result<(), Error> {
        if self.counts.add(database, collection, n as u64) {
            return Ok(());
        }
        let text = format!(
            "the null server counts the documents of at most {COLLECTIONS_MAX} collections"
        );
        Err(Error::new(ErrorCode::OperationFailed, text))
    }

    /// Counts documents out: one, or all if that is what the filter says. For another filter with several
    /// documents the result is unknown: none.
    pub fn deleted(&mut self, database: &str, collection: &str, filter: &Doc, one: bool) -> u64 {
        let n = match (one, filter.is_empty()) {
            (true, _) => Some(1),
            (false, true) => None,
            (false, false) => Some(0),
        };
        let found = self.counts.take(database, collection, n);
        if one { 1 } else { found }
    }

    fn insert(&mut self, to: Target<'_>, command: Command<'_>) -> Result<(), Error> {
        let count = statements(to.name, "documents", command, |_| Ok(()))?;
        self.inserted(to.database, to.collection, count)?;
        self.reply.push("n", count as i32);
        self.reply.push("ok", 1.0);
        Ok(())
    }

    fn update(&mut self, to: Target<'_>, command: Command<'_>) -> Result<(), Error> {
        let count = statements(to.name, "updates", command, |statement| {
            if statement.contains_key("q") && statement.contains_key("u") {
                Ok(())
            } else {
                Err(missing("update.updates", "q"))
            }
        })?;
        self.reply.push("n", count as i32);
        self.reply.push("nModified", count as i32);
        self.reply.push("ok", 1.0);
        Ok(())
    }

    fn delete(&mut self, to: Target<'_>, command: Command<'_>) -> Result<(), Error> {
        let mut n = 0;
        statements(to.name, "deletes", command, |statement| {
            let missing = |field| missing("delete.deletes", field);
            let filter = statement.get_doc("q").ok_or_else(|| missing("q"))?;
            let limit = statement.get_i64("limit").ok_or_else(|| missing("limit"))?;
            n += self.deleted(to.database, to.collection, filter, limit == 1);
            Ok(())
        })?;
        push_count(&mut self.reply, "n", n);
        self.reply.push("ok", 1.0);
        Ok(())
    }

    fn find(&mut self, to: Target<'_>, body: &Doc, out: &mut Vec<u8>) -> Result<(), Error> {
        let document = |field: &str| match body.get(field) {
            None => Ok(Doc::empty()),
            Some(Value::Document(document)) => Ok(document),
            Some(_) => Err(wrong_type("find", field, "object")),
        };
        let number = |field: &str| match body.get(field) {
            None => Ok(0),
            Some(value) => match value.as_i64_lossless() {
                Some(n) => Ok(n.unsigned_abs()),
                None => Err(wrong_type("find", field, "long")),
            },
        };
        let limit = Some(number("limit")?).filter(|limit| *limit > 0);
        let wanted = Selection::read(document("filter")?, number("skip")?, limit);
        let projection = document("projection")?;
        cursor(out, "firstBatch", (to.database, to.collection), |out| {
            self.finds.append(wanted, projection, out);
        });
        Ok(())
    }

    /// Answers a legacy find with an array of documents.
    pub fn find_legacy(&mut self, query: &Doc, skip: i32, count: i32, projection: &Doc) -> DocBuf {
        // A client wraps the filter when it has something to say beside it.
        let filter = query.get_doc("$query").or_else(|| query.get_doc("query"));
        let limit = Some(u64::from(count.unsigned_abs())).filter(|count| *count > 0);
        let skip = u64::try_from(skip).unwrap_or(0);
        let wanted = Selection::read(filter.unwrap_or(query), skip, limit);
        let mut array = vec![0; 4];
        self.finds.append(wanted, projection, &mut array);
        close(&mut array, 0);
        DocBuf::from_vec_trusted(array)
    }

    fn count(&mut self, of: Target<'_>) -> u64 {
        self.counts.count(of.database, of.collection)
    }

    fn coll_stats(&mut self, of: Target<'_>) {
        let count = self.count(of);
        let namespace = format!("{}.{}", of.database, of.collection);
        let reply = &mut self.reply;
        reply.push("ns", namespace.as_str());
        push_count(reply, "count", count);
        reply.push_all(&doc! {
            "size": 0, "avgObjSize": 0, "storageSize": 0, "totalIndexSize": 0, "totalSize": 0,
            "nindexes": 1, "indexSizes": { "_id_": 0 },
        });
    }

    fn hello(&mut self, name: &str, body: &Doc) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = now.map_or(0, |now| now.as_millis() as i64);
        let reply = &mut self.reply;
        if body.get_bool("helloOk") == Some(true) {
            reply.push("helloOk", true);
        }
        let is_hello = name == "hello";
        reply.push(
            if is_hello {
                "isWritablePrimary"
            } else {
                "ismaster"
            },
            true,
        );
        reply.push_all(&doc! {
            "maxBsonObjectSize": (frond_bson::MAX_DOCUMENT_BYTES as i32),
            "maxMessageSizeBytes": (MAX_MESSAGE_BYTES as i32),
            "maxWriteBatchSize": (BATCH_MAX as i32), "localTime": (Value::DateTime(now_ms)),
            "logicalSessionTimeoutMinutes": 30, "connectionId": self.connection,
            "minWireVersion": 0, "maxWireVersion": WIRE_VERSION_MAX, "readOnly": false,
        });
        let Some(offered) = body.get_array("compression") else {
            return;
        };
        self.compressors = Compressor::ALL
            .into_iter()
            .filter(|known| {
                let name = Value::String(known.name());
                offered.values().any(|offered| offered == name)
            })
            .collect();
        if !self.compressors.is_empty() {
            reply.push_array("compression", |names| {
                for compressor in &self.compressors {
                    names.push(compressor.name());
                }
            });
        }
    }
}

/// A field that must be there.
fn missing(command: &str, field: &str) -> Error {
    let text = format!("BSON field '{command}.{field}' is missing but a required field");
    Error::location(40414, text)
}

fn wrong_type(command: &str, field: &str, expected: &str) -> Error {
    Error::type_mismatch(format!(
        "BSON field '{command}.{field}' is the wrong type, expected type '{expected}'"
    ))
}

fn no_database() -> Error {
    missing("OP_MSG", "$db")
}

fn target<'a>(
    database: Option<&'a str>,
    name: &'a str,
    value: Value<'a>,
) -> Result<Target<'a>, Error> {
    let database = database.ok_or_else(no_database)?;
    match value {
        Value::String(collection) if !collection.is_empty() => Ok(Target {
            name,
            database,
            collection,
        }),
        Value::String(_) => Err(Error::new(
            ErrorCode::InvalidNamespace,
            format!("Invalid namespace specified '{database}.'"),
        )),
        other => Err(Error::new(
            ErrorCode::InvalidNamespace,
            format!("collection name has invalid type {}", other.type_name()),
        )),
    }
}

/// Looks at each statement of a write, and returns how many there are.
fn statements(
    command: &str,
    field: &str,
    of: Command<'_>,
    mut look: impl FnMut(&Doc) -> Result<(), Error>,
) -> Result<usize, Error> {
    let sequence = of.sequences.iter().find(|(name, _)| *name == field);
    let count = match (sequence, of.body.get_raw(field)) {
        (Some((_, documents)), _) => {
            for document in *documents {
                look(Doc::from_trusted(document))?;
            }
            documents.len()
        }
        (None, Some(array)) if array.tag() == tag::ARRAY => {
            let mut count = 0;
            for element in Doc::from_trusted(array.value_bytes()).iter_raw() {
                if element.tag() != tag::DOCUMENT {
                    return Err(wrong_type(command, &format!("{field}.{count}"), "object"));
                }
                look(Doc::from_trusted(element.value_bytes()))?;
                count += 1;
            }
            count
        }
        (None, Some(_)) => return Err(wrong_type(command, field, "array")),
        (None, None) => return Err(missing(command, field)),
    };
    match count {
        1..=BATCH_MAX => Ok(count),
        _ => Err(Error::new(
            ErrorCode::InvalidLength,
            format!("Write batch sizes must be between 1 and {BATCH_MAX}. Got {count} operations."),
        )),
    }
}

/// An aggregation always has one result.
fn aggregate(
    database: Option<&str>,
    name: &str,
    value: Value<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    // An aggregation of no collection has the number 1 there.
    let (database, collection) = match value {
        Value::String(_) => {
            let of = target(database, name, value)?;
            (of.database, of.collection)
        }
        _ => (database.ok_or_else(no_database)?, "$cmd.aggregate"),
    };
    cursor(out, "firstBatch", (database, collection), |out| {
        let at = open(out, tag::DOCUMENT, "0");
        out.extend_from_slice(b"\x0a_id\0");
        out.extend_from_slice(b"\x10sum\0\0\0\0\0");
        close(out, at);
    });
    Ok(())
}

/// The answer to every `distinct`.
fn distinct() -> &'static Doc {
    static ANSWER: OnceLock<DocBuf> = OnceLock::new();
    ANSWER.get_or_init(|| {
        let mut answer = DocBuf::new();
        answer.push_array("values", |values| {
            for shift in 0..DISTINCT {
                values.push(text(shift).as_str());
            }
        });
        answer.push("ok", 1.0);
        answer
    })
}

fn build_info() -> DocBuf {
    let mut info = doc! {
        "version": VERSION, "versionArray": [7, 0, 0, 0], "modules": [], "bits": 64,
        "maxBsonObjectSize": (frond_bson::MAX_DOCUMENT_BYTES as i32), "storageEngines": [ENGINE],
    };
    info.push(BUILD_INFO_FIELD, true);
    info
}

/// Appends a whole answer with a cursor that has no more documents than `fill` appends, the elements of
/// its batch.
fn cursor(
    out: &mut Vec<u8>,
    batch_name: &str,
    (database, collection): (&str, &str),
    fill: impl FnOnce(&mut Vec<u8>),
) {
    let whole = out.len();
    out.extend_from_slice(&[0; 4]);
    let cursor = open(out, tag::DOCUMENT, "cursor");
    let batch = open(out, tag::ARRAY, batch_name);
    fill(out);
    close(out, batch);
    out.extend_from_slice(b"\x12id\0\0\0\0\0\0\0\0\0");
    out.extend_from_slice(b"\x02ns\0");
    let length = (database.len() + 1 + collection.len() + 1) as u32;
    out.extend_from_slice(&length.to_le_bytes());
    for part in [database, ".", collection, "\0"] {
        out.extend_from_slice(part.as_bytes());
    }
    close(out, cursor);
    out.extend_from_slice(b"\x01ok\0");
    out.extend_from_slice(&1.0_f64.to_le_bytes());
    close(out, whole);
}

/// Begins a document or array within one; returns where its length belongs.
fn open(out: &mut Vec<u8>, tag: u8, name: &str) -> usize {
    out.push(tag);
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    at
}

/// Ends what began at `at`.
fn close(out: &mut Vec<u8>, at: usize) {
    out.push(0);
    let length = (out.len() - at) as u32;
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}

/// A number as small as it can be, as servers give counts.
fn push_count(reply: &mut DocBuf, name: &str, n: u64) {
    match i32::try_from(n) {
        Ok(n) => reply.push(name, n),
        Err(_) => reply.push(name, n as i64),
    }
}
