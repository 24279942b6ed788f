//! The cluster time: a logical clock in seconds and a counter, which never goes back.
//!
//! A tick is the current second with the counter 1, or the next counter of the last tick if the wall clock has not passed
//! it. Every time that is given out lies below a bound that was made durable first. After a crash the clock continues
//! at that bound, so it does not repeat a time, also if the wall clock was set back. The bound is raised for some seconds at
//! once; a tick below it is one compare-and-swap.
//!
//! Entries of the oplog have such times. The engine takes them under its commit lock, from the [`Times`] that it shares with
//! the clock, and never waits there for the bound: a writer sees to it before ([`ClusterTime::reserve_for_commit`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frond_bson::{Doc, Timestamp, Value, doc};
use parking_lot::Mutex;

use frond_storage::clock::now_ms;
use frond_storage::error::{Result, corrupt};
use frond_storage::keyspace::{CATALOG_TREE, Durability, Engine, Stamps, Tikv, WriteSet};

/// Seconds by which the durable bound is raised.
const RESERVED_SECONDS: u64 = 30;

/// A bound that is nearer than this is raised by [`ClusterTime::reserve_ahead`].
const AHEAD_SECONDS: u64 = 15;

/// The largest time that MongoDB accepts: its seconds and its counter are signed.
const MAX: u64 = (i32::MAX as u64) << 32 | i32::MAX as u64;

/// Keeps the bound durable.
type Persist = Box<dyn Fn(u64) -> Result<()> + Send + Sync>;

/// The seconds that a commit may wait between [`ClusterTime::reserve_for_commit`] and its stamps.
const COMMIT_SECONDS: u64 = 5;

/// The times that were given out, and those that may be. The engine and the clock share them.
pub(crate) struct Times {
    /// The last time that was given out; 0 before the first one.
    last: AtomicU64,
    /// Times up to this one may be given out.
    reserved: AtomicU64,
    seconds: fn() -> u64,
    /// Whether this is a member of a replica set that does not lead: its commits have the times of the leader.
    is_following: AtomicBool,
}

impl Times {
    /// None may be given out before the clock is open.
    pub fn new() -> Arc<Times> {
        Arc::new(Times::with_clock(|| {
            u64::try_from(now_ms() / 1000).unwrap_or(0)
        }))
    }

    fn with_clock(seconds: fn() -> u64) -> Times {
        Times {
            last: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            seconds,
            is_following: AtomicBool::new(false),
        }
    }

    /// The next time, which may not be reserved.
    fn next(&self, last: u64) -> u64 {
        let now = ((self.seconds)() << 32 | 1).min(MAX);
        now.max(last.saturating_add(1))
    }
}

impl Stamps for Times {
    fn take(&self, count: u32) -> Option<u64> {
        let order = Ordering::SeqCst;
        if self.is_following.load(order) {
            return None;
        }
        let mut last = self.last.load(order);
        loop {
            let first = self.next(last);
            let end = first.checked_add(u64::from(count).saturating_sub(1))?;
            if end > self.reserved.load(order) {
                return None;
            }
            match self.last.compare_exchange_weak(last, end, order, order) {
                Ok(_) => return Some(first),
                Err(now) => last = now,
            }
        }
    }
}

/// The clock of a store.
pub struct ClusterTime {
    times: Arc<Times>,
    /// Held while the bound is raised.
    raising: Mutex<()>,
    persist: Persist,
    /// The cluster whose clock is used.
    cluster: Option<Tikv>,
}

impl ClusterTime {
    /// The key of the durable bound in the catalog tree.
    pub(crate) const KEY: &[u8] = &[7];

