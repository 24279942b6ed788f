//! The copy of the primary that a standby begins with.

use std::path::Path;

use frond_client::Uri;

use super::start::StartError;
use crate::log::Log;

/// Fills an empty data directory with a copy of the primary.
///
/// # Errors
/// Errors of the connection and of the file system.
pub(super) fn fill(path: &Path, uri: &Uri, log: &Log) -> Result<(), StartError> {
    let _ = (path, uri, log);
    Err(StartError::new("not yet"))
}
