//! Serving one connection.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use frond_bson::doc;
use frond_wire::{Compressor, Message};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use zeroize::Zeroize;

use crate::addresses::Entered;
use crate::audit::{self, Actor, When};
use crate::authentication::abandoned;
use crate::client::Client;
use crate::connection::{ClientState, Connection, Peer};
use crate::memory_quota::{MemoryQuota, STALLED, STALLED_SOON};
use crate::net::frames::{Ended, Frames};
use crate::observability::log::{Component, Severity};
use crate::peers::serve_channel;
use crate::request::{
    Exchange, Handled, Inflated, Stopping, inflate, log_malformed, message_bytes_max, pack, until,
    wants_reply,
};
use crate::socket_memory::Full;
use crate::state::Server;
use frond_runtime::yield_to_queued_tasks;
use frond_store::{MemoryUse, Reservation};

/// The memory of an idle connection: its task, its state, and a buffer of a few KiB.
pub const CONNECTION_BYTES: usize = 12 << 10;

/// The memory of its TLS besides.
const TLS_BYTES: usize = 24 << 10;

/// The time for a client to read its last reply when the server stops.
const LAST_REPLY_MAX: Duration = Duration::from_secs(1);

/// Time limit of a client's first message, with authorization on.
const FIRST_MESSAGE_MAX: Duration = Duration::from_secs(10);

/// Serves a client until it disconnects, breaks the protocol, or the server stops.
pub async fn serve<S>(server: Arc<Server>, mut stream: S, peer: Peer, gone: Arc<AtomicBool>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if let Some(open) = OpenConnection::admit(&server, &peer, gone) {
        // A reset would not free the buffers of a Unix socket.
        let _ = converse(&server, &open.connection, &mut stream).await;
    }
}

/// The way in which a connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Closing {
    /// Its client may read what was sent.
    Orderly,
    /// The system must not keep what was sent.
    Reset,
}

/// Serves a client that is admitted.
pub async fn converse<S>(server: &Server, connection: &Connection, stream: &mut S) -> Closing
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    converse_from(server, connection, stream, ClientState::default()).await
}

