//! An entry of a memtable, as it lies in the arena. One of the crate's two modules with `unsafe`.
//!
//! Sequence number (8 bytes), value length (4), key length (2), kind (1), a zero, key, value.

use super::arena::Arena;
use crate::Kind;

/// Bytes before the key.
pub(super) const HEADER_BYTES: u32 = 16;

/// The offset of an entry in the arena; 0 stands for none.
pub(super) type Link = u32;

/// A view of one entry.
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) sequence: u64,
    pub(crate) kind: Kind,
    pub(crate) value: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The entry at a link other than 0.
    pub(super) fn at(arena: &'a Arena, link: Link) -> Entry<'a> {
        // SAFETY: links are taken out of an index under its lock. The entry was written before its link was put
        // there under the same lock, and never changes.
        unsafe {
            let header = arena.bytes(link, HEADER_BYTES as usize);
            let (mut sequence, mut value_len) = ([0; 8], [0; 4]);
            sequence.copy_from_slice(&header[..8]);
            value_len.copy_from_slice(&header[8..12]);
            let key_len = u32::from(u16::from_le_bytes([header[12], header[13]]));
            let key_at = link + HEADER_BYTES;
            Entry {
                key: arena.bytes(key_at, key_len as usize),
                sequence: u64::from_le_bytes(sequence),
                kind: Kind::from_byte(header[14]).unwrap_or(Kind::Delete),
                value: arena.bytes(key_at + key_len, u32::from_le_bytes(value_len) as usize),
            }
        }
    }

    /// Writes the entry into the arena; `None` if that is full. Nobody knows the link yet.
    pub(super) fn store(&self, arena: &Arena) -> Option<Link> {
        let (key_len, value_len) = (self.key.len(), self.value.len());
        let link = arena.allocate(HEADER_BYTES as usize + key_len + value_len)?;
        let mut header = [0; HEADER_BYTES as usize];
        header[..8].copy_from_slice(&self.sequence.to_le_bytes());
        header[8..12].copy_from_slice(&(value_len as u32).to_le_bytes());
        header[12..14].copy_from_slice(&(key_len as u16).to_le_bytes());
        header[14] = self.kind.to_byte();
        let key_at = link + HEADER_BYTES;
        // SAFETY: all three ranges lie in the piece just allocated, which nobody else knows yet.
        unsafe {
            arena.write(link, &header);
            arena.write(key_at, self.key);
            arena.write(key_at + key_len as u32, self.value);
        }
        Some(link)
    }
}
