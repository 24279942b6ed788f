//! Inserts, in bulk: the hottest write path.

use frond_bson::{Doc, DocBuf, ObjectId, RawElement, Value, tag};
use frond_error::ErrorCode;
use frond_query::update::check_id;

use super::recording::session_of;
use super::staging::{Buffers, Staged, Staging, check_size, primary_key};
use super::{Retry, WriteError};
use crate::catalog::{
    Catalog, Collection, SYSTEM_PROFILE, SessionRecords, StatementId, Uuid, not_found,
};
use frond_oplog::entry::Session;
use frond_storage::clock::next_timestamp;
use frond_storage::error::{Error, Result, command};
use frond_storage::keyspace::{COMMIT_DOCUMENTS_MAX, Durability, EngineError};
use frond_storage::namespace::Namespace;

/// Options of an insert.
#[derive(Clone, Copy, Debug)]
pub struct InsertOptions {
    /// Whether the first document that fails ends the operation.
    pub ordered: bool,
    /// When the operation returns.
    pub durability: Durability,
    /// Whether documents are not checked by the collection's validator.
    pub bypass_validation: bool,
    /// Whether a top-level `Timestamp(0, 0)` is stored as it is, not replaced by the current time.
    pub keep_empty_timestamps: bool,
}

/// The result of an insert.
#[derive(Debug, Default)]
pub struct InsertOutcome {
    /// Documents that were inserted.
    pub inserted: usize,
    /// Documents that were refused, by their position in the request, ascending.
    pub errors: Vec<WriteError>,
}

impl InsertOutcome {
    /// Notes that the store cannot write these documents for now, or that the operation was interrupted: what was inserted
    /// before stays, and the caller learns how much that is, so that a retry does not insert it again. Any other error
    /// fails the operation.
    fn refuse_rest(
        &mut self,
        error: Error,
        rest: std::ops::Range<usize>,
        ordered: bool,
    ) -> Result<()> {
        if !error.is_disk_full() && !error.code().is_interruption() {
            return Err(error);
        }
        let tried = if ordered { 1 } else { rest.len() };
        for index in rest.take(tried) {
            let error = command(error.code(), error.message());
            self.errors.push(WriteError { index, error });
        }
        Ok(())
    }
}

/// The result of one commit.
struct Chunk {
    /// Documents processed: the next commit begins with the one after them.
    consumed: usize,
    inserted: usize,
    errors: Vec<WriteError>,
}

/// The records of an insert's documents, which are statements of a retryable write.
#[derive(Clone, Copy, Debug)]
pub struct InsertRecording<'a> {
    /// The session; the number of the statement is not looked at.
    pub of: StatementId,
    /// The number of each document.
    pub numbers: &'a [i32],
    /// The result of a document that was inserted.
    pub result: &'a Doc,
}

impl InsertRecording<'_> {
    /// The statement of the document at a position of the request, for the oplog.
    pub(super) fn session(&self, at: usize) -> Option<Session> {
        let statement = *self.numbers.get(at)?;
        Some(session_of(&StatementId {
            statement,
            ..self.of
        }))
    }

    /// Adds records of the documents from `first` to `end` that did not fail to their commit: one for consecutive numbers.
    pub(super) fn add(
        &self,
        to: SessionRecords,
        staging: &mut Staging<'_>,
        documents: std::ops::Range<usize>,
        errors: &[WriteError],
        clears: &mut bool,
    ) {
        let mut failed = errors.iter().map(|error| error.index).peekable();
        let done = documents.filter(|at| failed.next_if_eq(at).is_none());
        let mut numbers = done
            .filter_map(|at| self.numbers.get(at).copied())
            .peekable();
        while let Some(statement) = numbers.next() {
            let mut count = 1;
            while numbers
                .next_if(|next| i64::from(*next) == i64::from(statement) + i64::from(count))
                .is_some()
            {
                count += 1;
            }
            let first = StatementId {
                statement,
                clears: std::mem::take(clears),
                ..self.of
            };
            staging.record(to, &first, count, self.result);
        }
    }
}

/// Inserts documents in order, in commits of bounded size. The collection is created if it is not
/// there.
///
/// # Errors
/// Errors of single documents are in the outcome, and so is that the store cannot write for now or that the operation was
/// interrupted. The operation fails as a whole only for a bad name or another failure of the engine.
pub fn insert(
    catalog: &Catalog,
    ns: &Namespace,
    docs: &[&Doc],
    options: InsertOptions,
) -> Result<InsertOutcome> {
    insert_into(catalog, ns, None, None, docs, options)
}

