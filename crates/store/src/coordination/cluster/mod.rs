//! Several servers over one keyspace: which servers there are ([`registry`]), whose turn it is to change the catalog, and
//! who has seen the change ([`shared_state`]), the numbers of trees and records ([`id_allocator`]), and who does what only one may do
//! ([`leaders`]), such as collecting garbage ([`garbage`]).
//!
//! A server registers with a *lease*: a time up to which it may read and write without looking at the others. It renews the
//! lease long before its end. When a lease is over, others may remove the server and go on without it, so a server whose lease
//! is over serves nothing until it has registered again and read the catalog again.
//!
//! A change of the catalog is made by one server at a time, which holds the lock of the *state*, a record that every server
//! polls. It closes the gates of the collections on all servers, commits the change together with the next version of the
//! catalog, and waits until all servers have loaded that version. `catalog/shared.rs` has the other half: how a server follows.
//!
//! Readers that wait for documents hear of those of other servers, too ([`tails`]).
//!
//! | key in the catalog tree | value |
//! | --- | --- |
//! | `0x20` | the state: `{version, seq, trees, lock, closing, announced}`, see [`State`] |
//! | `0x21` server (4 bytes, big-endian), `0` | a registered server: `{id, address, startedMs, leaseEndMs, software, instance, oldest, …}` |
//! | `0x21` server, `1` | what it has done: `{id, closed, loaded, watched}` |
//! | `0x21` server, `2` | in a cluster: `{id, stamp}`, the first stamp that its commits may still take |
//! | `0x22` | `{next}`: tree numbers that transactions take |
//! | `0x23` name | who leads a task: `{id, server, untilMs}` |
//! | `0x24` uuid | `{last}`: the last record id of a capped collection |
//! | `0x25` uuid, number of the index | who builds an index, and how far: `{id, after, filled}` |
//! | `0x26` | `{n}`: how often a collection was changed that servers keep copies of |
//! | `0x27` uuid | `{id}`: whose temporary collection it is |

mod builds;
mod garbage;
mod id_allocator;
mod leaders;
mod leftovers;
mod registry;
mod shared_state;
mod tails;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf};
use frond_error::ErrorCode;
use parking_lot::{Condvar, Mutex};

pub(crate) use builds::{BuildState, stage_end_of_build};
use frond_storage::error::{Error, Result, command, corrupt};
use frond_storage::keyspace::{
    CATALOG_TREE, ClusterStats, Engine, Snapshot, Tikv, TreeId, ValueRef, WriteSet,
};
pub(crate) use id_allocator::stage_forget_record;
pub(crate) use leftovers::{owner_of, stage_end_of_temporary};
pub(crate) use registry::Done;
pub use registry::ServerInfo;
pub(crate) use shared_state::{Closing, State};
pub(crate) use tails::TailWatch;

const STATE_KEY: &[u8] = &[0x20];
const SERVER: u8 = 0x21;
const TREES_KEY: &[u8] = &[0x22];
const LEADER: u8 = 0x23;
const RECORDS: u8 = 0x24;
const BUILD: u8 = 0x25;
const WATCHED_KEY: &[u8] = &[0x26];
const TEMPORARY: u8 = 0x27;

/// The description of a server, and the time for which others rely on it.
#[derive(Clone, Debug)]
pub struct SharedOptions {
    /// Where clients reach it: host and port.
    pub address: String,
    /// The time for which others wait for a server that does not answer.
    pub lease: Duration,
    /// In a cluster: for how long old versions are kept that no snapshot needs.
    pub retention: Duration,
}

impl Default for SharedOptions {
    fn default() -> SharedOptions {
        SharedOptions {
            address: String::new(),
            lease: Duration::from_secs(10),
            retention: Duration::from_secs(600),
        }
    }
}

/// The identity of a server, from its registration to its end.
pub(crate) type ServerId = [u8; 16];
/// Keys with their values.
pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;
/// The identity of a collection.
type Uuid = [u8; 16];

