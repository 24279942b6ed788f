//! The tree of the records of sessions: which statements of retryable writes were executed, and which transactions were
//! committed.
//!
//! A record is put into the write set of the statement that it describes, so that both survive a crash or neither. The tree
//! is made for the first record.
//!
//! | key | value |
//! | --- | --- |
//! | session, number of a statement (4 bytes, big-endian) | `{n, at, c, r}`: the transaction number, the time, how many statements the record is for, their result |
//! | session, `0xffffffff` | `{n, at}`: the transaction with this number was committed; with `refused: true`, it never will be |
//!
//! A session repeats the numbers of its statements under each transaction number, so most records replace the ones before.
//! Records of smaller transaction numbers than the largest of the session have no meaning any more.

use std::ops::Bound;
use std::sync::atomic::{AtomicU32, Ordering};

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::ErrorCode;

use super::{Catalog, persist};
use frond_storage::clock::now_ms;
use frond_storage::error::{Result, command, corrupt};
use frond_storage::keyspace::{
    CATALOG_TREE, Direction, Durability, Engine, Snapshot, TreeId, TreeOptions, WriteSet,
    after_prefix,
};

/// The UUID of a session.
pub type SessionKey = [u8; 16];

/// The place of the record of a committed transaction, behind all statements.
const COMMITTED: u32 = u32::MAX;

/// The records of a session that are read with one request from a cluster; most sessions have one or two.
const RECORDS_AT_ONCE: u32 = 64;

/// The value of [`SessionTree`] without a tree. Tree 0 is that of the catalog.
const NONE: u32 = 0;

/// The tree of the records, if there is one.
#[derive(Debug, Default)]
pub(super) struct SessionTree(AtomicU32);

impl SessionTree {
    /// As the catalog says.
    ///
    /// # Errors
    /// If the entry is damaged.
    pub fn load(engine: &Engine) -> Result<SessionTree> {
        // A new member of a replica set has no catalog yet.
        let tree = if engine.has_tree(CATALOG_TREE)? {
            persist::session_tree(&engine.snapshot())?
        } else {
            None
        };
        // An older version may have dropped it.
        let tree = match tree {
            Some(tree) if engine.has_tree(tree)? => Some(tree),
            _ => None,
        };
        Ok(SessionTree(AtomicU32::new(
            tree.map_or(NONE, |tree| tree.0),
        )))
    }

    /// Another server may have made it.
    pub fn set(&self, tree: Option<TreeId>) {
        let tree = tree.map_or(NONE, |tree| tree.0);
        self.0.store(tree, Ordering::Release);
    }

    fn get(&self) -> Option<TreeId> {
        match self.0.load(Ordering::Acquire) {
            NONE => None,
            tree => Some(TreeId(tree)),
        }
    }
}

/// A statement of a session.
#[derive(Clone, Copy, Debug)]
pub struct StatementId {
    pub session: SessionKey,
    pub number: i64,
    /// The number of the statement.
    pub statement: i32,
    /// Whether the session has records of an older number that the record does not replace. They are removed with it.
    pub clears: bool,
}

/// The tree of the records, for a commit that adds some.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records(TreeId);

/// Statements that were executed, with one result.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutedStatements {
    /// The number of the first one.
    pub first: i32,
    pub count: u32,
    /// The result, as the caller recorded it.
    pub result: DocBuf,
}

/// The work of a session under its newest transaction number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionHistory {
    /// The number; none if nothing is known.
    pub number: Option<i64>,
    /// Whether that is the number of a transaction, which was committed.
    pub is_committed: bool,
    /// The statements of a retryable write.
    pub executed: Vec<ExecutedStatements>,
    /// Whether there are records of other statements than the first one, which later numbers may not replace.
    pub has_more: bool,
}

impl SessionHistory {
    /// Adds a record of the session, in the order of their keys.
    fn add(&mut self, record: Record<'_>) {
        // A session has at most one record of a commit; it has no meaning under a newer number.
        self.has_more |= !matches!(record.place, 0 | COMMITTED);
        if self.number.is_some_and(|newest| newest > record.number) {
            return;
        }
        if self.number != Some(record.number) {
            self.number = Some(record.number);
            self.executed.clear();
            self.is_committed = false;
        }
        match record.place {
            COMMITTED => self.is_committed = !record.is_refused,
            first => self.executed.push(ExecutedStatements {
                first: first as i32,
                count: record.count,
                result: record.result.to_owned(),
            }),
        }
    }
}

