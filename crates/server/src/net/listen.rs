//! Binding addresses and accepting connections.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use frond_bson::doc;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener};

use crate::connection::Peer;
use crate::host::file_handles::{SpareHandle, is_out_of_handles};
use crate::net::secure::serve_tcp;
use crate::net::serve::serve;
use crate::observability::log::Component;
use crate::socket_memory::SocketBuffers;
use crate::state::Server;
use frond_runtime::Socket;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Connections that are refused at once when there are no file handles, before the listener looks around again.
const REFUSED_MAX: u64 = 128;

/// Idle time after which the system sends TCP keep-alive probes.
const KEEPALIVE: Duration = Duration::from_secs(120);

/// The addresses of a server: bound, so that no other process can take them, but not listening until the
/// server is ready.
pub struct Addresses {
    tcp: Vec<TcpSocket>,
    /// The TCP port, also if the system chose it.
    pub port: u16,
}

/// An address that cannot be bound.
#[derive(Debug)]
pub struct AddressError {
    pub address: String,
    /// The error of the system.
    pub error: io::Error,
}

impl std::fmt::Display for AddressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.error.kind() == io::ErrorKind::AddrInUse {
            write!(f, "the address {} is already in use", self.address)
        } else {
            write!(f, "cannot listen on {}: {}", self.address, self.error)
        }
    }
}

impl Addresses {
    /// Listens on the TCP addresses.
    pub fn listen(self) -> Result<Vec<TcpListener>, AddressError> {
        let listen = |socket: TcpSocket| {
            let address = socket.local_addr();
            if let Some(buffers) = SocketBuffers::of_this_process() {
                buffers.set(&socket);
            }
            socket.listen(BACKLOG).map_err(|error| AddressError {
                address: address.map(|a| a.to_string()).unwrap_or_default(),
                error,
            })
        };
        self.tcp.into_iter().map(listen).collect()
    }
}

/// Binds the TCP addresses.
pub fn bind_all(ips: &[IpAddr], port: u16) -> Result<Addresses, AddressError> {
    let mut addresses = Addresses {
        tcp: Vec::new(),
        port,
    };
    for ip in ips {
        let address = SocketAddr::new(*ip, addresses.port);
        let socket = bind(address).map_err(|error| AddressError {
            address: address.to_string(),
            error,
        })?;
        if addresses.port == 0 {
            // The other addresses use the port that the system chose for the first.
            addresses.port = socket
                .local_addr()
                .map_err(|error| AddressError {
                    address: address.to_string(),
                    error,
                })?
                .port();
        }
        addresses.tcp.push(socket);
    }
    Ok(addresses)
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    if address.is_ipv6() {
        // So that `::` and `0.0.0.0` can both be bound.
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // So that a restart need not wait until the connections of the last run leave TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// A Unix socket; its file is removed on drop.
pub struct UnixSocketFile {
    listener: Option<UnixListener>,
    path: PathBuf,
}

impl UnixSocketFile {
    /// Listens on a path. A file that a crashed server left there is replaced.
    pub fn listen(path: &Path, permissions: u32) -> Result<UnixSocketFile, AddressError> {
        let failed = |error| AddressError {
            address: path.display().to_string(),
            error,
        };
        if path.exists() {
            match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) => return Err(failed(io::ErrorKind::AddrInUse.into())),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(failed)?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let socket = UnixSocketFile {
            listener: Some(listener),
            path: path.to_path_buf(),
        };
        fs::set_permissions(path, fs::Permissions::from_mode(permissions)).map_err(failed)?;
        Ok(socket)
    }
}

impl Drop for UnixSocketFile {
    fn drop(&mut self) {
        // It may be removed already.
        let _ = fs::remove_file(&self.path);
    }
}

/// Accepts connections on every address until the server stops.
pub fn accept_all(
    server: &Arc<Server>,
    addresses: Addresses,
    unix: Option<&mut UnixSocketFile>,
) -> Result<(), AddressError> {
    for listener in addresses.listen()? {
        tokio::spawn(accept_tcp(server.clone(), listener));
    }
    if let Some(listener) = unix.and_then(|unix| unix.listener.take()) {
        tokio::spawn(accept_unix(server.clone(), listener));
    }
    Ok(())
}

async fn accept_tcp(server: Arc<Server>, listener: TcpListener) {
    let mut stop = server.stop_signal();
    let spare = SpareHandle::new();
    loop {
        let accepted = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                prepare(&stream);
                let local_ip = stream.local_addr().ok().map(|local| local.ip());
                begin(&server, stream.into_std(), |socket| {
                    serve_tcp(server.clone(), socket, Peer::Tcp(address), local_ip)
                });
            }
            Err(error) => accept_failed(&server, &error, &spare, || listener.accept()).await,
        }
    }
}