/// Serves a client that is admitted and that may be logged in already.
pub async fn converse_from<S>(
    server: &Server,
    connection: &Connection,
    stream: &mut S,
    mut state: ClientState,
) -> Closing
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // The user of the console has logged in elsewhere.
    let logs_out = state.identity.is_none();
    let mut conversation = Conversation {
        client: Client {
            server,
            connection,
            state: &mut state,
        },
        stream: &mut *stream,
        frames: Frames::new(
            server.execution.quotas.requests.clone(),
            connection.gone.clone(),
        ),
        stop: server.stop_signal(),
        stop_wait: StopWait::new(server),
    };
    let ended = conversation.run().await;
    abandoned(server, connection, &mut state);
    if logs_out {
        record_logout(server, connection, &state);
    }
    match &ended {
        Some(Ended::Malformed(error)) => {
            server.metrics.bad_messages.add(1);
            log_malformed(server, connection, error);
            if let Some(reply) = reply_to_other_protocol(error) {
                // The client may have disconnected.
                let sent = async {
                    stream.write_all(reply).await?;
                    stream.flush().await
                };
                let _ = tokio::time::timeout(LAST_REPLY_MAX, sent).await;
            }
        }
        Some(Ended::Stalled) => {
            server.metrics.connections_stalled.add(1);
            server.log.warning(
                Component::Network,
                9_916_001,
                &connection.name,
                "Closed a connection that held memory for requests or replies that others need, and was too slow to send or \
                 to read them",
                &doc! {"remote": connection.peer.to_string()},
            );
        }
        Some(Ended::Sockets) => {
            server.metrics.connections_stalled.add(1);
            server.log.warning(
                Component::Network,
                9_916_003,
                &connection.name,
                "Closed a connection whose requests wait for memory or whose replies are not read: sockets hold too much already",
                &doc! {"remote": connection.peer.to_string()},
            );
        }
        Some(Ended::LoginTime) => {
            let attributes = doc! {"remote": connection.peer.to_string()};
            server.log.info(
                Component::Access,
                9_916_002,
                &connection.name,
                "Closed a connection whose login was begun and did not end in time",
                &attributes,
            );
        }
        Some(Ended::Io(error)) if server.log.wants(Component::Network, Severity::Debug(2)) => {
            let attributes =
                doc! {"remote": connection.peer.to_string(), "error": error.to_string()};
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
    if matches!(ended, Some(Ended::Stalled | Ended::Sockets)) {
        return Closing::Reset;
    }
    // It fails if the client has disconnected, and may have to wait if a message announces the end.
    let _ = tokio::time::timeout(LAST_REPLY_MAX, stream.shutdown()).await;
    Closing::Orderly
}

/// Records that the end of a connection ends its login.
fn record_logout(server: &Server, connection: &Connection, state: &ClientState) {
    let (Some(audit), Some(user)) = (&server.audit, &state.identity) else {
        return;
    };
    let reason = "Implicit logout due to client connection closure";
    let param = audit::of_logout(reason, &user.name);
    let actor = Actor::Client(connection, Some(user));
    // The connection has ended; `record` counts and logs an event that cannot be written.
    let _ = audit.record(actor, "logout", &param, 0, When::After);
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

/// A connection that is admitted. However its task ends, also by a panic, it is removed.
pub struct OpenConnection<'a> {
    server: &'a Server,
    pub connection: Arc<Connection>,
    _address: Option<Entered<'a>>,
    _memory: Reservation,
}

impl<'a> OpenConnection<'a> {
    /// Admits a connection, unless there are too many of all clients or of its address.
    pub fn admit(
        server: &'a Server,
        peer: &Peer,
        gone: Arc<AtomicBool>,
    ) -> Option<OpenConnection<'a>> {
        let settings = &server.settings;
        let exempt = is_exempt(server, peer);
        let limit = |max| if exempt { usize::MAX } else { max };
        let refuse = |id, message: &str| {
            server.metrics.connections_rejected.add(1);
            let attributes = doc! {
                "remote": peer.to_string(),
                "connectionCount": server.clients.connections.len() as i64,
            };
            (server.log).info(Component::Network, id, "listener", message, &attributes);
        };
        let mut address = None;
        if let Peer::Tcp(remote) = peer {
            let max = limit(settings.connections_per_address);
            address = server.clients.connections.addresses.enter(remote.ip(), max);
            if address.is_none() {
                let message =
                    "Connection refused because there are too many open connections of its address";
                refuse(9_100_042, message);
                return None;
            }
        }
        let max = limit(settings.connections_max);
        let Some(connection) = server.clients.connections.open(peer.clone(), max, gone) else {
            let message = "Connection refused because there are too many open connections";
            refuse(22942, message);
            return None;
        };
        server.metrics.connections_created.add(1);
        let open = OpenConnection {
            server,
            connection,
            _address: address,
            _memory: server.store.memory().reserve(
                MemoryUse::Connections,
                CONNECTION_BYTES + tls_bytes(server, peer),
            ),
        };
        if !settings.quiet {
            server.log.info(
                Component::Network,
                22943,
                "listener",
                "Connection accepted",
                &doc! {
                    "remote": peer.to_string(),
                    "connectionId": open.connection.id,
                    "connectionCount": server.clients.connections.len() as i64,
                },
            );
        }
        Some(open)
    }
}

/// The memory of the TLS of a connection, if it may use it.
fn tls_bytes(server: &Server, peer: &Peer) -> usize {
    match (peer, &server.clients.tls) {
        (Peer::Tcp(_), Some(_)) => TLS_BYTES,
        _ => 0,
    }
}

/// Whether limits of connections do not stop this client.
fn is_exempt(server: &Server, peer: &Peer) -> bool {
    let mut exempt = server.settings.connections_exempt.iter();
    match peer {
        Peer::Tcp(address) => exempt.any(|one| one.names(address.ip())),
        Peer::Unix => {
            let path = server.settings.unix_socket_path(server.instance.port);
            path.is_some_and(|path| exempt.any(|one| one.names_socket(&path)))
        }
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.server.clients.connections.close(self.connection.id);
        if !self.server.settings.quiet {
            self.server.log.info(
                Component::Network,
                22944,
                &self.connection.name,
                "Connection ended",
                &doc! {
                    "remote": self.connection.peer.to_string(),
                    "connectionId": self.connection.id,
                    "connectionCount": self.server.clients.connections.len() as i64,
                },
            );
        }
    }
}

