//! The commit path: conflict check, sequence numbers, log, memtable, publication.
//!
//! # Design
//! A commit is one pass through a short critical section. Everything whose cost depends on the size of the write set is outside of
//! it: the checksum before, the insert after.
//! ```text
//! checksum of the operations
//! lock commit state:                       (`make_room`: seals a full memtable, waits while two are sealed)
//!     reserve bytes in the active memtable           a writer enters (M2)
//!     check guards against conflict windows and held keys
//!     first..=last = next_sequence..                 (C1)
//!     take stamps, append the frame to the log       the only step that can fail
//!     create and drop trees in a new version
//! unlock
//! insert the operations into the memtable            in parallel with others
//! publish first..=last in their order (`publisher.rs`); the writer has left
//! ```
//! - The frame is appended under the lock, so the log has commits in the order of their numbers, and a replay needs no sorting.
//! - A commit that fails before its frame is in the log gives its reservation back and has taken no number, so numbers have no
//!   gaps. After it nothing may fail: a `FailStop` ends the process there, because later commits wait for these numbers.
//! - The memtable that is active under the lock gets the whole write set, also if it is sealed meanwhile: a flush waits for its
//!   writers. So a commit is never divided between two memtables, and the log of a memtable is one range.
//!
//! There are two alternatives. With the insert under the lock, committers would take turns at cache misses. With a queue whose
//! first committer writes for all that wait, as in RocksDB, each commit would pay for thread switches; here the log thread
//! groups the frames, and a commit without a sync makes no system call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use frond_kv::operation::Op;
use frond_kv::{Committed, Durability, Guard, Wait, WaitFor};

use crate::engine::{CommitState, Engine};
use crate::fail_stop::{FailStop, step};
use crate::intents::Holder;
use crate::log::{Checksum, Frame, Stamped};
use crate::memtable::{HotKey, Memtable};
use crate::merge::Resolver;
use crate::version::Version;
use crate::write_throttle::Backlog;
use crate::{Error, Result, WriteSet};

/// Sealed memtables that may wait before committers have to.
const SEALED_MAX: usize = 2;
/// The time that a commit that frees space waits for a flush that failed and is retried.
const PATIENCE: Duration = Duration::from_secs(2);
/// The interval at which it checks for an interruption meanwhile.
const PATIENCE_CHECK: Duration = Duration::from_millis(10);
/// Commits that take more memory than this are made one at a time. Commits become visible in the order of their numbers, so a
/// small one waits for at most one large one. Batches of a bulk insert are smaller.
const LARGE_BYTES: usize = 8 << 20;
/// A commit that takes at most so much memory does not wait until earlier ones of that kind are in the memtable.
const QUICK_BYTES: usize = 64 << 10;
/// A memtable that has its usual size after this time is not filled any further. What fills one faster would fill a larger one
/// soon, too, and larger ones take less work to flush.
const FAST_FILL: Duration = Duration::from_secs(3);
/// Room for some commits of the catalog.
const SMALL_BYTES: usize = 64 << 10;
/// The buffers of this many write sets are kept for reuse.
const SPARE_SETS_MAX: usize = 2;

/// The guarded keys of a write set that its transaction holds: the first `count` ones.
#[derive(Clone, Copy)]
pub(crate) struct HeldGuards<'a> {
    pub(crate) holder: &'a Arc<Holder>,
    pub(crate) count: usize,
}

impl CommitState {
    /// The error if one of some guards of a write set conflicts: its key is held by a transaction other than `own`, or was
    /// committed after `since`.
    pub(crate) fn conflict(
        &mut self,
        set: &WriteSet,
        guards: &[Guard],
        since: u64,
        own: Option<&Arc<Holder>>,
    ) -> Option<Error> {
        let mut held = None;
        if !self.intents.is_empty() {
            let is_held = |guard: &&Guard| self.intents.is_held(guard.hash, own);
            held = guards.iter().find(is_held).map(|guard| (guard, true));
        }
        let (guard, held) = held.or_else(|| {
            let recent = &mut self.recent;
            let mut guards = guards.iter();
            let changed = guards.find(|guard| recent.conflicts(guard.tree, guard.hash, since));
            changed.map(|guard| (guard, false))
        })?;
        Some(Error::Conflict {
            tree: guard.tree,
            key: set.guarded_key(guard).to_vec(),
            held,
        })
    }

