//! From the bytes of a message to the bytes of its reply.

use std::time::Instant;

use frond_bson::{Doc, DocBuf};
use frond_error::{Error, ErrorCode};
use frond_wire::{
    Compressor, Flags, Header, MAX_MESSAGE_BYTES, Msg, OpCode, Peek, Request, compress, decompress,
    msg, msg_around, peek, peek_flags,
};

use crate::client::Client;
use crate::connection::Connection;
use crate::dispatch::{self, Answer, CommandRequest, caller, run_command};
use crate::errors::{of_wire, write_error};
use crate::exec::Lane;
use crate::limits::MESSAGE_BYTES_BEFORE_LOGIN;
use crate::log::Component;
use crate::state::Server;

mod handled;
mod legacy;

pub use handled::Handled;

/// A compressed message, decompressed.
pub struct Inflated {
    /// The message.
    pub message: Vec<u8>,
    compressor: Compressor,
}

impl Inflated {
    /// How it was compressed.
    pub fn compressor(&self) -> Compressor {
        self.compressor
    }
}

/// Compresses a reply in the way of its request: a client that compresses its requests accepts that.
pub fn pack(reply: Vec<u8>, compressor: Compressor) -> Vec<u8> {
    compress(&reply, compressor).unwrap_or(reply)
}

/// The longest message that a client may send: a short one until it is logged in, where logins are required.
pub fn message_bytes_max(client: &Client<'_>) -> usize {
    match client.server.access.is_enforced() && client.state.identity.is_none() {
        true => MESSAGE_BYTES_BEFORE_LOGIN,
        false => MAX_MESSAGE_BYTES,
    }
}

/// Decompresses a message, if it is compressed.
///
/// # Errors
/// The answer to a message that cannot be decompressed.
pub fn inflate(client: &Client<'_>, message: &[u8]) -> Result<Option<Inflated>, Handled> {
    if !Header::parse(message).is_ok_and(|header| header.op() == Ok(OpCode::Compressed)) {
        return Ok(None);
    }
    let known = |compressor| {
        compressor == Compressor::Noop || client.server.settings.compressors.contains(&compressor)
    };
    match decompress(message, message_bytes_max(client)) {
        Ok((message, compressor)) if known(compressor) => Ok(Some(Inflated {
            message,
            compressor,
        })),
        Ok((_, compressor)) => {
            let error = frond_wire::Error::UnknownCompressor(compressor.id());
            Err(malformed(client, message, &error))
        }
        Err(error) => Err(malformed(client, message, &error)),
    }
}

/// The lane whose ticket a message needs.
pub fn lane(message: &[u8]) -> Option<Lane> {
    match peek(message) {
        Peek::Command(name, body) => dispatch::lane(name, body),
        Peek::Read => Some(Lane::Read),
        Peek::Write => Some(Lane::Write),
        Peek::Other => None,
    }
}

/// Whether a client may run only commands that are open to anyone.
pub fn is_stranger(client: &Client<'_>) -> bool {
    client.server.access.is_enforced() && caller(client).is_stranger()
}

/// Whether a message is a statement of a transaction.
pub fn is_statement(message: &[u8]) -> bool {
    matches!(peek(message), Peek::Command(_, body) if dispatch::is_statement(body))
}

/// Whether the client waits for a reply to a message.
pub fn wants_reply(message: &[u8]) -> bool {
    let Ok(header) = Header::parse(message) else {
        return true;
    };
    match header.op() {
        Ok(OpCode::Insert | OpCode::Update | OpCode::Delete | OpCode::KillCursors) => false,
        _ => !peek_flags(&header, message).is_some_and(|flags| flags.has(Flags::MORE_TO_COME)),
    }
}

/// Shows the operation of a message in `currentOp` that has to wait before it is handled. Returns when its time is over.
pub fn announce(
    client: &mut Client<'_>,
    message: &[u8],
    waits_for: &'static str,
) -> Option<Instant> {
    // One that cannot be parsed, or has no document of a command, is not shown.
    let Ok((_, Request::Msg(request))) = Request::parse(message) else {
        return None;
    };
    let (db, body) = parse_command(&request).ok()?;
    dispatch::announce(client, &command_of(db, body, &request), waits_for)
}

