//! Makes commits visible in the order of their sequence numbers.

use std::collections::BTreeMap;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};

/// The last visible sequence number, and the finished commits after it.
pub(crate) struct Publisher {
    visible: AtomicU64,
    /// Finished commits, first to last number, that wait for earlier ones.
    finished: Mutex<BTreeMap<u64, u64>>,
    published: Condvar,
}

impl Publisher {
    pub(crate) fn new(visible: u64) -> Publisher {
        Publisher {
            visible: AtomicU64::new(visible),
            finished: Mutex::default(),
            published: Condvar::new(),
        }
    }

    /// The last sequence number that snapshots see.
    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Called when the operations `first..=last` are in the memtable; returns when snapshots see them.
    pub(crate) fn publish(&self, first: u64, last: u64) {
        let mut finished = self.finished.lock();
        finished.insert(first, last);
        let mut visible = self.visible();
        while let Some(end) = finished.remove(&(visible + 1)) {
            visible = end;
        }
        self.visible.store(visible, Ordering::Release);
        // Always: a flush may wait for this commit.
        self.published.notify_all();
        while self.visible() < last {
            self.published.wait(&mut finished);
        }
    }

    /// Sets the number while nothing else runs.
    pub(crate) fn reset(&self, visible: u64) {
        self.visible.store(visible, Ordering::Release);
    }

    /// Waits until snapshots see `sequence`.
    pub(crate) fn wait(&self, sequence: u64) {
        let mut finished = self.finished.lock();
        while self.visible() < sequence {
            self.published.wait(&mut finished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishes_in_order() {
        let publisher = Publisher::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| publisher.publish(4, 6));
            scope.spawn(|| publisher.publish(3, 3));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(publisher.visible(), 0);
            publisher.publish(1, 2);
            publisher.wait(6);
        });
        assert_eq!(publisher.visible(), 6);
    }
}
