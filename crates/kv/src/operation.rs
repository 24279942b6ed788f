//! The operations of a commit as bytes.
//!
//! A write set encodes its operations when they are added, so that an engine with a log appends these bytes as they are and
//! copies nothing. They are therefore a part of the format of the embedded engine's log: a change of them is a change of that format.

use std::borrow::Cow;

use crate::options::{Compression, KEY_BYTES_MAX, TreeOptions, VALUE_BYTES_MAX};
use crate::{Error, Kind, Result, TreeId};

/// Keys above this are long: they need four bytes for their length.
pub const SHORT_KEY_BYTES_MAX: usize = u16::MAX as usize;

pub(crate) const OP_CREATE_TREE: u8 = 3;
pub(crate) const OP_DROP_TREE: u8 = 4;
pub(crate) const OP_DELETE_RANGE: u8 = 5;
pub(crate) const OP_CREATE_TREE_TO_LOAD: u8 = 6;
/// The first stamp of a commit. It is the last operation of a payload with stamped puts, and takes no sequence number.
pub(crate) const OP_STAMP: u8 = 7;
/// A put whose key begins with an offset (8 bytes, big-endian), to which the first stamp of the commit is added.
pub(crate) const OP_PUT_STAMPED: u8 = 8;
/// Set in the code of an operation with a long key, whose length has four bytes in place of two.
pub(crate) const LONG_KEYS: u8 = 0x80;

/// Bytes before an operation's key: its code, the tree, the lengths of key and value.
pub(crate) const ENTRY_HEADER_BYTES: usize = 11;
/// The same of an operation with a long key.
pub(crate) const LONG_ENTRY_HEADER_BYTES: usize = 13;
/// Size of a stamp at the start of a key.
pub(crate) const STAMP_BYTES: usize = 8;
/// Size in bytes of what [`encode_stamp`] makes: a code, a tree that is not used, and the stamp.
pub const OP_STAMP_BYTES: usize = 5 + STAMP_BYTES;

/// The initial state of a new tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTree {
    Empty,
    /// A bulk loader will put its load below everything that is committed to the tree.
    ToBeLoaded,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op<'a> {
    /// A message for a key.
    Entry {
        /// The tree of the key.
        tree: TreeId,
        kind: Kind,
        key: &'a [u8],
        /// The value of a put, the delta of an update message; empty for a delete.
        value: &'a [u8],
    },
    /// A new, empty tree.
    CreateTree(TreeId, TreeOptions, NewTree),
    /// A tree is dropped.
    DropTree(TreeId),
    /// The keys from `lower` on and below `upper` are deleted; `None` is no bound.
    DeleteRange {
        /// The tree of the keys.
        tree: TreeId,
        /// The first key that is deleted.
        lower: &'a [u8],
        /// The first key behind them that is not.
        upper: Option<&'a [u8]>,
    },
}

/// The number of sequence numbers that a sound payload takes: one for each operation, and one if it has only guards.
pub fn numbers_of(payload: &[u8]) -> u64 {
    (decode(payload).count() as u64).max(1)
}

/// Fails for a key or a value that is too large.
///
/// # Errors
/// [`Error::TooLarge`].
#[inline]
pub fn check_sizes(key_len: usize, value_len: usize) -> Result<()> {
    for (what, bytes, limit) in [
        ("key", key_len, KEY_BYTES_MAX),
        ("value", value_len, VALUE_BYTES_MAX),
    ] {
        if bytes > limit {
            return Err(Error::TooLarge { what, bytes, limit });
        }
    }
    Ok(())
}

/// Decodes a payload that a write set has encoded, or that [`is_sound`] has checked. Stamped puts have their offsets in
/// place of their stamps, unless [`with_stamps`] has added these.
///
/// # Panics
/// The iterator panics at malformed bytes: to end there would drop the rest of a commit.
pub fn decode(payload: &[u8]) -> Ops<'_> {
    Ops {
        rest: payload,
        len: payload.len(),
        stamped_at: None,
        stamp: None,
    }
}