/// The reason for the end of a conversation; none if the server ends it.
type End = Option<Ended>;

/// The messages of a connection.
struct Conversation<'a, S> {
    client: Client<'a>,
    stream: &'a mut S,
    frames: Frames,
    stop: watch::Receiver<bool>,
    stop_wait: StopWait,
}

/// Waits for the server to stop between messages: one registration that stays, where [`stopped`] makes one for each wait.
struct StopWait {
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The waker that is registered.
    registered: Option<Waker>,
}

impl StopWait {
    fn new(server: &Server) -> StopWait {
        let mut signal = server.stop_signal();
        StopWait {
            stopped: Box::pin(async move { stopped(&mut signal).await }),
            registered: None,
        }
    }

    fn poll(&mut self, server: &Server, cx: &mut Context<'_>) -> Poll<()> {
        let is_registered = (self.registered.as_ref()).is_some_and(|one| one.will_wake(cx.waker()));
        if is_registered && !server.is_stopping() {
            return Poll::Pending;
        }
        self.registered = Some(cx.waker().clone());
        self.stopped.as_mut().poll(cx)
    }
}

impl<'a, S> Conversation<'a, S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// Handles messages one after the other, each before the next is read. So unacknowledged writes stay in order, and a
    /// client that sends faster than the store accepts is throttled by its own socket.
    async fn run(&mut self) -> End {
        if self.client.server.clients.access.is_enforced()
            && let Err(end) = self.first().await
        {
            return end;
        }
        loop {
            let answered = match self.next().await {
                Ok(message) => self.answer(message).await,
                Err(end) => return end,
            };
            if let Err(end) = answered {
                return end;
            }
            if let Some(from) = self.client.state.channel_of.take() {
                return self.serve_channel(from).await;
            }
        }
    }

    /// Answers another member of the replica set until one side ends.
    async fn serve_channel(&mut self, from: u64) -> End {
        if !self.frames.is_empty() {
            // The other side must wait for the reply, because what follows it is no message.
            return Some(Ended::Closed);
        }
        let side = &self.client.server.set.peers;
        tokio::select! {
            biased;
            () = stopped(&mut self.stop) => None,
            served = serve_channel(self.stream, from, side) => match served {
                Ok(()) => Some(Ended::Closed),
                Err(error) => Some(Ended::Io(error)),
            },
        }
    }

    /// Handles the first message, which must come in time: a client without a login must not keep a connection for nothing.
    async fn first(&mut self) -> Result<(), End> {
        let Ok(next) = tokio::time::timeout(FIRST_MESSAGE_MAX, self.next()).await else {
            let connection = self.client.connection;
            self.client.server.log.info(
                Component::Network,
                9_100_043,
                &connection.name,
                "Closed a connection whose client has sent no message in time",
                &doc! {"remote": connection.peer.to_string()},
            );
            return Err(None);
        };
        self.answer(next?).await
    }

    /// Waits for the next message.
    async fn next(&mut self) -> Result<Message, End> {
        let server = self.client.server;
        if server.is_stopping() {
            return Err(None);
        }
        let mut deadline = None;
        if server.clients.access.is_enforced() {
            self.frames.set_limit(message_bytes_max(&self.client));
            deadline = self.client.state.login.deadline();
        }
        let stop_wait = &mut self.stop_wait;
        let message = tokio::select! {
            biased;
            // First, because a client may always have bytes ready.
            () = until(deadline), if deadline.is_some() => return Err(Some(Ended::LoginTime)),
            next = self.frames.next(self.stream) => next.map_err(Some)?,
            () = poll_fn(|cx| stop_wait.poll(server, cx)) => return Err(None),
        };
        server.metrics.requests.add(1);
        let bytes = message.bytes().len() as u64;
        server.metrics.physical_bytes_in.add(bytes);
        Ok(message)
    }

    /// Sends all replies to a message; an exhaust command has several.
    async fn answer(&mut self, mut message: Message) -> Result<(), End> {
        let mut inflated = match inflate(&self.client, message.bytes()) {
            Ok(inflated) => inflated,
            Err(handled) => {
                self.frames.finish(message);
                return self.send_handled(handled, None).await;
            }
        };
        let compressor = inflated.as_ref().map(Inflated::compressor);
        let plain = inflated
            .as_ref()
            .map_or(message.bytes(), |one| &one.message);
        let wants_reply = wants_reply(plain);
        let mut exchange = Exchange::parse(plain);
        loop {
            let handled = self.next_reply(&mut exchange, wants_reply).await?;
            if !handled.again {
                // A client that is slow to read its last reply need not keep its request too.
                drop(exchange);
                if handled.has_secrets {
                    message.wipe();
                    if let Some(inflated) = &mut inflated {
                        inflated.message.zeroize();
                    }
                }
                drop(inflated);
                self.frames.finish(message);
                return self.send_handled(handled, compressor).await;
            }
            self.send_handled(handled, compressor).await?;
            if self.client.server.is_stopping() {
                return Err(None);
            }
        }
    }

    /// Makes the next reply to a message. If the client disconnects while its command waits, the command ends, unless the client
    /// waits for no reply: it may disconnect at once and have its write done.
    async fn next_reply(
        &mut self,
        exchange: &mut Exchange<'_>,
        wants_reply: bool,
    ) -> Result<Handled, End> {
        let reply = exchange.reply(&mut self.client);
        let handled = if wants_reply {
            tokio::select! {
                biased;
                handled = reply => handled,
                ended = self.frames.watch(self.stream) => return Err(Some(ended)),
            }
        } else {
            let _held = self.frames.leave().map_err(Some)?;
            reply.await
        };
        handled.map_err(|Stopping| None)
    }

    /// Sends the result of a message.
    async fn send_handled(
        &mut self,
        handled: Handled,
        compressor: Option<Compressor>,
    ) -> Result<(), End> {
        if let Some(time) = handled.wait {
            tokio::select! {
                biased;
                () = tokio::time::sleep(time) => {}
                ended = self.frames.watch(self.stream) => return Err(Some(ended)),
                () = stopped(&mut self.stop) => return Err(None),
            }
        }
        if let Some(reply) = handled.reply {
            let reply = match compressor {
                Some(compressor) => pack(reply, compressor),
                None => reply,
            };
            let server = self.client.server;
            server.metrics.physical_bytes_out.add(reply.len() as u64);
            yield_to_queued_tasks().await;
            self.send(&reply, handled.permit.is_some()).await?;
        }
        drop(handled.permit);
        // Failed logins close a connection only where logins are required.
        let login = &mut self.client.state.login;
        let closes =
            std::mem::take(&mut login.closes) && self.client.server.clients.access.is_enforced();
        if handled.close || closes {
            Err(None)
        } else {
            Ok(())
        }
    }

    /// Sends a reply. A client that does not read must not delay the shutdown.
    async fn send(&mut self, reply: &[u8], has_permit: bool) -> Result<(), End> {
        let quota = &self.client.server.execution.quotas.replies;
        let full = if self.frames.is_empty() {
            Full::Sent
        } else {
            Full::Both
        };
        let shutdown = async {
            stopped(&mut self.stop).await;
            tokio::time::sleep(LAST_REPLY_MAX).await;
        };
        tokio::select! {
            biased;
            sent = send(self.stream, reply, quota, has_permit, full) => sent.map_err(Some),
            () = shutdown => Err(None),
        }
    }
}