/// Handles a whole message that is not compressed. `previous` is the number of the reply before, when this message is
/// handled again for an exhaust command, which is one request.
pub fn handle(client: &mut Client<'_>, message: &[u8], previous: Option<i32>) -> Handled {
    if previous.is_none() && client.state.resumed.is_none() {
        client.server.metrics.bytes_in.add(message.len() as u64);
        client.state.topology_sent = None;
    }
    let handled = handle_plain(client, message, previous);
    let reply_bytes = handled.reply.as_ref().map_or(0, Vec::len);
    client.server.metrics.bytes_out.add(reply_bytes as u64);
    handled
}

fn handle_plain(client: &mut Client<'_>, message: &[u8], previous: Option<i32>) -> Handled {
    let (header, request) = match Request::parse(message) {
        Ok(parsed) => parsed,
        Err(error) => return malformed(client, message, &error),
    };
    match request {
        Request::Msg(request) => {
            let id = header.request_id;
            op_msg(client, previous.unwrap_or(id), &request)
        }
        legacy => legacy::handle(client, header.request_id, &legacy),
    }
}

fn op_msg(client: &mut Client<'_>, response_to: i32, request: &Msg<'_>) -> Handled {
    let answer = match parse_command(request) {
        Ok((db, body)) => run_command(client, &command_of(db, body, request)),
        Err(failure) => {
            client.server.metrics.bad_messages.add(1);
            Answer::failed(failure)
        }
    };
    if answer.close {
        return Handled::close();
    }
    if request.flags.has(Flags::MORE_TO_COME) {
        // Without a reply the client's next message waits, as after a failed login.
        return Handled {
            wait: answer.wait,
            ..Handled::default()
        };
    }
    let flags = if answer.more_to_come {
        Flags::MORE_TO_COME
    } else {
        Flags::NONE
    };
    Handled {
        reply: Some(msg_around(
            client.state.next_reply_id(),
            response_to,
            flags,
            answer.reply.into_vec(),
        )),
        wait: answer.wait,
        again: answer.more_to_come,
        close: false,
    }
}

fn command_of<'a>(db: &'a str, body: &'a Doc, request: &'a Msg<'a>) -> CommandRequest<'a> {
    CommandRequest {
        db,
        body,
        sequences: &request.sequences,
        exhaust_allowed: request.flags.has(Flags::EXHAUST_ALLOWED),
        legacy: false,
    }
}

fn parse_command<'a>(request: &Msg<'a>) -> Result<(&'a str, &'a Doc), Error> {
    let body = Doc::validate(request.body)?;
    match body.get_str("$db") {
        Some(db) => Ok((db, body)),
        None if body.contains_key("$db") => Err(Error::new(
            ErrorCode::TypeMismatch,
            "the field '$db' must be a string",
        )),
        None => Err(Error::location(
            40571,
            "OP_MSG requests require a $db argument",
        )),
    }
}

/// Handles a message that cannot be parsed: replies if the header is valid and a reply is expected, else closes the
/// connection.
fn malformed(client: &Client<'_>, message: &[u8], error: &frond_wire::Error) -> Handled {
    client.server.metrics.bad_messages.add(1);
    log_malformed(client.server, client.connection, error);
    let Ok(header) = Header::parse(message) else {
        return Handled::close();
    };
    let Some(flags) = peek_flags(&header, message) else {
        return Handled::close();
    };
    if error.closes_connection() || flags.has(Flags::MORE_TO_COME) {
        return Handled::close();
    }
    let mut reply = DocBuf::new();
    write_error(&mut reply, &of_wire(error));
    Handled {
        reply: Some(msg(0, header.request_id, Flags::NONE, reply.as_bytes())),
        ..Handled::default()
    }
}

/// Logs that a client sent a malformed message.
pub fn log_malformed(server: &Server, connection: &Connection, error: &frond_wire::Error) {
    server.log.warning(
        Component::Network,
        22988,
        &connection.name,
        "Malformed message from client",
        &frond_bson::doc! {"remote": connection.peer.to_string(), "error": error.to_string()},
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{Value, doc};

    use super::*;
    use crate::testing::TestServer;

    /// The delay was dropped with the reply, so a client that wanted none could guess passwords without pause.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_failed_login_without_a_reply_is_delayed() {
        let mut server = TestServer::with_authorization();
        let payload = Value::Binary {
            subtype: 0,
            bytes: b"no message of SCRAM",
        };
        let start = doc! {
            "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload, "$db": "admin",
        };
        let message = msg(1, 0, Flags::MORE_TO_COME, start.as_bytes());
        let handled = handle(&mut server.client(), &message, None);
        assert!(handled.reply.is_none());
        assert!(handled.wait.unwrap() >= std::time::Duration::from_millis(100));
    }
}