fn key(session: &SessionKey, place: u32) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(session);
    key[16..].copy_from_slice(&place.to_be_bytes());
    key
}

impl Records {
    /// Adds the record of statements to a write set.
    pub fn put(self, batch: &mut WriteSet, first: &StatementId, count: u32, result: &Doc) {
        if first.clears {
            self.clear(batch, &first.session);
        }
        let mut value = doc! {"n": first.number, "at": Value::DateTime(now_ms())};
        value.push("c", i64::from(count));
        value.push("r", result);
        let place = first.statement as u32;
        batch.put(self.0, &key(&first.session, place), value.as_bytes());
    }

    /// The key of the record of a statement, in its tree.
    pub fn key(self, statement: &StatementId) -> (TreeId, [u8; 20]) {
        (self.0, key(&statement.session, statement.statement as u32))
    }

    /// Fails if another server has executed a statement whose record is in a commit, and makes the commit fail if one does
    /// meanwhile.
    ///
    /// # Errors
    /// `TransactionTooOld` (225) for a session that has gone on; `NotWritablePrimary` (10107) if the same statement was
    /// executed: the next try of the client finds its result.
    pub fn guard(
        self,
        batch: &mut WriteSet,
        snapshot: &Snapshot,
        statement: &StatementId,
    ) -> Result<()> {
        let key = key(&statement.session, statement.statement as u32);
        batch.guard(self.0, &key);
        let Some(stored) = snapshot.get(self.0, &key)? else {
            return Ok(());
        };
        let newest = Record::read(&key, &stored)?.number;
        match newest.cmp(&statement.number) {
            std::cmp::Ordering::Less => Ok(()),
            std::cmp::Ordering::Equal => Err(command(
                ErrorCode::NotWritablePrimary,
                "another server has just executed this statement of a retryable write; try again, to get its result",
            )),
            std::cmp::Ordering::Greater => Err(command(
                ErrorCode::TransactionTooOld,
                format!(
                    "Retryable write with txnNumber {} is prohibited because another server has executed one with txnNumber \
                     {newest} of the same session",
                    statement.number
                ),
            )),
        }
    }

    /// Adds the record of a committed transaction to its write set. Where other servers may refuse the commit, it fails if one
    /// has done so.
    pub fn put_commit(self, batch: &mut WriteSet, of: &StatementId, has_others: bool) {
        if of.clears {
            self.clear(batch, &of.session);
        }
        let key = key(&of.session, COMMITTED);
        let value = doc! {"n": of.number, "at": Value::DateTime(now_ms())};
        if has_others {
            batch.put_guarded(self.0, &key, value.as_bytes());
        } else {
            batch.put(self.0, &key, value.as_bytes());
        }
    }

    /// Removes all records of a session.
    fn clear(self, batch: &mut WriteSet, session: &SessionKey) {
        batch.delete_range(self.0, session, after_prefix(session).as_deref());
    }
}

impl Catalog {
    /// The tree of the records, if there is one.
    pub(crate) fn session_tree(&self) -> Option<TreeId> {
        self.state.session_tree.get()
    }

