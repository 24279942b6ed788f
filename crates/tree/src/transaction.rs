//! Transactions: a snapshot, and writes that only its own reads see until they are committed.
//!
//! The writes of a transaction go to memtables of its own, which are the newest sources of its snapshots, and to one write
//! set, which the commit appends to the log as one frame. So all reads see the writes of the transaction, and a commit is
//! like any other one. Both copies are in memory and counted in the budget.
//!
//! The first writer of a guarded key wins. When a key is staged, it is looked for among the commits since the snapshot, which
//! the conflict windows keep ([`crate::ConflictHold`]), and the transaction holds it from then on ([`crate::intents`]). A commit
//! that changes it nevertheless is noted; the transaction's commit checks that, under the commit lock.
//!
//! # Rules
//!
//! - **Own writes** go to memtables of the transaction, which come before all others of a `Snapshot` (`OwnWrites`).
//!   They have sequence numbers of their own, so each memtable is read up to a bound of its own. A snapshot does not
//!   see what is staged after it was taken, so a cursor is not disturbed. Trees that are created in the transaction are
//!   in its version of the trees. All kinds of reads work as they do elsewhere: they know only `Snapshot`.
//! - **Held keys** (`intents.rs`): a table under the commit lock has the guarded keys that open transactions have
//!   staged. `stage` looks for a conflict with the commits since the snapshot and with the table, and enters its keys,
//!   under one lock: a commit of others either comes before and is found, or finds the keys. A commit that guards a
//!   held key gets `Error::Conflict` with `held`, and waits with `Store::await_transaction` for the end of that
//!   transaction. A transaction never waits, so there are no deadlocks. While the table is empty, this costs a commit
//!   one branch. A write set without a snapshot is not refused: it is noted at the transaction, which then gets the
//!   conflict at its commit. That is all the commit has to look for, so it holds the commit lock hardly longer than
//!   others do. Guards that join at the commit are checked there, as those of every write set.
//! - **Conflict windows** are held from the transaction's snapshot on (`Store::hold_conflicts`). What they have to
//!   forget is a conflict, never a lost update.
//! - **Memory**: the writes are in memory twice, as entries of the memtables and as the payload of the log frame, and
//!   both are counted (`MemoryUse::Transactions`). All transactions together may take half of the budget; `stage` fails
//!   with `Error::OutOfMemory` beyond that, and with `Error::TooLarge` beyond the limit of a write set. The first
//!   memtable has 64 KiB, the next ones as much as those before together. The commit drops them before it takes room in
//!   the shared memtable.
//! - **A transaction that is open for long** pins the memtables of its snapshot. `Transaction::detach` writes what they
//!   have to the data file for it, as `Store::detach` does for cursors.

use std::sync::Arc;

use frond_kv::operation::Op;
use frond_kv::{
    Committed, Durability, Guard, MemoryUse, PANICKED, Reservation, Wait, WaitFor, key_hash,
};
use parking_lot::Mutex;

use crate::commit::HeldGuards;
use crate::conflict_hold::ConflictHold;
use crate::engine::Engine;
use crate::intents::{Holder, Intents};
use crate::memtable::{HotKey, Memtable, SpareBlocks};
use crate::merge::Resolver;
use crate::snapshot::{OwnWrites, Snapshot};
use crate::store::Store;
use crate::version::{Tree, Version};
use crate::{Error, Result, TreeId, WriteSet};

/// Size of the first memtable of a transaction.
const MEMTABLE_BYTES_MIN: usize = 64 << 10;
/// A memtable is as large as those before it together, up to this size.
const MEMTABLE_BYTES_MAX: usize = 32 << 20;
/// Each transaction may have this much, however scarce memory is, as long as all together have not much more than their share.
const BYTES_MIN: usize = 256 << 10;
/// Small ones may take this part of the budget beyond the share.
const SHARE_OF_SMALL: u64 = 8;
/// Memory of an open transaction beside its writes: its snapshot, its state, the first blocks of its memtable, its session.
const OPEN_BYTES: usize = 12 << 10;
/// All transactions together may take this share of the budget.
const SHARE: u64 = 2;
/// Keys that are registered or released at once under the commit lock.
const KEYS_AT_ONCE: usize = 1024;

