//! Serving one connection, within limits.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::header::{CACHE_CONTROL, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::call::{Call, Ends};
use super::places::Place;
use super::router::Router;

/// Connections of a server at the same time.
pub const CONNECTIONS_MAX: usize = 128;

/// Bytes of the head of a request, which is also the size of the read buffer.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Headers of a request.
const HEADERS_MAX: usize = 64;

/// Time for the head of a request, with the time that a connection waits for its next request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// Time in which a client has to read something.
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);

/// Bytes per second that a client has to read, so that a large reply does not stay in memory for long.
const READ_RATE_MIN: u64 = 64 << 10;

/// Time left for a reply when the server stops.
const LAST_REPLY_MAX: Duration = Duration::from_secs(1);

/// Headers of each reply. Pages of other origins can neither frame, embed nor guess at what is served here.
const HEADERS: [(&str, &str); 5] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Serves the requests of a connection until the client closes it, breaks the protocol, or `stop` is ready. Without a request the
/// connection may lose its place.
pub async fn serve_connection<S>(
    stream: S,
    ends: Ends,
    router: Arc<Router>,
    place: Arc<Place>,
    stop: impl Future,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let lost = place.clone();
    let service = service_fn(move |request| {
        let router = router.clone();
        let (place, busy) = (place.clone(), place.begin());
        async move {
            let mut reply = router.answer(Call::new(request, ends, place)).await;
            let headers = reply.headers_mut();
            for (name, value) in HEADERS {
                let value = HeaderValue::from_static(value);
                headers.entry(name).or_insert(value);
            }
            (headers.entry(CACHE_CONTROL)).or_insert(HeaderValue::from_static("no-store"));
            reply.body_mut().keep(busy);
            Ok::<_, Infallible>(reply)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(Timed::new(stream)), service);
    let mut connection = pin!(connection);
    // Only the client needs to know the result.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = lost.lost() => {}
        _ = stop => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(LAST_REPLY_MAX, connection).await;
        }
    }
}

/// A stream whose writes fail when the client reads nothing for a while.
struct Timed<S> {
    stream: S,
    /// Set while a write waits.
    late: Option<Pin<Box<Sleep>>>,
    /// When the first bytes were written of those that are not all sent, and how many were.
    sending: Option<(Instant, u64)>,
}

impl<S> Timed<S> {
    fn new(stream: S) -> Timed<S> {
        Timed {
            stream,
            late: None,
            sending: None,
        }
    }

    /// The result of a write of bytes.
    fn wrote(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let sending = self.sending.get_or_insert_with(|| (Instant::now(), 0));
        if let Poll::Ready(Ok(bytes)) = &written {
            sending.1 += *bytes as u64;
        }
        self.check(written, cx)
    }

    /// When a write that waits now has waited for too long.
    fn deadline(&self) -> Instant {
        let now = Instant::now();
        let (began, sent) = self.sending.unwrap_or((now, 0));
        let due = began + WRITE_TIME_MAX + Duration::from_secs(sent / READ_RATE_MIN);
        due.min(now + WRITE_TIME_MAX)
    }

    /// The result of a write, or an error once it has waited for too long.
    fn check<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.late = None;
            return written;
        }
        let deadline = self.deadline();
        let late = (self.late).get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        late.as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, out)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.wrote(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            self.sending = None;
        }
        self.check(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.check(shut, cx)
    }
}
