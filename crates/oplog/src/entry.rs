//! One entry of the oplog: the value that is stored, and MongoDB's document of it.
//!
//! The key of an entry is its timestamp: 8 bytes, big-endian. The value is compact, so that a filter on the kind and on the
//! namespace is decided without a document:
//!
//! | bytes | content |
//! | --- | --- |
//! | 1 | [`Kind`] |
//! | 1 | flags: which of the following parts there are |
//! | 16 | UUID of the collection |
//! | 2, n | namespace: length (little-endian), text |
//! | 8 | wall-clock time in milliseconds since 1970; an operation of a transaction has none |
//! | 16, 8 | session, transaction number |
//! | 4 | number of the statement |
//! | n | the field `o2`, unless it follows from `o` |
//! | rest | the field `o`: of an [`Kind::Update`] the difference only, of a [`Kind::Transaction`] its operations |
//!
//! The operations of a transaction are: the number of the entry in its chain (4 bytes), the number of operations of all entries
//! of the chain (4 bytes), and for each operation of this entry its length (4 bytes) and a value as above. A transaction is a
//! chain of entries with consecutive timestamps, of which all but the last are marked as partial.

use frond_bson::{Doc, DocBuf, Timestamp, Value, doc};

use crate::error::{Result, corrupt};

/// The most bytes of the operations of one entry in MongoDB's format. One operation alone may be larger by its envelope.
pub const OPERATION_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Binary subtype of a UUID.
const UUID_SUBTYPE: u8 = 4;

/// The namespace of transactions.
const ADMIN_COMMANDS: &str = "admin.$cmd";

/// The user's part of a session id, the hash of no user: sessions of unauthenticated clients have it in MongoDB, too.
const NO_USER: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// Bits of the second byte.
mod flag {
    pub const UUID: u8 = 1;
    pub const SESSION: u8 = 2;
    pub const STATEMENT: u8 = 4;
    pub const O2: u8 = 8;
    /// The document before the change is stored in the tree of pre-images.
    pub const PRE_IMAGE: u8 = 16;
    /// It is an operation of a transaction, and has no wall-clock time.
    pub const OPERATION: u8 = 32;
    /// The transaction goes on in the next entry.
    pub const PARTIAL: u8 = 64;
}

/// The change that an entry describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Insert,
    /// A change of a document by a difference ([`super::diff`]).
    Update,
    /// A document in the place of another one with the same `_id`.
    Replace,
    /// A document is gone.
    Delete,
    /// A change of the catalog.
    Command,
    Noop,
    /// A transaction or a part of it.
    Transaction,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Insert,
            2 => Kind::Update,
            3 => Kind::Replace,
            4 => Kind::Delete,
            5 => Kind::Command,
            6 => Kind::Noop,
            7 => Kind::Transaction,
            _ => return None,
        })
    }

    fn to_byte(self) -> u8 {
        match self {
            Kind::Insert => 1,
            Kind::Update => 2,
            Kind::Replace => 3,
            Kind::Delete => 4,
            Kind::Command => 5,
            Kind::Noop => 6,
            Kind::Transaction => 7,
        }
    }

    /// The field `op` of MongoDB's document.
    pub fn op(self) -> &'static str {
        match self {
            Kind::Insert => "i",
            Kind::Update | Kind::Replace => "u",
            Kind::Delete => "d",
            Kind::Command | Kind::Transaction => "c",
            Kind::Noop => "n",
        }
    }
}

/// The statement of a retryable write, or the transaction, that an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The UUID of the session.
    pub id: [u8; 16],
    pub number: i64,
    /// The number of the statement; none for a transaction.
    pub statement: Option<i32>,
}

/// An entry to be written, other than a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The change that it describes.
    pub kind: Kind,
    /// The namespace: of a command `database.$cmd`, of a [`Kind::Noop`] empty.
    pub ns: &'a str,
    pub uuid: Option<&'a [u8; 16]>,
    /// The time; none for an operation of a transaction.
    pub wall_ms: Option<i64>,
    /// The statement of a retryable write.
    pub session: Option<Session>,
    /// Whether the document before the change is stored.
    pub has_pre_image: bool,
    /// The field `o2`: of an update `{_id}`, of a command details of what was there before.
    pub o2: Option<&'a Doc>,
    /// The field `o`; of an update the difference, of a delete `{_id}`.
    pub o: &'a Doc,
}

impl Entry<'_> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        if self.has_pre_image {
            flags |= flag::PRE_IMAGE;
        }
        if self.o2.is_some() {
            flags |= flag::O2;
        }
        encode_head(
            self.kind,
            flags,
            self.ns,
            self.uuid,
            self.wall_ms,
            self.session,
            out,
        );
        if let Some(o2) = self.o2 {
            out.extend_from_slice(o2.as_bytes());
        }
        out.extend_from_slice(self.o.as_bytes());
    }
}

