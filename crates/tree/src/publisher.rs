//! Makes commits visible in the order of their sequence numbers.

use std::collections::BTreeMap;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};

/// The last visible sequence number, and the finished commits after it.
pub(crate) struct Publisher {
    visible: AtomicU64,
    /// The last stamp that is durable and visible.
    durable_stamp: AtomicU64,
    pending: Mutex<Pending>,
    published: Condvar,
}

#[derive(Default)]
struct Pending {
    /// Finished commits, first to last number, that wait for earlier ones.
    finished: BTreeMap<u64, u64>,
    /// The last number and the last stamp of the newest stamped commit that is durable, if it is not visible yet.
    synced: Option<(u64, u64)>,
}

impl Publisher {
    pub(crate) fn new(visible: u64) -> Publisher {
        Publisher {
            visible: AtomicU64::new(visible),
            durable_stamp: AtomicU64::new(0),
            pending: Mutex::default(),
            published: Condvar::new(),
        }
    }

    /// The last sequence number that snapshots see.
    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Called when the operations `first..=last` are in the memtable; returns when snapshots see them. True if that
    /// has raised the durable stamp.
    pub(crate) fn publish(&self, first: u64, last: u64) -> bool {
        let mut pending = self.pending.lock();
        pending.finished.insert(first, last);
        let mut visible = self.visible();
        while let Some(end) = pending.finished.remove(&(visible + 1)) {
            visible = end;
        }
        self.visible.store(visible, Ordering::Release);
        let stamp = match pending.synced {
            Some((sequence, stamp)) if sequence <= visible => {
                pending.synced = None;
                Some(stamp)
            }
            _ => None,
        };
        if let Some(stamp) = stamp {
            self.raise_durable_stamp(stamp);
        }
        // Always: a flush may wait for this commit.
        self.published.notify_all();
        while self.visible() < last {
            self.published.wait(&mut pending);
        }
        stamp.is_some()
    }

    /// Called when a stamped commit is durable, with the number of its last operation and with its last stamp. These calls
    /// come in the order of the commits.
    pub(crate) fn note_synced(&self, sequence: u64, stamp: u64) {
        let mut pending = self.pending.lock();
        if sequence <= self.visible() {
            pending.synced = None;
            self.raise_durable_stamp(stamp);
        } else {
            pending.synced = Some((sequence, stamp));
        }
    }

    /// Raises the durable stamp: all commits up to this one are durable, or need not be, and visible.
    pub(crate) fn raise_durable_stamp(&self, stamp: u64) {
        self.durable_stamp.fetch_max(stamp, Ordering::AcqRel);
    }

    /// All commits with stamps up to this one are durable and visible, and none is still to come.
    pub(crate) fn durable_stamp(&self) -> u64 {
        self.durable_stamp.load(Ordering::Acquire)
    }

    /// Sets the number while nothing else runs.
    pub(crate) fn reset(&self, visible: u64) {
        self.visible.store(visible, Ordering::Release);
    }

    /// Waits until snapshots see `sequence`.
    pub(crate) fn wait(&self, sequence: u64) {
        let mut pending = self.pending.lock();
        while self.visible() < sequence {
            self.published.wait(&mut pending);
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