/// The longest wait of an operation for a server that has to register again, in leases.
const PATIENCE_LEASES: u32 = 2;
/// The interval at which a server publishes which stamps its commits may take.
pub(crate) const SETTLE_PAUSE: Duration = Duration::from_millis(100);
/// The interval of the polls for documents that other servers have inserted, while a cursor waits for them.
pub(crate) const TAILS_PAUSE: Duration = Duration::from_millis(60);
/// The longest time between two looks at the state, while nothing happens.
const POLL_IDLE: Duration = Duration::from_millis(40);
/// The time between two looks after a recent change, and for how long a change is recent.
const POLL_BUSY: Duration = Duration::from_millis(4);
const BUSY: Duration = Duration::from_secs(2);
/// The interval of polls while an operation waits.
const WAIT_MIN: Duration = Duration::from_micros(500);
const WAIT_MAX: Duration = Duration::from_millis(10);

thread_local! {
    /// Whether this thread holds the lock on changes, or the gate of a collection, so that it must not wait for a reload.
    static BUSY_THREAD: Cell<u32> = const { Cell::new(0) };
    /// A change of a watched collection that this thread has committed, and others have to hear of.
    static WATCHED_CHANGE: Cell<i64> = const { Cell::new(0) };
}

/// While it lives, this thread does not wait for a reload of the catalog.
pub(crate) struct NoReload(());

impl NoReload {
    pub fn new() -> NoReload {
        BUSY_THREAD.set(BUSY_THREAD.get() + 1);
        NoReload(())
    }

    /// Whether there is one on this thread.
    pub fn is_set() -> bool {
        BUSY_THREAD.get() > 0
    }
}

impl Drop for NoReload {
    fn drop(&mut self) {
        BUSY_THREAD.set(BUSY_THREAD.get().saturating_sub(1));
    }
}

/// Around a commit under the gate of a collection: the thread waits for no reload of the catalog meanwhile. Afterwards, without
/// the gate, it waits until other servers have heard of a change that their copies depend on.
pub(crate) struct AtGate<'a> {
    cluster: &'a Cluster,
    no_reload: Option<NoReload>,
}

impl Drop for AtGate<'_> {
    fn drop(&mut self) {
        self.no_reload = None;
        let change = WATCHED_CHANGE.take();
        if change > 0 {
            // The change is committed. A server that does not hear of it in time loses its lease.
            let _ = self.cluster.await_watched(change);
        }
    }
}

/// This server among the others.
pub(crate) struct Cluster {
    engine: Engine,
    /// Fences servers and collects garbage. None for servers over one set of files, as in tests, which need neither.
    fenced: Option<Tikv>,
    options: SharedOptions,
    started_ms: i64,
    /// The base of the times below.
    origin: Instant,
    me: Mutex<Registration>,
    /// The end of the lease in nanoseconds after `origin`; 0 without one.
    valid_until: AtomicU64,
    /// When the lease was lost.
    lost_at: Mutex<Option<Instant>>,
    /// The shared clock minus the time since `origin`, in milliseconds.
    clock: AtomicI64,
    /// When the last change was seen.
    busy: Mutex<Option<Instant>>,
    id_allocator: id_allocator::IdAllocator,
    held_lock: Mutex<shared_state::HeldLock>,
    tails: tails::Tails,
    /// For tests: the server does nothing in the background.
    is_stalled: AtomicBool,
    is_stopped: AtomicBool,
    /// Wakes the threads in the background.
    wake: (Mutex<()>, Condvar),
}

/// The present registration of this server.
#[derive(Clone, Copy, Debug, Default)]
struct Registration {
    number: u32,
    id: ServerId,
    is_registered: bool,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("address", &self.options.address)
            .field("me", &*self.me.lock())
            .finish_non_exhaustive()
    }
}

/// The error of a server that has no lease, and gets none for a while. Drivers try another server.
fn unregistered() -> Error {
    command(
        ErrorCode::NotWritablePrimary,
        "this server has lost its lease among the servers of the cluster, and could not renew it in time; try another server, \
         or again later",
    )
}

/// The stamp by which any server finds the moment of a snapshot again. `None` if snapshots have no stamps; `Some(None)` if this one
/// has none yet.
///
/// # Errors
/// Errors of the keyspace.
pub(crate) fn stamp_of(snapshot: &Snapshot) -> Result<Option<Option<u64>>> {
    let snapshot = snapshot.cluster();
    Ok(snapshot.map(|snapshot| snapshot.stamp()).transpose()?)
}

