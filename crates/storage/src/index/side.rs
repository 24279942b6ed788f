//! Entries of side trees: what writers did to a unique index while it is built, see [`super::Index::sides`].
//!
//! The key is that of an entry of an index that is not unique. The value says whether the entry is there, and what its
//! payload is.

use frond_bson::Doc;

use super::entry;
use super::spec::IndexSpec;

/// The first byte of the value for an entry that is there; its payload follows.
const PRESENT: u8 = 1;
/// The value for an entry that is gone.
const ABSENT: u8 = 0;

/// Writes the key and the value of a side tree for an entry that is there, with what its encoding lost and its
/// document, or gone.
pub fn write(
    spec: &IndexSpec,
    fields: &[u8],
    id: &[u8],
    present: Option<(&[u8], &Doc)>,
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) {
    key.clear();
    spec.records.write_prefix(id, key);
    key.extend_from_slice(fields);
    key.extend_from_slice(id);
    value.clear();
    match present {
        Some((lost, doc)) => {
            value.push(PRESENT);
            entry::write_payload(spec, lost, doc, value);
        }
        None => value.push(ABSENT),
    }
}

/// The payload of an entry that is there, `Some(None)` for one that is gone, `None` for a damaged value.
pub fn payload(value: &[u8]) -> Option<Option<&[u8]>> {
    let (state, payload) = value.split_first()?;
    Some((*state == PRESENT).then_some(payload))
}
