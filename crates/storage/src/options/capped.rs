//! The size of a capped collection.

use frond_error::ErrorCode;

use super::read::Given;
use crate::error::{Result, command};

/// The largest size: 1 PB.
const BYTES_MAX: i64 = 1 << 50;
/// The largest number of documents.
const DOCUMENTS_MAX: i64 = 1 << 31;

/// The limits of a capped collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capped {
    /// The most bytes of documents.
    pub bytes: u64,
    /// The most documents, if limited.
    pub documents: Option<u64>,
}

/// Reads `size` or `cappedSize`: bytes.
pub(super) fn size(given: &Given<'_>) -> Result<u64> {
    let bytes = given.integer()?;
    if !(1..=BYTES_MAX).contains(&bytes) {
        return Err(command(
            ErrorCode::Location(51024),
            format!(
                "BSON field '{}' value must be {}, actual value '{bytes}'",
                given.name,
                if bytes < 1 {
                    ">= 1".to_owned()
                } else {
                    format!("<= {BYTES_MAX}")
                }
            ),
        ));
    }
    Ok(bytes.unsigned_abs())
}

/// Reads `max` or `cappedMax`: documents. Zero and negative numbers mean no limit.
pub(super) fn max(given: &Given<'_>) -> Result<Option<u64>> {
    let documents = given.integer()?;
    if documents >= DOCUMENTS_MAX {
        return Err(command(
            ErrorCode::BadValue,
            "max in a capped collection has to be < 2^31 or not set",
        ));
    }
    Ok(u64::try_from(documents).ok().filter(|most| *most > 0))
}
