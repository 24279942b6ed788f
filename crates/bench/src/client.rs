//! A lean client: one connection, one request at a time, bytes that are made elsewhere.
//!
//! It speaks to servers of every age. The handshake is an OP_QUERY, which all of them take. After
//! it, commands go as OP_MSG to wire version 6 and above, and as OP_QUERY below. Inserts go as
//! OP_INSERT to servers below wire version 2, and to those below 6 when nothing is acknowledged.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use frond_bson::{Doc, DocBuf, doc};
use frond_wire::{Compressor, Flags, HEADER_BYTES, Header, MsgBuilder, Query, Reply};

use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::uri::Uri;

/// Replies longer than this are refused, whatever their header says.
const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A server below this wire version does not know OP_MSG.
const WIRE_VERSION_MSG: i32 = 6;

/// A server below this wire version does not know write commands.
const WIRE_VERSION_WRITE_COMMANDS: i32 = 2;

/// What a server says about itself in the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The newest wire version that it speaks.
    pub wire_version: i32,
    /// Largest document, in bytes.
    pub document_bytes: usize,
    /// Largest message, in bytes.
    pub message_bytes: usize,
    /// Most documents in one insert.
    pub batch_documents: usize,
}

impl Limits {
    /// Reads the reply to `hello` or `isMaster`. What an old server leaves out has the value that
    /// servers had before the field was added.
    fn read(reply: &Doc) -> Limits {
        let size = |name: &str, default: usize| {
            reply
                .get_i64(name)
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(default)
        };
        let wire_version = reply
            .get_i64("maxWireVersion")
            .and_then(|n| i32::try_from(n).ok());
        Limits {
            wire_version: wire_version.unwrap_or(0),
            document_bytes: size("maxBsonObjectSize", 4 * 1024 * 1024),
            message_bytes: size("maxMessageSizeBytes", 48_000_000),
            batch_documents: size("maxWriteBatchSize", 1000),
        }
    }
}

/// What a write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteConcern {
    /// False is w: 0, nothing is answered.
    pub acknowledged: bool,
    /// True is j: true, the answer comes after the journal is on disk.
    pub journal: bool,
}

impl WriteConcern {
    /// The document that goes into a command.
    #[must_use]
    pub fn to_document(self) -> DocBuf {
        match (self.acknowledged, self.journal) {
            (false, _) => doc! { "w": 0 },
            (true, false) => doc! { "w": 1 },
            (true, true) => doc! { "w": 1, "j": true },
        }
    }
}

/// How inserts reach this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The command `insert` in an OP_MSG.
    Message,
    /// The command `insert` in an OP_QUERY.
    QueryCommand,
    /// OP_INSERT, followed by `getLastError` when acknowledged.
    Opcode,
}

impl Dialect {
    /// The newest way that the server knows.
    #[must_use]
    pub fn choose(wire_version: i32, acknowledged: bool) -> Dialect {
        if wire_version >= WIRE_VERSION_MSG {
            Dialect::Message
        } else if wire_version >= WIRE_VERSION_WRITE_COMMANDS && acknowledged {
            Dialect::QueryCommand
        } else {
            Dialect::Opcode
        }
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Message => "OP_MSG",
            Dialect::QueryCommand => "OP_QUERY command",
            Dialect::Opcode => "OP_INSERT",
        }
    }
}

/// Where documents go and how.
#[derive(Clone, Debug)]
pub struct InsertTarget {
    database: String,
    collection: String,
    concern: WriteConcern,
    dialect: Dialect,
    /// The body of the command in an OP_MSG, made once.
    body: DocBuf,
}

/// A connection to a server.
pub struct Client {
    stream: Stream,
    limits: Limits,
    compressor: Option<Compressor>,
    request_id: i32,
    reply: Vec<u8>,
}

