//! An embedded, ordered, transactional byte store whose trees are Fractal Trees (B-epsilon trees).
//!
//! Writes are messages. A commit appends one frame to the log and inserts its messages into a memtable. Full memtables
//! are flushed to the trees in the background, where messages move down in batches, so that a
//! random insert costs a fraction of a sequential write. Readers see snapshots and block nobody.
//!
//! ```
//! use frond_tree::{Direction, Durability, Options, Store, TreeOptions, WriteSet};
//! use std::ops::Bound::Unbounded;
//!
//! # fn main() -> frond_tree::Result<()> {
//! # let directory = tempfile::tempdir().expect("a directory");
//! let store = Store::open(Options::new(directory.path()))?;
//! let tree = store.allocate_tree();
//! let mut set = WriteSet::new();
//! set.create_tree(tree, &TreeOptions::default());
//! set.put(tree, b"leaf", b"green");
//! store.commit(set, Durability::Synced)?;
//!
//! let snapshot = store.snapshot();
//! assert_eq!(snapshot.get(tree, b"leaf")?.as_deref(), Some(&b"green"[..]));
//! let mut cursor = snapshot.cursor(tree, Unbounded, Unbounded, Direction::Forward)?;
//! assert_eq!(cursor.next()?, Some((&b"leaf"[..], &b"green"[..])));
//! # Ok(())
//! # }
//! ```

mod background;
mod backup;
mod block_check;
mod bounds;
mod budget;
mod buffers;
mod bulk;
mod bytes;
mod cache;
mod checkpoint;
mod commit;
mod compress;
mod conflicts;
mod copy;
mod cursor;
mod damage;
mod data_file;
mod detached;
pub mod disk;
mod disk_space;
mod durable_stamp;
mod engine;
mod error;
mod fail_stop;
mod filter;
mod flush_pause;
mod flusher;
mod foreign;
mod format_version;
mod free_map;
mod free_ranges;
#[doc(hidden)]
pub mod fuzzing;
mod hold;
mod identity_hasher;
mod idle_compaction;
mod inspect;
mod intents;
mod interrupt;
mod log;
mod lost_page;
mod low_space;
mod manifest;
mod memtable;
mod memtable_flush;
mod merge;
mod merger;
mod message;
mod metadata;
mod node;
mod node_memory;
mod operation;
mod options;
mod orphans;
mod page;
mod publisher;
mod range;
mod recovery;
mod restore;
mod retained;
mod run;
mod run_index;
mod salvage;
mod snapshot;
mod space;
mod split;
mod store;
mod sweep;
mod sync;
mod team;
mod template;
mod transaction;
mod tree_compaction;
mod tree_id;
mod upkeep;
mod verify;
mod version;
#[cfg(test)]
mod waiting;
mod worker_pool;
mod write_set;
mod write_throttle;

pub use backup::BackupReport;
pub use budget::{MemoryBudget, MemoryUse, Reservation};
pub use bulk::{BulkLoader, Duplicates, Watcher};
pub use commit::{Committed, Durability};
pub use compress::Compression;
pub use copy::{CheckpointCopy, ExtentId};
pub use cursor::Cursor;
pub use damage::{Damage, DamagePlace, EventListener, LogCut, NoListener};
pub use data_file::DATA_FILE;
pub use disk_space::{DiskSpaceStats, default_reserve};
pub use error::{Error, Result};
#[doc(hidden)]
pub use fail_stop::simulate_fail_stops;
pub use flush_pause::FlushPause;
pub use foreign::WriteOperation;
pub use format_version::{FormatVersion, format_version};
pub use hold::ConflictHold;
pub use identity_hasher::IdentityHasher;
pub use inspect::{Problem, ProblemKind, Progress};
pub use interrupt::{Interrupt, Wait, Waits};
pub use log::{LogPiece, LogTail, RestorePoint, groups_after};
pub use merge::{Malformed, MergeOperator, NoMerge};
pub use merger::Direction;
pub use node::TreeStats;
pub use options::{
    KEY_BYTES_MAX, LogRecovery, Options, Stamps, TreeOptions, VALUE_BYTES_MAX, WRITE_SET_BYTES_MAX,
};
pub use restore::{Restored, finish_restore, log_file_name};
pub use salvage::{Lost, SalvageReport};
pub use snapshot::{Snapshot, ValueRef};
pub use space::SpaceStats;
pub use store::{Store, StoreStats};
pub use transaction::Transaction;
pub use tree_id::TreeId;
pub use verify::VerifyReport;
pub use write_set::{WriteSet, key_hash};

pub(crate) use memtable::Memtable;
pub(crate) use message::Kind;
