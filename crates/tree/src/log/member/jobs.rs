//! The work of the log thread on entries: it makes groups of frames, writes them, and keeps the last ones in memory.

use frond_kv::EntryId;

use crate::log::buffer::Buffer;
use crate::log::group::{self, Mark, Place};
use crate::log::member_state::Job;
use crate::log::segment::{Failure, SegmentWriter};
use crate::log::state::{Shared, State};

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
