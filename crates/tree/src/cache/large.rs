//! Turns of readers of large pages.
//!
//! While a page with a document of 16 MiB is read, it takes three times that: its block, the decompressed block, and the page. So the
//! bytes of all large pages that are read at a time are bounded and counted. Further readers wait in their order. One reader may
//! always go on, however large its page is.
//!
//! The cache does not keep pages that are large for it. So the large pages in use are found here, and operations that read the same page at
//! the same time share it.
//!
//! A turn ends when its page has been read. Until then its holder waits for the device and for a processor only, and never for another turn.
//! So turns cannot block each other.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Weak};

use frond_kv::{IdentityHasher, MemoryBudget, MemoryUse, Reservation, Wait, WaitFor};
use parking_lot::{Condvar, Mutex};

use super::Key;
use crate::Result;
use crate::page::Page;

/// Reading a page that takes no more than this needs no turn.
const LARGE_BYTES: usize = 1 << 20;
/// The share of the whole budget that turns may take.
const SHARE: u64 = 16;

/// The turns of a store.
pub(crate) struct LargePages {
    budget: MemoryBudget,
    most: u64,
    state: Mutex<State>,
    ended: Condvar,
    /// The pages that were read in a turn, and are still in use.
    in_use: Mutex<HashMap<Key, Weak<Page>, BuildHasherDefault<IdentityHasher>>>,
}

#[derive(Default)]
struct State {
    /// Bytes of all turns that were taken.
    bytes: u64,
    /// The numbers of the waiting readers.
    queue: VecDeque<u64>,
    next: u64,
}

impl LargePages {
    pub(super) fn new(budget: &MemoryBudget) -> LargePages {
        LargePages {
            budget: budget.clone(),
            most: budget.limit() / SHARE,
            state: Mutex::default(),
            ended: Condvar::new(),
            in_use: Mutex::default(),
        }
    }

    /// For a reader of one page.
    pub(crate) fn turn(&self) -> Turn<'_> {
        self.turn_that(true)
    }

    /// For a reader of the engine itself, of which there are few: its bytes are counted, but it does not wait, and it always reads the
    /// page.
    pub(crate) fn immediate_turn(&self) -> Turn<'_> {
        self.turn_that(false)
    }

    fn turn_that(&self, waits: bool) -> Turn<'_> {
        Turn {
            pages: self,
            waits,
            held: RefCell::default(),
        }
    }

    /// The page, if an operation uses it.
    fn in_use(&self, key: Key) -> Option<Arc<Page>> {
        self.in_use.lock().get(&key)?.upgrade()
    }

    /// Waits until the turns have room for `bytes` more.
    fn begin(&self, bytes: u64, waits: bool) -> Result<()> {
        let mut state = self.state.lock();
        let fits = |state: &State| state.bytes == 0 || state.bytes + bytes <= self.most;
        if !waits || (state.queue.is_empty() && fits(&state)) {
            state.bytes += bytes;
            return Ok(());
        }
        let wait = Wait::begin(WaitFor::Pages)?;
        let number = state.next;
        state.next += 1;
        state.queue.push_back(number);
        while state.queue.front() != Some(&number) || !fits(&state) {
            if let Err(error) = wait.on(&self.ended, &mut state) {
                state.queue.retain(|other| *other != number);
                self.ended.notify_all();
                return Err(error);
            }
        }
        state.queue.pop_front();
        state.bytes += bytes;
        // There may be room for the next one, too.
        self.ended.notify_all();
        Ok(())
    }
}

/// The right to read one page. It is taken only if the page proves to be large.
pub(crate) struct Turn<'a> {
    pages: &'a LargePages,
    waits: bool,
    held: RefCell<Option<Reservation>>,
}

