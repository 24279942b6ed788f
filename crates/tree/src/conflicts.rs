//! Conflict detection: the sequence numbers of recent commits of guarded keys.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::identity_hasher::IdentityHasher;

/// Guards of this many recent commits are kept in each of two generations.
const RECENT_MAX: usize = 128 << 10;

/// The sequence numbers at which guarded keys were committed.
#[derive(Default)]
struct Generation {
    by_hash: HashMap<u64, u64, BuildHasherDefault<IdentityHasher>>,
    /// Hashes and numbers that are not in the map yet: a single writer never looks anything up.
    waiting: Vec<(u64, u64)>,
    /// The last number.
    end: u64,
}

impl Generation {
    fn len(&self) -> usize {
        self.by_hash.len() + self.waiting.len()
    }

    /// Whether the key was committed after `snapshot`.
    fn has_newer(&mut self, hash: u64, snapshot: u64) -> bool {
        if snapshot >= self.end {
            return false;
        }
        self.by_hash.extend(self.waiting.drain(..));
        let found = self.by_hash.get(&hash);
        found.is_some_and(|sequence| *sequence > snapshot)
    }
}

/// Recently committed guarded keys, in two generations: when the young one is full the old one is
/// discarded, and snapshots from before its end conflict with everything.
#[derive(Default)]
pub(crate) struct RecentCommits {
    young: Generation,
    old: Generation,
    /// Commits up to this sequence number were discarded.
    floor: u64,
}

impl RecentCommits {
    /// Whether the key was committed after `snapshot`, or may have been.
    #[inline]
    pub(crate) fn conflicts(&mut self, hash: u64, snapshot: u64) -> bool {
        snapshot < self.floor
            || self.young.has_newer(hash, snapshot)
            || self.old.has_newer(hash, snapshot)
    }

    #[inline]
    pub(crate) fn record(&mut self, hash: u64, sequence: u64) {
        if self.young.len() >= RECENT_MAX {
            self.floor = self.old.end;
            self.old = std::mem::take(&mut self.young);
        }
        self.young.waiting.push((hash, sequence));
        self.young.end = sequence;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_commits_conflict_with_old_snapshots() {
        let mut recent = RecentCommits::default();
        recent.record(7, 10);
        assert!(recent.conflicts(7, 9));
        assert!(!recent.conflicts(7, 10));
        assert!(!recent.conflicts(8, 0));
        for i in 0..3 * RECENT_MAX as u64 {
            recent.record(1000 + i, 11 + i);
        }
        assert!(recent.conflicts(7, 9), "its generation is gone");
        assert!(!recent.conflicts(7, 3 * RECENT_MAX as u64));
    }
}