    /// The error of a write set that must not be committed. The keys that its transaction holds were checked when they were
    /// staged.
    fn conflict_of(&mut self, set: &WriteSet, held: Option<HeldGuards<'_>>) -> Option<Error> {
        let since = set.snapshot()?.sequence;
        let Some(HeldGuards { holder, count }) = held else {
            return self.conflict(set, set.guards(), since, None);
        };
        if let Some((tree, key)) = holder.overwritten() {
            return Some(Error::Conflict {
                tree: *tree,
                key: key.clone(),
                held: false,
            });
        }
        self.conflict(set, &set.guards()[count..], since, Some(holder))
    }

    /// Gives out the numbers and stamps of a commit that is in the log.
    pub(crate) fn give_out(&mut self, first: u64, last: u64, stamped: Option<Stamped>) {
        assert!(
            self.next_sequence == first && last >= first,
            "C1: the numbers of a commit do not follow those before it"
        );
        self.next_sequence = last + 1;
        if let Some(stamped) = stamped {
            assert!(
                stamped.first > self.last_stamp && stamped.last >= stamped.first,
                "C2: the stamps of a commit are not above those before it"
            );
            assert!(
                stamped.sequence == last,
                "C2: stamps belong to another commit"
            );
            self.last_stamp = stamped.last;
        }
    }

    /// Notes the guarded keys of a commit, for others.
    fn record(&mut self, set: &WriteSet, sequence: u64) {
        for guarded in set.guards() {
            self.recent.record(guarded.tree, guarded.hash, sequence);
        }
        if set.snapshot().is_none() && !self.intents.is_empty() {
            for guarded in set.guards() {
                if let Some(holder) = self.intents.holder(guarded.hash) {
                    holder.note_overwritten(guarded.tree, set.guarded_key(guarded));
                }
            }
        }
    }
}

impl Engine {
    /// Keeps the buffers of a write set for the next one.
    pub(crate) fn reuse(&self, set: WriteSet) {
        if let Some(buffers) = set.into_spare() {
            let mut spare = self.spare_sets.lock();
            if spare.len() < SPARE_SETS_MAX {
                spare.push(buffers);
            }
        }
    }

    /// Commits a write set, of which a transaction may hold keys. One that frees space waits while others make room for it.
    pub(crate) fn commit(
        &self,
        set: &mut WriteSet,
        held: Option<HeldGuards<'_>>,
        how: Durability,
    ) -> Result<Committed> {
        // It may wait for room.
        set.count_in(&self.runs.budget);
        set.take_failure()?;
        self.check_running()?;
        if set.is_empty() && set.guards().is_empty() {
            return Ok(Committed::default());
        }
        if set.stamps() > 0 && self.options.stamps.is_none() {
            return Err(Error::InvalidOption(
                "a commit with stamped keys needs a source of stamps, and this store has none"
                    .to_owned(),
            ));
        }
        if how == Durability::Synced && self.log.get().is_none() {
            return Err(Error::InvalidOption(
                "a synced commit needs a journal, and this store has none".to_owned(),
            ));
        }
        let (position, committed) = self.while_space_is_made(set, |set| self.append(set, held))?;
        if let (Durability::Synced, Some(log)) = (how, self.log.get()) {
            self.while_space_is_made(set, |_| log.wait_durable(position))?;
            self.publisher.settle_durable_stamp();
        }
        if self.options.inline {
            // The commit may have synced the log.
            self.notify_durable_stamp();
        }
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        Ok(committed)
    }

    /// Commits a write set; again when it has found no stamps, as long as `reserve` returns true.
    pub(crate) fn commit_reserving(
        &self,
        set: &mut WriteSet,
        held: Option<HeldGuards<'_>>,
        how: Durability,
        mut reserve: impl FnMut() -> bool,
    ) -> Result<Committed> {
        loop {
            match self.commit(set, held, how) {
                Err(Error::NoStamp) if reserve() => {}
                result => return result,
            }
        }
    }

