//! The errors of cursors that cannot be used.

use frond_error::{Error, ErrorCode};

/// The error for a cursor that another command uses.
pub fn in_use(id: i64) -> Error {
    Error::new(
        ErrorCode::CursorInUse,
        format!("cursor id {id} is already in use"),
    )
}

/// The error for a cursor that was closed because memory was scarce.
pub fn too_old(id: i64) -> Error {
    Error::new(
        ErrorCode::SnapshotTooOld,
        format!(
            "cursor id {id} was closed: it was idle while the server's memory was scarce, and what it kept could not be \
             written to disk. Run the query again, and read its results without long pauses"
        ),
    )
}

/// The error for a cursor that does not exist.
pub fn not_found(id: i64) -> Error {
    Error::new(
        ErrorCode::CursorNotFound,
        format!("cursor id {id} not found"),
    )
}
