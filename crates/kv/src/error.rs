//! The errors of an engine.

use std::fmt;
use std::io;

use crate::TreeId;

/// The text of [`Error::Internal`] after a panic in background work.
pub const PANICKED: &str =
    "an internal error interrupted it; the panic message is in the log or on stderr";

/// At most this many bytes of a key are shown in a message.
const KEY_BYTES_SHOWN: usize = 64;

/// A failure of an engine.
#[derive(Debug)]
pub enum Error {
    /// The operating system refused an operation.
    Io {
        /// The step that failed.
        context: String,
        source: io::Error,
    },
    /// Stored bytes have a wrong checksum or a wrong structure.
    Corrupt {
        /// The file that holds them.
        file: String,
        /// Where in the file, in bytes.
        offset: u64,
        what: &'static str,
    },
    /// A stored update message, or the value that it applies to, cannot be read by the merge operator. A put or a delete of
    /// the key replaces it.
    CorruptMessage {
        /// The tree of the key.
        tree: TreeId,
        key: Vec<u8>,
        what: &'static str,
    },
    /// The operating system could not read stored bytes.
    Unreadable {
        /// The file that holds them.
        file: String,
        /// Where in the file, in bytes.
        offset: u64,
        /// The size of the allocation that failed.
        bytes: usize,
        source: io::Error,
    },
    /// Another commit changed a guarded key after the write set's snapshot, or an open transaction has staged a write to it.
    Conflict {
        /// The tree of the key.
        tree: TreeId,
        key: Vec<u8>,
        /// Whether an open transaction holds the key; [`crate::Engine::await_transaction`] waits for its end.
        held: bool,
    },
    /// The tree does not exist (any more).
    UnknownTree(TreeId),
    /// The tree does not wait for a bulk load: it was not created for one, or is loaded already.
    NotLoading(TreeId),
    /// A bulk load had a key twice in a tree whose policy forbids that.
    Duplicate {
        /// The tree of the key.
        tree: TreeId,
        key: Vec<u8>,
        /// Two of its values, the older one first.
        values: Box<[Vec<u8>; 2]>,
    },
    /// A key, a value or a write set is larger than the engine takes.
    TooLarge {
        what: &'static str,
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The memory budget has no room for this.
    OutOfMemory {
        /// The purpose of the memory.
        what: &'static str,
        /// The bytes that it needs in all.
        bytes: usize,
    },
    /// The engine has no stamps reserved for the write set. Nothing is stored.
    NoStamp,
    /// The log from this position on is not there any more: the store has deleted it, or a reader held more of it than
    /// it may, or the disk was nearly full, or a crash lost it before it was durable.
    LogGone { position: u64 },
    /// An option has a value outside its bounds.
    InvalidOption(String),
    /// The log cannot be written now, or the memtables are full and cannot be flushed. Nothing that was acknowledged is
    /// lost; the store retries in the background, and commits succeed again by themselves. The commit that got this error
    /// has not taken place, with one exception: if it waits for a sync of the log, it may be visible already, and
    /// becomes durable when the log can be written again.
    Stalled {
        /// Whether the disk is full; otherwise files cannot be opened, read or written.
        disk_full: bool,
        reason: String,
    },
    /// The operation around a commit was interrupted while the commit had to wait; the commit has not taken place.
    Interrupted {
        /// Whether its time was over; otherwise it was killed.
        timed_out: bool,
    },
    /// The servers that hold the data cannot be reached, or have no leader for now. Nothing is stored. Only an engine whose data
    /// is elsewhere has this error.
    Unavailable(String),
    /// The old versions that a snapshot sees may be deleted. Only an engine whose data is elsewhere has this error.
    SnapshotLost {
        /// The time in milliseconds from the snapshot to the first one whose versions are all there.
        behind_ms: u64,
    },
    /// The servers that hold the data did not say whether a commit has taken place. Only an engine whose data is elsewhere
    /// has this error.
    OutcomeUnknown(String),
    /// The engine cannot do this.
    Unsupported(&'static str),
    /// A panic interrupted background work, which had changed nothing yet; it is repeated.
    Internal(&'static str),
    /// A commit of a member of a replica set that does not lead it. Nothing is stored.
    NotLeading,
    /// The trees have commits that the replica set has replaced, so the store has to be opened again, without them.
    MustReopen,
    /// One operation cannot be done or continued: a copy, a load, or a cursor that had an error before. The store works.
    Failed(String),
    /// The store was closed, or stopped after a background failure that this text names.
    Closed(String),
}

/// The text of [`Error::Closed`] after a close by the caller.
pub const CLOSE_CALLED: &str = "close was called";

/// The result of an engine operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A key that a bulk load has had twice, with both values.
    pub fn duplicate(tree: TreeId, key: &[u8], older: Vec<u8>, newer: Vec<u8>) -> Error {
        Error::Duplicate {
            tree,
            key: key.to_vec(),
            values: Box::new([older, newer]),
        }
    }

    /// Whether the store was closed by its caller, and did not stop after a failure.
    pub fn is_close(&self) -> bool {
        matches!(self, Error::Closed(text) if text == CLOSE_CALLED)
    }

    /// [`Error::Failed`] with this text.
    pub fn failed(what: &str) -> Error {
        Error::Failed(what.to_owned())
    }

    /// Makes [`Error::Io`] of what the system says, for `map_err`; `context` names what was being done.
    pub fn io(context: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let context = context.into();
        move |source| Error::Io { context, source }
    }

    /// Copies the error for another caller that waits for the same result.
    pub fn repeated(&self) -> Error {
        match self {
            Error::Corrupt { file, offset, what } => Error::Corrupt {
                file: file.clone(),
                offset: *offset,
                what,
            },
            Error::Unreadable {
                file,
                offset,
                bytes,
                source,
            } => Error::Unreadable {
                file: file.clone(),
                offset: *offset,
                bytes: *bytes,
                source: match source.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(source.kind(), source.to_string()),
                },
            },
            Error::Closed(text) => Error::Closed(text.clone()),
            other => Error::Failed(other.to_string()),
        }
    }

    /// Whether stored data is damaged or cannot be read. Such an error concerns some keys of one tree; the rest of the
    /// store works.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Error::Corrupt { .. } | Error::CorruptMessage { .. } | Error::Unreadable { .. }
        )
    }

    /// Whether a write failed that may succeed at another place.
    pub fn is_bad_place(&self) -> bool {
        matches!(self, Error::Io { .. }) && !self.is_disk_full()
    }

    /// Whether the error means that the disk is full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Error::Io { source, .. } => is_disk_full(source),
            Error::Stalled { disk_full, .. } => *disk_full,
            _ => false,
        }
    }

    /// Whether an operation failed for lack of space or of file handles, and may succeed later.
    pub fn is_passing(&self) -> bool {
        /// `ENFILE` and `EMFILE`.
        const NO_HANDLES: [i32; 2] = [23, 24];
        let has_no_handle = matches!(self, Error::Io { source, .. }
            if source.raw_os_error().is_some_and(|code| NO_HANDLES.contains(&code)));
        self.is_disk_full() || has_no_handle
    }
}