/// Whether a payload that was read is well-formed to its end.
pub fn is_sound(payload: &[u8]) -> bool {
    let mut ops = decode(payload);
    let mut is_stamped = false;
    while !ops.is_at_end() {
        if ops.parse().is_none() {
            return false;
        }
        is_stamped |= ops.stamped_at.is_some();
    }
    is_stamped == ops.stamp.is_some()
}

/// Encodes the first stamp of a commit: the last operation of a payload with stamped puts.
pub fn encode_stamp(first: u64) -> [u8; OP_STAMP_BYTES] {
    let mut bytes = [0; OP_STAMP_BYTES];
    bytes[0] = OP_STAMP;
    bytes[5..].copy_from_slice(&first.to_le_bytes());
    bytes
}

/// Makes the stamped put at `at` an ordinary one: adds the first stamp to its offset. Returns its stamp.
pub(crate) fn add_stamp(payload: &mut [u8], at: usize, first: u64) -> u64 {
    let long = payload[at] & LONG_KEYS;
    payload[at] = Kind::Put.to_byte() | long;
    let key = at
        + match long {
            0 => ENTRY_HEADER_BYTES,
            _ => LONG_ENTRY_HEADER_BYTES,
        };
    let place = &mut payload[key..key + STAMP_BYTES];
    let mut offset = [0; STAMP_BYTES];
    offset.copy_from_slice(place);
    let stamp = u64::from_be_bytes(offset).wrapping_add(first);
    place.copy_from_slice(&stamp.to_be_bytes());
    stamp
}

/// The first stamp of a sound payload of the log, if its commit has one.
pub fn first_stamp(payload: &[u8]) -> Option<u64> {
    let mut ops = decode(payload);
    while ops.next().is_some() {}
    ops.stamp
}

/// A sound payload of the log with ordinary puts in place of stamped ones, and the last of its stamps.
pub fn with_stamps(payload: &[u8]) -> (Cow<'_, [u8]>, Option<u64>) {
    let Some((first, places)) = stamped_puts(payload) else {
        return (Cow::Borrowed(payload), None);
    };
    let mut ordinary = payload[..payload.len() - OP_STAMP_BYTES].to_vec();
    let last = add_all(&mut ordinary, first, &places);
    (Cow::Owned(ordinary), last)
}

/// As [`with_stamps`], in place.
pub fn add_stamps(payload: &mut [u8]) -> (&[u8], Option<u64>) {
    let Some((first, places)) = stamped_puts(payload) else {
        return (payload, None);
    };
    let kept = payload.len() - OP_STAMP_BYTES;
    let ordinary = &mut payload[..kept];
    let last = add_all(ordinary, first, &places);
    (ordinary, last)
}

/// Makes the stamped puts at these positions ordinary ones. Returns the last of their stamps.
fn add_all(payload: &mut [u8], first: u64, places: &[usize]) -> Option<u64> {
    places.iter().map(|at| add_stamp(payload, *at, first)).max()
}

/// The first stamp of a sound payload, and the positions of its stamped puts.
fn stamped_puts(payload: &[u8]) -> Option<(u64, Vec<usize>)> {
    let mut ops = decode(payload);
    let mut places = Vec::new();
    while ops.next().is_some() {
        places.extend(ops.stamped_at);
    }
    ops.stamp.map(|first| (first, places))
}

/// An iterator over encoded operations.
pub struct Ops<'a> {
    rest: &'a [u8],
    len: usize,
    /// The position of the operation that was parsed last, if it is a stamped put.
    stamped_at: Option<usize>,
    /// The first stamp of the commit, at the end.
    stamp: Option<u64>,
}

