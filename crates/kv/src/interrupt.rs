//! Waits of a commit that the operation around it can end.
//!
//! A commit may have to wait: for room in a memtable, for the log, for space on the disk, for the end of a transaction, or
//! for the lock of a commit that does. A read waits while others read large pages. An operation that can be interrupted says so with [`Interrupt::run`] on its thread, and whatever it calls
//! there observes it wherever it waits. A commit that gives up has not taken place.
//!
//! A change of the schema may have to undo a part of its work, so it can be interrupted only before it begins, while it waits for other
//! changes and for the writers of its collections ([`Interrupt::only_schema`]).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{Error, Result};

/// The interval at which a wait checks for an interruption.
const CHECK: Duration = Duration::from_millis(10);

thread_local! {
    static CURRENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

/// Ends the waits of an operation: a kill, a client that has gone, a deadline.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    /// Set to interrupt the operation.
    pub killed: Arc<AtomicBool>,
    /// Set when no client waits for the result any more.
    pub abandoned: Option<Arc<AtomicBool>>,
    /// When its time is over.
    pub deadline: Option<Instant>,
    /// Whether it ends only waits for [`WaitFor::Schema`].
    pub only_schema: bool,
    /// Its wait at present, for statistics.
    pub waits: Arc<Waits>,
}

/// The wait of an operation, as other threads see it.
#[derive(Debug, Default)]
pub struct Waits {
    now: AtomicU8,
    /// Microseconds that it has waited, by what it waited for.
    micros: [AtomicU64; WaitFor::COUNT],
}

/// The reason of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// Other commits, which have a lock that it needs.
    Commits = 1,
    /// Memory that a flush releases.
    Memtable = 2,
    /// A write or a sync of the log.
    Log = 3,
    /// Space on the disk.
    Disk = 4,
    /// The end of an open transaction.
    Transaction = 5,
    /// Another change of the schema, or the writers of a collection whose schema is to change.
    Schema = 6,
    /// Other operations, which go first because this one has run for long.
    Ticket = 7,
    /// Large pages that other operations read.
    Pages = 8,
}

impl WaitFor {
    /// The number of reasons.
    pub const COUNT: usize = 8;
}

impl Waits {
    /// In words; none if it does not wait.
    pub fn get(&self) -> Option<&'static str> {
        Some(match self.now.load(Ordering::Relaxed) {
            1 => "other commits",
            2 => "a memtable to be flushed",
            3 => "the journal",
            4 => "space on the disk",
            5 => "an open transaction",
            6 => "the schema of a collection",
            7 => "a read ticket",
            8 => "other reads of large documents",
            _ => return None,
        })
    }

    /// The times that it has waited since the last call: for other commits, a memtable, the journal, space on the disk, a
    /// transaction, the schema, a ticket, large pages.
    pub fn take(&self) -> [Duration; WaitFor::COUNT] {
        self.micros.each_ref().map(|micros| {
            // Only the operation itself adds to them.
            match micros.load(Ordering::Relaxed) {
                0 => Duration::ZERO,
                _ => Duration::from_micros(micros.swap(0, Ordering::Relaxed)),
            }
        })
    }

    fn add(&self, what: WaitFor, waited: Duration) {
        if let Some(micros) = self.micros.get((what as usize).wrapping_sub(1)) {
            let waited = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
            micros.fetch_add(waited, Ordering::Relaxed);
        }
    }
}

impl Interrupt {
    /// Runs something on this thread whose waits can be interrupted.
    pub fn run<T>(self, operation: impl FnOnce() -> T) -> T {
        run_with(Some(self), operation)
    }

    /// Runs a part of the operation on this thread whose waits cannot be interrupted, as it undoes what was done.
    pub fn shielded<T>(part: impl FnOnce() -> T) -> T {
        run_with(None, part)
    }

    /// Runs a part of a change of the schema that comes before it begins: all waits can be interrupted.
    pub fn before_change<T>(part: impl FnOnce() -> T) -> T {
        let current = CURRENT.with_borrow(Clone::clone);
        let all = current.map(|current| Interrupt {
            only_schema: false,
            ..current
        });
        run_with(all, part)
    }

    /// Fails if the operation on this thread is interrupted.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn check_current() -> Result<()> {
        CURRENT.with_borrow(|current| match current {
            Some(interrupt) if !interrupt.only_schema => interrupt.check(),
            _ => Ok(()),
        })
    }

    /// When the time of the operation on this thread is over.
    pub fn current_deadline() -> Option<Instant> {
        CURRENT.with_borrow(|current| match current {
            Some(interrupt) if !interrupt.only_schema => interrupt.deadline,
            _ => None,
        })
    }

    fn check(&self) -> Result<()> {
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        if is_set(&self.killed) || self.abandoned.as_ref().is_some_and(is_set) {
            return Err(Error::Interrupted { timed_out: false });
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => {
                Err(Error::Interrupted { timed_out: true })
            }
            _ => Ok(()),
        }
    }
}

