//! Logical sessions, their transactions, and the results of their retryable writes.
//!
//! A session has one number that grows, and the newest one is of a retryable write or of a transaction (`machine.rs`). One
//! command at a time uses the session for either: it holds the lock of the session, and others of the same session wait.
//!
//! A driver that did not get the reply to a write sends it again with the same session,
//! transaction number and statement ids. A statement that was executed is not executed again: its
//! recorded result is returned. A record is in the commit of its statement, so it survives a crash with what the statement
//! did; the session reads its records when it is first used for a write (`records.rs`). Those of its newest transaction number
//! are kept, until the session expires.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use frond_bson::{DocBuf, OwnedValue};
use frond_error::Result;
use frond_store::{DocumentStore, SnapshotReads, StatementId};
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};

mod id;
mod open;
mod records;
mod txn_state_machine;

pub use id::{SessionId, SessionOwner};
pub use open::{AbortReason, Open};
use txn_state_machine::Machine;
pub use txn_state_machine::{Found, aborted};

/// The interval at which a command that waits for its session checks for an interruption.
const CHECK: Duration = Duration::from_millis(10);

/// Sessions kept. Beyond that, the longest idle ones are dropped.
const SESSIONS_MAX: usize = 100_000;

/// Bytes of recorded results in memory. Beyond that, the longest idle sessions are dropped from memory.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// The effect of an update statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Updated {
    /// Documents matched, or 1 for an upsert.
    pub n: u64,
    pub modified: u64,
    /// The `_id` of the document that was inserted.
    pub upserted: Option<OwnedValue>,
}

/// The recorded result of an executed statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// A document was inserted.
    Insert,
    /// An update of one document.
    Update(Updated),
    /// A delete of one document: how many were deleted.
    Delete(u64),
    /// A `findAndModify`, with its whole reply.
    FindAndModify(DocBuf),
}

impl Recorded {
    /// Its approximate size in memory, in bytes.
    fn bytes(&self) -> usize {
        let own = match self {
            Recorded::Insert | Recorded::Delete(_) => 0,
            Recorded::Update(done) => {
                let upserted = done.upserted.as_ref();
                upserted.map_or(0, |id| id.as_value().len_bytes())
            }
            Recorded::FindAndModify(reply) => reply.len_bytes(),
        };
        size_of::<(i32, Recorded)>() + own
    }
}

/// The state of one session.
pub struct Session {
    last_used: Instant,
    /// Whether its client has ended it, and not used it since.
    is_ended: bool,
    machine: Machine<Arc<Open>>,
    executed: BTreeMap<i32, Recorded>,
    /// Whether its records were read.
    is_loaded: bool,
    /// The leadership in which they were read, see [`Sessions::begin_to_lead`].
    leadership: u64,
    /// Counts the times at which this server became the primary.
    leaderships: Arc<AtomicU64>,
    /// Whether it has stored records.
    is_stored: bool,
    /// Whether it has stored records of other statements than the first one, which later numbers may not replace.
    has_more: bool,
    /// Whether the next stored record clears those of older numbers.
    clears: bool,
    /// Bytes of `executed`.
    bytes: usize,
    /// Bytes of the records of all sessions.
    total: Arc<AtomicUsize>,
    /// Retried statements of all sessions.
    retried: Arc<AtomicU64>,
}

impl Session {
    /// Restarts its idle time: a command begins or ends to use it.
    pub fn used(&mut self) {
        self.last_used = Instant::now();
        self.is_ended = false;
    }

    fn forget(&mut self) {
        self.executed.clear();
        self.total
            .fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }

    /// A new number begins.
    fn renew(&mut self) {
        self.has_more |= self.executed.keys().any(|statement| *statement != 0);
        self.clears |= std::mem::take(&mut self.has_more);
        self.forget();
    }

    /// Ends its open transaction. Returns what it held.
    pub fn end_transaction(&mut self, is_committed: bool) -> Option<Arc<Open>> {
        self.machine.end(is_committed)
    }

    /// Aborts this transaction, if it is open.
    pub fn abort(&mut self, open: &Arc<Open>) -> bool {
        let is_open = self
            .machine
            .open()
            .is_some_and(|held| Arc::ptr_eq(held, open));
        is_open && self.machine.end(false).is_some()
    }

