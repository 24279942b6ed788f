//! `primaryKey`: the fields by which documents are stored, in place of `_id` alone. The last one is `_id`, so that no two documents
//! have the same key.

use std::sync::Arc;

use frond_bson::{Collator, Doc, DocBuf, ObjectId, Value, doc, key};
use frond_error::ErrorCode;

use super::clustered::is_id_key;
use super::invalid;
use super::read::Given;
use crate::error::{Result, command};
use crate::index::keys::IndexKeys;
use crate::index::spec::IndexSpec;

/// The name under which the primary key is shown among the indexes.
pub const PRIMARY_KEY_NAME: &str = "primaryKey";

/// A primary key of several fields.
#[derive(Clone, Debug)]
pub struct PrimaryKey {
    /// As it was given.
    pub doc: DocBuf,
    /// The collection as an index on these fields, whose entries are the documents.
    pub spec: Arc<IndexSpec>,
    /// Whether a unique number follows the fields: measurements of a time series may have any `_id`, or none.
    pub numbered: bool,
}

/// Reads the option. `None` for `{_id: 1}`, which every collection has that sets no other order.
pub(super) fn parse(given: &Given<'_>) -> Result<Option<DocBuf>> {
    let pattern = given.doc()?;
    let text = || crate::text::document(pattern);
    if pattern.is_empty() {
        return Err(invalid("'primaryKey' must have at least one field"));
    }
    for (path, direction) in pattern.iter() {
        let is_ordered =
            direction.is_number() && direction.as_f64().is_some_and(|one| one.abs() == 1.0);
        if !is_ordered {
            return Err(invalid(format!(
                "each field of 'primaryKey' must be 1 or -1, in {}",
                text()
            )));
        }
        if path.starts_with("_id.") || path.split('.').any(str::is_empty) || path.starts_with('$') {
            return Err(invalid(format!(
                "'{path}' cannot be a field of 'primaryKey'"
            )));
        }
    }
    let last = pattern.iter().last();
    if !last.is_some_and(|(path, direction)| path == "_id" && direction.as_f64() == Some(1.0)) {
        return Err(invalid(format!(
            "'primaryKey' must end with _id: 1, as {{ts: 1, _id: 1}} does; it is {}",
            text()
        )));
    }
    Ok((!is_id_key(pattern)).then(|| pattern.to_owned()))
}

impl PrimaryKey {
    /// The primary key with this pattern of a collection that compares strings by `collator`.
    ///
    /// # Errors
    /// The errors of an index with this pattern.
    pub(super) fn new(pattern: DocBuf, collator: &Collator) -> Result<PrimaryKey> {
        let mut spec = doc! {"v": 2, "key": &pattern, "name": PRIMARY_KEY_NAME, "unique": true};
        if let Some(collation) = collator.spec() {
            spec.push("collation", collation);
        }
        let mut spec = IndexSpec::parse(&spec)?;
        spec.doc.push("clustered", true);
        spec.primary = true;
        Ok(PrimaryKey {
            doc: pattern,
            spec: Arc::new(spec),
            numbered: false,
        })
    }

    /// The key of measurements with this time.
    pub(super) fn of_series(time_field: &str, collator: &Collator) -> Result<PrimaryKey> {
        let mut pattern = DocBuf::new();
        pattern.push(time_field, 1);
        let key = PrimaryKey::new(pattern, collator)?;
        let mut spec = IndexSpec::clone(&key.spec);
        spec.unique = false;
        Ok(PrimaryKey {
            spec: Arc::new(spec),
            numbered: true,
            ..key
        })
    }

    /// The directions of the values of a key.
    pub fn directions(&self) -> Vec<key::Direction> {
        let number = self.numbered.then_some(key::Direction::Ascending);
        let fields = self.spec.fields.iter().map(|field| field.direction);
        fields.chain(number).collect()
    }

    /// Makes the key of a new document. A missing field counts as null.
    ///
    /// # Errors
    /// `BadValue` (2) if a field is an array, or lies in one; errors of the keys of indexes.
    pub fn new_key(&self, doc: &Doc, keys: &mut IndexKeys) -> Result<Vec<u8>> {
        let mut key = self.fields_of(doc, keys)?;
        if self.numbered {
            key::encode(&Value::ObjectId(ObjectId::new()), &mut key);
        }
        Ok(key)
    }

    /// Makes the key of a document after an update. It keeps its number.
    ///
    /// # Errors
    /// As [`PrimaryKey::new_key`].
    pub fn updated_key(
        &self,
        before: &[u8],
        old: &Doc,
        new: &Doc,
        keys: &mut IndexKeys,
    ) -> Result<Vec<u8>> {
        let mut key = self.fields_of(new, keys)?;
        if self.numbered {
            let fields = self.fields_of(old, keys)?.len();
            key.extend_from_slice(before.get(fields..).unwrap_or_default());
        }
        Ok(key)
    }

    /// Whether a document can lie under a key.
    pub fn is_key_of(&self, key: &[u8], doc: &Doc, keys: &mut IndexKeys) -> bool {
        self.fields_of(doc, keys).is_ok_and(|fields| {
            if self.numbered {
                key.starts_with(&fields)
            } else {
                key == fields
            }
        })
    }

    /// The encoded fields of a document, which its key begins with.
    fn fields_of(&self, doc: &Doc, keys: &mut IndexKeys) -> Result<Vec<u8>> {
        keys.generate(&self.spec, doc, 0)?;
        let mut all = keys.iter();
        match (all.next(), all.next()) {
            (Some((key, _)), None) if keys.multikey().is_empty() => Ok(key.to_vec()),
            _ => Err(command(
                ErrorCode::BadValue,
                format!(
                    "a field of the primary key {} is an array in the document with _id {}",
                    crate::text::document(&self.doc),
                    crate::text::value(doc.get("_id").unwrap_or(Value::Null))
                ),
            )),
        }
    }
}
