//! Fast updates: updates and upserts by primary key that are sent as messages and read nothing.
//!
//! A collection takes them with `fastUpdates: true`, or from clients that read no result (`w: 0`). [`Sender`] sends an update as a
//! message only if it changes nothing but its document, whatever that document contains. The other ones are executed as usual, so
//! this module reports no errors of updates.
//!
//! Whether a message has inserted or enlarged a document is not known when it is committed, so the counter of the collection says
//! how many there were since the documents were counted ([`Counts`](frond_storage::merge::Counts)).

use frond_bson::key::{Direction, encode_directed};
use frond_bson::{Doc, DocBuf, Value};
use frond_query::update::{ApplyContext, Update, check_id};

use super::Retry;
use super::insert::InsertRecording;
use super::staging::{Buffers, Staging};
use super::update::UpdateRequest;
use crate::catalog::{Catalog, Collection, SessionRecords};
use crate::op_stats;
use frond_storage::clock::next_timestamp;
use frond_storage::context::OpContext;
use frond_storage::environment::{environment, request_ms};
use frond_storage::error::{Error, Result};
use frond_storage::index::keys::IndexKeys;
use frond_storage::keyspace::Durability;
use frond_storage::namespace::Namespace;
use frond_storage::options::ValidationLevel;
use frond_storage::record::fast_update::message::is_expressible;
use frond_storage::record::fast_update::{Encoder, FastUpdateStats};

/// The outcome of each update that was sent: it is assumed to find its document and to change it.
pub const SENT: super::update::UpdateOutcome = super::update::UpdateOutcome {
    matched: 1,
    modified: 1,
    upserted_id: None,
};

