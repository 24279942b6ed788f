//! Path messages: changes of headers and segments that the engine keeps, combines and applies.
//!
//! | message | bytes |
//! | --- | --- |
//! | to a header | `1`, revision, counted bytes, slack (4 each), number of containers (2), the new state of these containers, operations |
//! | to a segment | `2`, operations |
//!
//! | operation | bytes |
//! | --- | --- |
//! | what is done | 1, see [`Action`] |
//! | length of the path | a variable number, 7 bits each, lowest first |
//! | path | names, each followed by a zero byte |
//! | ordinal | 4, in segments: the ordinal of the element if the path is one name and it is appended |
//! | value | its type, its bytes; nothing if the field is removed |

use std::borrow::Cow;

use frond_bson::{Doc, tag, value_len};

use super::edit::{self, Action, Typed};
use super::header::{Container, Header};
use super::segment;
use crate::keyspace::Malformed;

const TO_HEADER: u8 = 1;
const TO_SEGMENT: u8 = 2;

/// One change within a header or a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    pub action: Action,
    /// The path within the skeleton or the container.
    pub path: Cow<'a, [u8]>,
    /// The ordinal of an element of a segment that is appended.
    pub ordinal: u32,
    /// The type of the value.
    pub tag: u8,
    pub value: Cow<'a, [u8]>,
}

impl Operation<'_> {
    fn typed(&self) -> Typed<'_> {
        Typed {
            tag: self.tag,
            bytes: &self.value,
        }
    }

    /// About how many bytes the operation takes.
    pub fn bytes(&self) -> usize {
        self.path.len() + self.value.len() + 8
    }

    fn write(&self, to_segment: bool, out: &mut Vec<u8>) {
        out.push(self.action.to_byte());
        segment::write_length(self.path.len(), out);
        out.extend_from_slice(&self.path);
        if to_segment {
            out.extend_from_slice(&self.ordinal.to_le_bytes());
        }
        if self.action != Action::Remove {
            out.push(self.tag);
            out.extend_from_slice(&self.value);
        }
    }

    fn read(bytes: &[u8], to_segment: bool) -> Option<(Operation<'_>, &[u8])> {
        let (&action, mut rest) = bytes.split_first()?;
        let action = Action::from_byte(action)?;
        let length = segment::read_length(&mut rest)?;
        let (path, mut rest) = rest.split_at_checked(length)?;
        let mut ordinal = 0;
        if to_segment {
            let (number, after) = rest.split_first_chunk()?;
            ordinal = u32::from_le_bytes(*number);
            rest = after;
        }
        let (mut tag, mut value): (u8, &[u8]) = (tag::NULL, &[]);
        if action != Action::Remove {
            let (&first, after) = rest.split_first()?;
            tag = first;
            (value, rest) = after.split_at_checked(value_len(tag, after)?)?;
        }
        let operation = Operation {
            action,
            path: Cow::Borrowed(path),
            ordinal,
            tag,
            value: Cow::Borrowed(value),
        };
        Some((operation, rest))
    }
}

/// The numbers that a message sets in a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// See [`Header`].
    pub revision: u32,
    /// See [`Header`].
    pub counted: u32,
    /// See [`Header`].
    pub slack: u32,
    /// The containers that differ.
    pub containers: Vec<Container>,
}

/// A message to a header.
pub fn to_header(numbers: &Numbers, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut out = vec![TO_HEADER];
    for number in [numbers.revision, numbers.counted, numbers.slack] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&(numbers.containers.len() as u16).to_le_bytes());
    for container in &numbers.containers {
        container.write(&mut out);
    }
    for operation in operations {
        operation.write(false, &mut out);
    }
    out
}

/// Appends a message to a segment.
pub fn to_segment<'o, 'd: 'o>(
    operations: impl IntoIterator<Item = &'o Operation<'d>>,
    out: &mut Vec<u8>,
) {
    out.push(TO_SEGMENT);
    for operation in operations {
        operation.write(true, out);
    }
}

enum Message<'a> {
    Header(Numbers, Vec<Operation<'a>>),
    Segment(Vec<Operation<'a>>),
}

fn operations(mut bytes: &[u8], to_segment: bool) -> Option<Vec<Operation<'_>>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (operation, rest) = Operation::read(bytes, to_segment)?;
        found.push(operation);
        bytes = rest;
    }
    Some(found)
}

fn read_numbers(bytes: &[u8]) -> Option<(Numbers, &[u8])> {
    let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let mut numbers = Numbers {
        revision: number(0)?,
        counted: number(4)?,
        slack: number(8)?,
        containers: Vec::new(),
    };
    let (count, mut rest) = bytes.get(12..)?.split_first_chunk()?;
    for _ in 0..u16::from_le_bytes(*count) {
        let (container, after) = Container::read(rest)?;
        numbers.containers.push(container);
        rest = after;
    }
    Some((numbers, rest))
}

