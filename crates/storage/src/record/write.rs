//! Writing documents: whole, as a header with segments, or as messages that change some parts.

use frond_bson::{Doc, MAX_DOCUMENT_BYTES, tag};
use frond_error::ErrorCode;

use super::LargeDocuments;
use super::diff::{self, Difference};
use super::edit::{self, Action, Typed};
use super::header::{Container, Header};
use super::load::{Parts, damaged};
use super::message::{self, Numbers, Operation};
use super::segment;
use super::shred::{self, Shredded};
use crate::error::{Result, command};
use crate::keyspace::{TreeId, WriteSet};

/// After this many messages a header is written whole again.
const MESSAGES_MAX: u32 = 16;

/// Stages the records of one collection in write sets.
#[derive(Clone, Copy)]
pub struct DocumentWriter {
    /// The tree of the records.
    pub primary: TreeId,
    /// The tree of the segments.
    pub segments: Option<TreeId>,
    /// Which documents are stored in parts.
    pub limits: LargeDocuments,
}

/// A document with a longer key is stored whole: each of its segments would have the key.
const DIVIDED_KEY_BYTES_MAX: usize = 1024;

impl DocumentWriter {
    /// Stages a document in place of the parts of an old one. `buffer` is scratch space.
    ///
    /// # Errors
    /// `DataCorruptionDetected` (301) for damaged parts.
    pub fn put(
        &self,
        batch: &mut WriteSet,
        key: &[u8],
        doc: &Doc,
        old: Option<&Parts>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        if let Some(old) = old {
            self.delete_segments(batch, key, old, buffer)?;
        }
        let is_divisible = key.len() <= DIVIDED_KEY_BYTES_MAX;
        match is_divisible
            .then(|| shred::shred(doc, self.limits))
            .flatten()
        {
            None => batch.put_guarded(self.primary, key, doc.as_bytes()),
            Some(shredded) => self.put_shredded(batch, key, &shredded, buffer),
        }
        Ok(())
    }

    fn put_shredded(
        &self,
        batch: &mut WriteSet,
        key: &[u8],
        shredded: &Shredded,
        buffer: &mut Vec<u8>,
    ) {
        let Some(tree) = self.segments else {
            return;
        };
        batch.put_guarded(self.primary, key, &shredded.header);
        for (container, number, bytes) in shredded.segments() {
            segment::write_key(key, container, number, buffer);
            batch.put(tree, buffer, bytes);
        }
    }

    /// Stages the removal of a document, of a large one with its parts. `buffer` is scratch space.
    ///
    /// # Errors
    /// As [`DocumentWriter::put`].
    pub fn delete(
        &self,
        batch: &mut WriteSet,
        key: &[u8],
        parts: Option<&Parts>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        batch.delete_guarded(self.primary, key);
        match parts {
            Some(parts) => self.delete_segments(batch, key, parts, buffer),
            None => Ok(()),
        }
    }

    fn delete_segments(
        &self,
        batch: &mut WriteSet,
        key: &[u8],
        old: &Parts,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let (header, _) = Header::read(&old.stored).ok_or_else(damaged)?;
        let tree = self.segments.ok_or_else(damaged)?;
        for container in &header.containers {
            for number in 0..container.segments() {
                segment::write_key(key, container.id, number as u16, buffer);
                batch.delete(tree, buffer);
            }
        }
        Ok(())
    }

