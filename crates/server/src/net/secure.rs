//! Connections that may be encrypted.
//!
//! The setting and the first bytes of the client decide. Both kinds of connections are then served by the same code,
//! [`converse`], which is compiled once for each.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use frond_bson::doc;
use frond_tls::rustls::ServerConfig;
use frond_wire::{HEADER_BYTES, Header, TLS_HANDSHAKE};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::connection::{Connection, Peer};
use crate::net::serve::{Closing, OpenConnection, converse, stopped};
use crate::observability::log::{Component, Severity};
use crate::settings::TlsMode;
use crate::state::Server;
use crate::tls::Tls;
use frond_runtime::Socket;

/// Time limit of the client's part of a handshake, and of its first bytes if TLS is required.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Time limit of a handshake with its time in the queue. Clients give up long before.
const HANDSHAKE_AND_TURNS_MAX: Duration = Duration::from_secs(60);

/// Serves a client of a TCP address until it disconnects, breaks the protocol, or the server stops.
pub async fn serve_tcp<S>(
    server: Arc<Server>,
    mut socket: Socket<S>,
    peer: Peer,
    local_ip: Option<IpAddr>,
) where
    S: AsFd + Unpin,
    for<'s> &'s S: io::Read + io::Write,
{
    let Some(open) = OpenConnection::admit(&server, &peer, socket.gone()) else {
        return;
    };
    if let Some(ip) = local_ip {
        open.connection.local_ip.get_or_init(|| ip);
    }
    match &server.clients.tls {
        None => {
            if converse(&server, &open.connection, &mut socket).await == Closing::Reset {
                socket.reset_when_closed();
            }
        }
        // In a box, so that connections without TLS need no memory for it.
        Some(tls) => Box::pin(serve_either(&server, tls, &open.connection, socket)).await,
    }
}

async fn serve_either<S>(server: &Server, tls: &Tls, connection: &Connection, mut socket: Socket<S>)
where
    S: AsFd + Unpin,
    for<'s> &'s S: io::Read + io::Write,
{
    let mut stop = server.stop_signal();
    let begun = tokio::select! {
        biased;
        begun = begin(server, tls, connection, &socket) => begun,
        () = stopped(&mut stop) => return,
    };
    match begun {
        Err(reason) => refuse(server, connection, &reason),
        Ok(Begun::Nothing) => {}
        Ok(Begun::Plain) => {
            if converse(server, connection, &mut socket).await == Closing::Reset {
                socket.reset_when_closed();
            }
        }
        Ok(Begun::Tls) => {
            let secured = tokio::select! {
                biased;
                secured = secure(server, tls, connection, socket) => secured,
                () = stopped(&mut stop) => return,
            };
            match secured {
                Ok(mut stream) => {
                    if converse(server, connection, &mut stream).await == Closing::Reset {
                        stream.get_ref().0.reset_when_closed();
                    }
                }
                Err(reason) => refuse(server, connection, &reason),
            }
        }
    }
}

/// The kind of a connection, by its first bytes.
enum Begun {
    /// It closed the connection, as the health check of a load balancer does.
    Nothing,
    Plain,
    Tls,
}

/// Waits for the first bytes of a client, which stay in the socket.
async fn begin<S>(
    server: &Server,
    tls: &Tls,
    connection: &Connection,
    socket: &Socket<S>,
) -> Result<Begun, String>
where
    S: AsFd,
{
    let first = async {
        let mut first = [0; HEADER_BYTES];
        let mut bytes = socket.peek(&mut first[..1]).await?;
        if first[0] == TLS_HANDSHAKE {
            bytes = socket.peek(&mut first).await?;
        }
        Ok::<_, io::Error>((bytes, Header::parse(first.get(..bytes).unwrap_or_default())))
    };
    // A client that needs neither TLS nor a login may take its time.
    let is_limited = tls.mode == TlsMode::Require || server.clients.access.is_enforced();
    let first = if is_limited {
        tokio::time::timeout(HANDSHAKE_MAX, first).await
    } else {
        Ok(first.await)
    };
    let (bytes, first) = first
        .map_err(|_| "the client has sent no message in time".to_owned())?
        .map_err(|error| error.to_string())?;
    if bytes == 0 {
        return Ok(Begun::Nothing);
    }
    if first.is_ok_and(|header| header.begins_tls()) {
        return Ok(Begun::Tls);
    }
    match tls.mode {
        TlsMode::Require => {
            Err("The server is configured to only allow SSL connections".to_owned())
        }
        TlsMode::Prefer => {
            let attributes = doc! {
                "connectionId": connection.id, "remote": connection.peer.to_string(),
            };
            server.log.info(
                Component::Network,
                23838,
                &connection.name,
                "SSL mode is set to 'preferred' and connection to remote is not using SSL.",
                &attributes,
            );
            Ok(Begun::Plain)
        }
        _ => Ok(Begun::Plain),
    }
}

