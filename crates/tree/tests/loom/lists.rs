//! Models of the memtable's list.

use loom::sync::Arc;
use loom::thread;

use crate::Kind;
use crate::arena::Arena;
use crate::skiplist::{Entry, List};

struct Shared {
    arena: Arena,
    list: List,
}

impl Shared {
    fn new() -> Arc<Shared> {
        let arena = Arena::new(320);
        let list = List::new(&arena).unwrap();
        Arc::new(Shared { arena, list })
    }

    /// Inserts entries of one writer, which keeps its place between them.
    fn insert(&self, entries: &[(u8, u64, usize)]) {
        let mut splice = self.list.splice();
        for (key, sequence, height) in entries {
            let entry = Entry {
                key: &[*key],
                sequence: *sequence,
                kind: Kind::Put,
                value: &[*key, *sequence as u8],
            };
            assert!(self.list.insert(&self.arena, &mut splice, *height, &entry));
        }
    }

    /// All entries that a walk meets. Each must be whole, and behind the one before it.
    fn walk(&self) -> Vec<(u8, u64)> {
        let mut found: Vec<(u8, u64)> = Vec::new();
        let mut at = self.list.first(&self.arena);
        while at != 0 {
            found.push(self.read(at));
            at = self.list.next(&self.arena, at);
        }
        let order = |entry: &(u8, u64)| (entry.0, u64::MAX - entry.1);
        assert!(
            found
                .windows(2)
                .all(|pair| order(&pair[0]) < order(&pair[1])),
            "{found:?}"
        );
        found
    }

    fn read(&self, at: u32) -> (u8, u64) {
        let entry = self.list.entry(&self.arena, at);
        assert_eq!(entry.kind, Kind::Put);
        assert_eq!(entry.value, [entry.key[0], entry.sequence as u8]);
        (entry.key[0], entry.sequence)
    }
}

/// Runs these side by side. Readers come last: the checker runs the threads in this order first, and
/// finds the other orders from what a thread reads that one before it wrote.
fn side_by_side<const N: usize>(shared: &Arc<Shared>, work: [fn(&Shared); N]) {
    let threads = work.map(|work| {
        let shared = shared.clone();
        thread::spawn(move || work(&shared))
    });
    for thread in threads {
        thread.join().unwrap();
    }
}

pub(crate) fn two_writers_lose_nothing() {
    let shared = Shared::new();
    let first = |shared: &Shared| shared.insert(&[(2, 1, 2), (4, 2, 1)]);
    let second = |shared: &Shared| shared.insert(&[(1, 3, 1), (3, 4, 2)]);
    side_by_side(&shared, [first, second]);
    assert_eq!(shared.walk(), [(1, 3), (2, 1), (3, 4), (4, 2)]);
    for (key, sequence) in [(1, 3), (2, 1), (3, 4), (4, 2)] {
        let at = shared.list.seek(&shared.arena, &[key], u64::MAX);
        assert_eq!(shared.read(at), (key, sequence));
    }
    let last = shared.list.seek_before(&shared.arena, None);
    assert_eq!(shared.read(last), (4, 2));
}

pub(crate) fn writers_meet_on_one_key() {
    let shared = Shared::new();
    shared.insert(&[(5, 1, 1)]);
    let writers: [fn(&Shared); 2] = [
        |shared| shared.insert(&[(5, 3, 2)]),
        |shared| shared.insert(&[(5, 2, 2)]),
    ];
    side_by_side(&shared, writers);
    assert_eq!(shared.walk(), [(5, 3), (5, 2), (5, 1)]);
    let at = shared.list.seek(&shared.arena, &[5], 2);
    assert_eq!(shared.read(at), (5, 2));
}

pub(crate) fn a_reader_sees_whole_entries_in_order() {
    let shared = Shared::new();
    let reader = |shared: &Shared| {
        let (before, after) = (shared.walk(), shared.walk());
        let gone = before.iter().find(|entry| !after.contains(entry));
        assert_eq!(gone, None, "an entry went away");
    };
    let writers: [fn(&Shared); 3] = [
        |shared| shared.insert(&[(1, 1, 1)]),
        |shared| shared.insert(&[(2, 2, 2)]),
        reader,
    ];
    side_by_side(&shared, writers);
    assert_eq!(shared.walk(), [(1, 1), (2, 2)]);
}

pub(crate) fn a_seek_finds_what_was_there() {
    let shared = Shared::new();
    shared.insert(&[(3, 1, 2)]);
    let reader = |shared: &Shared| {
        let at = shared.list.seek(&shared.arena, &[3], u64::MAX);
        assert_eq!(shared.read(at), (3, 1));
        let before = shared.list.seek_before(&shared.arena, Some(&[4]));
        assert_eq!(shared.read(before), (3, 1));
    };
    let writer = |shared: &Shared| shared.insert(&[(2, 2, 2), (4, 3, 1)]);
    side_by_side(&shared, [writer, reader]);
    assert_eq!(shared.walk(), [(2, 2), (3, 1), (4, 3)]);
}
