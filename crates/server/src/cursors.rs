//! Open cursors, which clients read by `getMore`.

mod backup;
mod batch;
mod ended;
mod failures;
mod list;
mod source;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use frond_bson::{ArrayBuf, DocBuf};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{Flow, MemoryBudget, MemoryUse, OpContext, Reservation, TailSignal};
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

pub use backup::BackupSource;
use batch::Batch;
pub use batch::{BatchQuota, Room};
pub use ended::{dropped, renamed};
use failures::{in_use, not_found, too_old};
pub use source::Source;

use crate::memory_quota::Release;
use crate::needs::Owner;
use crate::observability::query_stats::ShapeHash;
use crate::sessions::SessionId;
use crate::tail_throttle::{Follower, Followers};

/// Documents in the first batch if the client gives no size.
pub const FIRST_BATCH_DOCUMENTS: u64 = 101;

/// Bytes of documents in a batch. A single document may be larger.
pub const BATCH_BYTES: usize = 16 << 20;

/// Bytes of the reply around its batch, with the header of its message.
const REPLY_BYTES: usize = 1 << 10;

/// A batch that grows beyond this is likely to become a full one.
const LARGE_BATCH_BYTES: usize = 256 << 10;

/// The bits of an id below its mark.
const MARK_SHIFT: u32 = 48;

/// The largest mark: ids are positive.
const MARK_MAX: u16 = 0x7fff;

pub struct Cursor {
    /// `database.collection`.
    pub namespace: String,
    /// The user who opened it, if authorization is on. Only this user may use it.
    pub owner: Option<Arc<Owner>>,
    /// The session that opened it; only this session may use it.
    pub session: Option<SessionId>,
    /// The number of the transaction that opened it; only its statements may use it.
    pub transaction: Option<i64>,
    /// True if it has no idle timeout.
    pub no_timeout: bool,
    /// Documents left until the limit of the query; none if it has no limit.
    pub remaining: Option<u64>,
    /// Documents returned so far.
    pub returned: u64,
    /// Batches returned so far.
    pub batches: u64,
    /// When it was opened.
    pub opened: Instant,
    /// The command that opened it, for `currentOp`; shared with the table of cursors.
    pub originating: Arc<DocBuf>,
    /// The shape of its query, if `$queryStats` counts it.
    pub query_shape: Option<ShapeHash>,
    /// Time limit of each further batch: what is left of `maxTimeMS` of the opening command.
    pub time_left: Option<Duration>,
    /// Whether a getMore without documents waits for some: `awaitData`.
    pub awaits: bool,
    /// Whether it is a change stream.
    pub is_change_stream: bool,
    /// Whether it splits large events of a change stream.
    pub splits_events: bool,
    source: Source,
    /// A document that did not fit into the last batch.
    pending: Option<DocBuf>,
    /// Of a change stream: the error of the event behind the last batch.
    failure: Option<Error>,
    /// Of a change stream with such a document or error: the token of the document before it.
    token_before_pending: Option<DocBuf>,
    ended: bool,
    /// The memory that it holds while it is idle.
    reserved: Option<Reservation>,
    /// The memory of its query and of the command that opened it, if they are large.
    pub parsed: Option<Reservation>,
}

/// The memory of a cursor, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorMemory {
    /// Memtables that are flushed. Several cursors can keep the same.
    pub memtables: u64,
    pub rows: u64,
}

/// The result of an attempt to free the memory of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The cursor is not idle, or keeps nothing.
    Nothing,
    /// It is on disk.
    Moved,
    /// The cursor has to be closed.
    Close,
}

impl Cursor {
    /// A cursor over a source, nothing read yet.
    pub fn new(namespace: impl Into<String>, source: Source) -> Cursor {
        Cursor {
            namespace: namespace.into(),
            owner: None,
            session: None,
            transaction: None,
            no_timeout: false,
            remaining: None,
            returned: 0,
            batches: 0,
            opened: Instant::now(),
            originating: Arc::default(),
            query_shape: None,
            time_left: None,
            awaits: false,
            is_change_stream: false,
            splits_events: false,
            source,
            pending: None,
            failure: None,
            token_before_pending: None,
            ended: false,
            reserved: None,
            parsed: None,
        }
    }

