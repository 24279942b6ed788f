//! A span for each command: see [`frond_telemetry`].

use std::time::Duration;

use frond_bson::{Value, extjson};
use frond_error::Error;
use frond_telemetry::{Finished, TraceParent};

use super::parse::Request;
use crate::client::Client;
use crate::connection::Peer;

/// Bytes of a comment that a span keeps.
const COMMENT_MAX: usize = 1024;

/// Records a command that has ended, if there is a collector.
pub fn record(
    client: &Client<'_>,
    request: &Request<'_>,
    command: &str,
    took: Duration,
    failure: Option<&Error>,
) {
    let Some(tracing) = &client.server.records.tracing else {
        return;
    };
    let comment = request.body.get("comment");
    tracing.record(Finished {
        parent: comment.as_ref().and_then(TraceParent::of_comment),
        command,
        database: request.db,
        collection: request.collection(),
        client: &address(&client.connection.peer),
        application: client.connection.application(),
        comment: comment.map(shown),
        took,
        error: failure.map(|failure| (failure.code().code(), failure.message())),
    });
}

/// A client's address, without the port.
fn address(peer: &Peer) -> String {
    match peer {
        Peer::Tcp(address) => address.ip().to_string(),
        Peer::Unix => peer.to_string(),
    }
}

/// A comment as text.
fn shown(comment: Value<'_>) -> String {
    let mut text = match comment {
        Value::String(text) => text.to_string(),
        Value::Document(fields) => extjson::to_relaxed(fields),
        other => extjson::value_to_relaxed(&other),
    };
    text.truncate(text.floor_char_boundary(COMMENT_MAX));
    text
}
