//! Deleting expired documents by their primary keys: in the order of the keys, in commits of bounded size, at a bounded pace.
//!
//! The keys come from an index, and may be seconds old. The documents are read on a newer snapshot, by one cursor where they
//! lie side by side, and the filter is tested on each: a document whose date was moved meanwhile stays. Its primary key is
//! guarded, so that the engine refuses the commit if another writer changes the document between the snapshot and the commit.
//! Then the next snapshot is taken, on which the rest of the batch is read again; without conflicts one serves many commits, so
//! that the cursor reads the disk in order and once. (A range delete of the index entries would save one message for each
//! document. It is blind, so it could hide the entry of a document that another writer inserts meanwhile.)

use std::cmp::Ordering;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use frond_bson::Doc;
use frond_error::ErrorCode;
use frond_query::matcher::Filter;

use super::Retry;
use super::modify::is_held;
use super::staging::{Buffers, Staging};
use crate::catalog::{Catalog, Collection, Uuid};
use crate::own_files::OwnFiles;
use crate::plan::required_fields;
use frond_storage::context::OpContext;
use frond_storage::error::{Result, command};
use frond_storage::keyspace::{Cursor, Direction, Durability, Interrupt, Snapshot, TreeId};
use frond_storage::namespace::Namespace;
use frond_storage::points::point;
use frond_storage::record;
use frond_storage::record::field_set::ChangeFields;

/// Keys between two wanted ones that a cursor steps over before a look-up is cheaper.
const STEPS_MAX: u32 = 4;
/// Look-ups beside the cursor in a row after which keys count as scattered.
const MISSES_MAX: u32 = 8;
/// Scattered keys after which a cursor is tried again.
const LOOK_UPS_BETWEEN_CURSORS: u32 = 256;

/// Commits on one snapshot last no longer than this: it keeps memtables, and the more is committed after it the more often the
/// engine has forgotten which keys.
const SNAPSHOT_AGE_MAX: Duration = Duration::from_millis(250);

/// A thread is started for at least this many keys.
const KEYS_OF_A_THREAD_MIN: usize = 2000;

/// The longest pause without a look at the limits of the operation.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Primary keys in one buffer.
#[derive(Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    /// The beginning and the end of each key.
    places: Vec<(usize, usize)>,
}

impl Keys {
    pub(crate) fn push(&mut self, key: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.places.push((start, self.bytes.len()));
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Sorts the keys and removes duplicates: a document with an array of dates has an entry for each.
    pub(crate) fn sort(&mut self) {
        let bytes = &self.bytes;
        let key = |place: &(usize, usize)| bytes.get(place.0..place.1);
        if !self.places.is_sorted_by(|a, b| key(a) < key(b)) {
            self.places.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
            self.places.dedup_by(|a, b| key(a) == key(b));
        }
    }

    pub(crate) fn get(&self, position: usize) -> Option<&[u8]> {
        let &(start, end) = self.places.get(position)?;
        self.bytes.get(start..end)
    }

    fn within(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let places = self.places.get(range).unwrap_or_default().iter();
        places.filter_map(|&(start, end)| self.bytes.get(start..end))
    }
}

/// The limits of a batch of deletions, and what is left of them.
#[derive(Clone)]
pub(crate) struct Pace {
    documents_left: u64,
    deadline: Option<Instant>,
    /// Documents in one commit.
    commit_documents: usize,
    /// The part of the time in which documents are deleted, in percent.
    share: u32,
}

impl Pace {
    /// At most `documents` documents and about `time`; 0 sets no limit.
    pub(crate) fn new(documents: u64, time: Duration, commit_documents: usize, share: u32) -> Pace {
        Pace {
            documents_left: if documents == 0 { u64::MAX } else { documents },
            deadline: (!time.is_zero())
                .then(|| Instant::now().checked_add(time))
                .flatten(),
            commit_documents: commit_documents.max(1),
            share: share.clamp(1, 100),
        }
    }

    pub(crate) fn documents_left(&self) -> u64 {
        self.documents_left
    }