    /// Finds a transaction; see [`txn_state_machine::Machine::find`].
    pub fn find(&self, id: SessionId, number: i64, commits: bool) -> Result<Found<'_, Arc<Open>>> {
        self.machine.find(id, number, commits)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.forget();
    }
}

/// A session that a command uses. Other commands of its transactions and retryable writes wait.
pub type Used = ArcMutexGuard<RawMutex, Session>;

/// The retryable write of a running command. It uses the session, so that a retry that overtakes the first
/// try waits for it.
pub struct RetryableWrite {
    session: Used,
    id: SessionId,
    number: i64,
}

impl RetryableWrite {
    /// The result of a statement that was executed before.
    pub fn executed(&self, statement: i32) -> Option<&Recorded> {
        let known = self.session.executed.get(&statement);
        if known.is_some() {
            self.session.retried.fetch_add(1, Ordering::Relaxed);
        }
        known
    }

    /// Whether a statement was executed before.
    pub fn knows(&self, statement: i32) -> bool {
        self.session.executed.contains_key(&statement)
    }

    /// A statement, for its record in the store.
    pub fn statement(&self, statement: i32) -> StatementId {
        StatementId {
            session: self.id.key(),
            number: self.number,
            statement,
            clears: self.session.clears,
        }
    }

    /// Notes that a statement was executed. `is_stored` says whether it has changed something: its record is in the store
    /// then.
    pub fn record(&mut self, statement: i32, result: Recorded, is_stored: bool) {
        if is_stored {
            self.session.stored();
        }
        self.session.executed(statement, result);
    }
}

impl Drop for RetryableWrite {
    fn drop(&mut self) {
        self.session.used();
    }
}

/// A client's request for a new transaction.
pub struct NewTransaction {
    pub number: i64,
    /// See [`Open::read_level`].
    pub read_level: Option<String>,
    /// The moment that it reads; none for the current one.
    pub at: Option<SnapshotReads>,
    /// See [`Open::client`].
    pub client: DocBuf,
}

/// Counters of transactions, for `serverStatus`.
#[derive(Debug, Default)]
pub struct TransactionCounts {
    pub started: AtomicU64,
    /// Those that were committed.
    pub committed: AtomicU64,
    /// Those that were aborted, by whomever.
    pub aborted: AtomicU64,
    /// Those that the server aborted because they were open for too long.
    pub expired: AtomicU64,
    /// Those that the server aborted because memory was scarce.
    pub aborted_for_memory: AtomicU64,
    /// Commits of transactions that were committed already.
    pub retried_commits: AtomicU64,
}

/// All sessions of a server.
pub struct Sessions {
    all: Mutex<HashMap<SessionId, Arc<Mutex<Session>>>>,
    open: Mutex<HashMap<SessionId, Arc<Open>>>,
    timeout: Duration,
    /// The lifetime of a new transaction, in milliseconds.
    lifetime_ms: AtomicU64,
    search: Mutex<records::Search>,
    record_bytes: Arc<AtomicUsize>,
    retried: Arc<AtomicU64>,
    leaderships: Arc<AtomicU64>,
    pub counts: TransactionCounts,
}

impl Sessions {
    /// No sessions yet. One that is not used expires after `timeout`, a transaction is aborted after `lifetime`.
    pub fn new(timeout: Duration, lifetime: Duration) -> Sessions {
        let sessions = Sessions {
            all: Mutex::default(),
            open: Mutex::default(),
            timeout,
            lifetime_ms: AtomicU64::new(0),
            search: Mutex::default(),
            record_bytes: Arc::default(),
            retried: Arc::default(),
            leaderships: Arc::default(),
            counts: TransactionCounts::default(),
        };
        sessions.set_transaction_lifetime(lifetime);
        sessions
    }

