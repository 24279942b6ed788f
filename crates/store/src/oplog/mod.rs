//! The oplog: what was written, in the order of the commits.
//!
//! It lies in a tree of its own. The key of an entry is its timestamp, which the engine gives out in the commit that stores
//! the entry together with the documents it describes. So a snapshot has all entries up to its last one, and the documents
//! as of that one. Every change of a document has an entry of its own; a transaction is one entry, or a chain.
//!
//! While it is on, another tree holds documents as they were before their changes, for collections that ask for it
//! ([`pre_images`]). To turn the oplog off drops both trees: an oplog with a gap is of no use.

mod log;
mod marks;
mod pre_images;
pub mod readers;

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, Timestamp, doc};
use frond_error::ErrorCode;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::cluster_time::ClusterTime;
use crate::signal::TailSignal;
use frond_oplog::entry::{Entry, Kind, RawEntry};
use frond_storage::clock::now_ms;
use frond_storage::error::{Error, Result, command, corrupt};
use frond_storage::keyspace::{
    CATALOG_TREE, Compression, Direction, Durability, Engine, Interrupt, MemberLog, Snapshot,
    TreeId, TreeOptions, Wait, WaitFor, WriteSet,
};
use frond_storage::merge::Counts;
use frond_storage::namespace::Namespace;
use frond_storage::points::point;
pub(crate) use log::{Batch, Change, Log, TransactionLog};
use marks::Marks;
pub use marks::Trimmed;
use readers::{InFlightCommit, Places, Readers};

/// The number of attempts of a commit that waits for longer than times are reserved ahead.
const ATTEMPTS_MAX: u32 = 10;

/// The longest wait of a reader of the oplog for what other servers have written before, and the interval of its checks.
const OTHERS_WAIT: Duration = Duration::from_secs(1);
const OTHERS_LOOK: Duration = Duration::from_millis(20);

/// The longest wait of a reader of the oplog for the members of a replica set, and the interval of its checks.
const MEMBERS_WAIT: Duration = Duration::from_millis(200);
const MEMBERS_LOOK: Duration = Duration::from_millis(1);

/// Up to this number of entries, only the readers of their collections are notified. For more entries all readers are.
const LOOKED_AT_MAX: usize = 500;

/// The size of the oplog.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OplogSettings {
    /// Beyond this size the oldest entries are removed.
    pub bytes_max: u64,
    /// Entries that are younger are kept in any case.
    pub min_retention_hours: f64,
}

impl OplogSettings {
    /// The smallest size that a server sets, as in MongoDB.
    pub const BYTES_MIN: u64 = 990 << 20;
}

/// The two trees of the oplog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trees {
    pub entries: TreeId,
    /// The documents before their changes.
    pub pre_images: TreeId,
}

impl Trees {
    fn to_bits(self) -> u64 {
        u64::from(self.entries.0) << 32 | u64::from(self.pre_images.0)
    }

    /// `None` for 0: tree 0 is that of the catalog.
    fn from_bits(bits: u64) -> Option<Trees> {
        let tree = |bits: u64| u32::try_from(bits).map(TreeId).ok();
        let trees = Trees {
            entries: tree(bits >> 32)?,
            pre_images: tree(bits & u64::from(u32::MAX))?,
        };
        (bits != 0).then_some(trees)
    }
}

/// The size that a commit adds to the oplog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Added {
    pub entries: u32,
    /// Bytes of their values.
    pub bytes: u64,
}

impl Added {
    /// Counts one more entry.
    pub fn count(&mut self, bytes: usize) {
        self.entries += 1;
        self.bytes += bytes as u64;
    }
}

/// The oplog of a store, on or off.
pub struct Oplog {
    engine: Engine,
    cluster_time: Arc<ClusterTime>,
    /// The trees ([`Trees::to_bits`]), 0 while it is off. One value, so that the tree of the entries is never seen without that of
    /// the pre-images.
    trees: AtomicU64,
    /// The timestamps of the first and of the last entry.
    first: AtomicU64,
    last: AtomicU64,
    /// The last entry when the store was opened: all that was in it then is durable.
    opened_at: u64,
    settings: Mutex<OplogSettings>,
    /// Held by what changes the trees or removes entries, and shared by others that are no writers of documents: a change of the
    /// oplog keeps those out by their gates. It is taken behind the gates.
    maintenance: RwLock<()>,
    readers: Arc<Readers>,
    /// Notified when a member has applied an entry of its leader, or leads itself.
    applied: Arc<TailSignal>,
    marks: Marks,
}