    /// Notifies the listener if the durable stamp has grown. The caller holds no locks.
    pub(crate) fn notify_durable_stamp(&self) {
        self.durable_stamp.notify();
    }

    /// Tries again what failed because the disk is full, for a write set that frees space, as long as an attempt to make
    /// room is of use.
    fn while_space_is_made<T>(
        &self,
        set: &mut WriteSet,
        mut attempt: impl FnMut(&mut WriteSet) -> Result<T>,
    ) -> Result<T> {
        loop {
            match attempt(set) {
                Err(error) if error.is_disk_full() && set.frees_space() => {
                    if !self.await_space()? {
                        return Err(error);
                    }
                }
                result => return result,
            }
        }
    }

    /// Appends a write set to the log, inserts it into the memtable and publishes it. Returns the position in the log
    /// after it. Nothing of it is stored after an error, and the write set is as it was.
    fn append(&self, set: &mut WriteSet, held: Option<HeldGuards<'_>>) -> Result<(u64, Committed)> {
        if !set.frees_space() {
            self.check_room()?;
        }
        self.check_readable(set)?;
        let ops = set.len() as u64;
        // Other committers need not wait for this, which reads the whole write set.
        let is_stamped = set.stamps() > 0;
        let checksum = (self.log.get()).map(|_| Checksum::of(set.payload(), is_stamped));

        let bytes = Memtable::set_bytes_max(set);
        let mut state = self.make_room(bytes, set.frees_space())?;
        // From here on the memtable counts a writer, soon there is a frame in the log, and then later commits wait for
        // this one's numbers to be published.
        let fail_stop = FailStop::begin("committing");
        step("a commit has reserved its room");
        let first = state.next_sequence;
        assert!(
            first > self.publisher.visible() && first > state.awaited,
            "C1: a number is given out twice"
        );
        // A write set with only guards takes a number too, so that it is ordered among the commits.
        let last = first + ops.max(1) - 1;
        let version = self.version.load();
        assert!(
            first > version.active.sequence_before,
            "V1: a memtable gets numbers of an older one"
        );
        let logged = match state.conflict_of(set, held) {
            Some(conflict) => Err(conflict),
            None => self.log_frame(&state, set, checksum, first, last),
        };
        let (position, stamped) = match logged {
            Ok(logged) => logged,
            Err(error) => {
                version.active.cancel(bytes);
                self.end_large(&mut state, set);
                fail_stop.finish();
                self.note_if_full(&error);
                return Err(error);
            }
        };
        step("a commit is in the log");
        assert!(
            self.log.get().is_none() || position > version.active.log_start,
            "L1: a frame is before the log of its memtable"
        );
        state.give_out(first, last, stamped);
        self.advance_log_position(position);
        state.record(set, last);
        // A reader must not wait for a commit that takes long. A stamp without a log is durable at once.
        let is_quick = bytes <= QUICK_BYTES && !set.changes_trees();
        if !is_quick || is_stamped {
            state.awaited = last;
        }
        let awaited = state.awaited;
        assert!(
            awaited < state.next_sequence,
            "C4: a commit waits for a number that was not given out"
        );
        version.active.note_last_sequence(last);
        if set.changes_trees() {
            version.active.note_tree_changes();
            self.change_trees(&version, set.tree_ops(), last);
            for op in set.tree_ops() {
                if let Op::DropTree(tree) = op {
                    state.recent.forget_tree(tree);
                }
            }
        }
        let delay = self.delay(&mut state, &version, set);
        drop(state);
        step("a commit has its numbers");

        if let Some(stamped) = stamped {
            set.add_stamps(stamped.first);
        }
        let hot = version.active.insert(set.iter(), set.len(), first, bytes);
        step("a commit is in the memtable");
        let mut is_stamp_durable = self.publisher.publish(first, last, awaited);
        if let (Some(stamped), None) = (stamped, self.log.get()) {
            self.publisher.raise_durable_stamp(stamped.last);
            is_stamp_durable = true;
        }
        fail_stop.finish();
        if is_stamp_durable {
            self.notify_durable_stamp();
        }
        if bytes > LARGE_BYTES {
            self.end_large(&mut self.commit_lock.lock(), set);
        }
        self.fold_hot(&version.active, hot);
        drop(version);
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        let first_stamp = stamped.map(|stamped| stamped.first);
        Ok((position, Committed { first_stamp }))
    }