/// A transaction: a snapshot, and writes on it that only its own reads see until it is committed. Dropping it aborts it.
///
/// ```
/// # use frond_tree::{Durability, Error, Options, Store, TreeOptions, WriteSet};
/// # fn main() -> frond_tree::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let store = Store::open(Options::new(directory.path()))?;
/// # let tree = store.allocate_tree();
/// # let mut set = WriteSet::new();
/// # set.create_tree(tree, &TreeOptions::default());
/// # store.commit(set, Durability::Logged)?;
/// let transaction = store.begin(&store.snapshot());
/// let mut set = transaction.write_set();
/// set.put_guarded(tree, b"rowan", b"red");
/// transaction.stage(set)?;
/// assert!(transaction.snapshot().contains(tree, b"rowan")?);
/// assert!(!store.snapshot().contains(tree, b"rowan")?);
/// transaction.commit(WriteSet::new(), Durability::Logged)?;
/// assert!(store.snapshot().contains(tree, b"rowan")?);
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    engine: Arc<Engine>,
    holder: Arc<Holder>,
    state: Mutex<State>,
    /// Comes last: the conflict windows are needed until the end.
    _hold: ConflictHold,
}

struct State {
    /// The base, with the writes staged so far and the trees that they create.
    snapshot: Snapshot,
    /// The same writes, for the commit.
    writes: WriteSet,
    /// The number of their guards for keys that the transaction holds: the first ones.
    held: usize,
    /// The memory of all of this.
    reserved: Reservation,
    /// False after a panic in the middle of a change.
    is_whole: bool,
}

impl Store {
    /// Begins a transaction on a snapshot. Until it ends, the conflict windows keep what is committed after the snapshot.
    pub fn begin(&self, snapshot: &Snapshot) -> Transaction {
        let snapshot = Snapshot {
            own: None,
            ..snapshot.clone()
        };
        let holder = Arc::default();
        Transaction {
            _hold: self.hold_conflicts(&snapshot),
            engine: self.engine().clone(),
            state: Mutex::new(State {
                writes: WriteSet::with_snapshot(&snapshot),
                held: 0,
                snapshot,
                reserved: self.memory().reserve(MemoryUse::Transactions, 0),
                is_whole: true,
            }),
            holder,
        }
    }

    /// Returns when the open transaction that holds a key, as an [`Error::Conflict`] said, has ended; at once if there is
    /// none. The wait ends early with the operation around it ([`crate::Interrupt`]).
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn await_transaction(&self, tree: TreeId, key: &[u8]) -> Result<()> {
        let hash = key_hash(tree, key);
        let holder = {
            let state = self.engine().commit_lock.lock();
            state.intents.holder(hash).cloned()
        };
        holder.map_or(Ok(()), |holder| holder.wait())
    }
}

impl Transaction {
    /// A snapshot with the writes that are staged so far. It does not see later ones. It can be used after the end of the
    /// transaction, too.
    pub fn snapshot(&self) -> Snapshot {
        self.state.lock().snapshot.clone()
    }

    /// An empty write set, based on [`Transaction::snapshot`].
    pub fn write_set(&self) -> WriteSet {
        let snapshot = self.snapshot();
        let spare = self.engine.spare_sets.lock().pop();
        let mut set = spare.unwrap_or_default().with_capacity(&snapshot, 0);
        set.count_in(&self.engine.runs.budget);
        set
    }

    /// Adds the operations of a write set to the transaction: all of them, or nothing after an error. Its guarded keys are
    /// those that must not have changed since the base of the transaction, whatever the write set's own snapshot.
    ///
    /// # Errors
    /// [`Error::Conflict`] if a guarded key was committed by others since, or is held by another open transaction;
    /// [`Error::TooLarge`] if the transaction exceeds the limit of a write set; [`Error::OutOfMemory`] if the budget has no
    /// room for it; [`Error::InvalidOption`] if it has stamped keys.
    pub fn stage(&self, set: WriteSet) -> Result<()> {
        self.stage_leaving_room(set, 0)
    }

    /// As [`Transaction::stage`]. It also fails with [`Error::TooLarge`] if the transaction could not be committed with an extra
    /// write set of this many bytes.
    ///
    /// # Errors
    /// As [`Transaction::stage`].
    pub fn stage_leaving_room(&self, mut set: WriteSet, extra_bytes: usize) -> Result<()> {
        let engine = &self.engine;
        set.take_failure()?;
        if set.stamps() > 0 {
            // Their keys are made at the commit, so the transaction could not read them.
            return Err(Error::InvalidOption(
                "stamped keys cannot be staged; they can be committed with the transaction"
                    .to_owned(),
            ));
        }
        engine.check_running()?;
        engine.check_readable(&set)?;
        let mut state = self.state.lock();
        state.check()?;
        state.writes.check_room_for(&set, extra_bytes)?;
        state.reserve_for(&set)?;
        let keys = match self.hold_keys(&state, &set) {
            Ok(keys) => keys,
            Err(conflict) => {
                state.count();
                return Err(conflict);
            }
        };
        state.is_whole = false;
        let hot = state.insert(engine, &set);
        state.writes.append(&set);
        state.held = state.writes.guards().len();
        keys.keep();
        state.is_whole = true;
        state.fold(engine, hot);
        state.count();
        drop(state);
        engine.reuse(set);
        Ok(())
    }

