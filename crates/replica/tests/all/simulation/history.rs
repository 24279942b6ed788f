//! The answers that clients got, and whether they were true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frond_kv_testing::{MemoryLog, Violations};
use parking_lot::Mutex;

use super::runtime::right_now;

pub struct History {
    pub violations: Violations,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// All that is committed, by the end of its frame.
    truth: BTreeMap<u64, u64>,
    /// The position up to which the commits of a member were compared.
    compared: BTreeMap<u64, u64>,
    /// The leader of each term.
    leaders: BTreeMap<u64, u64>,
    acknowledged: Vec<(u64, u64)>,
    /// The sets of voters that members have had, and when they were last seen.
    voters: BTreeMap<Vec<BTreeSet<u64>>, u64>,
    next: u64,
    counts: BTreeMap<&'static str, u64>,
    trace: u64,
}

impl History {
    pub fn new() -> Arc<History> {
        Arc::new(History {
            violations: Violations::default(),
            state: Mutex::default(),
        })
    }

    pub fn violation(&self, what: String) {
        let seconds = right_now() as f64 / 1e9;
        self.violations.add(format!("at {seconds:.6} s: {what}"));
    }

    pub fn count(&self, what: &'static str) {
        let mut state = self.state.lock();
        *state.counts.entry(what).or_default() += 1;
        let mut trace = state.trace;
        for byte in what.bytes().chain(right_now().to_le_bytes()) {
            trace = (trace ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        state.trace = trace;
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.state.lock().counts.clone()
    }

    /// A number that another run has only if the same things happened at the same times.
    pub fn trace(&self) -> u64 {
        self.state.lock().trace
    }

    /// A value that no other write has.
    pub fn fresh(&self) -> u64 {
        let mut state = self.state.lock();
        state.next += 1;
        state.next
    }

    pub fn leads(&self, id: u64, term: u64) {
        self.count("led");
        let before = *self.state.lock().leaders.entry(term).or_insert(id);
        if before != id {
            self.violation(format!("members {before} and {id} lead in term {term}"));
        }
    }

    /// A member's log was opened. Its trees have only what is committed, and all of it is compared again.
    pub fn opened(&self, id: u64) {
        self.state.lock().compared.remove(&id);
    }

    /// A member says that everything before `position` is committed.
    pub fn committed(&self, id: u64, log: &MemoryLog, position: u64) {
        let mut state = self.state.lock();
        let from = state.compared.get(&id).copied().unwrap_or(0);
        if position <= from {
            return;
        }
        state.compared.insert(id, position);
        let known = state.truth.last_key_value().map_or(0, |(end, _)| *end);
        let mut found = log.in_trees(from, position).into_iter();
        let mut wrong = None;
        let mut expected = state
            .truth
            .range(from + 1..=position)
            .map(|(end, value)| (*end, *value));
        let mut new = Vec::new();
        for (end, payload) in &mut found {
            let value = decode(&payload);
            if end > known {
                new.push((end, value));
                continue;
            }
            let there = expected.next();
            if there != Some((end, value)) {
                wrong = Some(format!(
                    "member {id} has committed {value} at {end}, where others have {there:?}"
                ));
                break;
            }
        }
        let missing = if wrong.is_none() {
            expected.next()
        } else {
            None
        };
        state.truth.extend(new);
        drop(state);
        if let Some(what) = wrong {
            self.violation(what);
        }
        if let Some(missing) = missing {
            self.violation(format!(
                "member {id} has committed up to {position} without {missing:?}"
            ));
        }
    }

    /// A member has these voters.
    pub fn saw(&self, voters: Vec<BTreeSet<u64>>) {
        self.state.lock().voters.insert(voters, right_now());
    }

    /// Whether `holders` are a majority by voters that were seen since a time.
    pub fn is_majority(&self, since: u64, holders: &BTreeSet<u64>) -> bool {
        let state = self.state.lock();
        let seen = state.voters.iter().filter(|(_, time)| **time >= since);
        seen.map(|(voters, _)| voters).any(|voters| {
            let has_most = |set: &BTreeSet<u64>| set.intersection(holders).count() > set.len() / 2;
            voters.iter().all(has_most)
        })
    }

    pub fn acknowledge(&self, value: u64, position: u64) {
        self.count("acknowledged");
        let mut state = self.state.lock();
        state.acknowledged.push((value, position));
        let there = state.truth.get(&position).copied();
        drop(state);
        if there != Some(value) {
            self.violation(format!(
                "{value} was acknowledged, but {there:?} is committed at {position}"
            ));
        }
    }

    /// Counts a write as acknowledged that may not be committed.
    pub fn acknowledge_unchecked(&self, value: u64, position: u64) {
        self.state.lock().acknowledged.push((value, position));
    }

    pub fn acknowledged(&self) -> usize {
        self.state.lock().acknowledged.len()
    }

    /// Checks that a read of everything before `position` had the first `count` acknowledged writes.
    pub fn check_read(&self, id: u64, log: &MemoryLog, position: u64, count: usize) {
        self.count("read");
        let state = self.state.lock();
        let acknowledged: Vec<(u64, u64)> = state.acknowledged[..count].to_vec();
        drop(state);
        let Some(first) = acknowledged.len().checked_sub(40) else {
            return self.check_each(id, log, position, &acknowledged);
        };
        self.check_each(id, log, position, &acknowledged[first..]);
    }

    fn check_each(&self, id: u64, log: &MemoryLog, position: u64, writes: &[(u64, u64)]) {
        for (value, end) in writes {
            let is_there = *end <= position
                && log
                    .in_trees(*end - 1, *end)
                    .first()
                    .is_some_and(|(_, payload)| decode(payload) == *value);
            if !is_there {
                self.violation(format!(
                    "a linearizable read of member {id} at {position} lacks {value} at {end}, acknowledged before"
                ));
            }
        }
    }

    /// Checks at the end that the trees of a member have every acknowledged write once, and nothing twice.
    pub fn check_end(&self, id: u64, log: &MemoryLog, position: u64) {
        let state = self.state.lock();
        let truth = state.truth.clone();
        let acknowledged = state.acknowledged.clone();
        drop(state);
        let found: BTreeMap<u64, u64> = log
            .in_trees(0, position)
            .into_iter()
            .map(|(end, payload)| (end, decode(&payload)))
            .collect();
        if found != truth {
            self.violation(format!("the trees of member {id} differ at the end"));
        }
        let mut times: BTreeMap<u64, u64> = BTreeMap::new();
        for value in found.values() {
            *times.entry(*value).or_default() += 1;
        }
        for (value, _) in acknowledged {
            if times.get(&value) != Some(&1) {
                let times = times.get(&value).copied().unwrap_or(0);
                self.violation(format!(
                    "member {id} has the acknowledged {value} {times} times"
                ));
            }
        }
        if let Some((value, _)) = times.iter().find(|(_, times)| **times > 1) {
            self.violation(format!("member {id} has {value} twice"));
        }
    }
}

pub fn encode(value: u64) -> Vec<u8> {
    let mut payload = value.to_le_bytes().to_vec();
    // Frames of different sizes.
    payload.resize(8 + (value % 23) as usize, 0);
    payload
}

pub fn decode(payload: &[u8]) -> u64 {
    payload
        .first_chunk()
        .map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}
