//! The seam between the store and the engines below it: ordered trees of bytes, snapshots, atomic write sets, conflicts.
//!
//! An engine implements [`Engine`] and its three companions. Everything else here is a type that all engines share, so that a
//! write set, an error or a reservation of memory is the same whichever engine gets it.

mod budget;
mod commit;
mod direction;
mod engine;
mod error;
mod identity_hasher;
mod interrupt;
mod kind;
mod member_log;
mod merge;
pub mod operation;
mod operations;
mod options;
mod tree_id;
mod tree_stats;
mod write_set;

pub use budget::{MemoryBudget, MemoryUse, Reservation};
pub use commit::{Committed, Durability};
pub use direction::Direction;
pub use engine::{Cursor, Engine, Snapshot, Transaction};
pub use error::{CLOSE_CALLED, Error, PANICKED, Result};
pub use identity_hasher::IdentityHasher;
pub use interrupt::{Interrupt, Wait, WaitFor, Waits};
pub use kind::Kind;
pub use member_log::{ApplyListener, Done, EntryId, LogEntry, LogState, MemberLog};
pub use merge::{Malformed, MergeOperator, NoMerge};
pub use operations::{Guard, Operations, key_hash, range_delete_bytes};
pub use options::{
    Compression, KEY_BYTES_MAX, Stamps, TreeOptions, VALUE_BYTES_MAX, WRITE_SET_BYTES_MAX,
};
pub use tree_id::TreeId;
pub use tree_stats::TreeStats;
pub use write_set::WriteSet;