    /// Whether a limit is reached.
    pub(crate) fn is_over(&self) -> bool {
        self.documents_left == 0
            || self
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Notes deletions that other threads have made.
    fn deleted_elsewhere(&mut self, documents: u64) {
        self.documents_left = self.documents_left.saturating_sub(documents);
    }

    /// Notes deletions, and pauses for the part of the time that is left to others.
    fn deleted(&mut self, documents: u64, worked: Duration, context: &OpContext) -> Result<()> {
        self.deleted_elsewhere(documents);
        let mut pause = worked * (100 - self.share) / self.share;
        while !pause.is_zero() {
            let part = pause.min(PAUSE_MAX);
            thread::sleep(part);
            pause -= part;
            context.check()?;
        }
        Ok(())
    }
}

/// The deletion of expired documents of one collection.
pub(crate) struct Expiry<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) ns: &'a Namespace,
    pub(crate) uuid: Uuid,
    /// Matches documents that have expired.
    pub(crate) filter: &'a Filter,
    pub(crate) context: &'a OpContext,
}

/// The interrupt of the engine's waits on a thread that works for an operation.
pub(crate) fn interrupt(context: &OpContext) -> Interrupt {
    Interrupt {
        killed: context.killed.clone(),
        deadline: context.deadline,
        ..Interrupt::default()
    }
}

