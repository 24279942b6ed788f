//! An embedded, ordered, transactional byte store whose trees are Fractal Trees (B-epsilon trees).
//!
//! Writes are messages. A commit appends one frame to the log and inserts its messages into a memtable. Full memtables
//! are flushed to the trees in the background, where messages move down in batches, so that a
//! random insert costs a fraction of a sequential write. Readers see snapshots and block no writer.
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

mod activity;
mod background;
mod backup;
mod block;
mod block_check;
mod bounds;
mod buffers;
mod bulk;
mod bytes;
mod cache;
mod checkpoint;
mod commit;
mod compress;
mod conflict_hold;
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
mod fail_stop;
mod filter;
mod flush_pause;
mod flush_scope;
mod flusher;
mod format_version;
mod free_map;
mod free_ranges;
#[doc(hidden)]
pub mod fuzzing;
mod idle_compaction;
mod inspect;
mod intents;
mod log;
mod lost_page;
mod low_space;
mod maintenance;
mod manifest;
mod member;
mod memtable;
mod memtable_flush;
mod merge;
mod merger;
mod metadata;
mod node;
mod node_memory;
mod options;
mod orphans;
mod page;
mod publisher;
mod random_keys;
mod range;
mod readers;
mod recovery;
mod reencryption;
mod restore;
mod retained;
mod run;
mod run_index;
mod salvage;
mod seam;
mod snapshot;
mod space;
mod split;
mod store;
mod sweep;
mod sync;
mod template;
mod transaction;
mod tree_compaction;
mod verify;
mod version;
mod vote;
#[cfg(test)]
mod waiting;
mod worker_pool;
mod write_set;
mod write_throttle;

pub use backup::BackupReport;
pub use bulk::{BulkLoader, Duplicates, Watcher};
pub use conflict_hold::{ConflictHold, Moment};
pub use copy::{CheckpointCopy, ExtentId};
pub use cursor::Cursor;
pub use damage::{Activity, ActivityEvent, Damage, DamagePlace, EventListener, LogCut, NoListener};
pub use data_file::DATA_FILE;
pub use disk_space::{DiskSpaceStats, default_reserve};
#[doc(hidden)]
pub use fail_stop::simulate_fail_stops;
pub use flush_pause::FlushPause;
pub use format_version::{FormatVersion, format_version};
pub use frond_kv::{
    Committed, Compression, Direction, Durability, Error, IdentityHasher, Interrupt, KEY_BYTES_MAX,
    Malformed, MemoryBudget, MemoryUse, MergeOperator, NoMerge, Reservation, Result, Stamps,
    TreeId, TreeOptions, TreeStats, VALUE_BYTES_MAX, WRITE_SET_BYTES_MAX, Waits, key_hash,
};
pub use inspect::{Problem, ProblemKind, Progress};
pub use log::{LogPiece, LogTail, RestorePoint, encrypt_log, groups_after};
pub use options::{LogRecovery, Options};
pub use reencryption::Reencryption;
pub use restore::{Restored, finish_restore, log_file_name};
pub use salvage::{Lost, SalvageReport};
pub use snapshot::{Snapshot, ValueRef};
pub use space::SpaceStats;
pub use store::{Store, StoreStats};
pub use transaction::Transaction;
pub use verify::VerifyReport;
pub use write_set::WriteSet;

pub(crate) use frond_kv::Kind;