    pub fn kept_bytes(&self) -> CursorMemory {
        match &self.source {
            Source::Query(cursor) => CursorMemory {
                memtables: cursor.retained_bytes(),
                rows: cursor.held_bytes() + self.own_bytes() as u64,
            },
            Source::Fixed(_) | Source::Backup(_) => CursorMemory {
                memtables: 0,
                rows: self.own_bytes() as u64,
            },
        }
    }

    /// Bytes of the documents that it holds by itself.
    fn own_bytes(&self) -> usize {
        let pending = self.pending.as_ref().map_or(0, |doc| doc.len_bytes());
        match &self.source {
            Source::Query(_) => pending,
            Source::Backup(backup) => pending + backup.held_bytes(),
            Source::Fixed(rest) => {
                let rest = rest.as_slice().iter();
                pending + rest.map(|doc| doc.len_bytes()).sum::<usize>()
            }
        }
    }

    /// Moves to disk what can be there.
    ///
    /// # Errors
    /// Errors of the engine and of temporary files.
    pub fn release_memory(&mut self) -> Result<()> {
        self.source.release(Release::Memory)
    }

    /// A cursor over documents in memory.
    pub fn fixed(namespace: impl Into<String>, documents: Vec<DocBuf>) -> Cursor {
        Cursor::new(namespace, Source::Fixed(documents.into_iter()))
    }

    /// True if there is nothing left to return.
    pub fn ended(&self) -> bool {
        self.pending.is_none()
            && self.failure.is_none()
            && (self.ended
                || (self.remaining == Some(0) && !self.is_tailable())
                || matches!(&self.source, Source::Fixed(rest) if rest.len() == 0))
    }

    /// Sets the limits of the operation that reads from it now.
    pub fn set_context(&mut self, context: &OpContext) {
        match &mut self.source {
            Source::Query(cursor) => cursor.set_context(context.clone()),
            Source::Backup(backup) => backup.context = context.clone(),
            Source::Fixed(_) => {}
        }
    }

    /// Whether it is the stream of a backup.
    pub fn is_backup(&self) -> bool {
        matches!(self.source, Source::Backup(_))
    }

    /// When there may be more documents, of a stream that has none for some time.
    pub fn paused_until(&self) -> Option<Instant> {
        match &self.source {
            Source::Backup(backup) => backup.paused_until,
            Source::Query(_) | Source::Fixed(_) => None,
        }
    }

    /// Whether it may have more documents after it returned none.
    pub fn is_tailable(&self) -> bool {
        matches!(&self.source, Source::Query(cursor) if cursor.is_tailable())
    }

    /// The signal of inserts that a tailable cursor has not seen, and how many it has seen.
    pub fn tail_signal(&self) -> Option<(Arc<TailSignal>, u64)> {
        match &self.source {
            Source::Query(cursor) => cursor.tail_signal(),
            Source::Fixed(_) | Source::Backup(_) => None,
        }
    }

    /// The token after the last batch of a change stream, at which another stream can continue.
    pub fn resume_token(&self) -> Option<DocBuf> {
        if self.pending.is_some() || self.failure.is_some() {
            return self.token_before_pending.clone();
        }
        match &self.source {
            Source::Query(cursor) => cursor.resume_token(),
            Source::Fixed(_) | Source::Backup(_) => None,
        }
    }