    /// The tree of the records, which is made if need be.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn session_records(&self) -> Result<Records> {
        if let Some(tree) = self.session_tree() {
            return Ok(Records(tree));
        }
        let _changing = self.begin_change()?;
        if let Some(tree) = self.session_tree() {
            return Ok(Records(tree));
        }
        let tree = self.allocate_tree()?;
        let mut batch = WriteSet::new();
        batch.create_tree(tree, &TreeOptions::default());
        persist::put_session_tree(&mut batch, tree);
        self.commit_beside_view(batch, None)?;
        self.state.session_tree.set(Some(tree));
        Ok(Records(tree))
    }

    /// The work of a session under its newest number.
    ///
    /// # Errors
    /// Errors of the engine; `DataCorruptionDetected` (301).
    pub(crate) fn session_history(&self, session: &SessionKey) -> Result<SessionHistory> {
        let mut history = SessionHistory::default();
        let Some(tree) = self.session_tree() else {
            return Ok(history);
        };
        let latest = (self.state.coordination).scan_latest(tree, session, RECORDS_AT_ONCE)?;
        if let Some(latest) = latest {
            for (key, value) in &latest {
                history.add(Record::read(key, value)?);
            }
            return Ok(history);
        }
        let snapshot = self.state.engine.snapshot();
        let high = after_prefix(session);
        let high = high.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut cursor =
            snapshot.cursor(tree, Bound::Included(session), high, Direction::Forward)?;
        while let Some((key, value)) = cursor.next()? {
            history.add(Record::read(key, value)?);
        }
        Ok(history)
    }

    /// Prevents the commit of a transaction that another server may have open, unless it is committed already. A client that gets
    /// `NoSuchTransaction` for its commit runs the transaction again, so the first run must not be committed later.
    ///
    /// # Errors
    /// `WriteConflict` (112) if the session was written to meanwhile; errors of the engine.
    pub(crate) fn refuse_commit(&self, session: &SessionKey, number: i64) -> Result<()> {
        let Records(tree) = self.session_records()?;
        let snapshot = self.state.engine.snapshot();
        let key = key(session, COMMITTED);
        if let Some(stored) = snapshot.get(tree, &key)?
            && Record::read(&key, &stored)?.number >= number
        {
            return Ok(());
        }
        let mut batch = WriteSet::with_snapshot(&snapshot);
        let value = doc! {"n": number, "at": Value::DateTime(now_ms()), "refused": true};
        batch.put_guarded(tree, &key, value.as_bytes());
        self.state.engine.commit(batch, Durability::Logged)?;
        Ok(())
    }

    /// Removes the records of sessions. Nothing else may write records of them meanwhile.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn forget_sessions(&self, sessions: &[SessionKey]) -> Result<()> {
        let Some(tree) = self.session_tree().filter(|_| !sessions.is_empty()) else {
            return Ok(());
        };
        let mut batch = WriteSet::new();
        batch.set_frees_space();
        for session in sessions {
            Records(tree).clear(&mut batch, session);
        }
        self.state.engine.commit(batch, Durability::Logged)?;
        Ok(())
    }

    /// The sessions after `after` whose records were all made before `before_ms`, in order: of the next `max` records.
    /// Returns the session to continue after, if there are more.
    ///
    /// # Errors
    /// As [`Catalog::session_history`].
    pub(crate) fn idle_sessions(
        &self,
        after: Option<SessionKey>,
        before_ms: i64,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<SessionKey>)> {
        let mut idle: Vec<SessionKey> = Vec::new();
        let Some(tree) = self.session_tree() else {
            return Ok((idle, None));
        };
        let low = after.map(|session| after_prefix(&session));
        let low = match &low {
            None => Bound::Unbounded,
            Some(Some(low)) => Bound::Included(low.as_slice()),
            Some(None) => return Ok((idle, None)),
        };
        let snapshot = self.state.engine.snapshot();
        let mut cursor = snapshot.cursor(tree, low, Bound::Unbounded, Direction::Forward)?;
        let (mut read, mut last) = (0, None);
        while let Some((key, value)) = cursor.next()? {
            let record = Record::read(key, value)?;
            if last != Some(record.session) {
                if read >= max {
                    return Ok((idle, last));
                }
                last = Some(record.session);
                idle.push(record.session);
            }
            read += 1;
            if record.at_ms >= before_ms && idle.last() == Some(&record.session) {
                idle.pop();
            }
        }
        Ok((idle, None))
    }
}

struct Record<'a> {
    session: SessionKey,
    place: u32,
    number: i64,
    at_ms: i64,
    count: u32,
    result: &'a Doc,
    is_refused: bool,
}

impl Record<'_> {
    fn read<'a>(key: &[u8], value: &'a [u8]) -> Result<Record<'a>> {
        let read = || {
            let (session, place) = key.split_at_checked(16)?;
            let place = u32::from_be_bytes(place.try_into().ok()?);
            let value = Doc::validate(value).ok()?;
            let Some(Value::DateTime(at_ms)) = value.get("at") else {
                return None;
            };
            Some(Record {
                session: session.try_into().ok()?,
                place,
                number: value.get_i64("n")?,
                at_ms,
                count: u32::try_from(value.get_i64("c").unwrap_or(0)).ok()?,
                result: value.get_doc("r").unwrap_or(Doc::empty()),
                is_refused: matches!(value.get("refused"), Some(Value::Bool(true))),
            })
        };
        read().ok_or_else(|| corrupt("the record of a session"))
    }
}
