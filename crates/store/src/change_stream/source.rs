//! The events of a stream, read from the oplog.
//!
//! Between two batches a source keeps only its position: the snapshot and the cursor over the oplog's tree are let go. A
//! transaction is unwound operation by operation, with one of its entries in memory.

use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::DocBuf;
use frond_error::ErrorCode;
use frond_query::matcher::Filter;

use super::event::{self, Change, Event, Subject};
use super::images;
use super::spec::{Spec, Start, WatchScope};
use crate::oplog::readers::Reader;
use crate::oplog::{Oplog, is_off, timestamp_of_key};
use crate::store::DocumentStore;
use frond_oplog::entry::{Kind, RawEntry, Session};
use frond_oplog::token::Token;
use frond_storage::context::OpContext;
use frond_storage::error::{Error, Result, command, corrupt};
use frond_storage::keyspace::{Cursor, Direction, Snapshot, TreeId};
use frond_storage::points::point;

/// A larger entry of a transaction is not kept between two batches, but read again.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// The longest search of a stream for events. The client of a long oplog then gets a token to continue at.
const LOOK_MAX: Duration = Duration::from_secs(1);

pub struct Changes {
    pub store: DocumentStore,
    pub scope: WatchScope,
    pub spec: Spec,
    pub context: OpContext,
    /// Conditions of the pipeline on the type and the namespace of an event.
    on_head: Option<Arc<Filter>>,
    head: DocBuf,
    /// The token that the stream continues at, until its event was found.
    sought: Option<Token>,
    /// The next entry to read has this time, or a later one.
    next: u64,
    /// The stream began at this time.
    start: u64,
    /// Everything up to this time was looked at.
    scanned: u64,
    /// The tree of the oplog when the stream was opened.
    opened_on: Option<TreeId>,
    reader: Reader,
    /// The notifications before the last look that came to the end, and before the look at hand.
    looked: Option<u64>,
    looking: u64,
    /// The number of entries that were read.
    pub examined: u64,
    /// When the look at hand began, and the operations that it was about.
    began: Option<Instant>,
    steps: u32,
    /// Whether the last look ended because it took long, so that there may be more to look at.
    pub was_stopped: bool,
    /// Whether documents were looked up that may not be durable.
    looked_up: bool,
    reading: Option<Reading>,
    unwinding: Option<Unwinding>,
    /// The `invalidate` that comes next.
    queued: Option<Event>,
    /// Whether the stream has ended.
    pub is_invalidated: bool,
    /// The event that was returned last.
    pub last: Option<Token>,
    /// The number of fragments of the next event that the client has.
    pub skipped_fragments: Option<(Token, u32)>,
}

/// A scan of the oplog.
struct Reading {
    snapshot: Snapshot,
    cursor: Cursor,
    /// Entries up to this time are read.
    until: u64,
}

/// A transaction whose operations are returned one by one.
struct Unwinding {
    /// The times of its entries: the one at hand, and the last one, which is that of the commit.
    at: u64,
    last: u64,
    /// The entry at hand.
    value: Vec<u8>,
    /// Its next operation: where it begins, and its position in the entry and in the transaction.
    offset: usize,
    stored_position: u32,
    position: u32,
}

/// The number of operations that are examined between two readings of the clock.
const STEPS: u32 = 64;

/// The error of a stream whose next entries are gone.
fn history_lost() -> Error {
    command(
        ErrorCode::ChangeStreamHistoryLost,
        "Resume of change stream was not possible, as the resume point may no longer be in the oplog.",
    )
}

/// The error of a token whose event is not in the oplog.
fn not_found(token: &Token) -> Error {
    command(
        ErrorCode::ChangeStreamFatalError,
        format!("cannot resume stream; the resume token was not found. {token}"),
    )
}

/// The result of a scan of the oplog.
enum Found {
    Event(Box<Event>),
    Transaction,
    Nothing,
    /// The end, for now.
    End,
}

impl Changes {
    /// A source that has not begun.
    pub fn new(
        store: &DocumentStore,
        scope: WatchScope,
        spec: Spec,
        on_head: Option<Arc<Filter>>,
        reader: Reader,
        context: &OpContext,
    ) -> Changes {
        let token = spec.start.token();
        let next = match &token {
            Some(token) => token.cluster_time,
            None => store.change_stream_start().saturating_add(1),
        };
        Changes {
            store: store.clone(),
            scope,
            spec,
            context: context.clone(),
            on_head,
            head: DocBuf::new(),
            sought: token.filter(|token| token.is_event),
            next,
            start: next,
            scanned: next.saturating_sub(1),
            opened_on: store.oplog().tree(),
            reader,
            looked: None,
            looking: 0,
            examined: 0,
            began: None,
            steps: 0,
            was_stopped: false,
            looked_up: false,
            reading: None,
            unwinding: None,
            queued: None,
            is_invalidated: false,
            last: None,
            skipped_fragments: None,
        }
    }

