//! Settings of a store, with their bounds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::{Disk, FsDisk};
use crate::{Error, EventListener, MergeOperator, NoListener, NoMerge, Result, Stamps};

const MIB: usize = 1 << 20;

/// The treatment of a log that must be replayed and is damaged, or cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogRecovery {
    /// The store is not opened: the commits after the damage were acknowledged, and may be needed.
    #[default]
    Complete,
    /// The log ends at the damage, and later commits are lost. The files that hold them are kept under other names.
    PointInTime,
}

/// Settings of a store.
#[derive(Clone)]
pub struct Options {
    /// Where the store's files are.
    pub disk: Arc<dyn Disk>,
    /// The memory budget in bytes: memtables, pages, filters and nodes under construction.
    pub cache_bytes: usize,
    /// The memory in bytes, beyond `cache_bytes`, that callers may reserve for what clients make grow
    /// ([`crate::Store::memory`]); `None` takes as much as `cache_bytes`.
    pub client_bytes: Option<usize>,
    /// Size of a memtable in bytes; `None` takes a tenth of the budget, at most 64 MiB, and up to a sixth, at most 128 MiB,
    /// while commits come fast.
    pub memtable_bytes: Option<usize>,
    /// Keep a write-ahead log. Without it a crash loses all commits after the last checkpoint.
    pub journal: bool,
    /// The longest time an acknowledged write waits for its sync, if the disk keeps up. It is in the log's buffer meanwhile,
    /// which a crash of the process does not lose.
    pub journal_commit_interval: Duration,
    /// Most children of an internal node before it splits, 4 to 1024.
    pub fanout: usize,
    /// Background threads that flush memtables and nodes, 1 to 64.
    pub flush_threads: usize,
    /// No background threads, so that the calls of one thread alone determine what is written and when. A committer that
    /// fills a memtable flushes it and writes the checkpoint itself. The log is written with every
    /// 16th commit; it is synced by [`crate::Durability::Synced`], [`crate::Store::flush_log`] and
    /// [`crate::Store::close`] only, not at an interval. For tests that need to be deterministic; slow otherwise.
    pub inline: bool,
    /// Bytes of the file system that are kept for flushes, deletes and drops: when less is available, other commits get
    /// [`Error::Stalled`]. `None` takes a twentieth of the file system, at least 16 MiB and at most 512 MiB, but not
    /// more than an eighth of it; 0 keeps nothing. Has no effect on a disk that does not report its free space.
    pub disk_reserve_bytes: Option<u64>,
    /// A reader of the log ([`crate::LogTail`]) keeps at most so many bytes of frames, before compression, that the store does
    /// not need any more. One that falls further behind gets [`Error::LogGone`]. While the disk is nearly full it keeps nothing.
    pub log_hold_bytes: u64,
    /// The treatment of a damaged log.
    pub log_recovery: LogRecovery,
    /// The store is that of a member of a replica set ([`frond_kv::MemberLog`]): it needs the journal, replays only what the set
    /// is known to have committed, and takes no commits before this member leads.
    pub member: bool,
    /// Folds update messages into values.
    pub merge: Arc<dyn MergeOperator>,
    /// Is notified of damaged blocks.
    pub listener: Arc<dyn EventListener>,
    /// The source of stamps. Without one, commits with stamped keys are refused.
    pub stamps: Option<Arc<dyn Stamps>>,
}

impl Options {
    /// The defaults for a store in the directory `path`, with direct I/O where the file system supports it.
    pub fn new(path: impl Into<PathBuf>) -> Options {
        Options::with_disk(Arc::new(FsDisk::new(path.into(), true)))
    }

    /// The defaults on the caller's disk.
    pub fn with_disk(disk: Arc<dyn Disk>) -> Options {
        let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
        Options {
            disk,
            cache_bytes: 256 * MIB,
            client_bytes: None,
            memtable_bytes: None,
            journal: true,
            journal_commit_interval: Duration::from_millis(100),
            fanout: 16,
            flush_threads: cores.clamp(1, 8),
            inline: false,
            disk_reserve_bytes: None,
            log_hold_bytes: 16 << 30,
            log_recovery: LogRecovery::Complete,
            member: false,
            merge: Arc::new(NoMerge),
            listener: Arc::new(NoListener),
            stamps: None,
        }
    }

    /// Fails if there is a store on the disk already. `work` names what would write one: "backup" or "salvage".
    pub(crate) fn check_holds_no_store(&self, work: &str) -> Result<()> {
        let names = self.disk.list();
        let names = names.map_err(Error::io("listing the target's files"))?;
        if names.iter().any(|name| name.ends_with(".frond")) {
            let text = format!("the target of a {work} holds a store already");
            return Err(Error::InvalidOption(text));
        }
        Ok(())
    }

    /// The size of a memtable in bytes.
    pub(crate) fn memtable_size(&self) -> usize {
        self.memtable_bytes
            .unwrap_or((self.cache_bytes / 6).clamp(MIB, 128 * MIB))
    }

    /// The size in bytes of a memtable while clients need much memory.
    pub(crate) fn small_memtable_size(&self) -> usize {
        self.memtable_bytes
            .unwrap_or((self.cache_bytes / 20).clamp(MIB, 64 * MIB))
    }

    /// The size in bytes from which on a memtable that is filled slowly is full.
    pub(crate) fn slow_memtable_size(&self) -> usize {
        self.memtable_bytes
            .unwrap_or((self.cache_bytes / 10).clamp(MIB, 64 * MIB))
    }

    /// The part of the budget that is accounted for, in bytes. The rest covers the log's buffers, the codecs' tables, the
    /// buffers that writers of runs keep, and fragmentation.
    pub(crate) fn counted_bytes(&self) -> usize {
        let writers = self.flush_threads * 6 * MIB;
        let uncounted = (writers + 8 * MIB).min(self.cache_bytes / 4) + self.cache_bytes / 8;
        self.cache_bytes - uncounted
    }

    /// The memory that is kept free for writes, in bytes: the active memtable, one that is being flushed and one that waits,
    /// and for each flush thread a leaf under construction and its inputs. Memtables that are filled fast take more, from the
    /// cache.
    pub(crate) fn writers_bytes(&self) -> usize {
        let flushers = (self.flush_threads * 10 * MIB).min(self.cache_bytes / 8);
        self.slow_memtable_size() * 3 + flushers
    }

    pub(crate) fn check(&self) -> Result<()> {
        let bad = |text: String| Err(Error::InvalidOption(text));
        if self.cache_bytes < 8 * MIB {
            return bad(format!(
                "the cache is {} bytes; it must be at least 8 MiB",
                self.cache_bytes
            ));
        }
        let memtable = self.memtable_size();
        if !(16 << 10..=1 << 30).contains(&memtable) {
            return bad(format!(
                "a memtable of {memtable} bytes; it must be between 16 KiB and 1 GiB"
            ));
        }
        if !(4..=1024).contains(&self.fanout) {
            return bad(format!(
                "the fanout is {}; it must be between 4 and 1024",
                self.fanout
            ));
        }
        if !(1..=64).contains(&self.flush_threads) {
            return bad(format!(
                "{} flush threads; it must be between 1 and 64",
                self.flush_threads
            ));
        }
        if self.member && !self.journal {
            return bad("a member of a replica set needs a journal".to_owned());
        }
        let interval = self.journal_commit_interval;
        if interval.is_zero() || interval > Duration::from_secs(10) {
            return bad(format!(
                "a journal commit interval of {interval:?}; it must be 1 ms to 10 s"
            ));
        }
        Ok(())
    }
}