impl Client {
    /// Connects and shakes hands. Setting `stop` ends every wait with [`Error::Stopped`].
    pub fn connect(uri: &Uri, stop: Arc<AtomicBool>) -> Result<Client> {
        let mut client = Client {
            stream: Stream::connect(uri, stop)?,
            limits: Limits::read(&DocBuf::new()),
            compressor: None,
            request_id: 0,
            reply: Vec::new(),
        };
        let reply = match client.handshake("hello", uri) {
            // Servers before 5.0 may not know `hello`; their codes for that differ.
            Err(Error::Server { .. }) => client.handshake("isMaster", uri)?,
            other => other?,
        };
        client.limits = Limits::read(&reply);
        let offered = reply.get_array("compression");
        client.compressor = uri.compressors.iter().copied().find(|compressor| {
            offered.is_some_and(|names| {
                names.iter().any(|(_, name)| {
                    matches!(name, frond_bson::Value::String(name) if name == compressor.name())
                })
            })
        });
        Ok(client)
    }

    fn handshake(&mut self, command: &str, uri: &Uri) -> Result<DocBuf> {
        let mut body = DocBuf::new();
        body.push(command, 1);
        body.push("helloOk", true);
        body.push_doc("client", |client| {
            if let Some(name) = &uri.app_name {
                client.push_doc("application", |application| {
                    application.push("name", name.as_str());
                });
            }
            client.push_doc("driver", |driver| {
                driver.push("name", "frond-bench");
                driver.push("version", env!("CARGO_PKG_VERSION"));
            });
            client.push_doc("os", |os| os.push("type", std::env::consts::OS));
        });
        body.push_array("compression", |names| {
            for compressor in &uri.compressors {
                names.push(compressor.name());
            }
        });
        self.query_command("admin", &body)
    }

    /// What the server said about itself.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The compressor that both sides know, if the connection string asked for any.
    #[must_use]
    pub fn compressor(&self) -> Option<Compressor> {
        self.compressor
    }

    /// Runs a command, given without `$db`. A reply that is not ok is an [`Error::Server`].
    pub fn command(&mut self, database: &str, body: &Doc) -> Result<DocBuf> {
        if self.limits.wire_version < WIRE_VERSION_MSG {
            return self.query_command(database, body);
        }
        let mut whole = body.to_owned();
        whole.push("$db", database);
        let id = self.next_id();
        let message = frond_wire::msg(id, 0, Flags::NONE, whole.as_bytes());
        self.send(&message)?;
        self.command_reply(id, name_of(body))
    }

    fn query_command(&mut self, database: &str, body: &Doc) -> Result<DocBuf> {
        let id = self.next_id();
        let message = command_query(id, database, body);
        self.send(&message)?;
        self.command_reply(id, name_of(body))
    }

    /// Prepares for inserts into one collection.
    #[must_use]
    pub fn insert_target(
        &self,
        database: &str,
        collection: &str,
        concern: WriteConcern,
    ) -> InsertTarget {
        let mut body = DocBuf::new();
        body.push("insert", collection);
        body.push("ordered", true);
        body.push("writeConcern", &concern.to_document());
        body.push("$db", database);
        InsertTarget {
            database: database.to_owned(),
            collection: collection.to_owned(),
            concern,
            dialect: Dialect::choose(self.limits.wire_version, concern.acknowledged),
            body,
        }
    }

    /// How inserts into the target travel.
    #[must_use]
    pub fn dialect(target: &InsertTarget) -> Dialect {
        target.dialect
    }

