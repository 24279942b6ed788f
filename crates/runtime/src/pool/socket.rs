//! The sockets of tasks, and whether they are ready.

use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::epoll;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The readiness of a socket. A bit is cleared before the call that tests it, so that an event during the call is not lost.
#[derive(Default)]
pub(super) struct Ready {
    bits: AtomicU8,
    /// Whether the other side has closed the socket, for others than its task.
    gone: Arc<AtomicBool>,
}

const READ: u8 = 1;
const WRITE: u8 = 2;
/// The other side has closed it: whatever is left can be read without waiting.
const CLOSED: u8 = 4;

impl Ready {
    pub(super) fn add(&self, flags: epoll::EventFlags) {
        let mut bits = 0;
        let closed = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(closed) {
            bits |= CLOSED | READ;
            self.gone.store(true, Ordering::Relaxed);
        }
        if flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            bits |= WRITE;
        }
        if flags.intersects(epoll::EventFlags::IN) {
            bits |= READ;
        }
        if flags.intersects(epoll::EventFlags::OUT) {
            bits |= WRITE;
        }
        self.bits.fetch_or(bits, Ordering::AcqRel);
    }

    fn set(&self, bit: u8) {
        self.bits.fetch_or(bit, Ordering::AcqRel);
    }

    fn take(&self, bit: u8) -> bool {
        self.bits.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    fn is_closed(&self) -> bool {
        self.bits.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Calls until it does not have to wait. `bytes` is the number that the call was asked for: if it has fewer, the next
    /// one would have to wait for an event.
    fn when(
        &self,
        bit: u8,
        bytes: usize,
        mut call: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if !self.take(bit) {
                // The event runs the task again.
                return Poll::Pending;
            }
            match call() {
                Ok(n) => {
                    if n == bytes || n == 0 || self.is_closed() {
                        self.set(bit);
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.set(bit),
                Err(error) => {
                    self.set(bit);
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

/// A stream of a task of the pool. Only this task may use it: events of the socket wake no other.
pub struct Socket<S> {
    stream: Arc<S>,
    ready: Arc<Ready>,
}

impl<S> Socket<S> {
    pub(super) fn new(stream: Arc<S>, ready: Arc<Ready>) -> Socket<S> {
        Socket { stream, ready }
    }

    /// A flag that is set when the client closes the socket, also while its task does not read.
    pub fn gone(&self) -> Arc<AtomicBool> {
        self.ready.gone.clone()
    }
}

impl<S: AsFd> Socket<S> {
    /// Resets the connection when it is closed. Otherwise the system keeps what was sent until the client has read it.
    pub fn reset_when_closed(&self) {
        // A socket that does not support it is closed as usual.
        let _ = set_socket_linger(&*self.stream, Some(Duration::ZERO));
    }

    /// Waits for enough bytes to fill a buffer, and leaves them to be read. There are fewer if the client closes the socket
    /// before.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len();
        poll_fn(|_| {
            loop {
                let peek = || Ok(recv(&*self.stream, &mut *buffer, RecvFlags::PEEK)?.1);
                match ready!(self.ready.when(READ, wanted, peek)) {
                    // More may come: its event runs the task again.
                    Ok(bytes) if (1..wanted).contains(&bytes) && !self.ready.is_closed() => {}
                    peeked => return Poll::Ready(peeked),
                }
            }
        })
        .await
    }
}

impl<S> AsyncRead for Socket<S>
where
    S: Unpin,
    for<'s> &'s S: Read,
{
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        let read = self
            .ready
            .when(READ, room.len(), || (&*self.stream).read(room));
        read.map_ok(|bytes| buffer.advance(bytes))
    }
}

impl<S> AsyncWrite for Socket<S>
where
    S: AsFd + Unpin,
    for<'s> &'s S: Write,
{
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = || (&*self.stream).write(bytes);
        self.ready.when(WRITE, bytes.len(), write)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let write = || (&*self.stream).write_vectored(parts);
        self.ready.when(WRITE, bytes, write)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Write);
        Poll::Ready(shut.map_err(io::Error::from))
    }
}