/// As [`insert`], with records of the documents in their commits.
///
/// # Errors
/// As [`insert`].
pub(super) fn insert_recorded(
    catalog: &Catalog,
    ns: &Namespace,
    docs: &[&Doc],
    options: InsertOptions,
    recording: InsertRecording<'_>,
) -> Result<InsertOutcome> {
    let recording = (catalog.session_records()?, recording);
    insert_into(catalog, ns, None, Some(recording), docs, options)
}

/// As [`insert`]. With a UUID, the documents go into that collection only, and nothing is created: a caller that fills
/// a collection of its own must not continue in another one of the same name.
///
/// # Errors
/// As [`insert`]; `NamespaceNotFound` (26) if the collection with the UUID does not have this name any more.
pub(crate) fn insert_into(
    catalog: &Catalog,
    ns: &Namespace,
    only: Option<&Uuid>,
    recording: Option<(SessionRecords, InsertRecording<'_>)>,
    docs: &[&Doc],
    options: InsertOptions,
) -> Result<InsertOutcome> {
    let mut outcome = InsertOutcome::default();
    // A document that fails ends a transaction.
    let options = InsertOptions {
        ordered: options.ordered || catalog.is_in_transaction(),
        ..options
    };
    // The profiler, which knows the collection, may.
    let is_refused =
        catalog.check_writable(ns).is_err() && !(only.is_some() && ns.coll() == SYSTEM_PROFILE);
    if is_refused {
        // MongoDB reports it for each document.
        let tried = if options.ordered { 1 } else { docs.len() };
        for index in 0..tried {
            if let Err(error) = catalog.check_writable(ns) {
                outcome.errors.push(WriteError { index, error });
            }
        }
        return Ok(outcome);
    }
    let mut inserter = Inserter {
        catalog,
        options,
        recording,
        clears: recording.is_some_and(|(_, recording)| recording.of.clears),
        presumes_new: true,
        buffers: Buffers::default(),
        key: Vec::new(),
        prepared: Vec::new(),
    };
    let mut retry = Retry::new(catalog);
    let mut next = 0;
    while next < docs.len() {
        if only.is_none()
            && let Err(error) = catalog.ensure_collection(ns)
        {
            outcome.refuse_rest(error, next..docs.len(), options.ordered)?;
            break;
        }
        // After conflicts the commits get smaller, so that each meets fewer others.
        let limit = (COMMIT_DOCUMENTS_MAX >> retry.conflicts().saturating_mul(2).min(31)).max(1);
        let rest = docs.get(next..).unwrap_or_default();
        let rest = rest.get(..limit.min(rest.len())).unwrap_or_default();
        let written = catalog.write(ns, |collection| {
            if only.is_none_or(|only| collection.uuid == *only) {
                inserter.chunk(collection, rest, next)
            } else {
                Err(not_found(ns))
            }
        });
        let chunk = match written {
            Ok(None) if only.is_some() => return Err(not_found(ns)),
            // Dropped since it was ensured.
            Ok(None) => continue,
            Ok(Some(Ok(chunk))) => chunk,
            Err(error) | Ok(Some(Err(error))) => {
                let Err(error) = retry.after(error) else {
                    continue;
                };
                outcome.refuse_rest(error, next..docs.len(), options.ordered)?;
                break;
            }
        };
        retry.reset();
        next += chunk.consumed;
        outcome.inserted += chunk.inserted;
        let failed = !chunk.errors.is_empty();
        outcome.errors.extend(chunk.errors);
        if failed && options.ordered {
            break;
        }
    }
    Ok(outcome)
}

struct Inserter<'a> {
    catalog: &'a Catalog,
    options: InsertOptions,
    recording: Option<(SessionRecords, InsertRecording<'a>)>,
    /// Whether the next record clears those of the session.
    clears: bool,
    /// Whether documents are taken for new ones in a cluster, so that their commit looks for their keys.
    presumes_new: bool,
    buffers: Buffers,
    key: Vec<u8>,
    prepared: Vec<u8>,
}

impl Inserter<'_> {
    /// Inserts as many of `docs` as fit in one commit. `first` is the position of the first one in the
    /// request.
    fn chunk(&mut self, collection: &Collection, docs: &[&Doc], first: usize) -> Result<Chunk> {
        // In a transaction, the statement fails and not the commit. A full capped collection removes what may be in the way first.
        let may_presume = self.catalog.engine().cluster().is_some()
            && self.catalog.is_live()
            && collection.settings.capped.is_none();
        loop {
            let presumes_new = self.presumes_new && may_presume;
            match self.attempt(collection, docs, first, presumes_new) {
                Ok(Some(chunk)) => return Ok(chunk),
                Err(error)
                    if !presumes_new
                        || !matches!(error, Error::Engine(EngineError::Conflict { .. })) =>
                {
                    return Err(error);
                }
                // Look-ups show which document has which key twice.
                _ => self.presumes_new = false,
            }
        }
    }

    /// Tries to insert some documents. `None` if they were taken for new ones, and one of them fails: whether it is one decides
    /// with what error.
    fn attempt(
        &mut self,
        collection: &Collection,
        docs: &[&Doc],
        first: usize,
        presumes_new: bool,
    ) -> Result<Option<Chunk>> {
        let bytes = docs.iter().map(|doc| doc.len_bytes()).sum();
        let mut staging = Staging::for_insertion(self.catalog, collection, &mut self.buffers)?
            .bypassing_validation(self.options.bypass_validation)
            .expecting(docs.len(), bytes)?;
        // MongoDB leaves those of measurements as they are.
        let keeps_empty_timestamps =
            self.options.keep_empty_timestamps || collection.settings.time_series.is_some();
        staging.look_up(docs, presumes_new)?;
        let mut errors = Vec::new();
        let mut consumed = 0;
        for (offset, doc) in docs.iter().enumerate() {
            if staging.is_full() {
                break;
            }
            if let Some((_, recording)) = &self.recording {
                staging.set_session(recording.session(first + offset));
            }
            let staged = prepare(
                doc,
                keeps_empty_timestamps,
                &mut self.prepared,
                &mut self.key,
            )
            .and_then(|doc| staging.insert(&self.key, doc));
            match staged {
                Ok(Staged::Done) => {}
                Ok(Staged::NextCommit) => break,
                Err(error) if matches!(error, Error::Engine(_)) => return Err(error),
                Err(error) => {
                    errors.push(WriteError {
                        index: first + offset,
                        error,
                    });
                    if self.options.ordered {
                        consumed = offset + 1;
                        break;
                    }
                }
            }
            consumed = offset + 1;
        }
        if presumes_new && !errors.is_empty() {
            return Ok(None);
        }
        let mut clears = self.clears;
        if let Some((to, recording)) = &self.recording {
            let documents = first..first + consumed;
            recording.add(*to, &mut staging, documents, &errors, &mut clears);
        }
        let inserted = staging.commit(self.options.durability)?;
        // Of a commit that had nothing to do, the records were not stored.
        if inserted > 0 {
            self.clears = clears;
        }
        Ok(Some(Chunk {
            consumed,
            inserted,
            errors,
        }))
    }
}

