//! The handle of a cluster.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frond_tree::{Committed, Direction, MemoryBudget, Result, TreeId, WriteSet};

use tikv::TimestampExt;

use crate::commit;
use crate::connection::Connection;
use crate::counters::Slots;
use crate::held::Held;
use crate::keys::Keys;
use crate::options::ClusterOptions;
use crate::raiser::Raiser;
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::stamps::{self, DurableStamp, InFlight};
use crate::transaction::Transaction;
use crate::trees::{self, TreeIds};

/// A handle to a cluster. Clones are cheap and share everything.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) shared: Arc<Shared>,
}

/// Requests since the cluster was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterStats {
    /// Timestamps asked for.
    pub timestamps: u64,
    /// Look-ups of one key or many.
    pub gets: u64,
    /// Pages of ranges.
    pub scans: u64,
    /// Transactions that were sent.
    pub commits: u64,
    /// Requests that were repeated.
    pub retries: u64,
    /// Steps that came one after the other, each waiting for an answer.
    pub round_trips: u64,
}

impl Cluster {
    /// Connects to a cluster.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], [`Error::Unavailable`].
    pub fn open(options: ClusterOptions) -> Result<Cluster> {
        let connection = Connection::open(&options)?;
        let keys = Keys::new(&options.key_prefix);
        let instance = trees::add(&connection, keys.last_instance(), 1, 0)?;
        Ok(Cluster {
            shared: Arc::new(Shared {
                connection,
                keys,
                merge: options.merge,
                counters: options.counters,
                slots: Slots::new(instance),
                held: Held::default(),
                tree_ids: TreeIds::default(),
                memory: MemoryBudget::for_clients(options.client_bytes),
                in_flight: Arc::new(InFlight::default()),
                durable_stamp: DurableStamp::default(),
                raiser: Raiser::default(),
            }),
        })
    }

    /// The number of this instance of a server, which is never used again.
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

    /// Commits a write set: all of it or nothing. If it has guarded keys, `base` is the snapshot that they must not have changed
    /// since; a snapshot serves for one commit. Without guarded keys conflicts with others are resolved by trying again.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Unavailable`] if nothing was committed, [`Error::OutcomeUnknown`], [`Error::TooLarge`].
    pub fn commit(&self, mut set: WriteSet, base: Option<Snapshot>) -> Result<Committed> {
        commit::commit(&self.shared, &mut set, base)
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
    /// [`frond_tree::Error::Unavailable`].
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
    /// [`frond_tree::Error::Unavailable`].
    pub fn stamps_bound(&self) -> Result<u64> {
        Ok(stamps::bound(stamps::settled(
            &self.shared.in_flight,
            &self.shared.connection,
        )?))
    }

    /// A stamp that no commit acknowledged before is above, and that later commits are not below.
    ///
    /// # Errors
    /// [`frond_tree::Error::Unavailable`].
    pub fn stamp_now(&self) -> Result<u64> {
        Ok(stamps::bound(self.shared.connection.timestamp()?.version())
            | u64::from(stamps::STAMPS_MAX - 1))
    }

    /// Raises [`Cluster::durable_stamp`] to what is visible now.
    ///
    /// # Errors
    /// [`frond_tree::Error::Unavailable`].
    pub fn settle_durable_stamp(&self) -> Result<()> {
        (self.shared.durable_stamp).raise(&self.shared.in_flight, &self.shared.connection)
    }

    /// The same soon, without waiting. Repeated calls within some milliseconds are one.
    pub fn request_durable_stamp(&self) {
        let weak = Arc::downgrade(&self.shared);
        self.shared.raiser.request(move || {
            if let Some(shared) = weak.upgrade() {
                // The next request tries again.
                let _ = (shared.durable_stamp).raise(&shared.in_flight, &shared.connection);
            }
        });
    }

    /// Waits for what was begun. Later commits fail only when the last handle is dropped.
    ///
    /// # Errors
    /// None now.
    pub fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Requests since the cluster was opened.
    pub fn stats(&self) -> ClusterStats {
        let calls = &self.shared.connection.calls;
        let figure = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        ClusterStats {
            timestamps: figure(&calls.timestamps),
            gets: figure(&calls.gets),
            scans: figure(&calls.scans),
            commits: figure(&calls.commits),
            retries: figure(&calls.retries),
            round_trips: figure(&calls.round_trips),
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}
