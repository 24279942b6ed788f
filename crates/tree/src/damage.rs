//! The damage that an open store has met.
//!
//! A damaged block concerns some keys of one tree. Reads that need it fail, flushes keep the messages for it above it,
//! and everything else goes on. The registry lists such blocks until their extents are freed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::{Error, TreeId};

/// At most this many damaged blocks are remembered.
const BLOCKS_MAX: usize = 4096;
/// At most this many damaged keys are remembered.
const KEYS_MAX: usize = 256;
/// This much of a damaged key is remembered, in bytes.
const KEY_SHOWN_MAX: usize = 64;

/// The place of a damage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DamagePlace {
    /// A block of a file.
    Block {
        /// The name of the file.
        file: String,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// The messages of a key, which the merge operator cannot read. Of a long key the first 64 bytes.
    Key(Vec<u8>),
}

/// A part of a store that is damaged, or that the system cannot read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The tree that it belongs to, if that is known.
    pub tree: Option<TreeId>,
    /// The block or the key.
    pub place: DamagePlace,
    /// The error that reads get.
    pub what: String,
    /// When this process met it first.
    pub found: SystemTime,
}

impl Damage {
    /// The damage that an error names; `None` if it is not one of damage.
    pub(crate) fn new(tree: Option<TreeId>, error: &Error) -> Option<Damage> {
        let place = match error {
            Error::Corrupt { file, offset, .. } | Error::Unreadable { file, offset, .. } => {
                DamagePlace::Block {
                    file: file.clone(),
                    offset: *offset,
                }
            }
            Error::CorruptMessage { key, .. } => {
                DamagePlace::Key(key[..key.len().min(KEY_SHOWN_MAX)].to_vec())
            }
            _ => return None,
        };
        Some(Damage {
            tree,
            place,
            what: error.to_string(),
            found: SystemTime::now(),
        })
    }

    /// Offset of the block in the file; `None` for a key.
    pub fn offset(&self) -> Option<u64> {
        match self.place {
            DamagePlace::Block { offset, .. } => Some(offset),
            DamagePlace::Key(_) => None,
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match (self.tree, &self.place) {
            (Some(tree), DamagePlace::Block { .. }) => write!(f, " (tree {})", tree.0),
            _ => Ok(()),
        }
    }
}

/// A damaged log was cut, as [`crate::LogRecovery::PointInTime`] allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogCut {
    /// The damage, and where the log ends now.
    pub error: String,
    /// The files that hold what came after: moved there, or copied in the case of the file that was shortened.
    pub set_aside: Vec<String>,
}

/// Background work, or a condition of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// A memtable is flushed to the trees.
    Flush,
    /// Pending messages are moved to the leaves.
    Compaction,
    /// The trees are made durable.
    Checkpoint,
    /// Flushes fail, and until one succeeds commits that need room for a memtable are refused.
    Stall,
    /// The disk is nearly full, and commits that do not free space are refused.
    LowDisk,
}

impl Activity {
    /// The name for logs.
    pub fn name(self) -> &'static str {
        match self {
            Activity::Flush => "flush",
            Activity::Compaction => "compaction",
            Activity::Checkpoint => "checkpoint",
            Activity::Stall => "stall",
            Activity::LowDisk => "lowDisk",
        }
    }
}

/// The beginning or the end of an activity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityEvent {
    /// The activity that begins or ends.
    pub activity: Activity,
    /// The time that it took; `None` at its beginning.
    pub took: Option<Duration>,
    /// Bytes of the memtable at the beginning of a flush, of pending messages at that of a compaction, and of the room on a disk
    /// that is nearly full. At the end of work, the bytes written to the data file meanwhile. Otherwise 0.
    pub bytes: u64,
    /// The reason of a stall, and the error of work that failed.
    pub error: Option<String>,
}

/// Is notified of events in a store. The methods are called by the thread that meets the event, so they must be quick.
pub trait EventListener: Send + Sync {
    /// A damaged block or key was met for the first time since the store was opened, or its tree became known.
    fn damage_found(&self, _damage: &Damage) {}
    /// A damaged log was cut when the store was opened.
    fn log_cut(&self, _cut: &LogCut) {}
    /// An activity begins or ends. Locks of the store may be held: the listener must not call it.
    fn activity(&self, _event: &ActivityEvent) {}
}

/// A listener that ignores all events.
pub struct NoListener;

impl EventListener for NoListener {}

/// The damage that was met.
pub(crate) struct DamageRegistry {
    listener: Arc<dyn EventListener>,
    /// Blocks belong to one tree, keys are distinguished by it.
    known: Mutex<BTreeMap<(DamagePlace, Option<TreeId>), Damage>>,
}

