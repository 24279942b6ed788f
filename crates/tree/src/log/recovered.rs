//! The part of a replay that is left to the log that is opened after it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use frond_kv::EntryId;

use super::entries::Entries;
use super::segment::{Failure, SegmentWriter};
use crate::Error;

/// The result of a replay.
pub(crate) struct Recovered {
    /// The position of the first frame that was replayed. Frames before it that were not durable at a crash are missing.
    pub(crate) from: u64,
    /// The position after the last frame.
    pub(crate) end: u64,
    /// The last frames, if the disk has no room for them.
    pub(crate) unwritten: Option<Unwritten>,
    /// The entries of a member of a replica set, and what continues their last segment.
    pub(super) member: Option<RecoveredMember>,
    pub(super) writer: Option<SegmentWriter>,
    /// Everything before this position was visited.
    pub(crate) applied: u64,
}

/// Frames that a killed process left in the file of the buffers.
pub(super) struct LeftFrames {
    /// The number of the first operation.
    pub(super) sequence: u64,
    pub(super) frames: Vec<u8>,
}

/// The entries that a replay has found.
pub(super) struct RecoveredMember {
    pub(super) entries: Entries,
    pub(super) committed: Option<EntryId>,
    pub(super) committed_to: u64,
    pub(super) left: Option<LeftFrames>,
}

#[cfg(test)]
impl Recovered {
    /// Nothing is left to write.
    pub(super) fn at(end: u64) -> Recovered {
        Recovered {
            from: end,
            end,
            unwritten: None,
            member: None,
            writer: None,
            applied: end,
        }
    }
}

/// Frames that a killed process left in the buffer, and for which no segment has room. They stay in the buffer's file, of the
/// epoch of that process, until they are in a segment. Meanwhile nothing is appended to the log, so nothing can be lost,
/// however often the process is killed.
pub(crate) struct Unwritten {
    /// Continues the last segment.
    pub(super) writer: SegmentWriter,
    /// The number of the first operation of each group, and its frames.
    pub(super) groups: VecDeque<(u64, Vec<u8>)>,
    /// Why they could not be written.
    pub(super) error: Error,
}

impl Unwritten {
    /// The writer for the rest of the log, and the groups that it has to begin with.
    pub(super) fn into_parts(
        self,
        segment_bytes: usize,
        written: &Arc<AtomicU64>,
    ) -> (SegmentWriter, Groups, Error) {
        let mut writer = self.writer;
        writer.set_options(segment_bytes, Arc::clone(written));
        (writer, Groups(self.groups), self.error)
    }
}

/// Groups that are not in a segment yet.
pub(super) struct Groups(VecDeque<(u64, Vec<u8>)>);

impl Groups {
    /// Writes and syncs them, as far as there is room.
    pub(super) fn write(&mut self, writer: &mut SegmentWriter) -> Result<(), Failure> {
        while let Some((sequence, group)) = self.0.front() {
            writer.write(group, *sequence)?;
            self.0.pop_front();
        }
        writer.sync()?;
        assert!(
            writer.durable == writer.end(),
            "L2: frames of a replay are not durable after a sync"
        );
        Ok(())
    }
}
