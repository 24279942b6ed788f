//! The messages of fast updates.
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

use frond_bson::{Doc, MAX_DOCUMENT_BYTES, RawElement, Value, tag};
use frond_query::update::{Operation, Series, Step};

use super::{FastUpdateStats, fold};
use crate::keyspace::Malformed;
use crate::record::header;
use crate::record::message as parts;

/// The first byte of a message.
pub const KIND: u8 = 3;
const VERSION: u8 = 1;

const UPSERT: u8 = 1;
const TO_PARTS: u8 = 2;

/// The operators by their numbers in messages, counted from 1.
const OPERATORS: [&str; 8] = [
    "$set",
    "$unset",
    "$inc",
    "$mul",
    "$min",
    "$max",
    "$bit",
    "$setOnInsert",
];

/// An update with more bytes is not sent as a message.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

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

fn push_number(mut number: u64, out: &mut Vec<u8>) {
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
fn read_operand<'a>(bytes: &mut &'a [u8]) -> Option<(RawElement<'a>, Value<'a>)> {
    let (element, rest) = RawElement::split(bytes)?;
    if !element.name_bytes().is_empty() {
        return None;
    }
    *bytes = rest;
    Some((element, element.value()?))
}

fn read_operation<'a>(bytes: &mut &'a [u8]) -> Option<Operation<'a>> {
    let (&number, rest) = bytes.split_first()?;
    let operator = OPERATORS.get(usize::from(number).checked_sub(1)?)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (path, rest) = rest.split_at_checked(end)?;
    *bytes = rest.get(1..)?;
    Some(Operation {
        operator,
        path: std::str::from_utf8(path).ok()?,
    })
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

/// Whether a message is one of fast updates.
pub fn is_fast(message: &[u8]) -> bool {
    message.first() == Some(&KIND)
}

/// Whether a message can be read.
///
/// # Errors
/// If it cannot.
pub fn check(message: &[u8]) -> Result<(), Malformed> {
    read(message, &mut Vec::new())
}

/// Combines messages, the oldest first, into one with the same effect.
///
/// # Errors
/// If one cannot be read.
pub fn combine<'a>(messages: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, Malformed> {
    let mut all = Vec::new();
    for message in messages {
        read(message, &mut all)?;
    }
    Ok(write(&fold::folded(all)?))
}

/// Applies messages, the oldest first, to a record or to none. Updates that fail are added to `stats`, if these are given.
///
/// # Errors
/// If a message or the record cannot be read.
pub fn apply<'a>(
    base: Option<&[u8]>,
    messages: impl Iterator<Item = &'a [u8]>,
    stats: Option<&FastUpdateStats>,
) -> Result<Option<Vec<u8>>, Malformed> {
    let mut all = Vec::new();
    for message in messages {
        read(message, &mut all)?;
    }
    let mut state = base.map(Cow::Borrowed);
    let mut kept: Vec<Part<'_>> = Vec::new();
    for part in all {
        let in_parts = state.as_deref().is_some_and(header::is_header);
        match part {
            Part::ToParts(message) => {
                let next = parts::apply(state.as_deref(), std::iter::once(&*message))?;
                state = next.map(Cow::Owned);
            }
            // Only the header is here. Nothing but a put takes the document out of its parts, and that would be the base.
            Part::Group(group) if in_parts => kept.push(Part::Group(group)),
            Part::Group(group) => {
                let doc = state.as_deref().map(document).transpose()?;
                let (changed, failed, error) = apply_group(&group, doc);
                if let Some(stats) = stats.filter(|_| failed > 0) {
                    stats.failed(failed, error);
                }
                if let Some(changed) = changed {
                    state = Some(Cow::Owned(changed));
                }
            }
        }
    }
    if let Some(stored) = state.as_deref().filter(|_| !kept.is_empty()) {
        let damaged = Malformed("the header of a large document cannot be read");
        let before = header::pending(stored).ok_or(damaged)?;
        let mut all = Vec::new();
        if !before.is_empty() {
            read(before, &mut all)?;
        }
        all.extend(kept);
        let pending = write(&fold::folded(all)?);
        return Ok(header::with_pending(stored, &pending));
    }
    Ok(state.map(Cow::into_owned))
}

/// Applies a message that the header of a large document has kept to the whole document.
///
/// # Errors
/// If the message cannot be read.
pub fn apply_pending(doc: &Doc, message: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let changed = apply(Some(doc.as_bytes()), std::iter::once(message), None)?;
    Ok(changed.filter(|changed| changed != doc.as_bytes()))
}

/// A record as a document, if it has the form of one.
fn document(record: &[u8]) -> Result<&Doc, Malformed> {
    let length = record.first_chunk().copied().map(u32::from_le_bytes);
    let is_sound = length.is_some_and(|length| length as usize == record.len())
        && record.len() >= Doc::empty().len_bytes()
        && record.last() == Some(&0);
    if is_sound {
        Ok(Doc::from_trusted(record))
    } else {
        Err(Malformed("a document cannot be read"))
    }
}