    /// This server becomes the primary. Another one may have written records of sessions meanwhile, so each session reads its own
    /// again.
    pub fn begin_to_lead(&self) {
        self.leaderships.fetch_add(1, Ordering::SeqCst);
    }

    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.all.lock().len()
    }

    /// An unused session expires after this many minutes.
    pub fn timeout_minutes(&self) -> i32 {
        i32::try_from(self.timeout.as_secs() / 60).unwrap_or(i32::MAX)
    }

    /// The lifetime of a new transaction.
    pub fn transaction_lifetime(&self) -> Duration {
        Duration::from_millis(self.lifetime_ms.load(Ordering::Relaxed))
    }

    /// Changes [`Sessions::transaction_lifetime`].
    pub fn set_transaction_lifetime(&self, lifetime: Duration) {
        let ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        self.lifetime_ms.store(ms, Ordering::Relaxed);
    }

    /// Finds or begins a session, and restarts its idle time.
    pub fn touch(&self, id: SessionId) -> Arc<Mutex<Session>> {
        let mut all = self.all.lock();
        if self.record_bytes.load(Ordering::Relaxed) > RECORD_BYTES_MAX {
            shrink(&mut all);
        }
        if let Some((known, session)) = all.get_key_value(&id) {
            // A locked session is in use, so it does not expire.
            if let Some(mut session) = session.try_lock() {
                session.used();
            }
            let session = session.clone();
            // The owner of one that was read from the store is not known until its owner uses it.
            if known.owner().is_none() && id.owner().is_some() {
                all.remove(&id);
                all.insert(id, session.clone());
            }
            return session;
        }
        if all.len() >= SESSIONS_MAX {
            shrink(&mut all);
        }
        let session = Arc::new(Mutex::new(Session {
            last_used: Instant::now(),
            is_ended: false,
            machine: Machine::default(),
            executed: BTreeMap::new(),
            is_loaded: false,
            leadership: 0,
            leaderships: self.leaderships.clone(),
            is_stored: false,
            has_more: false,
            clears: false,
            bytes: 0,
            total: self.record_bytes.clone(),
            retried: self.retried.clone(),
        }));
        all.insert(id, session.clone());
        session
    }

    /// Uses a session, once the command that uses it has ended. `check` indicates whether to go on waiting.
    ///
    /// # Errors
    /// Those of `check`.
    pub fn enter(&self, id: SessionId, check: impl Fn() -> Result<()>) -> Result<Used> {
        let session = self.touch(id);
        let mut used = match session.try_lock_arc() {
            Some(used) => used,
            None => loop {
                check()?;
                if let Some(used) = session.try_lock_arc_for(CHECK) {
                    break used;
                }
            },
        };
        used.used();
        Ok(used)
    }

    /// Waits for the session, and begins or continues its retryable write with this number. Returns the transaction that was
    /// open in the session until then, for the caller to abort.
    ///
    /// # Errors
    /// Those of `check`, and those of [`txn_state_machine::Machine::write`].
    pub fn begin_write(
        &self,
        id: SessionId,
        number: i64,
        store: &DocumentStore,
        check: impl Fn() -> Result<()>,
    ) -> Result<(RetryableWrite, Option<Arc<Open>>)> {
        let mut session = self.enter(id, check)?;
        session.load(id, store)?;
        let changed = session.machine.write(id, number)?;
        if changed.is_new {
            session.renew();
        }
        let write = RetryableWrite {
            session,
            id,
            number,
        };
        Ok((write, changed.displaced))
    }

    /// Begins a transaction of a session that is used. Returns it, and the one that was open until then, for the caller to
    /// abort.
    ///
    /// # Errors
    /// Those of [`txn_state_machine::Machine::start`].
    pub fn begin_transaction(
        &self,
        session: &mut Used,
        id: SessionId,
        asked: NewTransaction,
        store: &DocumentStore,
    ) -> Result<(Arc<Open>, Option<Arc<Open>>)> {
        let number = asked.number;
        let owner = Arc::downgrade(ArcMutexGuard::mutex(session));
        let displaced = session.machine.start(id, number, || {
            let transaction = match &asked.at {
                Some(moment) => store.begin_at(moment),
                None => store.begin(),
            };
            Ok(Arc::new(Open {
                session: id,
                number,
                store: store.in_transaction(&transaction),
                transaction,
                started: Instant::now(),
                started_ms: crate::host::clock::now_ms(),
                lifetime: self.transaction_lifetime(),
                read_level: asked.read_level,
                client: asked.client,
                has_cursors: AtomicBool::new(false),
                owner,
                abort_reason: AtomicU8::new(0),
                activity: Mutex::default(),
            }))
        })?;
        session.renew();
        let open = match session.machine.open() {
            Some(open) => open.clone(),
            None => return Err(aborted(number)),
        };
        self.open.lock().insert(id, open.clone());
        self.counts.started.fetch_add(1, Ordering::Relaxed);
        Ok((open, displaced))
    }

    /// Forgets a transaction that has ended. False if it is not known.
    pub fn forget_open(&self, open: &Arc<Open>) -> bool {
        let mut all = self.open.lock();
        let is_known = all
            .get(&open.session)
            .is_some_and(|other| Arc::ptr_eq(other, open));
        is_known && all.remove(&open.session).is_some()
    }

    /// The open transaction of a session.
    pub fn open_transaction(&self, id: SessionId) -> Option<Arc<Open>> {
        self.open.lock().get(&id).cloned()
    }

    /// The open transactions, the oldest first.
    pub fn open_transactions(&self) -> Vec<Arc<Open>> {
        let mut list: Vec<_> = self.open.lock().values().cloned().collect();
        list.sort_by_key(|open| open.started);
        list
    }

    /// Number of statements that were retried and not executed again.
    pub fn retried(&self) -> u64 {
        self.retried.load(Ordering::Relaxed)
    }

    /// The ids of all sessions.
    pub fn list(&self) -> Vec<SessionId> {
        self.all.lock().keys().copied().collect()
    }
}

