//! Counters without hot keys.
//!
//! A commit takes a slot, which no other commit has meanwhile. The deltas of counters go to keys of the slot, whose values it
//! knows: they are written without being read, and have no other writer. A reader of the counter folds the keys of all
//! slots. The first key that a commit writes, its primary key, is the record of its slot and has the timestamp of the last
//! commit of the slot: so a commit with an unknown outcome is looked up there.

use std::collections::HashMap;

use frond_kv::Result;
use parking_lot::Mutex;

use crate::client::connection::{Connection, PHYSICAL_SHIFT};
use crate::client::instances;
use crate::client::keys::{Keys, Writer};
use crate::client::overlay::TreeKey;

/// A slot is given up once it has written this number of counters, since it keeps all of them in memory.
const COUNTERS_MAX: usize = 1024;
/// Slots reserved by one transaction.
const RESERVED_AT_ONCE: u32 = 64;

/// The slots of this server.
#[derive(Default)]
pub(crate) struct Slots {
    state: Mutex<State>,
    /// Held while slots are reserved.
    reserving: Mutex<()>,
}

#[derive(Default)]
struct State {
    instance: u32,
    lease: Lease,
    free: Vec<Slot>,
    /// The slots up to `reserved` may be used; those from `next` on were not yet.
    next: u32,
    reserved: u32,
    /// Slots from `next` on serve for commits with later timestamps only: they were reserved after the instance was fenced.
    not_before: u64,
}

/// Which commits a server may make: those with timestamps from one on, and until a time of the shared clock. See [`crate::client::fence`].
#[derive(Clone, Copy)]
struct Lease {
    from: u64,
    until_ms: u64,
}

impl Lease {
    fn allows(self, at: u64) -> bool {
        at >= self.from && at >> PHYSICAL_SHIFT <= self.until_ms
    }
}

impl Default for Lease {
    fn default() -> Lease {
        Lease {
            from: 0,
            until_ms: u64::MAX,
        }
    }
}

/// A slot: what one commit at a time may write.
pub(crate) struct Slot {
    pub(crate) writer: Writer,
    /// The sum that it has added to each counter.
    pub(crate) added: HashMap<TreeKey, Vec<u8>>,
    /// It serves for commits with timestamps from here on: an earlier one would conflict with its last commit.
    pub(crate) not_before: u64,
}

impl Slots {
    pub(crate) fn instance(&self) -> u32 {
        self.state.lock().instance
    }

    /// Goes on with the slots of a new instance, which has no lease yet if `has_lease` is not set.
    pub(crate) fn begin_instance(&self, instance: u32, has_lease: bool) {
        let mut state = self.state.lock();
        *state = State {
            instance,
            ..State::default()
        };
        if !has_lease {
            state.lease = Lease {
                from: u64::MAX,
                until_ms: 0,
            };
        }
    }

    /// Allows commits with timestamps from `from` on, if they begin before a time.
    pub(crate) fn set_lease(&self, from: u64, until_ms: u64) {
        self.state.lock().lease = Lease { from, until_ms };
    }

    /// Moves the end of the lease.
    pub(crate) fn extend_lease(&self, until_ms: u64) {
        self.state.lock().lease.until_ms = until_ms;
    }

    /// Whether the server may make a commit whose snapshot has this timestamp.
    pub(crate) fn allows(&self, at: u64) -> bool {
        self.state.lock().lease.allows(at)
    }

    /// Takes a slot for a commit whose snapshot has the timestamp `at`. `None` if the server may not make the commit. One that is
    /// not given back is not used again: its last commit may still come.
    pub(crate) fn take(
        &self,
        connection: &Connection,
        keys: &Keys,
        at: u64,
        needs_lease: bool,
    ) -> Result<Option<Slot>> {
        loop {
            let instance = {
                let mut state = self.state.lock();
                if needs_lease && !state.lease.allows(at) {
                    return Ok(None);
                }
                // The last one, so that few slots are in use.
                let usable = state.free.iter().rposition(|slot| slot.not_before <= at);
                if let Some(place) = usable {
                    return Ok(Some(state.free.remove(place)));
                }
                if state.next < state.reserved {
                    if state.not_before > at {
                        return Ok(None);
                    }
                    let writer = Writer {
                        instance: state.instance,
                        slot: state.next,
                    };
                    state.next += 1;
                    return Ok(Some(Slot {
                        writer,
                        added: HashMap::new(),
                        not_before: state.not_before,
                    }));
                }
                state.instance
            };
            let _reserving = self.reserving.lock();
            let is_done = |state: &State| state.instance != instance || state.next < state.reserved;
            if is_done(&self.state.lock()) {
                continue;
            }
            let reserved = instances::reserve(connection, keys, instance, RESERVED_AT_ONCE)?;
            let mut state = self.state.lock();
            if state.instance == instance {
                state.reserved = reserved.slots;
                state.not_before = reserved.fenced_at;
            }
        }
    }

    /// Gives a slot back after a commit whose outcome is known.
    pub(crate) fn give_back(&self, slot: Slot) {
        let mut state = self.state.lock();
        if slot.added.len() < COUNTERS_MAX && slot.writer.instance == state.instance {
            state.free.push(slot);
        }
    }
}
