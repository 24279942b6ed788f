//! An engine in memory, for tests.
//!
//! A snapshot shares the trees as they are, and a commit copies a tree that a snapshot has before it changes it. That is
//! slow for large trees and simple: a snapshot cannot change. Nothing outlives the last handle.

use std::collections::{BTreeMap, HashMap};
use std::future::{Future, ready};
use std::ops::Bound;
use std::sync::Arc;

use frond_kv::operation::Op;
use frond_kv::{
    CLOSE_CALLED, Committed, Direction, Durability, Error, Kind, MemoryBudget, MemoryUse,
    MergeOperator, NoMerge, Operations, Reservation, Result, Stamps, TreeId, TreeStats, Wait,
    WaitFor, WriteSet,
};
use parking_lot::{Condvar, Mutex};

type Tree = BTreeMap<Vec<u8>, Arc<[u8]>>;
type Trees = BTreeMap<TreeId, Arc<Tree>>;
type TreeKey = (TreeId, Vec<u8>);

/// Settings of an engine in memory.
pub struct MemoryOptions {
    /// The memory for what clients make grow, in bytes.
    pub client_bytes: usize,
    pub merge: Arc<dyn MergeOperator>,
    /// The source of stamps. Without one, commits with stamped keys are refused.
    pub stamps: Option<Arc<dyn Stamps>>,
}

impl Default for MemoryOptions {
    fn default() -> MemoryOptions {
        MemoryOptions {
            client_bytes: 256 << 20,
            merge: Arc::new(NoMerge),
            stamps: None,
        }
    }
}

/// An engine whose trees are in memory.
#[derive(Clone)]
pub struct Memory(Arc<Shared>);

struct Shared {
    options: MemoryOptions,
    budget: MemoryBudget,
    state: Mutex<State>,
    /// A transaction has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    trees: Trees,
    /// The number of the last commit, and the last stamp.
    version: u64,
    stamp: u64,
    listener: Option<Arc<dyn Fn(u64) + Send + Sync>>,
    /// The last commit that has guarded each key.
    guarded: HashMap<TreeKey, u64>,
    /// The keys that open transactions have guarded, each with the number of its transaction.
    held: HashMap<TreeKey, u64>,
    next_tree: u32,
    next_transaction: u64,
    is_closed: bool,
}

impl State {
    /// The error if a guarded key was changed after the commit `since`, or is held by a transaction other than `own`.
    fn check_guards(&self, set: &Operations, since: u64, own: Option<u64>) -> Result<()> {
        for guard in set.guards() {
            let key = (guard.tree, set.guarded_key(guard).to_vec());
            let held = self.held.get(&key).is_some_and(|by| Some(*by) != own);
            if held || self.guarded.get(&key).is_some_and(|at| *at > since) {
                let (tree, key) = key;
                return Err(Error::Conflict { tree, key, held });
            }
        }
        Ok(())
    }
}

/// Applies operations to trees. A message for a tree that does not exist has no effect.
fn apply(trees: &mut Trees, set: &Operations, merge: &dyn MergeOperator) -> Result<()> {
    for op in set.iter() {
        match op {
            Op::CreateTree(id, ..) => {
                trees.insert(id, Arc::default());
            }
            Op::DropTree(id) => {
                trees.remove(&id);
            }
            Op::DeleteRange { tree, lower, upper } => {
                if let Some(tree) = trees.get_mut(&tree) {
                    let is_deleted = |key: &[u8]| key >= lower && upper.is_none_or(|it| key < it);
                    Arc::make_mut(tree).retain(|key, _| !is_deleted(key));
                }
            }
            Op::Entry {
                tree: id,
                kind,
                key,
                value,
            } => {
                let Some(tree) = trees.get_mut(&id) else {
                    continue;
                };
                let after = match kind {
                    Kind::Put => Some(value.into()),
                    Kind::Delete => None,
                    Kind::Merge => {
                        let base = tree.get(key).map(|base| &**base);
                        let after = merge.apply(id, key, base, value);
                        after
                            .map_err(|malformed| Error::CorruptMessage {
                                tree: id,
                                key: key.to_vec(),
                                what: malformed.0,
                            })?
                            .map(Arc::from)
                    }
                };
                let tree = Arc::make_mut(tree);
                match after {
                    Some(value) => tree.insert(key.to_vec(), value),
                    None => tree.remove(key),
                };
            }
        }
    }
    Ok(())
}

impl Memory {
    /// An engine without trees.
    pub fn new(options: MemoryOptions) -> Memory {
        Memory(Arc::new(Shared {
            budget: MemoryBudget::for_clients(options.client_bytes),
            options,
            state: Mutex::default(),
            ended: Condvar::new(),
        }))
    }

    /// Commits operations that are based on the commit `since`, if on any, of the transaction `own`.
    fn commit_on(
        &self,
        mut set: Operations,
        since: Option<u64>,
        own: Option<u64>,
        mut reserve: impl FnMut() -> bool,
    ) -> Result<Committed> {
        set.take_failure()?;
        loop {
            match self.try_commit(&mut set, since, own) {
                Err(Error::NoStamp) if reserve() => {}
                result => return result,
            }
        }
    }

