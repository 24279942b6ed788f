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
        let (key, value) = ([number; 3], [number; 5]);
        let entry = Entry::new(&key, u64::from(number), Kind::Put, &value);
        let link = entry.store(&self.arena).unwrap();
        let mut links = self.links.lock().unwrap();
        let below = links.last().map(|link| Entry::at(&self.arena, *link).depth);
        Entry::set_depth(&self.arena, link, below.unwrap_or(0));
        links.push(link);
    }

    /// Reads whatever is published by now, outside of the lock.
    fn check(&self) -> usize {
        let links = self.links.lock().unwrap().clone();
        for (before, link) in links.iter().enumerate() {
            let entry = Entry::at(&self.arena, *link);
            let number = entry.sequence as u8;
            assert!((1..=2).contains(&number));
            assert_eq!(
                (entry.key, entry.value),
                (&[number; 3][..], &[number; 5][..])
            );
            assert_eq!((entry.kind, entry.whole), (Kind::Put, false));
            assert_eq!(usize::from(entry.depth), before + 1);
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
