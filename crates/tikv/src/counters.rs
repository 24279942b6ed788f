//! Counters without hot keys.
//!
//! A commit takes a slot, which no other commit has meanwhile. The deltas of counters go to keys of the slot, whose values it
//! knows: they are written without being read, and nobody else writes them. A reader of the counter folds the keys of all
//! slots. The first key that a commit writes, its primary key, is one of its slot and tells the timestamp of the last commit
//! of the slot: so a commit whose outcome was not told is looked up there.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::keys::Writer;
use crate::overlay::TreeKey;

/// A slot that has written so many counters is given up: what it knows takes memory.
const COUNTERS_MAX: usize = 1024;

/// The slots of this instance of a server.
pub(crate) struct Slots {
    instance: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: Vec<Slot>,
    next: u32,
}

/// A slot: what one commit at a time may write.
pub(crate) struct Slot {
    pub(crate) writer: Writer,
    /// What it has added to each counter.
    pub(crate) added: HashMap<TreeKey, Vec<u8>>,
}

impl Slots {
    pub(crate) fn new(instance: u32) -> Slots {
        Slots {
            instance,
            state: Mutex::default(),
        }
    }

    pub(crate) fn instance(&self) -> u32 {
        self.instance
    }

    /// Takes a slot. One that is not given back is not used again: its last commit may still come.
    pub(crate) fn take(&self) -> Slot {
        let mut state = self.state.lock();
        state.free.pop().unwrap_or_else(|| {
            let slot = state.next;
            state.next += 1;
            Slot {
                writer: Writer {
                    instance: self.instance,
                    slot,
                },
                added: HashMap::new(),
            }
        })
    }

    /// Gives a slot back after a commit whose outcome is known.
    pub(crate) fn give_back(&self, slot: Slot) {
        if slot.added.len() < COUNTERS_MAX {
            self.state.lock().free.push(slot);
        }
    }
}

/// What a slot's key holds: the timestamp of the commit, and what was added so far.
pub(crate) fn record(at: u64, added: &[u8]) -> Vec<u8> {
    let mut record = at.to_be_bytes().to_vec();
    record.extend_from_slice(added);
    record
}

/// Reads [`record`].
pub(crate) fn read_record(stored: &[u8]) -> Option<(u64, &[u8])> {
    let (at, added) = stored.split_first_chunk()?;
    Some((u64::from_be_bytes(*at), added))
}