/// Sends the first updates that can be sent, see [`crate::DocumentStore::update_fast`].
pub(super) fn send(
    catalog: &Catalog,
    stats: &FastUpdateStats,
    ns: &Namespace,
    requests: &[UpdateRequest<'_>],
    recording: Option<InsertRecording<'_>>,
    context: &OpContext,
) -> (usize, Option<Error>) {
    let Some(first) = requests.first() else {
        return (0, None);
    };
    if !may_be_fast(first) || !takes_messages(catalog, ns, first.unacknowledged) {
        return (0, None);
    }
    // The usual way reports it.
    if catalog.check_writable(ns).is_err() {
        return (0, None);
    }
    let mut sender = Sender::default();
    let collection = catalog.collection(ns);
    if collection.is_none_or(|collection| sender.key_of(&collection, first).is_none()) {
        return (0, None);
    }
    let mut sent = 0;
    let failure = send_all(
        (catalog, stats, &mut sender),
        (ns, requests),
        recording,
        context,
        &mut sent,
    );
    let failure = failure.err();
    if sent > 0 {
        op_stats::set_summary("FAST_UPDATE");
    }
    (sent, failure)
}

/// Sends updates in commits of bounded size until one cannot be sent. `sent` is how many were sent, also after an error.
fn send_all(
    (catalog, stats, sender): (&Catalog, &FastUpdateStats, &mut Sender),
    (ns, requests): (&Namespace, &[UpdateRequest<'_>]),
    recording: Option<InsertRecording<'_>>,
    context: &OpContext,
    sent: &mut usize,
) -> Result<()> {
    let mut recorder = match recording {
        None => None,
        Some(recording) => Some(RunRecorder {
            to: catalog.session_records()?,
            recording,
            clears: recording.of.clears,
        }),
    };
    let mut retry = Retry::new(catalog);
    while *sent < requests.len() {
        context.check()?;
        let rest = requests.get(*sent..).unwrap_or_default();
        let written = catalog.write(ns, |collection| {
            sender.commit(catalog, collection, rest, *sent, recorder.as_mut())
        });
        match written {
            // Dropped meanwhile.
            Ok(None) => break,
            Err(error) | Ok(Some(Err(error))) => retry.after(error)?,
            Ok(Some(Ok(chunk))) => {
                stats.sent(chunk.updates as u64, chunk.upserts);
                *sent += chunk.updates;
                if chunk.ended {
                    break;
                }
                retry.reset();
            }
        }
    }
    Ok(())
}

/// Adds the records of a retryable write to the commits of its updates.
struct RunRecorder<'a> {
    to: SessionRecords,
    recording: InsertRecording<'a>,
    /// Whether the next record clears those of the session.
    clears: bool,
}

/// Whether an update would be sent.
pub(super) fn is_fast(catalog: &Catalog, ns: &Namespace, request: &UpdateRequest<'_>) -> bool {
    may_be_fast(request)
        && takes_messages(catalog, ns, request.unacknowledged)
        && catalog.log(ns).is_none()
        && catalog.collection(ns).is_some_and(|collection| {
            let mut sender = Sender::default();
            sender.key_of(&collection, request).is_some()
        })
}

/// Whether the form of an update allows a message. It is looked at first, because it takes no look at the catalog.
fn may_be_fast(request: &UpdateRequest<'_>) -> bool {
    let is_plain = request.array_filters.is_empty()
        && request.sort.is_none_or(Doc::is_empty)
        && request.hint.is_none()
        && request.collation.is_none();
    is_plain
        && matches!(request.update, Value::Document(update) if is_expressible(update))
        && !request.filter.is_empty()
}

/// Whether a collection may take messages. That of a definition which is about to change is looked at again in the commit.
pub(super) fn takes_messages(catalog: &Catalog, ns: &Namespace, unacknowledged: bool) -> bool {
    catalog.is_live()
        && catalog.engine().files().is_some()
        && !catalog.coordination().has_others()
        && (catalog.collection(ns))
            .is_some_and(|collection| collection_takes_messages(&collection, unacknowledged))
}

fn collection_takes_messages(collection: &Collection, unacknowledged: bool) -> bool {
    let settings = &collection.settings;
    let validation = &settings.validation;
    let is_validated =
        validation.validator.is_some() && validation.level != Some(ValidationLevel::Off);
    let ns = &collection.ns;
    let is_internal =
        matches!(ns.db(), "admin" | "config" | "local") || ns.coll().starts_with("system.");
    (settings.fast_updates || unacknowledged)
        && !is_validated
        && !is_internal
        && collection.oplog().is_none()
        && !settings.numbers_records()
        && settings.time_series.is_none()
        && settings.partitioned.is_none()
        && collection.collator().is_binary()
        && !collection.hooks().watches(ns)
}

/// The fields of a collection's primary key with their directions. The last one is `_id`.
fn primary_key_fields(collection: &Collection) -> Vec<(&str, Direction)> {
    match &collection.settings.primary_key {
        None => vec![("_id", Direction::Ascending)],
        Some(primary_key) => (primary_key.spec.fields.iter())
            .map(|field| (field.path.as_str(), field.direction))
            .collect(),
    }
}

/// The value that a filter requires of a field, if it is an equality with a plain value.
fn equality_on<'a>(filter: &'a Doc, field: &str) -> Option<Value<'a>> {
    match filter.get(field)? {
        Value::Document(conditions) => match conditions.first() {
            Some(("$eq", value)) if conditions.iter_raw().count() == 1 => plain(value),
            Some((name, _)) if name.starts_with('$') => None,
            _ => plain(Value::Document(conditions)),
        },
        value => plain(value),
    }
}

/// Writes the key that a filter determines to `key` and returns its last value. `None` if the filter is anything but an equality
/// with one plain value for each of the fields.
fn key_of_filter<'a>(
    filter: &'a Doc,
    fields: &[(&str, Direction)],
    key: &mut Vec<u8>,
) -> Option<Value<'a>> {
    key.clear();
    if filter.iter_raw().count() != fields.len() {
        return None;
    }
    let mut last = None;
    for (field, direction) in fields {
        let value = equality_on(filter, field)?;
        encode_directed(&value, *direction, key);
        last = Some(value);
    }
    last
}