fn encode_head(
    kind: Kind,
    mut flags: u8,
    ns: &str,
    uuid: Option<&[u8; 16]>,
    wall_ms: Option<i64>,
    session: Option<Session>,
    out: &mut Vec<u8>,
) {
    if uuid.is_some() {
        flags |= flag::UUID;
    }
    if wall_ms.is_none() {
        flags |= flag::OPERATION;
    }
    if let Some(session) = session {
        flags |= flag::SESSION;
        if session.statement.is_some() {
            flags |= flag::STATEMENT;
        }
    }
    out.extend_from_slice(&[kind.to_byte(), flags]);
    if let Some(uuid) = uuid {
        out.extend_from_slice(uuid);
    }
    // Names have at most a few hundred bytes.
    out.extend_from_slice(&(ns.len() as u16).to_le_bytes());
    out.extend_from_slice(ns.as_bytes());
    if let Some(wall_ms) = wall_ms {
        out.extend_from_slice(&wall_ms.to_le_bytes());
    }
    if let Some(session) = session {
        out.extend_from_slice(&session.id);
        out.extend_from_slice(&session.number.to_le_bytes());
        if let Some(statement) = session.statement {
            out.extend_from_slice(&statement.to_le_bytes());
        }
    }
}

/// A stored entry, or an operation of a transaction. It borrows from the value.
#[derive(Clone, Copy, Debug)]
pub struct RawEntry<'a> {
    kind: Kind,
    flags: u8,
    uuid: Option<&'a [u8; 16]>,
    ns: &'a str,
    wall_ms: i64,
    session: Option<Session>,
    o2: Option<&'a Doc>,
    /// The document `o`; of a transaction the operations.
    rest: &'a [u8],
    /// The number of the entry in its chain, and the number of operations of the chain.
    chain: (u32, u32),
}

/// Takes bytes from the front.
fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(head)
}

/// Takes a document from the front.
fn take_doc<'a>(bytes: &mut &'a [u8]) -> Option<&'a Doc> {
    let len = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let (doc, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    (len >= Doc::empty().len_bytes()).then(|| Doc::from_trusted(doc))
}

impl<'a> RawEntry<'a> {
    /// Reads a value of the oplog's tree.
    ///
    /// # Errors
    /// `DataCorruptionDetected` (301).
    pub fn read(value: &'a [u8]) -> Result<RawEntry<'a>> {
        RawEntry::parse(value).ok_or_else(|| corrupt("an entry of the oplog"))
    }

    fn parse(value: &'a [u8]) -> Option<RawEntry<'a>> {
        let mut rest = value;
        let [kind, flags] = *take(&mut rest)?;
        let kind = Kind::from_byte(kind)?;
        let has = |bit: u8| flags & bit != 0;
        let uuid = if has(flag::UUID) {
            Some(take(&mut rest)?)
        } else {
            None
        };
        let ns_bytes = usize::from(u16::from_le_bytes(*take(&mut rest)?));
        let (ns, after) = rest.split_at_checked(ns_bytes)?;
        rest = after;
        let wall_ms = if has(flag::OPERATION) {
            0
        } else {
            i64::from_le_bytes(*take(&mut rest)?)
        };
        let session = if has(flag::SESSION) {
            Some(Session {
                id: *take(&mut rest)?,
                number: i64::from_le_bytes(*take(&mut rest)?),
                statement: if has(flag::STATEMENT) {
                    Some(i32::from_le_bytes(*take(&mut rest)?))
                } else {
                    None
                },
            })
        } else {
            None
        };
        let o2 = if has(flag::O2) {
            Some(take_doc(&mut rest)?)
        } else {
            None
        };
        let mut chain = (0, 0);
        if kind == Kind::Transaction {
            chain.0 = u32::from_le_bytes(*take(&mut rest)?);
            chain.1 = u32::from_le_bytes(*take(&mut rest)?);
        } else {
            take_doc(&mut &*rest).filter(|o| o.len_bytes() == rest.len())?;
        }
        Some(RawEntry {
            kind,
            flags,
            uuid,
            ns: std::str::from_utf8(ns).ok()?,
            wall_ms,
            session,
            o2,
            rest,
            chain,
        })
    }

    /// The change that it describes.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The namespace: of a command `database.$cmd`, of a transaction `admin.$cmd`, of a [`Kind::Noop`] empty.
    pub fn ns(&self) -> &'a str {
        self.ns
    }

    pub fn uuid(&self) -> Option<&'a [u8; 16]> {
        self.uuid
    }

    /// The time in milliseconds since 1970; 0 for an operation of a transaction.
    pub fn wall_ms(&self) -> i64 {
        self.wall_ms
    }

    /// The statement of a retryable write, or the transaction. Operations of a transaction have none.
    pub fn session(&self) -> Option<Session> {
        self.session
    }