fn run_with<T>(interrupt: Option<Interrupt>, operation: impl FnOnce() -> T) -> T {
    struct Restore(Option<Interrupt>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _restore = Restore(CURRENT.replace(interrupt));
    operation()
}

/// A wait of the operation on this thread.
#[derive(Debug)]
pub struct Wait {
    shown: Option<(Interrupt, WaitFor, Instant)>,
    /// Whether the operation ends it.
    ends: bool,
}

impl Wait {
    /// Begins a wait.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn begin(what: WaitFor) -> Result<Wait> {
        let current = CURRENT.with_borrow(Clone::clone);
        let mut ends = false;
        if let Some(interrupt) = &current {
            ends = !interrupt.only_schema || what == WaitFor::Schema;
            if ends {
                interrupt.check()?;
            }
            interrupt.waits.now.store(what as u8, Ordering::Relaxed);
        }
        Ok(Wait {
            shown: current.map(|interrupt| (interrupt, what, Instant::now())),
            ends,
        })
    }

    /// Fails if the operation ends the wait.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn check(&self) -> Result<()> {
        match self.ending() {
            Some(interrupt) => interrupt.check(),
            None => Ok(()),
        }
    }

    fn ending(&self) -> Option<&Interrupt> {
        (self.shown.as_ref().filter(|_| self.ends)).map(|(interrupt, ..)| interrupt)
    }

    /// Calls `attempt` with the longest time that it may wait, until it has a result.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn until<T>(&self, mut attempt: impl FnMut(Duration) -> Option<T>) -> Result<T> {
        loop {
            if let Some(result) = attempt(CHECK) {
                return Ok(result);
            }
            self.check()?;
        }
    }

    /// Locks what others may hold for long.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn for_lock<T>(mutex: &Mutex<T>, what: WaitFor) -> Result<MutexGuard<'_, T>> {
        if let Some(guard) = mutex.try_lock() {
            return Ok(guard);
        }
        let wait = Wait::begin(what)?;
        if wait.ends {
            wait.until(|time| mutex.try_lock_for(time))
        } else {
            Ok(mutex.lock())
        }
    }

    /// Waits for a notification, or a part of that; the caller looks again what it waits for.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn on<T>(&self, condition: &Condvar, guard: &mut MutexGuard<'_, T>) -> Result<()> {
        match self.ending() {
            None => condition.wait(guard),
            Some(interrupt) => {
                condition.wait_for(guard, CHECK);
                interrupt.check()?;
            }
        }
        Ok(())
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some((interrupt, what, began)) = &self.shown {
            interrupt.waits.add(*what, began.elapsed());
            interrupt.waits.now.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_by_a_kill_or_at_its_deadline() {
        let locked = Mutex::new(());
        let guard = locked.lock();
        let killed = Interrupt::default();
        let waits = killed.waits.clone();
        std::thread::scope(|scope| {
            let interrupt = killed.clone();
            let waiting =
                scope.spawn(|| interrupt.run(|| Wait::for_lock(&locked, WaitFor::Commits).err()));
            while waits.get().is_none() {
                std::thread::yield_now();
            }
            assert_eq!(waits.get(), Some("other commits"));
            killed.killed.store(true, Ordering::Relaxed);
            let error = waiting.join().expect("it does not panic");
            assert!(matches!(
                error,
                Some(Error::Interrupted { timed_out: false })
            ));
        });
        assert_eq!(waits.get(), None);
        let timed = Interrupt {
            deadline: Some(Instant::now() + Duration::from_millis(30)),
            ..Interrupt::default()
        };
        let condition = Condvar::new();
        let error = timed.run(|| {
            let (lock, wait) = (Mutex::new(()), Wait::begin(WaitFor::Memtable));
            let (mut guard, wait) = (lock.lock(), wait.expect("there is time left"));
            loop {
                if let Err(error) = wait.on(&condition, &mut guard) {
                    break error;
                }
            }
        });
        assert!(matches!(error, Error::Interrupted { timed_out: true }));
        assert!(
            Interrupt::check_current().is_ok(),
            "outside of the operation"
        );
        drop(guard);
    }

    #[test]
    fn a_change_of_the_schema_is_interrupted_only_before_it_begins() {
        let change = Interrupt {
            only_schema: true,
            deadline: Some(Instant::now()),
            ..Interrupt::default()
        };
        let waits = change.waits.clone();
        change.run(|| {
            let refused = Wait::begin(WaitFor::Schema).err();
            assert!(matches!(
                refused,
                Some(Error::Interrupted { timed_out: true })
            ));
            let journal = Wait::begin(WaitFor::Log).expect("its commit is not interrupted");
            assert!(journal.check().is_ok());
            assert_eq!(waits.get(), Some("the journal"));
            assert!(Interrupt::check_current().is_ok());
            assert_eq!(Interrupt::current_deadline(), None);
            let refused = Interrupt::before_change(|| Wait::begin(WaitFor::Memtable).err());
            assert!(refused.is_some());
        });
    }

    #[test]
    fn a_shielded_part_is_not_interrupted() {
        let killed = Interrupt::default();
        killed.killed.store(true, Ordering::Relaxed);
        killed.run(|| {
            assert!(Interrupt::check_current().is_err());
            assert!(Interrupt::shielded(Interrupt::check_current).is_ok());
            assert!(Interrupt::check_current().is_err(), "after it");
        });
    }
}
