//! Makes commits visible in the order of their sequence numbers.
//!
//! # Design
//! Commits get their numbers in the order of the log, and insert in parallel, so they finish in any order. A snapshot is one
//! number: it sees all entries up to it. So `visible` may only pass numbers whose entries are all there (P1).
//! ```text
//! publish(first, last, awaited):
//!     if first == visible + 1:  visible = last
//!     else:                     finished[first] = last          (P2)
//!     while finished has visible + 1: visible = its last number
//!     wait until visible >= awaited                             only for large commits, changes of trees, stamps
//!     if visible < last: acknowledged = max(acknowledged, last)
//! for_snapshot():
//!     wait until visible >= acknowledged; return visible
//! ```
//! `acknowledged` is what makes early returns correct: a client that got its acknowledgement finds its write in the next snapshot,
//! from any thread.
//!
//! The alternative is that each commit waits until it is visible itself. Then one that loses its processor in the middle of an
//! insert stops all others, and each of them has to be woken. Another one is to insert under the commit lock, so that commits finish
//! in order: that gives up the parallel inserts.
//!
//! # Rules
//! A commit of more than 8 MiB gets its numbers only when the previous one is visible, so a small commit waits for at most one of
//! them. A small commit that is in the memtable before an earlier one returns at once. The next snapshot waits for what is
//! missing, because it must have all commits that have returned. Without that, a committer that is preempted would stop
//! all others. A commit that waits for its sync returns when the durable stamp has its stamps.

use std::collections::{BTreeMap, VecDeque};

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// The last visible sequence number, and the finished commits after it.
///
/// A commit that is finished before an earlier one could wait for that. It need not: what counts is that a snapshot taken later
/// has it. So a small commit leaves the wait to the next snapshot, which seldom has to wait. With many committers on few
/// processors, one that is interrupted in its middle would stop all others, and each of them would have to be woken.
pub(crate) struct Publisher {
    /// P1: it only grows, over numbers that are all in the memtables.
    visible: AtomicU64,
    /// Snapshots must have the commits up to here: their committers have returned.
    acknowledged: AtomicU64,
    /// P4: the last stamp that is durable and visible; it only grows.
    durable_stamp: AtomicU64,
    pending: Mutex<Pending>,
    published: Condvar,
}

#[derive(Default)]
struct Pending {
    /// Finished commits, first to last number, that wait for earlier ones.
    ///
    /// P2: they share no numbers, and the one after the visible ones is not among them.
    finished: BTreeMap<u64, u64>,
    /// The last numbers and the last stamps of stamped commits that are durable and not visible yet, oldest first: one for each sync.
    ///
    /// P3: numbers and stamps ascend.
    synced: VecDeque<(u64, u64)>,
    /// Threads that wait for earlier commits.
    #[cfg(test)]
    waiting: usize,
}

impl Publisher {
    pub(crate) fn new(visible: u64) -> Publisher {
        Publisher {
            visible: AtomicU64::new(visible),
            acknowledged: AtomicU64::new(0),
            durable_stamp: AtomicU64::new(0),
            pending: Mutex::default(),
            published: Condvar::new(),
        }
    }

    /// The last sequence number up to which all commits are in the memtables.
    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// The number for a snapshot: it has all commits that have returned. Waits for those before them.
    pub(crate) fn for_snapshot(&self) -> u64 {
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        let visible = self.visible();
        if visible >= acknowledged {
            return visible;
        }
        self.wait(acknowledged);
        self.visible()
    }

    /// Called when the operations `first..=last` are in the memtable; returns when all commits up to `awaited` are, too.
    /// Snapshots taken from then on have this commit. True if that has raised the durable stamp.
    pub(crate) fn publish(&self, first: u64, last: u64, awaited: u64) -> bool {
        assert!(first <= last, "P2: a commit is published without a number");
        assert!(awaited <= last, "P2: a commit waits for a later one");
        let mut pending = self.pending.lock();
        let mut visible = self.visible();
        assert!(first > visible, "P1: numbers become visible twice");
        if first == visible + 1 {
            visible = last;
        } else {
            let before = pending.finished.insert(first, last);
            assert!(before.is_none(), "P2: two commits have one number");
        }
        while let Some(end) = pending.finished.remove(&(visible + 1)) {
            assert!(end > visible, "P1: fewer numbers become visible");
            visible = end;
        }
        let next = pending.finished.first_key_value();
        assert!(
            next.is_none_or(|(next, _)| *next > visible + 1),
            "P2: a finished commit has numbers that are visible"
        );
        self.visible.store(visible, Ordering::Release);
        let are_visible = |(sequence, _): &&(u64, u64)| *sequence <= visible;
        let count = pending.synced.iter().take_while(are_visible).count();
        let stamp = pending.synced.drain(..count).next_back();
        let stamp = stamp.map(|(_, stamp)| stamp);
        if let Some(stamp) = stamp {
            self.raise_durable_stamp(stamp);
        }
        // Always: a flush may wait for this commit.
        self.published.notify_all();
        self.wait_with(&mut pending, awaited);
        drop(pending);
        let visible = self.visible();
        assert!(visible >= awaited, "P1: an awaited commit is not visible");
        if visible < last {
            self.acknowledged.fetch_max(last, Ordering::AcqRel);
        }
        stamp.is_some()
    }