/// The document after the updates of a group if they change it, how many failed, and the first error.
fn apply_group(
    group: &Group<'_>,
    base: Option<&Doc>,
) -> (Option<Vec<u8>>, u64, Option<frond_error::Error>) {
    let steps: Vec<Step<'_>> = (group.steps.iter())
        .map(|step| {
            let mut rest: &[u8] = &step.operands;
            let operands = std::iter::from_fn(|| Some(read_operand(&mut rest)?.1));
            Step {
                repeat: step.repeat,
                operands: operands.collect(),
            }
        })
        .collect();
    let series = Series {
        operations: &group.operations,
        steps: &steps,
        inserts: group.id.and_then(|id| id.value()),
    };
    let outcome = series.apply(base);
    let changed = match outcome.doc {
        Some(Cow::Owned(doc)) => Some(doc.into_vec()),
        _ => None,
    };
    (changed, outcome.failed, outcome.error)
}

/// Whether an update may be sent as a message, judged by its operators and its paths. It must be a valid one.
pub fn is_expressible(update: &Doc) -> bool {
    !update.is_empty()
        && update.len_bytes() < MESSAGE_BYTES_MAX
        && update.iter().all(|(operator, fields)| {
            let is_known = operator == "$currentDate" || OPERATORS.contains(&operator);
            let Value::Document(fields) = fields else {
                return false;
            };
            is_known && fields.iter_raw().all(|field| is_plain_path(field.name()))
        })
}

/// Whether an update may write such a path whatever the document is. The names of the first level that begin with `$` are of
/// references, whose fields depend on one another.
fn is_plain_path(path: &str) -> bool {
    let is_positional = |name: &str| name == "$" || name.starts_with("$[");
    !path.starts_with('$')
        && path != "_id"
        && !path.starts_with("_id.")
        && !path.split('.').any(is_positional)
}

/// Writes messages of updates that [`is_expressible`] is true of.
#[derive(Debug, Default)]
pub struct Encoder {
    /// The update that was encoded last, and the message after its `_id`.
    last: Vec<u8>,
    tail: Vec<u8>,
    message: Vec<u8>,
}

impl Encoder {
    /// The message of an update; `upsert` is the `_id` that it may insert. `now_ms` and `timestamp` are for `$currentDate`.
    pub fn encode(
        &mut self,
        update: &Doc,
        upsert: Option<&Value<'_>>,
        now_ms: i64,
        timestamp: frond_bson::Timestamp,
    ) -> &[u8] {
        if self.last != update.as_bytes() {
            self.tail.clear();
            let dated = write_tail(update, now_ms, timestamp, &mut self.tail);
            self.last.clear();
            if !dated {
                self.last.extend_from_slice(update.as_bytes());
            }
        }
        self.message.clear();
        self.message.extend_from_slice(&[KIND, VERSION]);
        match upsert {
            None => self.message.push(0),
            Some(id) => {
                self.message.push(UPSERT);
                push_operand(id, &mut self.message);
            }
        }
        self.message.extend_from_slice(&self.tail);
        &self.message
    }

    /// Whether the update is the one that was encoded last.
    pub fn knows(&self, update: &Doc) -> bool {
        self.last == update.as_bytes()
    }
}

/// Writes operations and one step. True if the operands depend on the time.
fn write_tail(
    update: &Doc,
    now_ms: i64,
    timestamp: frond_bson::Timestamp,
    out: &mut Vec<u8>,
) -> bool {
    let fields = || {
        update.iter().flat_map(|(operator, fields)| {
            let fields = match fields {
                Value::Document(fields) => fields,
                _ => Doc::empty(),
            };
            fields.iter_raw().map(move |field| (operator, field))
        })
    };
    push_number(fields().count() as u64, out);
    for (operator, field) in fields() {
        let name = if operator == "$currentDate" {
            "$set"
        } else {
            operator
        };
        let number = OPERATORS.iter().position(|one| *one == name).unwrap_or(0);
        out.push(number as u8 + 1);
        out.extend_from_slice(field.name_bytes());
        out.push(0);
    }
    push_number(1, out);
    push_number(1, out);
    let mut dated = false;
    for (operator, field) in fields() {
        match operator {
            "$unset" => out.extend_from_slice(&[tag::NULL, 0]),
            "$currentDate" => {
                dated = true;
                let as_timestamp = matches!(
                    field.value(),
                    Some(Value::Document(options)) if options.get_str("$type") == Some("timestamp")
                );
                push_operand(
                    &if as_timestamp {
                        Value::Timestamp(timestamp)
                    } else {
                        Value::DateTime(now_ms)
                    },
                    out,
                );
            }
            _ => {
                out.extend_from_slice(&[field.tag(), 0]);
                out.extend_from_slice(field.value_bytes());
            }
        }
    }
    dated
}

fn push_operand(value: &Value<'_>, out: &mut Vec<u8>) {
    let mut doc = frond_bson::DocBuf::new();
    doc.push_value("", value);
    out.extend_from_slice(doc.elements_bytes());
}

const _: () = assert!(MESSAGE_BYTES_MAX < MAX_DOCUMENT_BYTES / 2);

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
