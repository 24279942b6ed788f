//! Conflict detection: the sequence numbers of recent commits of guarded keys.
//!
//! Each tree has a window of its own. A window ends at its floor: commits up to there are forgotten, and a snapshot from
//! before conflicts with everything in the tree. When the windows together exceed their limit, the largest one forgets
//! its oldest commits. So a load of one tree does not shorten the window of another, in which a
//! commit may be based on a snapshot of seconds ago.
//!
//! An operation that needs the windows for long, such as a transaction, holds them ([`RecentCommits::hold`]): what was
//! committed after the oldest hold is then kept up to a larger limit, which is taken from the memory budget. Beyond that
//! limit the largest window forgets in spite of the hold, and the held operation gets a conflict: never silently.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use frond_kv::{IdentityHasher, MemoryBudget, MemoryUse, Reservation};

use crate::TreeId;

const MIB: usize = 1 << 20;
/// The least number of guards of a generation: of few windows, and of many.
const GENERATION_MIN: usize = 16 << 10;
const GENERATION_MIN_OF_MANY: usize = 4;
/// With its share of the usual limit, a window has at least this many generations, so that it need not forget all that
/// it has.
const GENERATIONS_MIN: usize = 4;
/// The most guards of a generation.
const GENERATION_MAX: usize = 256 << 10;
/// A generation is full at this share of the guards of its window, so that there are few however long the window is.
const GENERATION_SHARE: usize = 8;
/// While there are holds, the windows may be large, and this many guards at most wait to be put into a map: others wait for
/// that, too.
const WAITING_MAX: usize = 16 << 10;
/// So few guards are looked through.
const WAITING_FEW: usize = 16;
/// When the guards that wait are put into a map, memory for this share of the map's number is kept for later ones.
const WAITING_KEPT_SHARE: usize = 16;
/// An upper bound of the memory of a guard: in a vector that has just grown, or in a map.
const GUARD_BYTES: usize = 40;
/// Memory of a window besides its guards.
const WINDOW_BYTES: usize = 256;
/// Windows whose guards are fewer than those of the largest by at most this share are as large.
const LARGE_SHARE: usize = 4;
/// The windows exceed their limit by at most this share of it before it is enforced.
const SLACK_SHARE: usize = 16;

/// The sequence numbers at which guarded keys were committed.
#[derive(Default)]
struct Generation {
    by_hash: HashMap<u64, u64, BuildHasherDefault<IdentityHasher>>,
    /// Hashes and numbers that are not in the map yet: a single writer never looks anything up.
    waiting: Vec<(u64, u64)>,
    /// Guards that were added: at least as many as there are.
    guards: usize,
    /// E1: the last number; later guards have no lower one.
    end: u64,
}

impl Generation {
    fn merge(&mut self) {
        self.by_hash.extend(self.waiting.drain(..));
        if self.waiting.capacity() > self.by_hash.len() / WAITING_KEPT_SHARE {
            self.waiting = Vec::new();
        }
    }

    /// Whether the key was committed after `snapshot`.
    fn has_newer(&mut self, hash: u64, snapshot: u64) -> bool {
        if snapshot >= self.end {
            return false;
        }
        if self.waiting.len() > WAITING_FEW {
            self.merge();
        }
        let mut waiting = self.waiting.iter();
        let found = self.by_hash.get(&hash);
        found.is_some_and(|sequence| *sequence > snapshot)
            || waiting.any(|(other, sequence)| *other == hash && *sequence > snapshot)
    }
}

/// The recent commits of one tree.
#[derive(Default)]
struct Window {
    young: Generation,
    /// Older generations, oldest first.
    old: VecDeque<Generation>,
    /// E2: the guards of all generations.
    guards: usize,
    /// E3: commits up to this sequence number are forgotten; it only grows.
    floor: u64,
}

impl Window {
    fn conflicts(&mut self, hash: u64, snapshot: u64) -> bool {
        snapshot < self.floor
            || self.young.has_newer(hash, snapshot)
            || (self.old.iter_mut().rev()).any(|old| old.has_newer(hash, snapshot))
    }