    /// The clock of an engine, as it was left. `times` are the engine's source of stamps, too, if it has one.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn open(engine: &Engine, times: Arc<Times>) -> Result<ClusterTime> {
        let bound = stored_bound(engine)?;
        let cluster = engine.cluster().cloned();
        let engine = engine.clone();
        let persist = move |bound| {
            let mut batch = WriteSet::new();
            // The clock goes on while the disk is full.
            batch.set_frees_space();
            let entry = doc! {"reserved": Timestamp::from_u64(bound)};
            batch.put(CATALOG_TREE, ClusterTime::KEY, entry.as_bytes());
            engine.commit(batch, Durability::Synced)?;
            Ok(())
        };
        let mut clock = ClusterTime::new(bound, times, Box::new(persist));
        if cluster.is_some() {
            // PD sees to it that its clock does not go back.
            clock.times.reserved.store(u64::MAX, Ordering::SeqCst);
            clock.cluster = cluster;
        }
        Ok(clock)
    }

    fn new(bound: u64, times: Arc<Times>, persist: Persist) -> ClusterTime {
        times.last.store(bound, Ordering::SeqCst);
        times.reserved.store(bound, Ordering::SeqCst);
        ClusterTime {
            times,
            raising: Mutex::new(()),
            persist,
            cluster: None,
        }
    }

    /// Notes the time of a commit whose stamps are not taken from here.
    pub(crate) fn saw(&self, stamp: u64) {
        if self.cluster.is_some() {
            self.times.last.fetch_max(stamp, Ordering::SeqCst);
        }
    }

    /// Notes the time of a commit of the leader of this member's replica set.
    pub(crate) fn note_applied(&self, stamp: u64) {
        self.times.last.fetch_max(stamp, Ordering::SeqCst);
    }

    /// From here on the times are this server's own. Those up to the bound that the leader before has stored are reserved.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn take_over(&self, engine: &Engine) -> Result<()> {
        let bound = stored_bound(engine)?;
        self.times.reserved.store(bound, Ordering::SeqCst);
        self.times.is_following.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Whether commits take their times from a clock that all servers share.
    pub(crate) fn is_shared(&self) -> bool {
        self.cluster.is_some()
    }

    /// The time of the clock that all servers share, if there is one.
    ///
    /// # Errors
    /// Errors of the keyspace.
    pub(crate) fn shared_now(&self) -> Result<Option<u64>> {
        let now = self.cluster.as_ref().map(Tikv::stamp_now);
        Ok(now.transpose()?)
    }

    /// The last time that was given out; the null timestamp before the first one.
    pub fn last(&self) -> Timestamp {
        Timestamp::from_u64(self.times.last.load(Ordering::SeqCst))
    }

    /// A time after all times that were given out.
    ///
    /// # Errors
    /// Errors of the engine, if the durable bound cannot be raised. The clock stays as it is.
    pub fn tick(&self) -> Result<Timestamp> {
        // Those of a member that does not lead are the leader's.
        if self.is_following() {
            return Ok(self.last());
        }
        if let Some(now) = self.shared_now()? {
            let last = self.times.last.fetch_max(now, Ordering::SeqCst);
            return Ok(Timestamp::from_u64(last.max(now)));
        }
        loop {
            let last = self.times.last.load(Ordering::SeqCst);
            let next = self.times.next(last);
            self.reserve(next)?;
            let order = Ordering::SeqCst;
            if (self.times.last)
                .compare_exchange_weak(last, next, order, order)
                .is_ok()
            {
                return Ok(Timestamp::from_u64(next));
            }
        }
    }

    /// Moves the clock forward to a time that a client has seen elsewhere. The caller has checked how far it is ahead.
    ///
    /// # Errors
    /// As [`ClusterTime::tick`].
    pub fn advance(&self, to: Timestamp) -> Result<()> {
        let to = to.to_u64().min(MAX);
        if to > self.times.last.load(Ordering::SeqCst) {
            self.reserve(to)?;
            self.times.last.fetch_max(to, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Moves the clock to the durable bound, above all times that were given out before a crash.
    pub fn advance_to_bound(&self) {
        let bound = self.times.reserved.load(Ordering::SeqCst);
        self.times.last.fetch_max(bound, Ordering::SeqCst);
    }

    /// Raises the durable bound before a tick has to wait for it. Does nothing until the first tick.
    ///
    /// # Errors
    /// As [`ClusterTime::tick`].
    pub fn reserve_ahead(&self) -> Result<()> {
        let last = self.times.last.load(Ordering::SeqCst);
        if last == 0 {
            return Ok(());
        }
        let soon = last.max((self.times.seconds)() << 32) + (AHEAD_SECONDS << 32);
        if soon > self.times.reserved.load(Ordering::SeqCst) {
            self.raise(soon)?;
        }
        Ok(())
    }

    /// From here on commits have the times of the leader. `last` is the last one that was applied: this member gives out none of
    /// its own, so the clock is there.
    pub(crate) fn follow(&self, last: Timestamp) {
        self.times.is_following.store(true, Ordering::SeqCst);
        self.times.last.store(last.to_u64(), Ordering::SeqCst);
    }

    /// Whether commits have the times of the leader.
    pub fn is_following(&self) -> bool {
        self.times.is_following.load(Ordering::SeqCst)
    }

    /// Sees to it that a commit which begins now finds stamps. A commit that waits for longer than some seconds may not.
    ///
    /// # Errors
    /// As [`ClusterTime::tick`].
    pub(crate) fn reserve_for_commit(&self) -> Result<()> {
        let last = self.times.last.load(Ordering::SeqCst);
        self.reserve(self.times.next(last).saturating_add(COMMIT_SECONDS << 32))
    }

    fn reserve(&self, time: u64) -> Result<()> {
        if time <= self.times.reserved.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.raise(time)
    }

    /// Lowers the durable bound to the next second, for a store that is about to be closed, so that its next start does not
    /// move the clock ahead. Times after it can still be given out: the bound is raised again for them.
    ///
    /// # Errors
    /// As [`ClusterTime::tick`].
    pub(crate) fn lower_bound(&self) -> Result<()> {
        if self.cluster.is_some() {
            return Ok(());
        }
        let _one = self.raising.lock();
        let last = self.times.last.load(Ordering::SeqCst);
        let second = (last >> 32).max((self.times.seconds)());
        let bound = (second + 1) << 32;
        if last == 0 || bound >= self.times.reserved.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.times.reserved.store(bound, Ordering::SeqCst);
        // A time that was checked against the bound before may have been given out since, and even while this is stored.
        let mut stored = bound;
        loop {
            stored = stored.max(self.times.last.load(Ordering::SeqCst));
            (self.persist)(stored)?;
            if self.times.last.load(Ordering::SeqCst) <= stored {
                return Ok(());
            }
        }
    }

    #[cold]
    fn raise(&self, time: u64) -> Result<()> {
        let _one = self.raising.lock();
        if time <= self.times.reserved.load(Ordering::SeqCst) {
            return Ok(());
        }
        let bound = time.saturating_add(RESERVED_SECONDS << 32);
        (self.persist)(bound)?;
        self.times.reserved.store(bound, Ordering::SeqCst);
        Ok(())
    }
}

/// The durable bound; 0 before the first one.
fn stored_bound(engine: &Engine) -> Result<u64> {
    let stored = if engine.has_tree(CATALOG_TREE)? {
        engine.snapshot().get(CATALOG_TREE, ClusterTime::KEY)?
    } else {
        None
    };
    let entry = stored.as_deref().map(Doc::validate).transpose();
    match entry.map(|entry| entry.and_then(|entry| entry.get("reserved"))) {
        Ok(None) => Ok(0),
        Ok(Some(Value::Timestamp(bound))) => Ok(bound.to_u64()),
        _ => Err(corrupt("the catalog entry of the cluster time")),
    }
}

impl std::fmt::Debug for ClusterTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterTime")
            .field("last", &self.last())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use frond_error::ErrorCode;

    use super::*;
    use crate::{DocumentStore, EngineOptions, StoreOptions};
    use frond_storage::error::command;

    fn at(time: u32, increment: u32) -> Timestamp {
        Timestamp { time, increment }
    }

    /// A clock whose bound is kept in a variable.
    fn clock(bound: u64, seconds: fn() -> u64) -> (ClusterTime, Arc<AtomicU64>, Arc<AtomicUsize>) {
        let (kept, writes) = (
            Arc::new(AtomicU64::new(bound)),
            Arc::new(AtomicUsize::new(0)),
        );
        let (stored, counted) = (kept.clone(), writes.clone());
        let persist = move |bound| {
            stored.store(bound, Ordering::SeqCst);
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        (
            ClusterTime::new(
                bound,
                Arc::new(Times::with_clock(seconds)),
                Box::new(persist),
            ),
            kept,
            writes,
        )
    }

    #[test]
    fn a_tick_is_the_second_or_the_next_counter() {
        let (clock, kept, writes) = clock(0, || 100);
        assert_eq!(clock.last(), Timestamp::default());
        assert_eq!(clock.tick().unwrap(), at(100, 1));
        assert_eq!(clock.tick().unwrap(), at(100, 2));
        clock.advance(at(110, 5)).unwrap();
        clock.advance(at(90, 5)).unwrap();
        assert_eq!(clock.tick().unwrap(), at(110, 6));
        assert_eq!(writes.load(Ordering::SeqCst), 1, "one write for all");
        clock.advance(at(200, 0)).unwrap();
        assert_eq!(writes.load(Ordering::SeqCst), 2);
        assert!(kept.load(Ordering::SeqCst) > at(200, 0).to_u64());
        // The counter that does not fit goes into the seconds.
        clock.advance(at(300, u32::MAX)).unwrap();
        assert_eq!(clock.tick().unwrap(), at(301, 0));
    }

    #[test]
    fn a_crash_and_a_clock_that_is_set_back_repeat_no_time() {
        let (before, kept, _) = clock(0, || 1000);
        let mut last = Timestamp::default();
        for _ in 0..10 {
            last = before.tick().unwrap();
        }
        let (after, _, _) = clock(kept.load(Ordering::SeqCst), || 10);
        assert!(after.last() >= last);
        assert!(after.tick().unwrap() > last);
    }

    #[test]
    fn the_bound_is_raised_ahead_of_the_ticks() {
        let (clock, kept, writes) = clock(0, || 100);
        clock.reserve_ahead().unwrap();
        assert_eq!(writes.load(Ordering::SeqCst), 0, "not in use");
        clock.tick().unwrap();
        clock.reserve_ahead().unwrap();
        assert_eq!(writes.load(Ordering::SeqCst), 1, "far enough");
        clock.advance(at(120, 0)).unwrap();
        clock.reserve_ahead().unwrap();
        assert_eq!(writes.load(Ordering::SeqCst), 2);
        assert!(kept.load(Ordering::SeqCst) >= at(150, 0).to_u64());
    }

    /// Each restart moved the clock 30 seconds ahead.
    #[test]
    fn a_store_that_is_closed_continues_within_a_second() {
        let (clock, kept, _) = clock(0, || 100);
        clock.lower_bound().unwrap();
        assert_eq!(kept.load(Ordering::SeqCst), 0, "not in use");
        let last = clock.tick().unwrap();
        clock.lower_bound().unwrap();
        assert_eq!(kept.load(Ordering::SeqCst), at(101, 0).to_u64());
        assert!(clock.tick().unwrap() > last);
        clock.advance(at(101, 1)).unwrap();
        assert!(
            kept.load(Ordering::SeqCst) > at(130, 0).to_u64(),
            "raised again"
        );
    }

    #[test]
    fn a_bound_that_cannot_be_stored_leaves_the_clock() {
        let full = |_| Err(command(ErrorCode::OutOfDiskSpace, "full"));
        let times = Arc::new(Times::with_clock(|| 100));
        let clock = ClusterTime::new(at(50, 1).to_u64(), times, Box::new(full));
        assert!(clock.tick().is_err());
        assert!(clock.advance(at(60, 1)).is_err());
        assert_eq!(clock.last(), at(50, 1));
        clock.advance(at(50, 1)).unwrap();
    }

    #[test]
    fn stamps_are_times_below_the_bound() {
        let (clock, kept, writes) = clock(0, || 100);
        assert_eq!(clock.times.take(1), None, "nothing is reserved");
        clock.reserve_for_commit().unwrap();
        assert_eq!(clock.times.take(3), Some(at(100, 1).to_u64()));
        assert_eq!(clock.tick().unwrap(), at(100, 4));
        assert_eq!(clock.times.take(1), Some(at(100, 5).to_u64()));
        clock.reserve_for_commit().unwrap();
        assert_eq!(writes.load(Ordering::SeqCst), 1, "far enough");
        // Near the bound no stamps are given out that could come again after a crash.
        let bound = kept.load(Ordering::SeqCst);
        clock.advance(Timestamp::from_u64(bound - 1)).unwrap();
        assert_eq!(clock.times.take(2), None);
        assert_eq!(clock.times.take(1), Some(bound));
        assert_eq!(clock.times.take(1), None);
        clock.reserve_for_commit().unwrap();
        assert_eq!(clock.times.take(u32::MAX), Some(bound + 1));
    }

    #[test]
    fn threads_get_different_times() {
        let (clock, _, _) = clock(0, || 7);
        let clock = Arc::new(clock);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let clock = clock.clone();
                std::thread::spawn(move || {
                    let ticks = (0..1000).map(|_| clock.tick().unwrap());
                    ticks.collect::<Vec<_>>()
                })
            })
            .collect();
        let mut all: Vec<_> = threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect();
        all.sort();
        assert_eq!(all, (1..=4000).map(|n| at(7, n)).collect::<Vec<_>>());
    }

    #[test]
    fn a_store_that_is_opened_again_continues_after_the_last_time() {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let engine = EngineOptions::new(directory.path());
            DocumentStore::open_engine(engine, StoreOptions::default()).unwrap()
        };
        let store = open();
        assert_eq!(store.cluster_time().last(), Timestamp::default());
        let first = store.cluster_time().tick().unwrap();
        let ahead = Timestamp {
            time: first.time + 1_000_000,
            increment: 3,
        };
        store.cluster_time().advance(ahead).unwrap();
        let last = store.cluster_time().tick().unwrap();
        assert!(last > ahead);
        drop(store);
        let store = open();
        assert!(store.cluster_time().last() >= last);
        assert!(store.cluster_time().tick().unwrap() > last);
    }
}