/// The catalog's entry of the oplog.
struct Stored {
    trees: Trees,
    settings: OplogSettings,
}

impl Stored {
    fn read(entry: &Doc) -> Option<Stored> {
        let tree = |name| u32::try_from(entry.get_i64(name)?).ok().map(TreeId);
        Some(Stored {
            trees: Trees {
                entries: tree("tree")?,
                pre_images: tree("preImages")?,
            },
            settings: OplogSettings {
                bytes_max: u64::try_from(entry.get_i64("bytesMax")?).ok()?,
                min_retention_hours: entry.get_f64("minRetentionHours")?,
            },
        })
    }

    /// The entry of an engine.
    fn load(engine: &Engine) -> Result<Option<Stored>> {
        if engine.has_tree(CATALOG_TREE)? {
            Stored::in_snapshot(&engine.snapshot())
        } else {
            Ok(None)
        }
    }

    fn in_snapshot(snapshot: &Snapshot) -> Result<Option<Stored>> {
        let stored = snapshot.get(CATALOG_TREE, Oplog::KEY)?;
        let Some(stored) = stored else {
            return Ok(None);
        };
        let entry = Doc::validate(&stored).ok().and_then(Stored::read);
        let entry = entry.ok_or_else(|| corrupt("the catalog entry of the oplog"))?;
        Ok(Some(entry))
    }

    fn put(&self, batch: &mut WriteSet) {
        let entry = doc! {
            "tree": i64::from(self.trees.entries.0),
            "preImages": i64::from(self.trees.pre_images.0),
            "bytesMax": i64::try_from(self.settings.bytes_max).unwrap_or(i64::MAX),
            "minRetentionHours": self.settings.min_retention_hours,
        };
        batch.put(CATALOG_TREE, Oplog::KEY, entry.as_bytes());
    }
}

/// Whether changes of a collection have entries: not those of what belongs to this server alone.
pub(crate) fn has_entries(ns: &Namespace) -> bool {
    ns.db() != "local"
        && ns.coll() != "system.profile"
        && !(ns.db() == "config" && ns.coll().starts_with("system."))
}

impl Oplog {
    /// The key of its entry in the catalog tree.
    pub(crate) const KEY: &[u8] = &[9];

    /// The message of the first entry of a store's first oplog, as in MongoDB: nothing that has a time was written before.
    pub(crate) const FIRST_ENTRY: &str = "initiating set";

    /// The oplog of an engine, as it was left.
    ///
    /// # Errors
    /// `DataCorruptionDetected` (301), errors of the engine.
    pub(crate) fn open(engine: &Engine, cluster_time: Arc<ClusterTime>) -> Result<Oplog> {
        let stored = Stored::load(engine)?;
        // A log that was cut may have lost a tree.
        let stored = match stored {
            Some(stored)
                if engine.has_tree(stored.trees.entries)?
                    && engine.has_tree(stored.trees.pre_images)? =>
            {
                Some(stored)
            }
            _ => None,
        };
        let settings = stored.as_ref().map(|stored| stored.settings);
        let readers = if cluster_time.is_shared() {
            Readers::beside_others()
        } else {
            Readers::default()
        };
        let mut oplog = Oplog {
            engine: engine.clone(),
            cluster_time,
            trees: AtomicU64::new(0),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            opened_at: 0,
            settings: Mutex::new(settings.unwrap_or(OplogSettings {
                bytes_max: OplogSettings::BYTES_MIN,
                min_retention_hours: 0.0,
            })),
            maintenance: RwLock::new(()),
            readers: Arc::new(readers),
            applied: Arc::default(),
            marks: Marks::default(),
        };
        let readers = Arc::downgrade(&oplog.readers);
        engine.set_stamp_listener(Arc::new(move |durable| {
            if let Some(readers) = readers.upgrade() {
                readers.advance(durable);
            }
        }));
        if let Some(stored) = stored {
            let snapshot = engine.snapshot();
            oplog
                .marks
                .load(&snapshot, stored.trees.entries, stored.settings.bytes_max)?;
            let last = snapshot.key_upper_bound(stored.trees.entries)?;
            let last = last.as_deref().and_then(timestamp_of_key);
            oplog.opened_at = last.unwrap_or(0);
            oplog.last.store(oplog.opened_at, Ordering::Release);
            oplog.load_first(&snapshot, stored.trees.entries)?;
            oplog.set_trees(Some(stored.trees));
            // The listener is notified of later changes only.
            oplog.readers.advance(oplog.durable());
        }
        Ok(oplog)
    }

