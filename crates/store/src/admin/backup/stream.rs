//! The stream of `$backupStream`, document by document.
//!
//! A copy comes first: `begin`, `extents`, `head`, the `log` up to the moment of a `mark`, and then the `data`. A stream that
//! follows goes on with the log and a mark for each tenth of a second in which something was written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frond_bson::{DocBuf, Timestamp, Value, doc};
use frond_error::{Error, ErrorCode};

use super::rate::Rate;
use super::request::{BackupRequest, pack};
use crate::own_files::OwnFiles;
use crate::store::DocumentStore;
use frond_storage::clock::now_ms;
use frond_storage::context::OpContext;
use frond_storage::error::Result;
use frond_storage::keyspace::{CheckpointCopy, EngineError, ExtentId, Files, LogTail, MemberLog};

/// The most bytes of the data file in one document.
const DATA_BYTES: usize = 4 << 20;
/// The approximate number of bytes of the log in one document.
const LOG_BYTES: usize = 4 << 20;
/// Extents in one document.
const LISTED: usize = 128 << 10;
/// The time between two marks while something is written.
const MARKS: Duration = Duration::from_millis(50);
/// The time between two marks while nothing is written.
const IDLE_MARKS: Duration = Duration::from_secs(2);
/// The time until what was made durable can be read.
const SOON: Duration = Duration::from_millis(5);
/// The most marks that wait for their log.
const MARKS_MAX: usize = 1000;

/// The next step of a stream.
#[derive(Debug)]
pub enum Step {
    Document(DocBuf),
    /// Nothing for some time: look again later.
    Pause(Duration),
    End,
}

/// The progress of a stream; shared with `serverStatus`.
#[derive(Debug, Default)]
pub struct BackupProgress {
    /// Bytes of the data file that are to be sent.
    pub total_bytes: AtomicU64,
    /// Those that were sent.
    pub done_bytes: AtomicU64,
    /// Bytes of the log that were sent.
    pub log_bytes: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begin,
    Extents { at: usize },
    Head,
    Log,
    Data,
    Follow,
    End,
    Ended,
}

/// A mark whose log is still to be sent.
#[derive(Clone, Copy, Debug)]
struct Mark {
    time: i64,
    until: i64,
    position: u64,
    stamp: u64,
}

/// An open stream. It keeps a checkpoint and the log from being reused until it is dropped.
pub struct BackupStream {
    store: DocumentStore,
    files: Files,
    request: BackupRequest,
    rate: Rate,
    copy: Option<CheckpointCopy>,
    log: Option<LogTail>,
    phase: Phase,
    /// Indexes of the next extent, in the list of the copy.
    next: usize,
    /// Bytes of the data file that are not sent yet, and their offset.
    data: Vec<u8>,
    data_offset: u64,
    data_sent: usize,
    scratch: Vec<u8>,
    /// Marks whose log is still to be sent.
    marks: VecDeque<Mark>,
    /// When the last mark was taken, and its position.
    marked: Option<(Instant, u64)>,
    progress: Arc<BackupProgress>,
}

impl DocumentStore {
    /// Opens a stream.
    ///
    /// # Errors
    /// `ChangeStreamHistoryLost` (286) if the log is gone from the position that is asked for; `BadValue` (2) for a position behind its
    /// end; errors of the engine.
    pub fn backup_stream(&self, request: BackupRequest) -> Result<BackupStream> {
        let files = OwnFiles::new(self.engine()).require()?;
        let (mut copy, mut log) = (None, None);
        if request.is_log_only {
            // Without a journal there is nothing to follow.
            if request.follows || request.from_position.is_some() || files.log_end() > 0 {
                let tail = files.log_tail(request.from_position);
                log = Some(tail.map_err(log_error)?);
            }
        } else {
            let begun = files.begin_copy()?;
            log = Some(begun.log().map_err(log_error)?).or(log);
            copy = Some(begun);
        }
        Ok(BackupStream {
            store: self.clone(),
            files: files.clone(),
            rate: Rate::new(request.bytes_per_second),
            copy,
            log,
            phase: Phase::Begin,
            next: 0,
            data: Vec::new(),
            data_offset: 0,
            data_sent: 0,
            scratch: Vec::new(),
            marks: VecDeque::new(),
            marked: None,
            progress: Arc::default(),
            request,
        })
    }
}

/// A position that is gone has a code of its own, so that the client can begin again.
fn log_error(error: EngineError) -> crate::Error {
    match error {
        EngineError::LogGone { position } => Error::new(
            ErrorCode::ChangeStreamHistoryLost,
            format!(
                "the log is not kept any more from position {position} on; take an incremental backup, and continue from its end"
            ),
        )
        .into(),
        EngineError::InvalidOption(text) => Error::bad_value(text).into(),
        other => other.into(),
    }
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn bytes(bytes: &[u8]) -> Value<'_> {
    Value::Binary { subtype: 0, bytes }
}

impl BackupStream {
    /// The progress of the stream.
    pub fn progress(&self) -> &Arc<BackupProgress> {
        &self.progress
    }

