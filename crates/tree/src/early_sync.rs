//! Syncs of the log that begin while the commit is still under way.
//!
//! A commit is appended to the log, then inserted into the memtable. If its caller waits until it is durable, the log thread may as well
//! compress, write and sync its frame meanwhile. A caller that will wait says so with [`sync_early`] on its thread.

use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<Scope> = const { Cell::new(Scope::Outside) };
}

/// Whether the commits of a thread are synced early.
#[derive(Clone, Copy)]
enum Scope {
    Outside,
    /// Yes; the position in the log after the last one.
    Inside(Option<u64>),
}

/// A place in the log of a store: everything that was committed before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition(pub(crate) u64);

/// Runs something whose commits on this thread are to be durable soon: for each a sync begins as soon as it is in the log. It is not
/// waited for. Returns the position after the last of these commits too, if there were any in a store with a journal; all of them must
/// be of the same store.
pub fn sync_early<T>(operation: impl FnOnce() -> T) -> (T, Option<LogPosition>) {
    struct Restore(Scope);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _restore = Restore(CURRENT.replace(Scope::Inside(None)));
    let result = operation();
    let last = match CURRENT.get() {
        Scope::Inside(last) => last,
        Scope::Outside => None,
    };
    (result, last.map(LogPosition))
}

/// Notes that a commit of this thread is in the log up to `position`. Whether a sync of it is to begin.
pub(crate) fn note_commit(position: u64) -> bool {
    match CURRENT.get() {
        Scope::Outside => false,
        Scope::Inside(_) => {
            CURRENT.set(Scope::Inside(Some(position)));
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_position_inside_is_returned() {
        assert!(!note_commit(1));
        let (inner, outer) = sync_early(|| {
            assert!(note_commit(5));
            let (_, inner) = sync_early(|| note_commit(7));
            assert!(note_commit(9));
            inner
        });
        assert_eq!((inner, outer), (Some(LogPosition(7)), Some(LogPosition(9))));
        assert_eq!(sync_early(|| ()).1, None);
        assert!(!note_commit(1));
    }
}
