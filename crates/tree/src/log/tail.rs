//! Reading the log of an open store while it is written, in whole groups and only what is durable.
//!
//! A crash of the machine may lose frames that are not durable, and their positions are used again then. So a reader never
//! has anything that the store does not have after a crash.

use std::sync::Arc;

use super::group::{HEADER_BYTES, Header};
use super::segment::{open_existing, segments};
use super::segment_reader::Segment;
use super::state::Shared;
use crate::disk::Disk;
use crate::{Error, Result};

/// A part of the log: whole groups, as segments have them. FORMAT.md describes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPiece {
    /// The position of the first frame.
    pub from: u64,
    /// The position after the last frame, where the next piece begins.
    pub to: u64,
    /// The groups as they are stored.
    pub groups: Vec<u8>,
}

/// A reader of the log of an open store. It keeps the log from where it began, or from where it was released, until it
/// is dropped; [`crate::Options::log_hold_bytes`] is the limit.
pub struct LogTail {
    /// Nothing without a journal.
    log: Option<Arc<Shared>>,
    hold: u64,
    /// Groups that end at or before this position are passed over.
    from: u64,
    /// The position of the next group, and where it is, unless it begins the next segment.
    position: u64,
    place: Option<(Segment, u64)>,
}

impl LogTail {
    /// The log of a store without a journal.
    pub(crate) fn empty() -> LogTail {
        LogTail {
            log: None,
            hold: 0,
            from: 0,
            position: 0,
            place: None,
        }
    }

    pub(super) fn new(log: &Arc<Shared>, from: Option<u64>) -> Result<LogTail> {
        // Nothing is deleted meanwhile.
        let writer = log.writer.lock();
        let mut state = log.state.lock();
        state.check()?;
        let (end, readable) = (state.end, state.readable);
        let from = from.unwrap_or(end);
        if from > end {
            let text = format!("the log ends at position {end}, before {from}");
            return Err(Error::InvalidOption(text));
        }
        let hold = state.hold(from);
        drop(state);
        let segment = segment_before(&**writer.disk(), from.min(readable));
        drop(writer);
        let mut tail = LogTail {
            log: Some(log.clone()),
            hold,
            from,
            position: from,
            place: None,
        };
        match segment? {
            Some(segment) => tail.place_in(segment, readable)?,
            // The next segment begins there.
            None if from == end => {}
            None => return Err(Error::LogGone { position: from }),
        }
        Ok(tail)
    }

    /// Finds the group that holds the position from which on the log is read.
    fn place_in(&mut self, segment: Segment, readable: u64) -> Result<()> {
        let (mut at, mut position) = (0, segment.start);
        while position < readable {
            let header = segment.header(at)?;
            match header.filter(|header| header.position == position) {
                Some(header) if header.end() > self.from => break,
                Some(header) => {
                    at += HEADER_BYTES as u64 + u64::from(header.stored_bytes);
                    position = header.end();
                }
                // Groups that were never durable may be missing before the position from which a replay starts.
                None => match segment.find_header(at + 1, position)? {
                    Some((found, header)) if header.position <= self.from => {
                        (at, position) = (found, header.position);
                    }
                    _ => break,
                },
            }
        }
        // A part of the log that is missing is met here or by the first read.
        if position < self.from.min(readable) && at >= segment.len {
            return Err(Error::LogGone {
                position: self.from,
            });
        }
        (self.position, self.place) = (position, Some((segment, at)));
        Ok(())
    }

    /// The position of the next group.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads the next groups of about `bytes_max` bytes as they are stored, but at least one. `None` if there is nothing new. Only
    /// what is durable is read; `flush` first makes everything durable that is committed by now. The first piece begins
    /// with the group that holds the position from which on the log is read, so it may begin before it.
    ///
    /// # Errors
    /// [`Error::LogGone`] if this kept too much of the log, or if a crash lost a part of it before that was durable;
    /// [`Error::Corrupt`] if a group is damaged, errors of the disk.
    pub fn read(&mut self, bytes_max: usize, flush: bool) -> Result<Option<LogPiece>> {
        let Some(log) = self.log.clone() else {
            return Ok(None);
        };
        if flush {
            let end = {
                let state = log.state.lock();
                // A member of a replica set shows what is committed; the rest may be replaced, or wait for a majority for ever.
                (state.member.as_ref()).map_or(state.end, |member| member.committed_to)
            };
            log.wait_durable(end)?;
        }
        loop {
            let (readable, replayed_from) = {
                let state = log.state.lock();
                if !state.is_held(self.hold) {
                    return Err(Error::LogGone {
                        position: self.position,
                    });
                }
                (state.readable, state.replayed_from)
            };
            if self.position >= readable {
                return Ok(None);
            }
            let piece = match &mut self.place {
                Some((segment, at)) => {
                    let context = "getting the length of a segment of the log";
                    segment.len = segment.file.len().map_err(Error::io(context))?;
                    let end = Groups {
                        segment,
                        from: self.from,
                        readable,
                        replayed_from,
                    };
                    end.read(at, &mut self.position, bytes_max.max(1))?
                }
                None => Read::End,
            };
            match piece {
                Read::Piece(piece) => return Ok(Some(piece)),
                Read::Passed => {}
                Read::End => self.open_next(&log)?,
            }
        }
    }