    /// Limits the copy by another rate.
    pub(super) fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Whether the rate makes the copy wait.
    pub(super) fn must_wait(&self) -> bool {
        self.rate.wait(Instant::now()).is_some()
    }

    /// Bytes that it holds in memory.
    pub fn held_bytes(&self) -> usize {
        let extents = self.copy.as_ref().map_or(0, |copy| copy.extents().len());
        let known = self
            .request
            .known
            .as_ref()
            .map_or(0, |(_, known)| known.len());
        self.data.capacity() + self.scratch.capacity() + 48 * extents + 32 * known
    }

    /// The next step.
    ///
    /// # Errors
    /// Damage, errors of the disk, the limits of the context.
    pub fn next(&mut self, context: &OpContext) -> Result<Step> {
        loop {
            context.check()?;
            self.check_disk()?;
            match self.phase {
                Phase::Begin => return self.begin().map(Step::Document),
                Phase::Extents { at } => match self.extents(at) {
                    Some(document) => return Ok(Step::Document(document)),
                    None => self.phase = Phase::Head,
                },
                Phase::Head => {
                    self.phase = Phase::Log;
                    if let Some(copy) = &self.copy {
                        // The store keys go with the copy, encrypted with the master key.
                        let mut head = copy.head();
                        head.extend_from_slice(copy.key_store());
                        return Ok(Step::Document(checked("head", &head)));
                    }
                }
                Phase::Log => {
                    if let Some(document) = self.log_to_mark(true)? {
                        return Ok(Step::Document(document));
                    }
                    if !self.marks.is_empty() {
                        // Durable groups can be read a moment later.
                        return Ok(Step::Pause(SOON));
                    }
                    if !self.request.follows {
                        // The log is not held during the copy.
                        self.log = None;
                    }
                    self.phase = match (&self.copy, self.request.follows) {
                        (Some(_), _) => Phase::Data,
                        (None, true) => Phase::Follow,
                        (None, false) => Phase::End,
                    };
                }
                Phase::Data => {
                    self.show(context);
                    if let Some(wait) = self.rate.wait(Instant::now()) {
                        return Ok(Step::Pause(wait));
                    }
                    if let Some(document) = self.data(context)? {
                        return Ok(Step::Document(document));
                    }
                    self.copy = None;
                    self.data = Vec::new();
                    self.phase = if self.request.follows {
                        Phase::Follow
                    } else {
                        Phase::End
                    };
                }
                Phase::Follow => return self.follow(),
                Phase::End => {
                    self.phase = Phase::Ended;
                    let mut end = doc! {"t": "end"};
                    end.push_value("time", &Value::DateTime(now_ms()));
                    return Ok(Step::Document(end));
                }
                Phase::Ended => return Ok(Step::End),
            }
        }
    }

    /// Ends the stream when the disk is nearly full: what it holds takes room that the store needs.
    fn check_disk(&self) -> Result<()> {
        let holds = self.copy.is_some() || self.log.is_some();
        if holds && self.files.is_disk_low() {
            Err(Error::new(
                ErrorCode::OutOfDiskSpace,
                "the backup was ended because the disk is nearly full: what it holds takes room that the server needs",
            )
            .into())
        } else {
            Ok(())
        }
    }

    fn show(&self, context: &OpContext) {
        if let Some(progress) = &context.progress {
            let done = self.progress.done_bytes.load(Ordering::Relaxed);
            let total = self.progress.total_bytes.load(Ordering::Relaxed);
            progress.set("Backup: copying the data file", done, total);
        }
    }

    fn begin(&mut self) -> Result<DocBuf> {
        let id = self.files.store_id();
        // Extents of another store would be taken for those of this one.
        self.request.known.take_if(|(store, _)| *store != id);
        let mut begin = doc! {"t": "begin", "version": 1};
        begin.push_value("storeId", &bytes(&id));
        begin.push_value("time", &Value::DateTime(now_ms()));
        if let Some(copy) = &self.copy {
            let all = copy.extents();
            let total: u64 = all.iter().map(|extent| extent.len).sum();
            let missing = all.iter().filter(|extent| !self.is_known(extent));
            let to_copy: u64 = missing.map(|extent| extent.len).sum();
            self.progress.total_bytes.store(to_copy, Ordering::Relaxed);
            begin.push("generation", long(copy.generation()));
            begin.push("extents", long(all.len() as u64));
            begin.push("bytes", long(total));
            begin.push("copyBytes", long(to_copy));
            begin.push("logFrom", long(copy.log_start()));
            begin.push("completeAt", long(copy.complete_at()));
        } else {
            let position = self.log.as_ref().map_or(0, LogTail::position);
            begin.push("logFrom", long(position));
        }
        self.take_mark();
        self.phase = match self.copy {
            Some(_) => Phase::Extents { at: 0 },
            None => Phase::Log,
        };
        Ok(begin)
    }

