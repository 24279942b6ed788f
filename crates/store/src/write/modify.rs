//! The parts that updates and deletes share: finding documents, changing them in commits, retrying after conflicts.
//!
//! A change of one document is committed on the snapshot that found it. If another writer was
//! faster, the document is read and tested again on a new snapshot, and changed there: the search, which may take
//! seconds, is repeated only if the document does not match any more. As in MongoDB, a sort is not looked at again. A
//! change of many documents first finds all of them on one snapshot, so that it does not meet its own results; then it
//! changes them in commits of bounded size, each on a new snapshot, on which the documents are read and tested again if one of them
//! may have changed since the search.

use std::sync::Arc;

use frond_bson::{Doc, Value};
use frond_error::ErrorCode;
use frond_query::matcher::Filter;

use super::Retry;
use super::staging::{Buffers, Staged, Staging};
use crate::catalog::{Catalog, Collection};
use crate::exec::build::{Output, RowParts};
use crate::exec::operator::{Flow, Pulled, Row};
use crate::exec::reader::Loading;
use crate::find::{IdLookUp, Planned, PlannedQuery, note_look_up};
use crate::own_files::OwnFiles;
use crate::plan::required_fields;
use frond_storage::context::OpContext;
use frond_storage::error::{Error, Result, command};
use frond_storage::keyspace::{
    COMMIT_DOCUMENTS_MAX, Durability, EngineError, Moment, Snapshot, TreeId,
};
use frond_storage::namespace::Namespace;
use frond_storage::points::point;
use frond_storage::record;
use frond_storage::record::field_set::EVERYTHING;
use frond_storage::record::load::DocumentReader;

/// Candidates of a change of many documents are collected up to this many bytes before they are
/// changed.
const CANDIDATE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// While the disk is nearly full, a search for documents to delete starts over after this many: it has to pass by the
/// deletes that are not done yet.
const SEARCH_DOCUMENTS_FULL_DISK: u64 = 16 * COMMIT_DOCUMENTS_MAX as u64;

/// The progress of a search for documents to change.
enum Searched {
    Everything,
    APart,
}

/// A search for documents to change, as the commits need it.
struct Search {
    filter: Arc<Filter>,
    collection: Arc<Collection>,
    /// When it was searched. `None` if later changes of its documents cannot be known without reading them.
    at: Option<Moment>,
}

/// The effect of a change on a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    None,
    /// The change is staged.
    Staged,
    /// The document has to wait for the next commit.
    NextCommit,
}

/// A change of single documents: an update or a delete.
pub trait Change {
    /// Stages the change of `row`.
    fn stage(&mut self, staging: &mut Staging<'_>, row: &Row) -> Result<Effect>;

    /// Whether the documents are gone then: a search that starts over does not find them again.
    fn removes(&self) -> bool {
        false
    }
}

/// Which documents to change.
pub struct Target<'a> {
    /// The command, for the prefix of errors in the execution of its plan.
    pub command: &'static str,
    pub catalog: &'a Catalog,
    pub ns: &'a Namespace,
    /// The filter, which document comes first if only one is changed, and the index to use.
    pub question: PlannedQuery,
    /// The `_id` that is asked for, if the filter has one and nothing else, and there is no hint and no collation.
    pub id: Option<Value<'a>>,
    /// The key of the statement's record, if it has one: the commit looks it up.
    pub record: Option<(TreeId, [u8; 20])>,
    pub context: &'a OpContext,
    /// When a commit returns.
    pub durability: Durability,
    /// Whether documents are not checked by the collection's validator.
    pub bypass_validation: bool,
    /// Whether large documents are read whole.
    pub whole: bool,
}

/// The document to change, and where it was found.
struct First {
    row: Row,
    collection: Arc<Collection>,
    snapshot: Snapshot,
    filter: Arc<Filter>,
}

/// The numbers of documents that a change concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    pub matched: u64,
    /// Documents that were changed.
    pub modified: u64,
}

impl From<Staged> for Effect {
    fn from(staged: Staged) -> Effect {
        match staged {
            Staged::Done => Effect::Staged,
            Staged::NextCommit => Effect::NextCommit,
        }
    }
}