    /// The next batch: at most `documents` (none: as many as fit) and about [`BATCH_BYTES`], fewer if there is no room.
    /// The error of an event of a change stream is returned with the next batch, if there are events before it.
    pub fn batch(&mut self, documents: Option<u64>, room: &mut dyn BatchQuota) -> Result<ArrayBuf> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let mut batch = Batch {
            reply: room,
            is_whole: false,
            has_begun: false,
            awaited: None,
            documents: ArrayBuf::new(),
            bytes: 0,
            room: documents
                .unwrap_or(u64::MAX)
                .min(self.remaining.unwrap_or(u64::MAX)),
            pending: None,
            failure: None,
        };
        let pending = self.pending.take_if(|_| batch.room > 0);
        let mut flow = match (batch.room, &pending) {
            (0, _) => Flow::Pause,
            (_, Some(document)) => batch.push(document),
            (_, None) => Flow::Continue,
        };
        loop {
            if let Some(bytes) = batch.awaited.take() {
                let source = &mut self.source;
                flow = batch.go_on(bytes, &mut |what| source.release(what))?;
            }
            if flow == Flow::Pause || self.ended {
                break;
            }
            match &mut self.source {
                // The documents are copied from where they lie into the batch.
                Source::Query(cursor) => {
                    flow = match cursor.for_each(&mut |document| batch.push(document)) {
                        Ok(flow) => flow,
                        Err(error) => {
                            let failure = Error::from(error);
                            let has_events = self.is_change_stream && !batch.documents.is_empty();
                            if !has_events || !is_of_an_event(&failure) {
                                return Err(failure);
                            }
                            self.failure = Some(failure);
                            break;
                        }
                    };
                    if flow == Flow::Continue {
                        self.ended = !cursor.is_tailable();
                        break;
                    }
                }
                Source::Fixed(rest) => match rest.next() {
                    Some(document) => flow = batch.push(&document),
                    None => self.ended = true,
                },
                Source::Backup(backup) => match backup.next()? {
                    Some(document) => flow = batch.push(&document),
                    None => {
                        self.ended = backup.ended;
                        break;
                    }
                },
            }
        }
        if let Some(failure) = batch.failure {
            return Err(failure);
        }
        if batch.pending.is_some() || self.failure.is_some() {
            if self.is_change_stream {
                let last = batch.documents.as_doc().values().last();
                let token = last.and_then(|event| event.as_doc()?.get_doc("_id"));
                self.token_before_pending = token.map(ToOwned::to_owned);
            }
            self.pending = batch.pending;
        }
        batch.reply.complete(batch.bytes + REPLY_BYTES);
        let returned = batch.documents.len() as u64;
        self.returned += returned;
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.saturating_sub(returned);
        }
        self.batches += 1;
        Ok(batch.documents)
    }
}

/// Whether an error of a change stream is about one event: those before it can be shown.
fn is_of_an_event(failure: &Error) -> bool {
    matches!(
        failure.code(),
        ErrorCode::BSONObjectTooLarge
            | ErrorCode::ChangeStreamFatalError
            | ErrorCode::NoMatchingDocument
    )
}

/// The entry of a cursor in the table, also while a command uses it.
struct Entry {
    namespace: String,
    owner: Option<Arc<Owner>>,
    session: Option<SessionId>,
    transaction: Option<i64>,
    no_timeout: bool,
    originating: Arc<DocBuf>,
    last_used: Instant,
    state: State,
    awaits: bool,
    is_change_stream: bool,
    is_backup: bool,
    /// Counts it among the cursors that follow an end.
    _follower: Option<Follower>,
    /// Wakes the getMore that waits for documents.
    waiting: Option<Arc<Notify>>,
    /// The error for the next getMore, when the collection is gone.
    ended_by: Option<Error>,
}

enum State {
    Idle(Box<Cursor>),
    /// A command uses it; the flag interrupts the command.
    InUse(Arc<AtomicBool>),
    /// It moves to disk. Commands wait until that is done.
    Moving,
    /// It is closed, and its error is kept for the client.
    Ended,
}

impl Entry {
    fn in_use(&self) -> bool {
        matches!(self.state, State::InUse(_) | State::Moving) || self.waiting.is_some()
    }

    /// Called under the lock of the table: the connection reuses the flag for its next command, which must not be
    /// interrupted.
    fn interrupt(&self) {
        if let State::InUse(flag) = &self.state {
            flag.store(true, Ordering::Relaxed);
        }
        if let Some(waiting) = &self.waiting {
            waiting.notify_one();
        }
    }
}

#[derive(Default)]
pub struct Cursors {
    /// With what the ids of its cursors begin, so that a server of a cluster knows those of others.
    mark: Option<u16>,
    all: Mutex<HashMap<i64, Entry>>,
    /// Woken when a cursor has moved to disk; used with the lock of the table.
    moved: Condvar,
    /// Cursors that were closed because memory was scarce, the last one last, so that their clients get the reason.
    closed_for_memory: Mutex<VecDeque<i64>>,
    /// Counts those that follow the end of a collection or of the oplog.
    followers: Followers,
    /// In which idle cursors reserve what they hold by themselves.
    memory: Option<MemoryBudget>,
}

