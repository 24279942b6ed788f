//! The exchange of one message and its replies.

use frond_bson::DocBuf;
use frond_error::Error;
use frond_wire::{
    Compressor, Flags, Header, MAX_MESSAGE_BYTES, OpCode, compress, decompress, msg, msg_around,
    peek_flags,
};

use super::answer::Answer;
use super::parse::{Request, wants_reply};
use super::pipeline::execute;
use super::{Handled, Stopping, legacy};
use crate::client::Client;
use crate::connection::Connection;
use crate::errors::{of_wire, write_error};
use crate::limits::MESSAGE_BYTES_BEFORE_LOGIN;
use crate::observability::log::Component;
use crate::operation::Exhaust;
use crate::state::Server;

/// A compressed message, decompressed.
pub struct Inflated {
    pub message: Vec<u8>,
    compressor: Compressor,
}

impl Inflated {
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
    if client.server.clients.access.is_enforced() && client.state.identity.is_none() {
        MESSAGE_BYTES_BEFORE_LOGIN
    } else {
        MAX_MESSAGE_BYTES
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

/// A message, parsed, and the replies to it.
pub struct Exchange<'m> {
    message: &'m [u8],
    /// The number of the message, and then that of the reply that the next one follows.
    id: i32,
    parsed: Parsed<'m>,
    exhaust: Exhaust,
    /// Whether a reply has been made.
    has_begun: bool,
}

enum Parsed<'m> {
    Command(Request<'m>),
    Legacy(frond_wire::Request<'m>),
    /// An OP_MSG without a command.
    Refused(Error),
    Malformed(frond_wire::Error),
}

impl<'m> Exchange<'m> {
    /// Parses a whole message that is not compressed.
    pub fn parse(message: &'m [u8]) -> Exchange<'m> {
        let mut id = 0;
        let mut exhaust = Exhaust::default();
        let parsed = match frond_wire::Request::parse(message) {
            Err(error) => Parsed::Malformed(error),
            Ok((header, request)) => {
                id = header.request_id;
                match request {
                    frond_wire::Request::Msg(request) => {
                        exhaust.allowed = request.flags.has(Flags::EXHAUST_ALLOWED);
                        Request::parse(request).map_or_else(Parsed::Refused, Parsed::Command)
                    }
                    legacy => Parsed::Legacy(legacy),
                }
            }
        };
        Exchange {
            message,
            id,
            parsed,
            exhaust,
            has_begun: false,
        }
    }

    /// Makes the reply, or the next one to an exhaust command.
    ///
    /// # Errors
    /// The server stops.
    pub async fn reply(&mut self, client: &mut Client<'_>) -> Result<Handled, Stopping> {
        let metrics = &client.server.metrics;
        if !std::mem::replace(&mut self.has_begun, true) {
            metrics.bytes_in.add(self.message.len() as u64);
        }
        let handled = match &self.parsed {
            Parsed::Command(request) => {
                let answer = execute(client, request, &mut self.exhaust).await?;
                let is_acknowledged = request.is_acknowledged;
                answered(client, &mut self.id, is_acknowledged, answer)
            }
            Parsed::Legacy(request) => legacy::handle(client, self.id, request).await?,
            Parsed::Refused(failure) => {
                metrics.bad_messages.add(1);
                let answer = Answer::failed(failure.clone());
                answered(client, &mut self.id, wants_reply(self.message), answer)
            }
            Parsed::Malformed(error) => malformed(client, self.message, error),
        };
        let bytes = handled.reply.as_ref().map_or(0, Vec::len);
        metrics.bytes_out.add(bytes as u64);
        Ok(handled)
    }
}

/// The message with an answer. It becomes the one that the next reply follows.
fn answered(
    client: &mut Client<'_>,
    id: &mut i32,
    is_acknowledged: bool,
    answer: Answer,
) -> Handled {
    if answer.close {
        return Handled {
            has_secrets: answer.has_secrets,
            ..Handled::close()
        };
    }
    let handled = Handled {
        wait: answer.wait,
        has_secrets: answer.has_secrets,
        ..Handled::default()
    };
    if !is_acknowledged {
        // Without a reply the client's next message waits, as after a failed login.
        return handled;
    }
    let flags = if answer.more_to_come {
        Flags::MORE_TO_COME
    } else {
        Flags::NONE
    };
    let reply_id = client.state.next_reply_id();
    let response_to = std::mem::replace(id, reply_id);
    Handled {
        reply: Some(msg_around(
            reply_id,
            response_to,
            flags,
            answer.reply.into_vec(),
        )),
        permit: answer.permit,
        again: answer.more_to_come,
        ..handled
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
        let handled = Exchange::parse(&message).reply(&mut server.client()).await;
        let handled = handled.unwrap();
        assert!(handled.reply.is_none());
        assert!(handled.wait.unwrap() >= std::time::Duration::from_millis(100));
    }
}
