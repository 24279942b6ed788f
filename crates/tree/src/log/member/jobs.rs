//! The work of the log thread on entries: it makes groups of frames, writes them, and keeps the last ones in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use frond_kv::{Done, EntryId};

use crate::bytes::Writer;
use crate::log::buffer::Buffer;
use crate::log::frame::Frame;
use crate::log::group::{self, Mark, Place, SealedEntry};
use crate::log::segment::{Failure, SegmentWriter};
use crate::log::state::{Shared, State};

/// The entries in memory have about this size. They are sent to other members, and applied.
const CACHE_BYTES: usize = 32 << 20;

/// What the log thread does, in this order.
pub(super) enum Job {
    /// Makes an entry of frames that are in no entry.
    Seal {
        id: EntryId,
        note: Arc<[u8]>,
        done: Done,
    },
    /// Writes an entry. `buffer` has its frames, and is free then.
    Write {
        entry: SealedEntry,
        buffer: Option<Buffer>,
        done: Done,
    },
}

impl Job {
    pub(super) fn index(&self) -> u64 {
        match self {
            Job::Seal { id, .. } => id.index,
            Job::Write { entry, .. } => entry.mark.id.index,
        }
    }

    pub(super) fn into_done(self) -> Done {
        match self {
            Job::Seal { done, .. } | Job::Write { done, .. } => done,
        }
    }
}

/// A frame that no buffer can hold. It is an entry of its own.
pub(super) struct Large {
    sequence: u64,
    frames: Vec<u8>,
}

impl Large {
    pub(super) fn of(frame: &Frame<'_>) -> Large {
        let mut frames = Vec::with_capacity(frame.len());
        frames.put_u32(frame.payload_len() as u32);
        for part in frame.parts() {
            frames.extend_from_slice(part);
        }
        Large {
            sequence: frame.sequence,
            frames,
        }
    }
}

/// The last entries.
#[derive(Default)]
pub(super) struct Cache {
    entries: VecDeque<(u64, SealedEntry)>,
    bytes: usize,
}

impl Cache {
    pub(super) fn insert(&mut self, index: u64, entry: SealedEntry) {
        self.bytes += entry.bytes.len();
        self.entries.push_back((index, entry));
    }

    pub(super) fn get(&self, index: u64) -> Option<SealedEntry> {
        let first = self.entries.front()?.0;
        let at = usize::try_from(index.checked_sub(first)?).ok()?;
        self.entries.get(at).map(|(_, entry)| entry.clone())
    }

    pub(super) fn truncate_from(&mut self, index: u64) {
        while let Some((_, entry)) = self.entries.pop_back_if(|(at, _)| *at >= index) {
            self.bytes -= entry.bytes.len();
        }
    }

    /// Forgets the entries up to and with one.
    pub(super) fn purge(&mut self, through: u64) {
        while let Some((_, entry)) = self.entries.pop_front_if(|(at, _)| *at <= through) {
            self.bytes -= entry.bytes.len();
        }
    }

    /// Forgets the oldest entries beyond the limit. Entries from `unwritten` on are nowhere else.
    fn shrink(&mut self, unwritten: u64) {
        while self.bytes > CACHE_BYTES
            && let Some((_, entry)) = self.entries.pop_front_if(|(at, _)| *at < unwritten)
        {
            self.bytes -= entry.bytes.len();
        }
    }
}

/// Frames for an entry.
enum Frames {
    Owned(Vec<u8>),
    Buffer(Buffer),
    Joined(Vec<u8>, Buffer),
    None,
}