/// Whether an operation failed for lack of space, and may succeed later.
fn is_disk_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { context, source } => write!(f, "{context}: {source}"),
            Error::Corrupt { file, offset, what } => {
                write!(f, "{file} is damaged at byte {offset}: {what}")
            }
            Error::CorruptMessage { tree, key, what } => {
                write!(
                    f,
                    "the messages of a key of tree {} are damaged: {what}; the key is 0x",
                    tree.0
                )?;
                let shown = &key[..key.len().min(KEY_BYTES_SHOWN)];
                shown.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str(if shown.len() < key.len() { "..." } else { "" })
            }
            Error::Unreadable {
                file,
                offset,
                bytes,
                source,
            } => write!(f, "reading {bytes} bytes of {file} at {offset}: {source}"),
            Error::Conflict {
                tree, held: true, ..
            } => write!(
                f,
                "a key of tree {} was written by another transaction, which is open",
                tree.0
            ),
            Error::Conflict { tree, .. } => {
                write!(f, "a key of tree {} was changed by another commit", tree.0)
            }
            Error::UnknownTree(tree) => write!(f, "tree {} does not exist", tree.0),
            Error::NotLoading(tree) => {
                write!(f, "tree {} does not wait for a bulk loader", tree.0)
            }
            Error::Duplicate { tree, .. } => {
                write!(f, "a key of tree {} was loaded twice", tree.0)
            }
            Error::TooLarge { what, bytes, limit } => {
                write!(f, "a {what} of {bytes} bytes is over the limit of {limit}")
            }
            Error::OutOfMemory { what, bytes } => write!(
                f,
                "there is not enough memory left for a {what} of {bytes} bytes; try again when fewer operations run, or \
                 with less"
            ),
            Error::NoStamp => f.write_str("no stamps are reserved for the write set"),
            Error::LogGone { position } => write!(
                f,
                "the log is gone from position {position} on: it was deleted, a reader of the log kept more of it than \
                 it may, or a crash lost it before it was durable"
            ),
            Error::InvalidOption(text) => f.write_str(text),
            Error::Stalled {
                disk_full: true,
                reason,
            } => write!(
                f,
                "the disk is full: {reason}. Free some of it, or delete data; writes are accepted again as soon as \
                 there is room"
            ),
            Error::Stalled { reason, .. } => {
                write!(f, "the store takes no writes for now: {reason}")
            }
            Error::Interrupted { timed_out: true } => f.write_str("operation exceeded time limit"),
            Error::Interrupted { timed_out: false } => f.write_str("operation was interrupted"),
            Error::Unavailable(text) => write!(f, "the storage cluster is not available: {text}"),
            Error::SnapshotLost { behind_ms } => write!(
                f,
                "the snapshot of this operation is gone: it is {behind_ms} ms older than what the storage cluster still keeps, because \
                 another user of the cluster has moved its safepoint for garbage collection; run the operation again"
            ),
            Error::OutcomeUnknown(text) => {
                write!(f, "whether the commit has taken place is not known: {text}")
            }
            Error::Unsupported(text) | Error::Internal(text) => f.write_str(text),
            Error::NotLeading => f.write_str("this member of the replica set does not take writes"),
            Error::MustReopen => f.write_str(
                "the store has commits that the replica set has replaced, and must be opened again",
            ),
            Error::Failed(text) => f.write_str(text),
            Error::Closed(text) => write!(f, "the store is closed: {text}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } | Error::Unreadable { source, .. } => Some(source),
            _ => None,
        }
    }
}
