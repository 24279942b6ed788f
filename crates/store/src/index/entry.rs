//! The layout of index entries.
//!
//! | index | key | value |
//! | --- | --- | --- |
//! | not unique | fields, `_id` | lost bits |
//! | unique | fields | `_id`, lost bits |
//!
//! Fields and `_id` are encoded so that bytes compare as values do. The lost bits restore what that
//! loses. In a unique index the fields alone are the key: two documents with the same fields meet
//! in one key, so that a point read finds a duplicate and the engine's conflict check stops two
//! writers that insert the same value at the same time.

use frond_bson::key;

use super::spec::IndexSpec;
use crate::error::{Result, corrupt};

/// The parts of one stored entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryParts<'a> {
    /// The encoded fields.
    pub fields: &'a [u8],
    /// The encoded `_id`: the key of the document.
    pub id: &'a [u8],
    /// What the encoding of the fields, and then of the `_id`, lost.
    pub lost: &'a [u8],
}

/// Writes the key and the value of an entry into two buffers, which are cleared first.
pub fn write(
    spec: &IndexSpec,
    fields: &[u8],
    id: &[u8],
    lost: &[u8],
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) {
    key.clear();
    value.clear();
    key.extend_from_slice(fields);
    if spec.unique { &mut *value } else { &mut *key }.extend_from_slice(id);
    value.extend_from_slice(lost);
}

/// Takes a stored entry apart. `fields_end` is where the fields end in the key.
pub fn split_at<'a>(
    spec: &IndexSpec,
    key: &'a [u8],
    value: &'a [u8],
    fields_end: usize,
) -> Option<EntryParts<'a>> {
    let (fields, id_in_key) = key.split_at_checked(fields_end)?;
    if !spec.unique {
        return Some(EntryParts {
            fields,
            id: id_in_key,
            lost: value,
        });
    }
    let (id, lost) = value.split_at_checked(key::skip(value, key::Direction::Ascending)?)?;
    Some(EntryParts { fields, id, lost })
}

/// Where the fields end in a key that begins with them.
pub fn fields_end(spec: &IndexSpec, key: &[u8]) -> Option<usize> {
    let mut fields = spec.fields.iter();
    fields.try_fold(0, |end, field| {
        Some(end + key::skip(key.get(end..)?, field.direction)?)
    })
}

/// Takes a stored entry apart.
pub fn split<'a>(spec: &IndexSpec, key: &'a [u8], value: &'a [u8]) -> Result<EntryParts<'a>> {
    let parts = if spec.unique {
        split_at(spec, key, value, key.len())
    } else {
        fields_end(spec, key).and_then(|end| split_at(spec, key, value, end))
    };
    parts.ok_or_else(|| corrupt(format!("an entry of index '{}'", spec.name)))
}