fn read(message: &[u8]) -> Result<Message<'_>, Malformed> {
    let parse = || {
        let (&kind, rest) = message.split_first()?;
        match kind {
            TO_HEADER => {
                let (numbers, rest) = read_numbers(rest)?;
                Some(Message::Header(numbers, operations(rest, false)?))
            }
            TO_SEGMENT => Some(Message::Segment(operations(rest, true)?)),
            _ => None,
        }
    };
    parse().ok_or(Malformed("an update of a large document cannot be read"))
}

/// Whether a message can be read.
pub fn check(message: &[u8]) -> Result<(), Malformed> {
    read(message).map(|_| ())
}

/// Combines messages, oldest first, into one with the same effect.
pub fn combine<'a>(messages: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, Malformed> {
    let mut all: Vec<Operation<'_>> = Vec::new();
    let mut numbers: Option<Numbers> = None;
    for message in messages {
        let newer = match read(message)? {
            Message::Header(mut newer, operations) => {
                if let Some(older) = numbers {
                    let is_newer =
                        |one: &Container| newer.containers.iter().any(|c| c.id == one.id);
                    let kept: Vec<_> = (older.containers.into_iter())
                        .filter(|one| !is_newer(one))
                        .collect();
                    newer.containers.extend(kept);
                }
                numbers = Some(newer);
                operations
            }
            Message::Segment(operations) => operations,
        };
        for operation in newer {
            add(&mut all, operation);
        }
    }
    Ok(match numbers {
        Some(numbers) => to_header(&numbers, &all),
        None => {
            let mut out = Vec::with_capacity(all.iter().map(Operation::bytes).sum::<usize>() + 1);
            to_segment(&all, &mut out);
            out
        }
    })
}

/// Appends an operation to others, or folds it into one of them.
fn add<'a>(all: &mut Vec<Operation<'a>>, newer: Operation<'a>) {
    // Operations on paths of which neither leads to the other commute.
    let related = |one: &Operation<'_>| {
        one.path.starts_with(&newer.path) || newer.path.starts_with(&one.path)
    };
    let Some(place) = all.iter().rposition(related) else {
        all.push(newer);
        return;
    };
    let Some(older) = all.get_mut(place).filter(|one| one.path == newer.path) else {
        all.push(newer);
        return;
    };
    match (older.action, newer.action) {
        (Action::Set | Action::Move, Action::Set) => {
            (older.tag, older.value) = (newer.tag, newer.value);
        }
        (Action::Add, Action::Set) => {
            older.action = Action::Set;
            (older.tag, older.value) = (newer.tag, newer.value);
        }
        (_, Action::Remove) => {
            older.action = Action::Remove;
            (older.tag, older.value) = (tag::NULL, Cow::default());
        }
        // An appended field follows those that were appended in the meantime.
        (_, Action::Move) | (Action::Remove, Action::Set | Action::Add) => {
            all.remove(place);
            all.push(Operation {
                action: Action::Move,
                ..newer
            });
        }
        (Action::Set | Action::Move, Action::Add) => {
            match edit::sum(older.typed(), newer.typed()) {
                Some((tag, value)) => (older.tag, older.value) = (tag, Cow::Owned(value)),
                None => all.push(newer),
            }
        }
        (Action::Add, Action::Add) => match folded_sum(older.typed(), newer.typed()) {
            Some((tag, value)) => (older.tag, older.value) = (tag, Cow::Owned(value)),
            None => all.push(newer),
        },
    }
}

/// The sum whose addition has the same effect as the parts one after the other, also on the type.
fn folded_sum(older: Typed<'_>, newer: Typed<'_>) -> Option<(u8, Vec<u8>)> {
    let (a, b) = (edit::integer(older)?, edit::integer(newer)?);
    match (older.tag, newer.tag) {
        (tag::INT64, tag::INT64) => edit::sum(older, newer),
        // Additions of the same sign leave 32 bits at the end, or never.
        (tag::INT32, tag::INT32) if (a < 0) == (b < 0) => {
            edit::sum(older, newer).filter(|(tag, _)| *tag == tag::INT32)
        }
        _ => None,
    }
}

