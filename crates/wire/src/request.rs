//! A message from a client, whatever its opcode.

use crate::header::{OpCode, split};
use crate::legacy::{self, Delete, GetMore, Insert, KillCursors, Query, Update};
use crate::msg::Msg;
use crate::{Error, Header};

/// A message from a client.
#[derive(Clone, Debug)]
pub enum Request<'a> {
    Msg(Msg<'a>),
    Query(Query<'a>),
    GetMore(GetMore<'a>),
    Insert(Insert<'a>),
    Update(Update<'a>),
    Delete(Delete<'a>),
    KillCursors(KillCursors<'a>),
}

impl<'a> Request<'a> {
    /// Parses a whole message, header included. An OP_COMPRESSED must be inflated first with
    /// [`crate::decompress`]; it and OP_REPLY are refused here.
    pub fn parse(message: &'a [u8]) -> Result<(Header, Request<'a>), Error> {
        let (header, payload) = split(message)?;
        let request = match header.op()? {
            OpCode::Msg => Request::Msg(Msg::parse(message)?),
            OpCode::Query => Request::Query(legacy::parse_query(payload)?),
            OpCode::GetMore => Request::GetMore(legacy::parse_get_more(payload)?),
            OpCode::Insert => Request::Insert(legacy::parse_insert(payload)?),
            OpCode::Update => Request::Update(legacy::parse_update(payload)?),
            OpCode::Delete => Request::Delete(legacy::parse_delete(payload)?),
            OpCode::KillCursors => Request::KillCursors(legacy::parse_kill_cursors(payload)?),
            OpCode::Reply | OpCode::Compressed => {
                return Err(Error::UnknownOpcode(header.opcode));
            }
        };
        Ok((header, request))
    }
}