    /// Builds the message that inserts `documents`, BSON documents of `each` bytes one after
    /// another, into `out`. Returns the number of the request that will be answered.
    pub fn build_insert(
        &mut self,
        target: &InsertTarget,
        documents: &[u8],
        each: usize,
        out: &mut Vec<u8>,
    ) -> Result<i32> {
        out.clear();
        let id = self.next_id();
        match target.dialect {
            Dialect::Message => {
                let flags = if target.concern.acknowledged {
                    Flags::NONE
                } else {
                    Flags::MORE_TO_COME
                };
                // The documents are one run of bytes already; the sequence takes it as it is.
                MsgBuilder::new(out, id, 0, flags)
                    .body(target.body.as_bytes())
                    .sequence("documents", [documents])
                    .finish();
                Ok(id)
            }
            Dialect::QueryCommand => {
                let mut body = DocBuf::with_capacity(documents.len() * 17 / 16 + 256);
                body.push("insert", target.collection.as_str());
                body.push_array("documents", |array| {
                    for document in documents.chunks_exact(each) {
                        array.push(Doc::from_trusted(document));
                    }
                });
                body.push("ordered", true);
                body.push("writeConcern", &target.concern.to_document());
                out.extend_from_slice(&command_query(id, &target.database, &body));
                Ok(id)
            }
            Dialect::Opcode => {
                let namespace = format!("{}.{}", target.database, target.collection);
                let documents = documents.chunks_exact(each);
                out.extend_from_slice(&frond_wire::op_insert(id, 0, &namespace, documents));
                if !target.concern.acknowledged {
                    return Ok(id);
                }
                let mut question = doc! { "getlasterror": 1, "w": 1 };
                if target.concern.journal {
                    question.push("j", true);
                }
                let id = self.next_id();
                out.extend_from_slice(&command_query(id, &target.database, &question));
                Ok(id)
            }
        }
    }

    /// Sends a built message, compressed if that was negotiated.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        match self.compressor {
            // OP_INSERT with its getLastError are two messages; servers that take those do not
            // know compression.
            Some(compressor) => self
                .stream
                .send(&frond_wire::compress(message, compressor)?),
            None => self.stream.send(message),
        }
    }

    /// Takes the answer to an insert of `documents` documents. Anything but all of them inserted
    /// is an error.
    pub fn insert_reply(&mut self, target: &InsertTarget, id: i32, documents: usize) -> Result<()> {
        if !target.concern.acknowledged {
            return Ok(());
        }
        if target.dialect == Dialect::Opcode {
            let reply = self.command_reply(id, "getlasterror")?;
            return check_last_error(&reply);
        }
        let reply = self.command_reply(id, "insert")?;
        check_insert(&reply, documents)
    }

    fn command_reply(&mut self, id: i32, command: &str) -> Result<DocBuf> {
        self.receive(id)?;
        let (_, reply) = Reply::parse(&self.reply)?;
        let bytes = reply
            .first_document()
            .ok_or_else(|| Error::Protocol("a reply without a document".to_owned()))?;
        let document = Doc::validate(bytes).map_err(|error| Error::Protocol(error.to_string()))?;
        check_ok(document, command)?;
        Ok(document.to_owned())
    }

    /// Reads the message that answers request `id` into `self.reply`.
    fn receive(&mut self, id: i32) -> Result<()> {
        self.reply.resize(HEADER_BYTES, 0);
        self.stream.receive(&mut self.reply)?;
        let header = Header::parse(&self.reply)?;
        let length = header.checked_length(REPLY_BYTES_MAX)?;
        self.reply.resize(length, 0);
        let rest = self.reply.get_mut(HEADER_BYTES..).unwrap_or_default();
        self.stream.receive(rest)?;
        if header.op() == Ok(frond_wire::OpCode::Compressed) {
            self.reply = frond_wire::decompress(&self.reply, REPLY_BYTES_MAX)?.0;
        }
        if header.response_to != id {
            return Err(Error::Protocol(format!(
                "it answers request {} instead of {id}",
                header.response_to
            )));
        }
        Ok(())
    }

    fn next_id(&mut self) -> i32 {
        self.request_id = self.request_id.wrapping_add(1) & i32::MAX;
        self.request_id
    }
}

fn command_query(id: i32, database: &str, body: &Doc) -> Vec<u8> {
    let namespace = format!("{database}.$cmd");
    frond_wire::op_query(
        id,
        &Query {
            flags: Query::SECONDARY_OK,
            namespace: &namespace,
            skip: 0,
            count: -1,
            query: body.as_bytes(),
            projection: None,
        },
    )
}

fn name_of(body: &Doc) -> &str {
    body.iter().next().map_or("", |(name, _)| name)
}

fn check_ok(reply: &Doc, command: &str) -> Result<()> {
    // An OP_QUERY that failed before the command ran says so in `$err`.
    let failure = reply.get_str("$err");
    let ok = reply.get("ok").is_some_and(|ok| ok.truthy());
    if ok && failure.is_none() {
        return Ok(());
    }
    let message = reply.get_str("errmsg").or(failure).unwrap_or("no message");
    Err(server_error(command, reply, message))
}

