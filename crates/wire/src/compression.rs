//! OP_COMPRESSED: another message, its payload compressed.
//!
//! Layout after the header: original opcode (i32), inflated payload size without header (i32),
//! compressor id (u8), compressed payload.

use std::io::{Read, Write};

use crate::Error;
use crate::header::{HEADER_BYTES, Header, OpCode, finish, split, start};
use crate::reader::Reader;

/// The compressor of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// Not at all, but wrapped.
    Noop,
    Snappy,
    /// Zlib, level 6.
    Zlib,
    /// Zstandard, level 3.
    Zstd,
}

impl Compressor {
    /// All that can be negotiated, best first.
    pub const ALL: [Compressor; 3] = [Compressor::Zstd, Compressor::Zlib, Compressor::Snappy];

    /// The compressor with this id in a message.
    pub fn from_id(id: u8) -> Option<Compressor> {
        Some(match id {
            0 => Compressor::Noop,
            1 => Compressor::Snappy,
            2 => Compressor::Zlib,
            3 => Compressor::Zstd,
            _ => return None,
        })
    }

    /// The id in a message.
    #[must_use]
    pub fn id(self) -> u8 {
        match self {
            Compressor::Noop => 0,
            Compressor::Snappy => 1,
            Compressor::Zlib => 2,
            Compressor::Zstd => 3,
        }
    }

    /// The compressor with this name in a handshake's `compression` list.
    pub fn from_name(name: &str) -> Option<Compressor> {
        Compressor::ALL.into_iter().find(|c| c.name() == name)
    }

    /// The name in a handshake's `compression` list.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Compressor::Noop => "noop",
            Compressor::Snappy => "snappy",
            Compressor::Zlib => "zlib",
            Compressor::Zstd => "zstd",
        }
    }
}

/// Wraps a whole message in an OP_COMPRESSED with the same request id and response id.
pub fn compress(message: &[u8], compressor: Compressor) -> Result<Vec<u8>, Error> {
    let (header, payload) = split(message)?;
    let mut out = Vec::with_capacity(HEADER_BYTES + 9 + payload.len() / 2);
    let at = start(
        &mut out,
        header.request_id,
        header.response_to,
        OpCode::Compressed,
    );
    out.extend_from_slice(&header.opcode.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.push(compressor.id());
    let failed = |_| Error::BadCompressedData("cannot compress");
    match compressor {
        Compressor::Noop => out.extend_from_slice(payload),
        Compressor::Snappy => {
            let bytes = snap::raw::Encoder::new()
                .compress_vec(payload)
                .map_err(|_| Error::BadCompressedData("cannot compress"))?;
            out.extend_from_slice(&bytes);
        }
        Compressor::Zlib => {
            let mut encoder =
                flate2::write::ZlibEncoder::new(&mut out, flate2::Compression::default());
            encoder.write_all(payload).map_err(failed)?;
            encoder.finish().map_err(failed)?;
        }
        Compressor::Zstd => {
            let bytes =
                zstd::bulk::compress(payload, zstd::DEFAULT_COMPRESSION_LEVEL).map_err(failed)?;
            out.extend_from_slice(&bytes);
        }
    }
    finish(&mut out, at);
    Ok(out)
}

/// Inflates an OP_COMPRESSED into the whole message that it wraps, header included. The result
/// has at most `limit` bytes: the claimed size is checked before anything is inflated, and the
/// real one after. A message inside a message inside a message is refused.
pub fn decompress(message: &[u8], limit: usize) -> Result<(Vec<u8>, Compressor), Error> {
    let (header, payload) = split(message)?;
    if header.op()? != OpCode::Compressed {
        return Err(Error::UnknownOpcode(header.opcode));
    }
    let mut reader = Reader::new(payload);
    let opcode = reader.i32("original opcode")?;
    let claimed = reader.i32("uncompressed size")?;
    let id = reader.u8("compressor id")?;
    let compressor = Compressor::from_id(id).ok_or(Error::UnknownCompressor(id))?;
    match OpCode::from_i32(opcode) {
        None | Some(OpCode::Compressed) => return Err(Error::UnknownOpcode(opcode)),
        Some(_) => {}
    }
    let claimed =
        usize::try_from(claimed).map_err(|_| Error::BadCount("uncompressed size", claimed))?;
    let total = claimed.saturating_add(HEADER_BYTES);
    if total > limit {
        return Err(Error::TooLarge {
            bytes: total,
            limit,
        });
    }
    let data = reader.rest();

    let inner = Header {
        length: i32::try_from(total).map_err(|_| Error::TooLarge {
            bytes: total,
            limit,
        })?,
        request_id: header.request_id,
        response_to: header.response_to,
        opcode,
    };
    let mut out = Vec::with_capacity(total);
    out.extend_from_slice(&inner.to_bytes());
    inflate(compressor, data, claimed, &mut out)?;
    if out.len() != total {
        return Err(Error::BadCompressedData(
            "it does not inflate to the size it claims",
        ));
    }
    Ok((out, compressor))
}

/// Appends the inflated data to `out`, at most one byte more than `claimed`.
fn inflate(
    compressor: Compressor,
    data: &[u8],
    claimed: usize,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    match compressor {
        Compressor::Noop => {
            if data.len() != claimed {
                return Err(Error::BadCompressedData(
                    "it does not have the size it claims",
                ));
            }
            out.extend_from_slice(data);
        }
        Compressor::Snappy => {
            let bad = |_| Error::BadCompressedData("not snappy");
            if snap::raw::decompress_len(data).map_err(bad)? != claimed {
                return Err(Error::BadCompressedData(
                    "it does not inflate to the size it claims",
                ));
            }
            let start = out.len();
            out.resize(start + claimed, 0);
            let room = out.get_mut(start..).unwrap_or_default();
            let n = snap::raw::Decoder::new()
                .decompress(data, room)
                .map_err(bad)?;
            out.truncate(start + n);
        }
        Compressor::Zlib => {
            let mut decoder = flate2::read::ZlibDecoder::new(data).take(claimed as u64 + 1);
            decoder
                .read_to_end(out)
                .map_err(|_| Error::BadCompressedData("not zlib"))?;
        }
        Compressor::Zstd => {
            // The claimed size is the room given, so a bomb fails instead of growing.
            let start = out.len();
            out.resize(start + claimed, 0);
            let room = out.get_mut(start..).unwrap_or_default();
            let n = zstd::bulk::decompress_to_buffer(data, room)
                .map_err(|_| Error::BadCompressedData("not zstd, or larger than it claims"))?;
            out.truncate(start + n);
        }
    }
    Ok(())
}
