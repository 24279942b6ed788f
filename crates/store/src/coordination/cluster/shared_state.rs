//! The state that all servers poll, and the lock on it: whose turn it is to change the catalog, which gates are closed, and
//! which version the catalog has.

use frond_bson::{Doc, DocBuf, Value, doc};

use super::registry::{Done, binary, id_of};
use super::{
    Cluster, Pauses, STATE_KEY, ServerId, WATCHED_CHANGE, WATCHED_KEY, read_doc, unregistered,
};
use frond_storage::error::{Result, corrupt, write_conflict};
use frond_storage::keyspace::{CATALOG_TREE, Snapshot, TreeId, Wait, WaitFor, WriteSet};

/// Looks for the lock between two looks for dead holders.
const LOOKS_PER_SEARCH: u32 = 64;

/// Which collections' gates are closed on all servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Closing {
    #[default]
    None,
    /// Those with these UUIDs.
    Some(Vec<[u8; 16]>),
    All,
}

impl Closing {
    /// Whether all that the other one closes is closed.
    fn includes(&self, other: &Closing) -> bool {
        match (self, other) {
            (Closing::All, _) | (_, Closing::None) => true,
            (Closing::Some(here), Closing::Some(there)) => {
                there.iter().all(|uuid| here.contains(uuid))
            }
            (Closing::None | Closing::Some(_), _) => false,
        }
    }
}

/// The server that may change the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub id: ServerId,
    /// Of a server that is about to register: when others may take the lock from it.
    pub until_ms: i64,
}

/// The record that all servers poll.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The version of the catalog. Each commit that changes the catalog has the next one.
    pub version: i64,
    /// Counts the changes of this record.
    pub seq: i64,
    /// The next number of a tree.
    pub next_tree: i64,
    /// The server that may change the catalog.
    pub lock: Option<Lock>,
    pub closing: Closing,
    /// A transaction is about to create collections, in a commit that does not have the next version.
    pub announced: bool,
}

impl State {
    fn to_doc(&self) -> DocBuf {
        let mut doc = doc! {"version": self.version};
        doc.push("seq", self.seq);
        doc.push("trees", self.next_tree);
        if let Some(lock) = &self.lock {
            let mut holder = doc! {"id": binary(&lock.id)};
            holder.push("untilMs", lock.until_ms);
            doc.push("lock", &holder);
        }
        match &self.closing {
            Closing::None => {}
            Closing::All => doc.push("closing", "all"),
            Closing::Some(uuids) => doc.push_array("closing", |out| {
                for uuid in uuids {
                    out.push(binary(uuid));
                }
            }),
        }
        if self.announced {
            doc.push("announced", true);
        }
        doc
    }

    fn read(doc: &Doc) -> Result<State> {
        let wrong = || corrupt("the state of the servers");
        let number = |name| doc.get_i64(name).ok_or_else(wrong);
        let lock = match doc.get_doc("lock") {
            None => None,
            Some(lock) => Some(Lock {
                id: id_of(lock, "id").ok_or_else(wrong)?,
                until_ms: lock.get_i64("untilMs").unwrap_or(0),
            }),
        };
        let closing = match doc.get("closing") {
            None => Closing::None,
            Some(Value::Array(uuids)) => {
                let uuid = |value: Value<'_>| match value {
                    Value::Binary { bytes, .. } => bytes.try_into().ok(),
                    _ => None,
                };
                let uuids = uuids.values().map(|value| uuid(value).ok_or_else(wrong));
                Closing::Some(uuids.collect::<Result<_>>()?)
            }
            Some(_) => Closing::All,
        };
        Ok(State {
            version: number("version")?,
            seq: number("seq")?,
            next_tree: number("trees")?,
            lock,
            closing,
            announced: doc.get_bool("announced").unwrap_or(false),
        })
    }
}

/// The state of the lock on this server.
#[derive(Debug, Default)]
pub(super) struct HeldLock {
    /// The next number of a tree, while it holds the lock.
    next_tree: i64,
    closed: Closing,
}

impl Cluster {
    /// The state in a snapshot.
    ///
    /// # Errors
    /// Errors of the engine, `DataCorruptionDetected` (301).
    pub fn state(&self, snapshot: &Snapshot) -> Result<State> {
        match read_doc(snapshot, STATE_KEY)? {
            Some(stored) => State::read(&stored),
            // Tree 0 is that of the catalog.
            None => Ok(State {
                next_tree: 1,
                ..State::default()
            }),
        }
    }

    /// Changes the state. `change` returns false if it is to stay.
    fn change_state(&self, mut change: impl FnMut(&mut State) -> Result<bool>) -> Result<State> {
        self.update(STATE_KEY, |stored| {
            let mut state = match stored {
                Some(stored) => State::read(stored)?,
                None => State {
                    next_tree: 1,
                    ..State::default()
                },
            };
            if !change(&mut state)? {
                return Ok((None, state));
            }
            state.seq += 1;
            Ok((Some(state.to_doc()), state))
        })
    }

