//! The oplog: what was written, in the order of the commits.
//!
//! It lies in a tree of its own. The key of an entry is its timestamp, which the engine gives out in the commit that stores
//! the entry together with the documents it tells of. So a snapshot has all entries up to its last one, and the documents
//! as of that one.

pub mod diff;
pub mod entry;
pub mod readers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use frond_bson::{Doc, Timestamp, doc};
use parking_lot::Mutex;

use crate::error::{Result, corrupt};
use crate::keyspace::{CATALOG_TREE, Engine, TreeId};
use crate::merge::Counts;
use readers::Readers;

/// The value of a tree's number without a tree. Tree 0 is that of the catalog.
const NONE: u32 = 0;

/// How much the oplog keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OplogSettings {
    /// Beyond this size the oldest entries are removed.
    pub bytes_max: u64,
    /// Entries that are younger are kept in any case.
    pub min_retention_hours: f64,
}

impl OplogSettings {
    /// The smallest size that can be set, as in MongoDB.
    pub const BYTES_MIN: u64 = 990 << 20;
}

/// The oplog of a store, on or off.
pub struct Oplog {
    /// The tree of the entries, [`NONE`] while it is off.
    tree: AtomicU32,
    /// The tree of the documents before their changes.
    pre_images: AtomicU32,
    /// The timestamps of the first and of the last entry.
    first: AtomicU64,
    last: AtomicU64,
    settings: Mutex<OplogSettings>,
    readers: Arc<Readers>,
}

/// The catalog's entry of the oplog.
struct Stored {
    tree: TreeId,
    pre_images: TreeId,
    settings: OplogSettings,
}

impl Stored {
    fn read(entry: &Doc) -> Option<Stored> {
        let tree = |name| u32::try_from(entry.get_i64(name)?).ok().map(TreeId);
        Some(Stored {
            tree: tree("tree")?,
            pre_images: tree("preImages")?,
            settings: OplogSettings {
                bytes_max: u64::try_from(entry.get_i64("bytesMax")?).ok()?,
                min_retention_hours: entry.get_f64("minRetentionHours")?,
            },
        })
    }
}

impl Oplog {
    /// The key of its entry in the catalog tree.
    pub(crate) const KEY: &[u8] = &[9];

    /// The oplog of an engine, as it was left.
    ///
    /// # Errors
    /// `DataCorruptionDetected` (301), errors of the engine.
    pub(crate) fn open(engine: &Engine) -> Result<Oplog> {
        let stored = match engine.has_tree(CATALOG_TREE) {
            true => engine.snapshot().get(CATALOG_TREE, Oplog::KEY)?,
            false => None,
        };
        let wrong = || corrupt("the catalog entry of the oplog");
        let stored = match stored {
            None => None,
            Some(entry) => {
                let entry = Doc::validate(&entry).map_err(|_| wrong())?;
                Some(Stored::read(entry).ok_or_else(wrong)?)
            }
        };
        let settings = stored.as_ref().map(|stored| stored.settings);
        let oplog = Oplog {
            tree: AtomicU32::new(NONE),
            pre_images: AtomicU32::new(NONE),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            settings: Mutex::new(settings.unwrap_or(OplogSettings {
                bytes_max: OplogSettings::BYTES_MIN,
                min_retention_hours: 0.0,
            })),
            readers: Arc::default(),
        };
        if let Some(stored) = stored {
            oplog
                .pre_images
                .store(stored.pre_images.0, Ordering::Release);
            oplog.tree.store(stored.tree.0, Ordering::Release);
        }
        Ok(oplog)
    }

    /// The tree of the entries; `None` while it is off.
    pub fn tree(&self) -> Option<TreeId> {
        match self.tree.load(Ordering::Acquire) {
            NONE => None,
            tree => Some(TreeId(tree)),
        }
    }

    /// Whether writes have entries.
    pub fn is_on(&self) -> bool {
        self.tree().is_some()
    }

    /// The tree of the pre-images; `None` while the oplog is off.
    pub fn pre_images(&self) -> Option<TreeId> {
        self.tree()?;
        Some(TreeId(self.pre_images.load(Ordering::Acquire)))
    }

    /// The timestamp of the oldest entry; the null timestamp while the oplog is off.
    pub fn first(&self) -> Timestamp {
        Timestamp::from_u64(self.first.load(Ordering::Acquire))
    }

    /// The timestamp of the newest entry that was committed.
    pub fn last(&self) -> Timestamp {
        Timestamp::from_u64(self.last.load(Ordering::Acquire))
    }

    /// The timestamp up to which entries are durable, and in every snapshot taken from now on. No entry up to it comes later.
    pub fn durable(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// The number of entries and their bytes, about.
    pub fn counts(&self) -> Counts {
        let has_entries = i64::from(self.is_on() && self.last() > Timestamp::default());
        Counts {
            documents: has_entries,
            bytes: 0,
        }
    }

    /// Who waits for entries. Each commit with entries tells it of them, and the engine of what is durable.
    pub fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// How much is kept.
    pub fn settings(&self) -> OplogSettings {
        *self.settings.lock()
    }
}

impl std::fmt::Debug for Oplog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = doc! {"first": self.first(), "last": self.last()};
        write!(f, "Oplog{shown:?}")
    }
}
