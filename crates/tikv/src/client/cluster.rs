//! The handle of a cluster.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use frond_kv::{Committed, Direction, Error, MemoryBudget, Result, TreeId, WriteSet};

use parking_lot::Mutex;
use tikv::TimestampExt;

use crate::client::bound::after_prefix;
use crate::client::commit;
use crate::client::connection::{Calls, Connection, Kind, PHYSICAL_SHIFT};
use crate::client::counters::Slots;
use crate::client::debounce::Debounce;
use crate::client::direct;
use crate::client::failure::malformed;
use crate::client::fence;
use crate::client::garbage;
use crate::client::held_keys::HeldKeys;
use crate::client::keys::Keys;
use crate::client::measure;
use crate::client::regions::{Nodes, Regions};
use crate::client::registration::Registration;
use crate::client::shared::{RowBytes, Shared};
use crate::client::sizes::Sizes;
use crate::client::snapshot::{Base, Pairs, Snapshot};
use crate::client::stamps::{self, DurableStamp, InFlight};
use crate::client::transaction::Transaction;
use crate::client::trees::{self, TreeIds};
use crate::client::value::{self, Stored};
use crate::collected::Collected;
use crate::options::ClusterOptions;
use crate::stats::{ClusterStats, Requests};
use crate::tree_size::TreeSize;

/// A handle to a cluster. Clones are cheap and share everything.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) shared: Arc<Shared>,
}

impl Cluster {
    /// Connects to a cluster.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], [`Error::Unavailable`].
    pub fn open(options: ClusterOptions) -> Result<Cluster> {
        let connection = Connection::open(&options)?;
        let keys = Keys::new(&options.key_prefix);
        let snapshots = Arc::new(InFlight::default());
        // Nothing is read before PD keeps it.
        let deployment = keys.prefix_as_text();
        let registration =
            Registration::begin(&connection, &deployment, &options, snapshots.clone())?;
        let instance = trees::add(&connection, keys.last_instance(), 1, 0)
            .inspect_err(|_| registration.end(&connection))?;
        let slots = Slots::default();
        slots.begin_instance(instance, true);
        let shared = Arc::new(Shared {
            connection,
            keys,
            merge: options.merge,
            counters: options.counters,
            slots,
            held: HeldKeys::default(),
            tree_ids: TreeIds::default(),
            memory: MemoryBudget::for_clients(options.client_bytes),
            in_flight: Arc::new(InFlight::default()),
            snapshots,
            registration: Arc::new(registration),
            durable_stamp: DurableStamp::default(),
            debounce: Debounce::default(),
            regions: Regions::default(),
            nodes: Nodes::default(),
            row_bytes: RowBytes::default(),
            tree_sizes: Sizes::default(),
            collected: Mutex::default(),
        });
        let (weak, registration) = (Arc::downgrade(&shared), shared.registration.clone());
        std::thread::Builder::new()
            .name("versions".to_owned())
            .spawn(move || renew_registration(&weak, &registration))
            .map_err(|source| Error::Io {
                context: "starting the thread that renews what PD keeps".to_owned(),
                source,
            })?;
        Ok(Cluster { shared })
    }

    /// The number of this instance of a server, which is never used again by another one.
    pub fn instance(&self) -> u32 {
        self.shared.slots.instance()
    }

