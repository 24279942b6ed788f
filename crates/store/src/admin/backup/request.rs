//! The options of `$backupStream`.

use std::collections::HashSet;

use frond_bson::{Doc, Value};
use frond_error::{Error, ErrorCode};

use frond_storage::error::Result;
use frond_storage::keyspace::ExtentId;

/// Bytes of an extent in a list.
pub const EXTENT_BYTES: usize = 24;

/// The options of a stream.
#[derive(Clone, Debug, Default)]
pub struct BackupRequest {
    /// Extents that the client has, and their store. If it is another store, they mean nothing.
    pub known: Option<([u8; 16], HashSet<ExtentId>)>,
    /// The most bytes of the data file per second; 0 is no limit.
    pub bytes_per_second: u64,
    /// Whether the stream goes on with the log as it grows.
    pub follows: bool,
    /// Whether there is only the log, no copy.
    pub is_log_only: bool,
    /// The first position of the log, if there is no copy; its end by default.
    pub from_position: Option<u64>,
}

impl BackupRequest {
    /// Reads the options.
    ///
    /// # Errors
    /// `TypeMismatch` (14), `BadValue` (2), `IDLUnknownField` (40415).
    pub fn parse(options: &Doc) -> Result<BackupRequest> {
        let mut request = BackupRequest::default();
        let (mut store, mut known) = (None, None);
        for (name, value) in options {
            match (name, value) {
                ("known", Value::Binary { bytes, .. }) => known = Some(unpack(bytes)?),
                ("storeId", Value::Binary { bytes, .. }) => {
                    let id = <[u8; 16]>::try_from(bytes);
                    store = Some(id.map_err(|_| bad("'storeId' must have 16 bytes".to_owned()))?);
                }
                ("bytesPerSecond", value) if value.is_number() => {
                    request.bytes_per_second = number(name, &value)?;
                }
                ("fromPosition", value) if value.is_number() => {
                    request.from_position = Some(number(name, &value)?);
                }
                ("log", Value::String("once")) => request.follows = false,
                ("log", Value::String("follow")) => request.follows = true,
                ("log", Value::String(_)) => {
                    return Err(bad("'log' must be \"once\" or \"follow\"".to_owned()));
                }
                ("logOnly", Value::Bool(is)) => request.is_log_only = is,
                (
                    "known" | "storeId" | "bytesPerSecond" | "fromPosition" | "log" | "logOnly",
                    _,
                ) => {
                    let text = format!(
                        "BSON field '$backupStream.{name}' is the wrong type '{}'",
                        value.type_name()
                    );
                    return Err(Error::new(ErrorCode::TypeMismatch, text).into());
                }
                _ => {
                    let text = format!("BSON field '$backupStream.{name}' is an unknown field.");
                    return Err(Error::location(40415, text).into());
                }
            }
        }
        request.known = match (store, known) {
            (Some(store), Some(known)) => Some((store, known)),
            (None, Some(_)) => return Err(bad("'known' needs 'storeId'".to_owned())),
            (_, None) => None,
        };
        if request.from_position.is_some() && !request.is_log_only {
            return Err(bad(
                "'fromPosition' needs 'logOnly: true': the log of a copy begins where the copy ends".to_owned(),
            ));
        }
        if request.known.is_some() && request.is_log_only {
            return Err(bad("'known' cannot be used with 'logOnly'".to_owned()));
        }
        Ok(request)
    }
}

fn bad(text: String) -> crate::Error {
    Error::bad_value(text).into()
}

fn number(name: &str, value: &Value<'_>) -> Result<u64> {
    let number = value.as_i64_lossless().and_then(|n| u64::try_from(n).ok());
    number.ok_or_else(|| bad(format!("'{name}' must be an integer that is not negative")))
}

fn unpack(bytes: &[u8]) -> Result<HashSet<ExtentId>> {
    let (packed, rest) = bytes.as_chunks::<EXTENT_BYTES>();
    if !rest.is_empty() {
        return Err(bad(format!(
            "'known' must have {EXTENT_BYTES} bytes per extent"
        )));
    }
    let word = |packed: &[u8; EXTENT_BYTES], at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&packed[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let unpacked = packed.iter().map(|packed| ExtentId {
        offset: word(packed, 0),
        len: word(packed, 8),
        birth: word(packed, 16),
    });
    Ok(unpacked.collect())
}

/// The packed list of extents.
pub fn pack(extents: &[ExtentId]) -> Vec<u8> {
    let words = extents
        .iter()
        .flat_map(|extent| [extent.offset, extent.len, extent.birth]);
    words.flat_map(u64::to_le_bytes).collect()
}
