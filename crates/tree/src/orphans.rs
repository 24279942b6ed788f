//! Parts of a store that nothing refers to any more, and that take time to release: nodes that are not in memory, which must be read to find
//! what is free below them, and trees that were dropped, whose pages are in the cache.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::Result;

/// Something that nothing refers to.
pub(crate) trait Orphan: Send {
    /// Drops what it refers to, which becomes orphans again where that takes long. A node is read for that.
    fn release(self: Box<Self>) -> Result<()>;

    /// Whether a snapshot still refers to it: then it has to wait, or the reader who drops the snapshot would do the work.
    fn is_shared(&self) -> bool {
        false
    }
}

/// The orphans of a store.
#[derive(Default)]
pub(crate) struct Orphans {
    waiting: Mutex<Vec<Box<dyn Orphan>>>,
    /// Those that snapshots still refer to.
    shared: Mutex<Vec<Box<dyn Orphan>>>,
    /// O1: all that wait, and those that are being released.
    count: AtomicUsize,
    is_closed: AtomicBool,
}

impl Orphans {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Whether some can be released now.
    pub(crate) fn has_work(&self) -> bool {
        !self.waiting.lock().is_empty()
            || self.shared.lock().iter().any(|orphan| !orphan.is_shared())
    }

    /// Adds an orphan, unless the store was closed: then its space is found by the next open.
    pub(crate) fn push(&self, orphan: Box<dyn Orphan>) {
        // Counted before the node is gone, so that a checkpoint does not take its space for used by something.
        self.count.fetch_add(1, Ordering::AcqRel);
        let mut waiting = self.waiting.lock();
        if !self.is_closed.load(Ordering::Relaxed) {
            waiting.push(orphan);
        }
    }

    /// Releases up to `most` orphans, and calls `failed` for those that cannot be read. True if there are more.
    pub(crate) fn release(&self, most: usize, mut failed: impl FnMut(crate::Error)) -> bool {
        self.take_unshared();
        for _ in 0..most {
            let Some(orphan) = self.waiting.lock().pop() else {
                return false;
            };
            if orphan.is_shared() {
                self.shared.lock().push(orphan);
                continue;
            }
            let released = Released(&self.count);
            if let Err(error) = orphan.release() {
                failed(error);
            }
            drop(released);
        }
        !self.waiting.lock().is_empty()
    }

    /// Moves those that no snapshot refers to any more to the others.
    fn take_unshared(&self) {
        let mut shared = self.shared.lock();
        let mut at = 0;
        while let Some(orphan) = shared.get(at) {
            if orphan.is_shared() {
                at += 1
            } else {
                self.waiting.lock().push(shared.swap_remove(at))
            }
        }
    }

    /// Drops all orphans, and those that come later: they hold the store in memory.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        self.is_closed.store(true, Ordering::Relaxed);
        let dropped = std::mem::take(&mut *waiting);
        drop(waiting);
        let shared = std::mem::take(&mut *self.shared.lock());
        drop((dropped, shared));
    }
}

/// An orphan that is being released. When it is dropped, also by a panic, the orphan counts no more: otherwise the
/// orphans would never be empty again.
struct Released<'a>(&'a AtomicUsize);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        let count = self.0.fetch_sub(1, Ordering::AcqRel);
        assert!(count > 0, "O1: an orphan is released that was not counted");
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    struct Panicking;

    impl Orphan for Panicking {
        fn release(self: Box<Self>) -> Result<()> {
            panic!("a defect")
        }
    }

    #[test]
    fn an_orphan_whose_release_panics_is_counted_no_more() {
        let orphans = Orphans::default();
        orphans.push(Box::new(Panicking));
        assert!(!orphans.is_empty());
        let released = catch_unwind(AssertUnwindSafe(|| orphans.release(1, |_| {})));
        assert!(released.is_err() && orphans.is_empty());
    }
}
