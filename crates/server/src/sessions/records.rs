//! The stored records of sessions: reading them, and removing them when a session ends.
//!
//! Records are removed by whoever holds the lock of the session, so that no command adds one meanwhile. Those of sessions that
//! are not in memory, because the server was started again or had too many of them, are found by a search through all records,
//! some at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use frond_bson::{Doc, DocBuf, OwnedValue, doc};
use frond_error::Result;
use frond_store::{DocumentStore, SessionKey, StatementId};
use parking_lot::Mutex;

use super::{Open, Recorded, Session, SessionId, Sessions, Updated, Used};
use crate::host::clock::now_ms;

/// Sessions whose records are removed in one commit.
const REMOVED_AT_ONCE: usize = 500;

/// Records that one search for idle sessions reads.
const SEARCHED_AT_ONCE: usize = 10_000;

/// One pass in so many searches for records of sessions that are not in memory.
const PASSES_PER_SEARCH: u32 = 15;

/// The progress of the search.
#[derive(Debug, Default)]
pub(super) struct Search {
    passes: u32,
    after: Option<SessionKey>,
}

impl Recorded {
    /// As it is stored.
    pub fn to_doc(&self) -> DocBuf {
        match self {
            Recorded::Insert => doc! {"i": true},
            Recorded::Update(done) => {
                let mut update = doc! {"n": done.n as i64, "m": done.modified as i64};
                if let Some(id) = &done.upserted {
                    update.push("id", id);
                }
                doc! {"u": update}
            }
            Recorded::Delete(n) => doc! {"d": *n as i64},
            Recorded::FindAndModify(reply) => doc! {"f": reply},
        }
    }

    /// Reads what [`Recorded::to_doc`] made.
    fn read(stored: &Doc) -> Option<Recorded> {
        let count = |n: i64| u64::try_from(n).ok();
        let (kind, value) = stored.first()?;
        Some(match kind {
            "i" => Recorded::Insert,
            "u" => {
                let update = value.as_doc()?;
                Recorded::Update(Updated {
                    n: count(update.get_i64("n")?)?,
                    modified: count(update.get_i64("m")?)?,
                    upserted: update.get("id").map(OwnedValue::from),
                })
            }
            "d" => Recorded::Delete(count(value.as_i64_lossless()?)?),
            "f" => Recorded::FindAndModify(value.as_doc()?.to_owned()),
            _ => return None,
        })
    }
}

impl Session {
    /// Reads the stored records, once; if other servers may write some, each time.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn load(&mut self, id: SessionId, store: &DocumentStore) -> Result<()> {
        let leadership = self.leaderships.load(Ordering::SeqCst);
        let is_current = self.leadership == leadership;
        if self.is_loaded && is_current && !store.is_shared() {
            return Ok(());
        }
        let history = store.session_history(&id.key())?;
        let was_loaded = std::mem::replace(&mut self.is_loaded, true);
        if was_loaded && !is_current {
            self.forget();
        }
        self.leadership = leadership;
        let Some(number) = history.number else {
            return Ok(());
        };
        self.is_stored = true;
        self.has_more |= history.has_more;
        if was_loaded {
            if self.machine.follow(number, history.is_committed) {
                self.forget();
            }
            if self.machine.number() != Some(number) {
                // The stored record is older than the write that was begun here.
                return Ok(());
            }
        } else {
            self.machine.restore(number, history.is_committed)
        }
        for done in history.executed {
            let Some(result) = Recorded::read(&done.result) else {
                continue;
            };
            for statement in (done.first..=i32::MAX).take(done.count as usize) {
                if !self.executed.contains_key(&statement) {
                    self.executed(statement, result.clone());
                }
            }
        }
        Ok(())
    }

    /// Notes what a statement did.
    pub(super) fn executed(&mut self, statement: i32, result: Recorded) {
        let bytes = result.bytes();
        self.bytes += bytes;
        self.total.fetch_add(bytes, Ordering::Relaxed);
        self.executed.insert(statement, result);
    }

    /// A record was stored, which has cleared older ones if that was necessary.
    pub(super) fn stored(&mut self) {
        self.is_stored = true;
        self.clears = false;
    }

    /// The commit of its open transaction, for the record of it.
    pub fn commit_of(&self, open: &Open) -> StatementId {
        StatementId {
            session: open.session.key(),
            number: open.number,
            statement: 0,
            clears: self.clears,
        }
    }

    /// The commit of a transaction that has written was stored.
    pub fn commit_stored(&mut self) {
        self.stored();
    }

    /// Its records were removed.
    fn removed(&mut self) {
        self.is_stored = false;
        self.has_more = false;
        self.clears = false;
        self.forget();
    }
}

