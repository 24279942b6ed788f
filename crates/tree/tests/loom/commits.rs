//! Models of how commits, the sealing of a memtable and its flush work together.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::publisher::Publisher;
use crate::reservations::Reservations;
use crate::sync::Mutex;

/// A memtable with a slot for each sequence number; the checker sees every access to a slot.
struct Table {
    reservations: Reservations,
    slots: [UnsafeCell<bool>; 4],
    /// The slots that folds replaced.
    folded: [UnsafeCell<bool>; 4],
}

/// The parts of a store that take part, as `commit.rs`, `engine.rs` and `memtable_flush.rs` use them. Version 0
/// has the first memtable active, version 1 has it sealed, version 2 has it in the trees.
struct Store {
    tables: [Table; 2],
    version: AtomicUsize,
    next_sequence: Mutex<u64>,
    publisher: Publisher,
}

impl Table {
    fn new() -> Table {
        Table {
            reservations: Reservations::new(),
            slots: [0; 4].map(|_| UnsafeCell::new(false)),
            folded: [0; 4].map(|_| UnsafeCell::new(false)),
        }
    }

    fn insert(&self, sequence: u64) {
        // SAFETY: each sequence number belongs to one commit; the checker would object.
        self.slots[sequence as usize].with_mut(|slot| unsafe { *slot = true });
    }

    fn insert_folded(&self, sequence: u64) {
        // SAFETY: only the commit with this number folds into its slot; the checker would object.
        self.folded[sequence as usize].with_mut(|slot| unsafe { *slot = true });
    }

    /// The number of folds.
    fn folds(&self) -> usize {
        // SAFETY: called after the last fold; the checker would object.
        let is_set = |slot: &&UnsafeCell<bool>| slot.with(|slot| unsafe { *slot });
        self.folded.iter().filter(is_set).count()
    }

    fn has(&self, sequence: u64) -> bool {
        // SAFETY: only called for finished commits; the checker would object.
        self.slots[sequence as usize].with(|slot| unsafe { *slot })
    }
}

impl Store {
    fn new() -> Arc<Store> {
        Arc::new(Store {
            tables: [Table::new(), Table::new()],
            version: AtomicUsize::new(0),
            next_sequence: Mutex::default(),
            publisher: Publisher::new(0),
        })
    }

    fn active(&self) -> &Table {
        &self.tables[self.version.load(Ordering::Acquire).min(1)]
    }

    /// One operation: `Engine::commit`. Returns the index of the table, and the sequence number.
    fn commit(&self) -> (usize, u64) {
        let mut next = self.next_sequence.lock();
        let table = self.active();
        let index = usize::from(std::ptr::eq(table, &self.tables[1]));
        assert!(table.reservations.reserve(1, || 0, 8));
        *next += 1;
        let sequence = *next;
        table.reservations.note_last_sequence(sequence);
        drop(next);
        table.insert(sequence);
        table.reservations.leave(1);
        self.publisher.publish(sequence, sequence, sequence);
        (index, sequence)
    }

    /// `Engine::fold_hot`, after a commit to the table with this index.
    fn fold(&self, index: usize, sequence: u64) {
        let visible = self.publisher.visible();
        assert!(visible >= sequence);
        for sequence in 1..=visible {
            let there = self.tables.iter().any(|table| table.has(sequence));
            assert!(there, "the fold lacks commit {sequence}");
        }
        let state = self.next_sequence.lock();
        let table = self.active();
        if !std::ptr::eq(table, &self.tables[index]) || !table.reservations.reserve(1, || 0, 8) {
            return;
        }
        drop(state);
        table.insert_folded(sequence);
        table.reservations.leave(1);
    }

    /// `Engine::seal`, then the start of `Engine::flush_memtable`. Returns the number of folds that the flush found.
    fn seal_and_flush(&self) -> usize {
        let sealed = &self.tables[0];
        let state = self.next_sequence.lock();
        self.version.store(1, Ordering::Release);
        drop(state);
        while !sealed.reservations.has_no_writers() {
            thread::yield_now();
        }
        let last = sealed.reservations.last_sequence();
        self.publisher.wait(last);
        for sequence in 1..=last {
            assert!(
                sealed.has(sequence),
                "commit {sequence} of {last} was not flushed"
            );
        }
        let folds = sealed.folds();
        let state = self.next_sequence.lock();
        self.version.store(2, Ordering::Release);
        drop(state);
        folds
    }

    /// `Engine::snapshot`: a version and a number that agree.
    fn snapshot(&self) -> (usize, u64) {
        let mut version = self.version.load(Ordering::Acquire);
        loop {
            let sequence = self.publisher.for_snapshot();
            let again = self.version.load(Ordering::Acquire);
            if version == again {
                return (version, sequence);
            }
            version = again;
        }
    }
}

pub(crate) fn become_visible_in_order() {
    let publisher = Arc::new(Publisher::new(0));
    let others = [(1, 1), (2, 3)].map(|(first, last)| {
        let publisher = publisher.clone();
        thread::spawn(move || {
            publisher.publish(first, last, last);
            assert!(publisher.visible() >= last);
        })
    });
    publisher.publish(4, 4, 4);
    assert_eq!(publisher.visible(), 4);
    for other in others {
        other.join().unwrap();
    }
}

