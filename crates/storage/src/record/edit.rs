//! Changing a value at a path within bytes.
//!
//! A path is the names of its fields, each followed by a zero byte: so one path leads to another if its bytes are a
//! prefix.

use std::ops::Range;

use frond_bson::{RawElement, tag};

/// The change of the field at a path. If a document on the path is missing, nothing is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The field is set to a value; a missing field is appended.
    Set,
    /// The field is removed.
    Remove,
    /// The field is removed, and appended with a value.
    Move,
    /// An integer is added to the integer in the field; a missing field is appended.
    Add,
}

impl Action {
    pub(super) fn to_byte(self) -> u8 {
        match self {
            Action::Set => 0,
            Action::Remove => 1,
            Action::Move => 2,
            Action::Add => 3,
        }
    }

    pub(super) fn from_byte(byte: u8) -> Option<Action> {
        Some(match byte {
            0 => Action::Set,
            1 => Action::Remove,
            2 => Action::Move,
            3 => Action::Add,
            _ => return None,
        })
    }
}

/// A value with its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typed<'a> {
    /// The BSON type byte.
    pub tag: u8,
    pub bytes: &'a [u8],
}

/// Splits the first name from a path.
pub fn split_path(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().position(|&byte| byte == 0)?;
    let (name, rest) = path.split_at_checked(end)?;
    Some((name, rest.get(1..)?))
}

/// The integer in a value.
pub fn integer(value: Typed<'_>) -> Option<i64> {
    match value.tag {
        tag::INT32 => Some(i64::from(i32::from_le_bytes(*value.bytes.first_chunk()?))),
        tag::INT64 => Some(i64::from_le_bytes(*value.bytes.first_chunk()?)),
        _ => None,
    }
}

/// A sum of integers as `$inc` computes it: of 32 bits if both are and it fits. `None` if one is no integer.
pub fn sum(a: Typed<'_>, b: Typed<'_>) -> Option<(u8, Vec<u8>)> {
    let sum = integer(a)?.wrapping_add(integer(b)?);
    Some(match i32::try_from(sum) {
        Ok(small) if a.tag == tag::INT32 && b.tag == tag::INT32 => {
            (tag::INT32, small.to_le_bytes().to_vec())
        }
        _ => (tag::INT64, sum.to_le_bytes().to_vec()),
    })
}

/// Appends an element to encoded elements.
pub fn push_element(name: &[u8], value: Typed<'_>, out: &mut Vec<u8>) {
    out.push(value.tag);
    out.extend_from_slice(name);
    out.push(0);
    out.extend_from_slice(value.bytes);
}

/// The position of an element.
struct Found {
    whole: Range<usize>,
    value: Range<usize>,
    tag: u8,
}

/// Finds an element among those that begin at `at`.
fn find(bytes: &[u8], mut at: usize, name: &[u8]) -> Option<Found> {
    loop {
        let (element, _) = RawElement::split(bytes.get(at..)?)?;
        let end = at + element.as_bytes().len();
        if element.name_bytes() == name {
            return Some(Found {
                whole: at..end,
                value: end - element.value_bytes().len()..end,
                tag: element.tag(),
            });
        }
        at = end;
    }
}

fn length_at(bytes: &[u8], at: usize) -> Option<usize> {
    let length = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*length) as usize)
}

/// Changes the document that begins at `start`. The caller adjusts the lengths of the documents around it. Returns by
/// how much it grew; `None` if the path leads nowhere.
pub fn in_document(
    bytes: &mut Vec<u8>,
    start: usize,
    path: &[u8],
    action: Action,
    value: Typed<'_>,
) -> Option<isize> {
    let (name, rest) = split_path(path)?;
    let found = find(bytes, start + 4, name);
    let grown = if rest.is_empty() {
        let end = (start + length_at(bytes, start)?).checked_sub(1)?;
        at_element(bytes, found, end, name, action, value)?
    } else {
        let found = found?;
        if !matches!(found.tag, tag::DOCUMENT | tag::ARRAY) {
            return None;
        }
        in_document(bytes, found.value.start, rest, action, value)?
    };
    if grown != 0 {
        let length = length_at(bytes, start)?.checked_add_signed(grown)?;
        let length = u32::try_from(length).ok()?;
        bytes
            .get_mut(start..start + 4)?
            .copy_from_slice(&length.to_le_bytes());
    }
    Some(grown)
}

fn at_element(
    bytes: &mut Vec<u8>,
    found: Option<Found>,
    end: usize,
    name: &[u8],
    action: Action,
    value: Typed<'_>,
) -> Option<isize> {
    let before = bytes.len();
    let summed;
    let value = match (action, &found) {
        (Action::Add, Some(found)) => {
            let old = Typed {
                tag: found.tag,
                bytes: bytes.get(found.value.clone())?,
            };
            summed = sum(old, value)?;
            Typed {
                tag: summed.0,
                bytes: &summed.1,
            }
        }
        _ => value,
    };
    match (action, found) {
        (Action::Set | Action::Add, Some(found)) => {
            set_value(bytes, found.whole.start, found.value, value)?;
        }
        (Action::Remove, Some(found)) => {
            bytes.drain(found.whole);
        }
        (Action::Remove, None) => {}
        (Action::Move, Some(found)) => {
            let end = end - found.whole.len();
            bytes.drain(found.whole);
            insert_element(bytes, end, name, value);
        }
        (Action::Set | Action::Add | Action::Move, None) => {
            insert_element(bytes, end, name, value);
        }
    }
    Some(bytes.len() as isize - before as isize)
}

/// Replaces a value, whose type byte is at `tag_at`.
pub fn set_value(
    bytes: &mut Vec<u8>,
    tag_at: usize,
    place: Range<usize>,
    value: Typed<'_>,
) -> Option<()> {
    *bytes.get_mut(tag_at)? = value.tag;
    if place.len() == value.bytes.len() {
        bytes.get_mut(place)?.copy_from_slice(value.bytes);
    } else {
        bytes.splice(place, value.bytes.iter().copied());
    }
    Some(())
}

fn insert_element(bytes: &mut Vec<u8>, at: usize, name: &[u8], value: Typed<'_>) {
    let mut element = Vec::with_capacity(name.len() + 2 + value.bytes.len());
    push_element(name, value, &mut element);
    let at = at.min(bytes.len());
    bytes.splice(at..at, element);
}