    /// Takes over that another server has turned the oplog on or off, or changed how much is kept. The caller sees to it that
    /// nothing is committed meanwhile, if it was turned on or off.
    ///
    /// # Errors
    /// As [`Oplog::open`].
    pub(crate) fn reload(&self, snapshot: &Snapshot) -> Result<()> {
        let stored = Stored::in_snapshot(snapshot)?;
        if let Some(stored) = &stored {
            *self.settings.lock() = stored.settings;
        }
        let trees = stored.as_ref().map(|stored| stored.trees);
        if trees == self.trees() {
            return Ok(());
        }
        let _alone = self.maintenance.write();
        self.marks.clear();
        let mut last = 0;
        if let Some(stored) = &stored {
            let bytes_max = stored.settings.bytes_max;
            (self.marks).load(snapshot, stored.trees.entries, bytes_max)?;
            let key = snapshot.key_upper_bound(stored.trees.entries)?;
            last = key.as_deref().and_then(timestamp_of_key).unwrap_or(0);
            self.load_first(snapshot, stored.trees.entries)?;
        } else {
            self.first.store(0, Ordering::Release);
        }
        self.last.store(last, Ordering::Release);
        self.set_trees(trees);
        Ok(())
    }

    /// Whether a key of the catalog tree is that of a mark of the oplog.
    pub(crate) fn is_mark(key: &[u8]) -> bool {
        marks::is_key(key)
    }

