//! The engines below the store, behind one handle.
//!
//! `frond-kv` defines what an engine is. Only this folder names the crates of the engines, and everything else uses the names
//! below. There are two: Fractal Trees in files of this machine, and a TiKV cluster. The handle, a snapshot, a cursor and a
//! transaction are enums of both, so calls are resolved by a branch and never by a table of functions: the engine with files
//! still lends slices of pinned pages, and nothing is copied or boxed on the way.
//!
//! | file | idea |
//! | --- | --- |
//! | [`engine`] | the handle: snapshots, commits, trees |
//! | [`read`] | snapshots and cursors |
//! | [`write`] | write sets and transactions |
//!
//! Capabilities that only files have (checkpoints, the log, copies, damage, memtables) are methods of [`Engine::files`], those that
//! only a cluster has (leases, fences, garbage, one clock) methods of [`Engine::cluster`]. The only methods here without an effect in a cluster are
//! those that detach a snapshot from memtables, since a cluster has none.

mod engine;
mod read;
mod write;

pub use engine::Engine;
pub use frond_kv::operation::{Op, Ops};
pub use frond_kv::{
    ApplyListener, Committed, Compression, Direction, Done as EntryDone, Durability, EntryId,
    Error as EngineError, IdentityHasher, Interrupt, KEY_BYTES_MAX, Kind as MessageKind, LogEntry,
    LogState, Malformed, MemberLog, MemoryBudget, MemoryUse, MergeOperator, Reservation,
    Result as EngineResult, Stamps, TreeId, TreeOptions, TreeStats, WRITE_SET_BYTES_MAX, Wait,
    WaitFor, Waits, key_hash,
};
pub use frond_tikv::{ClusterOptions, ClusterStats, KeptVersions, Requests as ClusterRequests};
pub use frond_tree::{
    Activity, ActivityEvent, BulkLoader, Damage, DamagePlace, DiskSpaceStats as DiskSpace,
    Duplicates, EventListener, FlushPause, LogCut, LogRecovery, Moment, NoListener,
    Options as EngineOptions, Reencryption, StoreStats as EngineStats, ValueRef,
    default_reserve as default_disk_reserve, disk,
};
pub use frond_tree::{
    CheckpointCopy, DATA_FILE, ExtentId, LogTail, RestorePoint, Restored, encrypt_log,
    finish_restore, groups_after, log_file_name,
};
pub use frond_tree::{
    FormatVersion, Lost, Problem, ProblemKind, Progress, SalvageReport as EngineSalvage,
    VerifyReport as EngineReport, format_version,
};
pub use read::{Cursor, Snapshot};
pub use write::{EngineTransaction, WriteSet};

/// The engine whose trees are files of this machine.
pub type Files = frond_tree::Store;

/// The engine whose trees are in a TiKV cluster.
pub type Tikv = frond_tikv::Cluster;

/// The tree of the catalog and of the counters of all collections.
pub const CATALOG_TREE: TreeId = TreeId(0);

/// Documents written in one commit of a bulk insert, update or delete. Bounds the memory of a write
/// set and how long a snapshot is held.
pub const COMMIT_DOCUMENTS_MAX: usize = 1000;

/// Bytes written in one commit of a bulk operation, after which the next commit begins.
pub const COMMIT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Operations of one commit of a bulk operation, after which the next commit begins: others wait while it becomes visible.
pub const COMMIT_OPERATIONS_MAX: usize = 16 * 1024;

/// The first byte string above all that begin with `prefix`; `None` if there is none.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut out = prefix[..=keep].to_vec();
    out[keep] += 1;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_prefix_is_the_first_string_beyond() {
        assert_eq!(after_prefix(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(after_prefix(&[1, 0xff, 0xff]), Some(vec![2]));
        assert_eq!(after_prefix(&[0xff]), None);
        assert_eq!(after_prefix(&[]), None);
    }
}
