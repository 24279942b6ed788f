//! Accepting connections of the HTTP server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use frond_bson::doc;
use frond_http::{CONNECTIONS_MAX, Ends, Place, Places, Router, serve_connection};
use frond_wire::TLS_HANDSHAKE;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::http::routes;
use crate::net::listen::{AddressError, Addresses};
use crate::net::serve::stopped;
use crate::observability::log::Component;
use crate::settings::TlsMode;
use crate::state::Server;
use crate::tls::Tls;

/// Time limit for the first byte of a connection and for the handshake of TLS.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Connections of one address at the same time, so that one client cannot take all.
const CONNECTIONS_PER_ADDRESS: usize = CONNECTIONS_MAX / 2;

/// The reply to a browser that does not encrypt where it has to.
const NEEDS_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\
    Content-Length: 44\r\n\r\nThis server requires TLS: use https:// here.\n";

/// Answers HTTP requests at these addresses until the server stops.
///
/// # Errors
/// If an address cannot be listened at.
pub fn accept_http(server: &Arc<Server>, addresses: Addresses) -> Result<(), AddressError> {
    let router = routes(server).map_err(|error| AddressError {
        address: format!("port {}", addresses.port),
        error: io::Error::other(error),
    })?;
    let router = Arc::new(router);
    let places = Places::new(CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS);
    for listener in addresses.listen()? {
        let address = listener.local_addr().map(|address| address.to_string());
        let tls = (server.clients.tls.as_ref()).map_or(TlsMode::Disabled, |tls| tls.mode);
        server.log.info(
            Component::Network,
            9_100_060,
            "listener",
            "Listening for HTTP",
            &doc! {
                "address": address.unwrap_or_default(),
                "ssl": if tls == TlsMode::Disabled { "off" } else { "on" },
            },
        );
        tokio::spawn(accept(
            server.clone(),
            listener,
            router.clone(),
            places.clone(),
        ));
    }
    Ok(())
}

async fn accept(
    server: Arc<Server>,
    listener: TcpListener,
    router: Arc<Router>,
    places: Arc<Places>,
) {
    let mut stop = server.stop_signal();
    loop {
        // Those who find no place wait to be accepted.
        let accepted = async {
            let (stream, client) = listener.accept().await?;
            let place = places.enter(client.ip()).await;
            io::Result::Ok((stream, client, place))
        };
        let accepted = tokio::select! {
            () = stopped(&mut stop) => return,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, client, Some(place))) => {
                let (server, router) = (server.clone(), router.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = place.lost() => {}
                        // The reason for its end concerns its client only.
                        _ = serve(&server, stream, client, router, place.clone()) => {}
                    }
                });
            }
            Ok((_, _, None)) => {}
            Err(error) => {
                server.log.error(
                    Component::Network,
                    9_100_061,
                    "listener",
                    "Error accepting new HTTP connection",
                    &doc! {"error": error.to_string()},
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(
    server: &Server,
    mut stream: TcpStream,
    client: SocketAddr,
    router: Arc<Router>,
    place: Arc<Place>,
) -> io::Result<()> {
    let _ = stream.set_nodelay(true);
    let mut stop = server.stop_signal();
    let mut ends = Ends {
        client,
        server: stream.local_addr()?,
        is_secure: false,
    };
    let Some(tls) = &server.clients.tls else {
        serve_connection(stream, ends, router, place, stopped(&mut stop)).await;
        return Ok(());
    };
    let mut first = [0];
    let bytes = timeout(HANDSHAKE_MAX, stream.peek(&mut first)).await??;
    if bytes == 1 && first == [TLS_HANDSHAKE] {
        ends.is_secure = true;
        let stream = timeout(HANDSHAKE_MAX, secure(tls, stream)).await??;
        serve_connection(stream, ends, router, place, stopped(&mut stop)).await;
    } else if tls.mode == TlsMode::Require {
        stream.write_all(NEEDS_TLS).await?;
        stream.shutdown().await?;
    } else {
        serve_connection(stream, ends, router, place, stopped(&mut stop)).await;
    }
    Ok(())
}

/// Shakes hands with a browser. What certificates it needs is as for other clients.
async fn secure(
    tls: &Tls,
    stream: TcpStream,
) -> io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    let current = tls.current();
    let stream = TlsAcceptor::from(current.config()).accept(stream).await?;
    let peer = (current.peer(stream.get_ref().1)).map_err(io::Error::other)?;
    tls.counts.add(peer.protocol);
    Ok(stream)
}