    /// The time that the committer of a write set waits, so that commits are admitted at the rate of flushes.
    fn delay(&self, state: &mut CommitState, version: &Version, set: &WriteSet) -> Duration {
        let backlog = Backlog {
            waiting: version.sealed.len(),
            fill: version.active.fill(),
            memtable_bytes: version.active.capacity(),
            kept: self.kept_multiple(),
        };
        if self.options.inline || (backlog.waiting == 0 && backlog.kept == 0.0) {
            return Duration::ZERO;
        }
        let bytes = Memtable::ops_bytes(set.len(), set.bytes());
        (state.throttle).delay(&self.flusher.rate, bytes, &backlog)
    }

    /// Takes the stamps of a write set and appends it to the log. Returns the position in the log after it. The caller holds
    /// the commit lock.
    fn log_frame(
        &self,
        state: &CommitState,
        set: &WriteSet,
        checksum: Option<Checksum>,
        first: u64,
        last: u64,
    ) -> Result<(u64, Option<Stamped>)> {
        // Last, so that other errors leave no gap between the stamps. One after a failure of the log does no harm.
        let stamped = match set.stamps() {
            0 => None,
            count => Some(self.take_stamps(state, count, last)?),
        };
        let position = match self.log.get().zip(checksum) {
            Some((log, checksum)) => {
                let frame = Frame::new(set.payload(), checksum, first, stamped);
                log.append(&frame, set.frees_space())?
            }
            None => 0,
        };
        Ok((position, stamped))
    }

    /// Takes the stamps of a commit whose last operation has the number `sequence`.
    fn take_stamps(&self, state: &CommitState, count: u32, sequence: u64) -> Result<Stamped> {
        let source = self.options.stamps.as_ref();
        let first = source.and_then(|source| source.take(count));
        let first = first.ok_or(Error::NoStamp)?;
        match first.checked_add(u64::from(count) - 1) {
            Some(last) if first > state.last_stamp => Ok(Stamped {
                first,
                last,
                sequence,
            }),
            _ => Err(Error::InvalidOption(format!(
                "the stamp {first} was given out after {}",
                state.last_stamp
            ))),
        }
    }

    /// Lets the next large commit begin, if this is one.
    fn end_large(&self, state: &mut CommitState, set: &WriteSet) {
        self.end_large_of(state, Memtable::set_bytes_max(set));
    }

    /// As [`Engine::end_large`], for a commit of `bytes` bytes.
    pub(crate) fn end_large_of(&self, state: &mut CommitState, bytes: usize) {
        if bytes > LARGE_BYTES {
            assert!(state.large_is_under_way, "C3: a large commit ends twice");
            state.large_is_under_way = false;
            self.flushed.notify_all();
        }
    }

    /// Fails if a write set writes to a tree whose page cannot be read. It may drop such a tree.
    pub(crate) fn check_readable(&self, set: &WriteSet) -> Result<()> {
        let version = self.version.load();
        if version.trees.lost_pages().is_empty() {
            return Ok(());
        }
        for op in set.iter() {
            if let Op::Entry { tree, .. } | Op::DeleteRange { tree, .. } = op
                && version.trees.contains(tree)
                && version.trees.get(tree).is_none()
            {
                return Err(version.trees.missing(tree));
            }
        }
        Ok(())
    }

    /// Folds the update messages of hot keys of a memtable, if it is still active and has space.
    pub(crate) fn fold_hot(&self, memtable: &Arc<Memtable>, hot: Vec<HotKey>) {
        for hot in hot {
            let resolver = Resolver {
                tree: hot.tree,
                operator: self.options.merge.clone(),
                settles: true,
            };
            let Some(folded) = memtable.fold(hot, self.publisher.visible(), &resolver) else {
                continue;
            };
            let bytes = memtable.folded_bytes(&folded);
            let state = self.commit_lock.lock();
            let is_active = Arc::ptr_eq(&self.version.load().active, memtable);
            if !is_active || !memtable.reserve(bytes) {
                return;
            }
            let guard = FailStop::begin("folding the updates of a key");
            drop(state);
            memtable.insert_folded(&folded, bytes);
            guard.finish();
        }
    }

