//! A find of one document by its `_id`, the most frequent request, without a plan and without operators.

use frond_bson::{ArrayBuf, Doc, Value};
use frond_query::projection::FlatProjection;

use super::{FindRequest, takes_short_way};
use crate::error::Result;
use crate::figures;
use crate::namespace::Namespace;
use crate::record;
use crate::store::DocumentStore;

/// Larger documents take the way on which a reply waits for memory.
const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// The `_id` that a filter asks for, if that is all it does.
fn one_id(filter: &Doc) -> Option<Value<'_>> {
    let mut fields = filter.iter();
    let (name, value) = fields.next()?;
    let is_plain = matches!(
        value,
        Value::ObjectId(_)
            | Value::Int32(_)
            | Value::Int64(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bool(_)
            | Value::DateTime(_)
            | Value::Binary { .. }
    );
    (name == "_id" && is_plain && fields.next().is_none()).then_some(value)
}

impl DocumentStore {
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
        let Some(shape) = FlatProjection::of(request.projection.unwrap_or(Doc::empty())) else {
            return Ok(false);
        };
        let Some((collection, snapshot)) = self.catalog().read(ns)? else {
            // It may be a view.
            return Ok(false);
        };
        let is_by_id = collection.oplog().is_none() && !collection.is_by_record();
        if !is_by_id || !collection.collator().is_binary() {
            return Ok(false);
        }
        let mut key = Vec::with_capacity(32);
        collection.collator().encode(&id, &mut key);
        let Some(record) = snapshot.get(collection.primary, &key)? else {
            figures::note_named("IDHACK");
            collection.id_uses().add();
            return Ok(true);
        };
        if record::is_in_parts(&record) || record.len() > DOCUMENT_BYTES_MAX {
            return Ok(false);
        }
        collection.id_uses().add();
        figures::note_named("IDHACK");
        figures::note(|figures| {
            figures.keys_examined += 1;
            figures.docs_examined += 1;
        });
        batch.push_doc(|out| shape.apply(Doc::from_trusted(&record), out));
        Ok(true)
    }
}
