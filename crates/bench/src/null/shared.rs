//! The state that all connections of the null server share.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::counts::Counts;
use super::find::Prepared;

/// One side of a connection.
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn shut_down(&self) {
        // It may be closed already.
        let _ = match self {
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Both),
            Socket::Unix(socket) => socket.shutdown(Shutdown::Both),
        };
    }
}

impl Read for &Socket {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&mut &*socket).read(out),
            Socket::Unix(socket) => (&mut &*socket).read(out),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&mut &*socket).write(bytes),
            Socket::Unix(socket) => (&mut &*socket).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
pub struct Shared {
    pub counts: Counts,
    pub prepared: Prepared,
    pub(super) stop: AtomicBool,
    /// By the number of the connection, so that the server can end them all.
    connections: Mutex<HashMap<i32, Arc<Socket>>>,
}

impl Shared {
    pub(super) fn connections(&self) -> MutexGuard<'_, HashMap<i32, Arc<Socket>>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
