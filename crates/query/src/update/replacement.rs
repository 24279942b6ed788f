//! Updates that replace the whole document.

use super::ApplyContext;
use crate::display;
use frond_bson::{Doc, DocBuf, Timestamp, Value, compare};
use frond_error::{Error, ErrorCode, Result};

/// The document after the replacement: `_id` first and unchanged, empty timestamps filled in unless
/// the context keeps them.
///
/// Error 66 if the replacement has another `_id`.
pub(super) fn apply(replacement: &Doc, old: &Doc, context: &ApplyContext) -> Result<DocBuf> {
    let old_id = old.get("_id");
    let new_id = replacement.get("_id");
    if let (Some(old_id), Some(new_id)) = (old_id, new_id) {
        same_id(&old_id, &new_id)?;
    }
    let mut doc = DocBuf::with_capacity(replacement.len_bytes() + 32);
    // The stored `_id` stays also where the new one is equal but of another type.
    if let Some(id) = old_id.or(new_id) {
        doc.push_value("_id", &id);
    }
    let empty_timestamp = Value::Timestamp(Timestamp::default());
    for element in replacement.iter_raw() {
        if element.name_bytes() == b"_id" {
            continue;
        }
        if !context.keeps_empty_timestamps && element.value() == Some(empty_timestamp) {
            doc.push_value(element.name(), &Value::Timestamp(context.timestamp));
        } else {
            doc.push_raw(&element);
        }
    }
    Ok(doc)
}

/// Error 66 if a whole new document would have another `_id`.
pub(super) fn same_id(old: &Value<'_>, new: &Value<'_>) -> Result<()> {
    if compare(old, new).is_eq() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::ImmutableField,
        format!(
            "After applying the update, the (immutable) field '_id' was found to have been \
             altered to {}",
            display::element("_id", new)
        ),
    ))
}