/// Shakes hands with a client, and notes who it is.
async fn secure<S>(
    server: &Server,
    tls: &Tls,
    connection: &Connection,
    socket: Socket<S>,
) -> Result<TlsStream<Socket<S>>, String>
where
    S: AsFd + Unpin,
    for<'s> &'s S: io::Read + io::Write,
{
    // A rotation that comes now is for later connections.
    let current = tls.current();
    let stream = shake_hands(server, tls, current.config(), socket)
        .await
        .map_err(|error| error.to_string())?;
    let peer = current.peer(stream.get_ref().1)?;
    tls.counts.add(peer.protocol);
    let remote = connection.peer.to_string();
    if let Some(protocol) = peer.protocol
        && tls.log_versions.contains(&protocol)
    {
        server.log.info(
            Component::Network,
            23218,
            &connection.name,
            "Accepted connection with TLS",
            &doc! {"tlsVersion": protocol.number(), "remoteHost": &remote},
        );
    }
    if let Some(reason) = &peer.invalid {
        server.log.warning(
            Component::Network,
            23236,
            &connection.name,
            "SSL peer certificate validation failed",
            &doc! {"reason": reason, "remote": &remote},
        );
    }
    if let Some(certificate) = peer.certificate {
        let is_member = certificate.is_of_same_organisation(&current.certificate);
        (connection.has_member_certificate).store(is_member, Ordering::Relaxed);
        // It is set here only.
        let _ = connection.certificate_subject.set(certificate.subject);
    }
    Ok(stream)
}

/// Shakes hands with a client. Each step computes for long, compared with a request, so there are only some at a time, and
/// no thread is held while it waits for the client or for its turn. The time that it waits for its turn counts only for the
/// longer limit: after a restart of the server all its clients come at once. Those that have given up get no turn, or they
/// would keep others waiting until these give up too.
async fn shake_hands<S>(
    server: &Server,
    tls: &Tls,
    config: Arc<ServerConfig>,
    socket: Socket<S>,
) -> io::Result<TlsStream<Socket<S>>>
where
    S: AsFd + Unpin,
    for<'s> &'s S: io::Read + io::Write,
{
    let gone = socket.gone();
    let began = Instant::now();
    let mut accept = pin!(TlsAcceptor::from(config).accept(socket));
    let mut left = HANDSHAKE_MAX;
    loop {
        let turn = tls.turns.acquire().await.map_err(io::Error::other)?;
        if gone.load(Ordering::Relaxed) {
            let text = "the client has closed the connection during the TLS handshake";
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, text));
        }
        if began.elapsed() > HANDSHAKE_AND_TURNS_MAX {
            let text = "the server had no time for the TLS handshake";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        server.execution.executor.pool.leave();
        let step = poll_fn(|cx| Poll::Ready(accept.as_mut().poll(cx))).await;
        drop(turn);
        if let Poll::Ready(done) = step {
            return done;
        }
        let waits = Instant::now();
        // The timer runs the task again, too, and `timeout` polls its future first. So only the remaining time decides.
        let _ = tokio::time::timeout(left, run_again()).await;
        left = left.saturating_sub(waits.elapsed());
        if left.is_zero() {
            let text = "the client did not finish the TLS handshake in time";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
    }
}

/// Returns when the task is run again, by an event of its socket or by a timer.
async fn run_again() {
    let mut is_first = true;
    poll_fn(|_| {
        if std::mem::take(&mut is_first) {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
}

/// Logs why a connection is closed before its first message.
fn refuse(server: &Server, connection: &Connection, reason: &str) {
    server.metrics.bad_messages.add(1);
    let attributes = doc! {
        "remote": connection.peer.to_string(),
        "connectionId": connection.id,
        "error": {"code": 141, "codeName": "SSLHandshakeFailed", "errmsg": reason},
    };
    server.log.line(
        Severity::Info,
        Component::Network,
        22988,
        &connection.name,
        "Error receiving request from client. Ending connection from remote",
        &attributes,
    );
}
