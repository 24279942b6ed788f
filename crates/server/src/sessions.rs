//! Logical sessions, and the results of their retryable writes.
//!
//! A driver that did not get the reply to a write sends it again with the same session,
//! transaction number and statement ids. A statement that was executed is not executed again: its
//! recorded result is returned. Records are kept in memory, for the newest transaction number of each
//! session, until the session expires.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, OwnedValue, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};

/// An unused session expires after this many minutes.
pub const TIMEOUT_MINUTES: i32 = 30;

/// Sessions kept. Beyond that, the longest idle ones are dropped.
const SESSIONS_MAX: usize = 100_000;

/// Bytes of recorded results in all sessions. Beyond that, the longest idle sessions are dropped.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// The binary subtype of a UUID.
const SUBTYPE_UUID: u8 = 4;

/// The UUID of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// Reads an `lsid` or an element of `endSessions`: `{id: UUID}`.
    pub fn parse(doc: &Doc) -> Result<SessionId> {
        match doc.get("id") {
            Some(Value::Binary {
                subtype: SUBTYPE_UUID,
                bytes,
            }) => match bytes.try_into() {
                Ok(id) => Ok(SessionId(id)),
                Err(_) => Err(Error::new(
                    ErrorCode::InvalidUUID,
                    "uuid must be a 16-byte binary field with UUID (4) subtype",
                )),
            },
            Some(other) => Err(Error::new(
                ErrorCode::TypeMismatch,
                format!(
                    "BSON field 'LogicalSessionFromClient.id' is the wrong type '{}', expected \
                     type 'binData'",
                    other.type_name()
                ),
            )),
            None => Err(Error::new(
                ErrorCode::IDLFailedToParse,
                "BSON field 'LogicalSessionFromClient.id' is missing but a required field",
            )),
        }
    }

    /// A random UUID (version 4).
    pub fn random() -> SessionId {
        let mut id = crate::random::bytes();
        id[6] = (id[6] & 0x0f) | 0x40;
        id[8] = (id[8] & 0x3f) | 0x80;
        SessionId(id)
    }

    /// `{id: UUID}`.
    pub fn to_doc(self) -> DocBuf {
        doc! {"id": Value::Binary { subtype: SUBTYPE_UUID, bytes: &self.0 }}
    }
}

/// What an update statement did.
#[derive(Clone, Debug, PartialEq)]
pub struct Updated {
    /// Documents matched, or 1 for an upsert.
    pub n: u64,
    /// Documents changed.
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
#[derive(Debug)]
pub struct Session {
    last_used: Instant,
    txn_number: i64,
    executed: BTreeMap<i32, Recorded>,
    /// Bytes of `executed`.
    bytes: usize,
    /// Bytes of the records of all sessions.
    total: Arc<AtomicUsize>,
    /// Retried statements of all sessions.
    retried: Arc<AtomicU64>,
}

impl Session {
    fn forget(&mut self) {
        self.executed.clear();
        self.total
            .fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.forget();
    }
}

/// The retryable write of a running command. It locks the session, so that a retry that overtakes the first
/// try waits for it.
pub struct RetryableWrite {
    session: ArcMutexGuard<RawMutex, Session>,
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

    /// Records that a statement was executed.
    pub fn record(&mut self, statement: i32, result: Recorded) {
        let bytes = result.bytes();
        self.session.bytes += bytes;
        self.session.total.fetch_add(bytes, Ordering::Relaxed);
        self.session.executed.insert(statement, result);
    }
}

/// All sessions of a server.
#[derive(Default)]
pub struct Sessions {
    all: Mutex<HashMap<SessionId, Arc<Mutex<Session>>>>,
    record_bytes: Arc<AtomicUsize>,
    retried: Arc<AtomicU64>,
}

impl Sessions {
    /// Number of sessions.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.all.lock().len()
    }

    /// Finds or begins a session, and restarts its idle time.
    pub fn touch(&self, id: SessionId) -> Arc<Mutex<Session>> {
        let now = Instant::now();
        let mut all = self.all.lock();
        if self.record_bytes.load(Ordering::Relaxed) > RECORD_BYTES_MAX {
            shrink(&mut all);
        }
        if let Some(session) = all.get(&id) {
            // A locked session is in use, so it does not expire.
            if let Some(mut session) = session.try_lock() {
                session.last_used = now;
            }
            return session.clone();
        }
        if all.len() >= SESSIONS_MAX {
            shrink(&mut all);
        }
        let session = Arc::new(Mutex::new(Session {
            last_used: now,
            txn_number: -1,
            executed: BTreeMap::new(),
            bytes: 0,
            total: self.record_bytes.clone(),
            retried: self.retried.clone(),
        }));
        all.insert(id, session.clone());
        session
    }

