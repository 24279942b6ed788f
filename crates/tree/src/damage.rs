//! The damage that an open store has met.
//!
//! A damaged block concerns some keys of one tree. Reads that need it fail, flushes keep the messages for it above it,
//! and everything else goes on. The registry lists such blocks until their extents are freed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::{Error, TreeId};

/// At most this many damaged blocks and keys are remembered.
const LISTED_MAX: usize = 4096;

/// What is damaged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DamagePlace {
    /// A block.
    Block {
        /// The file.
        file: String,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// The messages of a key, which the merge operator cannot read.
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
            Error::CorruptMessage { key, .. } => DamagePlace::Key(key.clone()),
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

/// Is told about events in a store. The methods are called by the thread that meets the event, so they must be quick.
pub trait EventListener: Send + Sync {
    /// A damaged block or key was met for the first time since the store was opened, or its tree became known.
    fn damage_found(&self, _damage: &Damage) {}
}

/// A listener that ignores all events.
pub struct NoListener;

impl EventListener for NoListener {}

/// The damage that was met.
pub(crate) struct DamageRegistry {
    listener: Arc<dyn EventListener>,
    /// Blocks belong to one tree, keys are told apart by it.
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
    pub(crate) fn note(&self, tree: Option<TreeId>, error: &Error) {
        let Some(mut damage) = Damage::new(tree, error) else {
            return;
        };
        let of_key = matches!(damage.place, DamagePlace::Key(_));
        let key = (damage.place.clone(), tree.filter(|_| of_key));
        let mut known = self.known.lock();
        let is_known = match known.get(&key) {
            // The search for lost space does not know the trees of blocks.
            Some(before) => before.tree.is_some() || tree.is_none(),
            None => known.len() >= LISTED_MAX,
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

    /// Forgets blocks of a file that are not in use any more.
    pub(crate) fn forget_unused(&self, of_file: &str, is_used: impl Fn(u64) -> bool) {
        self.known.lock().retain(|(place, _), _| match place {
            DamagePlace::Block { file, offset } => file != of_file || is_used(*offset),
            DamagePlace::Key(_) => true,
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
            registry.note(tree, &corrupt(8192));
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
            registry.note(Some(TreeId(3)), &corrupt(offset));
        }
        registry.note(None, &Error::UnknownTree(TreeId(1)));
        let listed: Vec<u64> = registry.list().iter().filter_map(Damage::offset).collect();
        assert_eq!(listed, [4096, 8192]);
        assert_eq!(*counter.0.lock(), [8192, 4096]);
        registry.forget_unused("data.frond", |offset| offset == 8192);
        registry.forget_unused("another file", |_| false);
        assert_eq!(registry.list().len(), 1);
    }
}