    /// An id for a new tree. Ids are never used twice.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn allocate_tree(&self) -> Result<TreeId> {
        let shared = &self.shared;
        shared.tree_ids.allocate(&shared.connection, &shared.keys)
    }

    /// A consistent view of everything that is committed now. If the cluster does not answer, its reads fail.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.shared)
    }

    /// The snapshot with this stamp ([`Snapshot::stamp`]), on any server. A commit that is based on it conflicts with what has changed
    /// since. `None` if the stamp is not that of a snapshot. Its reads fail with [`Error::SnapshotLost`] if garbage was collected up
    /// to there.
    pub fn snapshot_at(&self, stamp: u64) -> Option<Snapshot> {
        let at = stamps::snapshot_of(stamp)?;
        Some(Snapshot {
            base: Arc::new(Base::past(&self.shared, at)),
            own: None,
        })
    }

    /// The newest committed value of a key: one request, without a timestamp. The outer `None` is for a value that is too large for
    /// that, and if something is in the way: a snapshot reads it then.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Interrupted`].
    pub fn get_latest(&self, tree: TreeId, key: &[u8]) -> Result<Option<Option<Vec<u8>>>> {
        if self.shared.is_counter(tree, key) {
            return Ok(None);
        }
        let stored_key = self.shared.keys.value(tree, key);
        let stored = match direct::get(&self.shared, stored_key)? {
            None => return Ok(None),
            Some(None) => return Ok(Some(None)),
            Some(Some(stored)) => stored,
        };
        match value::read(stored) {
            Some(Stored::Whole(value)) if self.shared.keys.long().is_long(key) => {
                let (_, value) = value::split_tail(&value).ok_or_else(|| malformed(tree, key))?;
                Ok(Some(Some(value.to_vec())))
            }
            Some(Stored::Whole(value)) => Ok(Some(Some(value))),
            Some(Stored::InParts(_)) => Ok(None),
            None => Err(malformed(tree, key)),
        }
    }

    /// The newest committed pairs whose keys begin with a prefix, with one request, without a timestamp. `None` if there are `limit` or
    /// more, if a value is too large for that, and if something is in the way: a snapshot reads them then.
    ///
    /// # Errors
    /// As [`Cluster::get_latest`].
    pub fn scan_latest(&self, tree: TreeId, prefix: &[u8], limit: u32) -> Result<Option<Pairs>> {
        let shared = &self.shared;
        if shared.is_counter(tree, prefix) || prefix.is_empty() {
            return Ok(None);
        }
        let lower = shared.keys.value(tree, prefix);
        let upper = after_prefix(&lower);
        let Some(stored) = direct::scan(shared, lower, upper, limit)? else {
            return Ok(None);
        };
        let mut pairs = Vec::with_capacity(stored.len());
        for (stored_key, stored) in stored {
            let Some((_, key)) = shared.keys.split(&stored_key) else {
                return Err(malformed(tree, &stored_key));
            };
            match value::read(stored) {
                Some(Stored::Whole(value)) => pairs.push((key.to_vec(), value)),
                Some(Stored::InParts(_)) => return Ok(None),
                None => return Err(malformed(tree, key)),
            }
        }
        Ok(Some(pairs))
    }

    /// Commits a write set: all of it or nothing. Its snapshot serves for one commit. Without guarded keys conflicts with others
    /// are resolved by trying again.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Unavailable`] if nothing was committed, [`Error::OutcomeUnknown`], [`Error::TooLarge`].
    pub fn commit(&self, set: WriteSet<Snapshot>) -> Result<Committed> {
        let (mut operations, base) = set.into_parts();
        commit::commit(&self.shared, &mut operations, base, true)
    }

    /// As [`Cluster::commit`], also without a lease: for the commit that gets one.
    ///
    /// # Errors
    /// As [`Cluster::commit`].
    pub fn commit_without_lease(&self, set: WriteSet<Snapshot>) -> Result<Committed> {
        let (mut operations, base) = set.into_parts();
        commit::commit(&self.shared, &mut operations, base, false)
    }

    /// Goes on as a new instance of a server, which may not commit before [`Cluster::set_lease`].
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn begin_instance(&self) -> Result<()> {
        let shared = &self.shared;
        let instance = trees::add(&shared.connection, shared.keys.last_instance(), 1, 0)?;
        shared.slots.begin_instance(instance, false);
        Ok(())
    }

    /// Allows commits whose snapshots have timestamps from `since` on, and of times up to `until_ms`. Without it all are allowed.
    pub fn set_lease(&self, since: u64, until_ms: u64) {
        self.shared.slots.set_lease(since, until_ms);
    }

    /// Moves the end of the lease.
    pub fn extend_lease(&self, until_ms: u64) {
        self.shared.slots.extend_lease(until_ms);
    }

    /// Returns when no commit of another instance can take place any more whose snapshot was taken up to `until_ms`, the end of
    /// its lease. It may get [`Error::Conflict`], or find out that its commit took place before.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Interrupted`].
    pub fn fence(&self, instance: u32, until_ms: u64) -> Result<()> {
        fence::fence(&self.shared, instance, until_ms)
    }

    /// Begins a transaction on a snapshot, which serves for no other commit.
    pub fn begin(&self, snapshot: &Snapshot) -> Transaction {
        Transaction::begin(&self.shared, snapshot)
    }

    /// Returns when the open transaction of this server that holds a key has ended; at once if there is none.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn await_transaction(&self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.shared.held.wait(tree, key)
    }

    /// A timestamp that no snapshot of this server has a lower one than, but for those that are lost.
    pub fn oldest_snapshot(&self) -> u64 {
        let shared = &self.shared;
        let oldest = shared.snapshots.oldest(&shared.connection);
        oldest.max(shared.registration.lost_before())
    }

    /// Removes what only snapshots before `needed` can see, the oldest timestamp that any server needs. It keeps what has changed
    /// within `retention`, and what the instances in `live` have.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Interrupted`].
    pub fn collect_garbage(
        &self,
        needed: u64,
        retention: Duration,
        live: &[u32],
    ) -> Result<Collected> {
        let now = self.shared.connection.timestamp()?.version() >> PHYSICAL_SHIFT;
        let retention = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
        let safepoint = now.saturating_sub(retention) << PHYSICAL_SHIFT;
        let done = garbage::collect(&self.shared, safepoint.min(needed), live);
        let mut collected = self.shared.collected.lock();
        match &done {
            Ok(run) => collected.add(run),
            Err(error) => {
                collected.failed_runs += 1;
                (self.shared.registration).report(&format!(
                    "a run of the garbage collector has failed: {error}"
                ));
            }
        }
        done
    }

    /// The time of the cluster's clock in milliseconds. It is the same on all servers but for a request's time.
    pub fn now_ms(&self) -> u64 {
        self.shared.connection.now_ms()
    }

    /// The memory budget of the process, for what is held for clients.
    pub fn memory(&self) -> &MemoryBudget {
        &self.shared.memory
    }

    /// The entries of a tree, counted up to some thousands.
    ///
    /// # Errors
    /// [`frond_kv::Error::Unavailable`].
    pub fn count(&self, tree: TreeId) -> Result<u64> {
        const MAX: u64 = 4096;
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let snapshot = self.snapshot();
        let mut cursor = snapshot.cursor(tree, low, high, Direction::Forward)?;
        let mut entries = 0;
        while entries < MAX && cursor.next()?.is_some() {
            entries += 1;
        }
        Ok(entries)
    }

    /// Estimates the space of a tree from its number of rows. The estimate may be some seconds old.
    ///
    /// # Errors
    /// [`frond_kv::Error::Unavailable`].
    pub fn tree_size(&self, tree: TreeId, rows: u64) -> Result<TreeSize> {
        measure::tree_size(&self.shared, tree, rows)
    }

    /// The last stamp that readers may rely on: all commits with stamps up to it are in every snapshot that is taken from now
    /// on, and no commit will take a stamp up to it.
    pub fn durable_stamp(&self) -> u64 {
        self.shared.durable_stamp.get()
    }

    /// Sets the function that is called whenever [`Cluster::durable_stamp`] has grown, with the stamp.
    pub fn set_stamp_listener(&self, listener: Arc<dyn Fn(u64) + Send + Sync>) {
        self.shared.durable_stamp.set_listener(listener);
    }

    /// Sets how the bound of this server is combined with those of the other servers: the function gets the first stamp that
    /// commits of this server may still take, and returns the first one that any may take, or `None` if that is not known.
    /// Without it this server is taken for the only one.
    pub fn set_stamp_combination(&self, combine: Arc<dyn Fn(u64) -> Option<u64> + Send + Sync>) {
        self.shared.durable_stamp.set_combine(combine);
    }

    /// The first stamp that commits of this server may still take.
    ///
    /// # Errors
    /// [`frond_kv::Error::Unavailable`].
    pub fn stamps_bound(&self) -> Result<u64> {
        Ok(stamps::bound(stamps::settled(
            &self.shared.in_flight,
            &self.shared.connection,
        )?))
    }

    /// A stamp that no commit acknowledged before is above, and that later commits are not below.
    ///
    /// # Errors
    /// [`frond_kv::Error::Unavailable`].
    pub fn stamp_now(&self) -> Result<u64> {
        Ok(stamps::bound(self.shared.connection.timestamp()?.version())
            | u64::from(stamps::STAMPS_MAX - 1))
    }

    /// Raises [`Cluster::durable_stamp`] to what is visible now.
    ///
    /// # Errors
    /// [`frond_kv::Error::Unavailable`].
    pub fn settle_durable_stamp(&self) -> Result<()> {
        (self.shared.durable_stamp).raise(&self.shared.in_flight, &self.shared.connection)
    }

    /// The same soon, without waiting. Repeated calls within some milliseconds are one.
    pub fn request_durable_stamp(&self) {
        let weak = Arc::downgrade(&self.shared);
        self.shared.debounce.request(move || {
            if let Some(shared) = weak.upgrade() {
                // The next request tries again.
                let _ = (shared.durable_stamp).raise(&shared.in_flight, &shared.connection);
            }
        });
    }

    /// Ends what PD keeps for this server. Reads of snapshots fail afterwards.
    ///
    /// # Errors
    /// None now.
    pub fn close(&self) -> Result<()> {
        self.shared.registration.end(&self.shared.connection);
        Ok(())
    }

    /// Requests since the cluster was opened.
    pub fn stats(&self) -> ClusterStats {
        stats_of(&self.shared)
    }
}

