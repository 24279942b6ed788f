//! Replay of the log when a store is opened.

use std::sync::Arc;

use frond_kv::{operation, range_delete_bytes};

use crate::Result;
use crate::engine::Engine;
use crate::memtable::Memtable;
use crate::version::Version;

impl Engine {
    /// Applies a frame of the log, before anything else runs. Returns the next sequence number.
    pub(crate) fn replay_frame(&self, at: u64, sequence: u64, payload: &[u8]) -> Result<u64> {
        let (payload, last_stamp) = operation::with_stamps(payload);
        let payload = &*payload;
        let bytes = operation::decode(payload)
            .map(|op| match op {
                operation::Op::Entry { key, value, .. } => {
                    Memtable::op_bytes_max(key.len(), value.len()) + Memtable::TREE_INDEX_BYTES
                }
                operation::Op::DeleteRange { lower, upper, .. } => {
                    range_delete_bytes(lower, upper) + Memtable::TREE_INDEX_BYTES
                }
                _ => 0,
            })
            .sum();
        if !self.version.load().active.reserve(bytes) {
            self.seal_replayed(at);
            match self.flush_all() {
                // What was in memory before the restart can be there again until there is room.
                Err(error) if error.is_disk_full() => {}
                flushed => flushed?,
            }
            // The new memtable has room for one frame of any size.
            let size = self.options.memtable_size().max(bytes + 4096);
            let version = self.version.load_full();
            let active = Memtable::new(size, at, &self.spare_blocks);
            let last_stamp = self.commit_lock.lock().last_stamp;
            let active = Arc::new(active.after(&version.active, sequence - 1, last_stamp));
            active.reserve(bytes);
            self.version.store(Arc::new(Version {
                active,
                ..(*version).clone()
            }));
        }
        let version = self.version.load_full();
        self.change_trees_replayed(&version, payload);
        let numbers = operation::numbers_of(payload);
        let last = sequence + numbers - 1;
        version.active.note_last_sequence(last);
        let ops = operation::decode(payload);
        let hot = (version.active).insert(ops, numbers as usize, sequence, bytes);
        {
            let mut state = self.commit_lock.lock();
            state.next_sequence = last + 1;
            state.last_stamp = last_stamp.unwrap_or(state.last_stamp);
        }
        self.publisher.reset(last);
        self.fold_hot(&version.active, hot);
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
        let size = self.options.memtable_size();
        let active = Memtable::new(size, position, &self.spare_blocks);
        let (last_sequence, last_stamp) = {
            let state = self.commit_lock.lock();
            (state.next_sequence - 1, state.last_stamp)
        };
        let mut sealed = vec![version.active.clone()];
        sealed.extend_from_slice(&version.sealed);
        self.version.store(Arc::new(Version {
            active: Arc::new(active.after(&version.active, last_sequence, last_stamp)),
            sealed,
            ..Version::clone(&version)
        }));
    }
}
