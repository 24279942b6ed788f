//! Entries are written into the arena without a lock, and published under one.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use crate::Kind;
use crate::arena::Arena;
use crate::entry::{Entry, Link};

struct Shared {
    arena: Arena,
    links: Mutex<Vec<Link>>,
}

impl Shared {
    fn insert(&self, number: u8) {
        let entry = Entry {
            key: &[number; 3],
            sequence: u64::from(number),
            kind: Kind::Put,
            value: &[number; 5],
        };
        let link = entry.store(&self.arena).unwrap();
        self.links.lock().unwrap().push(link);
    }

    /// Reads whatever is published by now, outside of the lock.
    fn check(&self) -> usize {
        let links = self.links.lock().unwrap().clone();
        for link in &links {
            let entry = Entry::at(&self.arena, *link);
            let number = entry.sequence as u8;
            assert!((1..=2).contains(&number));
            assert_eq!(
                (entry.key, entry.value),
                (&[number; 3][..], &[number; 5][..])
            );
            assert_eq!(entry.kind, Kind::Put);
        }
        links.len()
    }
}

pub(crate) fn a_reader_sees_whole_entries() {
    let shared = Arc::new(Shared {
        arena: Arena::new(128),
        links: Mutex::new(Vec::new()),
    });
    let writers: Vec<_> = (1..=2)
        .map(|number| {
            let shared = shared.clone();
            thread::spawn(move || shared.insert(number))
        })
        .collect();
    shared.check();
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(shared.check(), 2);
}
