//! The error of a unique index: 11000, with the key pattern and the value.

use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_error::{Error as CommandError, ErrorCode};

use super::id_document;
use crate::catalog::Collection;
use frond_storage::error::Error;
use frond_storage::index::Index;
use frond_storage::index::covered::{fields_document, fields_without_types};
use frond_storage::index::spec::ID_INDEX_NAME;
use frond_storage::text;

/// The `_id` is taken.
#[cold]
pub fn of_id(collection: &Collection, document: &Doc) -> Error {
    error(
        collection,
        ID_INDEX_NAME,
        &doc! {"_id": 1},
        &id_document(document),
        None,
    )
}

/// The key with these encoded fields is taken. `lost` is what their encoding lost, if it is known.
#[cold]
pub fn of_index(
    collection: &Collection,
    index: &Index,
    fields: &[u8],
    lost: Option<&[u8]>,
) -> Error {
    let spec = &index.spec;
    let value = match lost {
        Some(lost) => fields_document(spec, fields, lost),
        None => fields_without_types(
            spec,
            fields
                .get(spec.records.prefix_bytes()..)
                .unwrap_or_default(),
        ),
    };
    let value = value.unwrap_or_default();
    error(
        collection,
        &spec.name,
        &spec.key,
        &value,
        spec.collator.spec(),
    )
}

/// Sort keys of a collation, and strings that are not UTF-8, are shown as hexadecimal digits.
fn error(
    collection: &Collection,
    index: &str,
    pattern: &Doc,
    value: &Doc,
    collation: Option<&Doc>,
) -> Error {
    let mut shown = DocBuf::new();
    let mut encoded = DocBuf::new();
    let mut is_encoded = ArrayBuf::new();
    for element in value.iter_raw() {
        let text = (element.value())
            .filter(|value| collation.is_some() || matches!(value, Value::NotUtf8(_)))
            .filter(Value::is_string)
            .and_then(|value| value.string_bytes());
        is_encoded.push(text.is_some());
        match text {
            Some(text) => {
                let hex = frond_bson::hex(text);
                shown.push(element.name(), format!("0x{hex}").as_str());
                encoded.push(element.name(), hex.as_str());
            }
            None => {
                shown.push_raw(&element);
                encoded.push_raw(&element);
            }
        }
    }
    let mut message = format!(
        "E11000 duplicate key error collection: {} index: {index}",
        collection.ns
    );
    let mut details = doc! {"keyPattern": pattern, "keyValue": encoded};
    if is_encoded.values().any(|flag| flag.truthy()) {
        details.push("hexEncoded", &is_encoded);
    }
    if let Some(collation) = collation {
        message += &format!(" collation: {}", text::document(collation));
        details.push("collation", collation);
    }
    message += &format!(" dup key: {}", text::document(&shown));
    CommandError::new(ErrorCode::DuplicateKey, message)
        .with_details(details)
        .into()
}