impl Open {
    /// Marks it for the server to abort it. Returns its session, to abort it at once unless a statement runs: then that
    /// statement aborts it at its end.
    pub fn mark_for_abort(&self, why: AbortReason) -> Option<Arc<Mutex<Session>>> {
        self.abort_reason.store(why as u8, Ordering::SeqCst);
        self.owner.upgrade()
    }

    pub fn begin_statement(&self) {
        self.activity.lock().begin(Instant::now());
    }

    /// The statement has ended.
    pub fn end_statement(&self) {
        self.activity.lock().end(Instant::now());
    }
}

/// Drops the longest idle sessions, until their number and their bytes are a tenth below the limits.
fn shrink(all: &mut HashMap<SessionId, Arc<Mutex<Session>>>) {
    let mut ages: Vec<(Instant, SessionId)> = all
        .iter()
        .filter_map(|(id, session)| {
            let session = session.try_lock()?;
            session
                .machine
                .open()
                .is_none()
                .then_some((session.last_used, *id))
        })
        .collect();
    ages.sort();
    for (_, id) in ages {
        let Some(total) = all
            .get(&id)
            .and_then(|session| Some(session.try_lock()?.total.clone()))
        else {
            continue;
        };
        let bytes = total.load(Ordering::Relaxed);
        if all.len() <= SESSIONS_MAX / 10 * 9 && bytes <= RECORD_BYTES_MAX / 10 * 9 {
            return;
        }
        all.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_store::StoreOptions;
    use frond_store::disk::FsDisk;

    use frond_bson::doc;
    use frond_error::{Error, ErrorCode};

    use super::*;

    fn empty_store() -> (tempfile::TempDir, DocumentStore) {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(FsDisk::new(directory.path().to_owned(), false));
        let store = DocumentStore::open_on_disk(disk, StoreOptions::default()).unwrap();
        (directory, store)
    }

    fn sessions() -> Sessions {
        Sessions::new(Duration::from_secs(30 * 60), Duration::from_secs(60))
    }

    fn begin(
        sessions: &Sessions,
        store: &DocumentStore,
        id: SessionId,
        number: i64,
    ) -> Result<RetryableWrite> {
        let (write, displaced) = sessions.begin_write(id, number, store, || Ok(()))?;
        assert!(displaced.is_none());
        Ok(write)
    }

    /// A retry that overtakes the first try waits for it, and can be interrupted.
    #[test]
    fn one_command_uses_a_session() {
        let sessions = sessions();
        let (_directory, store) = empty_store();
        let id = SessionId::random();
        let first = begin(&sessions, &store, id, 1).unwrap();
        let checks = std::cell::Cell::new(0);
        let interrupted = || {
            checks.set(checks.get() + 1);
            match checks.get() {
                3 => Err(Error::new(ErrorCode::Interrupted, "killed")),
                _ => Ok(()),
            }
        };
        let waited = sessions.begin_write(id, 1, &store, interrupted);
        assert_eq!(waited.err().unwrap().code(), ErrorCode::Interrupted);
        // Another session need not wait.
        assert!(begin(&sessions, &store, SessionId::random(), 1).is_ok());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                begin(&sessions, &store, id, 1)
                    .unwrap()
                    .executed(0)
                    .cloned()
            });
            let mut first = first;
            first.record(0, Recorded::Insert, true);
            drop(first);
            assert_eq!(second.join().unwrap(), Some(Recorded::Insert));
        });
    }

    #[test]
    fn a_statement_is_recorded_for_its_transaction_number() {
        let sessions = sessions();
        let (_directory, store) = empty_store();
        let id = SessionId::random();
        let session = sessions.touch(id);
        let mut write = begin(&sessions, &store, id, 5).unwrap();
        assert_eq!(write.executed(0), None);
        write.record(0, Recorded::Delete(1), true);
        drop(write);
        let write = begin(&sessions, &store, id, 5).unwrap();
        assert_eq!(write.executed(0), Some(&Recorded::Delete(1)));
        drop(write);
        assert_eq!(begin(&sessions, &store, id, 6).unwrap().executed(0), None);
        let failure = begin(&sessions, &store, id, 5).err().unwrap();
        assert_eq!(failure.code(), ErrorCode::TransactionTooOld);
        // The same session, by its id.
        assert!(Arc::ptr_eq(&session, &sessions.touch(id)));
        sessions.end(id);
        sessions.touch(id);
        sessions.expire(Instant::now(), &store);
        assert_eq!(sessions.len(), 1);
        sessions.end(id);
        sessions.expire(Instant::now(), &store);
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn a_session_is_idle_from_the_end_of_its_last_command() {
        let sessions = Sessions::new(Duration::from_millis(10), Duration::from_secs(60));
        let (_directory, store) = empty_store();
        let write = begin(&sessions, &store, SessionId::random(), 1).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let now = Instant::now();
        drop(write);
        sessions.expire(now, &store);
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn sessions_expire_and_are_bounded() {
        let sessions = sessions();
        let (_directory, store) = empty_store();
        sessions.touch(SessionId::random());
        sessions.expire(Instant::now() + Duration::from_secs(29 * 60), &store);
        assert_eq!(sessions.len(), 1);
        sessions.expire(Instant::now() + Duration::from_secs(31 * 60), &store);
        assert_eq!(sessions.len(), 0);
        for _ in 0..SESSIONS_MAX + 1 {
            sessions.touch(SessionId::random());
        }
        assert!(sessions.len() <= SESSIONS_MAX);
    }

    /// One that was read from the store has only its key at first.
    #[test]
    fn a_session_is_listed_with_its_owner() {
        let sessions = sessions();
        let owner = SessionOwner::for_user(&frond_auth::UserName::new("ann", "admin"));
        let id = SessionId::random().owned_by(owner);
        let session = sessions.touch(SessionId::of_key(id.key()));
        assert!(Arc::ptr_eq(&session, &sessions.touch(id)));
        let listed = sessions.list();
        assert!(matches!(listed.as_slice(), [one] if one.owner() == Some(owner)));
        assert_eq!(listed[0].to_doc(), id.to_doc());
    }

    #[test]
    fn recorded_results_are_bounded() {
        let sessions = sessions();
        let (_directory, store) = empty_store();
        let reply = doc! {"value": {"x": "y".repeat(1 << 20)}};
        for _ in 0..200 {
            let id = SessionId::random();
            let mut write = begin(&sessions, &store, id, 1).unwrap();
            write.record(0, Recorded::FindAndModify(reply.clone()), true);
            assert!(write.executed(0).is_some());
        }
        let bytes = sessions.record_bytes.load(Ordering::Relaxed);
        assert!(bytes <= RECORD_BYTES_MAX + (2 << 20), "{bytes}");
        assert!((50..70).contains(&sessions.len()), "{}", sessions.len());
        sessions.expire(Instant::now() + Duration::from_secs(31 * 60), &store);
        assert_eq!(sessions.record_bytes.load(Ordering::Relaxed), 0);
    }
}
