//! Finding the end of a key without decoding it.

use super::number::{Bytes, split_number};
use super::{Direction, tags};
use crate::MAX_DEPTH;

/// Length of the encoded value at the start of `bytes`; `None` when it is not a key.
pub fn skip(bytes: &[u8], direction: Direction) -> Option<usize> {
    let mut walk = Bytes {
        rest: bytes,
        mask: direction.mask(),
    };
    let tag = walk.next()?;
    value(tag, &mut walk, 0)?;
    Some(bytes.len() - walk.rest.len())
}

fn value(tag: u8, bytes: &mut Bytes<'_>, depth: usize) -> Option<()> {
    if depth > MAX_DEPTH + 1 {
        return None;
    }
    match tag {
        tags::NAN..=tags::POSITIVE_LARGE => split_number(tag, bytes).map(|_| ()),
        tags::STRING | tags::JAVASCRIPT => text(bytes),
        tags::DOCUMENT => elements(bytes, depth),
        tags::ARRAY => loop {
            let tag = bytes.next()?;
            if tag == tags::END {
                return Some(());
            }
            value(tag, bytes, depth + 1)?;
        },
        tags::BINARY => {
            let len = length(bytes)?;
            take(bytes, len.checked_add(1)?)
        }
        tags::DB_POINTER => {
            let len = length(bytes)?;
            take(bytes, len.checked_add(12)?)
        }
        tags::OBJECT_ID => take(bytes, 12),
        tags::DATE_TIME | tags::TIMESTAMP => take(bytes, 8),
        tags::REGEX => {
            text(bytes)?;
            text(bytes)
        }
        tags::JAVASCRIPT_WITH_SCOPE => {
            text(bytes)?;
            elements(bytes, depth)
        }
        tags::MIN_KEY | tags::UNDEFINED | tags::NULL | tags::FALSE | tags::TRUE | tags::MAX_KEY => {
            Some(())
        }
        _ => None,
    }
}

fn elements(bytes: &mut Bytes<'_>, depth: usize) -> Option<()> {
    loop {
        let class = bytes.next()?;
        if class == tags::END {
            return Some(());
        }
        text(bytes)?;
        let tag = match class {
            tags::NAN | tags::FALSE => bytes.next()?,
            _ => class,
        };
        value(tag, bytes, depth + 1)?;
    }
}

/// Skips to the byte after the end of a text. No escape contains an end byte.
fn text(bytes: &mut Bytes<'_>) -> Option<()> {
    let end = tags::END ^ bytes.mask;
    let at = bytes.rest.iter().position(|&b| b == end)?;
    take(bytes, at + 1)
}

fn length(bytes: &mut Bytes<'_>) -> Option<usize> {
    match bytes.next()? {
        tags::LONG_LENGTH => Some(bytes.integer(4)? as usize),
        short => Some(usize::from(short)),
    }
}

fn take(bytes: &mut Bytes<'_>, len: usize) -> Option<()> {
    bytes.rest = bytes.rest.get(len..)?;
    Some(())
}
