//! A lean client: one connection, one request at a time, bytes that are made elsewhere.
//!
//! It speaks to servers of every age. The handshake is an OP_QUERY, which all of them take. After
//! it, commands go as OP_MSG to wire version 6 and above, and as OP_QUERY below. Inserts and updates
//! go as OP_INSERT and OP_UPDATE to servers below wire version 2, and to those below 6 when nothing
//! is acknowledged.

mod bulk;
pub mod check;
mod collections;
mod cursor;
mod find;
mod login;
mod request;
mod write;

pub use bulk::{BulkOptions, WriteFailure};
pub use cursor::{Cursor, CursorRequest};
pub use find::first_of_batch;
pub use request::Find;
pub use write::{Dialect, WriteTarget};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf};
use frond_wire::{Compressor, Flags, Frames, Header, OpCode, Query, Reply};

use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::uri::Uri;

/// Replies longer than this are refused, whatever their header says.
const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes that one read requests, unless the rest of a large reply is pending.
const READ_BYTES: usize = 16 << 10;

/// A buffer for replies larger than this is freed when replies are far smaller.
const KEPT_BYTES: usize = 4 << 20;

/// A server below this wire version does not know OP_MSG.
const WIRE_VERSION_MSG: i32 = 6;

/// Limits that the server announced in the handshake.
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

/// A connection to a server.
pub struct Client {
    stream: Stream,
    limits: Limits,
    compressor: Option<Compressor>,
    request_id: i32,
    frames: Frames,
    /// Bytes of the reply in `frames`.
    reply_bytes: usize,
    /// The reply, if it came compressed.
    inflated: Option<Vec<u8>>,
    buffers: request::Buffers,
    /// The `postBatchResumeToken` of the last batch that had one.
    resume_token: Option<DocBuf>,
    hello: DocBuf,
}

impl Client {
    /// Connects and shakes hands. Setting `stop` ends every wait with [`Error::Stopped`]. Of several members of a replica
    /// set it is the primary, or, if none says that it is, the first that answers.
    pub fn connect(uri: &Uri, stop: Arc<AtomicBool>) -> Result<Client> {
        if uri.others.is_empty() {
            return Client::connect_to(uri, stop);
        }
        let mut found: Result<Client> = Err(Error::Uri("it names no host".to_owned()));
        for address in std::iter::once(&uri.address).chain(&uri.others) {
            let one = Uri {
                address: address.clone(),
                others: Vec::new(),
                ..uri.clone()
            };
            let client = Client::connect_to(&one, Arc::clone(&stop));
            if client.as_ref().is_ok_and(Client::is_primary) {
                return client;
            }
            found = found.or(client);
        }
        found
    }

    fn is_primary(&self) -> bool {
        ["ismaster", "isWritablePrimary"]
            .iter()
            .any(|name| self.hello.get_bool(name) == Some(true))
    }

    fn connect_to(uri: &Uri, stop: Arc<AtomicBool>) -> Result<Client> {
        let mut client = Client {
            stream: Stream::connect(uri, stop)?,
            limits: Limits::read(&DocBuf::new()),
            compressor: None,
            request_id: 0,
            frames: Frames::new(REPLY_BYTES_MAX),
            reply_bytes: 0,
            inflated: None,
            buffers: request::Buffers::default(),
            resume_token: None,
            hello: DocBuf::new(),
        };
        // As drivers do: the old name first, which servers of every age know. Some close the
        // connection at the new one.
        let reply = match client.handshake("isMaster", uri) {
            Err(Error::Server { .. }) => client.handshake("hello", uri)?,
            other => other?,
        };
        client.limits = Limits::read(&reply);
        if let Some(wanted) = &uri.replica_set
            && reply.get_str("setName") != Some(wanted)
        {
            return Err(Error::Uri(format!(
                "replicaSet={wanted}: {} is a member of {}",
                uri.address.host_and_port(),
                reply.get_str("setName").unwrap_or("no replica set"),
            )));
        }
        let offered = reply.get_array("compression");
        if let Some(login) = &uri.login {
            client.log_in(login, &reply)?;
        }
        client.compressor = uri.compressors.iter().copied().find(|compressor| {
            offered.is_some_and(|names| {
                names.iter().any(|(_, name)| {
                    matches!(name, frond_bson::Value::String(name) if name == compressor.name())
                })
            })
        });
        client.hello = reply;
        Ok(client)
    }