impl Expiry<'_> {
    /// Deletes the documents with these keys that have expired, and adds their number to `deleted`. Those that an open
    /// transaction has written are left for later. Returns the number of keys that were reached before a limit was; one commit
    /// is always made, so that each call makes progress. Of several threads each has a part of the keys, so that documents behind
    /// the returned number may be gone, too.
    ///
    /// # Errors
    /// Errors of the engine, the limits of the context. Earlier commits stay.
    pub(crate) fn delete(
        &self,
        keys: &Keys,
        pace: &mut Pace,
        threads: usize,
        deleted: &mut u64,
    ) -> Result<usize> {
        let part = (keys.len().div_ceil(threads.max(1))).max(KEYS_OF_A_THREAD_MIN);
        if part >= keys.len() {
            return self.delete_part(keys, 0..keys.len(), pace, deleted);
        }
        let parts: Vec<Range<usize>> = (0..keys.len())
            .step_by(part)
            .map(|start| start..keys.len().min(start + part))
            .collect();
        let done: Vec<(u64, Result<usize>)> = thread::scope(|scope| {
            let started: Vec<_> = (parts.iter().zip(2..))
                .map(|(part, number)| {
                    let mut pace = pace.clone();
                    thread::Builder::new()
                        .name(format!("frond-ttl-{number}"))
                        .spawn_scoped(scope, move || {
                            let mut deleted = 0;
                            let reached = interrupt(self.context).run(|| {
                                self.delete_part(keys, part.clone(), &mut pace, &mut deleted)
                            });
                            (deleted, reached)
                        })
                })
                .collect();
            let joined = started.into_iter().zip(&parts).map(|(thread, part)| {
                let Ok(thread) = thread else {
                    // The system has no thread left: the keys wait for the next batch.
                    return (0, Ok(part.start));
                };
                match thread.join() {
                    Ok(done) => done,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            });
            joined.collect()
        });
        let documents = done.iter().map(|(documents, _)| documents).sum();
        *deleted += documents;
        pace.deleted_elsewhere(documents);
        let mut reached = keys.len();
        for ((_, result), part) in done.into_iter().zip(parts).rev() {
            let here = result?;
            if here < part.end {
                reached = here;
            }
        }
        Ok(reached)
    }

    /// As [`Self::delete`], of a part of the keys on this thread. Returns the position that was reached.
    fn delete_part(
        &self,
        keys: &Keys,
        part: Range<usize>,
        pace: &mut Pace,
        deleted: &mut u64,
    ) -> Result<usize> {
        let mut retry = Retry::new(self.catalog);
        let mut buffers = Buffers::default();
        let mut basis: Option<Basis> = None;
        let mut next = part.start;
        // Whether the last attempt has waited for space on the disk.
        let mut was_full = false;
        while next < part.end {
            self.context.check()?;
            if next > part.start && pace.is_over() {
                break;
            }
            let begun = Instant::now();
            basis = basis.filter(|basis| basis.taken.elapsed() < SNAPSHOT_AGE_MAX);
            let on = match &mut basis {
                Some(basis) => basis,
                None => basis.insert(self.basis(keys.get(part.end.saturating_sub(1)))?),
            };
            // After conflicts the commits get smaller, so that each meets fewer others.
            let shift = retry.conflicts().saturating_mul(2).min(31);
            let left = usize::try_from(pace.documents_left()).unwrap_or(usize::MAX);
            let limit = (pace.commit_documents >> shift).min(left).max(1);
            let wanted = next..part.end.min(next.saturating_add(limit));
            let Some((at, outcome)) = self.commit(on, keys, wanted, &mut buffers)? else {
                // The collection's definition changed meanwhile.
                basis = None;
                continue;
            };
            match outcome {
                Ok(documents) => {
                    *deleted += documents;
                    next = at;
                    was_full = false;
                    retry.reset();
                    pace.deleted(documents, begun.elapsed(), self.context)?;
                    continue;
                }
                Err(error) if is_held(&error) => match at - next {
                    // Only this document can be the one that is held.
                    0 | 1 => {
                        next = at.max(next + 1);
                        retry.reset();
                    }
                    _ => retry.note_held(),
                },
                Err(error) if error.is_disk_full() && !was_full => {
                    // Nothing keeps on disk what was deleted.
                    drop(basis.take());
                    if !OwnFiles::new(self.catalog.engine()).await_space()? {
                        return Err(error);
                    }
                    was_full = true;
                }
                Err(error) => retry.after(error)?,
            }
            basis = None;
        }
        Ok(next)
    }

    /// Takes a snapshot for the next commits. `last` is the last key that is read.
    fn basis(&self, last: Option<&[u8]>) -> Result<Basis> {
        let read = self.catalog.read(self.ns)?;
        let Some((collection, snapshot)) = read.filter(|(now, _)| now.uuid == self.uuid) else {
            let uuid = frond_bson::uuid_text(&self.uuid);
            return Err(command(
                ErrorCode::QueryPlanKilled,
                format!("collection dropped. UUID {uuid}"),
            ));
        };
        Ok(Basis {
            records: SortedReader::new(
                snapshot.clone(),
                collection.primary,
                last.map(<[u8]>::to_vec),
            ),
            collection,
            snapshot,
            taken: Instant::now(),
        })
    }

    /// Deletes as many of the wanted documents as one commit takes. Returns the position behind the last key that was reached, and the
    /// number of documents or the reason why nothing was committed. `None` if the collection's definition changed meanwhile.
    fn commit(
        &self,
        basis: &mut Basis,
        keys: &Keys,
        wanted: Range<usize>,
        buffers: &mut Buffers,
    ) -> Result<Option<(usize, Result<u64>)>> {
        let Basis {
            collection,
            snapshot,
            records,
            ..
        } = basis;
        if snapshot.gathers_reads() {
            let keys: Vec<(TreeId, &[u8])> = keys
                .within(wanted.clone())
                .map(|key| (collection.primary, key))
                .collect();
            snapshot.prefetch(&keys)?;
        }
        let mut staging = Staging::new(self.catalog, collection, snapshot.clone(), buffers)
            .bypassing_validation(true);
        let next = wanted.start;
        let mut at = next;
        let mut failure = None;
        for key in keys.within(wanted) {
            if !staging.has_room() {
                break;
            }
            let staged = match records.read(key) {
                Ok(Some(stored)) => self.stage(&mut staging, key, stored),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = staged {
                failure = Some(error);
                break;
            }
            at += 1;
        }
        point("expired documents are about to be deleted");
        if at == next
            && let Some(error) = failure
        {
            return Err(error);
        }
        // A document that failed is met again, first.
        let committed = self
            .catalog
            .commit_on(collection, || staging.commit(Durability::Logged))?;
        Ok(committed.map(|result| (at, result.map(|documents| documents as u64))))
    }

    /// Stages the deletion of a document, if it has expired.
    fn stage(&self, staging: &mut Staging<'_>, key: &[u8], stored: &[u8]) -> Result<()> {
        if !record::is_in_parts(stored) {
            let doc = Doc::from_trusted(stored);
            if self.filter.try_matches(doc)? {
                staging.delete(key, doc, None)?;
            }
            return Ok(());
        }
        let reader = staging.document_reader();
        let asked = required_fields::of_query(self.filter, None, []);
        if !self
            .filter
            .try_matches(&reader.parts(key, stored, &asked)?)?
        {
            return Ok(());
        }
        let wanted = if staging.keeps_pre_images() {
            ChangeFields::everything()
        } else {
            required_fields::of_delete(staging.collection())
        };
        let (doc, parts) = reader.for_change(key, stored, &wanted)?;
        staging.delete(key, &doc, Some(&parts))
    }
}

/// The state that commits are based on.
struct Basis {
    collection: Arc<Collection>,
    snapshot: Snapshot,
    records: SortedReader,
    taken: Instant,
}

/// Reads the values of ascending keys of a tree.
///
/// Reads documents by ascending keys. For adjacent keys a step of a cursor costs a fraction of a look-up, and reads the disk in order. Scattered
/// keys are looked up one by one.
struct SortedReader {
    snapshot: Snapshot,
    tree: TreeId,
    /// The last key that will be read: nothing behind it is read ahead.
    last: Option<Vec<u8>>,
    /// None while keys are scattered.
    cursor: Option<Cursor>,
    /// The key that the cursor has reached, with its value, if it lies behind the wanted one.
    ahead: Option<Vec<u8>>,
    value: Vec<u8>,
    at_end: bool,
    misses: u32,
    look_ups: u32,
}

/// The position of the key that a cursor has reached, seen from the wanted one.
enum Reached {
    Wanted,
    Behind,
    /// The cursor has not reached the key.
    Before,
}

impl SortedReader {
    fn new(snapshot: Snapshot, tree: TreeId, last: Option<Vec<u8>>) -> SortedReader {
        SortedReader {
            snapshot,
            tree,
            last,
            cursor: None,
            ahead: None,
            value: Vec::new(),
            at_end: false,
            misses: 0,
            look_ups: LOOK_UPS_BETWEEN_CURSORS,
        }
    }

    /// The value of a key that is greater than all that were read before.
    fn read(&mut self, key: &[u8]) -> Result<Option<&[u8]>> {
        if self.cursor.is_none() && self.look_ups >= LOOK_UPS_BETWEEN_CURSORS {
            let from = Bound::Included(key);
            let to = self
                .last
                .as_deref()
                .map_or(Bound::Unbounded, Bound::Included);
            let cursor = self
                .snapshot
                .cursor(self.tree, from, to, Direction::Forward)?;
            self.cursor = Some(cursor);
            (self.ahead, self.at_end) = (None, false);
            (self.misses, self.look_ups) = (0, 0);
        }
        match self.step_to(key)? {
            Reached::Wanted => {
                self.misses = 0;
                return Ok(Some(&self.value));
            }
            Reached::Behind => return Ok(None),
            Reached::Before => {}
        }
        self.misses += 1;
        self.look_ups += 1;
        if self.misses > MISSES_MAX {
            self.cursor = None;
        }
        let Some(value) = self.snapshot.get(self.tree, key)? else {
            return Ok(None);
        };
        self.value.clear();
        self.value.extend_from_slice(&value);
        Ok(Some(&self.value))
    }

    /// Moves the cursor towards a key.
    fn step_to(&mut self, key: &[u8]) -> Result<Reached> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(Reached::Before);
        };
        if let Some(ahead) = &self.ahead {
            match ahead.as_slice().cmp(key) {
                Ordering::Less => self.ahead = None,
                Ordering::Equal => {
                    self.ahead = None;
                    return Ok(Reached::Wanted);
                }
                Ordering::Greater => return Ok(Reached::Behind),
            }
        }
        for _ in 0..STEPS_MAX {
            if self.at_end {
                return Ok(Reached::Behind);
            }
            let Some((at, value)) = cursor.next()? else {
                self.at_end = true;
                continue;
            };
            let order = at.cmp(key);
            if order == Ordering::Less {
                continue;
            }
            self.value.clear();
            self.value.extend_from_slice(value);
            if order == Ordering::Equal {
                return Ok(Reached::Wanted);
            }
            self.ahead = Some(at.to_vec());
            return Ok(Reached::Behind);
        }
        Ok(Reached::Before)
    }
}