    fn open_next(&mut self, log: &Shared) -> Result<()> {
        // Nothing is deleted meanwhile.
        let writer = log.writer.lock();
        let gone = Error::LogGone {
            position: self.position,
        };
        if !log.state.lock().is_held(self.hold) {
            return Err(gone);
        }
        let file = open_existing(&**writer.disk(), self.position)?.ok_or(gone)?;
        let segment = Segment::of(&**writer.disk(), file, self.position)?;
        if segment.len == 0 {
            // The log is durable here, unless a crash has lost it before.
            let replayed_from = log.state.lock().replayed_from;
            return Err(damaged(&segment, 0, self.position, replayed_from));
        }
        self.place = Some((segment, 0));
        Ok(())
    }

    /// Allows the store to delete the log before a position.
    pub fn release_before(&mut self, position: u64) {
        self.release(Some(position));
    }

    fn release(&self, position: Option<u64>) {
        let Some(log) = &self.log else { return };
        log.state.lock().release(self.hold, position);
        log.work.notify_one();
        if log.is_inline && !std::thread::panicking() {
            // The next commit gets a failure.
            let _ = log.work(false);
        }
    }
}

impl Drop for LogTail {
    fn drop(&mut self) {
        self.release(None);
    }
}

/// The last segment that begins at or before a position.
fn segment_before(disk: &dyn Disk, position: u64) -> Result<Option<Segment>> {
    let starts = segments(disk)?;
    let start = starts.into_iter().rfind(|start| *start <= position);
    let Some(start) = start else { return Ok(None) };
    let file = open_existing(disk, start)?;
    file.map(|file| Segment::of(disk, file, start)).transpose()
}

/// Reads groups of a segment.
struct Groups<'a> {
    segment: &'a Segment,
    from: u64,
    readable: u64,
    replayed_from: u64,
}

enum Read {
    Piece(LogPiece),
    /// Groups were passed over.
    Passed,
    /// The next group is in the next segment.
    End,
}

impl Groups<'_> {
    /// Reads groups from `at` on, where the one of `position` begins, and moves both on.
    fn read(&self, at: &mut u64, position: &mut u64, bytes_max: usize) -> Result<Read> {
        let left = self.segment.len.saturating_sub(*at);
        if left == 0 {
            return Ok(Read::End);
        }
        let Some(header) = self.segment.header(*at)? else {
            return Err(self.damaged(*at, *position));
        };
        let least = HEADER_BYTES as u64 + u64::from(header.stored_bytes);
        let wanted = least.max(bytes_max as u64).min(left);
        if least > left {
            return Err(self.damaged(*at, *position));
        }
        let mut groups = self.segment.read(*at, wanted as usize)?;
        let (mut done, mut skipped, mut first) = (0, 0, *position);
        while *position < self.readable {
            let rest = &groups[done..];
            let Some(header) = Header::decode(rest) else {
                // The last group may be there in part only.
                if rest.len() < HEADER_BYTES && done > 0 {
                    break;
                } else {
                    return Err(self.damaged(*at + done as u64, *position));
                }
            };
            let len = HEADER_BYTES + header.stored_bytes as usize;
            if len > rest.len() && done > 0 {
                break;
            }
            if header.position != *position || !header.matches(&rest[HEADER_BYTES..len]) {
                return Err(self.damaged(*at + done as u64, *position));
            }
            done += len;
            *position = header.end();
            if header.end() <= self.from {
                (skipped, first) = (done, *position);
            }
        }
        *at += done as u64;
        if skipped == done {
            return Ok(Read::Passed);
        }
        groups.truncate(done);
        groups.drain(..skipped);
        Ok(Read::Piece(LogPiece {
            from: first,
            to: *position,
            groups,
        }))
    }

    fn damaged(&self, at: u64, position: u64) -> Error {
        damaged(self.segment, at, position, self.replayed_from)
    }
}

/// The error of a segment that does not have the group of `position` at `at`.
fn damaged(segment: &Segment, at: u64, position: u64, replayed_from: u64) -> Error {
    if position < replayed_from {
        Error::LogGone { position }
    } else {
        segment.corrupt(at, "a group of the log is damaged")
    }
}