/// Renews what PD keeps for the snapshots of a server, as long as it runs.
fn renew_registration(shared: &Weak<Shared>, registration: &Registration) {
    while registration.sleep() {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        // The next try comes soon. Meanwhile each read that needs it tries, too.
        let _ = registration.renew(&shared.connection);
    }
}

fn stats_of(shared: &Shared) -> ClusterStats {
    let calls: &Calls = &shared.connection.calls;
    let figure = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let requests = |kind| {
        let timed = calls.timed(kind);
        Requests {
            count: figure(&timed.count),
            micros: figure(&timed.micros),
        }
    };
    let current = shared.connection.reach().clients.current();
    ClusterStats {
        timestamps: requests(Kind::Timestamp),
        gets: requests(Kind::Get),
        scans: requests(Kind::Scan),
        commits: requests(Kind::Commit),
        regions: requests(Kind::Region),
        collector: requests(Kind::Collector),
        conflicts: figure(&calls.conflicts),
        unknown_outcomes: figure(&calls.unknown),
        retries: figure(&calls.retries),
        reconnections: current.generation,
        limit_ms: u64::try_from(current.limit.as_millis()).unwrap_or(u64::MAX),
        round_trips: figure(&calls.round_trips),
        kept: shared.registration.stats(),
        collected: *shared.collected.lock(),
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}
