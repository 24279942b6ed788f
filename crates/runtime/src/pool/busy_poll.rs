//! Decides whether the polling thread busy-waits for the next request.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;

/// No task has this token.
const NO_TOKEN: u64 = u64::MAX;

/// Whether the polling thread stays awake for a moment: if the requests of one connection follow each other closely, and no
/// other connection is busy. With more of them there is usually something to do.
pub(super) struct BusyPoll {
    /// Short waits in a row, all for the same task.
    waits: AtomicU8,
    /// The token of this task.
    token: AtomicU64,
    /// Whether there is another processor. A single one has nothing to do for a thread that waits.
    is_useful: bool,
}

impl BusyPoll {
    /// The number of short waits after which the thread busy-waits.
    const ENOUGH: u8 = 8;

    pub(super) fn new() -> BusyPoll {
        BusyPoll {
            waits: AtomicU8::new(0),
            token: AtomicU64::new(NO_TOKEN),
            is_useful: thread::available_parallelism().is_ok_and(|count| count.get() > 1),
        }
    }

    pub(super) fn is_left(&self) -> bool {
        self.is_useful && self.waits.load(Ordering::Relaxed) >= BusyPoll::ENOUGH
    }

    /// A wait has ended, with an event for a single task or with others. Only the polling thread calls this.
    pub(super) fn note(&self, was_short: bool, only: Option<u64>) {
        let token = only.unwrap_or(NO_TOKEN);
        let is_same = self.token.load(Ordering::Relaxed) == token && token != NO_TOKEN;
        if !is_same {
            self.token.store(token, Ordering::Relaxed);
        }
        let waits = if was_short && is_same {
            (self.waits.load(Ordering::Relaxed) + 1).min(BusyPoll::ENOUGH)
        } else {
            0
        };
        self.waits.store(waits, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_busy_alone_is_waited_for_awake() {
        let patience = BusyPoll {
            is_useful: true,
            ..BusyPoll::new()
        };
        let notes = |was_short, only, count: u8| {
            (0..count).for_each(|_| patience.note(was_short, only));
            patience.is_left()
        };
        assert!(!patience.is_left());
        // The first one is that of another connection than before.
        assert!(!notes(true, Some(1), BusyPoll::ENOUGH));
        assert!(notes(true, Some(1), 1));
        assert!(notes(true, Some(1), 100));
        assert!(!notes(false, Some(1), 1), "it has become slow");
        assert!(notes(true, Some(1), BusyPoll::ENOUGH));
        assert!(!notes(true, Some(2), 1), "another one is busy");
        assert!(notes(true, Some(2), BusyPoll::ENOUGH));
        assert!(!notes(true, None, 20), "several are busy, or the queue");
        for _ in 0..20 {
            patience.note(true, Some(1));
            patience.note(true, Some(2));
        }
        assert!(!patience.is_left());
    }

    #[test]
    fn a_single_processor_is_left_to_others() {
        let patience = BusyPoll {
            is_useful: false,
            ..BusyPoll::new()
        };
        (0..20).for_each(|_| patience.note(true, Some(1)));
        assert!(!patience.is_left());
    }
}
