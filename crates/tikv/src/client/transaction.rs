//! Transactions: a snapshot, and writes that only its own reads see until they are committed.

use std::sync::Arc;

use frond_kv::{Committed, Error, MemoryUse, Operations, Reservation, Result, WRITE_SET_BYTES_MAX};
use parking_lot::Mutex;

use crate::client::commit;
use crate::client::held_keys::Holder;
use crate::client::overlay::{Overlay, TreeKey};
use crate::client::shared::Shared;
use crate::client::snapshot::Snapshot;
use crate::client::unchanged;

/// A transaction. Dropping it aborts it.
pub struct Transaction {
    shared: Arc<Shared>,
    holder: Arc<Holder>,
    state: Mutex<State>,
}

struct State {
    base: Snapshot,
    writes: Arc<Overlay>,
    held: Vec<TreeKey>,
    reserved: Reservation,
}

impl Transaction {
    pub(crate) fn begin(shared: &Arc<Shared>, snapshot: &Snapshot) -> Transaction {
        Transaction {
            holder: Arc::default(),
            state: Mutex::new(State {
                base: Snapshot {
                    base: snapshot.base.clone(),
                    own: None,
                },
                writes: Arc::default(),
                held: Vec::new(),
                reserved: shared.memory.reserve(MemoryUse::Transactions, 0),
            }),
            shared: shared.clone(),
        }
    }

    /// A snapshot with the writes that are staged so far. It does not see later ones.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state.lock();
        Snapshot {
            base: state.base.base.clone(),
            own: (!state.writes.is_empty()).then(|| state.writes.clone()),
        }
    }

    /// Adds the operations of a write set to the transaction: all of them, or nothing after an error. Fails if the transaction
    /// could not be committed with an extra write set of this many bytes.
    ///
    /// # Errors
    /// [`Error::Conflict`] if an open transaction of this server has written a guarded key, or one of any server was committed since
    /// the snapshot was taken that did; [`Error::TooLarge`], [`Error::OutOfMemory`], [`Error::InvalidOption`] if it has stamped keys,
    /// [`Error::Unavailable`].
    pub fn stage_leaving_room(&self, mut set: Operations, extra_bytes: usize) -> Result<()> {
        set.take_failure()?;
        if set.stamps() > 0 {
            let text = "stamped keys cannot be staged; they can be committed with the transaction";
            return Err(Error::InvalidOption(text.to_owned()));
        }
        let mut state = self.state.lock();
        let bytes = state.writes.bytes() + set.bytes() + extra_bytes;
        if bytes > WRITE_SET_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "write set",
                bytes,
                limit: WRITE_SET_BYTES_MAX,
            });
        }
        let State {
            base,
            writes,
            held,
            reserved,
        } = &mut *state;
        if !reserved.try_grow(set.bytes()) {
            return Err(Error::OutOfMemory {
                what: "transaction",
                bytes,
            });
        }
        let taken = commit::hold(&self.shared, &set, &self.holder)?;
        held.extend(taken);
        unchanged::check_guarded(&self.shared, &base.base, &set)?;
        let mut after = Overlay::clone(writes);
        commit::add(&mut after, &set, base)?;
        reserved.resize(after.bytes());
        *writes = Arc::new(after);
        Ok(())
    }

    /// Memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.state.lock().reserved.bytes()
    }

    /// Whether nothing is staged, not even a guard.
    pub fn is_empty(&self) -> bool {
        self.state.lock().writes.is_empty()
    }

    /// Commits the transaction together with the operations of `extra`: all of it or nothing.
    ///
    /// # Errors
    /// As [`crate::Cluster::commit`].
    pub fn commit(self, mut extra: Operations) -> Result<Committed> {
        extra.take_failure()?;
        let mut state = self.state.lock();
        let held = self
            .shared
            .held
            .check(extra.guarded_keys(), Some(&self.holder));
        held?;
        let State { base, writes, .. } = &mut *state;
        let stamped = commit::stamp(&self.shared, &mut extra, None)?;
        commit::add(Arc::make_mut(writes), &extra, base)?;
        commit::commit_on(&self.shared, &base.base, writes, stamped, true)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.shared.held.release(state.held.iter(), &self.holder);
    }
}
