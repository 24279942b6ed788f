//! Long computations take turns, so that short operations find a free processor.
//!
//! An operation that computes for long, such as an expression over large arrays, checks for interruptions at intervals. From
//! [`LONG`] on it also needs a turn there, of which there are as many as processors. It gives its turn to the next operation
//! after [`TURN`]. A hundred such operations then compete with a find for a processor like two.
//!
//! An operation may hold something that the holder of a turn waits for, so nothing waits longer than [`WAIT_MAX`] for a turn; it
//! goes on without one then.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// An operation is long after this time.
const LONG: Duration = Duration::from_millis(30);

/// The longest turn of an operation while others wait.
const TURN: Duration = Duration::from_millis(10);

/// The longest wait for a turn.
const WAIT_MAX: Duration = Duration::from_millis(200);

/// The interval at which a waiting operation checks for an interruption.
const CHECK: Duration = Duration::from_millis(10);

static TURNS: LazyLock<Turns> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    Turns::new(processors.max(2), WAIT_MAX)
});

thread_local! {
    /// When the operation on this thread computed for the first time.
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
    static TURN_OF_THREAD: RefCell<Option<Turn<'static>>> = const { RefCell::new(None) };
}

/// Waits for a turn if the operation on this thread has computed for long. `check` fails if the operation has to end.
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
    TURN_OF_THREAD.with_borrow_mut(|turn| {
        if let Some(held) = turn
            && !held.is_over(now)
        {
            return Ok(());
        }
        *turn = None;
        *turn = Some(TURNS.wait(check)?);
        Ok(())
    })
}

/// Ends the operation on this thread.
pub fn end() {
    if BEGAN.take().is_some() {
        TURN_OF_THREAD.take();
    }
}

struct Turns {
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

/// The turn of an operation, until it is dropped.
#[derive(Debug)]
struct Turn<'t> {
    turns: &'t Turns,
    began: Instant,
    /// Not if the operation has waited for too long.
    is_counted: bool,
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl Turns {
    fn new(count: usize, wait_max: Duration) -> Turns {
        Turns {
            state: Mutex::new(State {
                free: count,
                waiting: VecDeque::new(),
                next: 0,
            }),
            changed: Condvar::new(),
            wait_max,
        }
    }

    /// Waits for a turn behind those who wait already.
    fn wait<E>(&self, mut check: impl FnMut() -> Result<(), E>) -> Result<Turn<'_>, E> {
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
        // The next one may have a turn, too.
        self.changed.notify_all();
        drop(state);
        outcome.map(|is_counted| Turn {
            turns: self,
            began: Instant::now(),
            is_counted,
        })
    }
}

impl Turn<'_> {
    /// Whether it is another operation's turn.
    fn is_over(&self, now: Instant) -> bool {
        now - self.began >= TURN && !self.turns.state.lock().waiting.is_empty()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            self.turns.state.lock().free += 1;
            self.turns.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn waiting(turns: &Turns) -> usize {
        turns.state.lock().waiting.len()
    }

    #[test]
    fn turns_are_given_in_order_and_waits_can_be_interrupted() {
        let turns = Turns::new(1, Duration::from_secs(3600));
        let go_on = || Ok::<(), &str>(());
        let first = turns.wait(go_on).unwrap();
        assert!(first.is_counted && !first.is_over(first.began + TURN));
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
                turns.wait(check).unwrap_err()
            });
            while waiting(&turns) == 0 {
                std::thread::yield_now();
            }
            assert!(first.is_over(first.began + TURN) && !first.is_over(first.began));
            is_killed.store(true, Ordering::Relaxed);
            assert_eq!(killed.join().unwrap(), "killed");
            for number in [1, 2] {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let turn = turns.wait(go_on).unwrap();
                    order.lock().push(number);
                    drop(turn);
                });
                while waiting(turns) < number && order.lock().len() < number {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*order.lock(), [1, 2]);
        assert_eq!(waiting(&turns), 0);
        assert_eq!(turns.state.lock().free, 1);
    }

    #[test]
    fn nothing_waits_for_ever_for_a_turn() {
        let turns = Turns::new(1, Duration::from_millis(1));
        let held = turns.wait(|| Ok::<(), ()>(())).unwrap();
        let second = turns.wait(|| Ok::<(), ()>(())).unwrap();
        assert!(held.is_counted && !second.is_counted);
    }
}
