//! The thread that adds threads to groups that make no progress, and moves busy tasks to groups that have fewer of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use super::common::{Common, TICK};
use super::group::Group;

/// The most threads that are added to a group in a tick.
const ADDED_MAX: usize = 16;

/// After this many ticks in which a thread of each group polls the monitor sleeps until one does not.
const TICKS_AWAKE: u32 = 100;

/// The busy tasks of groups are compared after this many ticks.
const TICKS_BALANCED: u32 = 50;

/// The progress of a group as of the last tick.
#[derive(Default)]
struct Seen {
    looks: usize,
    added: usize,
}

/// Adds a thread to a group whenever none polls and none has made progress for a tick, and more each time that only
/// those that it added have.
pub(super) fn watch(common: &Common, groups: &[Arc<Group>]) {
    let mut seen: Vec<Seen> = groups.iter().map(|_| Seen::default()).collect();
    let mut idle_ticks = 0;
    let mut ticks = 0;
    let all_polled = || {
        groups
            .iter()
            .all(|group| group.is_polled.load(Ordering::SeqCst))
    };
    while !common.stop.load(Ordering::SeqCst) {
        let mut is_idle = true;
        for (group, seen) in groups.iter().zip(&mut seen) {
            is_idle &= help(group, seen);
        }
        ticks += 1;
        if ticks == TICKS_BALANCED {
            ticks = 0;
            balance(common, groups);
        }
        idle_ticks = if is_idle { idle_ticks + 1 } else { 0 };
        if idle_ticks >= TICKS_AWAKE {
            idle_ticks = 0;
            common.monitor_sleeps.store(true, Ordering::SeqCst);
            // A thread that took the last event before the flag was set does not wake this one.
            while all_polled()
                && common.monitor_sleeps.load(Ordering::SeqCst)
                && !common.stop.load(Ordering::SeqCst)
            {
                thread::park();
            }
            common.monitor_sleeps.store(false, Ordering::SeqCst);
        }
        thread::sleep(TICK);
    }
}

/// Adds threads to a group if it needs them. True if one of its threads polls.
fn help(group: &Arc<Group>, seen: &mut Seen) -> bool {
    let before = std::mem::replace(&mut seen.looks, group.looks.load(Ordering::Relaxed));
    if group.is_polled.load(Ordering::SeqCst) {
        seen.added = 0;
        return true;
    }
    seen.added = if seen.looks.wrapping_sub(before) <= seen.added {
        (2 * seen.added).clamp(1, ADDED_MAX)
    } else {
        0
    };
    (0..seen.added).for_each(|_| group.add_thread());
    false
}

/// Makes each of the groups with the most busy tasks give one to a group with fewer.
fn balance(common: &Common, groups: &[Arc<Group>]) {
    if groups.len() < 2 {
        return;
    }
    common.interval.fetch_add(1, Ordering::Relaxed);
    let busy: Vec<u32> = groups
        .iter()
        .map(|group| group.busy_tasks.swap(0, Ordering::Relaxed))
        .collect();
    for (giver, receiver) in moves(&busy) {
        if let (Some(giver), Some(receiver)) = (groups.get(giver), groups.get(receiver)) {
            giver.relieve_by(receiver);
        }
    }
}

/// Pairs the groups with the most busy tasks with those that have the fewest, where a move makes the numbers more equal.
fn moves(busy: &[u32]) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..busy.len()).collect();
    let tasks = |index: &usize| busy.get(*index).copied().unwrap_or(0);
    order.sort_by_key(tasks);
    let fewest = order.iter();
    let most = order.iter().rev();
    most.zip(fewest)
        .take(busy.len() / 2)
        .take_while(|(giver, receiver)| tasks(giver) >= tasks(receiver) + 2)
        .map(|(giver, receiver)| (*giver, *receiver))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_with_two_busy_tasks_more_than_others_give_one_away() {
        type Case = (&'static [u32], &'static [(usize, usize)]);
        let cases: &[Case] = &[
            (&[], &[]),
            (&[5], &[]),
            (&[1, 1, 1, 1], &[]),
            (&[2, 1], &[]),
            (&[2, 0], &[(0, 1)]),
            (&[0, 8, 0, 0], &[(1, 0)]),
            (&[4, 0, 3, 1], &[(0, 1), (2, 3)]),
            (&[2, 2, 1, 0], &[(1, 3)]),
        ];
        for (busy, expected) in cases {
            assert_eq!(moves(busy), *expected, "{busy:?}");
        }
    }
}
