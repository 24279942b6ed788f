//! Replay of the log when a store is opened.

use std::sync::Arc;

use frond_kv::{operation, range_delete_bytes};

use crate::engine::Engine;
use crate::log::segment_name;
use crate::memtable::Memtable;
use crate::version::Version;
use crate::{Error, Result};

/// An upper bound of the memory that the operations of a frame take in a memtable.
pub(crate) fn payload_bytes_max(payload: &[u8]) -> usize {
    operation::decode(payload)
        .map(|op| match op {
            operation::Op::Entry { key, value, .. } => {
                Memtable::op_bytes_max(key.len(), value.len()) + Memtable::TREE_INDEX_BYTES
            }
            operation::Op::DeleteRange { lower, upper, .. } => {
                range_delete_bytes(lower, upper) + Memtable::TREE_INDEX_BYTES
            }
            _ => 0,
        })
        .sum()
}

impl Engine {
    /// Applies a frame of the log, before anything else runs. Returns the next sequence number.
    ///
    /// R1: frames come in the order of their positions and of their numbers, without what the trees have already.
    /// R2: after each frame all of its numbers are visible, and the next commit takes the one after.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the frame has numbers that were given out before: positions and numbers of the log and of the
    /// checkpoint do not belong together.
    pub(crate) fn replay_frame(&self, at: u64, sequence: u64, payload: &[u8]) -> Result<u64> {
        let next = self.commit_lock.lock().next_sequence;
        if sequence < next || at < self.version.load().active.log_start {
            return Err(Error::Corrupt {
                file: segment_name(at),
                offset: at,
                what: "the log has numbers that the checkpoint has already",
            });
        }
        let (payload, last_stamp) = operation::with_stamps(payload);
        let payload = &*payload;
        let bytes = payload_bytes_max(payload);
        if !self.version.load().active.reserve(bytes) {
            self.seal_replayed(at);
            match self.flush_all() {
                // Commits that were in memory before the restart can be there again until there is room.
                Err(error) if error.is_disk_full() => {}
                flushed => flushed?,
            }
            // The new memtable has room for one frame of any size.
            let size = self.options.memtable_size().max(bytes + 4096);
            let version = self.version.load_full();
            let active = Memtable::new(size, at, &self.spare_blocks);
            let last_stamp = self.commit_lock.lock().last_stamp;
            let active = Arc::new(active.after(&version.active, sequence - 1, last_stamp));
            let has_room = active.reserve(bytes);
            assert!(has_room, "M4: a new memtable has no room for a frame");
            self.set_version(Version {
                active,
                ..(*version).clone()
            });
        }
        let version = self.version.load_full();
        self.change_trees_replayed(&version, payload);
        let numbers = operation::numbers_of(payload);
        assert!(numbers > 0, "R2: a frame has no number");
        let last = sequence + numbers - 1;
        version.active.note_last_sequence(last);
        let ops = operation::decode(payload);
        let hot = (version.active).insert(ops, numbers as usize, sequence, bytes);
        {
            let mut state = self.commit_lock.lock();
            assert!(
                last >= state.next_sequence,
                "R1: a replay gives numbers out again"
            );
            state.next_sequence = last + 1;
            state.last_stamp = last_stamp.unwrap_or(state.last_stamp);
        }
        self.publisher.reset(last);
        self.fold_hot(&version.active, hot);
        assert!(
            version.active.has_no_writers(),
            "R2: a replay leaves a writer in a memtable"
        );
        assert!(
            version.active.last_sequence() == self.publisher.visible(),
            "R2: a replayed frame is not visible"
        );
        Ok(last + 1)
    }

    fn change_trees_replayed(&self, version: &Version, payload: &[u8]) {
        let changes = |op: operation::Op<'_>| {
            matches!(
                op,
                operation::Op::CreateTree(..) | operation::Op::DropTree(_)
            )
        };
        if operation::decode(payload).any(changes) {
            // There is no snapshot before the replay ends.
            self.change_trees(version, operation::decode(payload), 0);
        }
    }

    /// Seals the active memtable during a replay; the log continues at `position`.
    pub(crate) fn seal_replayed(&self, position: u64) {
        let version = self.version.load_full();
        assert!(
            version.active.has_no_writers(),
            "R2: a memtable is sealed in the middle of a frame"
        );
        let size = self.options.memtable_size();
        let active = Memtable::new(size, position, &self.spare_blocks);
        let (last_sequence, last_stamp) = {
            let state = self.commit_lock.lock();
            (state.next_sequence - 1, state.last_stamp)
        };
        let mut sealed = vec![version.active.clone()];
        sealed.extend_from_slice(&version.sealed);
        self.set_version(Version {
            active: Arc::new(active.after(&version.active, last_sequence, last_stamp)),
            sealed,
            ..Version::clone(&version)
        });
    }
}
