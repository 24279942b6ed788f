//! The opcodes that drivers spoke before OP_MSG.

use crate::Error;
use crate::header::{OpCode, finish, start};
use crate::reader::{DocIter, Reader};

/// OP_QUERY: a find, or with a namespace that ends in `.$cmd` a command.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// See the constants of [`Query`].
    pub flags: u32,
    /// `database.collection`.
    pub namespace: &'a str,
    /// Documents to pass over.
    pub skip: i32,
    /// Documents in the first batch: 0 is the server's choice; a negative number means that many
    /// and no cursor; 1 means the same as -1.
    pub count: i32,
    /// The filter, or a wrapper with `$query` and friends, or a command.
    pub query: &'a [u8],
    /// The fields to return.
    pub projection: Option<&'a [u8]>,
}

impl Query<'_> {
    /// The cursor stays open at the end of a capped collection.
    pub const TAILABLE: u32 = 1 << 1;
    /// A secondary may answer.
    pub const SECONDARY_OK: u32 = 1 << 2;
    pub const OPLOG_REPLAY: u32 = 1 << 3;
    /// The cursor has no idle timeout.
    pub const NO_CURSOR_TIMEOUT: u32 = 1 << 4;
    /// A tailable cursor waits for data.
    pub const AWAIT_DATA: u32 = 1 << 5;
    /// The server sends all batches without being asked.
    pub const EXHAUST: u32 = 1 << 6;
    /// Partial results if shards are down.
    pub const PARTIAL: u32 = 1 << 7;
}

/// The body of an `OP_GET_MORE`.
#[derive(Clone, Copy, Debug)]
pub struct GetMore<'a> {
    /// `database.collection` of the cursor.
    pub namespace: &'a str,
    /// Documents to return, as in [`Query::count`].
    pub count: i32,
    pub cursor_id: i64,
}

/// The body of an `OP_INSERT`.
#[derive(Clone, Copy, Debug)]
pub struct Insert<'a> {
    /// Bit 0: go on after a document that fails.
    pub flags: u32,
    /// `database.collection`.
    pub namespace: &'a str,
    /// The documents, at least one.
    pub documents: DocIter<'a>,
}

impl Insert<'_> {
    /// Go on with the next document after one that fails.
    pub const CONTINUE_ON_ERROR: u32 = 1;
}

/// The body of an `OP_UPDATE`.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// `database.collection`.
    pub namespace: &'a str,
    /// See the constants of [`Update`].
    pub flags: u32,
    pub filter: &'a [u8],
    /// Operators or a replacement.
    pub update: &'a [u8],
}

impl Update<'_> {
    /// Insert when nothing matches.
    pub const UPSERT: u32 = 1;
    /// Change all that match, not the first only.
    pub const MULTI: u32 = 1 << 1;
}

/// The body of an `OP_DELETE`.
#[derive(Clone, Copy, Debug)]
pub struct Delete<'a> {
    /// `database.collection`.
    pub namespace: &'a str,
    /// Bit 0: delete the first match only.
    pub flags: u32,
    pub filter: &'a [u8],
}

impl Delete<'_> {
    /// Delete the first match only.
    pub const SINGLE_REMOVE: u32 = 1;
}

/// The body of an `OP_KILL_CURSORS`.
#[derive(Clone, Copy, Debug)]
pub struct KillCursors<'a> {
    ids: &'a [u8],
}

impl<'a> KillCursors<'a> {
    /// The cursors to drop.
    pub fn ids(&self) -> impl Iterator<Item = i64> + 'a {
        self.ids
            .as_chunks::<8>()
            .0
            .iter()
            .map(|chunk| i64::from_le_bytes(*chunk))
    }
}

pub(crate) fn parse_query<'a>(payload: &'a [u8]) -> Result<Query<'a>, Error> {
    let mut reader = Reader::new(payload);
    let flags = reader.u32("flags")?;
    let namespace = reader.cstring("namespace")?;
    let skip = reader.i32("number to skip")?;
    let count = reader.i32("number to return")?;
    let query = reader.document("query")?;
    let projection = if reader.is_empty() {
        None
    } else {
        Some(reader.document("projection")?)
    };
    reader.end()?;
    Ok(Query {
        flags,
        namespace,
        skip,
        count,
        query,
        projection,
    })
}

pub(crate) fn parse_get_more<'a>(payload: &'a [u8]) -> Result<GetMore<'a>, Error> {
    let mut reader = Reader::new(payload);
    reader.i32("reserved field")?;
    let namespace = reader.cstring("namespace")?;
    let count = reader.i32("number to return")?;
    let cursor_id = reader.i64("cursor id")?;
    reader.end()?;
    Ok(GetMore {
        namespace,
        count,
        cursor_id,
    })
}

