//! Groups of an encrypted log. FORMAT.md describes them.
//!
//! Only what is stored is encrypted: in memory, and on the way to other members, groups have their usual form.

use frond_encryption::{Ciphers, SEAL_BYTES};
use xxhash_rust::xxh3::xxh3_64;

use super::group::{HEADER_BYTES, Header, MARK_BYTES};

/// The context of a group: its header without the checksums, and the mark of an entry.
const CONTEXT_BYTES_MAX: usize = HEADER_BYTES - 16 + MARK_BYTES;

/// Replaces `out` with the stored form of a group. `parts` are its bytes; the first one begins with the header.
pub(super) fn seal(ciphers: &Ciphers, parts: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    let (first, rest) = parts.split_first()?;
    let mut header = Header::decode(first)?;
    let clear = clear_bytes(&header);
    out.clear();
    out.reserve(bytes + SEAL_BYTES);
    let mut in_clear = clear;
    for part in std::iter::once(first).chain(rest) {
        let (before, after) = part.split_at(in_clear.min(part.len()));
        out.extend_from_slice(before);
        in_clear -= before.len();
        if in_clear == 0 && out.len() == clear {
            out.resize(clear + SEAL_BYTES, 0);
        }
        out.extend_from_slice(after);
    }
    header.is_sealed = true;
    header.stored_bytes += SEAL_BYTES as u32;
    header.encode(out);
    let (before, content) = out.split_at_mut(clear + SEAL_BYTES);
    let seal = ciphers
        .log
        .seal(context(&before[..clear]).as_slice(), content);
    before[clear..].copy_from_slice(&seal);
    header.checksum = xxh3_64(&out[HEADER_BYTES..]);
    header.encode(out);
    Some(())
}

/// The usual form of a stored group of `header`, whose checksums match: what follows the header. Returns the header
/// of this form, but for its checksum.
///
/// # Errors
/// If the group is not authentic.
pub(super) fn open(
    ciphers: &Ciphers,
    header: &Header,
    mut group: Vec<u8>,
) -> Result<(Header, Vec<u8>), &'static str> {
    let malformed = "a group of the log is malformed";
    let clear = clear_bytes(header);
    if !header.is_sealed || group.len() < clear + SEAL_BYTES {
        return Err(malformed);
    }
    let (before, content) = group.split_at_mut(clear + SEAL_BYTES);
    let (before, seal) = before.split_at(clear);
    let seal = seal.first_chunk().ok_or(malformed)?;
    let opened = (ciphers.log).open(seal, context(before).as_slice(), content);
    opened.map_err(|error| match error {
        frond_encryption::Error::UnknownKey(_) => {
            "a group of the log is encrypted with a key that the key store does not have"
        }
        _ => "a group of the log was changed or moved",
    })?;
    group.drain(clear..clear + SEAL_BYTES);
    let mut header = *header;
    header.is_sealed = false;
    header.stored_bytes -= SEAL_BYTES as u32;
    Ok((header, group))
}

/// Bytes at the start of a group that are not encrypted.
fn clear_bytes(header: &Header) -> usize {
    HEADER_BYTES + if header.is_entry { MARK_BYTES } else { 0 }
}

struct Context {
    bytes: [u8; CONTEXT_BYTES_MAX],
    len: usize,
}

impl Context {
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn context(clear: &[u8]) -> Context {
    let mut context = Context {
        bytes: [0; CONTEXT_BYTES_MAX],
        len: clear.len() - 16,
    };
    let (fields, mark) = (&clear[8..HEADER_BYTES - 8], &clear[HEADER_BYTES..]);
    context.bytes[..fields.len()].copy_from_slice(fields);
    context.bytes[fields.len()..context.len].copy_from_slice(mark);
    context
}
