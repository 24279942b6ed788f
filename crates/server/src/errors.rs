//! Errors as a reply has them: their fields, and a size that fits.

use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode};

use crate::limits::REPLY_BYTES_MAX;

/// Bytes of the message and of the details of one error. A message that quotes a large key says enough
/// with less.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
const DETAILS_BYTES_MAX: usize = 4 << 20;

/// Code 10334, `BSONObjectTooLarge`: a reply, or a document in it, that no client would accept.
#[cold]
pub fn reply_too_large(bytes: usize) -> Error {
    Error::new(
        ErrorCode::BSONObjectTooLarge,
        format!(
            "BSONObj size: {bytes} (0x{bytes:X}) is invalid. Size must be between 0 and \
             {REPLY_BYTES_MAX}(16MB); ask for less at once, with a filter, a projection or a cursor"
        ),
    )
}

/// The error of a message that cannot be read.
#[cold]
pub fn of_wire(error: &frond_wire::Error) -> Error {
    Error::location(error.code(), error.to_string())
}

/// Cuts an error to a size that fits into a reply: it may quote text as large as the request.
pub fn truncated(error: Error) -> Error {
    let (code, mut message, details) = error.into_parts();
    if message.len() > MESSAGE_BYTES_MAX {
        let end = message.floor_char_boundary(MESSAGE_BYTES_MAX);
        message.truncate(end);
        message.push_str("...");
        // Truncating keeps the memory.
        message.shrink_to_fit();
    }
    let error = Error::new(code, message);
    match details {
        Some(details) if details.len_bytes() <= DETAILS_BYTES_MAX => error.with_details(details),
        _ => error,
    }
}

/// Whether a statement's error is one of the whole write command, as every interruption is in MongoDB, and what may succeed at
/// another server. Drivers retry only whole commands; statements that are done are not done again then.
pub fn ends_command(code: ErrorCode) -> bool {
    code.is_interruption() || code.is_retriable()
}

/// Whether the server cannot write for now. MongoDB has this code among its interruptions.
pub fn is_refusal(code: ErrorCode) -> bool {
    code == ErrorCode::ExceededTimeLimit
}

/// Bytes of the message and of the details.
pub fn len_bytes(error: &Error) -> usize {
    let details = error.details();
    error.message().len() + details.map_or(0, |details| details.len_bytes())
}

/// Adds the fields of a failed command to a reply: `ok: 0`, `errmsg`, `code`, `codeName` and the details.
pub fn write_error(reply: &mut DocBuf, error: &Error) {
    reply.push("ok", 0.0);
    reply.push("errmsg", error.message());
    reply.push("code", error.code().code());
    reply.push("codeName", &*error.code().name());
    if let Some(details) = error.details() {
        reply.push_all(details);
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use super::*;

    #[test]
    fn a_reply_names_the_code() {
        let details = doc! {"keyPattern": {"a": 1}};
        let error = Error::new(ErrorCode::DuplicateKey, "E11000").with_details(details);
        let mut reply = DocBuf::new();
        write_error(&mut reply, &error);
        let expected = doc! {
            "ok": 0.0, "errmsg": "E11000", "code": 11000, "codeName": "DuplicateKey",
            "keyPattern": {"a": 1},
        };
        assert_eq!(reply, expected);
    }

    #[test]
    fn what_drivers_may_retry_ends_the_command() {
        for (code, ends) in [
            (ErrorCode::HostUnreachable, true),
            (ErrorCode::NotWritablePrimary, true),
            (ErrorCode::MaxTimeMSExpired, true),
            (ErrorCode::DuplicateKey, false),
            (ErrorCode::WriteConflict, false),
        ] {
            assert_eq!(ends_command(code), ends, "{code:?}");
        }
    }

    #[test]
    fn an_error_fits_into_a_reply() {
        let error = Error::new(ErrorCode::DuplicateKey, "é".repeat(MESSAGE_BYTES_MAX))
            .with_details(doc! {"keyValue": {"a": "x".repeat(9 << 20)}});
        let (code, message, details) = truncated(error).into_parts();
        assert_eq!(code, ErrorCode::DuplicateKey);
        assert!(message.len() <= MESSAGE_BYTES_MAX + 3 && message.ends_with("é..."));
        assert!(message.capacity() < MESSAGE_BYTES_MAX + 1024);
        assert_eq!(details, None);
        let small = Error::new(ErrorCode::DuplicateKey, "E11000")
            .with_details(doc! {"keyValue": {"a": "x".repeat(1 << 20)}});
        assert_eq!(truncated(small.clone()), small);
    }
}
