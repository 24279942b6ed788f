//! The operations of a commit, as encoded in the payload of its log frame.

use crate::options::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::{Compression, Error, Kind, Result, TreeId, TreeOptions, compress};

pub(crate) const OP_CREATE_TREE: u8 = 3;
pub(crate) const OP_DROP_TREE: u8 = 4;
pub(crate) const OP_DELETE_RANGE: u8 = 5;
pub(crate) const OP_CREATE_TREE_TO_LOAD: u8 = 6;

/// Bytes before an operation's key: its code, the tree, the lengths of key and value.
pub(crate) const ENTRY_HEADER_BYTES: usize = 11;

/// The initial state of a new tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewTree {
    Empty,
    /// A bulk loader will put its load below everything that is committed to the tree.
    ToBeLoaded,
}

/// A decoded operation.
pub(crate) enum Op<'a> {
    /// A message for a key.
    Entry {
        tree: TreeId,
        kind: Kind,
        key: &'a [u8],
        value: &'a [u8],
    },
    /// A new, empty tree.
    CreateTree(TreeId, TreeOptions, NewTree),
    /// A tree is dropped.
    DropTree(TreeId),
    /// The keys from `lower` on and below `upper` are deleted; `None` is no bound.
    DeleteRange {
        tree: TreeId,
        lower: &'a [u8],
        upper: Option<&'a [u8]>,
    },
}

/// How many sequence numbers a sound payload takes: one for each operation, and one if it has only guards.
pub(crate) fn numbers_of(payload: &[u8]) -> u64 {
    (decode(payload).count() as u64).max(1)
}

/// Fails for a key or a value that is too large.
#[inline]
pub(crate) fn check_sizes(key_len: usize, value_len: usize) -> Result<()> {
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

/// Decodes a payload that a write set has encoded, or that [`is_sound`] has checked.
///
/// # Panics
/// The iterator panics at malformed bytes: to end there would drop the rest of a commit.
pub(crate) fn decode(payload: &[u8]) -> Ops<'_> {
    Ops { rest: payload }
}

/// Whether a payload that was read is well-formed to its end.
pub(crate) fn is_sound(payload: &[u8]) -> bool {
    let mut ops = decode(payload);
    while !ops.rest.is_empty() {
        if ops.parse().is_none() {
            return false;
        }
    }
    true
}

/// An iterator over encoded operations.
pub(crate) struct Ops<'a> {
    rest: &'a [u8],
}

impl<'a> Ops<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn take_u16(&mut self) -> Option<usize> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?).into())
    }

    fn take_key(&mut self) -> Option<&'a [u8]> {
        let len = self.take_u16()?;
        self.take(len)
    }

    fn take_u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// The next operation; `None` if it is malformed.
    fn parse(&mut self) -> Option<Op<'a>> {
        let code = *self.take(1)?.first()?;
        let tree = TreeId(self.take_u32()?);
        match code {
            OP_CREATE_TREE | OP_CREATE_TREE_TO_LOAD => {
                let options = decode_options(self.take(OPTIONS_BYTES)?)?;
                let state = match code {
                    OP_CREATE_TREE => NewTree::Empty,
                    _ => NewTree::ToBeLoaded,
                };
                Some(Op::CreateTree(tree, options, state))
            }
            OP_DROP_TREE => Some(Op::DropTree(tree)),
            OP_DELETE_RANGE => {
                let lower = self.take_key()?;
                let upper = match self.take(1)? {
                    [0] => None,
                    [1] => Some(self.take_key()?),
                    _ => return None,
                };
                Some(Op::DeleteRange { tree, lower, upper })
            }
            _ => {
                let kind = Kind::from_byte(code)?;
                let key_len = self.take_u16()?;
                let value_len = self.take_u32()? as usize;
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

    fn next(&mut self) -> Option<Op<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        Some(self.parse().expect("the payload is sound"))
    }
}

/// Encoded size of [`TreeOptions`].
pub(crate) const OPTIONS_BYTES: usize = 9;

pub(crate) fn encode_options(options: &TreeOptions, out: &mut Vec<u8>) {
    out.push(compress::code(options.compression));
    out.extend_from_slice(&options.node_bytes.to_le_bytes());
    out.extend_from_slice(&options.page_bytes.to_le_bytes());
}

pub(crate) fn decode_options(bytes: &[u8]) -> Option<TreeOptions> {
    let compression: Compression = compress::from_code(*bytes.first()?)?;
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
