//! The error of a unique index: 11000, with the key pattern and the value.

use frond_bson::{Doc, DocBuf, doc};
use frond_query::error::{Error as CommandError, ErrorCode};

use super::staging::id_document;
use crate::catalog::Collection;
use crate::error::Error;
use crate::index::Index;
use crate::index::covered::fields_document;
use crate::index::spec::ID_INDEX_NAME;
use crate::text;

/// The `_id` is taken.
#[cold]
pub fn of_id(collection: &Collection, document: &Doc) -> Error {
    error(
        collection,
        ID_INDEX_NAME,
        &doc! {"_id": 1},
        &id_document(document),
    )
}

/// The key with these encoded fields is taken.
#[cold]
pub fn of_index(collection: &Collection, index: &Index, fields: &[u8]) -> Error {
    // What the encoding lost is not worth a look here: 1 and 1.0 are the same key.
    let value = fields_document(&index.spec, fields, &[]).unwrap_or_default();
    error(collection, &index.spec.name, &index.spec.key, &value)
}

fn error(collection: &Collection, index: &str, pattern: &Doc, value: &DocBuf) -> Error {
    let message = format!(
        "E11000 duplicate key error collection: {} index: {index} dup key: {}",
        collection.ns,
        text::document(value)
    );
    CommandError::new(ErrorCode::DuplicateKey, message)
        .with_details(doc! {"keyPattern": pattern, "keyValue": value})
        .into()
}