    /// Finds the first entry again: older ones were removed by the leader of the replica set.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn find_first(&self, snapshot: &Snapshot) -> Result<()> {
        (self.tree()).map_or(Ok(()), |tree| self.load_first(snapshot, tree))
    }

    /// Takes over an entry that the leader of the replica set has written, with this time, and lets the readers know.
    pub(crate) fn note_applied(&self, stamp: u64) {
        let before = self.last.fetch_max(stamp, Ordering::SeqCst);
        self.cluster_time.note_applied(stamp);
        self.applied.notify();
        if self.readers.any() {
            self.readers
                .committed(None, before.saturating_add(1), stamp);
        }
    }

    /// The signal of entries that a member applies.
    pub fn applied(&self) -> &Arc<TailSignal> {
        &self.applied
    }

    /// Counts what this server has not written itself.
    ///
    /// # Errors
    /// Errors of the engine, `DataCorruptionDetected` (301).
    pub(crate) fn count_again(&self, snapshot: &Snapshot) -> Result<()> {
        let Some(tree) = self.tree() else {
            return Ok(());
        };
        self.marks.load(snapshot, tree, self.settings().bytes_max)?;
        self.load_first(snapshot, tree)
    }

    fn set_trees(&self, trees: Option<Trees>) {
        let bits = trees.map_or(0, Trees::to_bits);
        self.trees.store(bits, Ordering::Release);
    }

    /// The trees; `None` while it is off.
    pub(crate) fn trees(&self) -> Option<Trees> {
        Trees::from_bits(self.trees.load(Ordering::Acquire))
    }

    /// Finds the first entry.
    fn load_first(&self, snapshot: &Snapshot, tree: TreeId) -> Result<()> {
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = snapshot.cursor(tree, low, high, Direction::Forward)?;
        let first = cursor.next()?.and_then(|(key, _)| timestamp_of_key(key));
        self.first.store(first.unwrap_or(0), Ordering::Release);
        Ok(())
    }

    /// The tree of the entries, keyed by their timestamps; `None` while it is off.
    pub fn tree(&self) -> Option<TreeId> {
        self.trees().map(|trees| trees.entries)
    }

    /// Whether writes have entries.
    pub fn is_on(&self) -> bool {
        self.tree().is_some()
    }

    /// The timestamp of the oldest entry; the null timestamp while the oplog is off.
    pub fn first(&self) -> Timestamp {
        Timestamp::from_u64(self.first.load(Ordering::Acquire))
    }

    /// The timestamp of the newest entry that was committed.
    pub fn last(&self) -> Timestamp {
        Timestamp::from_u64(self.last.load(Ordering::SeqCst))
    }

    /// The timestamp of the newest entry of a snapshot; the null timestamp if it has none.
    pub(crate) fn last_of(&self, snapshot: &Snapshot) -> Result<Timestamp> {
        let Some(tree) = self.tree() else {
            return Ok(Timestamp::default());
        };
        let last = snapshot.key_upper_bound(tree)?;
        let last = last.as_deref().and_then(timestamp_of_key);
        Ok(Timestamp::from_u64(last.unwrap_or(0)))
    }

    /// The timestamp up to which entries are durable, and in every snapshot taken from now on. No entry up to it comes later.
    pub fn durable(&self) -> u64 {
        self.engine.durable_stamp().max(self.opened_at)
    }

    /// Makes all entries durable that were committed before, for a reader who expects to find them.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn make_durable(&self) -> Result<()> {
        if let Some(now) = self.cluster_time.shared_now()? {
            // Other servers may have written what the reader expects. They publish soon what they are done with.
            let began = Instant::now();
            while self.engine.durable_stamp() < now && began.elapsed() < OTHERS_WAIT {
                Interrupt::check_current()?;
                std::thread::sleep(OTHERS_LOOK);
                self.engine.flush_log()?;
            }
            return Ok(());
        }
        if self.last().to_u64() > self.durable() {
            self.engine.flush_log()?;
            self.await_members()?;
        }
        Ok(())
    }

    /// Waits for a moment until the members of a replica set have what is in the log: readers see no other entries. Without a
    /// majority they see fewer.
    fn await_members(&self) -> Result<()> {
        let Some(files) = self.engine.files() else {
            return Ok(());
        };
        let (end, began) = (files.end_position(), Instant::now());
        while files.committed_position() < end && began.elapsed() < MEMBERS_WAIT {
            Interrupt::check_current()?;
            std::thread::sleep(MEMBERS_LOOK);
        }
        Ok(())
    }

    /// The number of entries and their bytes, about.
    pub fn counts(&self) -> Counts {
        let total = self.marks.total();
        let known = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        Counts {
            documents: known(total.entries),
            bytes: known(total.bytes),
            ..Counts::default()
        }
    }

    /// The readers that wait for entries. Each commit with entries notifies them, and the engine when the entries are durable.
    pub fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// Looks for entries of other servers, and wakes the readers if there are any.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn poll_remote_entries(&self) -> Result<()> {
        // Read before the snapshot, which has all entries up to there.
        let until = self.durable();
        let (Some(tree), Some(before)) = (self.tree(), self.readers.polled_until()) else {
            return Ok(());
        };
        if before >= until {
            return Ok(());
        }
        let snapshot = self.engine.snapshot();
        let low = before.saturating_add(1).to_be_bytes();
        let high = until.saturating_add(1).to_be_bytes();
        let (low, high) = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
        let mut cursor = snapshot.cursor(tree, low, high, Direction::Forward)?;
        let (mut places, mut entries, mut first) = (Places::default(), 0, until);
        while let Some((key, value)) = cursor.next()? {
            first = first.min(timestamp_of_key(key).unwrap_or(before));
            entries += 1;
            if entries > LOOKED_AT_MAX {
                // Each reader looks for itself.
                self.readers.found(None, first, until);
                return Ok(());
            }
            places.add(RawEntry::read(value)?.ns());
        }
        self.readers.found(Some(&places), first, until);
        Ok(())
    }

    /// The limits of its size and age.
    pub fn settings(&self) -> OplogSettings {
        *self.settings.lock()
    }

    /// Bytes of the entries.
    pub fn size_bytes(&self) -> u64 {
        self.marks.total().bytes
    }

    /// About how many entries there are.
    pub fn entries_estimate(&self) -> u64 {
        self.marks.total().entries
    }

    /// Waits for the end of a step that removes entries, whose commit may have to wait.
    fn share_maintenance(&self) -> Result<RwLockReadGuard<'_, ()>> {
        match self.maintenance.try_read() {
            Some(shared) => Ok(shared),
            None => {
                Ok(Wait::begin(WaitFor::Commits)?
                    .until(|time| self.maintenance.try_read_for(time))?)
            }
        }
    }

    /// Changes how much is kept. What is beyond is removed by the next steps of [`Oplog::trim`].
    ///
    /// # Errors
    /// `IllegalOperation` (20) while it is off; errors of the engine.
    pub fn resize(&self, settings: OplogSettings) -> Result<()> {
        let _shared = self.share_maintenance()?;
        let trees = self.trees().ok_or_else(is_off)?;
        let mut kept = self.settings.lock();
        let mut batch = WriteSet::new();
        batch.set_frees_space();
        Stored { trees, settings }.put(&mut batch);
        self.engine.commit(batch, Durability::Logged)?;
        *kept = settings;
        Ok(())
    }

    /// Turns it on, in a commit of its own with the first entry. The caller sees to it that nothing else commits meanwhile.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn turn_on(&self, settings: OplogSettings, trees: [TreeId; 2]) -> Result<()> {
        let _alone = self.maintenance.write();
        let trees = Trees {
            entries: trees[0],
            pre_images: trees[1],
        };
        let mut batch = WriteSet::new();
        // Entries are written once, read in order, and trimmed before long: large pages that compress quickly.
        let options = TreeOptions {
            compression: Compression::Lz4,
            page_bytes: 64 << 10,
            ..TreeOptions::default()
        };
        for tree in [trees.entries, trees.pre_images] {
            batch.create_tree(tree, &options);
        }
        marks::stage_removal(&mut batch);
        Stored { trees, settings }.put(&mut batch);
        let mut added = Added::default();
        // Whoever reads from an earlier time on has missed nothing, if no time was given out before.
        let message = if self.cluster_time.last() == Timestamp::default() {
            Oplog::FIRST_ENTRY
        } else {
            "turning the oplog on"
        };
        let message = doc! {"msg": message};
        put_noop(&mut batch, trees.entries, &message, &mut added);
        self.marks.clear();
        *self.settings.lock() = settings;
        let first = self.commit(batch, added)?.unwrap_or_default();
        self.first.store(first.to_u64(), Ordering::Release);
        self.set_trees(Some(trees));
        Ok(())
    }

    /// Turns it off: all entries and pre-images are dropped. The caller sees to it that nothing else commits meanwhile.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn turn_off(&self) -> Result<()> {
        let _alone = self.maintenance.write();
        let mut batch = WriteSet::new();
        batch.set_frees_space();
        stage_removal(&mut batch, &self.engine)?;
        self.engine.commit(batch, Durability::Logged)?;
        self.set_trees(None);
        self.marks.clear();
        self.first.store(0, Ordering::Release);
        self.last.store(0, Ordering::Release);
        Ok(())
    }

    /// Commits a write set that has the entries `added`. Returns the timestamp of the last one.
    ///
    /// # Errors
    /// Errors of the engine. `WriteConflict` (112) if the commit waited again and again for longer than times are reserved
    /// ahead: nothing is stored then.
    pub(crate) fn commit(&self, batch: WriteSet, added: Added) -> Result<Option<Timestamp>> {
        if added.entries == 0 {
            self.engine.commit(batch, Durability::Logged)?;
            return Ok(None);
        }
        self.prepare()?;
        let again = self.prepare_again();
        let committed = (self.engine).commit_reserving(batch, Durability::Logged, again)?;
        Ok(self.record_commit(committed.first_stamp, added))
    }

    /// Begins a commit that has entries. To be dropped when readers were notified ([`Oplog::notify_readers`]).
    pub(crate) fn begin_commit(&self) -> InFlightCommit<'_> {
        self.readers.begin(self.cluster_time.last().to_u64())
    }

    /// Notifies waiting readers of the entries of a commit, the last of which has this time. Without `places` they may be of any
    /// namespace.
    pub(crate) fn notify_readers(&self, last: Timestamp, added: Added, places: Option<&Places>) {
        let last = last.to_u64();
        let first = last
            .saturating_sub(u64::from(added.entries))
            .saturating_add(1);
        if self.readers.any() && self.readers.committed(places, first, last) {
            // A waiting reader gets the entry before the interval of the journal has passed.
            self.engine.request_sync();
        }
    }

    /// Sees to it that a commit finds timestamps.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn prepare(&self) -> Result<()> {
        if self.is_following() {
            Ok(())
        } else {
            self.cluster_time.reserve_for_commit()
        }
    }

    /// Whether entries come from the leader of the replica set.
    pub fn is_following(&self) -> bool {
        self.cluster_time.is_following()
    }

    /// Reserves timestamps for a commit that found none because it had to wait for long: it is tried again.
    pub(crate) fn prepare_again(&self) -> impl FnMut() -> bool {
        let mut attempts = 0;
        move || {
            attempts += 1;
            attempts < ATTEMPTS_MAX && self.prepare().is_ok()
        }
    }

    /// Notes a commit. Returns the timestamp of its last entry.
    pub(crate) fn record_commit(&self, first: Option<u64>, added: Added) -> Option<Timestamp> {
        let last = first? + u64::from(added.entries.max(1)) - 1;
        // In one order with what the readers do: a commit sees a new reader, or the reader sees the commit.
        self.last.fetch_max(last, Ordering::SeqCst);
        self.cluster_time.saw(last);
        self.marks.add(last, added);
        Some(Timestamp::from_u64(last))
    }

    /// Appends an entry without a change.
    ///
    /// # Errors
    /// `IllegalOperation` (20) while it is off; errors of the engine.
    pub fn append_noop(&self, message: &Doc) -> Result<Timestamp> {
        let _shared = self.share_maintenance()?;
        let tree = self.tree().ok_or_else(is_off)?;
        let (mut batch, mut added) = (WriteSet::new(), Added::default());
        put_noop(&mut batch, tree, message, &mut added);
        let _in_flight = self.begin_commit();
        let at = self.commit(batch, added)?.unwrap_or_default();
        self.notify_readers(at, added, Some(&Places::default()));
        Ok(at)
    }

    /// A step of removing the oldest entries beyond the settings, for a task in the background. `now_ms` is the time in
    /// milliseconds since 1970.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn trim(&self, now_ms: i64) -> Result<Trimmed> {
        let _alone = self.maintenance.write();
        let Some(trees) = self.trees() else {
            return Ok(Trimmed::default());
        };
        let first = self.first.load(Ordering::Acquire);
        // A stream takes its snapshot before it looks at the first entry. So it finds that entries are gone, or it has them.
        let removing = |to: Timestamp| self.first.store(to.to_u64() + 1, Ordering::Release);
        let trimmed = self.marks.trim(
            &self.engine,
            trees.entries,
            self.settings(),
            &self.last,
            now_ms,
            removing,
        );
        let trimmed = trimmed.inspect_err(|_| self.first.store(first, Ordering::Release))?;
        point("the oldest entries of the oplog are removed");
        if trimmed.entries > 0 {
            self.load_first(&self.engine.snapshot(), trees.entries)?;
        }
        Ok(trimmed)
    }
}

