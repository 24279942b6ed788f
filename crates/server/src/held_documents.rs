//! Large documents that operations hold while they wait for the room of a reply.
//!
//! An operation that copies its document can release the page and the snapshot while it waits. The bytes of all copies are bounded.
//! Beyond the bound an operation keeps the page instead. Operations that wait with the same document share its page, so the page is
//! counted once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use frond_bson::Doc;
use frond_store::{MemoryBudget, MemoryUse, Reservation};
use parking_lot::Mutex;

/// The documents of all operations that wait.
pub struct HeldDocuments {
    memory: MemoryBudget,
    copies_max: usize,
    held: Mutex<All>,
}

#[derive(Default)]
struct All {
    copies: usize,
    /// Documents that are not copied, by their address, each with the number of operations.
    lent: HashMap<usize, (usize, Reservation)>,
}

/// A document of one operation, counted until it is dropped.
pub struct Held {
    all: Arc<HeldDocuments>,
    kind: Kind,
}

enum Kind {
    Copy { bytes: usize, _counted: Reservation },
    Lent(usize),
}

impl HeldDocuments {
    /// Copies may have `copies_max` bytes in all; a single one may be larger.
    pub fn new(memory: &MemoryBudget, copies_max: usize) -> Arc<HeldDocuments> {
        Arc::new(HeldDocuments {
            memory: memory.clone(),
            copies_max,
            held: Mutex::default(),
        })
    }

    /// Counts a copy of `bytes` bytes that is about to be made; `None` if there are too many already.
    pub fn copy(self: &Arc<HeldDocuments>, bytes: usize) -> Option<Held> {
        let mut held = self.held.lock();
        if held.copies > 0 && held.copies + bytes > self.copies_max {
            return None;
        }
        held.copies += bytes;
        let kind = Kind::Copy {
            bytes,
            _counted: self.memory.reserve(MemoryUse::Queries, bytes),
        };
        let all = self.clone();
        Some(Held { all, kind })
    }

    /// Counts a document that stays where it is; `None` if there is no memory for its page.
    pub fn lend(self: &Arc<HeldDocuments>, document: &Doc) -> Option<Held> {
        let address = document.as_bytes().as_ptr().addr();
        match self.held.lock().lent.entry(address) {
            Entry::Occupied(mut entry) => entry.get_mut().0 += 1,
            Entry::Vacant(entry) => {
                let bytes = document.len_bytes();
                entry.insert((1, self.memory.try_reserve(MemoryUse::Queries, bytes)?));
            }
        }
        Some(Held {
            all: self.clone(),
            kind: Kind::Lent(address),
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.all.held.lock();
        match &self.kind {
            Kind::Copy { bytes, .. } => held.copies -= bytes,
            Kind::Lent(address) => {
                if let Entry::Occupied(mut entry) = held.lent.entry(*address) {
                    entry.get_mut().0 -= 1;
                    if entry.get().0 == 0 {
                        entry.remove();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use super::*;

    #[test]
    fn copies_are_bounded_and_a_document_that_several_look_at_counts_once() {
        let memory = MemoryBudget::for_clients(100 << 20);
        let used = || memory.used(MemoryUse::Queries);
        let all = HeldDocuments::new(&memory, 1000);
        let large = all.copy(5000);
        assert!(
            large.is_some() && all.copy(1).is_none(),
            "one may be larger"
        );
        drop(large);
        let copies = [all.copy(600), all.copy(400)];
        assert!(copies.iter().all(Option::is_some) && all.copy(1).is_none());
        drop(copies);
        assert_eq!(used(), 0);

        let (one, other) = (doc! {"x": "a"}, doc! {"x": "a"});
        let lent = [all.lend(&one), all.lend(&one), all.lend(&other)];
        let bytes = one.len_bytes() as u64;
        assert_eq!(used(), 2 * bytes);
        let [first, second, third] = lent;
        drop((first, third));
        assert_eq!(used(), bytes);
        drop(second);
        assert_eq!(used(), 0);
        let full = memory.reserve(MemoryUse::Queries, 100 << 20);
        assert!(all.lend(&one).is_none());
        drop(full);
        assert!(all.lend(&one).is_some());
    }
}