    /// Whether the document before the change is stored in the tree of pre-images.
    pub fn has_pre_image(&self) -> bool {
        self.flags & flag::PRE_IMAGE != 0
    }

    /// Whether it is a transaction or a part of it.
    pub fn is_transaction(&self) -> bool {
        self.kind == Kind::Transaction
    }

    /// Whether the transaction goes on in the next entry: that with the next timestamp.
    pub fn is_partial(&self) -> bool {
        self.flags & flag::PARTIAL != 0
    }

    /// The number of entries of the transaction before this one. They have the timestamps before this one's, without gaps.
    pub fn chain_position(&self) -> u32 {
        self.chain.0
    }

    /// The number of operations in all entries of the transaction up to this one.
    pub fn chain_operations(&self) -> u32 {
        self.chain.1
    }

    /// The field `o`. Of an update it is the difference alone, that MongoDB has in `o.diff`; of a transaction it is empty.
    pub fn o(&self) -> &'a Doc {
        match self.kind {
            Kind::Transaction => Doc::empty(),
            _ => Doc::from_trusted(self.rest),
        }
    }

    /// The stored field `o2`: of an update `{_id}`, of a command details of what was there before. Inserts and replacements
    /// have none: theirs is `{_id}` of `o`.
    pub fn o2(&self) -> Option<&'a Doc> {
        self.o2
    }

    /// The `_id` of the document; `None` if the entry is not about a document.
    pub fn id(&self) -> Option<Value<'a>> {
        match self.kind {
            Kind::Insert | Kind::Replace | Kind::Delete => self.o().get("_id"),
            Kind::Update => self.o2?.get("_id"),
            Kind::Command | Kind::Noop | Kind::Transaction => None,
        }
    }

    /// The operations of a transaction in this entry, in order. Their positions are those of their pre-images.
    pub fn operations(&self) -> impl Iterator<Item = Result<RawEntry<'a>>> + use<'a> {
        let entry = *self;
        let mut offset = Some(0);
        std::iter::from_fn(move || {
            let next = entry.operation_at(offset?);
            offset = match &next {
                Ok(Some((_, end))) => Some(*end),
                _ => None,
            };
            next.map(|next| next.map(|(operation, _)| operation))
                .transpose()
        })
    }

    /// The operation of a transaction at an offset, 0 for the first one in this entry, and the offset of the next one. `None` at
    /// the end.
    ///
    /// # Errors
    /// `DataCorruptionDetected` (301).
    pub fn operation_at(&self, offset: usize) -> Result<Option<(RawEntry<'a>, usize)>> {
        let rest = match self.kind {
            Kind::Transaction => self.rest.get(offset..).unwrap_or_default(),
            _ => &[],
        };
        if rest.is_empty() {
            return Ok(None);
        }
        let read = || {
            let (len, rest) = rest.split_first_chunk()?;
            let len = u32::from_le_bytes(*len) as usize;
            let operation = RawEntry::parse(rest.get(..len)?)?;
            Some((operation, offset + 4 + len))
        };
        let read = read().ok_or_else(|| corrupt("an operation of a transaction in the oplog"))?;
        Ok(Some(read))
    }

    /// Adds the fields `op` to `o2` of MongoDB's document.
    fn push_operation(&self, out: &mut DocBuf) -> Result<()> {
        out.push("op", self.kind.op());
        out.push("ns", self.ns);
        if let Some(uuid) = self.uuid {
            out.push("ui", uuid_value(uuid));
        }
        match self.kind {
            Kind::Update => out.push_doc("o", |out| {
                out.push("$v", 2);
                out.push("diff", self.o());
            }),
            Kind::Transaction => {
                let mut operations = Vec::new();
                for operation in self.operations() {
                    let mut doc = DocBuf::new();
                    operation?.push_operation(&mut doc)?;
                    operations.push(doc);
                }
                out.push_doc("o", |out| {
                    out.push_array("applyOps", |out| {
                        operations.iter().for_each(|one| out.push(&**one));
                    });
                    if self.is_partial() {
                        out.push("partialTxn", true);
                    } else if self.chain.0 > 0 {
                        out.push("count", i64::from(self.chain.1));
                    }
                });
            }
            _ => out.push("o", self.o()),
        }
        match (self.kind, self.o2) {
            (_, Some(o2)) => out.push("o2", o2),
            (Kind::Insert | Kind::Replace, None) => {
                out.push_doc("o2", |out| {
                    out.push("_id", self.id().unwrap_or(Value::Null));
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// The bytes that it has at most as an operation in MongoDB's document of a transaction.
    pub fn document_bytes_max(&self) -> usize {
        // The names of the fields, their types, `$v` and the lengths of the documents.
        const ENVELOPE: usize = 128;
        let id = match self.o2 {
            Some(o2) => o2.len_bytes(),
            None => self.o().get_raw("_id").map_or(0, |id| id.as_bytes().len()),
        };
        ENVELOPE + self.ns.len() + self.o().len_bytes() + id
    }
}

/// A UUID as a value.
fn uuid_value(uuid: &[u8; 16]) -> Value<'_> {
    Value::Binary {
        subtype: UUID_SUBTYPE,
        bytes: uuid,
    }
}

/// The id of a session in MongoDB's form: `{id, uid}`.
pub fn session_id(id: &[u8; 16]) -> DocBuf {
    doc! {
        "id": uuid_value(id),
        "uid": Value::Binary { subtype: 0, bytes: &NO_USER },
    }
}

/// MongoDB's document of an entry. `term` is that of the replica set.
///
/// # Errors
/// `DataCorruptionDetected` (301).
pub fn document(ts: u64, raw: &RawEntry<'_>, term: i64) -> Result<DocBuf> {
    let mut out = DocBuf::with_capacity(raw.rest.len() + 512);
    if let Some(session) = &raw.session {
        out.push("lsid", &*session_id(&session.id));
        out.push("txnNumber", session.number);
    }
    raw.push_operation(&mut out)?;
    if let Some(statement) = raw.session.and_then(|session| session.statement) {
        out.push("stmtId", statement);
    }
    out.push("ts", Timestamp::from_u64(ts));
    out.push("t", term);
    out.push("v", 2_i64);
    out.push("wall", Value::DateTime(raw.wall_ms));
    if raw.is_transaction() && raw.session.is_some() {
        let (before, term) = match raw.chain.0 {
            0 => (0, -1),
            _ => (ts.saturating_sub(1), term),
        };
        out.push_doc("prevOpTime", |out| {
            out.push("ts", Timestamp::from_u64(before));
            out.push("t", term);
        });
    }
    Ok(out)
}

/// The operations of a transaction, as they are added one after the other.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    /// Each with its length before it.
    bytes: Vec<u8>,
    count: u32,
}

/// Some of the operations, for one entry.
struct Part<'a> {
    bytes: &'a [u8],
    count: u32,
}

impl Operations {
    /// Adds an operation. Its time and its session are not looked at: they are those of the transaction.
    pub fn push(&mut self, operation: &Entry<'_>) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        let operation = Entry {
            wall_ms: None,
            session: None,
            ..*operation
        };
        operation.encode(&mut self.bytes);
        let len = (self.bytes.len() - at - 4) as u32;
        if let Some(place) = self.bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&len.to_le_bytes());
        }
        self.count += 1;
    }

    /// Adds those of a later statement.
    pub fn append(&mut self, later: &Operations) {
        self.bytes.extend_from_slice(&later.bytes);
        self.count += later.count;
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Divides them into entries, none of which exceeds `bytes_max` in MongoDB's format, except for one operation alone.
    fn parts(&self, bytes_max: usize) -> Vec<Part<'_>> {
        let (mut parts, mut rest) = (Vec::new(), self.bytes.as_slice());
        while !rest.is_empty() {
            let (mut at, mut bytes, mut count) = (0, 0, 0);
            while let Some(len) = rest.get(at..).and_then(|rest| rest.first_chunk()) {
                let end = at + 4 + u32::from_le_bytes(*len) as usize;
                let operation = rest.get(at + 4..end).and_then(RawEntry::parse);
                bytes += operation.map_or(0, |operation| operation.document_bytes_max());
                if count > 0 && bytes > bytes_max {
                    break;
                }
                (at, count) = (end, count + 1);
            }
            let (bytes, after) = rest.split_at(at.min(rest.len()));
            parts.push(Part { bytes, count });
            rest = after;
        }
        parts
    }

    /// Makes the entries of the transaction. `put` takes the number of each in the chain, which of the operations it has, and
    /// its value.
    pub fn entries(
        &self,
        bytes_max: usize,
        wall_ms: i64,
        session: Option<Session>,
        mut put: impl FnMut(u32, std::ops::Range<u32>, &[u8]),
    ) {
        let parts = self.parts(bytes_max);
        let (last, mut operations) = (parts.len().saturating_sub(1), 0);
        let mut value = Vec::new();
        for (position, part) in parts.iter().enumerate() {
            value.clear();
            let flags = if position == last { 0 } else { flag::PARTIAL };
            let kind = Kind::Transaction;
            let wall_ms = Some(wall_ms);
            encode_head(
                kind,
                flags,
                ADMIN_COMMANDS,
                None,
                wall_ms,
                session,
                &mut value,
            );
            let before = operations;
            operations += part.count;
            let position = position as u32;
            value.extend_from_slice(&position.to_le_bytes());
            value.extend_from_slice(&operations.to_le_bytes());
            value.extend_from_slice(part.bytes);
            put(position, before..operations, &value);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