impl<'a> Ops<'a> {
    /// Whether there are no more operations. Reads the stamp behind them.
    #[inline]
    fn is_at_end(&mut self) -> bool {
        if let [OP_STAMP, 0, 0, 0, 0, stamp @ ..] = self.rest
            && let Ok(stamp) = stamp.try_into()
        {
            self.stamp = Some(u64::from_le_bytes(stamp));
            self.rest = &[];
        }
        self.rest.is_empty()
    }

    #[inline]
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    fn take_u16(&mut self) -> Option<usize> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?).into())
    }

    /// The length of a key, in two bytes or in four.
    #[inline]
    fn take_key_len(&mut self, is_long: bool) -> Option<usize> {
        if is_long {
            Some(self.take_u32()? as usize)
        } else {
            self.take_u16()
        }
    }

    #[inline]
    fn take_key(&mut self, is_long: bool) -> Option<&'a [u8]> {
        let len = self.take_key_len(is_long)?;
        self.take(len)
    }

    #[inline]
    fn take_u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// The next operation; `None` if it is malformed.
    #[inline]
    fn parse(&mut self) -> Option<Op<'a>> {
        let at = self.len - self.rest.len();
        self.stamped_at = None;
        let code = *self.take(1)?.first()?;
        let tree = TreeId(self.take_u32()?);
        let (code, is_long) = (code & !LONG_KEYS, code & LONG_KEYS != 0);
        match code {
            OP_CREATE_TREE | OP_CREATE_TREE_TO_LOAD if !is_long => {
                let options = decode_options(self.take(OPTIONS_BYTES)?)?;
                let state = match code {
                    OP_CREATE_TREE => NewTree::Empty,
                    _ => NewTree::ToBeLoaded,
                };
                Some(Op::CreateTree(tree, options, state))
            }
            OP_DROP_TREE if !is_long => Some(Op::DropTree(tree)),
            OP_DELETE_RANGE => {
                let lower = self.take_key(is_long)?;
                let upper = match self.take(1)? {
                    [0] => None,
                    [1] => Some(self.take_key(is_long)?),
                    _ => return None,
                };
                Some(Op::DeleteRange { tree, lower, upper })
            }
            _ => {
                let is_stamped = code == OP_PUT_STAMPED;
                let kind = if is_stamped {
                    Kind::Put
                } else {
                    Kind::from_byte(code)?
                };
                let key_len = self.take_key_len(is_long)?;
                if is_stamped {
                    self.stamped_at = (key_len >= STAMP_BYTES).then_some(at);
                    self.stamped_at?;
                }
                let value_len = self.take_u32()? as usize;
                // A memtable could not store more.
                check_sizes(key_len, value_len).ok()?;
                Some(Op::Entry {
                    tree,
                    kind,
                    key: self.take(key_len)?,
                    value: self.take(value_len)?,
                })
            }
        }
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Op<'a>;

    #[inline]
    fn next(&mut self) -> Option<Op<'a>> {
        if self.is_at_end() {
            return None;
        }
        Some(self.parse().expect("the payload is sound"))
    }
}

/// Encoded size of [`TreeOptions`].
pub const OPTIONS_BYTES: usize = 9;

/// Encodes [`TreeOptions`].
pub fn encode_options(options: &TreeOptions, out: &mut Vec<u8>) {
    out.push(options.compression.code());
    out.extend_from_slice(&options.node_bytes.to_le_bytes());
    out.extend_from_slice(&options.page_bytes.to_le_bytes());
}

/// Decodes [`TreeOptions`]; `None` if they are malformed.
pub fn decode_options(bytes: &[u8]) -> Option<TreeOptions> {
    let compression = Compression::from_code(*bytes.first()?)?;
    let node_bytes = u32::from_le_bytes(bytes.get(1..5)?.try_into().ok()?);
    let page_bytes = u32::from_le_bytes(bytes.get(5..9)?.try_into().ok()?);
    let options = TreeOptions {
        compression,
        node_bytes,
        page_bytes,
    };
    options.check().ok()?;
    Some(options)
}