pub(crate) fn a_snapshot_has_what_was_acknowledged() {
    let publisher = Arc::new(Publisher::new(0));
    let first = publisher.clone();
    let first = thread::spawn(move || first.publish(1, 1, 1));
    let last = publisher.clone();
    let last = thread::spawn(move || {
        last.publish(3, 3, 0);
        assert_eq!(last.for_snapshot(), 3);
    });
    publisher.publish(2, 2, 0);
    assert!(publisher.for_snapshot() >= 2);
    first.join().unwrap();
    last.join().unwrap();
}

pub(crate) fn a_durable_stamp_is_visible() {
    let publisher = Arc::new(Publisher::new(0));
    let syncs = publisher.clone();
    let log = thread::spawn(move || {
        syncs.note_synced(1, 10);
        syncs.note_synced(2, 20);
    });
    let reads = publisher.clone();
    let reader = thread::spawn(move || {
        let stamp = reads.durable_stamp();
        assert!(reads.visible() * 10 >= stamp);
    });
    publisher.publish(1, 1, 1);
    publisher.publish(2, 2, 2);
    log.join().unwrap();
    reader.join().unwrap();
    assert_eq!(publisher.durable_stamp(), 20);
}

pub(crate) fn a_flush_sees_all_of_a_sealed_memtable() {
    let store = Store::new();
    let writers = [(), ()].map(|()| {
        let store = store.clone();
        thread::spawn(move || {
            store.commit();
        })
    });
    store.seal_and_flush();
    for writer in writers {
        writer.join().unwrap();
    }
    let found = |table: &Table| (1..=2).filter(|sequence| table.has(*sequence)).count();
    assert_eq!(found(&store.tables[0]) + found(&store.tables[1]), 2);
}

/// While one writer uses its reservation and leaves, the next must not take space that is used.
pub(crate) fn a_reservation_is_never_counted_too_low() {
    let reservations = Arc::new(Reservations::new());
    let used = Arc::new(AtomicUsize::new(0));
    assert!(reservations.reserve(6, || 0, 10));
    let (its_reservations, its_used) = (reservations.clone(), used.clone());
    let writer = thread::spawn(move || {
        its_used.fetch_add(6, Ordering::Relaxed);
        its_reservations.leave(6);
    });
    let reserver = thread::spawn(move || {
        let entered = reservations.reserve(5, || used.load(Ordering::Relaxed), 10);
        assert!(!entered, "6 and 5 are more than 10");
    });
    writer.join().unwrap();
    reserver.join().unwrap();
}

/// A fold sees all visible commits, and is finished before the flush begins.
pub(crate) fn a_fold_sees_all_that_is_visible_and_the_flush_waits_for_it() {
    let store = Store::new();
    let writers = [(), ()].map(|()| {
        let store = store.clone();
        thread::spawn(move || {
            let (index, sequence) = store.commit();
            store.fold(index, sequence);
        })
    });
    let folds = store.seal_and_flush();
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(store.tables[0].folds(), folds, "a fold came late");
}

pub(crate) fn a_snapshot_holds_all_that_is_visible() {
    let store = Store::new();
    let other = store.clone();
    let writer = thread::spawn(move || {
        other.commit();
        other.commit();
    });
    let other = store.clone();
    let reader = thread::spawn(move || {
        let (version, sequence) = other.snapshot();
        let in_trees = if version == 2 {
            other.tables[0].reservations.last_sequence()
        } else {
            0
        };
        assert!(in_trees <= sequence, "the trees are ahead of the snapshot");
        let tables = &other.tables[..=version.min(1)];
        for sequence in 1..=sequence {
            let there = tables.iter().any(|table| table.has(sequence));
            assert!(there, "version {version} lacks commit {sequence}");
        }
    });
    store.seal_and_flush();
    writer.join().unwrap();
    reader.join().unwrap();
}

/// The trees of a version change before the commit that changes them is visible. Here a version is the
/// number of that commit, as `Trees::changed_at`.
pub(crate) fn a_snapshot_sees_trees_with_their_commit() {
    let (changed_at, publisher) = (AtomicUsize::new(0), Publisher::new(0));
    let shared = Arc::new((changed_at, publisher));
    let other = shared.clone();
    let writer = thread::spawn(move || {
        let (changed_at, publisher) = &*other;
        publisher.publish(1, 1, 1);
        changed_at.store(2, Ordering::Release);
        publisher.publish(2, 2, 2);
    });
    let reader = thread::spawn(move || {
        let (changed_at, publisher) = &*shared;
        let mut version = changed_at.load(Ordering::Acquire);
        let sequence = loop {
            let sequence = publisher.visible();
            let again = changed_at.load(Ordering::Acquire);
            if version as u64 > sequence {
                publisher.wait(version as u64);
            } else if version == again {
                break sequence;
            }
            version = again;
        };
        assert_eq!(
            version == 2,
            sequence >= 2,
            "version {version} at {sequence}"
        );
    });
    writer.join().unwrap();
    reader.join().unwrap();
}