/// Reads the value of one of the keys above.
fn read_doc(snapshot: &Snapshot, key: &[u8]) -> Result<Option<DocBuf>> {
    let Some(stored) = snapshot.get(CATALOG_TREE, key)? else {
        return Ok(None);
    };
    let doc = Doc::validate(&stored).map_err(|_| corrupt("an entry about the servers"))?;
    Ok(Some(doc.to_owned()))
}

impl Cluster {
    /// A server that is not registered yet.
    pub fn new(engine: Engine, options: SharedOptions) -> Arc<Cluster> {
        let started_ms = engine.now_ms();
        Arc::new(Cluster {
            fenced: engine.cluster().cloned(),
            engine,
            options,
            started_ms,
            origin: Instant::now(),
            me: Mutex::default(),
            valid_until: AtomicU64::new(0),
            lost_at: Mutex::new(None),
            clock: AtomicI64::new(started_ms),
            busy: Mutex::new(None),
            id_allocator: id_allocator::IdAllocator::default(),
            held_lock: Mutex::default(),
            tails: tails::Tails::default(),
            is_stalled: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            wake: Default::default(),
        })
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// See [`super::Coordination::keyspace_stats`].
    pub fn keyspace_stats(&self) -> Option<(ClusterStats, Option<u32>)> {
        let keyspace = self.fenced.as_ref()?;
        Some((keyspace.stats(), Some(keyspace.instance())))
    }

    /// Readers in the order of stamps wait for the commits of all servers. Returns whether the keyspace has stamps of its own.
    pub fn combine_stamps(self: &Arc<Cluster>) -> bool {
        let Some(keyspace) = &self.fenced else {
            return false;
        };
        let weak = Arc::downgrade(self);
        keyspace.set_stamp_combination(Arc::new(move |own| {
            weak.upgrade()
                .and_then(|cluster| cluster.global_low_watermark(own))
        }));
        true
    }

    /// See [`super::Coordination::get_latest`].
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn get_latest(&self, tree: TreeId, key: &[u8]) -> Result<Option<Option<ValueRef>>> {
        let Some(keyspace) = self.fenced.as_ref().filter(|_| self.is_valid()) else {
            return Ok(None);
        };
        let found = keyspace.get_latest(tree, key)?;
        let found = found.map(|value| value.map(ValueRef::from));
        Ok(found.filter(|_| self.is_valid()))
    }

    /// See [`super::Coordination::scan_latest`].
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn scan_latest(&self, tree: TreeId, prefix: &[u8], limit: u32) -> Result<Option<Pairs>> {
        let Some(keyspace) = self.fenced.as_ref().filter(|_| self.is_valid()) else {
            return Ok(None);
        };
        let found = keyspace.scan_latest(tree, prefix, limit)?;
        Ok(found.filter(|_| self.is_valid()))
    }

    /// The snapshot with a stamp, which any server may have taken.
    pub fn snapshot_at(&self, stamp: u64) -> Option<Snapshot> {
        let keyspace = self.fenced.as_ref()?;
        keyspace.snapshot_at(stamp).map(Snapshot::from)
    }

    /// Milliseconds since 1970 by the clock that all servers share.
    fn now_ms(&self) -> i64 {
        self.engine.now_ms()
    }

    /// About the same, without a request.
    pub(crate) fn about_now_ms(&self) -> i64 {
        let since = i64::try_from(self.origin.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.clock.load(Ordering::Relaxed).saturating_add(since)
    }

    /// Its number, which no other live server has. It may change after its lease was lost.
    pub fn number(&self) -> u32 {
        self.me.lock().number
    }

    pub fn id(&self) -> ServerId {
        self.me.lock().id
    }

    /// Begins a commit under the gate of a collection.
    pub fn at_gate(&self) -> AtGate<'_> {
        AtGate {
            cluster: self,
            no_reload: Some(NoReload::new()),
        }
    }

    /// Whether its lease is valid now.
    pub fn is_valid(&self) -> bool {
        let now = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        now < self.valid_until.load(Ordering::Acquire)
    }

    /// Fails a commit whose server has no lease: with a conflict, so that it is tried again after the next registration, or,
    /// if that does not come, for good.
    ///
    /// # Errors
    /// `WriteConflict` (112), `NotWritablePrimary` (10107).
    pub fn check_commit(&self) -> Result<()> {
        if self.is_valid() {
            return Ok(());
        }
        if self.is_hopeless() {
            Err(unregistered())
        } else {
            Err(frond_storage::error::write_conflict())
        }
    }

    /// Waits until the lease is valid.
    ///
    /// # Errors
    /// `NotWritablePrimary` (10107) if that takes too long.
    pub fn await_lease(&self) -> Result<()> {
        while !self.is_valid() {
            if self.is_hopeless() || self.is_stopped() {
                return Err(unregistered());
            }
            std::thread::sleep(WAIT_MAX);
        }
        Ok(())
    }

    /// Whether it has been without a lease for too long.
    fn is_hopeless(&self) -> bool {
        let lost_at = *self.lost_at.lock().get_or_insert_with(Instant::now);
        lost_at.elapsed() > self.options.lease * PATIENCE_LEASES
    }

    /// Whether it is to do nothing in the background, or nothing any more.
    pub fn is_stalled(&self) -> bool {
        self.is_stalled.load(Ordering::SeqCst)
    }

    pub fn stall(&self, stalled: bool) {
        self.is_stalled.store(stalled, Ordering::SeqCst);
    }

    /// Whether the store is closed.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Ends the threads in the background.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        let _asleep = self.wake.0.lock();
        self.wake.1.notify_all();
    }