    /// Changes the state, whose lock this server holds.
    fn change_held(&self, change: impl Fn(&mut State)) -> Result<State> {
        let id = self.id();
        self.change_state(|state| {
            if state.lock.as_ref().is_none_or(|lock| lock.id != id) {
                return Err(write_conflict());
            }
            change(state);
            Ok(true)
        })
    }

    /// Waits for the lock, takes it, and returns the state. The lock of a server that is gone is taken from it.
    ///
    /// # Errors
    /// `NotWritablePrimary` (10107) if the lease is lost meanwhile; errors of the engine.
    pub fn acquire(&self) -> Result<State> {
        self.await_lease()?;
        self.acquire_as(&self.id(), 0)
    }

    /// Takes the lock for a server that is about to register with this identity.
    ///
    /// # Errors
    /// As [`Cluster::acquire`].
    pub fn acquire_to_register(&self, id: &ServerId) -> Result<State> {
        let lease_ms = i64::try_from(self.options.lease.as_millis()).unwrap_or(i64::MAX);
        self.acquire_as(id, lease_ms)
    }

    fn acquire_as(&self, id: &ServerId, for_ms: i64) -> Result<State> {
        let wait = Wait::begin(WaitFor::Schema)?;
        let mut pauses = Pauses::default();
        let mut looks: u32 = 0;
        loop {
            if self.is_stopped() || (for_ms == 0 && !self.is_valid()) {
                return Err(unregistered());
            }
            let until_ms = match for_ms {
                0 => 0,
                for_ms => self.now_ms().saturating_add(for_ms),
            };
            let state = self.change_state(|state| {
                let is_free = match &state.lock {
                    None => true,
                    Some(lock) => lock.id == *id,
                };
                if is_free {
                    state.settle();
                    let id = *id;
                    state.lock = Some(Lock { id, until_ms });
                }
                Ok(is_free)
            })?;
            if state.lock.as_ref().is_some_and(|lock| lock.id == *id) {
                *self.held_lock.lock() = HeldLock {
                    next_tree: state.next_tree,
                    closed: Closing::None,
                };
                self.note_change();
                return Ok(state);
            }
            looks += 1;
            if looks.is_multiple_of(LOOKS_PER_SEARCH) {
                self.clear_dead_lock()?;
            }
            wait.check()?;
            pauses.wait();
        }
    }

