//! Replies of a server: OP_REPLY to the legacy opcodes, OP_MSG to OP_MSG.

use crate::header::{HEADER_BYTES, OpCode, finish, split, start};
use crate::msg::Msg;
use crate::reader::{DocIter, Reader};
use crate::{Error, Header};

/// The body of an `OP_REPLY`.
#[derive(Clone, Copy, Debug)]
pub struct OpReply<'a> {
    /// See the constants of [`OpReply`].
    pub flags: u32,
    /// The cursor with the rest, or 0.
    pub cursor_id: i64,
    /// Where in the cursor this batch starts.
    pub starting_from: i32,
    pub documents: DocIter<'a>,
}

impl OpReply<'_> {
    /// A get-more named a cursor that does not exist.
    pub const CURSOR_NOT_FOUND: u32 = 1;
    /// The query failed; the only document says why in `$err`.
    pub const QUERY_FAILURE: u32 = 1 << 1;
    /// The server knows the option "await data".
    pub const AWAIT_CAPABLE: u32 = 1 << 3;
}

/// A message from a server.
#[derive(Clone, Debug)]
pub enum Reply<'a> {
    /// Answer to an OP_MSG.
    Msg(Msg<'a>),
    /// Answer to an OP_QUERY or OP_GET_MORE.
    Reply(OpReply<'a>),
}

impl<'a> Reply<'a> {
    /// Parses a whole message, header included. Inflate an OP_COMPRESSED first.
    pub fn parse(message: &'a [u8]) -> Result<(Header, Reply<'a>), Error> {
        let (header, payload) = split(message)?;
        let reply = match header.op()? {
            OpCode::Msg => Reply::Msg(Msg::parse(message)?),
            OpCode::Reply => Reply::Reply(parse_reply(payload)?),
            _ => return Err(Error::UnknownOpcode(header.opcode)),
        };
        Ok((header, reply))
    }

    /// The first document: the answer of a command.
    pub fn first_document(&self) -> Option<&'a [u8]> {
        match self {
            Reply::Msg(msg) => Some(msg.body),
            Reply::Reply(reply) => reply.documents.clone().next(),
        }
    }
}

fn parse_reply(payload: &[u8]) -> Result<OpReply<'_>, Error> {
    let mut reader = Reader::new(payload);
    let flags = reader.u32("flags")?;
    let cursor_id = reader.i64("cursor id")?;
    let starting_from = reader.i32("starting from")?;
    let count = reader.i32("number returned")?;
    let documents = reader.documents("document")?;
    if usize::try_from(count) != Ok(documents.len()) {
        return Err(Error::BadCount("number returned", count));
    }
    Ok(OpReply {
        flags,
        cursor_id,
        starting_from,
        documents,
    })
}

/// A message with the opcode `OP_REPLY`.
#[must_use]
pub fn op_reply<'d>(
    request_id: i32,
    response_to: i32,
    flags: u32,
    cursor_id: i64,
    starting_from: i32,
    documents: impl IntoIterator<Item = &'d [u8]>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + 20);
    let at = start(&mut out, request_id, response_to, OpCode::Reply);
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&cursor_id.to_le_bytes());
    out.extend_from_slice(&starting_from.to_le_bytes());
    let count_at = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count: u32 = 0;
    for document in documents {
        out.extend_from_slice(document);
        count += 1;
    }
    if let Some(place) = out.get_mut(count_at..count_at + 4) {
        place.copy_from_slice(&count.to_le_bytes());
    }
    finish(&mut out, at);
    out
}