impl Target<'_> {
    fn plan(&self) -> Result<Option<Planned>> {
        self.question
            .clone()
            .plan(self.catalog, self.ns, self.context)
    }

    /// The result of a step of the execution. An interrupted one says so without a prefix, as in MongoDB.
    pub(super) fn executed<T>(&self, step: Result<T>) -> Result<T> {
        step.map_err(|error| match error.code() {
            code if code.is_interruption() || code == ErrorCode::WriteConflict => error,
            _ => error.in_execution(format_args!("Plan executor error during {}", self.command)),
        })
    }

    /// The parts that a change reads: keys, and of large documents the fields that it needs.
    fn wanted(&self, planned: &Planned) -> RowParts {
        let loading = if self.whole {
            Loading::Everything
        } else {
            // The change itself reads more of a large document.
            Loading::ForFilter(planned.pending_sort().cloned())
        };
        RowParts {
            keys: true,
            loading,
            ..planned.wanted()
        }
    }

    /// Finds the first document.
    fn first(&self) -> Result<Option<First>> {
        if let Some(id) = &self.id
            && let Some(look_up) = IdLookUp::new(self.catalog, self.ns, id)?
        {
            let IdLookUp {
                collection,
                snapshot,
                key,
            } = look_up;
            if let Some((tree, record)) = &self.record
                && snapshot.gathers_reads()
            {
                snapshot.prefetch(&[(*tree, record), (collection.primary, &key)])?;
            }
            let record = snapshot.get(collection.primary, &key)?;
            // The way of a large document knows which parts it takes.
            if !record.as_deref().is_some_and(record::is_in_parts) {
                note_look_up(&collection, record.is_some());
                let doc = record.map(|record| Doc::from_trusted(&record).to_owned());
                return Ok(doc.map(|doc| First {
                    row: Row {
                        key,
                        doc,
                        stored: None,
                        index_key: None,
                        meta: None,
                    },
                    collection,
                    snapshot,
                    filter: self.question.filter.clone(),
                }));
            }
        }
        let Some(planned) = self.plan()? else {
            return Ok(None);
        };
        let output = Output {
            sort: planned.sort(),
            limit: Some(1),
            ..Output::default()
        };
        let mut executor = planned.query(&self.wanted(&planned), output, self.context);
        let row = self.executed(executor.next_row())?;
        drop(executor);
        Ok(row.map(|row| First {
            row,
            collection: planned.collection,
            snapshot: planned.snapshot,
            filter: planned.question.filter,
        }))
    }

    /// Changes the first document. Returns the document before the change, `None` if there is none.
    ///
    /// # Errors
    /// Errors of the plan and the change; a conflict that outlasted all retries.
    pub fn change_one(&self, change: &mut impl Change) -> Result<Option<(Row, bool)>> {
        let mut retry = Retry::new(self.catalog);
        let mut buffers = Buffers::default();
        loop {
            self.context.check()?;
            let Some(found) = self.first()? else {
                return Ok(None);
            };
            point("a document to change is found");
            let First {
                mut row,
                mut collection,
                mut snapshot,
                filter,
            } = found;
            let (filter, uuid) = (&*filter, collection.uuid);
            loop {
                let mut staging = Staging::new(self.catalog, &collection, snapshot, &mut buffers)
                    .bypassing_validation(self.bypass_validation);
                let effect = self.executed(change.stage(&mut staging, &row))?;
                if effect == Effect::None {
                    return Ok(Some((row, false)));
                }
                match self
                    .catalog
                    .commit_on(&collection, || staging.commit(self.durability))?
                {
                    // The collection's definition changed meanwhile.
                    None => {}
                    Some(Ok(_)) => return Ok(Some((row, true))),
                    Some(Err(error)) => retry.after(error)?,
                }
                self.context.check()?;
                let read = self.catalog.read(self.ns)?;
                let Some((now, current)) = read.filter(|(now, _)| now.uuid == uuid) else {
                    break;
                };
                let reader = now.document_reader(&current);
                match self.read_again(filter, &current, now.primary, reader, &row)? {
                    Reread::Same => {}
                    Reread::Changed(changed) => row = *changed,
                    Reread::Gone => break,
                }
                (collection, snapshot) = (now, current);
            }
        }
    }

    /// Changes all documents.
    ///
    /// The snapshot of a search keeps what is deleted meanwhile on disk. So while the disk is nearly full, a deletion restarts
    /// its search from time to time: what it has deleted so far is free then.
    ///
    /// # Errors
    /// As [`Target::change_one`]; `QueryPlanKilled` (175) if the collection is dropped meanwhile. `OutOfDiskSpace` (14031)
    /// of a deletion if no space could be freed.
    /// Earlier commits stay.
    pub fn change_all(&self, change: &mut impl Change) -> Result<Changed> {
        let mut changed = Changed::default();
        // The number of deleted documents at the last error of a full disk.
        let mut full_at = None;
        loop {
            let before = changed.modified;
            match self.change_found(change, &mut changed) {
                Ok(Searched::Everything) => return Ok(changed),
                Ok(Searched::APart) => {}
                Err(error) if change.removes() && error.is_disk_full() => {
                    // The commit has waited while the snapshot of its search kept on disk what was deleted.
                    let is_freed = OwnFiles::new(self.catalog.engine()).await_space()?;
                    let is_stuck = changed.modified == before && full_at == Some(before);
                    if !is_freed || is_stuck {
                        let message = error.message();
                        return Err(command(
                            error.code(),
                            format!("{message}. {before} documents were deleted before"),
                        ));
                    }
                    full_at = Some(changed.modified);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Changes the documents that one search finds.
    fn change_found(&self, change: &mut impl Change, changed: &mut Changed) -> Result<Searched> {
        let Some(planned) = self.plan()? else {
            return Ok(Searched::Everything);
        };
        let before = changed.modified;
        let mut executor = planned.rows(&self.wanted(&planned), self.context);
        let files = planned.snapshot.files();
        let search = Search {
            filter: planned.question.filter.clone(),
            collection: planned.collection.clone(),
            // The writes of a transaction are not known to others before it commits.
            at: files
                .filter(|_| self.catalog.is_live())
                .map(|files| files.moment()),
        };
        // The search may release its snapshot's memtables.
        drop(planned);
        let mut buffers = Buffers::default();
        loop {
            let mut rows = Vec::new();
            let mut bytes = 0;
            let pulled = self.executed(executor.for_each(&mut |row| {
                let row = row.to_row(true);
                let stored = row.stored.as_ref().map_or(0, Vec::len);
                bytes += row.doc.len_bytes() + row.key.len() + stored;
                rows.push(row);
                let is_full = rows.len() >= COMMIT_DOCUMENTS_MAX || bytes >= CANDIDATE_BYTES_MAX;
                Ok(if is_full { Flow::Pause } else { Flow::Continue })
            }))?;
            let more = pulled == Pulled::Paused;
            point("documents to change are found");
            self.change_rows(&search, rows, change, &mut buffers, changed)?;
            if !more {
                return Ok(Searched::Everything);
            }
            let is_long = changed.modified - before >= SEARCH_DOCUMENTS_FULL_DISK;
            let files = OwnFiles::new(self.catalog.engine());
            if is_long && change.removes() && files.is_disk_low() {
                return Ok(Searched::APart);
            }
        }
    }

    /// Changes the documents that were found as `rows`.
    fn change_rows(
        &self,
        search: &Search,
        rows: Vec<Row>,
        change: &mut impl Change,
        buffers: &mut Buffers,
        changed: &mut Changed,
    ) -> Result<()> {
        let mut retry = Retry::new(self.catalog);
        let mut next = 0;
        while next < rows.len() {
            self.context.check()?;
            let read = self.catalog.read(self.ns)?;
            let uuid = search.collection.uuid;
            let Some((collection, snapshot)) = read.filter(|(now, _)| now.uuid == uuid) else {
                let uuid = frond_bson::uuid_text(&uuid);
                let message = format!("collection dropped. UUID {uuid}");
                return Err(command(ErrorCode::QueryPlanKilled, message));
            };
            // After conflicts the commits get smaller, so that each meets fewer others.
            let limit =
                (COMMIT_DOCUMENTS_MAX >> retry.conflicts().saturating_mul(2).min(31)).max(1);
            let rows_now = rows.iter().skip(next).take(limit);
            let keys = rows_now.clone().map(|row| row.key.as_slice());
            let is_as_found = self.is_as_found(search, &collection, keys.clone());
            if !is_as_found && snapshot.gathers_reads() {
                let keys: Vec<(TreeId, &[u8])> =
                    keys.map(|key| (collection.primary, key)).collect();
                snapshot.prefetch(&keys)?;
            }
            let mut staging = Staging::new(self.catalog, &collection, snapshot, buffers)
                .bypassing_validation(self.bypass_validation);
            let mut part = Changed::default();
            let mut at = next;
            let mut failure = None;
            for row in rows_now {
                if staging.is_full() {
                    break;
                }
                let staged = if is_as_found {
                    change.stage(&mut staging, row).map(Some)
                } else {
                    self.stage_again(&search.filter, &mut staging, row, change)
                };
                match self.executed(staged) {
                    Ok(Some(Effect::NextCommit)) => break,
                    Ok(Some(effect)) => {
                        part.matched += 1;
                        part.modified += u64::from(effect == Effect::Staged);
                    }
                    Ok(None) => {}
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
                at += 1;
            }
            match self
                .catalog
                .commit_on(&collection, || staging.commit(self.durability))?
            {
                None => continue,
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    retry.after(error)?;
                    continue;
                }
            }
            changed.matched += part.matched;
            changed.modified += part.modified;
            if let Some(error) = failure {
                return Err(error);
            }
            next = at;
            retry.reset();
        }
        Ok(())
    }

    /// Whether the documents with these keys are certainly as a search has found them. The snapshot to be written on was taken before.
    fn is_as_found<'k>(
        &self,
        search: &Search,
        collection: &Arc<Collection>,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> bool {
        // Writes of single documents guard their keys. Ranges are deleted with a new definition of the collection.
        let Some((since, files)) = search.at.zip(self.catalog.engine().files()) else {
            return false;
        };
        Arc::ptr_eq(collection, &search.collection)
            && !files.may_have_changed(collection.primary, keys, since)
    }

    /// Reads a document again, applies the filter again if it has changed, and stages the change. `None` if it is
    /// gone or does not match any more.
    fn stage_again(
        &self,
        filter: &Filter,
        staging: &mut Staging<'_>,
        row: &Row,
        change: &mut impl Change,
    ) -> Result<Option<Effect>> {
        let primary = staging.collection().primary;
        let (snapshot, reader) = (staging.snapshot(), staging.document_reader());
        match self.read_again(filter, snapshot, primary, reader, row)? {
            Reread::Same => change.stage(staging, row).map(Some),
            Reread::Changed(row) => change.stage(staging, &row).map(Some),
            Reread::Gone => Ok(None),
        }
    }

    /// Reads a document again in another snapshot, and applies the filter again if it has changed.
    fn read_again(
        &self,
        filter: &Filter,
        snapshot: &Snapshot,
        primary: TreeId,
        reader: DocumentReader<'_>,
        row: &Row,
    ) -> Result<Reread> {
        let Some(stored) = snapshot.get(primary, &row.key)? else {
            return Ok(Reread::Gone);
        };
        let known = row.stored.as_deref().unwrap_or(row.doc.as_bytes());
        if *stored == *known {
            return Ok(Reread::Same);
        }
        let want = if record::is_in_parts(&stored) && !self.whole {
            required_fields::of_query(filter, None, [])
        } else {
            EVERYTHING.clone()
        };
        let doc = reader.parts(&row.key, &stored, &want)?;
        if !filter.try_matches(&doc)? {
            return Ok(Reread::Gone);
        }
        Ok(Reread::Changed(Box::new(Row {
            key: row.key.clone(),
            doc: doc.into_owned(),
            stored: record::is_in_parts(&stored).then(|| stored.to_vec()),
            index_key: None,
            meta: None,
        })))
    }
}

/// Whether a commit failed because an open transaction has written one of its keys.
pub(super) fn is_held(error: &Error) -> bool {
    matches!(
        error,
        Error::Engine(EngineError::Conflict { held: true, .. })
    )
}

/// A document that was found, read again later.
enum Reread {
    /// As it was found.
    Same,
    /// It has changed, and still matches.
    Changed(Box<Row>),
    /// It is gone, or does not match any more.
    Gone,
}

/// Whether an error says that an upsert met a document that another writer inserted first, and another attempt can find it.
/// In a transaction it cannot.
pub fn is_upsert_race(catalog: &Catalog, error: &Error) -> bool {
    !catalog.is_in_transaction() && (error.is_duplicate_key() || error.is_conflict())
}