    /// Takes the lock from a server that is gone. Returns whether it was.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn clear_dead_lock(&self) -> Result<bool> {
        let state = self.state(&self.engine.snapshot())?;
        let Some(lock) = state.lock else {
            return Ok(false);
        };
        if self.is_live(&lock.id)? || lock.until_ms > self.now_ms() {
            return Ok(false);
        }
        self.change_state(|state| {
            let is_same = state.lock.as_ref() == Some(&lock);
            if is_same {
                state.settle();
            }
            Ok(is_same)
        })?;
        Ok(true)
    }

    /// Closes gates on all servers, and waits until there are no writers of these collections. Those that are closed already stay
    /// closed. The caller holds the lock.
    ///
    /// # Errors
    /// `WriteConflict` (112) if the lock was lost; errors of the engine.
    pub fn close_gates(&self, closing: Closing) -> Result<()> {
        if self.held_lock.lock().closed.includes(&closing) {
            return Ok(());
        }
        let state = self.change_held(|state| state.closing = closing.clone())?;
        self.note_change();
        let wait = Wait::begin(WaitFor::Schema)?;
        self.await_others(Some(&wait), |done| done.closed == state.seq)?;
        drop(wait);
        self.held_lock.lock().closed = closing;
        Ok(())
    }

    /// Adds the next version of the catalog to a commit that changes it. The caller holds the lock. The gates are open when it is
    /// committed. Returns the write set and the version.
    ///
    /// # Errors
    /// `WriteConflict` (112) if the lock was lost; errors of the engine.
    pub fn next_version(&self, set: &WriteSet) -> Result<(WriteSet, i64)> {
        let snapshot = self.engine.snapshot();
        let mut state = self.state(&snapshot)?;
        let id = self.id();
        if state.lock.as_ref().is_none_or(|lock| lock.id != id) {
            return Err(write_conflict());
        }
        state.version += 1;
        state.seq += 1;
        state.closing = Closing::None;
        {
            let mut held = self.held_lock.lock();
            held.closed = Closing::None;
            state.next_tree = held.next_tree.max(state.next_tree);
        }
        let mut all = WriteSet::with_snapshot(&snapshot);
        all.append(set);
        all.put_guarded(CATALOG_TREE, STATE_KEY, state.to_doc().as_bytes());
        if set.is_empty() {
            all.set_frees_space();
        }
        Ok((all, state.version))
    }

    /// A number for a tree that a change of the catalog creates. The caller holds the lock.
    pub fn tree_of_change(&self) -> Result<TreeId> {
        let mut held = self.held_lock.lock();
        let tree =
            u32::try_from(held.next_tree).map_err(|_| corrupt("the numbers of the trees"))?;
        held.next_tree += 1;
        Ok(TreeId(tree))
    }

    /// Says that a transaction is about to create collections, and waits until no server takes a view of all collections without
    /// looking for them. The caller holds the lock.
    ///
    /// # Errors
    /// As [`Cluster::close_gates`].
    pub fn announce(&self) -> Result<()> {
        let state = self.change_held(|state| {
            state.announced = true;
            state.closing = Closing::Some(Vec::new());
        })?;
        self.await_others(None, |done| done.closed == state.seq)
    }

    /// Lets the next server change the catalog. Returns the version of the catalog, and whether that is a new one because of
    /// what was announced.
    ///
    /// # Errors
    /// Errors of the engine. The lock is taken from this server when its lease is over.
    pub fn release(&self) -> Result<(i64, bool)> {
        self.release_as(&self.id())
    }

    /// As [`Cluster::release`], for a server that has registered, or tried to, with this identity.
    ///
    /// # Errors
    /// As [`Cluster::release`].
    pub fn release_as(&self, id: &ServerId) -> Result<(i64, bool)> {
        let mut announced = false;
        let state = self.change_state(|state| {
            let is_mine = state.lock.as_ref().is_some_and(|lock| lock.id == *id);
            announced = is_mine && state.announced;
            if is_mine {
                // Whether its commit was done shows in the version; an announced one is looked for.
                state.lock = None;
                state.closing = Closing::None;
                state.version += i64::from(std::mem::take(&mut state.announced));
            }
            Ok(is_mine)
        })?;
        self.note_change();
        self.held_lock.lock().closed = Closing::None;
        Ok((state.version, announced))
    }

    /// Waits until all other servers have loaded a version of the catalog.
    ///
    /// # Errors
    /// `NotWritablePrimary` (10107) if the lease is lost meanwhile; errors of the engine.
    pub fn await_loaded(&self, version: i64) -> Result<()> {
        self.await_others(None, |done| done.loaded >= version)
    }

    /// Waits until all other servers have heard of a change of a watched collection.
    ///
    /// # Errors
    /// As [`Cluster::await_loaded`].
    pub fn await_watched(&self, change: i64) -> Result<()> {
        self.await_others(None, |done| done.watched >= change)
    }

    /// Waits until all other servers have done something. Those whose leases are over are removed. The operation can end the wait if
    /// there is a `wait`.
    fn await_others(&self, wait: Option<&Wait>, has_done: impl Fn(&Done) -> bool) -> Result<()> {
        let me = self.id();
        let mut pauses = Pauses::default();
        loop {
            let snapshot = self.engine.snapshot();
            let servers = self.registered(&snapshot)?;
            let mut others = servers.iter().filter(|server| server.id != me);
            if others.all(|server| has_done(&server.done)) {
                return Ok(());
            }
            if !self.is_valid() {
                return Err(unregistered());
            }
            let now_ms = self.now_ms();
            if servers.iter().any(|server| server.is_over(now_ms)) {
                self.remove_dead()?;
            }
            wait.map_or(Ok(()), Wait::check)?;
            pauses.wait();
        }
    }

    /// A change of a watched collection is committed. Others have heard of it when the [`AtGate`](super::AtGate) around the commit
    /// is dropped.
    pub fn committed_watched(&self, change: i64) {
        WATCHED_CHANGE.set(change);
    }

    /// Reads what is polled with one request.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn prefetch(&self, snapshot: &Snapshot) -> Result<()> {
        let keys = [STATE_KEY, WATCHED_KEY].map(|key| (CATALOG_TREE, key));
        Ok(snapshot.prefetch(&keys)?)
    }

    /// The number of changes of watched collections, in a snapshot.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn watched(&self, snapshot: &Snapshot) -> Result<i64> {
        let stored = read_doc(snapshot, WATCHED_KEY)?;
        Ok(stored.and_then(|stored| stored.get_i64("n")).unwrap_or(0))
    }

    /// Adds to a commit, which is based on `snapshot`, that it changes a watched collection. Returns its number, for
    /// [`Cluster::committed_watched`].
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn stage_watched(&self, batch: &mut WriteSet, snapshot: &Snapshot) -> Result<i64> {
        let next = self.watched(snapshot)? + 1;
        let entry = doc! {"n": next};
        batch.put_guarded(CATALOG_TREE, WATCHED_KEY, entry.as_bytes());
        Ok(next)
    }
}

impl State {
    /// Ends what the last holder of the lock has left.
    fn settle(&mut self) {
        if self.lock.take().is_some() {
            self.closing = Closing::None;
            // Its last commit may have created what it announced.
            self.version += 1;
            self.announced = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_stored_as_it_is() -> Result<()> {
        let lock = Lock {
            id: [7; 16],
            until_ms: 5,
        };
        for (lock, closing) in [
            (None, Closing::None),
            (Some(lock.clone()), Closing::All),
            (Some(lock), Closing::Some(vec![[1; 16], [2; 16]])),
        ] {
            let state = State {
                version: 3,
                seq: 9,
                next_tree: 11,
                announced: lock.is_some(),
                lock,
                closing,
            };
            assert_eq!(State::read(&state.to_doc())?, state);
        }
        Ok(())
    }
}
