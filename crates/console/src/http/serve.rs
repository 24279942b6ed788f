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
use tokio::time::{Sleep, sleep};

use super::call::{Call, Ends};
use super::router::Router;

/// Connections of a server at the same time.
pub const CONNECTIONS_MAX: usize = 128;

/// Bytes of the head of a request, which is also the size of the read buffer.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Headers of a request.
const HEADERS_MAX: usize = 64;

/// Time for the head of a request, with the time that a connection waits for its next request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);

/// Time in which a client has to read something.
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a reply may still take when the server stops.
const LAST_REPLY_MAX: Duration = Duration::from_secs(1);

/// Headers of each reply. Pages of other origins can neither frame, embed nor guess at what is served here.
const HEADERS: [(&str, &str); 5] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Serves the requests of a connection until the client closes it, breaks the protocol, or `stop` is ready.
pub async fn serve_connection<S>(stream: S, ends: Ends, router: Arc<Router>, stop: impl Future)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| {
        let router = router.clone();
        async move {
            let mut reply = router.answer(Call::new(request, ends)).await;
            let headers = reply.headers_mut();
            for (name, value) in HEADERS {
                let value = HeaderValue::from_static(value);
                headers.entry(name).or_insert(value);
            }
            (headers.entry(CACHE_CONTROL)).or_insert(HeaderValue::from_static("no-store"));
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
    // How it ended matters to its client only.
    tokio::select! {
        _ = connection.as_mut() => {}
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
}

impl<S> Timed<S> {
    fn new(stream: S) -> Timed<S> {
        Timed { stream, late: None }
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
        let late = (self.late).get_or_insert_with(|| Box::pin(sleep(WRITE_TIME_MAX)));
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
        self.check(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.check(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.check(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.check(shut, cx)
    }
}
