//! The distinct values of a field.

use std::collections::BTreeMap;

use frond_bson::{ArrayBuf, Collator, Doc, MAX_DOCUMENT_BYTES, OwnedValue, Value};
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
    let mut executor = planned.open(context)?;
    let mut distinct = Distinct::new(path, planned.question.sort.collator());
    while let Some(row) = executor.next_row()? {
        distinct.add(&row.doc)?;
    }
    Ok(distinct.into_array())
}

/// The values seen so far.
pub(crate) struct Distinct {
    path: Path,
    collator: Collator,
    /// Equal values, as 1 and 1.0, have the same key.
    found: BTreeMap<Vec<u8>, OwnedValue>,
    bytes: usize,
    encoded: Vec<u8>,
}

impl Distinct {
    pub fn new(path: &str, collator: &Collator) -> Distinct {
        Distinct {
            collator: collator.clone(),
            path: Path::new(path),
            found: BTreeMap::new(),
            bytes: 0,
            encoded: Vec::new(),
        }
    }

    /// Adds the values of a document.
    ///
    /// # Errors
    /// 17217 if there are too many.
    pub fn add(&mut self, doc: &Doc) -> Result<()> {
        let Distinct {
            path,
            collator,
            found,
            bytes,
            encoded,
        } = self;
        distinct_values(doc, path, |value: Value<'_>| {
            encoded.clear();
            collator.encode(&value, encoded);
            if !found.contains_key(encoded.as_slice()) {
                *bytes += value.len_bytes() + 8;
                found.insert(encoded.clone(), value.to_owned());
            }
        });
        if *bytes > MAX_DOCUMENT_BYTES - REPLY_BYTES {
            return Err(command(
                ErrorCode::Location(17217),
                "distinct too big, 16mb cap",
            ));
        }
        Ok(())
    }

    pub fn into_array(self) -> ArrayBuf {
        let mut array = ArrayBuf::new();
        for value in self.found.values() {
            array.push_value(&value.as_value());
        }
        array
    }
}