    /// Memory that the transaction takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.state.lock().reserved.bytes()
    }

    /// Whether nothing is staged, not even a guard.
    pub fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.writes.is_empty() && state.writes.guards().is_empty()
    }

    /// Lets go of the memtables of its base that are flushed meanwhile, as [`Store::detach`] does for cursors: what they have
    /// is written to the data file for this transaction. Snapshots that were taken before keep them; those of idle cursors are
    /// detached one by one.
    ///
    /// # Errors
    /// As [`Store::detach`].
    pub fn detach(&self) -> Result<()> {
        let mut state = self.state.lock();
        let snapshot = self.engine.detach(&state.snapshot, None)?;
        state.writes.set_snapshot(snapshot.clone());
        state.snapshot = snapshot;
        Ok(())
    }

    /// Commits the transaction together with the operations of `extra`, which may have stamped keys: all of it or nothing. After an error the transaction
    /// is aborted, with the exception that [`Error::Stalled`] names.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn commit(self, extra: WriteSet, how: Durability) -> Result<Committed> {
        self.commit_reserving(extra, how, || false)
    }

    /// As [`Transaction::commit`]. `reserve` is that of [`Store::commit_reserving`].
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn commit_reserving(
        self,
        mut extra: WriteSet,
        how: Durability,
        reserve: impl FnMut() -> bool,
    ) -> Result<Committed> {
        extra.take_failure()?;
        let mut state = self.state.lock();
        state.check()?;
        state.writes.check_room_for(&extra, 0)?;
        state.writes.append(&extra);
        // There are no more reads in the transaction. The commit counts the write set itself.
        state.snapshot.own = None;
        let keys = state.writes.guards().len() * Intents::KEY_BYTES;
        state.reserved.resize(keys);
        let held = HeldGuards {
            holder: &self.holder,
            count: state.held,
        };
        self.engine
            .commit_reserving(&mut state.writes, Some(held), how, reserve)
    }

    /// Registers the guarded keys of a write set.
    fn hold_keys(&self, state: &State, set: &WriteSet) -> Result<HeldKeys<'_>> {
        let mut held = HeldKeys {
            engine: &self.engine,
            holder: &self.holder,
            hashes: Vec::new(),
        };
        let since = state.snapshot.sequence;
        for guards in set.guards().chunks(KEYS_AT_ONCE) {
            // A conflict is looked for, and the keys are taken, under one lock: a commit of others either comes before, and is
            // found, or finds the keys.
            let mut commits = Wait::for_lock(&self.engine.commit_lock, WaitFor::Commits)?;
            if let Some(conflict) = commits.conflict(set, guards, since, Some(&self.holder)) {
                return Err(conflict);
            }
            for guard in guards {
                if commits.intents.hold(guard.hash, &self.holder) {
                    held.hashes.push(guard.hash);
                }
            }
        }
        Ok(held)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let writes = std::mem::take(&mut state.writes);
        let hashes = |guards: &[Guard]| guards.iter().map(|guard| guard.hash).collect::<Vec<_>>();
        for guards in writes.guards().chunks(KEYS_AT_ONCE) {
            release(&self.engine, &self.holder, &hashes(guards));
        }
        self.holder.end();
        self.engine.reuse(writes);
    }
}

fn release(engine: &Engine, holder: &Arc<Holder>, hashes: &[u64]) {
    let mut commits = engine.commit_lock.lock();
    for hash in hashes {
        commits.intents.release(*hash, holder);
    }
}

/// Keys that a write set has added to those that its transaction holds. They are released if it is not staged.
struct HeldKeys<'a> {
    engine: &'a Engine,
    holder: &'a Arc<Holder>,
    hashes: Vec<u64>,
}

impl HeldKeys<'_> {
    fn keep(mut self) {
        self.hashes.clear();
    }
}

impl Drop for HeldKeys<'_> {
    fn drop(&mut self) {
        for hashes in self.hashes.chunks(KEYS_AT_ONCE) {
            release(self.engine, self.holder, hashes);
        }
    }
}

impl State {
    fn check(&self) -> Result<()> {
        if self.is_whole {
            Ok(())
        } else {
            Err(Error::Internal(PANICKED))
        }
    }

    fn memtables(&self) -> &[Arc<Memtable>] {
        let own = self.snapshot.own.as_ref();
        own.map_or(&[], |own| &own.memtables)
    }