    /// Called when a stamped commit is durable, with the number of its last operation and with its last stamp. These calls
    /// come in the order of the commits.
    pub(crate) fn note_synced(&self, sequence: u64, stamp: u64) {
        let mut pending = self.pending.lock();
        let newest = pending.synced.back();
        assert!(
            newest.is_none_or(|newest| newest.0 < sequence && newest.1 < stamp),
            "P3: syncs are noted in another order than that of the commits"
        );
        if sequence <= self.visible() {
            pending.synced.clear();
            self.raise_durable_stamp(stamp);
        } else {
            pending.synced.push_back((sequence, stamp));
        }
    }

    /// Returns when the durable stamp has all commits whose sync was noted before the call: waits until they are visible.
    /// A committer whose sync is over finds its own stamps in it then.
    pub(crate) fn settle_durable_stamp(&self) {
        let mut pending = self.pending.lock();
        let Some((sequence, _)) = pending.synced.back().copied() else {
            return;
        };
        self.wait_with(&mut pending, sequence);
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
        assert!(
            visible >= self.visible(),
            "P1: a replay makes fewer numbers visible"
        );
        self.visible.store(visible, Ordering::Release);
    }

    /// Waits until `sequence` is visible.
    pub(crate) fn wait(&self, sequence: u64) {
        self.wait_with(&mut self.pending.lock(), sequence);
    }

    fn wait_with(&self, pending: &mut MutexGuard<'_, Pending>, sequence: u64) {
        while self.visible() < sequence {
            #[cfg(test)]
            {
                pending.waiting += 1;
            }
            self.published.wait(pending);
            #[cfg(test)]
            {
                pending.waiting -= 1;
            }
        }
    }

    /// Returns when this number of threads wait for earlier commits.
    #[cfg(test)]
    pub(crate) fn wait_for_waiters(&self, count: usize) {
        crate::waiting::wait_until("waiting threads", || self.pending.lock().waiting == count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishes_in_order() {
        let publisher = Publisher::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| publisher.publish(4, 6, 6));
            scope.spawn(|| publisher.publish(3, 3, 3));
            publisher.wait_for_waiters(2);
            assert_eq!(publisher.visible(), 0);
            publisher.publish(1, 2, 2);
            publisher.wait(6);
        });
        assert_eq!(publisher.visible(), 6);
    }

    #[test]
    fn a_snapshot_waits_for_what_was_acknowledged() {
        let publisher = Publisher::new(0);
        publisher.publish(2, 2, 0);
        publisher.publish(4, 4, 0);
        assert_eq!(publisher.visible(), 0);
        std::thread::scope(|scope| {
            let snapshot = scope.spawn(|| publisher.for_snapshot());
            publisher.wait_for_waiters(1);
            // One that has returned by now has number 2.
            publisher.publish(1, 1, 1);
            publisher.publish(3, 3, 3);
            assert_eq!(snapshot.join().unwrap(), 4);
        });
        // One that no commit was acknowledged after.
        std::thread::scope(|scope| {
            scope.spawn(|| publisher.publish(6, 6, 6));
            publisher.wait_for_waiters(1);
            assert_eq!(publisher.for_snapshot(), 4);
            publisher.publish(5, 5, 5);
        });
        assert_eq!(publisher.for_snapshot(), 6);
    }

    #[test]
    fn a_snapshot_after_a_replay_waits_for_nothing() {
        let publisher = Publisher::new(10);
        assert_eq!(publisher.for_snapshot(), 10);
        publisher.reset(15);
        assert_eq!(publisher.for_snapshot(), 15);
    }

    #[test]
    fn a_stamp_counts_when_it_is_durable_and_visible() {
        let publisher = Publisher::new(0);
        assert!(!publisher.publish(1, 3, 3));
        // The sync comes after the publication,
        publisher.note_synced(3, 10);
        assert_eq!(publisher.durable_stamp(), 10);
        // before it,
        publisher.note_synced(5, 12);
        assert_eq!(publisher.durable_stamp(), 10);
        // or in between.
        std::thread::scope(|scope| {
            scope.spawn(|| publisher.publish(5, 5, 5));
            publisher.wait_for_waiters(1);
            assert_eq!(publisher.durable_stamp(), 10);
            assert!(publisher.publish(4, 4, 4));
        });
        assert_eq!(publisher.durable_stamp(), 12);
        publisher.note_synced(7, 14);
        publisher.note_synced(8, 15);
        assert!(publisher.publish(6, 7, 7));
        assert_eq!(publisher.durable_stamp(), 14);
        assert!(publisher.publish(8, 8, 8));
        assert_eq!(publisher.durable_stamp(), 15);
    }

    /// A commit that does not wait for an earlier one returned after its sync while its stamps did not count yet.
    #[test]
    fn a_commit_that_was_synced_finds_its_stamps_durable() {
        let publisher = Publisher::new(0);
        publisher.settle_durable_stamp();
        publisher.publish(2, 2, 0);
        publisher.note_synced(2, 10);
        std::thread::scope(|scope| {
            let committer = scope.spawn(|| {
                publisher.settle_durable_stamp();
                publisher.durable_stamp()
            });
            publisher.wait_for_waiters(1);
            publisher.publish(1, 1, 1);
            assert_eq!(committer.join().unwrap(), 10);
        });
    }
}
