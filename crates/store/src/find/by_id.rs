//! A find of one document by its `_id`, the most frequent request, without a plan and without operators. Changes of one
//! document find it here, too.

use std::sync::Arc;

use frond_bson::{ArrayBuf, Doc, DocBuf, Value};
use frond_query::projection::FlatProjection;

use super::{FindRequest, takes_short_way};
use crate::catalog::{Catalog, Collection};
use crate::op_stats;
use crate::store::DocumentStore;
use frond_storage::error::Result;
use frond_storage::keyspace::{Snapshot, ValueRef};
use frond_storage::namespace::Namespace;
use frond_storage::record;

/// Larger documents take the way on which a reply waits for memory.
const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// The `_id` that a filter asks for, if that is all it does.
pub(crate) fn one_id(filter: &Doc) -> Option<Value<'_>> {
    let mut fields = filter.iter();
    let (name, value) = fields.next()?;
    (name == "_id" && is_plain(&value) && fields.next().is_none()).then_some(value)
}

/// Whether a value is equal to those with its key, and to no others.
fn is_plain(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::ObjectId(_)
            | Value::Int32(_)
            | Value::Int64(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bool(_)
            | Value::DateTime(_)
            | Value::Binary { .. }
    )
}

/// Where an `_id` is looked up.
pub(crate) struct IdLookUp {
    pub collection: Arc<Collection>,
    pub snapshot: Snapshot,
    /// The key of the document.
    pub key: Vec<u8>,
}

impl IdLookUp {
    /// Prepares to look up a plain `_id`. `None` if the collection is of a kind that takes a plan, or a view, or is not there.
    pub fn new(catalog: &Catalog, ns: &Namespace, id: &Value<'_>) -> Result<Option<IdLookUp>> {
        let Some((collection, snapshot)) = catalog.read(ns)? else {
            return Ok(None);
        };
        let Some(key) = key_of(&collection, id) else {
            return Ok(None);
        };
        Ok(Some(IdLookUp {
            collection,
            snapshot,
            key,
        }))
    }
}

/// The key of the document with an `_id`, if the collection is of the kind for it.
fn key_of(collection: &Collection, id: &Value<'_>) -> Option<Vec<u8>> {
    let is_by_id = collection.oplog().is_none() && !collection.is_by_record();
    if !is_by_id || !collection.collator().is_binary() {
        return None;
    }
    let mut key = Vec::with_capacity(32);
    collection.collator().encode(id, &mut key);
    Some(key)
}

/// Looks up an `_id`. `None` if the collection is of a kind that takes a plan, or a view, or is not there.
fn look_up(
    catalog: &Catalog,
    ns: &Namespace,
    id: &Value<'_>,
) -> Result<Option<(Arc<Collection>, Option<ValueRef>)>> {
    if catalog.coordination().has_latest()
        && let Some(collection) = catalog.collection(ns)
        && let Some(key) = key_of(&collection, id)
        && let Some(found) = catalog.get_latest(ns, &collection, &key)?
    {
        return Ok(Some((collection, found)));
    }
    let Some(look_up) = IdLookUp::new(catalog, ns, id)? else {
        return Ok(None);
    };
    let found = look_up
        .snapshot
        .get(look_up.collection.primary, &look_up.key)?;
    Ok(Some((look_up.collection, found)))
}

/// Notes a look-up for the figures of the operation and of the index.
pub(crate) fn note_look_up(collection: &Collection, found: bool) {
    op_stats::set_summary("IDHACK");
    count_look_up(collection, found);
}

/// As [`note_look_up`], for one of many of an operation with another plan.
fn count_look_up(collection: &Collection, found: bool) {
    collection.id_uses().add();
    op_stats::update(|op_stats| {
        op_stats.keys_examined += u64::from(found);
        op_stats.docs_examined += u64::from(found);
    });
}

impl DocumentStore {
    /// The document with a plain `_id`. The outer `None`: the collection, the document or the `_id` is of a kind that takes a plan.
    ///
    /// # Errors
    /// Errors of the engine; `NoSuchTransaction` (251) after the end of a transaction.
    pub(crate) fn document_by_id(
        &self,
        ns: &Namespace,
        id: &Value<'_>,
    ) -> Result<Option<Option<DocBuf>>> {
        if !is_plain(id) {
            return Ok(None);
        }
        let Some((collection, found)) = look_up(self.catalog(), ns, id)? else {
            return Ok(None);
        };
        if found.as_deref().is_some_and(record::is_in_parts) {
            return Ok(None);
        }
        count_look_up(&collection, found.is_some());
        Ok(Some(
            found.map(|record| Doc::from_trusted(&record).to_owned()),
        ))
    }

    /// Adds the document with the `_id` that a find asks for to `batch`, if there is one. False if the request, the
    /// collection or the document is of another kind: then nothing is added, and [`DocumentStore::find`] answers.
    ///
    /// # Errors
    /// Errors of the engine; `NoSuchTransaction` (251) after the end of a transaction.
    pub fn find_by_id(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        batch: &mut ArrayBuf,
    ) -> Result<bool> {
        let is_plain = takes_short_way(request)
            && !request.return_key
            && request.collation.is_none()
            && request.sort.is_none_or(Doc::is_empty);
        let Some(id) = request.filter.filter(|_| is_plain).and_then(one_id) else {
            return Ok(false);
        };
        let Some(shape) = FlatProjection::parse(request.projection.unwrap_or(Doc::empty())) else {
            return Ok(false);
        };
        let Some((collection, found)) = look_up(self.catalog(), ns, &id)? else {
            return Ok(false);
        };
        let Some(record) = found else {
            note_look_up(&collection, false);
            return Ok(true);
        };
        if record::is_in_parts(&record) || record.len() > DOCUMENT_BYTES_MAX {
            return Ok(false);
        }
        note_look_up(&collection, true);
        batch.push_doc(|out| shape.apply(Doc::from_trusted(&record), out));
        Ok(true)
    }
}
