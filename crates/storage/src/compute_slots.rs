//! Long computations share slots for processors, so that short operations find a free processor.
//!
//! An operation that computes for long, such as an expression over large arrays, checks for interruptions at intervals. After
//! [`LONG`] it needs a slot to go on. There is one slot per processor, and an operation passes its slot to the next one after
//! [`SLOT_TIME`]. So on two processors a hundred such operations slow down a find no more than two of them do.
//!
//! An operation may hold something that the holder of a slot waits for, so nothing waits longer than [`WAIT_MAX`] for a slot; it
//! goes on without one then.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// An operation is long after this time.
const LONG: Duration = Duration::from_millis(30);

/// The longest time for which an operation keeps its slot while others wait.
const SLOT_TIME: Duration = Duration::from_millis(10);

/// The longest wait for a slot.
const WAIT_MAX: Duration = Duration::from_millis(200);

/// The interval at which a waiting operation checks for an interruption.
const CHECK: Duration = Duration::from_millis(10);

static SLOTS: LazyLock<ComputeSlots> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    ComputeSlots::new(processors.max(2), WAIT_MAX)
});

thread_local! {
    /// When the operation on this thread computed for the first time.
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
    static SLOT_OF_THREAD: RefCell<Option<ComputeSlot<'static>>> = const { RefCell::new(None) };
}

/// Waits for a slot if the operation on this thread has computed for long. `check` fails if the operation has to end.
///
/// # Errors
/// Those of `check`.
pub fn take<E>(check: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    let now = Instant::now();
    let Some(began) = BEGAN.get() else {
        BEGAN.set(Some(now));
        return Ok(());
    };
    if now - began < LONG {
        return Ok(());
    }
    SLOT_OF_THREAD.with_borrow_mut(|slot| {
        if let Some(held) = slot
            && !held.is_over(now)
        {
            return Ok(());
        }
        *slot = None;
        *slot = Some(SLOTS.wait(check)?);
        Ok(())
    })
}

/// Ends the operation on this thread.
pub fn end() {
    if BEGAN.take().is_some() {
        SLOT_OF_THREAD.take();
    }
}

struct ComputeSlots {
    state: Mutex<State>,
    changed: Condvar,
    wait_max: Duration,
}

struct State {
    free: usize,
    /// The operations that wait, by number, in their order.
    waiting: VecDeque<u64>,
    next: u64,
}

/// The slot of an operation, until it is dropped.
#[derive(Debug)]
struct ComputeSlot<'t> {
    slots: &'t ComputeSlots,
    began: Instant,
    /// Not if the operation has waited for too long.
    is_counted: bool,
}

impl std::fmt::Debug for ComputeSlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl ComputeSlots {
    fn new(count: usize, wait_max: Duration) -> ComputeSlots {
        ComputeSlots {
            state: Mutex::new(State {
                free: count,
                waiting: VecDeque::new(),
                next: 0,
            }),
            changed: Condvar::new(),
            wait_max,
        }
    }

    /// Waits for a slot behind those that wait already.
    fn wait<E>(&self, mut check: impl FnMut() -> Result<(), E>) -> Result<ComputeSlot<'_>, E> {
        let until = Instant::now() + self.wait_max;
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.push_back(number);
        let outcome = loop {
            if state.free > 0 && state.waiting.front() == Some(&number) {
                state.free -= 1;
                break Ok(true);
            }
            if Instant::now() >= until {
                break Ok(false);
            }
            self.changed.wait_for(&mut state, CHECK);
            if let Err(error) = check() {
                break Err(error);
            }
        };
        state.waiting.retain(|waiting| *waiting != number);
        // The next one may have a slot, too.
        self.changed.notify_all();
        drop(state);
        outcome.map(|is_counted| ComputeSlot {
            slots: self,
            began: Instant::now(),
            is_counted,
        })
    }
}

impl ComputeSlot<'_> {
    /// Whether another operation is to have the slot.
    fn is_over(&self, now: Instant) -> bool {
        now - self.began >= SLOT_TIME && !self.slots.state.lock().waiting.is_empty()
    }
}

impl Drop for ComputeSlot<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            self.slots.state.lock().free += 1;
            self.slots.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn waiting(slots: &ComputeSlots) -> usize {
        slots.state.lock().waiting.len()
    }

    #[test]
    fn slots_are_given_in_order_and_waits_can_be_interrupted() {
        let slots = ComputeSlots::new(1, Duration::from_secs(3600));
        let go_on = || Ok::<(), &str>(());
        let first = slots.wait(go_on).unwrap();
        assert!(first.is_counted && !first.is_over(first.began + SLOT_TIME));
        let is_killed = AtomicBool::new(false);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let killed = scope.spawn(|| {
                let check = || {
                    if is_killed.load(Ordering::Relaxed) {
                        Err("killed")
                    } else {
                        Ok(())
                    }
                };
                slots.wait(check).unwrap_err()
            });
            while waiting(&slots) == 0 {
                std::thread::yield_now();
            }
            assert!(first.is_over(first.began + SLOT_TIME) && !first.is_over(first.began));
            is_killed.store(true, Ordering::Relaxed);
            assert_eq!(killed.join().unwrap(), "killed");
            for number in [1, 2] {
                let (slots, order) = (&slots, &order);
                scope.spawn(move || {
                    let slot = slots.wait(go_on).unwrap();
                    order.lock().push(number);
                    drop(slot);
                });
                while waiting(slots) < number && order.lock().len() < number {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*order.lock(), [1, 2]);
        assert_eq!(waiting(&slots), 0);
        assert_eq!(slots.state.lock().free, 1);
    }

    #[test]
    fn nothing_waits_for_ever_for_a_slot() {
        let slots = ComputeSlots::new(1, Duration::from_millis(1));
        let held = slots.wait(|| Ok::<(), ()>(())).unwrap();
        let second = slots.wait(|| Ok::<(), ()>(())).unwrap();
        assert!(held.is_counted && !second.is_counted);
    }
}