/// Applies messages, oldest first, to a header or a segment. A segment without elements is deleted. A header that
/// is missing stays so.
pub fn apply<'a>(
    base: Option<&[u8]>,
    messages: impl Iterator<Item = &'a [u8]>,
) -> Result<Option<Vec<u8>>, Malformed> {
    let mut state = base.map(<[u8]>::to_vec);
    let mut is_checked = false;
    // The header is parsed once for all messages.
    let mut open: Option<(Header, Vec<u8>)> = None;
    for message in messages {
        match read(message)? {
            Message::Header(numbers, operations) => {
                if open.is_none()
                    && let Some(stored) = &state
                {
                    let (header, skeleton) = Header::read(stored)
                        .ok_or(Malformed("the header of a large document cannot be read"))?;
                    open = Some((header, skeleton.as_bytes().to_vec()));
                }
                if let Some((header, skeleton)) = &mut open {
                    apply_to_header(header, skeleton, &numbers, &operations);
                }
            }
            Message::Segment(operations) => {
                if !is_checked && !state.as_deref().is_none_or(segment::is_sound) {
                    return Err(Malformed("a segment of a large document cannot be read"));
                }
                is_checked = true;
                let bytes = state.get_or_insert_default();
                for operation in &operations {
                    apply_to_segment(bytes, operation);
                }
            }
        }
    }
    if let Some((header, skeleton)) = open {
        return Ok(Some(header.write(&skeleton)));
    }
    Ok(state.filter(|bytes| !bytes.is_empty()))
}

