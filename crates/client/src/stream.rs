//! A blocking socket whose waits end when the user asks to stop.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::encryption::Encrypted;
use crate::error::{Error, Result};
use crate::uri::{Address, Uri};

/// Interval at which a wait checks whether it should end.
const POLL: Duration = Duration::from_millis(250);

/// Time left for a pending answer once the user asked to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Encrypted(Box<Encrypted>),
}

/// A connection to the server: bytes out, bytes in.
pub struct Stream {
    socket: Socket,
    timeout: Option<Duration>,
    stop: Arc<AtomicBool>,
}

impl Stream {
    /// Connects as a connection string says.
    pub fn connect(uri: &Uri, stop: Arc<AtomicBool>) -> Result<Stream> {
        let mut stream = Stream::open(&uri.address, uri.connect_timeout, uri.socket_timeout, stop)?;
        if let Some(encryption) = &uri.encryption
            && let Address::Tcp(host, _) = &uri.address
        {
            stream.socket = match stream.socket {
                Socket::Tcp(socket) => Socket::Encrypted(Box::new(encryption.wrap(socket, host)?)),
                other => other,
            };
        }
        Ok(stream)
    }

    /// Connects. Every address that the host name has is tried. `timeout` is the longest wait for an
    /// answer.
    pub fn open(
        address: &Address,
        connect_timeout: Option<Duration>,
        timeout: Option<Duration>,
        stop: Arc<AtomicBool>,
    ) -> Result<Stream> {
        let socket = match address {
            Address::Tcp(host, port) => {
                connect_tcp(host, *port, connect_timeout).and_then(|socket| {
                    socket.set_nodelay(true)?;
                    socket.set_read_timeout(Some(POLL))?;
                    socket.set_write_timeout(Some(POLL))?;
                    Ok(Socket::Tcp(socket))
                })
            }
            Address::Unix(path) => UnixStream::connect(path).and_then(|socket| {
                socket.set_read_timeout(Some(POLL))?;
                socket.set_write_timeout(Some(POLL))?;
                Ok(Socket::Unix(socket))
            }),
        };
        let socket = socket.map_err(|error| {
            let host_and_port = address.host_and_port();
            Error::Io(format!("connecting to {host_and_port}"), error)
        })?;
        Ok(Stream {
            socket,
            timeout,
            stop,
        })
    }

    /// Sends all bytes. A server that takes them slowly makes this wait.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        let doing = "sending to the server";
        let mut wait = Wait::new(self.timeout, &self.stop);
        while !bytes.is_empty() {
            let sent = match &mut self.socket {
                Socket::Tcp(socket) => socket.write(bytes),
                Socket::Unix(socket) => socket.write(bytes),
                Socket::Encrypted(socket) => socket.write(bytes),
            };
            match sent {
                Ok(0) => return Err(closed(doing)),
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(error) => wait.go_on(doing, error)?,
            }
        }
        if let Socket::Encrypted(socket) = &mut self.socket {
            while let Err(error) = socket.flush() {
                wait.go_on(doing, error)?;
            }
        }
        Ok(())
    }

    /// Reads the bytes that are there, at least one, and returns how many.
    pub fn receive_some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut wait = Wait::new(self.timeout, &self.stop);
        loop {
            let read = read_once(&mut self.socket, buffer, &mut wait)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
        }
    }
}

/// Reads once. 0 bytes came if the wait goes on.
fn read_once(socket: &mut Socket, buffer: &mut [u8], wait: &mut Wait<'_>) -> Result<usize> {
    let doing = "waiting for the server's answer";
    let received = match socket {
        Socket::Tcp(socket) => socket.read(buffer),
        Socket::Unix(socket) => socket.read(buffer),
        Socket::Encrypted(socket) => socket.read(buffer),
    };
    match received {
        Ok(0) if !buffer.is_empty() => Err(closed(doing)),
        Ok(read) => Ok(read),
        Err(error) => wait.go_on(doing, error).map(|()| 0),
    }
}

fn closed(doing: &str) -> Error {
    let error = io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the server closed the connection",
    );
    Error::Io(doing.to_owned(), error)
}

fn connect_tcp(host: &str, port: u16, timeout: Option<Duration>) -> io::Result<TcpStream> {
    let mut last = None;
    for address in (host, port).to_socket_addrs()? {
        let tried = match timeout {
            Some(timeout) => TcpStream::connect_timeout(&address, timeout),
            None => TcpStream::connect(address),
        };
        match tried {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such host")))
}

/// Decides whether a read or write that did not finish is tried again.
struct Wait<'a> {
    deadline: Option<Instant>,
    stop: &'a AtomicBool,
    stopped_at: Option<Instant>,
}

impl<'a> Wait<'a> {
    fn new(timeout: Option<Duration>, stop: &'a AtomicBool) -> Self {
        Wait {
            deadline: timeout.map(|timeout| Instant::now() + timeout),
            stop,
            stopped_at: None,
        }
    }

    fn go_on(&mut self, doing: &str, error: io::Error) -> Result<()> {
        match error.kind() {
            io::ErrorKind::Interrupted => return Ok(()),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {}
            _ => return Err(Error::Io(doing.to_owned(), error)),
        }
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            let error = io::Error::new(io::ErrorKind::TimedOut, "socketTimeoutMS has passed");
            return Err(Error::Io(doing.to_owned(), error));
        }
        if self.stop.load(Ordering::Relaxed) {
            let since = *self.stopped_at.get_or_insert(now);
            if now - since >= STOP_GRACE {
                return Err(Error::Stopped);
            }
        }
        Ok(())
    }
}
