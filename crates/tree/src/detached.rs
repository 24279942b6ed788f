//! The size of what is written to disk for single snapshots, see [`crate::retained`].
//!
//! A snapshot keeps the memtables of its moment in memory. When flushed ones take more than a quarter of the budget
//! (`Store::retains_too_much`), `Store::detach` writes what a memtable has for the trees of a snapshot, up to its sequence number,
//! as runs above their roots, for this snapshot alone. Cursors move there with `Cursor::continue_on`. What is written is at most the
//! size of the memtable, and often nothing, because other trees are left out. All detached snapshots together have at most six
//! times the engine's part of the budget on disk; beyond that `detach` fails, and the server closes idle cursors that keep
//! memtables.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that live snapshots have on disk for themselves. D1: each takes its bytes once, and gives them up when it is dropped.
#[derive(Clone, Default)]
pub(crate) struct DetachedBytes(Arc<AtomicU64>);

/// The part of a snapshot. It ends when the last copy of the snapshot is dropped.
pub(crate) struct Detached {
    bytes: u64,
    all: DetachedBytes,
    /// Of the snapshot that it was made from.
    _before: Option<Arc<Detached>>,
}

impl DetachedBytes {
    /// Takes `bytes`, unless the total would be more than `limit`.
    pub(crate) fn take(
        &self,
        bytes: u64,
        limit: u64,
        before: Option<&Arc<Detached>>,
    ) -> Option<Arc<Detached>> {
        let add = |all: u64| all.checked_add(bytes).filter(|all| *all <= limit);
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        self.0.fetch_update(set, read, add).ok()?;
        Some(Arc::new(Detached {
            bytes,
            all: self.clone(),
            _before: before.cloned(),
        }))
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        let all = self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
        assert!(
            all >= self.bytes,
            "D1: a snapshot gives up more of the disk than it took"
        );
    }
}
