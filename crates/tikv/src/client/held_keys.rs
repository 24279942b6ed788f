//! Keys that open transactions of this server have written.
//!
//! Two transactions of one server that write the same key conflict at once, as in the embedded engine. Those of different
//! servers conflict when one of them has committed: `unchanged.rs` looks for that at each statement.

use std::collections::HashMap;
use std::sync::Arc;

use frond_kv::{Error, Result, TreeId, Wait, WaitFor};
use parking_lot::{Condvar, Mutex};

use crate::client::overlay::TreeKey;

/// A transaction, as those see it that wait for its end.
#[derive(Default)]
pub(crate) struct Holder {
    has_ended: Mutex<bool>,
    ended: Condvar,
}

impl Holder {
    fn end(&self) {
        *self.has_ended.lock() = true;
        self.ended.notify_all();
    }

    fn wait(&self) -> Result<()> {
        let mut has_ended = self.has_ended.lock();
        let wait = Wait::begin(WaitFor::Transaction)?;
        while !*has_ended {
            wait.on(&self.ended, &mut has_ended)?;
        }
        Ok(())
    }
}

/// The keys, and who holds each.
#[derive(Default)]
pub(crate) struct HeldKeys {
    keys: Mutex<HashMap<TreeKey, Arc<Holder>>>,
}

impl HeldKeys {
    /// Fails if a transaction other than `own` holds one of some keys.
    pub(crate) fn check<'a>(
        &self,
        wanted: impl Iterator<Item = (TreeId, &'a [u8])>,
        own: Option<&Arc<Holder>>,
    ) -> Result<()> {
        let keys = self.keys.lock();
        if keys.is_empty() {
            return Ok(());
        }
        for (tree, key) in wanted {
            let holder = keys.get(&(tree, key.to_vec()));
            if holder.is_some_and(|holder| own.is_none_or(|own| !Arc::ptr_eq(own, holder))) {
                return Err(Error::Conflict {
                    tree,
                    key: key.to_vec(),
                    held: true,
                });
            }
        }
        Ok(())
    }

    /// Takes some keys for a transaction: all of them, or none.
    pub(crate) fn hold(&self, wanted: Vec<TreeKey>, own: &Arc<Holder>) -> Result<()> {
        let mut keys = self.keys.lock();
        for wanted in &wanted {
            let holder = keys.get(wanted);
            if holder.is_some_and(|holder| !Arc::ptr_eq(own, holder)) {
                let (tree, key) = wanted.clone();
                return Err(Error::Conflict {
                    tree,
                    key,
                    held: true,
                });
            }
        }
        keys.extend(wanted.into_iter().map(|key| (key, own.clone())));
        Ok(())
    }

    /// Releases all keys of a transaction that has ended.
    pub(crate) fn release<'a>(
        &self,
        released: impl Iterator<Item = &'a TreeKey>,
        own: &Arc<Holder>,
    ) {
        let mut keys = self.keys.lock();
        for key in released {
            if keys.get(key).is_some_and(|holder| Arc::ptr_eq(own, holder)) {
                keys.remove(key);
            }
        }
        drop(keys);
        own.end();
    }

    /// Waits for the end of the transaction that holds a key, if there is one.
    pub(crate) fn wait(&self, tree: TreeId, key: &[u8]) -> Result<()> {
        let holder = self.keys.lock().get(&(tree, key.to_vec())).cloned();
        holder.map_or(Ok(()), |holder| holder.wait())
    }
}