/// Sends a reply to a client that may not read. What it has not read is counted, and when others need the room, a client
/// that reads nothing loses its connection.
async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    reply: &[u8],
    quota: &MemoryQuota,
    has_permit: bool,
    full: Full,
) -> Result<(), Ended> {
    let mut rest = reply;
    let mut counted = None;
    loop {
        let step = match poll_fn(|cx| Poll::Ready(poll_send(stream, &mut rest, cx))).await {
            Poll::Ready(step) => step,
            Poll::Pending => {
                if counted.is_none() {
                    let socket = quota.in_socket(full).ok_or(Ended::Sockets)?;
                    counted = Some((socket, (!has_permit).then(|| quota.count(reply.len()))));
                }
                let time = if quota.sockets_are_short() {
                    STALLED_SOON
                } else {
                    STALLED
                };
                let step = poll_fn(|cx| poll_send(stream, &mut rest, cx));
                match tokio::time::timeout(time, step).await {
                    Ok(step) => step,
                    Err(_) if quota.sockets_are_short() => return Err(Ended::Sockets),
                    Err(_) if time == STALLED && quota.is_short() => return Err(Ended::Stalled),
                    Err(_) => continue,
                }
            }
        };
        if step.map_err(Ended::Io)? == Sent::All {
            return Ok(());
        }
    }
}