/// The document as it is stored: `_id` first and generated if missing, empty timestamps filled in
/// unless they are to be kept. Writes its primary key to `key`. A document that is in order already is not copied.
pub(super) fn prepare<'a>(
    doc: &'a Doc,
    keeps_empty_timestamps: bool,
    prepared: &'a mut Vec<u8>,
    key: &mut Vec<u8>,
) -> Result<&'a Doc> {
    check_size(doc)?;
    let mut id = None;
    let mut id_is_first = false;
    let mut has_empty_timestamp = false;
    for (place, element) in doc.iter_raw().enumerate() {
        if element.name_bytes() == b"_id" {
            if id.is_some() {
                return Err(command(
                    ErrorCode::BadValue,
                    "can't have multiple _id fields in one document",
                ));
            }
            id = Some(element);
            id_is_first = place == 0;
        } else if is_empty_timestamp(&element) {
            has_empty_timestamp = true;
        }
    }
    let fills_in = has_empty_timestamp && !keeps_empty_timestamps;
    let id_value = match id.and_then(|id| id.value()) {
        Some(value) => {
            check_id(&value)?;
            value
        }
        None => Value::ObjectId(ObjectId::new()),
    };
    primary_key(&id_value, key);
    if id_is_first && !fills_in {
        return Ok(doc);
    }
    let mut buffer = std::mem::take(prepared);
    buffer.clear();
    buffer.extend_from_slice(Doc::empty().as_bytes());
    let mut out = DocBuf::from_vec_trusted(buffer);
    out.push("_id", id_value);
    for element in doc
        .iter_raw()
        .filter(|element| element.name_bytes() != b"_id")
    {
        if fills_in && is_empty_timestamp(&element) {
            out.push(element.name(), Value::Timestamp(next_timestamp()));
        } else {
            out.push_raw(&element);
        }
    }
    *prepared = out.into_vec();
    let doc = Doc::from_trusted(prepared);
    check_size(doc)?;
    Ok(doc)
}

/// Whether this is a `Timestamp(0, 0)`.
fn is_empty_timestamp(element: &RawElement<'_>) -> bool {
    element.tag() == tag::TIMESTAMP && element.value_bytes() == [0; 8]
}
