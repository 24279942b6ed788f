//! A request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{COOKIE, HeaderName};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use percent_encoding::percent_decode_str;

use super::places::Place;
use super::reply::Refusal;

/// Time limit for the body of a request.
const BODY_TIME_MAX: Duration = Duration::from_secs(20);

/// The two ends of the connection that a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub client: SocketAddr,
    /// The address of the server that the client connected to.
    pub server: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_secure: bool,
}

/// A request, whose body is read when its handler wants it.
pub struct Call {
    pub ends: Ends,
    head: Parts,
    body: Incoming,
    place: Arc<Place>,
}

impl Call {
    pub(super) fn new(request: Request<Incoming>, ends: Ends, place: Arc<Place>) -> Call {
        let (head, body) = request.into_parts();
        Call {
            ends,
            head,
            body,
            place,
        }
    }

    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// The path, without the query.
    pub fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// A parameter of the query, decoded; the first one of this name.
    pub fn query(&self, name: &str) -> Option<String> {
        self.queries(name).next()
    }

    /// All parameters of the query that have this name, decoded.
    pub fn queries(&self, name: &str) -> impl Iterator<Item = String> {
        let pairs = self.head.uri.query().into_iter();
        pairs
            .flat_map(|query| query.split('&'))
            .filter_map(move |pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (percent_decoded(key) == name).then(|| percent_decoded(value))
            })
    }

    /// A header that is there once, as text.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        let mut all = self.head.headers.get_all(name).iter();
        let value = all.next()?.to_str().ok()?;
        all.next().is_none().then_some(value)
    }

    /// The host and the port that the client asked for: the header `Host`, or the authority of an absolute URI.
    pub fn host(&self) -> Option<&str> {
        match self.head.uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => self.header(&hyper::header::HOST),
        }
    }

    pub fn cookie(&self, name: &str) -> Option<&str> {
        let all = self.head.headers.get_all(COOKIE);
        let texts = all.iter().filter_map(|value| value.to_str().ok());
        let mut pairs = texts.flat_map(|text| text.split(';'));
        pairs.find_map(|pair| {
            let (key, value) = pair.trim().split_once('=')?;
            (key == name).then_some(value)
        })
    }

    /// Reads the body, which has at most `limit` bytes.
    ///
    /// # Errors
    /// The refusal of a body that is too large, too slow, or cut off.
    pub async fn body(&mut self, limit: usize) -> Result<Bytes, Refusal> {
        let body = Limited::new(&mut self.body, limit).collect();
        self.place.waits();
        let body = tokio::time::timeout(BODY_TIME_MAX, body).await;
        self.place.goes_on();
        match body {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the request is too large",
            )),
            Ok(Err(_)) => Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "the body of the request cannot be read",
            )),
            Err(_) => Err(Refusal::new(
                StatusCode::REQUEST_TIMEOUT,
                "the body of the request did not come in time",
            )),
        }
    }
}

/// Text of a query with its escapes replaced. Other text stays as it is.
fn percent_decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn escapes_are_replaced() {
        for (text, expected) in [
            ("", ""),
            ("a+b%20c", "a b c"),
            ("%C3%a4", "ä"),
            ("%", "%"),
            ("%4", "%4"),
            ("%zz%41", "%zzA"),
            ("%ff", "\u{fffd}"),
            ("%+4", "% 4"),
        ] {
            assert_eq!(percent_decoded(text), expected, "{text}");
        }
    }
}