/// The timestamp in a key of the oplog's tree.
pub(crate) fn timestamp_of_key(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*key.first_chunk()?))
}

fn put_noop(batch: &mut WriteSet, tree: TreeId, message: &Doc, added: &mut Added) {
    let noop = Entry {
        kind: Kind::Noop,
        ns: "",
        uuid: None,
        wall_ms: Some(now_ms()),
        session: None,
        has_pre_image: false,
        o2: None,
        o: message,
    };
    let mut value = Vec::new();
    noop.encode(&mut value);
    batch.put_stamped(tree, added.entries, &[], &value);
    added.count(value.len());
}

/// Adds the removal of the oplog's trees, and of all that the catalog has of it, to a write set.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn stage_removal(batch: &mut WriteSet, engine: &Engine) -> Result<()> {
    if let Ok(Some(stored)) = Stored::load(engine) {
        for tree in [stored.trees.entries, stored.trees.pre_images] {
            if engine.has_tree(tree)? {
                batch.drop_tree(tree);
            }
        }
    }
    batch.delete(CATALOG_TREE, Oplog::KEY);
    marks::stage_removal(batch);
    Ok(())
}

/// Error 20.
pub(crate) fn is_off() -> Error {
    command(
        ErrorCode::IllegalOperation,
        "this server has no oplog; start it with --replSet or with --oplog",
    )
}

impl std::fmt::Debug for Oplog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown: DocBuf = doc! {"first": self.first(), "last": self.last()};
        write!(f, "Oplog{shown:?}")
    }
}
