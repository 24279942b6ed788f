//! An entry of a memtable in the arena. This is one of the crate's modules with `unsafe`..
//!
//! Sequence number (8 bytes), then in 8 bytes, from the lowest bit on: length of the value (25 bits), of the key (25),
//! kind (2), whether it is whole (1), depth (11). Then key and value.

use super::arena::Arena;
use crate::Kind;

/// Bytes before the key.
pub(super) const HEADER_BYTES: u32 = 16;

const LEN_BITS: u32 = 25;
const LEN_MASK: u32 = (1 << LEN_BITS) - 1;
const KEY_LEN_AT: u32 = LEN_BITS;
const KIND_AT: u32 = 2 * LEN_BITS;
const WHOLE_AT: u32 = KIND_AT + 2;
const DEPTH_AT: u32 = WHOLE_AT + 1;
/// A deeper entry gets half of this and one, so that the depth fits and doubles again.
const DEPTH_MAX: u16 = (1 << (64 - DEPTH_AT)) - 1;

/// The most bytes of a key, and of a value.
pub(super) const LEN_MAX: usize = LEN_MASK as usize;

/// Where an entry is in the arena of its memtable. Only [`Entry::store`] makes links, so each one leads to a whole entry
/// of the arena that it was stored in. Links do not leave their memtable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link(u32);

impl Link {
    /// No entry. The arena begins with zeros, so that even this link leads to an entry: one without key and value.
    pub(super) const NONE: Link = Link(0);

    pub(super) fn is_none(self) -> bool {
        self == Link::NONE
    }

    /// The offset in the arena.
    pub(super) fn offset(self) -> u32 {
        self.0
    }
}

/// A view of one entry.
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) sequence: u64,
    pub(crate) kind: Kind,
    pub(crate) value: &'a [u8],
    /// The older update messages are folded into this one: no older version of its key in the memtable matters.
    pub(crate) whole: bool,
    /// The approximate number of consecutive update messages of the key, up to this one; 0 if not counted.
    pub(crate) depth: u16,
}

impl<'a> Entry<'a> {
    /// An operation of a commit.
    pub(super) fn new(key: &'a [u8], sequence: u64, kind: Kind, value: &'a [u8]) -> Entry<'a> {
        Entry {
            key,
            sequence,
            kind,
            value,
            whole: false,
            depth: 0,
        }
    }

    /// The entry at a link.
    pub(super) fn at(arena: &'a Arena, link: Link) -> Entry<'a> {
        let at = link.offset();
        // SAFETY: a link comes from `store`, which has written a whole entry there, whose lengths lie inside of its piece.
        // Other threads take links out of an index under its lock. The entry was written before its link was put
        // there under the same lock, and never changes. A memtable has one arena, and its links stay in it. At 0
        // the arena has zeros that never change: an entry with lengths of 0.
        unsafe {
            let header = arena.bytes(at, HEADER_BYTES as usize);
            let (mut sequence, mut rest) = ([0; 8], [0; 8]);
            sequence.copy_from_slice(&header[..8]);
            rest.copy_from_slice(&header[8..]);
            let rest = u64::from_le_bytes(rest);
            let key_len = (rest >> KEY_LEN_AT) as u32 & LEN_MASK;
            let key_at = at + HEADER_BYTES;
            Entry {
                key: arena.bytes(key_at, key_len as usize),
                sequence: u64::from_le_bytes(sequence),
                kind: Kind::from_byte((rest >> KIND_AT) as u8 & 3)
                    .expect("an entry is stored with the byte of a kind"),
                value: arena.bytes(key_at + key_len, (rest as u32 & LEN_MASK) as usize),
                whole: rest >> WHOLE_AT & 1 == 1,
                depth: (rest >> DEPTH_AT) as u16,
            }
        }
    }

    /// Writes the entry into the arena; `None` if that is full. The link is not shared yet.
    pub(super) fn store(&self, arena: &Arena) -> Option<Link> {
        let (key_len, value_len) = (self.key.len(), self.value.len());
        if key_len.max(value_len) > LEN_MAX {
            // Commits are not that large, and folded messages need not be stored.
            return None;
        }
        let at = arena.allocate(HEADER_BYTES as usize + key_len + value_len)?;
        let mut header = [0; HEADER_BYTES as usize];
        header[..8].copy_from_slice(&self.sequence.to_le_bytes());
        header[8..].copy_from_slice(&self.rest_of_header().to_le_bytes());
        let key_at = at + HEADER_BYTES;
        // SAFETY: all three ranges lie in the piece just allocated, which no other thread has yet.
        unsafe {
            arena.write(at, &header);
            arena.write(key_at, self.key);
            arena.write(key_at + key_len as u32, self.value);
        }
        Some(Link(at))
    }

    fn rest_of_header(&self) -> u64 {
        self.value.len() as u64
            | (self.key.len() as u64) << KEY_LEN_AT
            | u64::from(self.kind.to_byte()) << KIND_AT
            | u64::from(self.whole) << WHOLE_AT
            | u64::from(self.depth) << DEPTH_AT
    }

    /// Sets the depth of an entry whose next older version has the depth `below`, and returns it. The link is not shared yet.
    pub(super) fn set_depth(arena: &Arena, link: Link, below: u16) -> u16 {
        let mut entry = Entry::at(arena, link);
        entry.depth = match below {
            DEPTH_MAX => DEPTH_MAX / 2 + 1,
            below => below + 1,
        };
        let (depth, rest) = (entry.depth, entry.rest_of_header());
        // SAFETY: the header lies in the piece of the entry, whose link is put into an index under the lock that
        // the caller holds.
        unsafe { arena.write(link.offset() + 8, &rest.to_le_bytes()) };
        depth
    }
}
