//! A command's error as the client sees it.

use std::fmt;

use frond_bson::DocBuf;
pub use frond_query::error::ErrorCode;

use crate::context::REPLY_BYTES_MAX;

/// Bytes of one message, and of the further fields of one failure. A message that quotes a large key
/// says enough with less.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
const DETAILS_BYTES_MAX: usize = 4 << 20;

/// Result of everything that a command does.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command failed: `code`, `codeName`, `errmsg`, and further fields of the reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The code.
    pub code: ErrorCode,
    /// The text for `errmsg`.
    pub message: String,
    /// Further fields of the reply, as `keyPattern` and `keyValue` of a duplicate key.
    pub details: Option<Box<DocBuf>>,
}

impl Failure {
    /// A failure with any code.
    #[cold]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
            details: None,
        }
    }

    /// A failure whose code is only a number (`LocationNNNNN`).
    #[cold]
    pub fn location(code: i32, message: impl Into<String>) -> Failure {
        Failure::new(ErrorCode::from_code(code), message)
    }

    /// Code 2, `BadValue`.
    #[cold]
    pub fn bad_value(message: impl Into<String>) -> Failure {
        Failure::new(ErrorCode::BadValue, message)
    }

    /// Code 238, `NotImplemented`: MongoDB knows `what`, this server does not.
    #[cold]
    pub fn not_supported(what: impl fmt::Display) -> Failure {
        frond_query::error::Error::not_supported(what).into()
    }

    /// Code 10334, `BSONObjectTooLarge`: a reply, or a document in it, that no client would take.
    #[cold]
    pub fn reply_too_large(bytes: usize) -> Failure {
        Failure::new(
            ErrorCode::BSONObjectTooLarge,
            format!(
                "BSONObj size: {bytes} (0x{bytes:X}) is invalid. Size must be between 0 and \
                 {REPLY_BYTES_MAX}(16MB); ask for less at once, with a filter, a projection or a cursor"
            ),
        )
    }

    /// Cuts the failure to a size that fits into a reply: it may quote text as large as the request.
    pub fn bounded(mut self) -> Failure {
        if self.message.len() > MESSAGE_BYTES_MAX {
            let end = self.message.floor_char_boundary(MESSAGE_BYTES_MAX);
            self.message.truncate(end);
            self.message.push_str("...");
            // Truncating keeps the memory.
            self.message.shrink_to_fit();
        }
        let is_large = |details: &DocBuf| details.len_bytes() > DETAILS_BYTES_MAX;
        if self.details.as_deref().is_some_and(is_large) {
            self.details = None;
        }
        self
    }

    /// Bytes of what it says: its message and its further fields.
    pub fn len_bytes(&self) -> usize {
        let details = self.details.as_ref();
        self.message.len() + details.map_or(0, |details| details.len_bytes())
    }

    /// Adds the fields of a failed command to a reply: `ok: 0` and the rest.
    pub fn write_reply(&self, reply: &mut DocBuf) {
        reply.push("ok", 0.0);
        self.write_fields(reply);
    }

    /// Adds `errmsg`, `code`, `codeName` and the further fields.
    fn write_fields(&self, reply: &mut DocBuf) {
        reply.push("errmsg", &self.message);
        reply.push("code", self.code.code());
        reply.push("codeName", &*self.code.name());
        if let Some(details) = &self.details {
            reply.push_all(details);
        }
        if self.code == ErrorCode::WriteConflict {
            reply.push_array("errorLabels", |labels| {
                labels.push("TransientTransactionError")
            });
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl std::error::Error for Failure {}

impl From<frond_query::error::Error> for Failure {
    fn from(error: frond_query::error::Error) -> Failure {
        Failure::from(frond_store::Error::from(error))
    }
}

impl From<frond_store::Error> for Failure {
    fn from(error: frond_store::Error) -> Failure {
        Failure {
            code: error.code(),
            details: error.details().map(|details| Box::new(details.to_owned())),
            message: error.message(),
        }
    }
}

impl From<frond_wire::Error> for Failure {
    fn from(error: frond_wire::Error) -> Failure {
        Failure::location(error.code(), error.to_string())
    }
}

impl From<frond_bson::Error> for Failure {
    fn from(error: frond_bson::Error) -> Failure {
        Failure::location(error.code(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use super::*;

    #[test]
    fn a_reply_names_the_code() {
        let mut failure = Failure::new(ErrorCode::DuplicateKey, "E11000");
        failure.details = Some(Box::new(doc! {"keyPattern": {"a": 1}}));
        let mut reply = DocBuf::new();
        failure.write_reply(&mut reply);
        let expected = doc! {
            "ok": 0.0, "errmsg": "E11000", "code": 11000, "codeName": "DuplicateKey",
            "keyPattern": {"a": 1},
        };
        assert_eq!(reply, expected);
    }

    #[test]
    fn a_failure_fits_into_a_reply() {
        let mut failure = Failure::new(ErrorCode::DuplicateKey, "é".repeat(MESSAGE_BYTES_MAX));
        failure.details = Some(Box::new(doc! {"keyValue": {"a": "x".repeat(9 << 20)}}));
        let bounded = failure.bounded();
        assert!(
            bounded.message.len() <= MESSAGE_BYTES_MAX + 3 && bounded.message.ends_with("é...")
        );
        assert!(bounded.message.capacity() < MESSAGE_BYTES_MAX + 1024);
        assert_eq!(bounded.details, None);
        let mut small = Failure::new(ErrorCode::DuplicateKey, "E11000");
        small.details = Some(Box::new(doc! {"keyValue": {"a": "x".repeat(1 << 20)}}));
        assert_eq!(small.clone().bounded(), small);
    }

    #[test]
    fn a_conflict_may_be_retried() {
        let mut reply = DocBuf::new();
        Failure::new(ErrorCode::WriteConflict, "x").write_reply(&mut reply);
        let labels = reply
            .get_array("errorLabels")
            .and_then(|labels| labels.get("0"));
        assert_eq!(
            labels.and_then(|label| label.as_str()),
            Some("TransientTransactionError")
        );
    }
}
