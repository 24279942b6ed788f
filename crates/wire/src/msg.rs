//! OP_MSG: one body document, any number of named document sequences, an optional checksum.

use crate::header::{HEADER_BYTES, OpCode, finish, start};
use crate::reader::{DocIter, Reader};
use crate::{Error, Header};

/// The flag bits of an OP_MSG. Bits 0 to 15 are required: a receiver that does not know one must
/// refuse the message. Bits 16 to 31 are optional and ignored when unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    pub const NONE: Flags = Flags(0);
    /// The message ends with a CRC-32C of everything before it.
    pub const CHECKSUM_PRESENT: Flags = Flags(1);
    /// In a request: do not answer. In a reply: more replies follow without a request.
    pub const MORE_TO_COME: Flags = Flags(1 << 1);
    /// The client takes several replies to this request.
    pub const EXHAUST_ALLOWED: Flags = Flags(1 << 16);

    const REQUIRED: u32 = 0xffff;
    const KNOWN: u32 = 1 | 1 << 1 | 1 << 16;

    /// True if every bit of `other` is set.
    #[must_use]
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    #[must_use]
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// The body of an `OP_MSG`.
#[derive(Clone, Debug)]
pub struct Msg<'a> {
    pub flags: Flags,
    /// The document of the section of kind 0.
    pub body: &'a [u8],
    /// The sections of kind 1: the name of the field they stand for, and its documents.
    pub sequences: Vec<(&'a str, DocIter<'a>)>,
}

/// More sections than this are refused; no command has more than a few.
const SECTIONS_MAX: usize = 64;

impl<'a> Msg<'a> {
    /// Parses a whole message, header included; a checksum, when there is one, is verified.
    pub fn parse(message: &'a [u8]) -> Result<Msg<'a>, Error> {
        let payload = message
            .get(HEADER_BYTES..)
            .ok_or(Error::Truncated("header"))?;
        let mut reader = Reader::new(payload);
        let flags = Flags(reader.u32("flags")?);
        let unknown = flags.0 & Flags::REQUIRED & !Flags::KNOWN;
        if unknown != 0 {
            return Err(Error::IllegalFlags(unknown));
        }
        let mut sections = reader;
        if flags.has(Flags::CHECKSUM_PRESENT) {
            let (covered, sum) = message
                .split_last_chunk::<4>()
                .ok_or(Error::Truncated("checksum"))?;
            let inside = reader.rest();
            let end = inside
                .len()
                .checked_sub(4)
                .ok_or(Error::Truncated("checksum"))?;
            if crc32c::crc32c(covered) != u32::from_le_bytes(*sum) {
                return Err(Error::ChecksumMismatch);
            }
            sections = Reader::new(inside.get(..end).unwrap_or_default());
        }

        let mut body = None;
        let mut sequences: Vec<(&str, DocIter<'_>)> = Vec::new();
        while !sections.is_empty() {
            match sections.u8("section kind")? {
                0 => {
                    if body.replace(sections.document("body")?).is_some() {
                        return Err(Error::SecondBody);
                    }
                }
                1 => {
                    let size = sections.i32("document sequence")?;
                    let n = usize::try_from(size)
                        .ok()
                        .and_then(|n| n.checked_sub(4))
                        .ok_or(Error::BadCount("document sequence size", size))?;
                    let mut inside = Reader::new(sections.bytes(n, "document sequence")?);
                    let name = inside.cstring("document sequence name")?;
                    if sequences.iter().any(|(other, _)| *other == name) {
                        return Err(Error::DuplicateSequence);
                    }
                    if sequences.len() == SECTIONS_MAX {
                        return Err(Error::TooManySequences);
                    }
                    sequences.push((name, inside.documents("document sequence")?));
                }
                kind => return Err(Error::UnknownSectionKind(kind)),
            }
        }
        let body = body.ok_or(Error::MissingBody)?;
        Ok(Msg {
            flags,
            body,
            sequences,
        })
    }
}

/// Builds an OP_MSG at the end of a buffer, which may be reused for the next one.
pub struct MsgBuilder<'b> {
    out: &'b mut Vec<u8>,
    at: usize,
    checksum: bool,
}

impl<'b> MsgBuilder<'b> {
    /// Begins a message; [`MsgBuilder::finish`] must end it. With `CHECKSUM_PRESENT` in the flags
    /// the checksum is added at the end.
    pub fn new(out: &'b mut Vec<u8>, request_id: i32, response_to: i32, flags: Flags) -> Self {
        let at = start(out, request_id, response_to, OpCode::Msg);
        out.extend_from_slice(&flags.0.to_le_bytes());
        MsgBuilder {
            out,
            at,
            checksum: flags.has(Flags::CHECKSUM_PRESENT),
        }
    }

    /// Adds the body. A message has exactly one.
    pub fn body(self, document: &[u8]) -> Self {
        self.out.push(0);
        self.out.extend_from_slice(document);
        self
    }

    /// Adds a document sequence. `name` must hold no zero byte.
    pub fn sequence<'d>(self, name: &str, documents: impl IntoIterator<Item = &'d [u8]>) -> Self {
        self.out.push(1);
        let at = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(0);
        for document in documents {
            self.out.extend_from_slice(document);
        }
        finish(self.out, at);
        self
    }

    /// Ends the message: its length and, if asked for, its checksum.
    pub fn finish(self) {
        if self.checksum {
            // The checksum covers the length, which counts the checksum.
            self.out.extend_from_slice(&[0; 4]);
            finish(self.out, self.at);
            let end = self.out.len() - 4;
            let sum = crc32c::crc32c(self.out.get(self.at..end).unwrap_or_default());
            self.out.truncate(end);
            self.out.extend_from_slice(&sum.to_le_bytes());
        } else {
            finish(self.out, self.at);
        }
    }
}

/// An OP_MSG with a body only.
#[must_use]
pub fn msg(request_id: i32, response_to: i32, flags: Flags, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + 9 + body.len());
    MsgBuilder::new(&mut out, request_id, response_to, flags)
        .body(body)
        .finish();
    out
}

/// The same without a checksum, made around the bytes of the body: they are not copied to another
/// buffer if theirs has room for a header.
#[must_use]
pub fn msg_around(request_id: i32, response_to: i32, flags: Flags, mut body: Vec<u8>) -> Vec<u8> {
    let flags = Flags(flags.0 & !Flags::CHECKSUM_PRESENT.0);
    let head = msg(request_id, response_to, flags, &[]);
    // A splice would insert byte by byte.
    let head_bytes = head.len();
    body.extend_from_slice(&head);
    body.rotate_right(head_bytes);
    finish(&mut body, 0);
    body
}

/// The flags of a message that may be an OP_MSG whose other parts could not be parsed, so that a
/// receiver knows whether an error reply is expected.
#[must_use]
pub fn peek_flags(header: &Header, message: &[u8]) -> Option<Flags> {
    if header.op() != Ok(OpCode::Msg) {
        return None;
    }
    let bits = Reader::new(message.get(HEADER_BYTES..)?)
        .u32("flags")
        .ok()?;
    Some(Flags(bits))
}