async fn accept_unix(server: Arc<Server>, listener: UnixListener) {
    let mut stop = server.stop_signal();
    let spare = SpareHandle::new();
    loop {
        let accepted = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                if let Some(buffers) = SocketBuffers::of_this_process() {
                    buffers.set(&stream);
                }
                begin(&server, stream.into_std(), |socket| {
                    let gone = socket.gone();
                    serve(server.clone(), socket, Peer::Unix, gone)
                });
            }
            Err(error) => accept_failed(&server, &error, &spare, || listener.accept()).await,
        }
    }
}

/// Begins to serve a connection.
fn begin<S, F>(server: &Arc<Server>, stream: io::Result<S>, serve: impl FnOnce(Socket<S>) -> F)
where
    S: AsFd + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let served = stream.and_then(|stream| server.execution.executor.pool.spawn(stream, serve));
    if let Err(error) = served {
        server.metrics.connections_rejected.add(1);
        log_failure(server, &error);
    }
}

fn log_failure(server: &Server, error: &io::Error) {
    server.log.error(
        Component::Network,
        23022,
        "listener",
        "Error accepting new connection",
        &doc! {"error": error.to_string()},
    );
}

/// Disables Nagle's algorithm and enables keep-alive. A socket that does not support this works without.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(stream, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(stream, KEEPALIVE);
}

/// Accepting fails, for example, when the process has too many open files; it may succeed again soon. Then the clients
/// that wait are refused: the spare handle is used to accept and close their connections.
async fn accept_failed<T, F: Future<Output = io::Result<T>>>(
    server: &Server,
    error: &io::Error,
    spare: &SpareHandle,
    accept: impl Fn() -> F,
) {
    log_failure(server, error);
    if is_out_of_handles(error) {
        spare.give_up();
        refuse_waiting(accept, || server.metrics.connections_rejected.add(1)).await;
        spare.take();
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Accepts and closes the connections that wait, up to [`REFUSED_MAX`]. Clients that connect again as fast as they are
/// refused must not keep the listener from its stop signal. Each one is counted before its client can see that it was
/// closed.
async fn refuse_waiting<T, F: Future<Output = io::Result<T>>>(
    accept: impl Fn() -> F,
    mut count: impl FnMut(),
) {
    for _ in 0..REFUSED_MAX {
        match tokio::time::timeout(Duration::from_millis(1), accept()).await {
            Ok(Ok(connection)) => {
                count();
                drop(connection);
            }
            // The end of the queue, or an error: another part of the server took the handle.
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_refusal_of_connections_ends() {
        let mut refused = 0;
        refuse_waiting(async || Ok(()), || refused += 1).await;
        assert_eq!(refused, REFUSED_MAX);
        let failing = async || Err::<(), _>(io::ErrorKind::Other.into());
        refuse_waiting(failing, || refused += 1).await;
        assert_eq!(refused, REFUSED_MAX, "a failed one was counted");
    }

    /// The count was added after the last of them, so that a client that was refused could read the old one.
    #[tokio::test]
    async fn a_refused_connection_is_counted_before_it_is_closed() {
        struct Closed<'a>(&'a std::cell::Cell<u64>, &'a std::cell::Cell<u64>);
        impl Drop for Closed<'_> {
            fn drop(&mut self) {
                self.1.set(self.1.get() + 1);
                assert_eq!(self.0.get(), self.1.get());
            }
        }
        let (counted, closed) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
        refuse_waiting(
            async || Ok(Closed(&counted, &closed)),
            || counted.set(counted.get() + 1),
        )
        .await;
        assert_eq!(closed.get(), REFUSED_MAX);
    }
}