    /// Whether a memtable has the size that is enough for slow commits, and took long for it.
    fn is_filled_slowly(&self, memtable: &Memtable) -> bool {
        // Without threads nothing may depend on the time.
        !self.options.inline
            && memtable.bytes() >= self.options.slow_memtable_size()
            && memtable.age() >= FAST_FILL
    }

    /// Waits until there is room for small commits.
    pub(crate) fn await_room(&self) -> Result<()> {
        let _state = self.make_room(SMALL_BYTES, false)?;
        self.version.load().active.cancel(SMALL_BYTES);
        Ok(())
    }

    /// Takes the commit lock with `bytes` reserved in the active memtable. A large commit waits until no other one is under
    /// way. Seals a full memtable, and waits while too many sealed ones are not flushed yet. Fails if they cannot be flushed for now; one more may
    /// wait, and the failure comes later, for commits that free space.
    pub(crate) fn make_room(
        &self,
        bytes: usize,
        frees_space: bool,
    ) -> Result<parking_lot::MutexGuard<'_, CommitState>> {
        let mut state = Wait::for_lock(&self.commit_lock, WaitFor::Commits)?;
        let sealed_max = SEALED_MAX + usize::from(frees_space);
        let mut patience: Option<Instant> = None;
        loop {
            self.check_running()?;
            if bytes > LARGE_BYTES && state.large_is_under_way {
                step("a large commit waits for another one");
                Wait::begin(WaitFor::Commits)?.on(&self.flushed, &mut state)?;
                continue;
            }
            let version = self.version.load();
            let is_slow = version.sealed.is_empty() && self.is_filled_slowly(&version.active);
            let is_large = version.active.bytes() >= self.options.small_memtable_size()
                && version.sealed.is_empty()
                && self.needs_small_memtables();
            let is_due =
                is_slow || is_large || version.active.bytes() > self.disk_space.seal_bytes();
            if !is_due && version.active.reserve(bytes) {
                assert!(
                    bytes <= LARGE_BYTES || !state.large_is_under_way,
                    "C3: two large commits are under way"
                );
                state.large_is_under_way |= bytes > LARGE_BYTES;
                return Ok(state);
            }
            let is_full = version.sealed.len() >= sealed_max;
            drop(version);
            if is_slow {
                // One block besides those in use is enough then.
                self.spare_blocks.keep(1);
            }
            if !is_full {
                self.seal(&state, bytes);
            }
            if self.options.inline {
                drop(state);
                let flushed = self.flush_all();
                self.check_running()?;
                // There is a new memtable, or none could be made.
                if let (true, Err(error)) = (is_full, flushed) {
                    return Err(self.flusher.stall().unwrap_or(error));
                }
                state = self.commit_lock.lock();
            } else if is_full {
                if let Some(error) = self.flusher.stall() {
                    let until = *patience.get_or_insert_with(|| Instant::now() + PATIENCE);
                    // On a full disk it waits where it does not hold the lock.
                    let is_full = error.is_disk_full() && self.disk_space.is_known();
                    if !frees_space || is_full || Instant::now() >= until {
                        return Err(error);
                    }
                    // It begins again until then, and ends if the operation is interrupted.
                    let _wait = Wait::begin(WaitFor::Memtable)?;
                    self.flushed.wait_for(&mut state, PATIENCE_CHECK);
                } else {
                    Wait::begin(WaitFor::Memtable)?.on(&self.flushed, &mut state)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::fail_stop::at_steps;
    use crate::memtable::set_age;
    use crate::waiting::PATIENCE;
    use crate::{MemoryUse, Options, Store, TreeOptions};

    /// A snapshot waited for the end of any commit that creates a tree, however large it was.
    #[test]
    fn a_snapshot_does_not_wait_for_a_large_commit_that_creates_a_tree() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Options::new(directory.path())).unwrap();
        let tree = store.allocate_tree();
        let ((reached, steps), (go_on, told)) = (channel(), channel());
        let committer = store.clone();
        let large = thread::spawn(move || {
            at_steps(move |step| {
                if step == "a commit has its numbers" {
                    reached.send(()).unwrap();
                    told.recv().unwrap();
                }
            });
            let mut set = WriteSet::new();
            set.put(tree, b"key", b"value");
            set.create_tree(tree, &TreeOptions::default());
            committer.commit(set, Durability::Logged).unwrap();
        });
        steps.recv_timeout(PATIENCE).unwrap();
        let (seen, snapshots) = channel();
        let reader = store.clone();
        let reading = thread::spawn(move || seen.send(reader.snapshot()));
        let before = snapshots.recv_timeout(PATIENCE);
        let had_tree = store.has_tree(tree);
        go_on.send(()).unwrap();
        large.join().unwrap();
        reading.join().unwrap().unwrap();
        let before = before.expect("a snapshot does not wait");
        for _ in 0..2 {
            assert!(!before.has_tree(tree) && !had_tree);
            assert!(matches!(
                before.get(tree, b"key"),
                Err(Error::UnknownTree(_))
            ));
            assert!(store.has_tree(tree));
            assert!(store.snapshot().contains(tree, b"key").unwrap());
            store.checkpoint().unwrap();
        }
        // A copy of the moment before does not have the tree either.
        let copy = tempfile::tempdir().unwrap();
        let copied = before.backup(Options::new(copy.path()), &mut |_| {});
        assert_eq!(copied.unwrap().trees, 0);
    }

    #[test]
    fn a_memtable_that_is_filled_fast_gets_larger() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::new(directory.path());
        options.cache_bytes = 120 << 20;
        let (size, slow_size) = (options.memtable_size(), options.slow_memtable_size());
        assert_eq!((size, slow_size), (20 << 20, 12 << 20));
        let store = Store::open(options).unwrap();
        let tree = store.allocate_tree();
        let put = |key: u32, bytes: usize| {
            let mut set = WriteSet::new();
            if key == 0 {
                set.create_tree(tree, &TreeOptions::default());
            }
            set.put(tree, &key.to_be_bytes(), &vec![7; bytes]);
            store.commit(set, Durability::Logged).unwrap();
        };
        let active = || store.stats().memtable_bytes;
        set_age(Duration::ZERO);
        put(0, 100);
        let before = store.stats().memtables_flushed;
        for key in 1..15 {
            put(key, 1 << 20);
        }
        assert!(active() > 13 << 20, "{} bytes after a fast load", active());
        set_age(FAST_FILL);
        // The first one after the pause seals the memtable.
        put(15, 100);
        put(16, 100);
        let sealed = store.stats();
        let flushed = sealed.memtables_flushed - before + sealed.sealed_memtables;
        assert_eq!(flushed, 1);
    }

