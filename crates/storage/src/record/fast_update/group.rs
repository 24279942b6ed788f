//! The form of the messages of fast updates.
//!
//! | message | bytes |
//! | --- | --- |
//! | kind, version | `3`, `1` |
//! | groups, one or more | see below |
//!
//! A group has updates of one shape, in their order:
//!
//! | group | bytes |
//! | --- | --- |
//! | flags | 1: upserts; 2: a message to the parts of a large document, which is all that the group has |
//! | of upserts: the `_id` | an element without a name: its type, `0`, its value |
//! | number of operations | a variable number |
//! | operations | the operator (1 byte), the path, `0` |
//! | number of steps | a variable number |
//! | steps | how often it is repeated (a variable number), an element without a name for each operation: its operand |
//!
//! | group of flag 2 | bytes |
//! | --- | --- |
//! | length | a variable number |
//! | message | see [`crate::record::message`] |
//!
//! Variable numbers have 7 bits in each byte, lowest first.

use std::borrow::Cow;

use frond_bson::{Doc, DocBuf, RawElement, Value, tag};
use frond_query::update::Operation;

use crate::keyspace::Malformed;
use crate::record::message as parts;

/// The first byte of a message.
pub const KIND: u8 = 3;
pub(super) const VERSION: u8 = 1;

pub(super) const UPSERT: u8 = 1;
const TO_PARTS: u8 = 2;

/// The operators by their numbers in messages, counted from 1.
pub(super) const OPERATORS: [&str; 8] = [
    "$set",
    "$unset",
    "$inc",
    "$mul",
    "$min",
    "$max",
    "$bit",
    "$setOnInsert",
];

/// One update of a group, as bytes.
#[derive(Clone, Debug)]
pub(super) struct RawStep<'a> {
    pub repeat: u64,
    /// The elements of the operands.
    pub operands: Cow<'a, [u8]>,
}

/// Updates of one shape.
#[derive(Clone, Debug)]
pub(super) struct Group<'a> {
    /// Flags, `_id`, number of operations and operations: equal for groups of the same shape.
    pub shape: &'a [u8],
    pub id: Option<RawElement<'a>>,
    pub operations: Vec<Operation<'a>>,
    pub steps: Vec<RawStep<'a>>,
}

#[derive(Clone, Debug)]
pub(super) enum Part<'a> {
    Group(Group<'a>),
    /// A message to the parts of a large document.
    ToParts(Cow<'a, [u8]>),
}

const MALFORMED: Malformed = Malformed("a fast update cannot be read");

pub(super) fn push_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// An element without a name whose value can be read.
pub(super) fn read_operand<'a>(bytes: &mut &'a [u8]) -> Option<(RawElement<'a>, Value<'a>)> {
    let (element, rest) = RawElement::split(bytes)?;
    if !element.name_bytes().is_empty() {
        return None;
    }
    *bytes = rest;
    if matches!(
        element.tag(),
        tag::DOCUMENT | tag::ARRAY | tag::JAVASCRIPT_WITH_SCOPE
    ) {
        let mut doc = DocBuf::new();
        doc.push_raw(&element);
        Doc::validate(doc.as_bytes()).ok()?;
    }
    Some((element, element.value()?))
}

fn read_operation<'a>(bytes: &mut &'a [u8]) -> Option<Operation<'a>> {
    let (&number, rest) = bytes.split_first()?;
    let operator = OPERATORS.get(usize::from(number).checked_sub(1)?)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (path, rest) = rest.split_at_checked(end)?;
    *bytes = rest.get(1..)?;
    let path = std::str::from_utf8(path).ok()?;
    is_plain_path(path).then_some(Operation { operator, path })
}

/// Whether an update may write such a path whatever the document is. The names of the first level that begin with `$` are of
/// references, whose fields depend on one another.
pub(super) fn is_plain_path(path: &str) -> bool {
    let is_positional = |name: &str| name == "$" || name.starts_with("$[");
    !path.starts_with('$')
        && path != "_id"
        && !path.starts_with("_id.")
        && !path.split('.').any(is_positional)
}

fn read_group<'a>(bytes: &mut &'a [u8]) -> Option<Part<'a>> {
    let start = *bytes;
    let (&flags, rest) = bytes.split_first()?;
    *bytes = rest;
    if flags == TO_PARTS {
        let length = usize::try_from(read_number(bytes)?).ok()?;
        let (message, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        parts::check(message).ok()?;
        return Some(Part::ToParts(message.into()));
    }
    let id = match flags {
        0 => None,
        UPSERT => Some(read_operand(bytes)?.0),
        _ => return None,
    };
    let count = usize::try_from(read_number(bytes)?).ok()?;
    // Each takes two bytes at least.
    let mut operations = Vec::with_capacity(count.min(bytes.len() / 2));
    for _ in 0..count {
        operations.push(read_operation(bytes)?);
    }
    let shape = start.get(..start.len() - bytes.len())?;
    let count = usize::try_from(read_number(bytes)?).ok()?;
    let mut steps = Vec::with_capacity(count.min(bytes.len()));
    for _ in 0..count {
        let repeat = read_number(bytes).filter(|repeat| *repeat > 0)?;
        let from = *bytes;
        for _ in 0..operations.len() {
            read_operand(bytes)?;
        }
        let operands = from.get(..from.len() - bytes.len())?;
        steps.push(RawStep {
            repeat,
            operands: operands.into(),
        });
    }
    Some(Part::Group(Group {
        shape,
        id,
        operations,
        steps,
    }))
}

/// Adds the groups of a message, which may be one to the parts of a large document.
pub(super) fn read<'a>(message: &'a [u8], into: &mut Vec<Part<'a>>) -> Result<(), Malformed> {
    if message.first() != Some(&KIND) {
        parts::check(message)?;
        into.push(Part::ToParts(message.into()));
        return Ok(());
    }
    let mut rest = message.strip_prefix(&[KIND, VERSION]).ok_or(MALFORMED)?;
    if rest.is_empty() {
        return Err(MALFORMED);
    }
    while !rest.is_empty() {
        into.push(read_group(&mut rest).ok_or(MALFORMED)?);
    }
    Ok(())
}

pub(super) fn write(all: &[Part<'_>]) -> Vec<u8> {
    let mut out = vec![KIND, VERSION];
    for part in all {
        match part {
            Part::ToParts(message) => {
                out.push(TO_PARTS);
                push_number(message.len() as u64, &mut out);
                out.extend_from_slice(message);
            }
            Part::Group(group) => {
                out.extend_from_slice(group.shape);
                push_number(group.steps.len() as u64, &mut out);
                for step in &group.steps {
                    push_number(step.repeat, &mut out);
                    out.extend_from_slice(&step.operands);
                }
            }
        }
    }
    out
}