    /// Checks that the place where the stream begins is still there.
    ///
    /// # Errors
    /// `ChangeStreamHistoryLost` (286), errors of the engine.
    pub fn check_start(&mut self) -> Result<()> {
        self.open()?;
        Ok(())
    }

    /// The token to continue at, if all returned events are received: that of the last one, or a high-water mark if later
    /// entries were looked at.
    pub fn resume_token(&self) -> Token {
        let mark = Token::high_water_mark(self.scanned.max(self.start));
        let start = match &self.spec.start {
            Start::Resume(token) | Start::After(token) => Some(token),
            Start::Now | Start::At(_) => None,
        };
        let last = self.last.as_ref().or(start);
        match last {
            Some(last) if self.is_invalidated || last.to_bytes() > mark.to_bytes() => last.clone(),
            _ => mark,
        }
    }

    /// Ends a look: drops the snapshot, and a large part of a transaction. Documents that were looked up are durable
    /// then.
    ///
    /// # Errors
    /// Errors of the engine. What was read may not be shown.
    pub fn rest(&mut self) -> Result<()> {
        self.reading = None;
        self.began = None;
        if let Some(unwinding) = &mut self.unwinding
            && unwinding.value.len() > KEPT_BYTES_MAX
        {
            unwinding.value = Vec::new();
        }
        // A commit that is in a snapshot has its time, although it may not yet be noted in the oplog.
        let given_out = self.store.cluster_time().last().to_u64();
        if std::mem::take(&mut self.looked_up) && given_out > self.store.oplog().durable() {
            self.store.engine().flush_log()?;
        }
        Ok(())
    }

    /// Bytes of memtables that it keeps in memory.
    pub fn retained_bytes(&self) -> u64 {
        let engine = self.store.engine();
        let reading = self.reading.as_ref();
        reading.map_or(0, |reading| engine.retained_by(&reading.snapshot))
    }

    /// Bytes that it holds.
    pub fn held_bytes(&self) -> u64 {
        let unwinding = self.unwinding.as_ref();
        unwinding.map_or(0, |unwinding| unwinding.value.capacity() as u64)
    }

    /// Whether the look at hand took long.
    fn takes_long(&mut self) -> bool {
        let began = *self.began.get_or_insert_with(|| {
            self.steps = 0;
            Instant::now()
        });
        self.steps = self.steps.wrapping_add(1);
        self.steps.is_multiple_of(STEPS) && began.elapsed() > LOOK_MAX
    }