/// The number of closed cursors that are remembered.
const CLOSED_MAX: usize = 10_000;

/// The interval at which a command that waits until a cursor is on disk checks for an interruption.
const MOVED_CHECK: Duration = Duration::from_millis(10);

/// A cursor taken out of the table; dropping it without [`CheckedOut::put_back`] closes it.
pub struct CheckedOut<'t> {
    table: &'t Cursors,
    id: i64,
    cursor: Option<Box<Cursor>>,
}

impl CheckedOut<'_> {
    pub fn cursor(&mut self) -> Result<&mut Cursor> {
        self.cursor.as_deref_mut().ok_or_else(|| not_found(self.id))
    }

    /// True if the cursor was killed while it was in use.
    pub fn was_killed(&self) -> bool {
        !self.table.all.lock().contains_key(&self.id)
    }

    /// Puts the cursor back for the next batch. One that was killed meanwhile is closed.
    pub fn put_back(mut self) {
        let mut cursor = self.cursor.take();
        if let Some(cursor) = &mut cursor {
            self.table.count(cursor);
        }
        let mut all = self.table.all.lock();
        if let Some(entry) = all.get_mut(&self.id) {
            entry.rest(&mut cursor);
            entry.last_used = Instant::now();
        }
    }
}

/// A cursor that moves to disk; without a cursor it is closed at the end.
struct Moving<'t> {
    table: &'t Cursors,
    id: i64,
    cursor: Option<Box<Cursor>>,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        let mut cursor = if std::thread::panicking() {
            // It may have moved in part.
            None
        } else {
            self.cursor.take()
        };
        let mut all = self.table.all.lock();
        match (all.get_mut(&self.id), &cursor) {
            (Some(entry), Some(_)) => entry.rest(&mut cursor),
            (Some(_), None) => {
                all.remove(&self.id);
            }
            // It was killed meanwhile.
            (None, _) => {}
        }
        drop(all);
        self.table.moved.notify_all();
    }
}

impl Drop for CheckedOut<'_> {
    fn drop(&mut self) {
        if self.cursor.is_some() {
            self.table.all.lock().remove(&self.id);
        }
    }
}

/// A cursor, as a getMore sees it first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// `database.collection`.
    pub namespace: String,
    /// Whether a getMore without documents waits for some.
    pub awaits: bool,
    /// Whether it is a change stream.
    pub is_change_stream: bool,
    /// Whether it is the stream of a backup.
    pub is_backup: bool,
}

/// The number of open cursors, for `serverStatus`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorCounts {
    pub open: i64,
    /// Those that a command uses.
    pub pinned: i64,
    /// Those without an idle timeout.
    pub no_timeout: i64,
}

/// A cursor, for `currentOp`.
pub struct CursorInfo {
    pub owner: Option<Arc<Owner>>,
    pub id: i64,
    /// `database.collection`.
    pub namespace: String,
    /// The session that owns it.
    pub session: Option<SessionId>,
    /// True if it has no idle timeout.
    pub no_timeout: bool,
    /// The command that opened it.
    pub originating: Arc<DocBuf>,
    /// True while a command uses it.
    pub in_use: bool,
}

impl Cursors {
    /// No cursors yet; what they hold by themselves is counted in this budget.
    pub fn new(memory: &MemoryBudget) -> Cursors {
        Cursors {
            memory: Some(memory.clone()),
            ..Cursors::default()
        }
    }

    /// The same, with ids that begin with these 15 bits.
    pub fn marked(self, mark: u16) -> Cursors {
        Cursors {
            mark: Some(mark & MARK_MAX),
            ..self
        }
    }

    /// The first 15 bits of the id of a cursor, if it is that of another server.
    pub fn mark_of_another(&self, id: i64) -> Option<u16> {
        let mark = u16::try_from(id >> MARK_SHIFT).ok()?;
        (self.mark.is_some_and(|own| own != mark)).then_some(mark)
    }