    /// Bytes that it takes.
    fn bytes(&self) -> usize {
        let memtables = self.memtables().iter().map(|memtable| memtable.bytes());
        let keys = self.writes.guards().len() * Intents::KEY_BYTES;
        let open = usize::from(!self.memtables().is_empty()) * OPEN_BYTES;
        memtables.sum::<usize>() + self.writes.buffer_bytes() + keys + open
    }

    /// Makes the reservation what is in use.
    fn count(&mut self) {
        let bytes = self.bytes();
        self.reserved.resize(bytes);
    }

    /// Reserves what a write set will take at most.
    fn reserve_for(&mut self, set: &WriteSet) -> Result<()> {
        let keys = set.guards().len() * (Intents::KEY_BYTES + size_of::<Guard>());
        let open = usize::from(self.memtables().is_empty()) * OPEN_BYTES;
        let more = Memtable::set_bytes_max(set) + set.bytes() + set.extra_bytes() + keys + open;
        let bytes = self.reserved.bytes() + more;
        let budget = self.reserved.budget();
        let all = budget.used(MemoryUse::Transactions) + more as u64;
        let share = budget.limit() / SHARE;
        if bytes <= BYTES_MIN && all <= share + budget.limit() / SHARE_OF_SMALL {
            self.reserved.grow(more);
            return Ok(());
        }
        if all <= share && self.reserved.try_grow(more) {
            Ok(())
        } else {
            Err(Error::OutOfMemory {
                what: "transaction",
                bytes,
            })
        }
    }

    /// Makes the operations of a write set visible to the next snapshots. Returns the keys whose update messages should be
    /// folded.
    fn insert(&mut self, engine: &Engine, set: &WriteSet) -> Vec<HotKey> {
        if set.is_empty() {
            return Vec::new();
        }
        let mut memtables = self.memtables().to_vec();
        let bytes = Memtable::set_bytes_max(set);
        if !memtables.first().is_some_and(|first| first.reserve(bytes)) {
            let new = self.new_memtable(engine, bytes);
            let has_room = new.reserve(bytes);
            assert!(has_room, "M4: a memtable of the size has no room");
            memtables.insert(0, new);
        }
        let before = self.snapshot.own.as_ref().map_or(0, |own| own.sequence);
        let hot = memtables[0].insert(set.iter(), set.len(), before + 1, bytes);
        self.snapshot.own = Some(Arc::new(OwnWrites {
            memtables,
            sequence: before + set.len() as u64,
        }));
        if set.changes_trees() {
            self.change_trees(set);
        }
        hot
    }

    /// Folds the update messages of hot keys in the newest memtable, if it has space.
    fn fold(&self, engine: &Engine, hot: Vec<HotKey>) {
        let Some((own, newest)) = (self.snapshot.own.as_ref()).zip(self.memtables().first()) else {
            return;
        };
        for hot in hot {
            let resolver = Resolver {
                tree: hot.tree,
                operator: engine.options.merge.clone(),
                settles: false,
            };
            if let Some(folded) = newest.fold(hot, own.sequence, &resolver) {
                let bytes = newest.folded_bytes(&folded);
                if newest.reserve(bytes) {
                    newest.insert_folded(&folded, bytes);
                }
            }
        }
    }

    /// A memtable for at least `bytes` bytes.
    fn new_memtable(&self, engine: &Engine, bytes: usize) -> Arc<Memtable> {
        let before = self.memtables().iter().map(|memtable| memtable.capacity());
        let size = before.sum::<usize>().min(MEMTABLE_BYTES_MAX);
        let size = size.max(MEMTABLE_BYTES_MIN).max(bytes + 4096);
        match size {
            MEMTABLE_BYTES_MIN => Arc::new(Memtable::new(size, 0, &engine.small_blocks)),
            _ => Arc::new(Memtable::new(size, 0, &Arc::<SpareBlocks>::default())),
        }
    }

    /// Creates and drops trees for the next snapshots.
    fn change_trees(&mut self, set: &WriteSet) {
        let version = &self.snapshot.version;
        let mut trees = (*version.trees).clone();
        for op in set.tree_ops() {
            match op {
                // In these snapshots it is there from the beginning.
                Op::CreateTree(id, options, state) => {
                    trees.insert(id, Tree::new(options, state, 0));
                }
                Op::DropTree(id) => trees.remove(id),
                Op::Entry { .. } | Op::DeleteRange { .. } => {}
            }
        }
        self.snapshot.version = Arc::new(Version {
            trees: Arc::new(trees),
            ..Version::clone(version)
        });
    }
}