impl Sessions {
    /// Lets the next pass end a session, as its client asks, unless it is used until then. Does not wait for the disk.
    pub fn end(&self, id: SessionId) {
        let session = self.all.lock().get(&id).cloned();
        if let Some(mut session) = session.as_ref().and_then(|session| session.try_lock()) {
            session.is_ended = true;
        }
    }

    /// Ends sessions that were idle for the timeout, or that their clients have ended. Returns their open transactions, for the
    /// caller to abort.
    pub fn expire(&self, now: Instant, store: &DocumentStore) -> Vec<Arc<Open>> {
        let is_idle = |session: &Session| {
            session.is_ended || now.saturating_duration_since(session.last_used) >= self.timeout
        };
        let idle: Vec<_> = {
            let all = self.all.lock();
            let idle = all
                .iter()
                // One that is locked is in use.
                .filter(|(_, one)| one.try_lock().is_some_and(|session| is_idle(&session)));
            idle.map(|(id, one)| (*id, one.clone())).collect()
        };
        let ended = self.remove(idle, store, |session| session.is_some_and(is_idle));
        let open = self.open.lock();
        ended
            .iter()
            .filter_map(|id| open.get(id).cloned())
            .collect()
    }

    /// Removes these sessions, if `may_end` agrees; it gets none for one that a command uses. Returns which were removed. The
    /// records of such a one, and those that cannot be removed for now, are found by the search later.
    fn remove(
        &self,
        sessions: Vec<(SessionId, Arc<Mutex<Session>>)>,
        store: &DocumentStore,
        may_end: impl Fn(Option<&Session>) -> bool,
    ) -> Vec<SessionId> {
        let mut ended = Vec::new();
        for some in sessions.chunks(REMOVED_AT_ONCE) {
            let mut held: BTreeMap<SessionId, Option<Used>> = BTreeMap::new();
            for (id, session) in some {
                let used = session.try_lock_arc();
                if may_end(used.as_deref()) {
                    held.insert(*id, used);
                }
            }
            let stored = held
                .iter()
                .filter(|(_, used)| used.as_ref().is_some_and(|session| session.is_stored));
            let stored: Vec<SessionKey> = stored.map(|(id, _)| id.key()).collect();
            if store.forget_sessions(&stored).is_ok() {
                let held = held.values_mut().flatten();
                held.for_each(|session| session.removed());
            }
            let mut all = self.all.lock();
            for (id, session) in some {
                let is_same = all.get(id).is_some_and(|other| Arc::ptr_eq(other, session));
                if is_same && held.contains_key(id) {
                    all.remove(id);
                    ended.push(*id);
                }
            }
        }
        ended
    }

    /// From time to time, removes records of sessions that are not in memory and were not used for the timeout.
    ///
    /// # Errors
    /// Errors of the store. The next search goes on.
    pub fn search_expired(&self, store: &DocumentStore) -> Result<usize> {
        let mut search = self.search.lock();
        search.passes += 1;
        if search.passes % PASSES_PER_SEARCH != 1 {
            return Ok(0);
        }
        let timeout = i64::try_from(self.timeout.as_millis()).unwrap_or(i64::MAX);
        let before = now_ms().saturating_sub(timeout);
        let (idle, more) = store.idle_sessions(search.after, before, SEARCHED_AT_ONCE)?;
        search.after = more;
        drop(search);
        let mut removed = 0;
        for some in idle.chunks(REMOVED_AT_ONCE) {
            let absent: Vec<_> = {
                let all = self.all.lock();
                let absent = some
                    .iter()
                    .filter(|key| !all.contains_key(&SessionId::of_key(**key)));
                absent.map(|key| SessionId::of_key(*key)).collect()
            };
            // In memory, so that a command that comes meanwhile waits for the lock.
            let sessions: Vec<_> = absent.iter().map(|id| (*id, self.touch(*id))).collect();
            for (_, session) in &sessions {
                if let Some(mut session) = session.try_lock()
                    && !session.is_loaded
                {
                    session.is_stored = true;
                }
            }
            removed += self
                .remove(sessions, store, |session| {
                    session.is_some_and(|session| !session.is_loaded)
                })
                .len();
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests;