    /// Notes that what is committed before now is before the position that the log has then.
    fn take_mark(&mut self) {
        let time = now_ms();
        let complete_at = self.copy.as_ref().map_or(0, CheckpointCopy::complete_at);
        let oplog = self.store.oplog();
        let stamp = if oplog.is_on() { oplog.durable() } else { 0 };
        // The log of a member of a replica set ends, for all readers, where it is committed.
        let position = self.files.committed_position().max(complete_at);
        self.marks.push_back(Mark {
            time,
            // The milliseconds are cut.
            until: now_ms() + 1,
            position,
            stamp,
        });
        self.marked = Some((Instant::now(), position));
    }

    fn is_known(&self, extent: &ExtentId) -> bool {
        let known = self.request.known.as_ref();
        known.is_some_and(|(_, known)| known.contains(extent))
    }

    fn extents(&mut self, at: usize) -> Option<DocBuf> {
        let all = self.copy.as_ref()?.extents();
        let listed = all.get(at..all.len().min(at + LISTED))?;
        if listed.is_empty() {
            return None;
        }
        let mut document = doc! {"t": "extents"};
        document.push_value("ids", &bytes(&pack(listed)));
        self.phase = Phase::Extents {
            at: at + listed.len(),
        };
        Some(document)
    }

    /// The log up to the next mark, or the mark. `None` if there is no mark, or if its log is not durable yet; `flush` makes it so.
    fn log_to_mark(&mut self, flush: bool) -> Result<Option<DocBuf>> {
        let Some(mark) = self.marks.front().copied() else {
            return Ok(None);
        };
        if let Some(log) = &mut self.log
            && log.position() < mark.position
        {
            let Some(piece) = log.read(LOG_BYTES, flush).map_err(log_error)? else {
                return Ok(None);
            };
            log.release_before(piece.to);
            let sent = piece.groups.len() as u64;
            self.progress.log_bytes.fetch_add(sent, Ordering::Relaxed);
            let mut document = checked("log", &piece.groups);
            document.push("from", long(piece.from));
            document.push("to", long(piece.to));
            return Ok(Some(document));
        }
        self.marks.pop_front();
        let mut document = doc! {"t": "mark"};
        document.push_value("time", &Value::DateTime(mark.time));
        document.push_value("until", &Value::DateTime(mark.until));
        document.push("position", long(mark.position));
        if mark.stamp > 0 {
            let stamp = Timestamp::from_u64(mark.stamp);
            document.push_value("stamp", &Value::Timestamp(stamp));
        }
        Ok(Some(document))
    }

    /// The log and the marks as they come. Nothing is made durable for them: the log's own interval decides.
    fn follow(&mut self) -> Result<Step> {
        let is_due = self.marked.is_none_or(|(at, position)| {
            let is_idle = self.files.committed_position() == position;
            at.elapsed() >= if is_idle { IDLE_MARKS } else { MARKS }
        });
        if is_due && self.marks.len() < MARKS_MAX {
            self.take_mark();
        }
        let document = self.log_to_mark(false)?;
        Ok(document.map_or(Step::Pause(MARKS), Step::Document))
    }

    /// The next bytes of the data file: of extents that follow each other, or a part of a large one.
    fn data(&mut self, context: &OpContext) -> Result<Option<DocBuf>> {
        if self.data_sent == self.data.len() {
            self.read_data(context)?;
        }
        let rest = &self.data[self.data_sent..];
        if rest.is_empty() {
            return Ok(None);
        }
        let piece = &rest[..rest.len().min(self.rate.piece(DATA_BYTES))];
        let mut document = checked("data", piece);
        document.push("offset", long(self.data_offset + self.data_sent as u64));
        self.data_sent += piece.len();
        let sent = piece.len();
        self.rate.spend(sent, Instant::now());
        self.progress
            .done_bytes
            .fetch_add(sent as u64, Ordering::Relaxed);
        Ok(Some(document))
    }

    fn read_data(&mut self, context: &OpContext) -> Result<()> {
        self.data.clear();
        self.data_sent = 0;
        let Some(copy) = &self.copy else {
            return Ok(());
        };
        while let Some(extent) = copy.extents().get(self.next) {
            if self.is_known(extent) {
                self.next += 1;
                continue;
            }
            let end = self.data_offset + self.data.len() as u64;
            let is_next = self.data.is_empty() || extent.offset == end;
            let fits = self.data.is_empty() || self.data.len() + extent.len as usize <= DATA_BYTES;
            if !is_next || !fits {
                break;
            }
            context.check()?;
            if self.data.is_empty() {
                self.data_offset = extent.offset;
                copy.read(extent, &mut self.data)?;
            } else {
                copy.read(extent, &mut self.scratch)?;
                self.data.extend_from_slice(&self.scratch);
            }
            self.next += 1;
        }
        Ok(())
    }
}

/// A document with bytes and their checksum.
fn checked(kind: &str, content: &[u8]) -> DocBuf {
    let mut document = DocBuf::with_capacity(content.len() + 128);
    document.push("t", kind);
    document.push_value("bytes", &bytes(content));
    document.push("crc32c", i64::from(crc32c::crc32c(content)));
    document
}