    /// Waits for the session, and begins or continues its retryable write with this number.
    ///
    /// # Errors
    /// `TransactionTooOld` (225) if a write with a higher number has begun.
    pub fn begin(&self, id: SessionId, txn_number: i64) -> Result<RetryableWrite> {
        let mut session = self.touch(id).lock_arc();
        session.last_used = Instant::now();
        if txn_number < session.txn_number {
            return Err(Error::new(
                ErrorCode::TransactionTooOld,
                format!(
                    "Retryable write with txnNumber {txn_number} is prohibited on session {} \
                     because a newer retryable write with txnNumber {} has already started on \
                     this session.",
                    frond_bson::hex(&id.0),
                    session.txn_number
                ),
            ));
        }
        if txn_number > session.txn_number {
            session.txn_number = txn_number;
            session.forget();
        }
        Ok(RetryableWrite { session })
    }

    /// Number of statements that were retried and not executed again.
    pub fn retried(&self) -> u64 {
        self.retried.load(Ordering::Relaxed)
    }

    /// The ids of all sessions.
    pub fn list(&self) -> Vec<SessionId> {
        self.all.lock().keys().copied().collect()
    }

    /// Ends a session.
    pub fn end(&self, id: SessionId) {
        self.all.lock().remove(&id);
    }

    /// Ends all sessions.
    pub fn end_all(&self) {
        self.all.lock().clear();
    }

    /// Ends sessions that were idle for the timeout.
    pub fn expire(&self, now: Instant) {
        let timeout = Duration::from_secs(TIMEOUT_MINUTES as u64 * 60);
        self.all
            .lock()
            .retain(|_, session| match session.try_lock() {
                Some(session) => now.saturating_duration_since(session.last_used) < timeout,
                None => true,
            });
    }
}

/// Drops the longest idle sessions, until their number and their bytes are a tenth below the limits.
fn shrink(all: &mut HashMap<SessionId, Arc<Mutex<Session>>>) {
    let mut ages: Vec<(Instant, SessionId)> = all
        .iter()
        .filter_map(|(id, session)| Some((session.try_lock()?.last_used, *id)))
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

    use super::*;

    #[test]
    fn a_statement_is_recorded_for_its_transaction_number() {
        let sessions = Sessions::default();
        let id = SessionId::random();
        let session = sessions.touch(id);
        let mut write = sessions.begin(id, 5).unwrap();
        assert_eq!(write.executed(0), None);
        write.record(0, Recorded::Delete(1));
        drop(write);
        let write = sessions.begin(id, 5).unwrap();
        assert_eq!(write.executed(0), Some(&Recorded::Delete(1)));
        drop(write);
        assert_eq!(sessions.begin(id, 6).unwrap().executed(0), None);
        let failure = sessions.begin(id, 5).err().unwrap();
        assert_eq!(failure.code(), ErrorCode::TransactionTooOld);
        // The same session, by its id.
        assert!(Arc::ptr_eq(&session, &sessions.touch(id)));
        sessions.end(id);
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn sessions_expire_and_are_bounded() {
        let sessions = Sessions::default();
        sessions.touch(SessionId::random());
        sessions.expire(Instant::now() + Duration::from_secs(29 * 60));
        assert_eq!(sessions.len(), 1);
        sessions.expire(Instant::now() + Duration::from_secs(31 * 60));
        assert_eq!(sessions.len(), 0);
        for _ in 0..SESSIONS_MAX + 1 {
            sessions.touch(SessionId::random());
        }
        assert!(sessions.len() <= SESSIONS_MAX);
    }

    #[test]
    fn recorded_results_are_bounded() {
        let sessions = Sessions::default();
        let reply = doc! {"value": {"x": "y".repeat(1 << 20)}};
        for _ in 0..200 {
            let id = SessionId::random();
            let mut write = sessions.begin(id, 1).unwrap();
            write.record(0, Recorded::FindAndModify(reply.clone()));
            assert!(write.executed(0).is_some());
        }
        let bytes = sessions.record_bytes.load(Ordering::Relaxed);
        assert!(bytes <= RECORD_BYTES_MAX + (2 << 20), "{bytes}");
        assert!((50..70).contains(&sessions.len()), "{}", sessions.len());
        sessions.end_all();
        assert_eq!(sessions.record_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn ids_are_read() {
        let id = SessionId::random();
        assert_eq!(SessionId::parse(&id.to_doc()).unwrap(), id);
        assert_ne!(SessionId::random(), id);
        let cases = [
            (doc! {}, 40414),
            (doc! {"id": 1}, 14),
            (
                doc! {"id": Value::Binary { subtype: 4, bytes: &[1; 15] }},
                207,
            ),
            (
                doc! {"id": Value::Binary { subtype: 0, bytes: &[1; 16] }},
                14,
            ),
        ];
        for (doc, code) in cases {
            assert_eq!(
                SessionId::parse(&doc).unwrap_err().code().code(),
                code,
                "{doc:?}"
            );
        }
    }
}