pub(crate) fn parse_insert<'a>(payload: &'a [u8]) -> Result<Insert<'a>, Error> {
    let mut reader = Reader::new(payload);
    let flags = reader.u32("flags")?;
    let namespace = reader.cstring("namespace")?;
    let documents = reader.documents("document")?;
    if documents.len() == 0 {
        return Err(Error::Truncated("documents"));
    }
    Ok(Insert {
        flags,
        namespace,
        documents,
    })
}

pub(crate) fn parse_update<'a>(payload: &'a [u8]) -> Result<Update<'a>, Error> {
    let mut reader = Reader::new(payload);
    reader.i32("reserved field")?;
    let namespace = reader.cstring("namespace")?;
    let flags = reader.u32("flags")?;
    let filter = reader.document("filter")?;
    let update = reader.document("update")?;
    reader.end()?;
    Ok(Update {
        namespace,
        flags,
        filter,
        update,
    })
}

pub(crate) fn parse_delete<'a>(payload: &'a [u8]) -> Result<Delete<'a>, Error> {
    let mut reader = Reader::new(payload);
    reader.i32("reserved field")?;
    let namespace = reader.cstring("namespace")?;
    let flags = reader.u32("flags")?;
    let filter = reader.document("filter")?;
    reader.end()?;
    Ok(Delete {
        namespace,
        flags,
        filter,
    })
}

pub(crate) fn parse_kill_cursors<'a>(payload: &'a [u8]) -> Result<KillCursors<'a>, Error> {
    let mut reader = Reader::new(payload);
    reader.i32("reserved field")?;
    let count = reader.i32("number of cursors")?;
    let bytes = usize::try_from(count)
        .ok()
        .and_then(|n| n.checked_mul(8))
        .ok_or(Error::BadCount("number of cursors", count))?;
    let ids = reader.bytes(bytes, "cursor ids")?;
    reader.end()?;
    Ok(KillCursors { ids })
}

fn build(op: OpCode, request_id: i32, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let at = start(&mut out, request_id, 0, op);
    write(&mut out);
    finish(&mut out, at);
    out
}

fn put_i32(out: &mut Vec<u8>, n: i32) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn put_cstring(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// A message with the opcode `OP_QUERY`.
#[must_use]
pub fn op_query(request_id: i32, query: &Query<'_>) -> Vec<u8> {
    build(OpCode::Query, request_id, |out| {
        put_u32(out, query.flags);
        put_cstring(out, query.namespace);
        put_i32(out, query.skip);
        put_i32(out, query.count);
        out.extend_from_slice(query.query);
        out.extend_from_slice(query.projection.unwrap_or_default());
    })
}

/// A message with the opcode `OP_GET_MORE`.
#[must_use]
pub fn op_get_more(request_id: i32, namespace: &str, count: i32, cursor_id: i64) -> Vec<u8> {
    build(OpCode::GetMore, request_id, |out| {
        put_i32(out, 0);
        put_cstring(out, namespace);
        put_i32(out, count);
        out.extend_from_slice(&cursor_id.to_le_bytes());
    })
}

/// A message with the opcode `OP_INSERT`.
#[must_use]
pub fn op_insert<'d>(
    request_id: i32,
    flags: u32,
    namespace: &str,
    documents: impl IntoIterator<Item = &'d [u8]>,
) -> Vec<u8> {
    build(OpCode::Insert, request_id, |out| {
        put_u32(out, flags);
        put_cstring(out, namespace);
        for document in documents {
            out.extend_from_slice(document);
        }
    })
}

/// A message with the opcode `OP_UPDATE`.
#[must_use]
pub fn op_update(request_id: i32, update: &Update<'_>) -> Vec<u8> {
    build(OpCode::Update, request_id, |out| {
        put_i32(out, 0);
        put_cstring(out, update.namespace);
        put_u32(out, update.flags);
        out.extend_from_slice(update.filter);
        out.extend_from_slice(update.update);
    })
}

/// A message with the opcode `OP_DELETE`.
#[must_use]
pub fn op_delete(request_id: i32, delete: &Delete<'_>) -> Vec<u8> {
    build(OpCode::Delete, request_id, |out| {
        put_i32(out, 0);
        put_cstring(out, delete.namespace);
        put_u32(out, delete.flags);
        out.extend_from_slice(delete.filter);
    })
}

/// A message with the opcode `OP_KILL_CURSORS`.
#[must_use]
pub fn op_kill_cursors(request_id: i32, ids: &[i64]) -> Vec<u8> {
    build(OpCode::KillCursors, request_id, |out| {
        put_i32(out, 0);
        put_u32(out, ids.len() as u32);
        for id in ids {
            out.extend_from_slice(&id.to_le_bytes());
        }
    })
}