    /// Memtables grew as large as without clients, and with those that snapshots of many queries kept they took more than
    /// the whole engine's part: the group's limit killed the server.
    #[test]
    fn memtables_are_small_while_clients_need_much_memory() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::new(directory.path());
        options.cache_bytes = 120 << 20;
        let small_size = options.small_memtable_size() as u64;
        assert_eq!(small_size, 6 << 20);
        let store = Store::open(options).unwrap();
        let tree = store.allocate_tree();
        let put = |key: u32| {
            let mut set = WriteSet::new();
            if key == 0 {
                set.create_tree(tree, &TreeOptions::default());
            }
            set.put(tree, &key.to_be_bytes(), &vec![7; 1 << 20]);
            store.commit(set, Durability::Logged).unwrap();
        };
        set_age(Duration::ZERO);
        let before = store.stats().memtables_flushed;
        let made = || {
            let stats = store.stats();
            stats.memtables_flushed - before + stats.sealed_memtables
        };
        (0..10).for_each(put);
        assert_eq!(made(), 0);
        let sorts = store.memory().reserve(MemoryUse::Queries, 80 << 20);
        put(10);
        assert_eq!(made(), 1, "the large one is not filled any further");
        (11..41).for_each(put);
        assert!(made() >= 5, "{}", made());
        assert!(store.memory().used(MemoryUse::Memtables) <= (20 << 20) + 5 * (small_size + 4096));
        drop(sorts);
        let small = made();
        (41..63).for_each(put);
        assert!(made() - small <= 2, "{} and {small}", made());
    }

    /// A commit that was interrupted in its middle stopped all committers.
    #[test]
    fn a_small_commit_returns_before_an_earlier_one_and_snapshots_have_it() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Options::new(directory.path())).unwrap();
        let tree = store.allocate_tree();
        let mut set = WriteSet::new();
        set.create_tree(tree, &TreeOptions::default());
        store.commit(set, Durability::Logged).unwrap();
        let put = |key: &[u8]| {
            let mut set = WriteSet::new();
            set.put(tree, key, b"value");
            set
        };
        let ((reached, steps), (go_on, told)) = (channel(), channel());
        let (committer, first) = (store.clone(), put(b"first"));
        let first = thread::spawn(move || {
            at_steps(move |step| {
                if step == "a commit has its numbers" {
                    reached.send(()).unwrap();
                    told.recv().unwrap();
                }
            });
            committer.commit(first, Durability::Logged).unwrap();
        });
        steps.recv_timeout(PATIENCE).unwrap();
        let before = store.snapshot();
        let (done, second) = channel();
        let (committer, set) = (store.clone(), put(b"second"));
        thread::spawn(move || done.send(committer.commit(set, Durability::Logged)));
        let second = second.recv_timeout(PATIENCE);
        let (seen, snapshots) = channel();
        let reader = store.clone();
        thread::spawn(move || seen.send(reader.snapshot()));
        store.engine().publisher.wait_for_waiters(1);
        let early = snapshots.try_recv();
        go_on.send(()).unwrap();
        first.join().unwrap();
        second.expect("it does not wait").unwrap();
        assert!(early.is_err(), "the snapshot waits");
        let after = snapshots.recv_timeout(PATIENCE).unwrap();
        for key in [&b"first"[..], b"second"] {
            assert!(after.contains(tree, key).unwrap());
            assert!(!before.contains(tree, key).unwrap());
        }
    }

    /// Any number of large commits could get their numbers before a small one, which waited for all of them.
    #[test]
    fn a_small_commit_waits_for_at_most_one_large_one() {
        const NUMBERS: &str = "a commit has its numbers";
        const WAITS: &str = "a large commit waits for another one";
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Options::new(directory.path())).unwrap();
        let tree = store.allocate_tree();
        let mut set = WriteSet::new();
        set.create_tree(tree, &TreeOptions::default());
        store.commit(set, Durability::Logged).unwrap();
        // Commits with a value of some size; `reached` gets its steps, and when it has its numbers it waits for a signal.
        let commit = |key: &'static [u8], bytes: usize| {
            let (store, (reached, steps), (go_on, told)) = (store.clone(), channel(), channel());
            let thread = thread::spawn(move || {
                at_steps(move |step| {
                    if step == NUMBERS {
                        reached.send(NUMBERS).unwrap();
                        told.recv().unwrap();
                    } else if step == WAITS {
                        reached.send(WAITS).unwrap();
                    }
                });
                let mut set = WriteSet::new();
                set.put(tree, key, &vec![7; bytes]);
                store.commit(set, Durability::Logged).unwrap();
            });
            (thread, steps, go_on)
        };
        let (first, first_steps, first_goes_on) = commit(b"first", 10 << 20);
        assert_eq!(first_steps.recv_timeout(PATIENCE), Ok(NUMBERS));
        let (second, second_steps, second_goes_on) = commit(b"second", 10 << 20);
        assert_eq!(second_steps.recv_timeout(PATIENCE), Ok(WAITS));
        let (small, small_steps, small_goes_on) = commit(b"small", 10);
        assert_eq!(small_steps.recv_timeout(PATIENCE), Ok(NUMBERS));
        small_goes_on.send(()).unwrap();
        first_goes_on.send(()).unwrap();
        // The second one is stopped in its middle, and the others are done.
        let next = std::iter::repeat_with(|| second_steps.recv_timeout(PATIENCE).unwrap());
        assert_eq!({ next }.find(|step| *step != WAITS), Some(NUMBERS));
        first.join().unwrap();
        small.join().unwrap();
        assert!(store.snapshot().contains(tree, b"small").unwrap());
        second_goes_on.send(()).unwrap();
        second.join().unwrap();
        assert!(store.snapshot().contains(tree, b"second").unwrap());
    }
}
