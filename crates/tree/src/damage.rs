//! The damaged blocks that an open store has met.
//!
//! A damaged block concerns some keys of one tree. Reads that need it fail, flushes keep the messages for it above it,
//! and everything else goes on. The registry lists such blocks until their extents are freed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::{Error, TreeId};

/// More blocks than this are counted, but not listed.
const LISTED_MAX: usize = 4096;

/// A block of a store that is damaged, or that the system cannot read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The tree that it belongs to, if that is known.
    pub tree: Option<TreeId>,
    /// The file.
    pub file: String,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// The error that a read of the block gets.
    pub what: String,
    /// When this process met it first.
    pub found: SystemTime,
}

impl Damage {
    /// The block that an error names; `None` if it is not one of damage.
    pub(crate) fn new(tree: Option<TreeId>, error: &Error) -> Option<Damage> {
        let (file, offset) = match error {
            Error::Corrupt { file, offset, .. } | Error::Unreadable { file, offset, .. } => {
                (file.clone(), *offset)
            }
            _ => return None,
        };
        Some(Damage {
            tree,
            file,
            offset,
            what: error.to_string(),
            found: SystemTime::now(),
        })
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match self.tree {
            Some(tree) => write!(f, " (tree {})", tree.0),
            None => Ok(()),
        }
    }
}

/// Is told about events in a store. The methods are called by the thread that meets the event, so they must be quick.
pub trait EventListener: Send + Sync {
    /// A damaged block was met for the first time since the store was opened.
    fn damage_found(&self, _damage: &Damage) {}
}

/// A listener that ignores all events.
pub struct NoListener;

impl EventListener for NoListener {}

/// The damaged blocks that were met.
pub(crate) struct DamageRegistry {
    listener: Arc<dyn EventListener>,
    /// By file and offset.
    blocks: Mutex<BTreeMap<(String, u64), Damage>>,
}

impl DamageRegistry {
    pub(crate) fn new(listener: Arc<dyn EventListener>) -> DamageRegistry {
        DamageRegistry {
            listener,
            blocks: Mutex::default(),
        }
    }

    /// Records the block that an error names, if the error is one of damage.
    pub(crate) fn note(&self, tree: Option<TreeId>, error: &Error) {
        let Some(damage) = Damage::new(tree, error) else {
            return;
        };
        let key = (damage.file.clone(), damage.offset);
        let mut blocks = self.blocks.lock();
        if blocks.len() >= LISTED_MAX || blocks.contains_key(&key) {
            return;
        }
        blocks.insert(key, damage.clone());
        drop(blocks);
        self.listener.damage_found(&damage);
    }

    /// The blocks, by file and offset.
    pub(crate) fn list(&self) -> Vec<Damage> {
        self.blocks.lock().values().cloned().collect()
    }

    /// Forgets blocks of `file` that are not in use any more.
    pub(crate) fn forget_unused(&self, file: &str, is_used: impl Fn(u64) -> bool) {
        let mut blocks = self.blocks.lock();
        blocks.retain(|(in_file, offset), _| in_file != file || is_used(*offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counter(Mutex<Vec<u64>>);

    impl EventListener for Counter {
        fn damage_found(&self, damage: &Damage) {
            self.0.lock().push(damage.offset);
        }
    }

    fn corrupt(offset: u64) -> Error {
        Error::Corrupt {
            file: "data.frond".to_owned(),
            offset,
            what: "the checksum of a block does not match",
        }
    }

    #[test]
    fn each_block_is_noted_once_until_it_is_freed() {
        let counter = Arc::new(Counter(Mutex::default()));
        let registry = DamageRegistry::new(counter.clone());
        for offset in [8192, 4096, 8192] {
            registry.note(Some(TreeId(3)), &corrupt(offset));
        }
        registry.note(None, &Error::UnknownTree(TreeId(1)));
        let listed: Vec<u64> = registry.list().iter().map(|damage| damage.offset).collect();
        assert_eq!(listed, [4096, 8192]);
        assert_eq!(*counter.0.lock(), [8192, 4096]);
        registry.forget_unused("data.frond", |offset| offset == 8192);
        registry.forget_unused("another file", |_| false);
        assert_eq!(registry.list().len(), 1);
    }
}