    /// Sleeps in a thread in the background. Returns false if it is to end.
    pub fn sleep(&self, time: Duration) -> bool {
        let mut lock = self.wake.0.lock();
        if !self.is_stopped() {
            self.wake.1.wait_for(&mut lock, time);
        }
        !self.is_stopped()
    }

    /// The time between two renewals of the lease.
    pub fn renewal_pause(&self) -> Duration {
        self.options.lease / 5
    }

    /// The time between two looks at the state.
    pub fn poll_pause(&self) -> Duration {
        let busy = *self.busy.lock();
        if busy.is_some_and(|since| since.elapsed() < BUSY) {
            POLL_BUSY
        } else {
            POLL_IDLE.min(self.options.lease / 8)
        }
    }

    /// Notes that a change was seen, so that others may follow.
    pub fn note_change(&self) {
        *self.busy.lock() = Some(Instant::now());
    }

    /// Commits changes of the records of this module. They serve to get a lease, so they need none: each is guarded by the record
    /// that it depends on.
    fn commit(&self, batch: WriteSet) -> Result<()> {
        self.engine.commit_without_lease(batch)?;
        Ok(())
    }

    /// Changes one record: `change` gets what is stored, and returns what is to be stored, or `None` if it stays. Tries again
    /// after a conflict.
    fn update<R>(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&Doc>) -> Result<(Option<DocBuf>, R)>,
    ) -> Result<R> {
        let mut pauses = Pauses::default();
        loop {
            let snapshot = self.engine.snapshot();
            let stored = read_doc(&snapshot, key)?;
            let (after, result) = change(stored.as_deref())?;
            let Some(after) = after else {
                return Ok(result);
            };
            let mut batch = WriteSet::with_snapshot(&snapshot);
            batch.set_frees_space();
            batch.put_guarded(CATALOG_TREE, key, after.as_bytes());
            match self.commit(batch) {
                Ok(()) => return Ok(result),
                Err(error) if error.is_conflict() => pauses.wait(),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Pauses between looks at something that others change: short ones first.
#[derive(Debug, Default)]
struct Pauses(u32);

impl Pauses {
    fn wait(&mut self) {
        let longest = WAIT_MIN * (1 << self.0.min(8));
        self.0 += 1;
        let longest = longest.min(WAIT_MAX);
        std::thread::sleep(longest.mul_f64(0.5 + rand::random::<f64>() / 2.0));
    }
}
