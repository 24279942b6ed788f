//! A reply.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use super::places::Busy;

/// A reply with its body in memory.
pub type Reply = Response<Body>;

/// The body of a reply: bytes in memory.
#[derive(Debug, Default)]
pub struct Body {
    bytes: Bytes,
    /// Room for the bytes, which is given back when they are sent.
    room: Option<OwnedSemaphorePermit>,
    /// Keeps the place of the connection until they are sent.
    busy: Option<Busy>,
}

impl Body {
    /// A body with the room that it takes.
    pub fn with_room(bytes: Bytes, room: Option<OwnedSemaphorePermit>) -> Body {
        Body {
            bytes,
            room,
            busy: None,
        }
    }

    /// Keeps the place of the connection until the body is sent.
    pub(super) fn keep(&mut self, busy: Busy) {
        self.busy = Some(busy);
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body::with_room(bytes, None)
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.is_empty() {
            Poll::Ready(None)
        } else {
            Poll::Ready(Some(Ok(Frame::data(bytes))))
        }
    }

    fn is_end_stream(&self) -> bool {
        // The connection drops a body that has ended, and with it the room.
        self.bytes.is_empty() && self.room.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

/// A reply with a content type.
pub fn bytes(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Reply {
    let mut reply = Response::new(body.into());
    *reply.status_mut() = status;
    let value = HeaderValue::from_static(content_type);
    reply.headers_mut().insert(CONTENT_TYPE, value);
    reply
}

/// A reply in plain text.
pub fn text(status: StatusCode, body: impl Into<String>) -> Reply {
    bytes(
        status,
        "text/plain; charset=utf-8",
        Bytes::from(body.into()),
    )
}

/// A reply in JSON.
pub fn json(status: StatusCode, body: impl Into<String>) -> Reply {
    bytes(status, "application/json", Bytes::from(body.into()))
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    message: String,
    /// Seconds after which another try may succeed.
    retry_after: Option<u64>,
}

impl Refusal {
    /// A refusal with a message for people.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal {
            status,
            message: message.into(),
            retry_after: None,
        }
    }

    /// A refusal because too much is done at the moment.
    pub fn busy(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message).retry_after(1)
    }

    /// The same, with the seconds after which another try may succeed.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Refusal {
        Refusal {
            retry_after: Some(seconds),
            ..self
        }
    }
}

/// As the page reads it: `{"error": {"message": …}}`.
impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Reply {
        let error = frond_bson::doc! {"error": {"message": &refusal.message}};
        let mut reply = json(refusal.status, frond_bson::extjson::to_relaxed(&error));
        if let Some(seconds) = refusal.retry_after {
            reply.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        reply
    }
}
