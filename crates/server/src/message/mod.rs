//! From the bytes of a message to the bytes of its reply.

use frond_bson::{Doc, DocBuf};
use frond_error::{Error, ErrorCode};
use frond_wire::{
    Compressor, Flags, Header, MAX_MESSAGE_BYTES, Msg, OpCode, Request, compress, decompress, msg,
    msg_around, peek_flags,
};

use crate::client::Client;
use crate::connection::Connection;
use crate::dispatch::{Answer, CommandRequest, run_command};
use crate::errors::{of_wire, write_error};
use crate::log::Component;
use crate::state::Server;

mod handled;
mod legacy;

pub use handled::Handled;

/// Handles a whole message. `previous` is the number of the reply before, when this message is
/// handled again for an exhaust command.
pub fn handle(client: &mut Client<'_>, message: &[u8], previous: Option<i32>) -> Handled {
    let compressed = Header::parse(message).is_ok_and(|h| h.op() == Ok(OpCode::Compressed));
    if !compressed {
        return counted(client, message, previous);
    }
    let (plain, compressor) = match decompress(message, MAX_MESSAGE_BYTES) {
        Ok(inflated) => inflated,
        Err(error) => return malformed(client, message, &error),
    };
    if compressor != Compressor::Noop && !client.server.settings.compressors.contains(&compressor) {
        let error = frond_wire::Error::UnknownCompressor(compressor.id());
        return malformed(client, message, &error);
    }
    let mut handled = counted(client, &plain, previous);
    // A client that compresses its requests accepts compressed replies.
    if let Some(Ok(packed)) = handled
        .reply
        .as_deref()
        .map(|reply| compress(reply, compressor))
    {
        handled.reply = Some(packed);
    }
    handled
}

/// Counts the bytes of a decompressed message and of its reply. An exhaust command is one request.
fn counted(client: &mut Client<'_>, message: &[u8], previous: Option<i32>) -> Handled {
    if previous.is_none() && client.state.resumed.is_none() {
        client.server.metrics.bytes_in.add(message.len() as u64);
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
        Ok((db, body)) => {
            let command = CommandRequest {
                db,
                body,
                sequences: &request.sequences,
                exhaust_allowed: request.flags.has(Flags::EXHAUST_ALLOWED),
                legacy: false,
            };
            run_command(client, &command)
        }
        Err(failure) => {
            client.server.metrics.bad_messages.add(1);
            Answer::failed(failure)
        }
    };
    if answer.close {
        return Handled::close();
    }
    if request.flags.has(Flags::MORE_TO_COME) {
        return Handled::default();
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
