//! Errors in the bytes of a message.

use std::fmt;

/// Why bytes are not a message of MongoDB's wire protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The bytes end before the field named here does.
    Truncated(&'static str),
    /// The length in the header is below 16, above the limit, or not the number of bytes given.
    BadMessageLength(i32),
    /// The operation code in the header is none that a client or a server sends.
    UnknownOpcode(i32),
    /// The bytes begin a TLS connection.
    Tls,
    /// The bytes are an HTTP request.
    Http,
    /// A document's length prefix is below 5 or points past the end of its section.
    BadDocumentLength(i32),
    /// A required flag bit (0 to 15) of an OP_MSG that is not defined.
    IllegalFlags(u32),
    /// The CRC-32C at the end of an OP_MSG does not fit the bytes before it.
    ChecksumMismatch,
    /// An OP_MSG section of a kind other than 0 and 1.
    UnknownSectionKind(u8),
    /// An OP_MSG without a body.
    MissingBody,
    /// An OP_MSG with more than one body.
    SecondBody,
    /// An OP_MSG with two document sequences of the same name.
    DuplicateSequence,
    /// An OP_MSG with more document sequences than any command has.
    TooManySequences,
    /// A name that should be UTF-8 text is not.
    NotUtf8(&'static str),
    /// The bytes go on after the last field.
    TrailingBytes(usize),
    /// A count or size field holds a value that makes no sense there.
    BadCount(&'static str, i32),
    /// The compressor id of an OP_COMPRESSED is none that is known.
    UnknownCompressor(u8),
    /// The size that the message has, or claims to have once inflated, passes the limit.
    TooLarge {
        /// Bytes that the message has or claims.
        bytes: usize,
        limit: usize,
    },
    /// The compressed bytes do not inflate, or not to the size that was claimed.
    BadCompressedData(&'static str),
}

impl Error {
    /// MongoDB's numeric error code for this fault, for those that can still be answered.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            Error::IllegalFlags(_) => 223,
            Error::BadDocumentLength(_) => 22,
            Error::UnknownSectionKind(_) => 40432,
            Error::MissingBody => 40587,
            Error::SecondBody => 40430,
            Error::DuplicateSequence => 40431,
            Error::TooManySequences => 233,
            Error::ChecksumMismatch => 288,
            Error::NotUtf8(_) | Error::TrailingBytes(_) | Error::BadCount(..) => 9,
            Error::Truncated(_)
            | Error::BadMessageLength(_)
            | Error::UnknownOpcode(_)
            | Error::TooLarge { .. } => 17,
            Error::UnknownCompressor(_) | Error::BadCompressedData(_) => 2,
            Error::Tls => 141,
            Error::Http => 17,
        }
    }

    /// True when a receiver can no longer trust the framing or the peer and must close the
    /// connection. False when the header was sound, so an error reply makes sense.
    #[must_use]
    pub fn closes_connection(&self) -> bool {
        !matches!(
            self,
            Error::BadDocumentLength(_)
                | Error::MissingBody
                | Error::SecondBody
                | Error::DuplicateSequence
                | Error::TooManySequences
                | Error::UnknownSectionKind(_)
                | Error::NotUtf8(_)
                | Error::TrailingBytes(_)
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Truncated(what) => write!(f, "message ends inside its {what}"),
            Error::BadMessageLength(n) => write!(f, "message length {n} is not valid"),
            Error::UnknownOpcode(n) => write!(f, "unknown operation code {n}"),
            Error::Tls => write!(
                f,
                "SSL handshake received but server is started without SSL support; start it with --tlsMode, or connect \
                 without tls=true"
            ),
            Error::Http => write!(
                f,
                "the client speaks HTTP on the port of MongoDB's wire protocol; connect with a driver or a shell"
            ),
            Error::BadDocumentLength(n) => write!(f, "document length {n} is not valid"),
            Error::IllegalFlags(bits) => {
                write!(f, "OP_MSG has unknown required flag bits: {bits:#x}")
            }
            Error::ChecksumMismatch => write!(f, "OP_MSG checksum does not match its contents"),
            Error::UnknownSectionKind(kind) => write!(f, "unknown OP_MSG section kind {kind}"),
            Error::MissingBody => write!(f, "OP_MSG messages must have a body"),
            Error::SecondBody => write!(f, "multiple body sections in message"),
            Error::DuplicateSequence => write!(f, "duplicate document sequence in message"),
            Error::TooManySequences => write!(f, "too many document sequences in message"),
            Error::NotUtf8(what) => write!(f, "{what} is not valid UTF-8"),
            Error::TrailingBytes(n) => write!(f, "{n} bytes left over at the end of the message"),
            Error::BadCount(what, n) => write!(f, "{what} of {n} is not valid"),
            Error::UnknownCompressor(id) => write!(f, "unknown compressor id {id}"),
            Error::TooLarge { bytes, limit } => {
                write!(
                    f,
                    "message of {bytes} bytes passes the limit of {limit} bytes"
                )
            }
            Error::BadCompressedData(why) => write!(f, "compressed message is not valid: {why}"),
        }
    }
}

impl std::error::Error for Error {}