impl State {
    /// Takes all frames that are in no entry, and the number of their first operation.
    fn take_frames(&mut self) -> (Frames, u64) {
        let Some(member) = self.member.as_deref_mut() else {
            return (Frames::None, 0);
        };
        member.group_asked = false;
        if let Some(left) = member.left.take() {
            return (Frames::Owned(left.frames), left.sequence);
        }
        if let Some(newest) = self.stamped.take() {
            self.written_stamps.push_back(newest);
        }
        let large = member.large.take();
        let mut full = None;
        if self
            .filling
            .as_ref()
            .is_some_and(|buffer| !buffer.is_empty())
        {
            let free = self.free.take();
            full = std::mem::replace(&mut self.filling, free);
            self.wants_room = false;
        }
        match (large, full) {
            // The frames in the buffer follow it, and stay there until they are written.
            (Some(large), Some(buffer)) => {
                let frames = [&large.frames, buffer.frames()].concat();
                (Frames::Joined(frames, buffer), large.sequence)
            }
            (Some(large), None) => (Frames::Owned(large.frames), large.sequence),
            (None, Some(buffer)) => {
                let sequence = buffer.sequence;
                (Frames::Buffer(buffer), sequence)
            }
            (None, None) => {
                // The padding of an entry without frames.
                self.end += 1;
                (Frames::None, 0)
            }
        }
    }
}

impl Shared {
    /// Makes and writes the entries that wait. The caller syncs them.
    pub(in crate::log) fn write_entries(&self, writer: &mut SegmentWriter) -> Result<(), Failure> {
        loop {
            let mut state = self.state.lock();
            let Some(member) = state.member.as_deref_mut() else {
                return Ok(());
            };
            let Some(job) = member.jobs.pop_front() else {
                return Ok(());
            };
            let (entry, buffer, done) = match job {
                Job::Write {
                    entry,
                    buffer,
                    done,
                } => (entry, buffer, done),
                Job::Seal { id, note, done } => {
                    let (position, mark) = state.mark_of(id, &note);
                    let (frames, sequence) = state.take_frames();
                    // There is room for commits again.
                    self.progress.notify_all();
                    drop(state);
                    let place = Place {
                        position,
                        durable: writer.durable,
                        sequence,
                    };
                    let bytes = match &frames {
                        Frames::Owned(frames) | Frames::Joined(frames, _) => &frames[..],
                        Frames::Buffer(buffer) => buffer.frames(),
                        Frames::None => &[],
                    };
                    let entry = group::seal_entry(bytes, place, mark, &note);
                    let buffer = match frames {
                        Frames::Buffer(buffer) | Frames::Joined(_, buffer) => Some(buffer),
                        Frames::Owned(_) | Frames::None => None,
                    };
                    state = self.state.lock();
                    if let Some(member) = state.member.as_deref_mut() {
                        member.entries.set_end(id.index, entry.header.end());
                        member.cache.insert(id.index, entry.clone());
                    }
                    self.progress.notify_all();
                    (entry, buffer, done)
                }
            };
            drop(state);
            let written = writer.write_entry(&entry);
            let mut state = self.state.lock();
            let Some(member) = state.member.as_deref_mut() else {
                return Ok(());
            };
            let index = entry.mark.id.index;
            match written {
                Ok(place) => {
                    member.entries.set_place(index, place);
                    member.written_to = entry.header.end();
                    member.unsynced.push(done);
                    member.cache.shrink(index + 1);
                    if let Some(mut buffer) = buffer {
                        buffer.clear();
                        // Another member may lead by now, and then there are no buffers.
                        if state.filling.is_some() {
                            assert!(state.free.is_none(), "L5: there are three buffers");
                            state.free = Some(buffer);
                        }
                    }
                    self.progress.notify_all();
                }
                Err(failure) => {
                    member.jobs.push_front(Job::Write {
                        entry,
                        buffer,
                        done,
                    });
                    return Err(failure);
                }
            }
        }
    }
}

impl State {
    /// The position at which an entry begins that is about to be sealed, and its mark.
    fn mark_of(&self, id: EntryId, note: &[u8]) -> (u64, Mark) {
        let mut mark = Mark {
            id,
            previous_term: 0,
            committed: 0,
            note_bytes: note.len() as u32,
        };
        let Some(member) = self.member.as_deref() else {
            return (self.end, mark);
        };
        let before = id.index.checked_sub(1);
        let before = before.and_then(|index| member.entries.id(index));
        mark.previous_term = before.map_or(0, |before| before.term);
        let committed = member.committed.map_or(0, |committed| committed.index + 1);
        mark.committed = committed.min(id.index);
        let span = member.entries.span(id.index);
        (span.map_or(member.entries.end(), |(from, _)| from), mark)
    }
}
