//! Serving one connection.

use std::sync::Arc;
use std::time::Duration;

use frond_bson::doc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::client::Client;
use crate::connection::{ClientState, Connection, Peer};
use crate::dispatch::abandon;
use crate::log::{Component, Severity};
use crate::message::{handle, log_malformed};
use crate::net::frames::{Ended, Frames};
use crate::parking::Parked;
use crate::state::Server;

/// How long a client may take to read its last reply when the server stops.
const LAST_REPLY_MAX: Duration = Duration::from_secs(1);

/// Serves a client until it disconnects, breaks the protocol, or the server stops.
pub async fn serve<S>(server: Arc<Server>, mut stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(connection) = server
        .connections
        .open(peer.clone(), server.settings.connections_max)
    else {
        server.metrics.connections_rejected.add(1);
        server.log.info(
            Component::Network,
            22942,
            "listener",
            "Connection refused because there are too many open connections",
            &doc! {"remote": peer.to_string(), "connectionCount": server.connections.len() as i64},
        );
        return;
    };
    server.metrics.connections_created.add(1);
    // However this task ends, also by a panic, the connection is removed.
    let _open = OpenGuard {
        server: &server,
        connection: &connection,
    };
    if !server.settings.quiet {
        server.log.info(
            Component::Network,
            22943,
            "listener",
            "Connection accepted",
            &doc! {
                "remote": peer.to_string(),
                "connectionId": connection.id,
                "connectionCount": server.connections.len() as i64,
            },
        );
    }
    let ended = handle_messages(&server, &connection, &mut stream).await;
    match &ended {
        Some(Ended::Malformed(error)) => {
            server.metrics.bad_messages.add(1);
            log_malformed(&server, &connection, error);
            if let Some(reply) = reply_to_other_protocol(error) {
                // The client may have disconnected.
                let _ = tokio::time::timeout(LAST_REPLY_MAX, stream.write_all(reply)).await;
            }
        }
        Some(Ended::Io(error)) if server.log.wants(Severity::Debug(2)) => {
            let attributes = doc! {"remote": peer.to_string(), "error": error.to_string()};
            let level = Severity::Debug(2);
            let name = &connection.name;
            server.log.line(
                level,
                Component::Network,
                22989,
                name,
                "Connection failed",
                &attributes,
            );
        }
        _ => {}
    }
    // It fails if the client has disconnected.
    let _ = stream.shutdown().await;
}

/// A reply in the client's own protocol, so that its user sees why the connection fails.
fn reply_to_other_protocol(error: &frond_wire::Error) -> Option<&'static [u8]> {
    match error {
        // A TLS alert: fatal, handshake failure.
        frond_wire::Error::Tls => Some(&[0x15, 3, 1, 0, 2, 2, 40]),
        frond_wire::Error::Http => Some(
            b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 85\r\n\r\n\
              It looks like you are trying to access MongoDB over HTTP on the native driver port.\r\n",
        ),
        _ => None,
    }
}

struct OpenGuard<'a> {
    server: &'a Server,
    connection: &'a Connection,
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.server.connections.close(self.connection.id);
        if !self.server.settings.quiet {
            self.server.log.info(
                Component::Network,
                22944,
                &self.connection.name,
                "Connection ended",
                &doc! {
                    "remote": self.connection.peer.to_string(),
                    "connectionId": self.connection.id,
                    "connectionCount": self.server.connections.len() as i64,
                },
            );
        }
    }
}

/// Handles messages one after the other, each before the next is read. So unacknowledged writes stay in order, and a
/// client that sends faster than the store accepts is throttled by its own socket.
async fn handle_messages<S>(
    server: &Server,
    connection: &Connection,
    stream: &mut S,
) -> Option<Ended>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut frames = Frames::default();
    let mut state = ClientState::default();
    let mut client = Client {
        server,
        connection,
        state: &mut state,
    };
    let mut stop = server.stop_signal();
    loop {
        if server.is_stopping() {
            return None;
        }
        tokio::select! {
            biased;
            next = frames.next(stream) => if let Err(ended) = next { return Some(ended) },
            _ = stopped(&mut stop) => return None,
        }
        server.metrics.requests.add(1);
        let bytes = frames.message().len() as u64;
        server.metrics.physical_bytes_in.add(bytes);
        let mut previous = None;
        loop {
            client.state.permit = Some(server.executor.acquire().await);
            let handled = handle(&mut client, frames.message(), previous);
            client.state.permit = None;
            client.state.resumed = None;
            if let Some(parked) = client.state.park.take() {
                if let Some(ended) =
                    parked_wait(&parked, connection, &mut frames, stream, &mut stop).await
                {
                    server.cursors.kill(parked.cursor);
                    abandon(&client);
                    return ended;
                }
                client.state.resumed = Some(parked);
                continue;
            }
            if let Some(time) = handled.wait
                && let Some(ended) = pause(time, &mut frames, stream, &mut stop).await
            {
                return ended;
            }
            if let Some(reply) = handled.reply {
                server.metrics.physical_bytes_out.add(reply.len() as u64);
                if let Some(ended) = send(&reply, stream, &mut stop).await {
                    return ended;
                }
            }
            if handled.close {
                return None;
            }
            if !handled.again {
                break;
            }
            previous = Some(client.state.last_reply);
            if server.is_stopping() {
                return None;
            }
        }
    }
}

/// Waits for what a getMore waits for. Some if the connection ends meanwhile.
async fn parked_wait<S: AsyncRead + Unpin>(
    parked: &Parked,
    connection: &Connection,
    frames: &mut Frames,
    stream: &mut S,
    stop: &mut watch::Receiver<bool>,
) -> Option<Option<Ended>> {
    tokio::select! {
        () = parked.wait(&connection.wake) => None,
        ended = frames.watch(stream) => Some(Some(ended)),
        _ = stopped(stop) => Some(None),
    }
}

/// Waits before a reply. Some if the connection ends meanwhile.
async fn pause<S: AsyncRead + Unpin>(
    time: Duration,
    frames: &mut Frames,
    stream: &mut S,
    stop: &mut watch::Receiver<bool>,
) -> Option<Option<Ended>> {
    tokio::select! {
        () = tokio::time::sleep(time) => None,
        ended = frames.watch(stream) => Some(Some(ended)),
        _ = stopped(stop) => Some(None),
    }
}

/// Sends a reply. Some if the connection ends meanwhile: a client that does not read must not delay the
/// shutdown.
async fn send<S: AsyncWrite + Unpin>(
    reply: &[u8],
    stream: &mut S,
    stop: &mut watch::Receiver<bool>,
) -> Option<Option<Ended>> {
    let shutdown = async {
        stopped(stop).await;
        tokio::time::sleep(LAST_REPLY_MAX).await;
    };
    tokio::select! {
        biased;
        sent = stream.write_all(reply) => sent.err().map(|error| Some(Ended::Io(error))),
        () = shutdown => Some(None),
    }
}

/// Returns when the server is asked to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The sender lives as long as the server.
    let _ = stop.wait_for(|stop| *stop).await;
}