    /// The reply to the handshake.
    #[must_use]
    pub fn hello(&self) -> &Doc {
        &self.hello
    }

    fn handshake(&mut self, command: &str, uri: &Uri) -> Result<DocBuf> {
        let mut body = DocBuf::new();
        body.push(command, 1);
        body.push("helloOk", true);
        if let Some(login) = &uri.login
            && let Some(user) = login.user()
            && !login.is_by_certificate()
        {
            body.push("saslSupportedMechs", &format!("{}.{user}", login.source()));
        }
        body.push_doc("client", |client| {
            if let Some(name) = &uri.app_name {
                client.push_doc("application", |application| {
                    application.push("name", name.as_str());
                });
            }
            client.push_doc("driver", |driver| {
                driver.push("name", "frond");
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
        Ok(self.timed_command(database, body)?.0)
    }

    /// The same, with the time from the first byte sent to the last one received. Looking at the
    /// reply is not in it.
    pub fn timed_command(&mut self, database: &str, body: &Doc) -> Result<(DocBuf, Duration)> {
        let id = self.next_id();
        let message = if self.limits.wire_version < WIRE_VERSION_MSG {
            command_query(id, database, body)
        } else {
            let mut whole = body.to_owned();
            whole.push("$db", database);
            frond_wire::msg(id, 0, Flags::NONE, whole.as_bytes())
        };
        self.exchange(id, &message, body)
    }

    fn query_command(&mut self, database: &str, body: &Doc) -> Result<DocBuf> {
        let id = self.next_id();
        let message = command_query(id, database, body);
        Ok(self.exchange(id, &message, body)?.0)
    }

    fn exchange(&mut self, id: i32, message: &[u8], body: &Doc) -> Result<(DocBuf, Duration)> {
        let start = Instant::now();
        self.send(message)?;
        self.receive(id)?;
        let elapsed = start.elapsed();
        Ok((self.document_received(name_of(body))?, elapsed))
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

    fn command_reply(&mut self, id: i32, command: &str) -> Result<DocBuf> {
        self.receive(id)?;
        self.document_received(command)
    }

    /// The document of the last message, if it says that all went well.
    fn document_received(&self, command: &str) -> Result<DocBuf> {
        let (_, reply) = Reply::parse(self.reply()?)?;
        let bytes = reply
            .first_document()
            .ok_or_else(|| Error::Protocol("a reply without a document".to_owned()))?;
        let document = Doc::validate(bytes).map_err(|error| Error::Protocol(error.to_string()))?;
        check::ok(document, command)?;
        Ok(document.to_owned())
    }

    /// Reads the message that answers request `id`, for [`Client::reply`].
    fn receive(&mut self, id: i32) -> Result<()> {
        let last = std::mem::take(&mut self.reply_bytes);
        self.frames.consume(last);
        self.inflated = None;
        let capacity = self.frames.capacity();
        if capacity > KEPT_BYTES && last < capacity / 4 {
            self.frames.free();
        }
        let message = loop {
            if let Some(message) = self.frames.message()? {
                break message;
            }
            let bytes = self.stream.receive_some(self.frames.room(READ_BYTES))?;
            self.frames.add(bytes);
        };
        self.reply_bytes = message.len();
        let header = Header::parse(message)?;
        if header.op() == Ok(OpCode::Compressed) {
            self.inflated = Some(frond_wire::decompress(message, REPLY_BYTES_MAX)?.0);
        }
        if header.response_to != id {
            return Err(Error::Protocol(format!(
                "it answers request {} instead of {id}",
                header.response_to
            )));
        }
        Ok(())
    }

    /// The message that was received last.
    fn reply(&self) -> Result<&[u8]> {
        match &self.inflated {
            Some(inflated) => Ok(inflated),
            None => Ok(self.frames.message()?.unwrap_or_default()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use frond_bson::doc;

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
}