impl DamageRegistry {
    pub(crate) fn new(listener: Arc<dyn EventListener>) -> DamageRegistry {
        DamageRegistry {
            listener,
            known: Mutex::default(),
        }
    }

    /// Records the damage that an error names, if it is one of damage.
    pub(crate) fn record(&self, tree: Option<TreeId>, error: &Error) {
        let Some(mut damage) = Damage::new(tree, error) else {
            return;
        };
        let of_key = matches!(damage.place, DamagePlace::Key(_));
        let key = (damage.place.clone(), tree.filter(|_| of_key));
        let mut known = self.known.lock();
        let is_known = match known.get(&key) {
            // The search for lost space does not know the trees of blocks.
            Some(before) => before.tree.is_some() || tree.is_none(),
            None => {
                let is_key = |place: &DamagePlace| matches!(place, DamagePlace::Key(_));
                let others = known.keys().filter(|(place, _)| is_key(place) == of_key);
                others.count() >= if of_key { KEYS_MAX } else { BLOCKS_MAX }
            }
        };
        if is_known {
            return;
        }
        if let Some(before) = known.get(&key) {
            damage.found = before.found;
        }
        known.insert(key, damage.clone());
        drop(known);
        self.listener.damage_found(&damage);
    }

    /// The damage, by file and offset.
    pub(crate) fn list(&self) -> Vec<Damage> {
        self.known.lock().values().cloned().collect()
    }

    /// Forgets blocks of a file that are not in use any more, and keys of trees that were dropped.
    pub(crate) fn forget_unused(
        &self,
        of_file: &str,
        is_used: impl Fn(u64) -> bool,
        has_tree: impl Fn(TreeId) -> bool,
    ) {
        self.known.lock().retain(|(place, tree), _| match place {
            DamagePlace::Block { file, offset } => file != of_file || is_used(*offset),
            DamagePlace::Key(_) => tree.is_none_or(&has_tree),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counter(Mutex<Vec<u64>>);

    impl EventListener for Counter {
        fn damage_found(&self, damage: &Damage) {
            self.0.lock().push(damage.offset().unwrap());
        }
    }

    fn corrupt(offset: u64) -> Error {
        Error::Corrupt {
            file: "data.frond".to_owned(),
            offset,
            what: "the checksum of a block does not match",
        }
    }

    /// The tree of a block stayed unknown if the sweep or an orphan met it first.
    #[test]
    fn the_tree_of_a_block_is_filled_in() {
        let counter = Arc::new(Counter(Mutex::default()));
        let registry = DamageRegistry::new(counter.clone());
        for tree in [None, None, Some(TreeId(3)), None, Some(TreeId(3))] {
            registry.record(tree, &corrupt(8192));
        }
        assert_eq!(registry.list().len(), 1);
        assert_eq!(registry.list()[0].tree, Some(TreeId(3)));
        assert_eq!(*counter.0.lock(), [8192, 8192]);
    }

    #[test]
    fn each_block_is_noted_once_until_it_is_freed() {
        let counter = Arc::new(Counter(Mutex::default()));
        let registry = DamageRegistry::new(counter.clone());
        for offset in [8192, 4096, 8192] {
            registry.record(Some(TreeId(3)), &corrupt(offset));
        }
        registry.record(None, &Error::UnknownTree(TreeId(1)));
        let listed: Vec<u64> = registry.list().iter().filter_map(Damage::offset).collect();
        assert_eq!(listed, [4096, 8192]);
        assert_eq!(*counter.0.lock(), [8192, 4096]);
        registry.forget_unused("data.frond", |offset| offset == 8192, |_| true);
        registry.forget_unused("another file", |_| false, |_| true);
        assert_eq!(registry.list().len(), 1);
    }

    /// Whole keys of up to 64 KiB were kept, 4096 of them, until the next restart.
    #[test]
    fn damaged_keys_are_bounded() {
        let registry = DamageRegistry::new(Arc::new(NoListener));
        let note = |tree, number: u32| {
            let mut key = number.to_be_bytes().to_vec();
            key.resize(10_000, 7);
            let what = "the messages cannot be read";
            let tree = TreeId(tree);
            registry.record(Some(tree), &Error::CorruptMessage { tree, key, what });
        };
        note(2, 1);
        (0..2000).for_each(|number| note(1, number));
        registry.record(None, &corrupt(4096));
        let listed = registry.list();
        assert_eq!(listed.len(), KEYS_MAX + 1);
        for damage in &listed {
            assert!(damage.what.len() < 300, "{}", damage.what);
            if let DamagePlace::Key(key) = &damage.place {
                assert_eq!(key.len(), KEY_SHOWN_MAX);
            }
        }
        registry.forget_unused("data.frond", |_| true, |tree| tree == TreeId(2));
        assert_eq!(registry.list().len(), 2);
    }
}
