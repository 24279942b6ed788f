//! Staging large documents: the header and the segments of a document that is written whole, and the messages of one
//! that is changed in parts.

use frond_bson::{Doc, MAX_DOCUMENT_BYTES, tag};
use frond_query::error::ErrorCode;
use frond_query::update::Update;

use super::staging::{Change, Staged, Staging};
use crate::catalog::Collection;
use crate::error::{Result, command};
use crate::plan::required_fields;
use crate::record::diff::{self, Difference};
use crate::record::edit::{self, Action, Typed};
use crate::record::field_set::RequiredFields;
use crate::record::header::{Container, Header};
use crate::record::load::{DocumentReader, Parts, damaged};
use crate::record::message::{self, Numbers, Operation};
use crate::record::segment;
use crate::record::shred::{self, Shredded};

/// After so many messages a header is written whole again.
const MESSAGES_MAX: u32 = 16;

/// What an update looks at in documents of a collection. `whole` if the result is to be the whole document.
pub(super) fn wanted(update: &Update, collection: &Collection, whole: bool) -> RequiredFields {
    let touched = update.paths_touched();
    let Some(mut want) = required_fields::of_indexes(collection, &|path| touched.affects(path))
    else {
        return RequiredFields::everything();
    };
    let is_validated = collection.settings.validation.validator.is_some();
    if whole || is_validated || !required_fields::of_update(update, &mut want) {
        return RequiredFields::everything();
    }
    let mut increments = Vec::new();
    for one in required_fields::increments(update) {
        // What is looked at anyway is read.
        if want.meets(&one.path) {
            want.add(&one.dotted);
        } else {
            increments.push(one);
        }
    }
    RequiredFields::new(want, increments)
}

/// What a delete looks at.
pub(super) fn wanted_to_delete(collection: &Collection) -> RequiredFields {
    match required_fields::of_indexes(collection, &|_| true) {
        Some(want) => RequiredFields::parts(want),
        None => RequiredFields::everything(),
    }
}

