//! Encoding fast updates, combining and applying them. [`super::group`] describes the bytes.

use std::borrow::Cow;

use frond_bson::{Doc, MAX_DOCUMENT_BYTES, Value, tag};
use frond_query::update::{Series, Step};

use super::group::{
    Group, KIND, OPERATORS, Part, UPSERT, VERSION, is_plain_path, push_number, read, read_operand,
    write,
};
use super::{FastUpdateStats, fold};
use crate::keyspace::Malformed;
use crate::record::header;
use crate::record::message as parts;

/// An update with more bytes is not sent as a message.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

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
    let mut is_checked = false;
    for part in all {
        let in_parts = state.as_deref().is_some_and(header::is_header);
        match part {
            Part::ToParts(message) => {
                let next = parts::apply(state.as_deref(), std::iter::once(&*message))?;
                state = next.map(Cow::Owned);
                is_checked = false;
            }
            // Only the header is here. Nothing but a put takes the document out of its parts, and that would be the base.
            Part::Group(group) if in_parts => kept.push(Part::Group(group)),
            Part::Group(group) => {
                let doc = match state.as_deref() {
                    // A document that an update has made.
                    Some(made) if is_checked => Some(Doc::from_trusted(made)),
                    Some(record) => {
                        let damaged = |_| Malformed("a document cannot be read");
                        Some(Doc::validate(record).map_err(damaged)?)
                    }
                    None => None,
                };
                is_checked = true;
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
