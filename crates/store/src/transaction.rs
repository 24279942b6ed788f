//! Handles of the store that do not follow its current state: transactions, and reads at a fixed moment.
//!
//! A handle of [`DocumentStore::in_transaction`] takes the same requests as any other one. What they read and where they
//! write is decided by the handle of the catalog ([`crate::catalog`]).

use std::sync::Arc;

use frond_bson::Timestamp;

use crate::catalog::{Catalog, CatalogSnapshot, OpenTransaction};
use crate::coordination;
use crate::store::DocumentStore;
use frond_oplog::entry::Session;
use frond_storage::error::{Result, not_durable};
use frond_storage::keyspace::{Durability, Interrupt, WriteSet};

/// A transaction over all collections, with snapshot isolation. Cheap to clone; when the last clone and the last handle of
/// it are dropped, it is aborted.
///
/// Its requests must come one after the other. It can be ended at any time, from any thread: later requests then fail with
/// `NoSuchTransaction` (251). A request that failed may have left a part of its writes, so the transaction must be aborted.
#[derive(Clone)]
pub struct Transaction {
    open: Arc<OpenTransaction>,
    catalog: Catalog,
}

/// All collections at one moment, for read concern `snapshot`. Cheap to clone. While a clone lives, the data of the moment
/// is kept in memory or on disk.
#[derive(Clone)]
pub struct SnapshotReads(Arc<CatalogSnapshot>);

impl DocumentStore {
    /// Begins a transaction at the current moment.
    pub fn begin(&self) -> Transaction {
        self.begin_at(&self.snapshot_reads())
    }

    /// Begins a transaction at a moment. The longer it is past, the more commits there are that it can conflict with.
    pub fn begin_at(&self, catalog_snapshot: &SnapshotReads) -> Transaction {
        self.begin_as(catalog_snapshot, false)
    }

    /// Begins a transaction of the server itself at the current moment: it may write to system collections and to databases
    /// that transactions of clients must leave alone.
    pub fn begin_for_server(&self) -> Transaction {
        self.begin_as(&self.snapshot_reads(), true)
    }

    fn begin_as(&self, catalog_snapshot: &SnapshotReads, of_server: bool) -> Transaction {
        Transaction {
            open: Arc::new(self.catalog().begin(&catalog_snapshot.0, of_server)),
            catalog: self.catalog().clone(),
        }
    }

    /// A handle whose requests run in a transaction: they read the moment of its begin and its own writes, and what they
    /// write is invisible to others before the commit.
    ///
    /// A conflict with others is `WriteConflict` (112) at once, also of an upsert. The durability of a request is not looked
    /// at. What a transaction cannot do is refused with `OperationNotSupportedInTransaction` (263).
    #[must_use]
    pub fn in_transaction(&self, transaction: &Transaction) -> DocumentStore {
        self.with_catalog(self.catalog().in_transaction(&transaction.open))
    }

    /// The current moment. It sees all commits that were acknowledged before.
    pub fn snapshot_reads(&self) -> SnapshotReads {
        SnapshotReads(Arc::new(self.catalog().catalog_snapshot()))
    }

    /// With other servers in a cluster: the current moment, and a time by which any server finds the same moment
    /// ([`DocumentStore::snapshot_reads_at`]). `None` otherwise.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn timed_snapshot_reads(&self) -> Result<Option<(SnapshotReads, Timestamp)>> {
        loop {
            let reads = self.snapshot_reads();
            let Some(stamp) = coordination::cluster::stamp_of(reads.0.snapshot())? else {
                return Ok(None);
            };
            if let Some(stamp) = stamp {
                self.cluster_time().saw(stamp);
                return Ok(Some((reads, Timestamp::from_u64(stamp))));
            }
            Interrupt::check_current()?;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// The moment of a time that a server of the cluster has given out with it. `None` if it is no such time.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn snapshot_reads_at(&self, time: Timestamp) -> Result<Option<SnapshotReads>> {
        let catalog_snapshot = self.catalog().catalog_snapshot_at(time.to_u64())?;
        Ok(catalog_snapshot.map(|catalog_snapshot| SnapshotReads(Arc::new(catalog_snapshot))))
    }

    /// A handle that reads at a moment. It cannot write: its requests fail with `IllegalOperation` (20).
    #[must_use]
    pub fn at(&self, catalog_snapshot: &SnapshotReads) -> DocumentStore {
        self.with_catalog(self.catalog().at(&catalog_snapshot.0))
    }
}

impl Transaction {
    /// Commits everything that was written in it, or nothing. Without any writes this only ends it.
    ///
    /// # Errors
    /// `WriteConflict` (112) if another one was faster or changed the definition of a collection; `NoSuchTransaction` (251)
    /// after its end; errors of the engine. It is aborted then. Only after `WriteConcernTimeout` (64) it is committed, but
    /// could not be made durable yet.
    pub fn commit(&self, durability: Durability) -> Result<()> {
        self.commit_with(durability, None, |_| {})
    }

    /// As [`Transaction::commit`], together with what `extra` puts into the same write set, such as the record of a session.
    /// `session` is that of its entry in the oplog.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub(crate) fn commit_with(
        &self,
        durability: Durability,
        session: Option<Session>,
        extra: impl FnOnce(&mut WriteSet),
    ) -> Result<()> {
        let writes = (self.catalog).commit_transaction(&self.open, session, extra)?;
        if writes && durability == Durability::Synced {
            // The commit is applied whether or not the sync succeeds.
            self.catalog.engine().flush_log().map_err(not_durable)?;
        }
        Ok(())
    }

    /// The timestamp of its last entry in the oplog; `None` if it has none, and before the commit.
    pub fn committed_at(&self) -> Option<Timestamp> {
        self.open.committed_at()
    }

    /// The catalog that it is a transaction of.
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Aborts it: nothing of it is left. Waits for a request that is staging its writes. It is no error after the end.
    pub fn abort(&self) {
        self.open.abort();
    }

    /// Whether it is neither committed nor aborted.
    pub fn is_open(&self) -> bool {
        self.open.is_open()
    }

    /// Whether it has written anything. False after its end.
    pub fn has_written(&self) -> bool {
        self.open.has_written()
    }

    /// Bytes of memory that its writes take.
    pub fn bytes(&self) -> usize {
        self.open.bytes()
    }

    /// Bytes of memtables that its begin keeps in memory beyond the current state of the store.
    pub fn retained_bytes(&self) -> u64 {
        let snapshot = self.open.snapshot();
        snapshot.map_or(0, |snapshot| self.catalog.engine().retained_by(&snapshot))
    }

    /// Lets go of these, for a transaction that is idle while memory is scarce. What it reads is the same.
    ///
    /// # Errors
    /// Errors of the engine. If there is no room on the disk it keeps what it has, and can go on.
    pub fn detach(&self) -> Result<()> {
        self.open.detach()
    }
}

impl SnapshotReads {
    /// The last entry of the oplog that it sees.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn last_entry(&self, store: &DocumentStore) -> Result<Timestamp> {
        store.oplog().last_of(self.0.snapshot())
    }

    /// Bytes of memtables that it keeps in memory beyond the current state of the store.
    pub fn retained_bytes(&self, store: &DocumentStore) -> u64 {
        store.engine().retained_by(self.0.snapshot())
    }
}
