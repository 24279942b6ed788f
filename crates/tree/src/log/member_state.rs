//! The part of a log's state that members of replica sets have, and the work of their log threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use frond_kv::{Done, EntryId};

use super::buffer::Buffer;
use super::entries::Entries;
use super::frame::Frame;
use super::group::SealedEntry;
use super::recovered::{LeftFrames, RecoveredMember};
use crate::Result;
use crate::bytes::Writer;

/// The entries in memory have about this size. They are sent to other members, and applied.
const CACHE_BYTES: usize = 32 << 20;

/// A task of the log thread, which does them in their order.
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
    pub(super) sequence: u64,
    pub(super) frames: Vec<u8>,
}

impl Large {
    pub(super) fn new(frame: &Frame<'_>) -> Large {
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

/// The newest entries, in memory until they are sent and applied.
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
    pub(super) fn shrink(&mut self, unwritten: u64) {
        while self.bytes > CACHE_BYTES
            && let Some((_, entry)) = self.entries.pop_front_if(|(at, _)| *at < unwritten)
        {
            self.bytes -= entry.bytes.len();
        }
    }
}

/// Makes the buffers, in a new epoch of their file.
pub(super) type MapBuffers = Arc<dyn Fn() -> Result<[Buffer; 2]> + Send + Sync>;

/// The part of a log's state that only members of replica sets have.
pub(super) struct MemberState {
    /// Whether commits are accepted.
    pub(super) is_leading: bool,
    /// Whether entries of other members are kept without what they state about commits.
    pub(super) is_late: bool,
    pub(super) entries: Entries,
    /// The last entry that is committed, and the position after it.
    pub(super) committed: Option<EntryId>,
    pub(super) committed_to: u64,
    /// Entries up to here are in segments.
    pub(super) written_to: u64,
    /// Whether a group was reported for which no entry was sealed yet.
    pub(super) group_asked: bool,
    /// Whether the interval between syncs is over.
    pub(super) group_due: bool,
    /// Whether a failure of the log was reported as a group.
    pub(super) is_failure_known: bool,
    pub(super) waker: Option<Waker>,
    pub(super) jobs: VecDeque<Job>,
    /// Called after the next sync.
    pub(super) unsynced: Vec<Done>,
    pub(super) left: Option<LeftFrames>,
    pub(super) large: Option<Large>,
    pub(super) cache: Cache,
    pub(super) map: MapBuffers,
    /// Keeps the segments that have entries.
    pub(super) hold: u64,
}

impl MemberState {
    pub(super) fn new(recovered: RecoveredMember, map: MapBuffers, hold: u64) -> MemberState {
        let RecoveredMember {
            entries,
            committed,
            committed_to,
            left,
        } = recovered;
        MemberState {
            is_leading: false,
            is_late: false,
            committed,
            committed_to,
            written_to: entries.end(),
            entries,
            group_asked: false,
            group_due: false,
            is_failure_known: false,
            waker: None,
            jobs: VecDeque::new(),
            unsynced: Vec::new(),
            left,
            large: None,
            cache: Cache::default(),
            map,
            hold,
        }
    }

    /// Whether the log thread has an entry to write.
    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// All that wait for entries to be durable.
    pub(super) fn take_done(&mut self) -> Vec<Done> {
        let mut done = std::mem::take(&mut self.unsynced);
        done.extend(self.jobs.drain(..).map(Job::into_done));
        done
    }

    pub(super) fn take_unsynced(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.unsynced)
    }
}