    /// The next event; `None` if there is none for now, the look took long, or the stream has ended.
    ///
    /// # Errors
    /// `ChangeStreamFatalError` (280), `ChangeStreamHistoryLost` (286), `NoMatchingDocument` (47), the limits of the context,
    /// errors of the engine.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        if let Some(event) = self.queued.take() {
            self.is_invalidated = true;
            self.last = Some(event.token.clone());
            return Ok(Some(event));
        }
        self.was_stopped = false;
        while !self.is_invalidated {
            self.context.step()?;
            if self.takes_long() {
                self.was_stopped = true;
                return Ok(None);
            }
            point("a change stream looks at an operation");
            let event = if self.unwinding.is_some() {
                self.unwind()?
            } else {
                match self.scan()? {
                    Found::Event(event) => Some(*event),
                    Found::Transaction | Found::Nothing => None,
                    Found::End => return Ok(None),
                }
            };
            if let Some(event) = event {
                self.last = Some(event.token.clone());
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn tree(&self) -> Result<TreeId> {
        let tree = self.store.oplog().tree().ok_or_else(is_off)?;
        if self.opened_on == Some(tree) {
            Ok(tree)
        } else {
            // It was turned off and on again: changes between are missing.
            Err(history_lost())
        }
    }

    /// Opens the scan behind the last entry that was read. `false` if there is nothing to read.
    fn open(&mut self) -> Result<bool> {
        let oplog = self.store.oplog().clone();
        let tree = self.tree()?;
        self.looking = self.reader.signal().insertions();
        // A snapshot that is taken later has all of this.
        let until = oplog.durable();
        if self.looked == Some(self.looking)
            && let Some(quiet) = self.reader.quiet_until(until, self.looking)
        {
            // Later entries are about other collections.
            self.scanned = self.scanned.max(quiet);
            self.next = self.next.max(quiet.saturating_add(1));
            if quiet == until {
                return Ok(false);
            }
        }
        let snapshot = self.store.engine().snapshot();
        if !snapshot.has_tree(tree)? {
            return Err(is_off());
        }
        self.check_history(&oplog, &snapshot, tree)?;
        if self.next > until {
            self.scanned = self.scanned.max(until);
            self.looked = Some(self.looking);
            return Ok(false);
        }
        let low = self.next.to_be_bytes();
        let high = until.saturating_add(1).to_be_bytes();
        let (low, high) = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
        let cursor = snapshot.cursor(tree, low, high, Direction::Forward)?;
        self.reading = Some(Reading {
            snapshot,
            cursor,
            until,
        });
        Ok(true)
    }

    /// Fails if entries were removed that the stream has not read.
    fn check_history(&self, oplog: &Oplog, snapshot: &Snapshot, tree: TreeId) -> Result<()> {
        if self.next >= oplog.first().to_u64() {
            return Ok(());
        }
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = snapshot.cursor(tree, low, high, Direction::Forward)?;
        // A token from before the first entry is one of an oplog that was turned off since.
        let has_token = matches!(self.spec.start, Start::Resume(_) | Start::After(_));
        let is_complete = match cursor.next()? {
            None => true,
            Some((key, value)) => {
                let entry = RawEntry::read(value)?;
                let message = entry.o().get_str("msg");
                timestamp_of_key(key).is_some_and(|first| first <= self.next)
                    || (!has_token
                        && entry.kind() == Kind::Noop
                        && message == Some(Oplog::FIRST_ENTRY))
            }
        };
        if is_complete {
            Ok(())
        } else {
            Err(history_lost())
        }
    }

    fn scan(&mut self) -> Result<Found> {
        if self.reading.is_none() && !self.open()? {
            self.check_passed(self.scanned)?;
            return Ok(Found::End);
        }
        // It is put back unless the end is reached: the entry borrows from it.
        let Some(mut reading) = self.reading.take() else {
            return Ok(Found::End);
        };
        let Some((key, value)) = reading.cursor.next()? else {
            self.next = self.next.max(reading.until.saturating_add(1));
            self.scanned = self.scanned.max(reading.until);
            self.looked = Some(self.looking);
            self.check_passed(self.scanned)?;
            return Ok(Found::End);
        };
        let time = timestamp_of_key(key).ok_or_else(|| corrupt("a key of the oplog"))?;
        let entry = RawEntry::read(value)?;
        self.examined += 1;
        if entry.is_transaction() {
            let chain = entry.chain_position();
            self.begin_unwinding(&reading, time, chain)?;
            self.reading = Some(reading);
            return Ok(Found::Transaction);
        }
        self.check_passed(time.saturating_sub(1))?;
        let change = Change {
            entry,
            time,
            position: 0,
            stored: (time, 0),
            wall_ms: entry.wall_ms(),
            transaction: None,
        };
        let event = self.event(&change);
        self.next = time.saturating_add(1);
        self.scanned = time;
        self.reading = Some(reading);
        Ok(match event? {
            Some(event) => Found::Event(Box::new(event)),
            None => Found::Nothing,
        })
    }

    /// Begins to unwind the transaction that has an entry at `time`, the entry number `chain` of the transaction.
    fn begin_unwinding(&mut self, reading: &Reading, time: u64, chain: u32) -> Result<()> {
        let tree = self.tree()?;
        let first = time.saturating_sub(u64::from(chain));
        let low = first.to_be_bytes();
        let (low, high) = (Bound::Included(&low[..]), Bound::Unbounded);
        let mut cursor = (reading.snapshot).cursor(tree, low, high, Direction::Forward)?;
        let mut last = first;
        let mut begins = false;
        while let Some((key, value)) = cursor.next()? {
            self.context.step()?;
            let entry = RawEntry::read(value)?;
            last = timestamp_of_key(key).ok_or_else(|| corrupt("a key of the oplog"))?;
            begins |= last == first;
            if !begins {
                return Err(history_lost());
            }
            if !entry.is_partial() {
                break;
            }
        }
        self.check_passed(last.saturating_sub(1))?;
        self.unwinding = Some(Unwinding {
            at: first,
            last,
            value: Vec::new(),
            offset: 0,
            stored_position: 0,
            position: 0,
        });
        Ok(())
    }

    /// The next event of the transaction at hand; `None` if the next operation has none, and at its end.
    fn unwind(&mut self) -> Result<Option<Event>> {
        let Some(mut unwinding) = self.unwinding.take() else {
            return Ok(None);
        };
        if unwinding.value.is_empty() {
            let key = unwinding.at.to_be_bytes();
            let tree = self.tree()?;
            let value = self.store.engine().snapshot().get(tree, &key)?;
            let value = value.ok_or_else(history_lost)?;
            unwinding.value = value.to_vec();
        }
        let entry = RawEntry::read(&unwinding.value)?;
        let Some((operation, end)) = entry.operation_at(unwinding.offset)? else {
            if unwinding.at >= unwinding.last {
                self.next = self.next.max(unwinding.last.saturating_add(1));
                self.scanned = self.scanned.max(unwinding.last);
                self.check_passed(unwinding.last)?;
                self.skip_reading();
                return Ok(None);
            }
            self.unwinding = Some(Unwinding {
                at: unwinding.at + 1,
                value: Vec::new(),
                offset: 0,
                stored_position: 0,
                ..unwinding
            });
            return Ok(None);
        };
        let session: Option<Session> = entry.session();
        let change = Change {
            entry: operation,
            time: unwinding.last,
            position: unwinding.position,
            stored: (unwinding.at, unwinding.stored_position),
            wall_ms: entry.wall_ms(),
            transaction: Some(session),
        };
        let event = self.event(&change)?;
        unwinding.offset = end;
        unwinding.stored_position += 1;
        unwinding.position += 1;
        self.unwinding = Some(unwinding);
        Ok(event)
    }

    /// Moves the scan behind a transaction that was unwound.
    fn skip_reading(&mut self) {
        if let Some(reading) = &mut self.reading
            && reading.cursor.seek(&self.next.to_be_bytes()).is_err()
        {
            // It is opened again.
            self.reading = None;
        }
    }

    /// Fails if the event that the stream continues at should have been among those up to this time.
    fn check_passed(&self, time: u64) -> Result<()> {
        match &self.sought {
            Some(sought) if sought.cluster_time <= time => Err(not_found(sought)),
            _ => Ok(()),
        }
    }

    /// The event of an operation, if the stream shows it.
    fn event(&mut self, change: &Change<'_>) -> Result<Option<Event>> {
        let Some(subject) = Subject::from_entry(&change.entry) else {
            return Ok(None);
        };
        if !subject.is_in(&self.scope, &self.spec) {
            return Ok(None);
        }
        if self.sought.is_some() {
            return self.seek(change, &subject);
        }
        let invalidates = subject.invalidates(&self.scope);
        let is_shown = self.is_shown(&subject)?;
        if !is_shown && !invalidates {
            return Ok(None);
        }
        let mut event = event::build(change, &subject, &self.spec)?;
        if invalidates {
            self.queued = Some(event::invalidate(&event, change));
            if !is_shown {
                return self.take_queued();
            }
        }
        self.complete(&mut event, change, &subject)?;
        Ok(Some(event))
    }

    /// Looks whether this is the event that the stream continues at.
    fn seek(&mut self, change: &Change<'_>, subject: &Subject<'_>) -> Result<Option<Event>> {
        let Some(sought) = self.sought.clone() else {
            return Ok(None);
        };
        let place = |token: &Token| (token.cluster_time, token.position);
        if (change.time, change.position) < place(&sought) {
            return Ok(None);
        }
        let mut event = event::build(change, subject, &self.spec)?;
        let invalidates = subject.invalidates(&self.scope);
        let invalidate = invalidates.then(|| event::invalidate(&event, change));
        if sought.from_invalidate {
            // The stream goes on behind the event that ended the one before.
            return match invalidate {
                Some(invalidate) if invalidate.token.is_same_event(&sought) => {
                    self.sought = None;
                    Ok(None)
                }
                _ => Err(not_found(&sought)),
            };
        }
        if !event.token.is_same_event(&sought) {
            return Err(not_found(&sought));
        }
        self.sought = None;
        self.queued = invalidate;
        if let Some(fragment) = sought.fragment {
            self.skipped_fragments = Some((event.token.clone(), fragment + 1));
            self.complete(&mut event, change, subject)?;
            return Ok(Some(event));
        }
        self.take_queued()
    }

    fn take_queued(&mut self) -> Result<Option<Event>> {
        let queued = self.queued.take();
        self.is_invalidated |= queued.is_some();
        Ok(queued)
    }

    /// Whether the stream shows the type, and the pipeline may let it pass.
    fn is_shown(&mut self, subject: &Subject<'_>) -> Result<bool> {
        if !self.spec.show_expanded_events && !subject.is_classic() {
            return Ok(false);
        }
        match &self.on_head {
            None => Ok(true),
            Some(filter) => {
                subject.fill_head(&mut self.head);
                Ok(filter.try_matches(&self.head)?)
            }
        }
    }

    fn complete(
        &mut self,
        event: &mut Event,
        change: &Change<'_>,
        subject: &Subject<'_>,
    ) -> Result<()> {
        let (spec, store, context) = (&self.spec, &self.store, &self.context);
        self.looked_up |= images::add(event, change, subject, spec, store, context)?;
        Ok(())
    }
}