    /// The change of a large document of which `old` and `new` are parts. `None` if it has to be written whole.
    ///
    /// # Errors
    /// 17419 if the document becomes too large, `DataCorruptionDetected` (301) for damaged parts.
    pub fn partial_update<'d>(
        &self,
        old: &'d Doc,
        parts: &'d Parts,
        new: &'d Doc,
    ) -> Result<Option<PartialUpdate<'d>>> {
        let (before, skeleton) = Header::read(&parts.stored).ok_or_else(damaged)?;
        if !before.pending.is_empty() {
            return Ok(None);
        }
        let part_bytes = self.limits.part_bytes();
        let changes = match diff::diff(old, new, parts, part_bytes) {
            Difference::Changes(changes) => changes,
            Difference::Rewrite => return Ok(None),
        };
        let mut update = PartialUpdate {
            stored: &parts.stored,
            header: before.clone(),
            before,
            skeleton,
            skeleton_bytes: skeleton.len_bytes() as i64,
            slack: 0,
            bytes: 0,
            to_header: Vec::new(),
            to_segments: Vec::new(),
        };
        for change in changes {
            if update.add(change).is_none() {
                return Ok(None);
            }
        }
        let grown = new.len_bytes() as i64 - old.len_bytes() as i64;
        if !update.finish(grown, part_bytes, self.limits.segment_bytes) {
            return Ok(None);
        }
        if update.header.bytes_max() > MAX_DOCUMENT_BYTES {
            if update.header.slack > 0 {
                return Ok(None);
            }
            return Err(command(
                ErrorCode::Location(17419),
                format!("Resulting document after update is larger than {MAX_DOCUMENT_BYTES}"),
            ));
        }
        Ok(Some(update))
    }

    /// Stages a change. `buffers` are scratch space. Returns by how many bytes the document grew in the counter.
    ///
    /// # Errors
    /// As [`DocumentWriter::put`].
    pub fn update(
        &self,
        batch: &mut WriteSet,
        key: &[u8],
        mut update: PartialUpdate<'_>,
        buffers: (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Result<i64> {
        let tree = self.segments.ok_or_else(damaged)?;
        let before = &update.before;
        let grown = i64::from(update.header.counted) - i64::from(before.counted);
        update.header.revision = before.revision.wrapping_add(1);
        let is_new = |one: &&Container| before.container(one.id) != Some(*one);
        let numbers = Numbers {
            revision: update.header.revision,
            counted: update.header.counted,
            slack: update.header.slack,
            containers: update
                .header
                .containers
                .iter()
                .filter(is_new)
                .copied()
                .collect(),
        };
        let delta = message::to_header(&numbers, &update.to_header);
        let pending = update.header.revision.wrapping_sub(before.based);
        if pending >= MESSAGES_MAX || delta.len() * 2 > update.stored.len() {
            let whole = message::rewrite_header(update.header, update.skeleton, &update.to_header);
            batch.put_guarded(self.primary, key, &whole);
        } else {
            batch.guard(self.primary, key);
            batch.merge(self.primary, key, &delta);
        }
        // Stable: operations on one segment stay in their order.
        update
            .to_segments
            .sort_by_key(|one| (one.container, one.number));
        let (segment_key, value) = buffers;
        let same = |a: &SegmentOperation<'_>, b: &SegmentOperation<'_>| {
            (a.container, a.number) == (b.container, b.number)
        };
        for group in update.to_segments.chunk_by(same) {
            let Some(first) = group.first() else { continue };
            segment::write_key(key, first.container, first.number, segment_key);
            value.clear();
            if first.operation.path.is_empty() {
                value.push(first.operation.tag);
                value.extend_from_slice(&first.operation.value);
                batch.put(tree, segment_key, value);
            } else {
                message::to_segment(group.iter().map(|one| &one.operation), value);
                batch.merge(tree, segment_key, value);
            }
        }
        Ok(grown)
    }
}

/// An operation on a segment.
struct SegmentOperation<'d> {
    container: u16,
    number: u16,
    operation: Operation<'d>,
}

/// The change of a large document, as messages.
pub struct PartialUpdate<'d> {
    stored: &'d [u8],
    before: Header,
    skeleton: &'d Doc,
    header: Header,
    skeleton_bytes: i64,
    /// Bytes that blind additions may add.
    slack: i64,
    /// Bytes of the operations.
    bytes: usize,
    to_header: Vec<Operation<'d>>,
    to_segments: Vec<SegmentOperation<'d>>,
}

impl<'d> PartialUpdate<'d> {
    /// `None` if the document has to be written whole.
    fn add(&mut self, change: diff::Change<'d>) -> Option<()> {
        let mut operation = change.operation;
        self.bytes += operation.bytes();
        if change.is_blind {
            self.slack += change.grown;
        }
        if change.container == 0 {
            self.skeleton_bytes += change.grown;
            self.to_header.push(operation);
            return Some(());
        }
        let container = self.header.container_mut(change.container)?;
        let bytes = i64::from(container.bytes) + change.grown;
        container.bytes = u32::try_from(bytes.max(0)).ok()?;
        if operation.path.is_empty() {
            self.to_segments.push(SegmentOperation {
                container: container.id,
                number: 0,
                operation,
            });
            return Some(());
        }
        let (name, rest) = edit::split_path(&operation.path)?;
        let number = segment::of_name(name, container);
        if rest.is_empty() {
            if change.appends || operation.action == Action::Move {
                operation.ordinal = container.next_ordinal;
                container.next_ordinal = container.next_ordinal.checked_add(1)?;
            }
            note_value(container, &operation);
        }
        self.to_segments.push(SegmentOperation {
            container: change.container,
            number,
            operation,
        });
        Some(())
    }

    /// False if the document has to be written whole: a part outgrew its segments, or the messages would be nearly as
    /// large as the document.
    fn finish(&mut self, grown: i64, part_bytes: usize, segment_bytes: usize) -> bool {
        let counted = i64::from(self.header.counted) + grown - self.slack;
        let slack = i64::from(self.header.slack) + self.slack;
        let (Ok(counted), Ok(slack)) = (u32::try_from(counted), u32::try_from(slack)) else {
            return false;
        };
        self.header.counted = counted;
        self.header.slack = slack;
        let is_full = |one: &Container| {
            let room = segment_bytes.saturating_mul(2) << one.bits.min(16);
            !one.is(Container::VALUE) && one.bits < 16 && one.bytes as usize > room
        };
        self.bytes * 2 <= counted as usize
            && self.skeleton_bytes <= 2 * part_bytes as i64
            && !self.header.containers.iter().any(is_full)
    }
}

/// Updates what the header says about the values of a container.
fn note_value(container: &mut Container, operation: &Operation<'_>) {
    let value = Typed {
        tag: operation.tag,
        bytes: &operation.value,
    };
    match (operation.action, edit::integer(value)) {
        (Action::Remove, _) => {}
        (Action::Add, Some(integer)) => {
            container.magnitude = container.magnitude.saturating_add(integer.unsigned_abs());
        }
        (_, Some(integer)) => container.magnitude = container.magnitude.max(integer.unsigned_abs()),
        (_, None) => container.flags &= !Container::INTEGERS,
    }
    debug_assert_ne!(operation.tag, tag::ELSEWHERE);
}