impl Staging<'_> {
    /// Where the documents are.
    pub(super) fn document_reader(&self) -> DocumentReader<'_> {
        self.collection.document_reader(&self.snapshot)
    }

    /// Stages a document as it is stored, in place of the parts of an old one.
    pub(super) fn put_document(
        &mut self,
        key: &[u8],
        doc: &Doc,
        old: Option<&Parts>,
    ) -> Result<()> {
        if let Some(old) = old {
            self.delete_segments(key, old)?;
        }
        let limits = self.collection.large_documents();
        match shred::shred(doc, limits) {
            None => {
                let primary = self.collection.primary;
                self.batch.put_guarded(primary, key, doc.as_bytes());
            }
            Some(shredded) => self.put_shredded(key, &shredded),
        }
        Ok(())
    }

    fn put_shredded(&mut self, key: &[u8], shredded: &Shredded) {
        let Some(tree) = self.collection.segments else {
            return;
        };
        let primary = self.collection.primary;
        self.batch.put_guarded(primary, key, &shredded.header);
        let segment_key = &mut self.buffers.key;
        for (container, number, bytes) in shredded.segments() {
            segment::write_key(key, container, number, segment_key);
            self.batch.put(tree, segment_key, bytes);
        }
    }

    /// Stages the end of all segments of a document.
    pub(super) fn delete_segments(&mut self, key: &[u8], old: &Parts) -> Result<()> {
        let (header, _) = Header::read(&old.stored).ok_or_else(damaged)?;
        let tree = self.collection.segments.ok_or_else(damaged)?;
        let segment_key = &mut self.buffers.key;
        for container in &header.containers {
            for number in 0..container.segments() {
                segment::write_key(key, container.id, number as u16, segment_key);
                self.batch.delete(tree, segment_key);
            }
        }
        Ok(())
    }

    /// Stages the change of a large document of which `old` and `new` are parts. `None` if it has to be
    /// written whole.
    ///
    /// # Errors
    /// As [`Staging::update`]; 17419 if the document becomes too large.
    pub(super) fn update_parts(
        &mut self,
        key: &[u8],
        old: &Doc,
        parts: &Parts,
        new: &Doc,
        touches: &dyn Fn(&str) -> bool,
    ) -> Result<Option<Staged>> {
        let limits = self.collection.large_documents();
        let (before, skeleton) = Header::read(&parts.stored).ok_or_else(damaged)?;
        let part_bytes = limits.part_bytes();
        let changes = match diff::diff(old, new, parts, part_bytes) {
            Difference::Changes(changes) => changes,
            Difference::Rewrite => return Ok(None),
        };
        let mut plan = Plan {
            header: before.clone(),
            skeleton_bytes: skeleton.len_bytes() as i64,
            slack: 0,
            bytes: 0,
            to_header: Vec::new(),
            to_segments: Vec::new(),
        };
        for change in changes {
            if plan.add(change).is_none() {
                return Ok(None);
            }
        }
        let grown = new.len_bytes() as i64 - old.len_bytes() as i64;
        if !plan.finish(grown, part_bytes, limits.segment_bytes) {
            return Ok(None);
        }
        if plan.header.bytes_max() > MAX_DOCUMENT_BYTES {
            if plan.header.slack > 0 {
                return Ok(None);
            }
            return Err(command(
                ErrorCode::Location(17419),
                format!("Resulting document after update is larger than {MAX_DOCUMENT_BYTES}"),
            ));
        }
        let warning = self.validate(new, Some(old))?;
        let change = Change { old, touches };
        if self.generate(new, key.len(), Some(change))? == Staged::NextCommit {
            return Ok(Some(Staged::NextCommit));
        }
        self.put_plan(key, parts, &before, skeleton, plan)?;
        for position in 0..self.collection.indexes.len() {
            self.put_entries(position, key, new, Some(change));
        }
        self.documents += 1;
        self.warnings.extend(warning);
        Ok(Some(Staged::Done))
    }

    fn put_plan(
        &mut self,
        key: &[u8],
        parts: &Parts,
        before: &Header,
        skeleton: &Doc,
        mut plan: Plan<'_>,
    ) -> Result<()> {
        let primary = self.collection.primary;
        let tree = self.collection.segments.ok_or_else(damaged)?;
        self.counts.bytes += i64::from(plan.header.counted) - i64::from(before.counted);
        plan.header.revision = before.revision.wrapping_add(1);
        let is_new = |one: &&Container| before.container(one.id) != Some(*one);
        let numbers = Numbers {
            revision: plan.header.revision,
            counted: plan.header.counted,
            slack: plan.header.slack,
            containers: plan
                .header
                .containers
                .iter()
                .filter(is_new)
                .copied()
                .collect(),
        };
        let delta = message::to_header(&numbers, &plan.to_header);
        let pending = plan.header.revision.wrapping_sub(before.based);
        if pending >= MESSAGES_MAX || delta.len() * 2 > parts.stored.len() {
            let whole = message::rewrite_header(plan.header, skeleton, &plan.to_header);
            self.batch.put_guarded(primary, key, &whole);
        } else {
            self.batch.guard(primary, key);
            self.batch.merge(primary, key, &delta);
        }
        // Stable: operations on one segment stay in their order.
        plan.to_segments
            .sort_by_key(|one| (one.container, one.number));
        let (segment_key, value) = (&mut self.buffers.key, &mut self.buffers.value);
        let same = |a: &ToSegment<'_>, b: &ToSegment<'_>| {
            (a.container, a.number) == (b.container, b.number)
        };
        for group in plan.to_segments.chunk_by(same) {
            let Some(first) = group.first() else { continue };
            segment::write_key(key, first.container, first.number, segment_key);
            value.clear();
            if first.operation.path.is_empty() {
                value.push(first.operation.tag);
                value.extend_from_slice(&first.operation.value);
                self.batch.put(tree, segment_key, value);
            } else {
                message::to_segment(group.iter().map(|one| &one.operation), value);
                self.batch.merge(tree, segment_key, value);
            }
        }
        Ok(())
    }
}

/// An operation on its way to a segment.
struct ToSegment<'d> {
    container: u16,
    number: u16,
    operation: Operation<'d>,
}

/// What is to be written.
struct Plan<'d> {
    header: Header,
    skeleton_bytes: i64,
    /// What blind additions may add to the length.
    slack: i64,
    /// Bytes of the operations.
    bytes: usize,
    to_header: Vec<Operation<'d>>,
    to_segments: Vec<ToSegment<'d>>,
}

impl<'d> Plan<'d> {
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
            self.to_segments.push(ToSegment {
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
        self.to_segments.push(ToSegment {
            container: change.container,
            number,
            operation,
        });
        Some(())
    }

    /// False if the document has to be written whole: because a part has become too large for its place, or because
    /// that is hardly more to write.
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

/// Keeps what is known of the values of a container.
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
