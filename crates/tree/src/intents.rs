//! The guarded keys that open transactions have staged.
//!
//! A transaction holds the keys that it has written until it ends. So another one that writes such a key learns of the
//! conflict at once, and a commit outside of transactions can wait for the end instead of making the transaction fail.
//!
//! No commit that is based on a snapshot changes a held key. One without a snapshot is not refused; it is noted, and makes the
//! transaction fail. So the keys need not be looked for among the recent commits again when the transaction is committed.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, OnceLock};

use frond_kv::{IdentityHasher, Wait, WaitFor};
use parking_lot::{Condvar, Mutex};

use crate::{Result, TreeId};

/// An empty table with more room than this gives its memory back.
const ROOM_KEPT: usize = 1 << 10;

/// An open transaction, as those see it who wait for its end.
#[derive(Default)]
pub(crate) struct Holder {
    has_ended: Mutex<bool>,
    ended: Condvar,
    /// The first of its keys that a commit without a snapshot has changed meanwhile.
    overwritten: OnceLock<(TreeId, Vec<u8>)>,
}

impl Holder {
    /// Wakes all who wait.
    pub(crate) fn end(&self) {
        *self.has_ended.lock() = true;
        self.ended.notify_all();
    }

    /// Notes that a key of the transaction was changed by another commit: the transaction must not be committed.
    pub(crate) fn note_overwritten(&self, tree: TreeId, key: &[u8]) {
        let _ = self.overwritten.set((tree, key.to_vec()));
    }

    /// A key that was changed by another commit.
    pub(crate) fn overwritten(&self) -> Option<&(TreeId, Vec<u8>)> {
        self.overwritten.get()
    }

    /// Returns when the transaction has ended.
    pub(crate) fn wait(&self) -> Result<()> {
        let wait = Wait::begin(WaitFor::Transaction)?;
        let mut has_ended = self.has_ended.lock();
        while !*has_ended {
            wait.on(&self.ended, &mut has_ended)?;
        }
        Ok(())
    }
}

/// The held keys, by the hashes of their guards. E5: each has one holder.
#[derive(Default)]
pub(crate) struct Intents {
    holders: HashMap<u64, Arc<Holder>, BuildHasherDefault<IdentityHasher>>,
}

impl Intents {
    /// An upper bound of the memory of one key.
    pub(crate) const KEY_BYTES: usize = 48;

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Whether a transaction other than `own` holds the key.
    pub(crate) fn is_held(&self, hash: u64, own: Option<&Arc<Holder>>) -> bool {
        let holder = self.holders.get(&hash);
        holder.is_some_and(|holder| own.is_none_or(|own| !Arc::ptr_eq(holder, own)))
    }

    /// The transaction that holds the key.
    pub(crate) fn holder(&self, hash: u64) -> Option<&Arc<Holder>> {
        self.holders.get(&hash)
    }

    /// Gives a key that no other transaction holds to `holder`. False if it had it already.
    pub(crate) fn hold(&mut self, hash: u64, holder: &Arc<Holder>) -> bool {
        let before = self.holders.insert(hash, holder.clone());
        assert!(
            (before.as_ref()).is_none_or(|before| Arc::ptr_eq(before, holder)),
            "E5: two transactions hold a key"
        );
        before.is_none()
    }

    /// Releases a key, if `holder` has it.
    pub(crate) fn release(&mut self, hash: u64, holder: &Arc<Holder>) {
        if !self.is_held(hash, Some(holder)) {
            self.holders.remove(&hash);
            if self.holders.is_empty() && self.holders.capacity() > ROOM_KEPT {
                self.holders = HashMap::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_one_holder_until_it_releases_it() {
        let (first, second) = (Arc::default(), Arc::default());
        let mut intents = Intents::default();
        assert!(intents.hold(7, &first));
        assert!(!intents.hold(7, &first), "it has it already");
        assert!(intents.is_held(7, None) && intents.is_held(7, Some(&second)));
        assert!(!intents.is_held(7, Some(&first)) && !intents.is_held(8, None));
        intents.release(7, &second);
        assert!(intents.is_held(7, None), "it belongs to another one");
        intents.release(7, &first);
        assert!(intents.is_empty());
        for hash in 0..100_000 {
            intents.hold(hash, &second);
        }
        for hash in 0..100_000 {
            intents.release(hash, &second);
        }
        assert!(intents.is_empty() && intents.holders.capacity() <= ROOM_KEPT);
        assert_eq!(Arc::strong_count(&second), 1);
    }
}