    fn try_commit(
        &self,
        set: &mut Operations,
        since: Option<u64>,
        own: Option<u64>,
    ) -> Result<Committed> {
        let options = &self.0.options;
        let mut state = self.0.state.lock();
        if state.is_closed {
            return Err(Error::Closed(CLOSE_CALLED.to_owned()));
        }
        if let Some(since) = since {
            state.check_guards(set, since, own)?;
        }
        let mut committed = Committed::default();
        let stamps = set.stamps();
        if stamps > 0 {
            let source = options.stamps.as_ref().ok_or_else(|| {
                Error::InvalidOption("this engine has no source of stamps".to_owned())
            })?;
            let first = source.take(stamps).ok_or(Error::NoStamp)?;
            set.add_stamps(first);
            committed.first_stamp = Some(first);
        }
        let mut trees = state.trees.clone();
        apply(&mut trees, set, &*options.merge)?;
        state.trees = trees;
        state.version += 1;
        let version = state.version;
        for guard in set.guards() {
            let key = (guard.tree, set.guarded_key(guard).to_vec());
            state.guarded.insert(key, version);
        }
        if let Some(first) = committed.first_stamp {
            state.stamp = first + u64::from(stamps) - 1;
            let (stamp, listener) = (state.stamp, state.listener.clone());
            drop(state);
            if let Some(listener) = listener {
                listener(stamp);
            }
        }
        Ok(committed)
    }
}

impl frond_kv::Engine for Memory {
    type Snapshot = MemorySnapshot;
    type Transaction = MemoryTransaction;

    fn allocate_tree(&self) -> Result<TreeId> {
        let mut state = self.0.state.lock();
        state.next_tree += 1;
        Ok(TreeId(state.next_tree))
    }

    fn snapshot(&self) -> MemorySnapshot {
        let state = self.0.state.lock();
        MemorySnapshot {
            trees: Arc::new(state.trees.clone()),
            version: state.version,
        }
    }

    fn commit_reserving(
        &self,
        set: WriteSet<MemorySnapshot>,
        _: Durability,
        reserve: impl FnMut() -> bool,
    ) -> Result<Committed> {
        let (operations, base) = set.into_parts();
        self.commit_on(operations, base.map(|base| base.version), None, reserve)
    }

    fn begin(&self, snapshot: &MemorySnapshot) -> MemoryTransaction {
        let mut state = self.0.state.lock();
        state.next_transaction += 1;
        MemoryTransaction {
            engine: self.clone(),
            number: state.next_transaction,
            staged: Mutex::new(Staged {
                snapshot: snapshot.clone(),
                writes: Operations::default(),
                reserved: self.0.budget.reserve(MemoryUse::Transactions, 0),
            }),
        }
    }

    fn await_transaction(&self, tree: TreeId, key: &[u8]) -> Result<()> {
        let wait = Wait::begin(WaitFor::Transaction)?;
        let key = (tree, key.to_vec());
        let mut state = self.0.state.lock();
        while state.held.contains_key(&key) {
            wait.on(&self.0.ended, &mut state)?;
        }
        Ok(())
    }

    fn trees(&self) -> Result<Vec<TreeId>> {
        Ok(self.0.state.lock().trees.keys().copied().collect())
    }

    fn tree_stats(&self, tree: TreeId) -> TreeStats {
        let state = self.0.state.lock();
        let Some(tree) = state.trees.get(&tree) else {
            return TreeStats::default();
        };
        let bytes = tree.iter().map(|(key, value)| key.len() + value.len());
        TreeStats {
            entries_estimate: tree.len() as u64,
            logical_bytes: bytes.sum::<usize>() as u64,
            ..TreeStats::default()
        }
    }

    fn memory(&self) -> &MemoryBudget {
        &self.0.budget
    }

    fn durable_stamp(&self) -> u64 {
        self.0.state.lock().stamp
    }

    fn set_stamp_listener(&self, listener: Arc<dyn Fn(u64) + Send + Sync>) {
        self.0.state.lock().listener = Some(listener);
    }

    fn request_sync(&self) {}

    fn flush_log(&self) -> Result<()> {
        Ok(())
    }

    fn log_flushed(&self) -> impl Future<Output = Result<()>> + Send {
        ready(Ok(()))
    }

    fn close(&self) -> Result<()> {
        self.0.state.lock().is_closed = true;
        Ok(())
    }
}

/// The trees as they were after a commit, with the writes of a transaction if it is one's.
#[derive(Clone)]
pub struct MemorySnapshot {
    trees: Arc<Trees>,
    version: u64,
}

impl MemorySnapshot {
    fn tree(&self, tree: TreeId) -> Result<&Arc<Tree>> {
        self.trees.get(&tree).ok_or(Error::UnknownTree(tree))
    }
}

