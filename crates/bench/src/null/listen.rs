//! Accepting connections, each on a thread of its own, and ending them all.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::connection::Connection;
use super::counts::Counts;
use crate::descriptors;
use frond_client::{Error, Result, uri::Address};

/// Connections at the same time; more are closed as they come.
const CONNECTIONS_MAX: usize = 1100;

/// Calls are shallow, and a thousand threads must take little memory.
const STACK_BYTES: usize = 256 << 10;

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Binds, and says where: a port of 0 becomes a free one.
    fn bind(address: &Address) -> io::Result<(Listener, Address)> {
        match address {
            Address::Tcp(host, port) => {
                let listener = TcpListener::bind((host.as_str(), *port))?;
                let port = listener.local_addr()?.port();
                Ok((Listener::Tcp(listener), Address::Tcp(host.clone(), port)))
            }
            Address::Unix(path) => {
                remove_left_behind(path);
                let listener = UnixListener::bind(path)?;
                Ok((Listener::Unix(listener), address.clone()))
            }
        }
    }

    /// Accepts a connection. A TCP socket is handled as a Unix one: reading, writing and shutting down are the same.
    fn accept(&self) -> io::Result<UnixStream> {
        match self {
            Listener::Tcp(listener) => {
                let (socket, _) = listener.accept()?;
                socket.set_nodelay(true)?;
                Ok(UnixStream::from(OwnedFd::from(socket)))
            }
            Listener::Unix(listener) => Ok(listener.accept()?.0),
        }
    }
}

/// Removes the socket of a server that is gone.
fn remove_left_behind(path: &Path) {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        // If this fails, binding says why.
        let _ = std::fs::remove_file(path);
    }
}

#[derive(Default)]
struct Shared {
    counts: Counts,
    stop: AtomicBool,
    /// By the number of the connection, so that the server can end them all.
    connections: Mutex<HashMap<i32, Arc<UnixStream>>>,
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, HashMap<i32, Arc<UnixStream>>> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }
}

fn shut_down(socket: &UnixStream) {
    // It may be closed already.
    let _ = socket.shutdown(Shutdown::Both);
}

/// A server that runs until this is dropped.
pub struct NullServer {
    address: Address,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// Starts a server in this process. The caller says where; with port 0 the system picks a free one.
pub fn start(address: &Address) -> Result<NullServer> {
    descriptors::allow_many();
    let (listener, address) = Listener::bind(address)
        .map_err(|error| Error::Io(format!("listening on {}", address.host_and_port()), error))?;
    let shared = Arc::new(Shared::default());
    let of_thread = Arc::clone(&shared);
    let acceptor = std::thread::Builder::new()
        .name("null-accept".to_owned())
        .spawn(move || accept(&listener, &of_thread))
        .map_err(|error| Error::Io("starting a thread".to_owned(), error))?;
    Ok(NullServer {
        address,
        shared,
        acceptor: Some(acceptor),
    })
}

impl NullServer {
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Where it listens, as clients write it.
    pub fn uri(&self) -> String {
        format!("mongodb://{}/", self.address.in_uri())
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Wakes the thread that waits for connections.
        let woken = match &self.address {
            Address::Tcp(host, port) => TcpStream::connect((host.as_str(), *port)).is_ok(),
            Address::Unix(path) => UnixStream::connect(path).is_ok(),
        };
        if let Some(acceptor) = self.acceptor.take()
            && woken
        {
            // A panic there has shown itself.
            let _ = acceptor.join();
        }
        for socket in self.shared.connections().values() {
            shut_down(socket);
        }
        if let Address::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    let mut next_id: i32 = 0;
    loop {
        let accepted = listener.accept();
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let Ok(socket) = accepted else {
            // The client is gone already, or descriptors are short: then others must end first.
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let mut connections = shared.connections();
        if connections.len() >= CONNECTIONS_MAX {
            continue;
        }
        next_id = next_id.wrapping_add(1) & i32::MAX;
        let (id, socket) = (next_id, Arc::new(socket));
        connections.insert(id, Arc::clone(&socket));
        drop(connections);
        let of_thread = Arc::clone(shared);
        let spawned = std::thread::Builder::new()
            .name("null".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let _end = End(&of_thread, id);
                Connection::new(&of_thread.counts, id).serve(&socket);
            });
        if spawned.is_err() {
            shared.connections().remove(&id);
        }
    }
}

/// Forgets a connection however its thread ends. The socket closes with the thread.
struct End<'a>(&'a Shared, i32);

impl Drop for End<'_> {
    fn drop(&mut self) {
        if let Some(socket) = self.0.connections().remove(&self.1) {
            shut_down(&socket);
        }
    }
}