    /// Counts what an idle cursor holds by itself.
    fn count(&self, cursor: &mut Cursor) {
        let bytes = cursor.own_bytes();
        match (&mut cursor.reserved, &self.memory) {
            (Some(reserved), _) => reserved.resize(bytes),
            (empty, Some(memory)) if bytes > 0 => {
                *empty = Some(memory.reserve(MemoryUse::Cursors, bytes));
            }
            _ => {}
        }
    }

    /// The idle cursors, the longest idle first.
    pub fn longest_idle(&self) -> Vec<i64> {
        let all = self.all.lock();
        let idle = all.iter().filter(|(_, entry)| !entry.in_use());
        let mut idle: Vec<_> = idle.map(|(id, entry)| (entry.last_used, *id)).collect();
        drop(all);
        idle.sort_unstable();
        idle.into_iter().map(|(_, id)| id).collect()
    }

    /// Lets an idle cursor release its memory; one that cannot is closed. Commands that want it meanwhile wait.
    pub fn release_idle(&self, id: i64, release: impl FnOnce(&mut Cursor) -> Released) -> Released {
        let mut moving = {
            let mut all = self.all.lock();
            let Some(entry) = all.get_mut(&id).filter(|entry| !entry.in_use()) else {
                return Released::Nothing;
            };
            match std::mem::replace(&mut entry.state, State::Moving) {
                State::Idle(cursor) => Moving {
                    table: self,
                    id,
                    cursor: Some(cursor),
                },
                other => {
                    entry.state = other;
                    return Released::Nothing;
                }
            }
        };
        let released = match &mut moving.cursor {
            Some(cursor) => release(cursor),
            None => Released::Nothing,
        };
        if released == Released::Close {
            moving.cursor = None;
            let mut closed = self.closed_for_memory.lock();
            if closed.len() == CLOSED_MAX {
                closed.pop_front();
            }
            closed.push_back(id);
        }
        released
    }

    /// The error for a cursor that is not there: [`ErrorCode::SnapshotTooOld`] if it was closed because memory was scarce.
    pub fn missing(&self, id: i64) -> Error {
        if self.closed_for_memory.lock().contains(&id) {
            too_old(id)
        } else {
            not_found(id)
        }
    }

    /// Stores a cursor and returns its id, a random positive number.
    pub fn insert(&self, mut cursor: Cursor) -> i64 {
        self.count(&mut cursor);
        let mut all = self.all.lock();
        let id = loop {
            let id = self.mark.map_or_else(
                || (rand::random::<u64>() >> 1) as i64,
                |mark| i64::from(mark) << MARK_SHIFT | (rand::random::<u64>() >> 16) as i64,
            );
            if id != 0 && !all.contains_key(&id) {
                break id;
            }
        };
        let entry = Entry {
            namespace: cursor.namespace.clone(),
            owner: cursor.owner.clone(),
            session: cursor.session,
            transaction: cursor.transaction,
            no_timeout: cursor.no_timeout,
            originating: cursor.originating.clone(),
            last_used: Instant::now(),
            awaits: cursor.awaits,
            is_change_stream: cursor.is_change_stream,
            is_backup: cursor.is_backup(),
            _follower: (cursor.awaits && !cursor.is_backup()).then(|| self.followers.add()),
            waiting: None,
            ended_by: None,
            state: State::Idle(Box::new(cursor)),
        };
        all.insert(id, entry);
        id
    }