impl frond_kv::Snapshot for MemorySnapshot {
    type Value = Arc<[u8]>;
    type Cursor = MemoryCursor;

    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Arc<[u8]>>> {
        Ok(self.tree(tree)?.get(key).cloned())
    }

    fn cursor(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<MemoryCursor> {
        Ok(MemoryCursor {
            tree: self.tree(tree)?.clone(),
            lower: lower.map(<[u8]>::to_vec),
            upper: upper.map(<[u8]>::to_vec),
            direction,
            position: Bound::Unbounded,
            current: None,
        })
    }

    fn has_tree(&self, tree: TreeId) -> Result<bool> {
        Ok(self.trees.contains_key(&tree))
    }
}

/// A cursor over a range of one tree.
pub struct MemoryCursor {
    tree: Arc<Tree>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    direction: Direction,
    /// The start of the unread part of the range, in the direction of the cursor.
    position: Bound<Vec<u8>>,
    current: Option<(Vec<u8>, Arc<[u8]>)>,
}

impl MemoryCursor {
    fn is_above_lower(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) => key >= lower.as_slice(),
            Bound::Excluded(lower) => key > lower.as_slice(),
            Bound::Unbounded => true,
        }
    }

    fn is_below_upper(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
            Bound::Unbounded => true,
        }
    }
}

impl frond_kv::Cursor for MemoryCursor {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let position = self.position.as_ref().map(Vec::as_slice);
        let found = match self.direction {
            Direction::Forward => {
                let mut rest = self.tree.range::<[u8], _>((position, Bound::Unbounded));
                let first = rest.find(|(key, _)| self.is_above_lower(key));
                first.filter(|(key, _)| self.is_below_upper(key))
            }
            Direction::Backward => {
                let mut rest = self.tree.range::<[u8], _>((Bound::Unbounded, position));
                let last = rest.rfind(|(key, _)| self.is_below_upper(key));
                last.filter(|(key, _)| self.is_above_lower(key))
            }
        };
        self.current = found.map(|(key, value)| (key.clone(), value.clone()));
        if let Some((key, _)) = &self.current {
            self.position = Bound::Excluded(key.clone());
        }
        Ok((self.current.as_ref()).map(|(key, value)| (key.as_slice(), &**value)))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.position = Bound::Included(key.to_vec());
        Ok(())
    }
}

/// A transaction on an engine in memory.
pub struct MemoryTransaction {
    engine: Memory,
    number: u64,
    staged: Mutex<Staged>,
}

struct Staged {
    /// The base with the writes so far.
    snapshot: MemorySnapshot,
    writes: Operations,
    reserved: Reservation,
}

impl frond_kv::Transaction for MemoryTransaction {
    type Snapshot = MemorySnapshot;

    fn snapshot(&self) -> MemorySnapshot {
        self.staged.lock().snapshot.clone()
    }

    fn stage_leaving_room(&self, mut set: Operations, extra_bytes: usize) -> Result<()> {
        set.take_failure()?;
        if set.stamps() > 0 {
            let text = "stamped keys cannot be staged; they can be committed with the transaction";
            return Err(Error::InvalidOption(text.to_owned()));
        }
        let shared = &self.engine.0;
        let mut staged = self.staged.lock();
        staged.writes.check_room_for(&set, extra_bytes)?;
        let bytes = set.bytes() + set.extra_bytes();
        if !staged.reserved.try_grow(bytes) {
            let what = "transaction";
            return Err(Error::OutOfMemory { what, bytes });
        }
        let mut trees = Trees::clone(&staged.snapshot.trees);
        apply(&mut trees, &set, &*shared.options.merge)?;
        let mut state = shared.state.lock();
        state.check_guards(&set, staged.snapshot.version, Some(self.number))?;
        for guard in set.guards() {
            let key = (guard.tree, set.guarded_key(guard).to_vec());
            state.held.insert(key, self.number);
        }
        drop(state);
        staged.snapshot.trees = Arc::new(trees);
        staged.writes.append(&set);
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.staged.lock().reserved.bytes()
    }

    fn is_empty(&self) -> bool {
        let staged = self.staged.lock();
        staged.writes.is_empty() && staged.writes.guards().is_empty()
    }

    fn commit_reserving(
        self,
        mut extra: Operations,
        _: Durability,
        reserve: impl FnMut() -> bool,
    ) -> Result<Committed> {
        extra.take_failure()?;
        let mut staged = self.staged.lock();
        staged.writes.check_room_for(&extra, 0)?;
        staged.writes.append(&extra);
        let (writes, since) = (std::mem::take(&mut staged.writes), staged.snapshot.version);
        drop(staged);
        (self.engine).commit_on(writes, Some(since), Some(self.number), reserve)
    }
}

impl Drop for MemoryTransaction {
    fn drop(&mut self) {
        let mut state = self.engine.0.state.lock();
        state.held.retain(|_, by| *by != self.number);
        drop(state);
        self.engine.0.ended.notify_all();
    }
}