fn apply_to_header(
    header: &mut Header,
    skeleton: &mut Vec<u8>,
    numbers: &Numbers,
    operations: &[Operation<'_>],
) {
    header.revision = numbers.revision;
    header.counted = numbers.counted;
    header.slack = numbers.slack;
    for newer in &numbers.containers {
        if let Some(container) = header.container_mut(newer.id) {
            *container = *newer;
        }
    }
    for one in operations {
        edit::in_document(skeleton, 0, &one.path, one.action, one.typed());
    }
}

/// The header after changes, as a whole record.
pub fn rewrite_header(mut header: Header, skeleton: &Doc, operations: &[Operation<'_>]) -> Vec<u8> {
    header.based = header.revision;
    let mut skeleton = skeleton.as_bytes().to_vec();
    for one in operations {
        edit::in_document(&mut skeleton, 0, &one.path, one.action, one.typed());
    }
    header.write(&skeleton)
}

/// Does nothing if the path leads nowhere.
fn apply_to_segment(bytes: &mut Vec<u8>, operation: &Operation<'_>) -> Option<()> {
    let (name, rest) = edit::split_path(&operation.path)?;
    let Some(entry) = segment::find(bytes, name) else {
        if rest.is_empty() && operation.action != Action::Remove {
            let mut element = Vec::new();
            edit::push_element(name, operation.typed(), &mut element);
            *bytes = segment::rebuilt(bytes, None, None, Some((operation.ordinal, &element)));
        }
        return Some(());
    };
    let old = Typed {
        tag: entry.element.tag(),
        bytes: entry.element.value_bytes(),
    };
    let mut element = Vec::new();
    if !rest.is_empty() {
        if !matches!(old.tag, tag::DOCUMENT | tag::ARRAY) {
            return None;
        }
        element.extend_from_slice(entry.element.as_bytes());
        let start = element.len() - old.bytes.len();
        edit::in_document(
            &mut element,
            start,
            rest,
            operation.action,
            operation.typed(),
        )?;
    } else {
        let summed;
        let value = match operation.action {
            Action::Add => {
                summed = edit::sum(old, operation.typed())?;
                Typed {
                    tag: summed.0,
                    bytes: &summed.1,
                }
            }
            Action::Set | Action::Move => operation.typed(),
            Action::Remove => {
                *bytes = segment::rebuilt(bytes, Some(entry.at), None, None);
                return Some(());
            }
        };
        edit::push_element(name, value, &mut element);
        if operation.action == Action::Move {
            let appended = Some((operation.ordinal, element.as_slice()));
            *bytes = segment::rebuilt(bytes, Some(entry.at), None, appended);
            return Some(());
        }
    }
    if element.len() == entry.element.as_bytes().len() {
        let place = entry.at..entry.at + element.len();
        bytes.get_mut(place)?.copy_from_slice(&element);
    } else {
        *bytes = segment::rebuilt(bytes, Some(entry.at), Some(&element), None);
    }
    Some(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn operation(action: Action, path: &str, ordinal: u32, value: Value<'_>) -> Vec<u8> {
        let doc = frond_bson::doc! {"v": value};
        let element = doc.iter_raw().next().unwrap();
        let operation = Operation {
            action,
            path: Cow::Owned(path.replace('.', "\0").into_bytes()),
            ordinal,
            tag: element.tag(),
            value: Cow::Borrowed(element.value_bytes()),
        };
        let mut out = Vec::new();
        to_segment([&operation], &mut out);
        out
    }

    /// The elements of a segment in order, as text.
    fn shown(segment: Result<Option<Vec<u8>>, Malformed>) -> String {
        let segment = segment.unwrap().unwrap_or_default();
        let mut found: Vec<_> = segment::entries(&segment).collect();
        found.sort_by_key(|one| one.ordinal);
        let mut out = frond_bson::DocBuf::new();
        found.iter().for_each(|one| out.push_raw(&one.element));
        format!("{out:?}")
    }

    use Action::{Add, Move, Remove, Set};
    use frond_bson::Value::{self, Int32, Int64};

    #[test]
    fn folded_operations_do_what_they_do_one_by_one() {
        let null = || Value::Null;
        let base = [
            operation(Set, "a.", 0, Int32(i32::MAX - 1)),
            operation(Set, "b.", 1, Int64(5)),
            operation(
                Set,
                "d.",
                2,
                Value::Document(&frond_bson::doc! {"x": 1, "y": 2}),
            ),
        ];
        let base = apply(None, base.iter().map(Vec::as_slice))
            .unwrap()
            .unwrap();
        // Messages, what they make of the base, and how many operations are left of them.
        let cases = [
            (
                vec![
                    operation(Add, "a.", 9, Int32(1)),
                    operation(Add, "a.", 9, Int32(1)),
                ],
                r#"{"a":2147483648,"b":5,"d":{"x":1,"y":2}}"#,
                1,
            ),
            (
                // To 64 bits and back: the type stays.
                vec![
                    operation(Add, "a.", 9, Int32(2)),
                    operation(Add, "a.", 9, Int32(-2)),
                ],
                r#"{"a":2147483646,"b":5,"d":{"x":1,"y":2}}"#,
                2,
            ),
            (
                vec![
                    operation(Add, "n.", 7, Int64(1)),
                    operation(Add, "n.", 8, Int64(2)),
                ],
                r#"{"a":2147483646,"b":5,"d":{"x":1,"y":2},"n":3}"#,
                1,
            ),
            (
                vec![
                    operation(Add, "b.", 7, Int64(1)),
                    operation(Set, "b.", 8, null()),
                ],
                r#"{"a":2147483646,"b":null,"d":{"x":1,"y":2}}"#,
                1,
            ),
            (
                vec![
                    operation(Remove, "a.", 0, null()),
                    operation(Set, "n.", 7, Int32(1)),
                    operation(Set, "a.", 8, Int32(2)),
                ],
                r#"{"b":5,"d":{"x":1,"y":2},"n":1,"a":2}"#,
                2,
            ),
            (
                vec![
                    operation(Set, "d.x.", 0, Int32(9)),
                    operation(Remove, "d.", 0, null()),
                ],
                r#"{"a":2147483646,"b":5}"#,
                2,
            ),
            (
                vec![
                    operation(Remove, "d.x.", 0, null()),
                    operation(Set, "d.z.", 0, Int32(3)),
                    operation(Set, "d.x.", 0, Int32(4)),
                ],
                r#"{"a":2147483646,"b":5,"d":{"y":2,"z":3,"x":4}}"#,
                2,
            ),
            (
                vec![
                    operation(Move, "a.", 7, Int32(1)),
                    operation(Add, "a.", 8, Int32(1)),
                ],
                r#"{"b":5,"d":{"x":1,"y":2},"a":2}"#,
                1,
            ),
        ];
        for (messages, expected, left) in cases {
            let one_by_one = apply(Some(&base), messages.iter().map(Vec::as_slice));
            let combined = combine(messages.iter().map(Vec::as_slice)).unwrap();
            assert_eq!(shown(one_by_one), expected);
            assert_eq!(
                shown(apply(Some(&base), [&*combined].into_iter())),
                expected
            );
            assert_eq!(
                operations(&combined[1..], true).unwrap().len(),
                left,
                "{expected}"
            );
        }
    }

    #[test]
    fn damaged_messages_are_refused() {
        let whole = operation(Set, "a.", 1, Int64(5));
        let base = apply(None, [&*whole].into_iter()).unwrap().unwrap();
        // The first byte alone is a message without operations.
        for end in (0..whole.len()).filter(|end| *end != 1) {
            let cut = &whole[..end];
            assert!(check(cut).is_err());
            assert!(apply(Some(&base), [cut].into_iter()).is_err());
            assert!(combine([cut, &whole].into_iter()).is_err());
            assert!(combine([&whole, cut].into_iter()).is_err());
        }
        assert!(check(&[9, 9, 9]).is_err());
        let numbers = to_header(&Numbers::default(), &[]);
        for end in 0..numbers.len() {
            assert!(check(&numbers[..end]).is_err());
        }
        check(&numbers).unwrap();
    }

    #[test]
    fn what_a_message_changes_must_be_readable() {
        let whole = operation(Set, "a.", 1, Int64(5));
        let base = apply(None, [&*whole].into_iter()).unwrap().unwrap();
        for end in 1..base.len() {
            assert!(apply(Some(&base[..end]), [&*whole].into_iter()).is_err());
        }
        let numbers = to_header(&Numbers::default(), &[]);
        assert!(apply(Some(b"no header"), [&*numbers].into_iter()).is_err());
        assert_eq!(apply(None, [&*numbers].into_iter()), Ok(None));
    }
}