    /// Takes a cursor out for use by one command, which the flag interrupts.
    pub fn check_out(&self, id: i64, flag: &Arc<AtomicBool>) -> Result<CheckedOut<'_>> {
        let mut all = self.all.lock();
        while let Some(Entry {
            state: State::Moving,
            ..
        }) = all.get(&id)
        {
            if flag.load(Ordering::Relaxed) {
                let message = "operation was interrupted";
                return Err(Error::new(ErrorCode::Interrupted, message));
            }
            self.moved.wait_for(&mut all, MOVED_CHECK);
        }
        let entry = all.get_mut(&id).ok_or_else(|| self.missing(id))?;
        if entry.waiting.is_some() {
            return Err(in_use(id));
        }
        if let State::Ended = entry.state {
            return Err(Cursors::forget(&mut all, id));
        }
        match std::mem::replace(&mut entry.state, State::InUse(flag.clone())) {
            State::Idle(cursor) => Ok(CheckedOut {
                table: self,
                id,
                cursor: Some(cursor),
            }),
            other => {
                entry.state = other;
                Err(in_use(id))
            }
        }
    }

    /// Records that a getMore waits for documents of an idle cursor; `wake` wakes it when the cursor is closed.
    /// False if the cursor is closed already.
    pub fn park(&self, id: i64, wake: &Arc<Notify>) -> bool {
        match self.all.lock().get_mut(&id) {
            Some(entry) => {
                entry.waiting = Some(wake.clone());
                true
            }
            None => false,
        }
    }

    /// Records that the getMore no longer waits. False if the cursor was closed meanwhile.
    pub fn unpark(&self, id: i64) -> bool {
        match self.all.lock().get_mut(&id) {
            Some(entry) => {
                entry.waiting = None;
                true
            }
            None => false,
        }
    }

    /// The open cursors that follow the end of a collection or of the oplog.
    pub fn followers(&self) -> &Followers {
        &self.followers
    }

    /// The properties of a cursor that a getMore checks before it takes the cursor out.
    pub fn describe(&self, id: i64) -> Option<Described> {
        self.all.lock().get(&id).map(|entry| Described {
            namespace: entry.namespace.clone(),
            awaits: entry.awaits,
            is_change_stream: entry.is_change_stream,
            is_backup: entry.is_backup,
        })
    }

    /// The namespace of a cursor, and its owner.
    pub fn owner(&self, id: i64) -> Option<(String, Option<Arc<Owner>>)> {
        let all = self.all.lock();
        let entry = all.get(&id)?;
        Some((entry.namespace.clone(), entry.owner.clone()))
    }

    /// The namespace of a cursor.
    pub fn namespace(&self, id: i64) -> Option<String> {
        self.all
            .lock()
            .get(&id)
            .map(|entry| entry.namespace.clone())
    }

    /// Documents that a cursor has returned; none while it is in use.
    pub fn returned(&self, id: i64) -> Option<u64> {
        match &self.all.lock().get(&id)?.state {
            State::Idle(cursor) => Some(cursor.returned),
            State::InUse(_) | State::Moving | State::Ended => None,
        }
    }

    /// Closes a cursor; one in use is interrupted. False if there is none.
    pub fn kill(&self, id: i64) -> bool {
        self.kill_ids(|_| vec![id]) == 1
    }

    fn kill_ids(&self, choose: impl FnOnce(&HashMap<i64, Entry>) -> Vec<i64>) -> u64 {
        // Dropped after the lock is released: closing may take time.
        let dead: Vec<Entry> = {
            let mut all = self.all.lock();
            let ids = choose(&all);
            ids.iter()
                .filter_map(|id| all.remove(id))
                .inspect(Entry::interrupt)
                .collect()
        };
        dead.len() as u64
    }

    fn kill_if(&self, mut gone: impl FnMut(&Entry) -> bool) -> u64 {
        self.kill_ids(|all| {
            all.iter()
                .filter(|(_, entry)| gone(entry))
                .map(|(id, _)| *id)
                .collect()
        })
    }

    /// Closes the cursors of a session.
    pub fn kill_session(&self, session: SessionId) -> u64 {
        self.kill_if(|entry| entry.session == Some(session))
    }

    /// Closes the cursors of a transaction.
    pub fn kill_transaction(&self, session: SessionId, number: i64) -> u64 {
        self.kill_if(|entry| entry.session == Some(session) && entry.transaction == Some(number))
    }

    pub fn kill_all(&self) -> u64 {
        self.kill_if(|_| true)
    }

    /// Closes the cursors that were idle for the timeout. Returns how many.
    pub fn expire(&self, now: Instant, timeout: Duration) -> u64 {
        self.kill_if(|entry| {
            let timeout = timeout.min(if entry.is_backup {
                backup::IDLE_MAX
            } else {
                timeout
            });
            !entry.in_use()
                && (!entry.no_timeout || entry.ended_by.is_some())
                && now.saturating_duration_since(entry.last_used) >= timeout
        })
    }
}

#[cfg(test)]
mod tests;