/// A value that equality finds by its key, and that can be an `_id`.
fn plain(value: Value<'_>) -> Option<Value<'_>> {
    let is_plain = match value {
        Value::Document(_) => check_id(&value).is_ok(),
        Value::ObjectId(_)
        | Value::Int32(_)
        | Value::Int64(_)
        | Value::Double(_)
        | Value::Decimal128(_)
        | Value::String(_)
        | Value::Bool(_)
        | Value::DateTime(_)
        | Value::Timestamp(_)
        | Value::Binary { .. } => true,
        _ => false,
    };
    is_plain.then_some(value)
}

/// The result of one commit.
struct Chunk {
    updates: usize,
    upserts: u64,
    /// Whether the next update cannot be sent.
    ended: bool,
}

/// Decides and encodes. The last update is remembered, because those of a batch are often the same but for their keys.
#[derive(Default)]
struct Sender {
    buffers: Buffers,
    encoder: Encoder,
    key: Vec<u8>,
    last: Option<Known>,
    keys: IndexKeys,
}

/// An update that was looked at.
struct Known {
    doc: DocBuf,
    /// Version of the collection.
    version: u64,
    /// `None` if the update cannot be sent as a message.
    update: Option<Update>,
}

impl Sender {
    /// Commits messages of the first updates, as many as a commit takes. `first` is the position of these in the request.
    fn commit(
        &mut self,
        catalog: &Catalog,
        collection: &Collection,
        requests: &[UpdateRequest<'_>],
        first: usize,
        recorder: Option<&mut RunRecorder<'_>>,
    ) -> Result<Chunk> {
        let mut buffers = std::mem::take(&mut self.buffers);
        let mut staging = Staging::for_insertion(catalog, collection, &mut buffers)?;
        let sent = self.stage(collection, &mut staging, requests)?;
        let mut recorder = recorder.filter(|_| sent.updates > 0);
        let mut clears = false;
        if let Some(recorder) = &mut recorder {
            clears = recorder.clears;
            let updates = first..first + sent.updates;
            (recorder.recording).add(recorder.to, &mut staging, updates, &[], &mut clears);
        }
        staging.commit(Durability::Logged)?;
        if let Some(recorder) = recorder {
            recorder.clears = clears;
        }
        self.buffers = buffers;
        Ok(sent)
    }

    /// Stages messages for one commit.
    fn stage(
        &mut self,
        collection: &Collection,
        staging: &mut Staging<'_>,
        requests: &[UpdateRequest<'_>],
    ) -> Result<Chunk> {
        let mut sent = Chunk {
            updates: 0,
            upserts: 0,
            ended: false,
        };
        // The oplog has the documents after their changes.
        if staging.is_logged() {
            sent.ended = true;
            return Ok(sent);
        }
        let now_ms = request_ms();
        for request in requests {
            if staging.is_full() {
                break;
            }
            let id = may_be_fast(request)
                .then(|| self.key_of(collection, request))
                .flatten();
            let (Some(id), Value::Document(update)) = (id, request.update) else {
                sent.ended = true;
                break;
            };
            let upsert = request.upsert.then_some(&id);
            let timestamp = if update.contains_key("$currentDate") {
                next_timestamp()
            } else {
                frond_bson::Timestamp::from_u64(0)
            };
            let message = self.encoder.encode(update, upsert, now_ms, timestamp);
            staging.send((&self.key, &id), message, request.upsert)?;
            sent.updates += 1;
            sent.upserts += u64::from(request.upsert);
        }
        Ok(sent)
    }

    /// The `_id` of the document, whose key is written to `self.key`. `None` if the update cannot be sent to the collection.
    fn key_of<'a>(
        &mut self,
        collection: &Collection,
        request: &UpdateRequest<'a>,
    ) -> Option<Value<'a>> {
        let Value::Document(update) = request.update else {
            return None;
        };
        if !collection_takes_messages(collection, request.unacknowledged) {
            return None;
        }
        // An upsert by several fields has to look for its `_id` in the index on that.
        if request.upsert && collection.settings.primary_key.is_some() {
            return None;
        }
        let fields = primary_key_fields(collection);
        let id = key_of_filter(request.filter, &fields, &mut self.key)?;
        let known = self.last.take().filter(|known| {
            known.doc.as_bytes() == update.as_bytes() && known.version == collection.version()
        });
        let known = self
            .last
            .insert(known.unwrap_or_else(|| Known::new(collection, update)));
        let parsed = known.update.as_ref()?;
        if self.key.len() > KEY_BYTES_MAX {
            return None;
        }
        if request.upsert && !has_no_entries(collection, parsed, &id, &self.key, &mut self.keys) {
            return None;
        }
        Some(id)
    }
}

/// Longer keys take the usual way, which has the errors.
const KEY_BYTES_MAX: usize = 64 << 10;

impl Known {
    fn new(collection: &Collection, update: &Doc) -> Known {
        let parsed = Update::parse_value(
            &Value::Document(update),
            &[],
            &environment(None, collection.collator()),
        );
        let parsed = parsed.ok().filter(|parsed| {
            let touched = parsed.paths_touched();
            let affects = |path: &str| touched.affects(path);
            let mut indexes = collection.indexes.iter().chain(&collection.primary_key);
            !parsed.needs_positional() && !indexes.any(|index| index.spec.is_affected(&affects))
        });
        Known {
            doc: update.to_owned(),
            version: collection.version(),
            update: parsed,
        }
    }
}

/// Whether a document that the update inserts has no entries in the indexes.
fn has_no_entries(
    collection: &Collection,
    update: &Update,
    id: &Value<'_>,
    key: &[u8],
    keys: &mut IndexKeys,
) -> bool {
    if collection.indexes.is_empty() {
        return true;
    }
    let mut base = DocBuf::new();
    base.push_value("_id", id);
    let inserting = ApplyContext {
        is_upsert_insert: true,
        ..ApplyContext::at(request_ms())
    };
    let Ok(inserted) = update.apply(&base, &inserting) else {
        return false;
    };
    collection.indexes.iter().all(|index| {
        let generated = keys.generate(&index.spec, &inserted.doc, key.len());
        generated.is_ok() && keys.iter().next().is_none()
    })
}

#[cfg(test)]
mod tests {
    use frond_bson::{ArrayBuf, array, doc};

    use super::*;

    #[test]
    fn equality_on_exactly_the_fields_of_a_key() {
        let id = &[("_id", Direction::Ascending)][..];
        let time = &[
            ("ts", Direction::Descending),
            ("a.b", Direction::Ascending),
            ("_id", Direction::Ascending),
        ];
        let cases = [
            (doc! {"_id": 1}, id, Some(array![1])),
            (doc! {"_id": {"$eq": 1}}, id, Some(array![1])),
            (doc! {"_id": {"$eq": {"a": 1}}}, id, Some(array![{"a": 1}])),
            (
                doc! {"_id": {"a": 1, "b": 2}},
                id,
                Some(array![{"a": 1, "b": 2}]),
            ),
            (doc! {"_id": {}}, id, Some(array![{}])),
            (doc! {"_id": {"$gt": 1}}, id, None),
            (doc! {"_id": {"$eq": 1, "$gt": 0}}, id, None),
            (doc! {"_id": {"$in": [1]}}, id, None),
            (doc! {"_id": {"$ref": "c", "$id": 1}}, id, None),
            (doc! {"_id": {"a": {"$b": 1}}}, id, None),
            (doc! {"_id": [1]}, id, None),
            (doc! {"_id": null}, id, None),
            (doc! {"_id": {"$eq": null}}, id, None),
            (doc! {"_id": 1, "a": 1}, id, None),
            (doc! {"a": 1}, id, None),
            (doc! {"_id.a": 1}, id, None),
            (doc! {"$or": [{"_id": 1}]}, id, None),
            (doc! {}, id, None),
            (doc! {"_id": 1, "_id": 2}, id, None),
            (
                doc! {"_id": 2, "a.b": 3, "ts": 1},
                time,
                Some(array![1, 3, 2]),
            ),
            (doc! {"_id": 2, "a": {"b": 3}, "ts": 1}, time, None),
            (doc! {"_id": 2, "ts": 1}, time, None),
            (doc! {"_id": 2, "_id": 2, "ts": 1}, time, None),
        ];
        for (filter, fields, expected) in cases {
            let mut key = Vec::new();
            let found = key_of_filter(&filter, fields, &mut key);
            let values = expected.as_ref().map(ArrayBuf::as_value);
            let Some(Value::Array(values)) = values else {
                assert_eq!(found, None, "{filter:?}");
                continue;
            };
            let mut wanted = Vec::new();
            for ((_, value), (_, direction)) in values.iter().zip(fields) {
                encode_directed(&value, *direction, &mut wanted);
            }
            assert_eq!(
                (found, &key),
                (values.iter().last().map(|(_, last)| last), &wanted),
                "{filter:?}"
            );
        }
    }
}
