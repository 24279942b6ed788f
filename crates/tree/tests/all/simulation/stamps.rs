//! Stamped keys of a world. The model knows the stamps, so a store whose keys have others, or not all of a commit, is
//! noticed as any other difference.

use std::sync::Mutex;

use frond_tree::{Stamps, Store};
use rand::RngExt;

use crate::simulation::model::{Commit, Op, STAMPED};
use crate::simulation::world::World;

/// Gives out stamps, each of them once.
#[derive(Default)]
pub struct Source(Mutex<State>);

#[derive(Default)]
struct State {
    last: u64,
    /// The first stamp of the commit that is being done, or was done last.
    first: Option<u64>,
    is_empty: bool,
}

impl Stamps for Source {
    fn take(&self, count: u32) -> Option<u64> {
        let mut state = self.0.lock().unwrap();
        if state.is_empty {
            return None;
        }
        // Others take stamps too.
        let first = state.last + 1 + state.last % 3;
        state.last = first + u64::from(count) - 1;
        state.first = Some(first);
        Some(first)
    }
}

impl Source {
    /// A commit begins, perhaps without stamps for it.
    pub fn begin(&self, is_empty: bool) {
        let mut state = self.0.lock().unwrap();
        (state.first, state.is_empty) = (None, is_empty);
    }

    fn last(&self) -> u64 {
        self.0.lock().unwrap().last
    }

    /// The operations of the last commit with the keys that it has made.
    pub fn resolved(&self, mut commit: Commit) -> Commit {
        // Without stamps it is not in the log.
        let first = self.0.lock().unwrap().first.unwrap_or(u64::MAX / 2);
        for op in &mut commit {
            if let Op::PutStamped(tree, offset, value) = op {
                let key = (first + u64::from(*offset)).to_be_bytes().to_vec();
                *op = Op::Put(*tree, key, std::mem::take(value));
            }
        }
        commit
    }
}

/// The first and the last stamp of a commit.
fn stamps_of(commit: &Commit) -> Option<(u64, u64)> {
    let stamps = commit.iter().filter_map(|op| match op {
        Op::Put(STAMPED, key, _) => Some(u64::from_be_bytes(key[..8].try_into().unwrap())),
        _ => None,
    });
    stamps.fold(None, |range, stamp| match range {
        None => Some((stamp, stamp)),
        Some((first, last)) => Some((stamp.min(first), stamp.max(last))),
    })
}

impl World {
    /// Adds stamped keys to a commit, or trims the tree.
    pub fn add_stamped(&mut self, commit: &mut Commit) {
        let Some(stamped) = self.now.trees.get(&STAMPED) else {
            return;
        };
        match self.random.random_range(0..100) {
            0..50 => {}
            50..52 => {
                // Mostly the left part of the tree, now and then all of it.
                let keep = self.random.random_range(0..40);
                let upper = stamped.keys().rev().nth(keep).cloned();
                let upper = upper.or_else(|| Some(stamped.keys().next()?.clone()));
                commit.push(Op::DeleteRange(STAMPED, Vec::new(), upper));
            }
            _ => {
                let count = match self.random.random_range(0..10) {
                    0 => self.random.random_range(1..100),
                    _ => self.random.random_range(1..4),
                };
                for offset in 0..count {
                    let value = format!("{}.{offset}", self.now.commits + 1);
                    commit.push(Op::PutStamped(STAMPED, offset, value.into_bytes()));
                }
            }
        }
    }

    /// Notes the commits that the durable stamp proves durable. `is_synced` is set if all stamps so far are.
    pub fn note_durable_stamp(&mut self, store: &Store, is_synced: bool) {
        let durable = store.durable_stamp();
        assert!(durable >= self.durable_stamp, "the durable stamp went back");
        assert!(durable <= self.stamps.last(), "a stamp from nowhere");
        self.durable_stamp = durable;
        if !self.looked {
            return;
        }
        let stamps = self.pending.iter().enumerate().rev();
        let mut stamps = stamps.filter_map(|(at, commit)| Some((at, stamps_of(commit)?)));
        let newest = stamps.next();
        let reached = newest
            .into_iter()
            .chain(stamps)
            .find(|(_, (first, _))| *first <= durable);
        if let Some((at, (_, last))) = reached {
            assert!(durable >= last, "a part of a commit is durable");
            // Without a journal it is visible only.
            if self.journal && at >= self.safe {
                self.safe = at + 1;
                self.outcome.counts.durable_stamps += 1;
            }
        }
        // Otherwise it may be a commit that a panic ended, or that failed.
        let is_visible = !self.doubt && !self.ended;
        if let Some((_, (_, last))) = newest.filter(|_| is_synced || (!self.journal && is_visible))
        {
            assert!(durable >= last, "the stamps of a commit are not durable");
        }
    }

    /// A store that was opened has stamps only of what has survived, of which there are `survived` commits since the base.
    pub fn look_at_stamps(&mut self, store: &Store, survived: usize) {
        let stamps = self.pending[..survived].iter().rev();
        let last = stamps.filter_map(stamps_of).map(|(_, last)| last).next();
        self.base_stamp = last.unwrap_or(self.base_stamp);
        let durable = store.durable_stamp();
        assert!(
            durable == 0 || durable == self.base_stamp,
            "{durable} is durable, and the last one is {}",
            self.base_stamp
        );
        self.durable_stamp = durable;
    }
}