/// The progress of sending a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    More,
    All,
}

/// Sends more of a reply. A stream that buffers or encrypts is flushed at the end.
fn poll_send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    rest: &mut &[u8],
    cx: &mut Context<'_>,
) -> Poll<io::Result<Sent>> {
    if rest.is_empty() {
        return Pin::new(stream).poll_flush(cx).map_ok(|()| Sent::All);
    }
    Pin::new(stream)
        .poll_write(cx, rest)
        .map(|sent| match sent? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            sent => {
                *rest = rest.get(sent..).unwrap_or_default();
                Ok(Sent::More)
            }
        })
}

/// Returns when the server is to stop.
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The sender lives as long as the server.
    let _ = stop.wait_for(|stop| *stop).await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_store::{MemoryBudget, MemoryUse};
    use tokio::io::{AsyncReadExt, BufWriter};

    use super::*;
    use crate::socket_memory::SocketMemory;

    /// The first write used to wait without a limit, and was not counted.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_at_all_has_stalled() {
        let memory = MemoryBudget::for_clients(100 << 20);
        let quota = MemoryQuota::new(&memory, MemoryUse::Replies, 1 << 20);
        let (mut near, _far) = tokio::io::duplex(1);
        near.write_all(&[0]).await.unwrap();
        let reply = vec![0; 2 << 20];
        let sent = tokio::time::timeout(
            4 * STALLED,
            send(&mut near, &reply, &quota, false, Full::Sent),
        );
        assert!(matches!(sent.await, Ok(Err(Ended::Stalled))));
        assert_eq!(memory.used(MemoryUse::Replies), 0);
    }

    /// 200 clients that did not read had 280 MiB in their sockets.
    #[tokio::test(start_paused = true)]
    async fn a_reply_is_not_left_in_a_socket_when_sockets_hold_too_much() {
        let memory = MemoryBudget::for_clients(100 << 20);
        let sockets = SocketMemory::with(&memory, 16 << 20);
        let quota = MemoryQuota::beside(&sockets, &memory, MemoryUse::Replies, 64 << 20);
        let others = memory.reserve(MemoryUse::Sockets, 2 << 20);
        let (mut near, mut far) = tokio::io::duplex(64);
        let reply = vec![0; 2 << 20];
        let ended = send(&mut near, &reply, &quota, true, Full::Sent).await;
        assert!(matches!(ended, Err(Ended::Sockets)));
        drop(others);
        // While they hold much, a client has some time to read.
        let others = memory.reserve(MemoryUse::Sockets, 1 << 20);
        let began = tokio::time::Instant::now();
        let ended = send(&mut near, &reply, &quota, true, Full::Sent).await;
        assert!(matches!(ended, Err(Ended::Sockets)));
        assert_eq!(began.elapsed(), STALLED_SOON);
        drop(others);
        let mut read = vec![0; 64 + reply.len()];
        let sent = send(&mut near, &reply, &quota, true, Full::Both);
        let (sent, _) = tokio::join!(sent, far.read_exact(&mut read));
        assert!(sent.is_ok());
        assert_eq!(memory.used(MemoryUse::Sockets), 0);
    }

    #[tokio::test]
    async fn a_reply_is_flushed() {
        let memory = MemoryBudget::for_clients(100 << 20);
        let quota = MemoryQuota::new(&memory, MemoryUse::Replies, 1 << 20);
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = BufWriter::new(near);
        send(&mut near, b"reply", &quota, false, Full::Sent)
            .await
            .unwrap();
        let mut read = [0; 5];
        far.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"reply");
    }
}
