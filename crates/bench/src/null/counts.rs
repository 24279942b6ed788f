//! The number of documents of each collection: the only state of a null server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// Collections that are counted for, at most; so memory is bounded.
pub const COLLECTIONS_MAX: usize = 4096;

/// The counters, by `database.collection`. None is ever removed.
#[derive(Default)]
pub struct Counts(RwLock<HashMap<String, AtomicU64>>);

impl Counts {
    /// Does something with the counter of a collection, if anything was inserted into it.
    fn with<R>(
        &self,
        database: &str,
        collection: &str,
        work: impl FnOnce(&AtomicU64) -> R,
    ) -> Option<R> {
        let counters = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let counter = counters.get(&format!("{database}.{collection}"));
        counter.map(work)
    }

    /// Counts documents in. False if there are too many collections.
    pub fn add(&self, database: &str, collection: &str, n: u64) -> bool {
        let add = |counter: &AtomicU64| counter.fetch_add(n, Ordering::Relaxed);
        if self.with(database, collection, add).is_some() {
            return true;
        }
        let mut counters = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let namespace = format!("{database}.{collection}");
        if counters.len() >= COLLECTIONS_MAX && !counters.contains_key(&namespace) {
            return false;
        }
        add(counters.entry(namespace).or_default());
        true
    }

    /// Counts documents out: `n` of them, or all. Returns how many there were of them.
    pub fn take(&self, database: &str, collection: &str, n: Option<u64>) -> u64 {
        let taken = self.with(database, collection, |counter| {
            let n = n.unwrap_or(u64::MAX);
            let less = |now: u64| Some(now.saturating_sub(n));
            match counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
                Ok(before) | Err(before) => before.min(n),
            }
        });
        taken.unwrap_or(0)
    }

    pub fn count(&self, database: &str, collection: &str) -> u64 {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.with(database, collection, load).unwrap_or(0)
    }

    pub fn drop_database(&self, database: &str) {
        let counters = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (namespace, counter) in counters.iter() {
            let rest = namespace.strip_prefix(database);
            if rest.is_some_and(|rest| rest.starts_with('.')) {
                counter.store(0, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_counted_by_collection() {
        let counts = Counts::default();
        assert_eq!(counts.count("d", "a"), 0);
        for (database, collection, n) in [("d", "a", 5), ("d", "a", 6), ("d", "a.b", 1)] {
            assert!(counts.add(database, collection, n));
        }
        assert!(counts.add("d2", "a", 100));
        assert_eq!(counts.count("d", "a"), 11);
        assert_eq!(counts.take("d", "a", Some(4)), 4);
        assert_eq!(counts.take("d", "a", Some(9)), 7);
        assert_eq!(counts.count("d", "a"), 0);
        assert_eq!(counts.take("d", "none", Some(1)), 0);
        assert_eq!(counts.take("d2", "a", None), 100);
        assert!(counts.add("d2", "a", 3));
        counts.drop_database("d");
        assert_eq!(counts.count("d", "a.b"), 0);
        assert_eq!(counts.count("d2", "a"), 3);
    }

    #[test]
    fn collections_are_bounded() {
        let counts = Counts::default();
        for n in 0..COLLECTIONS_MAX {
            assert!(counts.add("d", &n.to_string(), 1));
        }
        assert!(!counts.add("d", "more", 1));
        assert!(counts.add("d", "7", 1));
        assert_eq!(counts.count("d", "7"), 2);
    }
}
