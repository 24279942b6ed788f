//! The number of documents of each collection: the only state of a null server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Collections that are counted for, at most; so memory is bounded.
pub const COLLECTIONS_MAX: usize = 4096;

/// Collections that a connection remembers.
const REMEMBERED: usize = 32;

/// The counters, by `database.collection`. None is ever removed, so that connections can keep them.
#[derive(Default)]
pub struct Counts {
    counters: Mutex<HashMap<String, Arc<AtomicU64>>>,
}

impl Counts {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<AtomicU64>>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counter of a collection, if anything was inserted into it.
    fn find(&self, namespace: &str) -> Option<Arc<AtomicU64>> {
        self.lock().get(namespace).cloned()
    }

    /// The counter of a collection; `None` if there are too many.
    fn find_or_make(&self, namespace: &str) -> Option<Arc<AtomicU64>> {
        let mut counters = self.lock();
        if let Some(counter) = counters.get(namespace) {
            return Some(Arc::clone(counter));
        }
        if counters.len() >= COLLECTIONS_MAX {
            return None;
        }
        let counter = Arc::default();
        counters.insert(namespace.to_owned(), Arc::clone(&counter));
        Some(counter)
    }

    /// Forgets the documents of a database.
    pub fn drop_database(&self, database: &str) {
        for (namespace, counter) in self.lock().iter() {
            let of_it = namespace
                .strip_prefix(database)
                .is_some_and(|rest| rest.starts_with('.'));
            if of_it {
                counter.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// The counters that one connection uses: finding one of them again takes no lock.
#[derive(Default)]
pub struct Counter {
    recent: Vec<(String, Arc<AtomicU64>)>,
}

impl Counter {
    fn find(
        &mut self,
        database: &str,
        collection: &str,
        look_up: impl FnOnce(&str) -> Option<Arc<AtomicU64>>,
    ) -> Option<&AtomicU64> {
        let at = self.recent.iter().position(|(namespace, _)| {
            let rest = namespace.strip_prefix(database);
            rest.and_then(|rest| rest.strip_prefix('.')) == Some(collection)
        });
        let at = match at {
            Some(at) => at,
            None => {
                let namespace = format!("{database}.{collection}");
                let counter = look_up(&namespace)?;
                if self.recent.len() == REMEMBERED {
                    self.recent.remove(0);
                }
                self.recent.push((namespace, counter));
                self.recent.len() - 1
            }
        };
        self.recent.get(at).map(|(_, counter)| &**counter)
    }

    /// Counts documents in. False if there are too many collections.
    pub fn add(&mut self, counts: &Counts, database: &str, collection: &str, n: u64) -> bool {
        let make = |namespace: &str| counts.find_or_make(namespace);
        match self.find(database, collection, make) {
            Some(counter) => {
                counter.fetch_add(n, Ordering::Relaxed);
                true
            }
            None => false,
        }
    }

    /// Counts documents out: `n` of them, or all. Returns how many there were of them.
    pub fn take(
        &mut self,
        counts: &Counts,
        database: &str,
        collection: &str,
        n: Option<u64>,
    ) -> u64 {
        let Some(counter) = self.find(database, collection, |name| counts.find(name)) else {
            return 0;
        };
        let Some(n) = n else {
            return counter.swap(0, Ordering::Relaxed);
        };
        let less = |now: u64| Some(now.saturating_sub(n));
        match counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(before) | Err(before) => before.min(n),
        }
    }

    /// The documents of a collection.
    pub fn count(&mut self, counts: &Counts, database: &str, collection: &str) -> u64 {
        self.find(database, collection, |name| counts.find(name))
            .map_or(0, |counter| counter.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_count_together() {
        let counts = Counts::default();
        let (mut one, mut two) = (Counter::default(), Counter::default());
        assert_eq!(one.count(&counts, "d", "a"), 0);
        assert!(one.add(&counts, "d", "a", 5));
        assert!(two.add(&counts, "d", "a", 6));
        assert!(two.add(&counts, "d", "a.b", 1));
        assert!(two.add(&counts, "d2", "a", 100));
        assert_eq!(one.count(&counts, "d", "a"), 11);
        assert_eq!(two.take(&counts, "d", "a", Some(4)), 4);
        assert_eq!(one.take(&counts, "d", "a", Some(9)), 7);
        assert_eq!(one.count(&counts, "d", "a"), 0);
        assert_eq!(one.take(&counts, "d", "none", Some(1)), 0);
        assert_eq!(one.take(&counts, "d2", "a", None), 100);
        assert!(one.add(&counts, "d2", "a", 3));
        counts.drop_database("d");
        assert_eq!(one.count(&counts, "d", "a.b"), 0);
        assert_eq!(one.count(&counts, "d2", "a"), 3);
    }

    #[test]
    fn collections_are_bounded() {
        let counts = Counts::default();
        let mut counter = Counter::default();
        for n in 0..COLLECTIONS_MAX {
            assert!(counter.add(&counts, "d", &n.to_string(), 1));
        }
        assert!(!counter.add(&counts, "d", "more", 1));
        assert!(counter.add(&counts, "d", "7", 1));
        assert_eq!(counter.count(&counts, "d", "7"), 2);
        assert!(counter.recent.len() <= REMEMBERED);
    }
}