    /// A generation has `least` guards at least. With `is_held`, few guards may wait.
    fn record(&mut self, hash: u64, sequence: u64, least: usize, is_held: bool) {
        let full = (self.guards / GENERATION_SHARE).clamp(least, GENERATION_MAX);
        if self.young.guards >= full {
            self.old.push_back(std::mem::take(&mut self.young));
        }
        if is_held && self.young.waiting.len() >= WAITING_MAX {
            self.young.merge();
        }
        assert!(
            sequence >= self.young.end && sequence > 0,
            "E1: guards are recorded in another order than that of the commits"
        );
        self.young.waiting.push((hash, sequence));
        self.young.guards += 1;
        self.young.end = sequence;
        self.guards += 1;
    }

    /// Whether there is an old generation, all of it committed at `may_end` at the latest.
    fn may_forget(&self, may_end: u64) -> bool {
        let oldest = self.old.front();
        oldest.is_some_and(|oldest| oldest.end <= may_end)
    }

    /// Forgets the oldest of the old generations. Returns the number of its guards.
    fn forget_oldest(&mut self) -> usize {
        let Some(oldest) = self.old.pop_front() else {
            return 0;
        };
        self.floor = self.floor.max(oldest.end);
        assert!(
            self.guards >= oldest.guards,
            "E2: a window forgets more guards than it has"
        );
        self.guards -= oldest.guards;
        oldest.guards
    }

    fn end(&self) -> u64 {
        let last = self.old.back().map_or(0, |old| old.end);
        self.young.end.max(last).max(self.floor)
    }
}

/// Limits of the memory of the windows, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct WindowLimits {
    /// Always.
    pub(crate) usual: usize,
    /// While operations hold them.
    pub(crate) held: usize,
}

impl WindowLimits {
    /// The limits of a store with a budget of that many bytes. The usual part is in what the budget does not account for.
    pub(crate) fn of_budget(bytes: usize) -> WindowLimits {
        WindowLimits {
            usual: (bytes / 16).clamp(MIB / 2, 10 * MIB),
            held: (bytes / 8).clamp(MIB, 256 * MIB),
        }
    }
}

/// Recently committed guarded keys.
pub(crate) struct RecentCommits {
    windows: HashMap<u64, Window, BuildHasherDefault<IdentityHasher>>,
    /// The floor of the trees that have no window.
    floor: u64,
    /// Guards of all windows.
    guards: usize,
    /// The least number of guards of a generation.
    generation_min: usize,
    /// The size at which the limits are enforced next.
    check_at: usize,
    limits: WindowLimits,
    /// The snapshots of operations that hold the windows. E4: with the number of holds of each, at least one.
    holds: BTreeMap<u64, usize>,
    budget: MemoryBudget,
    /// Memory beyond the usual limit.
    excess: Option<Reservation>,
}

