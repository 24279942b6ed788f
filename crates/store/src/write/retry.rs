//! Retries after a conflict.

use std::thread;
use std::time::Duration;

use crate::catalog::Catalog;
use crate::op_stats;
use frond_storage::error::{Error, Result, write_conflict};
use frond_storage::keyspace::{EngineError, Interrupt};

/// The number of attempts before a conflict is reported.
const ATTEMPTS_MAX: u32 = 200;
/// The most announcements of multikey paths that other servers do not know, for one commit: the documents of a commit need all at once.
const ANNOUNCEMENTS_MAX: u32 = 64;
/// Attempts without a wait between them.
const ATTEMPTS_AT_ONCE: u32 = 3;
/// The longest wait between two attempts.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// Counts the attempts of one operation.
pub struct Retry<'a> {
    catalog: &'a Catalog,
    attempts: u32,
    /// Waits for open transactions.
    waits: u32,
    /// Announcements of multikey paths to other servers.
    announcements: u32,
}

impl<'a> Retry<'a> {
    /// Before the first attempt.
    pub fn new(catalog: &'a Catalog) -> Retry<'a> {
        Retry {
            catalog,
            attempts: 0,
            waits: 0,
            announcements: 0,
        }
    }

    /// Waits before the next attempt after a conflict: until the end of an open transaction that has written the document, or
    /// for a moment. Returns any other error, and the conflict itself after too many attempts.
    ///
    /// In a transaction there is no other attempt: its snapshot would not see what the other one wrote.
    pub fn after(&mut self, error: Error) -> Result<()> {
        if let Error::Unannounced(unannounced) = &error {
            self.announcements += 1;
            if self.announcements > ANNOUNCEMENTS_MAX {
                // A transaction whose definition is not the current one.
                return Err(write_conflict());
            }
            return self.catalog.announce_multikey(unannounced);
        }
        let is_over = self.attempts >= ATTEMPTS_MAX || self.catalog.is_in_transaction();
        if !error.is_conflict() || is_over {
            return Err(error);
        }
        if let Error::Engine(EngineError::Conflict {
            tree,
            key,
            held: true,
        }) = &error
        {
            // As long as the transaction is open, the operation is only waiting: this is not one of the attempts.
            self.waits = self.waits.saturating_add(1);
            op_stats::update(|op_stats| op_stats.write_conflicts += 1);
            return Ok(self.catalog.engine().await_transaction(*tree, key)?);
        }
        Interrupt::check_current()?;
        self.attempts += 1;
        op_stats::update(|op_stats| op_stats.write_conflicts += 1);
        if self.attempts > ATTEMPTS_AT_ONCE {
            let doublings = (self.attempts - ATTEMPTS_AT_ONCE).min(8);
            let longest = Duration::from_micros(50 << doublings).min(WAIT_MAX);
            // A random part keeps writers that collided from colliding again.
            let pause = longest.mul_f64(rand::random::<f64>());
            thread::sleep(pause);
            op_stats::update(|op_stats| op_stats.conflict_wait += pause);
        }
        Ok(())
    }

    /// Counts a conflict with an open transaction that the operation does not wait for.
    pub fn note_held(&mut self) {
        self.waits = self.waits.saturating_add(1);
    }

    /// Counts from zero again, after a commit.
    pub fn reset(&mut self) {
        self.attempts = 0;
        self.waits = 0;
        self.announcements = 0;
    }

    /// Conflicts so far, those with open transactions included.
    pub fn conflicts(&self) -> u32 {
        self.attempts.saturating_add(self.waits)
    }
}
