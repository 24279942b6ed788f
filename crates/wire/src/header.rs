//! The 16 bytes that open every message.

use crate::Error;
use crate::reader::Reader;

/// Bytes of a message header.
pub const HEADER_BYTES: usize = 16;

/// The largest message, header included, that a server accepts (`maxMessageSizeBytes`).
pub const MAX_MESSAGE_BYTES: usize = 48_000_000;

/// The kind of the message that follows a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum OpCode {
    /// Answer to a legacy query or get-more.
    Reply = 1,
    /// Legacy update, never answered.
    Update = 2001,
    /// Legacy insert, never answered.
    Insert = 2002,
    /// Legacy query; also carries commands on the collection `$cmd`.
    Query = 2004,
    /// Legacy request for the next batch of a cursor.
    GetMore = 2005,
    /// Legacy delete, never answered.
    Delete = 2006,
    /// Legacy request to drop cursors, never answered.
    KillCursors = 2007,
    Compressed = 2012,
    /// Every request and reply of a current driver.
    Msg = 2013,
}

impl OpCode {
    /// The operation code with this number.
    pub fn from_i32(number: i32) -> Option<OpCode> {
        Some(match number {
            1 => OpCode::Reply,
            2001 => OpCode::Update,
            2002 => OpCode::Insert,
            2004 => OpCode::Query,
            2005 => OpCode::GetMore,
            2006 => OpCode::Delete,
            2007 => OpCode::KillCursors,
            2012 => OpCode::Compressed,
            2013 => OpCode::Msg,
            _ => return None,
        })
    }
}

/// The header of a message: four little-endian 32-bit integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole message, these 16 included.
    pub length: i32,
    /// The sender's number for this message.
    pub request_id: i32,
    /// In a reply, the number of the request that it answers; else 0.
    pub response_to: i32,
    /// The raw operation code; see [`Header::op`].
    pub opcode: i32,
}

/// The first byte of a TLS connection. A message may begin with it, too: see [`Header::begins_tls`].
pub const TLS_HANDSHAKE: u8 = 0x16;

impl Header {
    /// Reads a header from the first 16 bytes. Nothing in it is checked yet.
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let mut reader = Reader::new(bytes);
        Ok(Header {
            length: reader.i32("header")?,
            request_id: reader.i32("header")?,
            response_to: reader.i32("header")?,
            opcode: reader.i32("header")?,
        })
    }

    /// The operation code, if it is one that exists. Bytes of other protocols are recognized by it.
    pub fn op(&self) -> Result<OpCode, Error> {
        OpCode::from_i32(self.opcode).ok_or_else(|| self.other_protocol())
    }

    /// Whether these are the first bytes of a TLS connection: a record with a handshake, of version 3.x, its length, and in
    /// it the ClientHello. Its version lies where the first message of a client has 0 or -1.
    #[must_use]
    pub fn begins_tls(&self) -> bool {
        let is_record = matches!(self.to_bytes(), [TLS_HANDSHAKE, 3, 0..=4, _, _, 1, ..]);
        is_record && !matches!(self.response_to, 0 | -1)
    }

    /// The protocol whose first bytes these are, if they begin no message.
    fn other_protocol(&self) -> Error {
        let first = self.to_bytes();
        if self.begins_tls() {
            return Error::Tls;
        }
        const METHODS: [&[u8]; 6] = [
            b"GET ",
            b"POST ",
            b"HEAD ",
            b"PUT ",
            b"OPTIONS ",
            b"DELETE ",
        ];
        if METHODS.iter().any(|method| first.starts_with(method)) {
            return Error::Http;
        }
        Error::UnknownOpcode(self.opcode)
    }

    /// The length as a count of bytes, checked to be at least a header and at most `limit`.
    pub fn checked_length(&self, limit: usize) -> Result<usize, Error> {
        match usize::try_from(self.length) {
            Ok(n) if (HEADER_BYTES..=limit).contains(&n) => Ok(n),
            _ => Err(Error::BadMessageLength(self.length)),
        }
    }

    /// The header as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&self.length.to_le_bytes());
        out[4..8].copy_from_slice(&self.request_id.to_le_bytes());
        out[8..12].copy_from_slice(&self.response_to.to_le_bytes());
        out[12..16].copy_from_slice(&self.opcode.to_le_bytes());
        out
    }
}

/// Splits a whole message into its header and the bytes after it. The length in the header must
/// be the number of bytes given.
pub fn split(message: &[u8]) -> Result<(Header, &[u8]), Error> {
    let header = Header::parse(message)?;
    let length = header.checked_length(MAX_MESSAGE_BYTES)?;
    if length != message.len() {
        return Err(Error::BadMessageLength(header.length));
    }
    Ok((header, message.get(HEADER_BYTES..).unwrap_or_default()))
}

/// Starts a message in `out`: writes a header whose length [`finish`] fills in.
pub(crate) fn start(out: &mut Vec<u8>, request_id: i32, response_to: i32, op: OpCode) -> usize {
    let at = out.len();
    let header = Header {
        length: 0,
        request_id,
        response_to,
        opcode: op as i32,
    };
    out.extend_from_slice(&header.to_bytes());
    at
}

/// Writes the length of the message that began at `at` and ends at the end of `out`.
pub(crate) fn finish(out: &mut [u8], at: usize) {
    let length = (out.len() - at) as u32;
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}
