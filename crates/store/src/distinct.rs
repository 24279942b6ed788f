//! The distinct values of a field.

use std::collections::BTreeMap;

use frond_bson::{ArrayBuf, MAX_DOCUMENT_BYTES, OwnedValue, Value, key};
use frond_query::paths::{Path, distinct_values};

use crate::context::OpContext;
use crate::error::{Result, command};
use crate::find::Planned;
use frond_query::error::ErrorCode;

/// Room in a reply beside the values.
const REPLY_BYTES: usize = 16 * 1024;

/// Collects the values, in MongoDB's order.
///
/// # Errors
/// 17217 if they are larger than one document; errors of the plan.
pub(crate) fn values(planned: &Planned, path: &str, context: &OpContext) -> Result<ArrayBuf> {
    let path = Path::new(path);
    let mut executor = planned.open(context)?;
    // Equal values, as 1 and 1.0, have the same key.
    let mut found: BTreeMap<Vec<u8>, OwnedValue> = BTreeMap::new();
    let mut bytes = 0;
    let mut encoded = Vec::new();
    while let Some(row) = executor.next_row()? {
        distinct_values(&row.doc, &path, |value: Value<'_>| {
            encoded.clear();
            key::encode(&value, &mut encoded);
            if !found.contains_key(encoded.as_slice()) {
                bytes += value.len_bytes() + 8;
                found.insert(encoded.clone(), value.to_owned());
            }
        });
        if bytes > MAX_DOCUMENT_BYTES - REPLY_BYTES {
            return Err(command(
                ErrorCode::Location(17217),
                "distinct too big, 16mb cap",
            ));
        }
    }
    let mut array = ArrayBuf::new();
    for value in found.values() {
        array.push_value(&value.as_value());
    }
    Ok(array)
}