fn check_insert(reply: &Doc, documents: usize) -> Result<()> {
    let first_of = |name: &str| {
        let array = reply.get_array(name)?;
        array.iter().next().and_then(|(_, value)| match value {
            frond_bson::Value::Document(error) => Some(error),
            _ => None,
        })
    };
    if let Some(error) = first_of("writeErrors") {
        let index = error.get_i64("index").unwrap_or(-1);
        let text = error.get_str("errmsg").unwrap_or("no message");
        let message = format!("document {index} of the batch: {text}");
        return Err(server_error("insert", error, &message));
    }
    if let Some(error) = reply.get_doc("writeConcernError") {
        let message = error.get_str("errmsg").unwrap_or("no message");
        return Err(server_error("insert", error, message));
    }
    match reply.get_i64("n").and_then(|n| usize::try_from(n).ok()) {
        Some(n) if n == documents => Ok(()),
        n => Err(Error::Protocol(format!(
            "insert of {documents} documents answered n: {n:?}"
        ))),
    }
}

fn check_last_error(reply: &Doc) -> Result<()> {
    match reply.get_str("err") {
        None => Ok(()),
        Some(message) => Err(server_error("OP_INSERT", reply, message)),
    }
}

fn server_error(command: &str, document: &Doc, message: &str) -> Error {
    let code = document.get_i64("code").and_then(|n| i32::try_from(n).ok());
    Error::Server {
        command: command.to_owned(),
        code: code.unwrap_or(0),
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn dialect_by_wire_version() {
        for (version, acknowledged, dialect) in [
            (0, true, Dialect::Opcode),
            (1, false, Dialect::Opcode),
            (2, true, Dialect::QueryCommand),
            (2, false, Dialect::Opcode),
            (5, true, Dialect::QueryCommand),
            (6, true, Dialect::Message),
            (21, false, Dialect::Message),
        ] {
            assert_eq!(Dialect::choose(version, acknowledged), dialect, "{version}");
        }
    }

    #[test]
    fn limits_of_old_and_new_servers() {
        let old = Limits::read(&doc! { "ismaster": true, "ok": 1.0 });
        assert_eq!(old.wire_version, 0);
        assert_eq!(old.batch_documents, 1000);
        let new = Limits::read(&doc! {
            "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000, "maxWireVersion": 21,
        });
        assert_eq!(new.wire_version, 21);
        assert_eq!(new.batch_documents, 100_000);
        assert_eq!(new.document_bytes, 16 * 1024 * 1024);
    }

    #[test]
    fn answers_that_are_not_a_full_success_are_errors() {
        let duplicate = doc! {
            "n": 3, "ok": 1.0,
            "writeErrors": [{ "index": 3, "code": 11000, "errmsg": "E11000 duplicate key" }],
        };
        let concern =
            doc! { "n": 4, "ok": 1.0, "writeConcernError": { "code": 64, "errmsg": "late" } };
        for (reply, part) in [
            (&duplicate, "document 3 of the batch: E11000"),
            (&concern, "late"),
            (&doc! { "n": 3, "ok": 1.0 }, "Some(3)"),
            (&doc! { "ok": 1.0 }, "None"),
        ] {
            let error = check_insert(reply, 4).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(check_insert(&doc! { "n": 4, "ok": 1.0 }, 4).is_ok());

        for (reply, part) in [
            (
                &doc! { "ok": 0.0, "errmsg": "no such command", "code": 59 },
                "59",
            ),
            (&doc! { "$err": "unauthorized" }, "unauthorized"),
            (&doc! {}, "no message"),
        ] {
            let error = check_ok(reply, "x").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(check_ok(&doc! { "ok": 1 }, "x").is_ok());
        assert!(check_last_error(&doc! { "err": frond_bson::Value::Null, "ok": 1.0 }).is_ok());
        assert!(check_last_error(&doc! { "err": "E11000", "code": 11000 }).is_err());
    }
}
