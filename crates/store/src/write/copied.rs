//! Changes of documents from the oplog of another server.

use std::collections::HashSet;

use frond_bson::{Doc, DocBuf, Value};
use frond_error::ErrorCode;

use super::id_document;
use super::staging::{Staged, Staging, Updated};
use super::written::How;
use crate::catalog::Collection;
use frond_oplog::diff;
use frond_oplog::entry::{Kind, RawEntry};
use frond_storage::error::{Error, Result, command, corrupt};
use frond_storage::index::entry;
use frond_storage::index::keys::IndexKeys;
use frond_storage::keyspace::{Direction, Snapshot, key_hash};
use frond_storage::record;
use frond_storage::record::field_set::ChangeFields;

/// The documents that a commit changes, by the hashes of their `_id`s: an entry about one of them has to wait for the next commit,
/// which sees what this one does.
#[derive(Debug, Default)]
pub(crate) struct Touched(HashSet<u64>);

struct Found {
    key: Vec<u8>,
    stored: Vec<u8>,
}

impl Staging<'_> {
    /// Stages the change of a document that an entry describes.
    ///
    /// # Errors
    /// `DataCorruptionDetected` (301) if this store is not what the other one was: a document to be changed is not there, or one to
    /// be inserted is. Errors of the engine.
    pub(crate) fn stage_copied(
        &mut self,
        entry: &RawEntry<'_>,
        touched: &mut Touched,
    ) -> Result<Staged> {
        let id = entry
            .id()
            .ok_or_else(|| corrupt("an entry of the oplog without the _id of its document"))?;
        let mut id_key = Vec::new();
        self.collection.collator().encode(&id, &mut id_key);
        if !touched.0.insert(key_hash(self.collection.primary, &id_key)) {
            return Ok(Staged::NextCommit);
        }
        if entry.kind() == Kind::Insert {
            let mut key = Vec::new();
            super::staging::primary_key(&id, &mut key);
            return self.insert(&key, entry.o()).map_err(|error| match error {
                Error::Command(_) if error.is_duplicate_key() => {
                    differs(self.collection(), &id, "is there already")
                }
                error => error,
            });
        }
        let Some(found) = find(self.collection, &self.snapshot, &id, id_key)? else {
            // Documents that a capped collection drops at its end have no entries.
            return match self.collection.settings.capped {
                Some(_) => Ok(Staged::Done),
                None => Err(differs(self.collection, &id, "is not there")),
            };
        };
        let (old, parts) = if record::is_in_parts(&found.stored) {
            let everything = ChangeFields::everything();
            let reader = self.document_reader();
            let (old, parts) = reader.for_change(&found.key, &found.stored, &everything)?;
            (old, Some(parts))
        } else {
            (Doc::from_trusted(&found.stored).to_owned(), None)
        };
        if entry.kind() == Kind::Delete {
            self.delete(&found.key, &old, parts.as_ref())?;
            return Ok(Staged::Done);
        }
        let changed: DocBuf;
        let (new, diff) = match entry.kind() {
            Kind::Update => {
                changed = diff::apply(entry.o(), &old)?;
                (&*changed, Some(entry.o()))
            }
            _ => (entry.o(), None),
        };
        if *new == *old {
            return Ok(Staged::Done);
        }
        let updated = Updated {
            touches: &|path: &str| diff.is_none_or(|diff| may_change(diff, path)),
            how: How::Replaced,
        };
        if let Some(parts) = &parts
            && let Some(staged) = self.update_parts(&found.key, &old, parts, new, updated, true)?
        {
            return Ok(staged);
        }
        self.update(&found.key, &old, parts.as_ref(), new, updated)
    }
}

/// Whether a difference may change the value at a path, by its first component.
fn may_change(diff: &Doc, path: &str) -> bool {
    let first = path.split_once('.').map_or(path, |(first, _)| first);
    diff.iter().any(|(section, fields)| match section {
        "d" | "u" | "i" => fields
            .as_doc()
            .is_none_or(|fields| fields.contains_key(first)),
        inner => inner.strip_prefix('s') == Some(first),
    })
}

/// The error of a store that is not what its primary was.
fn differs(collection: &Collection, id: &Value<'_>, how: &str) -> Error {
    let mut shown = DocBuf::new();
    shown.push("_id", id);
    command(
        ErrorCode::DataCorruptionDetected,
        format!(
            "this standby differs from its primary: the document {} of {} {how}; start it anew from a copy",
            frond_storage::text::document(&shown),
            collection.ns
        ),
    )
}

/// Finds the document with an `_id`, whose key is `id_key` in a collection by `_id`.
fn find(
    collection: &Collection,
    snapshot: &Snapshot,
    id: &Value<'_>,
    id_key: Vec<u8>,
) -> Result<Option<Found>> {
    let key = if collection.is_by_record() {
        record_of(collection, snapshot, id)?
    } else {
        Some(id_key)
    };
    let Some(key) = key else {
        return Ok(None);
    };
    let stored = snapshot.get(collection.primary, &key)?;
    Ok(stored.map(|stored| Found {
        key,
        stored: stored.to_vec(),
    }))
}

/// The key of the document with an `_id` in a collection in the order of insertion.
fn record_of(
    collection: &Collection,
    snapshot: &Snapshot,
    id: &Value<'_>,
) -> Result<Option<Vec<u8>>> {
    let mut holder = DocBuf::new();
    holder.push("_id", id);
    let index = collection
        .indexes
        .iter()
        .find(|index| index.spec.is_id_index() && index.ready);
    let Some(index) = index else {
        return record_by_scan(collection, snapshot, &holder);
    };
    let mut keys = IndexKeys::default();
    keys.generate(&index.spec, &holder, 0)?;
    let Some((fields, _)) = keys.iter().next() else {
        return Ok(None);
    };
    let Some(value) = snapshot.get(index.tree, fields)? else {
        return Ok(None);
    };
    let parts = entry::split(&index.spec, fields, &value)?;
    Ok(Some(parts.id.to_vec()))
}

/// As [`record_of`] in a time series, which has no index on `_id`: the first measurement with the `_id`, from the oldest on.
fn record_by_scan(
    collection: &Collection,
    snapshot: &Snapshot,
    holder: &Doc,
) -> Result<Option<Vec<u8>>> {
    use std::ops::Bound::Unbounded;

    let mut cursor =
        snapshot.cursor(collection.primary, Unbounded, Unbounded, Direction::Forward)?;
    while let Some((key, stored)) = cursor.next()? {
        if *id_document(Doc::from_trusted(stored)) == *holder {
            return Ok(Some(key.to_vec()));
        }
    }
    Ok(None)
}