/// Spreads the ids, which are small numbers.
fn spread(tree: TreeId) -> u64 {
    u64::from(tree.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl RecentCommits {
    pub(crate) fn new(limits: WindowLimits, budget: &MemoryBudget) -> RecentCommits {
        RecentCommits {
            windows: HashMap::default(),
            floor: 0,
            guards: 0,
            generation_min: GENERATION_MIN_OF_MANY,
            check_at: limits.usual,
            limits,
            holds: BTreeMap::new(),
            budget: budget.clone(),
            excess: None,
        }
    }

    /// Whether the key was committed after `snapshot`, or may have been.
    #[inline]
    pub(crate) fn conflicts(&mut self, tree: TreeId, hash: u64, snapshot: u64) -> bool {
        match self.windows.get_mut(&spread(tree)) {
            Some(window) => window.conflicts(hash, snapshot),
            None => snapshot < self.floor,
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, tree: TreeId, hash: u64, sequence: u64) {
        if !self.windows.contains_key(&spread(tree)) {
            self.add_window(tree);
        }
        let (least, is_held) = (self.generation_min, !self.holds.is_empty());
        if let Some(window) = self.windows.get_mut(&spread(tree)) {
            window.record(hash, sequence, least, is_held);
        }
        self.guards += 1;
        if self.bytes() >= self.check_at {
            self.enforce_limits();
        }
    }

    #[cold]
    fn add_window(&mut self, tree: TreeId) {
        let window = Window {
            floor: self.floor,
            ..Window::default()
        };
        self.windows.insert(spread(tree), window);
        let besides = self.windows.len() * WINDOW_BYTES;
        let share = self.limits.usual.saturating_sub(besides) / GUARD_BYTES / self.windows.len();
        self.generation_min =
            (share / GENERATIONS_MIN).clamp(GENERATION_MIN_OF_MANY, GENERATION_MIN);
    }

    /// Forgets all commits up to `sequence`: write sets that are based on a snapshot from before conflict.
    pub(crate) fn forget_before(&mut self, sequence: u64) {
        self.windows.clear();
        self.guards = 0;
        self.floor = self.floor.max(sequence);
    }

    /// Forgets a tree that is dropped.
    pub(crate) fn forget_tree(&mut self, tree: TreeId) {
        if let Some(window) = self.windows.remove(&spread(tree)) {
            assert!(
                self.guards >= window.guards,
                "E2: a tree has more guards than all trees"
            );
            self.guards -= window.guards;
        }
    }

    /// Keeps what is committed after `snapshot`, up to the limit for that, until [`RecentCommits::release`].
    pub(crate) fn hold(&mut self, snapshot: u64) {
        *self.holds.entry(snapshot).or_default() += 1;
    }

    pub(crate) fn release(&mut self, snapshot: u64) {
        let was_oldest =
            (self.holds.first_key_value()).is_some_and(|(first, _)| *first == snapshot);
        let Some(holds) = self.holds.get_mut(&snapshot) else {
            return;
        };
        assert!(*holds > 0, "E4: a hold ends twice");
        *holds -= 1;
        if *holds > 0 {
            return;
        }
        self.holds.remove(&snapshot);
        // As long as an older hold is there, nothing can be forgotten that could not be before.
        if was_oldest {
            self.enforce_limits();
        }
    }

    fn bytes(&self) -> usize {
        self.guards * GUARD_BYTES + self.windows.len() * WINDOW_BYTES
    }

    /// Forgets the oldest commits of the largest windows until the limits are kept.
    fn enforce_limits(&mut self) {
        #[cfg(test)]
        tests::ENFORCED.set(tests::ENFORCED.get() + 1);
        while self.bytes() > self.limits.usual {
            // Up to the larger limit, what was committed after the oldest hold is kept.
            let oldest = self.holds.keys().next().copied();
            let may_end = match oldest {
                Some(oldest) if self.bytes() <= self.limits.held => oldest,
                _ => u64::MAX,
            };
            let mostly_windows = self.windows.len() * WINDOW_BYTES > self.bytes() / 2;
            // A window that has only a young generation is not emptied while others are not in use: all commits of its tree
            // that are under way would conflict.
            let has_forgotten = !mostly_windows && self.forget_of_largest(may_end);
            if !has_forgotten && !self.remove_windows(may_end) {
                break;
            }
        }
        let bytes = self.bytes();
        let excess = bytes.saturating_sub(self.limits.usual);
        self.excess = (excess > 0).then(|| self.budget.reserve(MemoryUse::Conflicts, excess));
        self.check_at = bytes.max(self.limits.usual) + self.limits.usual / SLACK_SHARE;
    }

    /// Forgets the oldest generation, but not the youngest one, of the windows with most guards, among those
    /// that end at `may_end` at the latest, until the usual limit is kept. False if there is none.
    fn forget_of_largest(&mut self, may_end: u64) -> bool {
        let windows = self.windows.values();
        let may_forget = windows.filter(|window| window.may_forget(may_end));
        let Some(most) = may_forget.map(|window| window.guards).max() else {
            return false;
        };
        // All that are about as large, so that many windows are not searched for each of them.
        let large = most - most / LARGE_SHARE;
        let besides = self.windows.len() * WINDOW_BYTES;
        for window in self.windows.values_mut() {
            if window.guards >= large && window.may_forget(may_end) {
                let forgotten = window.forget_oldest();
                assert!(
                    self.guards >= forgotten,
                    "E2: more guards are forgotten than there are"
                );
                self.guards -= forgotten;
                if self.guards * GUARD_BYTES + besides <= self.limits.usual {
                    break;
                }
            }
        }
        true
    }

    /// Removes the half of the windows that was not written for longest, but none that was written after `may_end`.
    /// False if that is none. For stores with many trees and few commits of each: there the windows take more than the
    /// guards, or have no old generation.
    fn remove_windows(&mut self, may_end: u64) -> bool {
        let mut ends: Vec<u64> = self.windows.values().map(Window::end).collect();
        if ends.is_empty() {
            return false;
        }
        let middle = ends.len() / 2;
        let end = (*ends.select_nth_unstable(middle).1).min(may_end);
        let before = self.windows.len();
        self.windows.retain(|_, window| window.end() > end);
        self.guards = self.windows.values().map(|window| window.guards).sum();
        self.floor = self.floor.max(end);
        self.windows.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        /// The number of times that the limits were enforced.
        pub(super) static ENFORCED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    const A: TreeId = TreeId(3);
    const B: TreeId = TreeId(4);

    fn recent(usual: usize, held: usize) -> RecentCommits {
        let limits = WindowLimits { usual, held };
        RecentCommits::new(limits, &MemoryBudget::new(64 * MIB, 0, 0))
    }

    /// Commits of that many keys, each with a number of its own.
    fn load(recent: &mut RecentCommits, tree: TreeId, from: u64, count: u64) {
        for sequence in from..from + count {
            recent.record(tree, sequence.wrapping_mul(0x9e37_79b9), sequence);
        }
    }

    #[test]
    fn forgotten_commits_conflict_with_old_snapshots() {
        let mut recent = recent(MIB, MIB);
        recent.record(A, 7, 10);
        assert!(recent.conflicts(A, 7, 9));
        assert!(!recent.conflicts(A, 7, 10));
        assert!(!recent.conflicts(A, 8, 0));
        load(&mut recent, A, 11, 100_000);
        assert!(recent.conflicts(A, 7, 9), "its generation is gone");
        assert!(recent.conflicts(A, 8, 9), "it may have been committed");
        assert!(!recent.conflicts(A, 7, 100_010));
    }

    /// The window was one for all trees: after 262,144 guards of other trees each commit on an older snapshot failed.
    #[test]
    fn a_load_of_one_tree_does_not_shorten_the_window_of_another() {
        let mut recent = recent(MIB, MIB);
        recent.record(A, 7, 10);
        load(&mut recent, B, 11, 1_000_000);
        assert!(!recent.conflicts(A, 8, 5));
        assert!(recent.conflicts(A, 7, 9));
        assert!(!recent.conflicts(A, 7, 10));
        // A tree that was never written has no window.
        assert!(!recent.conflicts(TreeId(9), 7, 1));
        assert!(recent.conflicts(B, 7, 10), "forgotten");
        assert!(recent.bytes() <= MIB + MIB / SLACK_SHARE + GUARD_BYTES);
    }

    #[test]
    fn many_trees_stay_within_the_limit_and_forget_with_a_conflict() {
        let mut recent = recent(MIB, MIB);
        recent.record(A, 7, 1);
        for number in 0..50_000 {
            recent.record(TreeId(100 + number), 7, 2 + u64::from(number));
        }
        assert!(recent.bytes() <= MIB + MIB / SLACK_SHARE + WINDOW_BYTES);
        assert!(recent.conflicts(A, 8, 0) && recent.conflicts(TreeId(100), 7, 1));
        assert!(!recent.conflicts(A, 7, 60_000));
    }

    #[test]
    fn a_hold_keeps_what_is_committed_after_it_within_the_larger_limit() {
        let mut recent = recent(MIB, 16 * MIB);
        load(&mut recent, A, 1, 10_000);
        recent.hold(10_000);
        load(&mut recent, A, 10_001, 200_000);
        assert!(recent.conflicts(A, 10_005_u64.wrapping_mul(0x9e37_79b9), 10_000));
        assert!(!recent.conflicts(A, 7, 10_000), "nothing is forgotten");
        assert!(recent.excess.is_some(), "taken from the budget");
        let generations = recent.windows[&spread(A)].old.len();
        assert!(generations <= 24, "{generations} to look through");

        // Beyond the larger limit the hold is of no use, and says so.
        load(&mut recent, A, 300_000, 1_000_000);
        assert!(recent.bytes() <= 16 * MIB + MIB);
        assert!(recent.conflicts(A, 7, 10_000));

        recent.release(10_000);
        assert!(recent.bytes() <= MIB && recent.excess.is_none());
    }

    /// The end of each transaction looked at all windows, though an older one held what they have.
    #[test]
    fn the_end_of_a_hold_that_is_not_the_oldest_looks_at_no_window() {
        let mut recent = recent(MIB, 64 * MIB);
        recent.hold(1);
        recent.hold(1);
        for number in 0..20_000 {
            recent.record(TreeId(100 + number), 7, 2 + u64::from(number));
        }
        let before = ENFORCED.get();
        for number in 0..1000 {
            recent.hold(30_000 + number);
            recent.release(30_000 + number);
        }
        recent.release(1);
        assert_eq!(ENFORCED.get(), before);
        assert!(recent.excess.is_some());
        recent.release(1);
        assert!(ENFORCED.get() > before);
        assert!(recent.bytes() <= MIB && recent.excess.is_none());
    }

    /// A window had only one generation, of up to 16,384 guards. When it was forgotten, every commit in flight conflicted.
    #[test]
    fn many_trees_that_are_written_evenly_keep_their_latest_commits() {
        for (usual, trees) in [
            (MIB / 2, 20),
            (MIB / 2, 700),
            (10 * MIB, 100),
            (10 * MIB, 5000),
        ] {
            let mut recent = recent(usual, usual);
            let mut sequence = 0;
            for round in 0..(usual / GUARD_BYTES * 4 / trees) as u32 {
                for tree in 0..trees as u32 {
                    sequence += 1;
                    recent.record(TreeId(tree), sequence, sequence);
                    // A commit that began when the tree was written before.
                    let before = sequence.saturating_sub(trees as u64);
                    let key_of_nobody = u64::MAX;
                    if round > 0 && tree % 7 == 0 {
                        let conflicts = recent.conflicts(TreeId(tree), key_of_nobody, before);
                        assert!(
                            !conflicts,
                            "round {round} of {trees} trees in {usual} bytes"
                        );
                    }
                }
            }
            assert!(recent.bytes() <= usual + usual / SLACK_SHARE + WINDOW_BYTES);
        }
    }

    /// The memory of a generation, as the vector and the map allocate it.
    fn allocated(generation: &Generation) -> usize {
        let buckets = (generation.by_hash.capacity() * 8).div_ceil(7);
        buckets * 17 + generation.waiting.capacity() * 16
    }

    /// Memory for the guards that waited was kept when they were put into the map.
    #[test]
    fn guards_take_no_more_memory_than_is_counted() {
        for (held, every) in [
            (MIB, 1),
            (MIB, 1000),
            (16 * MIB, 30_000),
            (16 * MIB, 250_000),
        ] {
            let mut recent = recent(MIB, held);
            if held > MIB {
                recent.hold(0);
            }
            for sequence in 1..400_000_u64 {
                recent.record(A, sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15), sequence);
                if sequence % every == 0 {
                    recent.conflicts(A, 7, sequence / 2);
                    let window = &recent.windows[&spread(A)];
                    let generations = window.old.iter().chain([&window.young]);
                    let bytes: usize = generations.map(allocated).sum();
                    assert!(bytes <= recent.bytes(), "{bytes} of {}", recent.bytes());
                }
                let window = &recent.windows[&spread(A)];
                let waiting = window.young.waiting.len();
                assert!(held == MIB || waiting <= WAITING_MAX, "{waiting} to merge");
            }
        }
    }

    #[test]
    fn a_dropped_tree_is_forgotten() {
        let mut recent = recent(MIB, MIB);
        load(&mut recent, A, 1, 10_000);
        recent.forget_tree(A);
        assert_eq!(recent.bytes(), 0);
    }
}