impl Turn<'_> {
    /// Whether it was taken: the page is large.
    pub(super) fn is_taken(&self) -> bool {
        self.held.borrow().is_some()
    }

    /// Takes the turn before `bytes` are allocated for a page, unless that is little. Returns the page if an operation uses it.
    /// A turn that was taken already grows without a wait.
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`].
    pub(super) fn take(&self, key: Key, bytes: usize) -> Result<Option<Arc<Page>>> {
        let mut held = self.held.borrow_mut();
        match &mut *held {
            Some(held) if held.bytes() >= bytes => Ok(None),
            Some(held) => {
                self.pages.state.lock().bytes += (bytes - held.bytes()) as u64;
                held.resize(bytes);
                Ok(None)
            }
            None if bytes <= LARGE_BYTES => Ok(None),
            None => {
                let in_use = || self.pages.in_use(key).filter(|_| self.waits);
                if let Some(page) = in_use() {
                    return Ok(Some(page));
                }
                self.pages.begin(bytes as u64, self.waits)?;
                *held = Some(self.pages.budget.reserve(MemoryUse::Runs, bytes));
                // It may have been read meanwhile.
                Ok(in_use())
            }
        }
    }

    /// Notes the page that was read, if it is large.
    pub(super) fn note(&self, key: Key, page: &Arc<Page>) {
        if self.is_taken() {
            let mut in_use = self.pages.in_use.lock();
            in_use.retain(|_, page| page.strong_count() > 0);
            in_use.insert(key, Arc::downgrade(page));
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.pages.state.lock().bytes -= held.bytes() as u64;
            drop(held);
            self.pages.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use frond_kv::Interrupt;

    use super::*;
    use crate::page::PageBuilder;
    use crate::{Error, Kind};

    const MIB: usize = 1 << 20;
    const KEY: Key = Key { run: 1, page: 0 };

    #[test]
    fn large_pages_are_read_a_few_at_a_time_and_small_ones_without_a_turn() {
        let budget = MemoryBudget::new(64 * MIB, 0, 96 * MIB);
        let pages = LargePages::new(&budget);
        assert_eq!(pages.most, 10 << 20);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let turn = pages.turn();
                    assert!(turn.take(KEY, 4 * MIB).unwrap().is_none());
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let small = pages.turn();
                    assert!(small.take(KEY, MIB).unwrap().is_none());
                    now.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert!(most.into_inner() <= 2);
        let huge = pages.turn();
        assert!(huge.take(KEY, 100 * MIB).is_ok(), "one may be larger");
        assert_eq!(budget.used(MemoryUse::Runs), 100 << 20);
        let immediate = pages.immediate_turn();
        assert!(immediate.take(KEY, 5 * MIB).is_ok());
        assert!(immediate.take(KEY, 7 * MIB).is_ok(), "it grows");
        assert_eq!(budget.used(MemoryUse::Runs), 107 << 20);
        drop((huge, immediate));
        assert_eq!(budget.used(MemoryUse::Runs), 0);
        assert_eq!(pages.state.lock().bytes, 0);
    }

    #[test]
    fn a_wait_for_a_turn_ends_by_an_interruption_and_lets_the_next_one_go_on() {
        let budget = MemoryBudget::new(64 * MIB, 0, 96 * MIB);
        let pages = LargePages::new(&budget);
        let first = pages.turn();
        first.take(KEY, 8 * MIB).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let soon = Interrupt {
                    deadline: Some(Instant::now() + Duration::from_millis(50)),
                    ..Interrupt::default()
                };
                soon.run(|| pages.turn().take(KEY, 9 * MIB).err())
            });
            while pages.state.lock().queue.is_empty() {
                std::thread::yield_now();
            }
            // It fits, but is behind one that does not.
            let third = scope.spawn(|| pages.turn().take(KEY, 2 * MIB).is_ok());
            let error = second.join().unwrap();
            assert!(matches!(
                error,
                Some(Error::Interrupted { timed_out: true })
            ));
            assert!(third.join().unwrap());
        });
        assert!(pages.state.lock().queue.is_empty());
        drop(first);
        assert_eq!(pages.state.lock().bytes, 0);
    }

    #[test]
    fn operations_that_read_the_same_page_at_a_time_share_it() {
        let budget = MemoryBudget::new(64 * MIB, 0, 96 * MIB);
        let pages = LargePages::new(&budget);
        let mut builder = PageBuilder::default();
        builder.add(b"key", Kind::Put, b"value");
        let page = Arc::new(builder.page().unwrap());
        let first = pages.turn();
        assert!(first.take(KEY, 8 * MIB).unwrap().is_none());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| pages.turn().take(KEY, 8 * MIB));
            while pages.state.lock().queue.is_empty() {
                std::thread::yield_now();
            }
            first.note(KEY, &page);
            drop(first);
            let shared = second.join().unwrap().unwrap();
            assert!(shared.is_some_and(|shared| Arc::ptr_eq(&shared, &page)));
        });
        let others = Key { run: 1, page: 1 };
        assert!(pages.turn().take(others, 8 * MIB).unwrap().is_none());
        drop(page);
        assert!(pages.turn().take(KEY, 8 * MIB).unwrap().is_none());
    }
}
