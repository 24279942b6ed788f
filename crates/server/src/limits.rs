//! Limits that drivers learn from `hello` and that the server keeps to.

/// The largest document that a client may store, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// The largest document of a reply, in bytes: the largest stored document and the fields around it. Clients
/// refuse larger ones.
pub const REPLY_BYTES_MAX: usize = DOCUMENT_BYTES_MAX + (16 << 10);

/// Statements in one write command.
pub const WRITE_BATCH_MAX: usize = 100_000;

/// The longest message of a client that is not logged in, where logins are required.
pub const MESSAGE_BYTES_BEFORE_LOGIN: usize = 48 << 10;

/// Bytes of a line in the log of the system.
pub const SYSTEM_LOG_BYTES_MAX: usize = 8 << 10;
