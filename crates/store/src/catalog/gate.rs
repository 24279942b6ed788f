//! The gate of a collection: writers of its documents pass it, and a change of its schema closes it.
//!
//! A writer may hold the gate for as long as its commit waits for memory or for the disk. So a change can wait long for the writers
//! before it, and later writers for the change. The operation around either ends such a wait
//! ([`frond_storage::keyspace::Interrupt`]).

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use frond_storage::error::Result;
use frond_storage::keyspace::{Wait, WaitFor};
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The current version of a collection's definition, behind a lock.
#[derive(Debug, Default)]
pub(super) struct Gate {
    version: RwLock<u64>,
    /// Changes that hold the gate or wait for it. Writers wait meanwhile, also while a change only tries again to get it.
    closing: AtomicU32,
    opened: (Mutex<()>, Condvar),
}

/// A gate that no writer passes.
pub(super) struct Closed<'a> {
    // Released before `closing` is reset.
    version: RwLockWriteGuard<'a, u64>,
    _closing: Closing<'a>,
}

impl Deref for Closed<'_> {
    type Target = u64;

    fn deref(&self) -> &u64 {
        &self.version
    }
}

impl DerefMut for Closed<'_> {
    fn deref_mut(&mut self) -> &mut u64 {
        &mut self.version
    }
}

struct Closing<'a>(&'a Gate);

impl<'a> Closing<'a> {
    fn begin(gate: &'a Gate) -> Closing<'a> {
        gate.closing.fetch_add(1, Ordering::SeqCst);
        Closing(gate)
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        // Under the lock, so that no writer misses it between its look and its wait.
        let _opened = self.0.opened.0.lock();
        if self.0.closing.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.opened.1.notify_all();
        }
    }
}

impl Gate {
    /// Passes the gate. It stays open until the result is dropped.
    ///
    /// # Errors
    /// The operation was interrupted while it waited.
    #[inline]
    pub fn pass(&self) -> Result<RwLockReadGuard<'_, u64>> {
        if self.closing.load(Ordering::SeqCst) == 0
            && let Some(version) = self.version.try_read()
        {
            return Ok(version);
        }
        self.pass_later()
    }

    #[cold]
    fn pass_later(&self) -> Result<RwLockReadGuard<'_, u64>> {
        let wait = Wait::begin(WaitFor::Schema)?;
        loop {
            let mut opened = self.opened.0.lock();
            while self.closing.load(Ordering::SeqCst) > 0 {
                wait.on(&self.opened.1, &mut opened)?;
            }
            drop(opened);
            if let Some(version) = self.version.try_read() {
                return Ok(version);
            }
        }
    }

    /// Closes the gate: waits for the writers that have passed it. Later ones wait until the result is dropped.
    ///
    /// # Errors
    /// The operation was interrupted while it waited.
    pub fn close(&self) -> Result<Closed<'_>> {
        let closing = Closing::begin(self);
        let version = match self.version.try_write() {
            Some(version) => version,
            None => Wait::begin(WaitFor::Schema)?.until(|time| self.version.try_write_for(time))?,
        };
        Ok(Closed {
            version,
            _closing: closing,
        })
    }

    /// As [`Gate::close`], where no operation may end the wait: the change has happened already.
    pub fn close_for_sure(&self) -> Closed<'_> {
        let closing = Closing::begin(self);
        Closed {
            version: self.version.write(),
            _closing: closing,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::{Duration, Instant};

    use frond_error::ErrorCode;
    use frond_storage::keyspace::Interrupt;

    use super::*;

    fn timed(only_schema: bool) -> Interrupt {
        Interrupt {
            deadline: Some(Instant::now() + Duration::from_millis(20)),
            only_schema,
            ..Interrupt::default()
        }
    }

    #[test]
    fn a_change_of_the_schema_that_waits_for_a_writer_ends_in_time_and_lets_others_pass() {
        let gate = Gate::default();
        let passed = gate.pass().unwrap();
        let error = timed(true).run(|| gate.close().err()).unwrap();
        assert_eq!(error.code(), ErrorCode::MaxTimeMSExpired);
        // It does not wait for the gate any more.
        drop(gate.pass().unwrap());
        drop(passed);
        *gate.close().unwrap() = 3;
        assert_eq!(*gate.pass().unwrap(), 3);
    }

    #[test]
    fn a_writer_that_waits_for_a_change_of_the_schema_can_be_killed() {
        let gate = Gate::default();
        let closed = gate.close().unwrap();
        let killed = Interrupt::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let pass = || gate.pass().err().map(|error| error.code());
                killed.clone().run(pass)
            });
            while killed.waits.get().is_none() {
                std::thread::yield_now();
            }
            killed.killed.store(true, Ordering::Relaxed);
            assert_eq!(writer.join().unwrap(), Some(ErrorCode::Interrupted));
        });
        drop(closed);
        assert!(gate.pass().is_ok());
    }

    /// A change that tries again and again must not let later writers pass it meanwhile.
    #[test]
    fn writers_wait_behind_a_change_that_waits() {
        let gate = Gate::default();
        let passed = gate.pass().unwrap();
        std::thread::scope(|scope| {
            let change = scope.spawn(|| *gate.close().unwrap() = 1);
            while gate.closing.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let error = timed(false).run(|| gate.pass().err()).unwrap();
            assert_eq!(error.code(), ErrorCode::MaxTimeMSExpired);
            drop(passed);
            change.join().unwrap();
        });
        assert_eq!(*gate.pass().unwrap(), 1);
    }
}
