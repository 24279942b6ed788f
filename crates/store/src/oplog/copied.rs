//! Entries that a commit takes from the oplog of another server, with the timestamps that they have there.
//!
//! A standby applies the entries of its primary. Each commit stores the entries with the changes that they describe, so that its last entry
//! says how far it has come. The writers below do what they always do. Their log knows that the entries are given: it adds
//! those to the commit instead of new ones, and stores the documents before their changes under the right timestamps.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::readers::Places;
use super::{Added, Trees};
use frond_storage::keyspace::WriteSet;

/// The values of entries, in the order of their timestamps.
#[derive(Debug, Default)]
pub struct CopiedEntries {
    /// One after the other.
    bytes: Vec<u8>,
    /// Of each: its timestamp after the first one of the commit, and where its value ends.
    ends: Vec<(u32, usize)>,
    places: Places,
}

impl CopiedEntries {
    /// Adds an entry. The result is its value, to be changed.
    pub fn add(&mut self, offset: u32, ns: &str, value: &[u8]) -> &mut [u8] {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((offset, self.bytes.len()));
        self.places.add(ns);
        self.bytes.get_mut(start..).unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }
}

/// The entries of one commit.
#[derive(Debug)]
pub struct Copied {
    /// The timestamp of the first one.
    first: u64,
    /// Given before the commit.
    entries: OnceLock<CopiedEntries>,
    /// The entry that is applied, and the position of the operation in it: what a document before its change is stored under.
    now: AtomicU64,
    is_put: AtomicBool,
}

impl Copied {
    /// For a commit whose first entry has this timestamp.
    pub fn new(first: u64) -> Copied {
        Copied {
            first,
            entries: OnceLock::new(),
            now: AtomicU64::new(0),
            is_put: AtomicBool::new(false),
        }
    }

    /// The distance of `ts` from the first timestamp; `None` if they are too far apart for one commit.
    pub fn offset(&self, ts: u64) -> Option<u32> {
        u32::try_from(ts.checked_sub(self.first)?)
            .ok()
            .filter(|offset| *offset < u32::MAX)
    }

    /// Gives the entries, before the commit.
    pub fn fill(&self, entries: CopiedEntries) {
        let filled = self.entries.set(entries);
        debug_assert!(filled.is_ok(), "they are given once");
    }

    /// The timestamps of the first and of the last entry.
    pub fn times(&self) -> (u64, u64) {
        let last = self.entries.get().and_then(|entries| entries.ends.last());
        let last = last.map_or(0, |(offset, _)| *offset);
        (self.first, self.first + u64::from(last))
    }

    /// Bytes of the values.
    pub fn bytes(&self) -> usize {
        self.entries.get().map_or(0, |entries| entries.bytes.len())
    }

    /// The namespaces of the entries.
    pub fn places(&self) -> Option<&Places> {
        self.entries.get().map(|entries| &entries.places)
    }

    /// From here on changes belong to this entry, and to the operation at a position in it.
    pub fn set_place(&self, offset: u32, position: u32) {
        let place = u64::from(offset) << 32 | u64::from(position);
        self.now.store(place, Ordering::Relaxed);
    }

    /// The entry and the operation that changes belong to.
    pub fn place(&self) -> (u32, u32) {
        let now = self.now.load(Ordering::Relaxed);
        ((now >> 32) as u32, now as u32)
    }

    /// Whether they are in a commit.
    pub fn is_put(&self) -> bool {
        self.is_put.load(Ordering::Relaxed)
    }

    /// Adds them to a commit, unless they are in another one already. Returns what the commit adds to the oplog.
    pub fn put(&self, batch: &mut WriteSet, trees: Trees) -> Added {
        let mut added = Added::default();
        let Some(entries) = self.entries.get() else {
            return added;
        };
        if self.is_put.swap(true, Ordering::Relaxed) {
            return added;
        }
        let mut start = 0;
        for (offset, end) in &entries.ends {
            let value = entries.bytes.get(start..*end).unwrap_or_default();
            batch.put_stamped(trees.entries, *offset, &[], value);
            added.count(value.len());
            added.stamps = offset + 1;
            start = *end;
        }
        added
    }
}
