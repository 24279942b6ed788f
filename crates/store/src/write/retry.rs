//! Retries after a conflict.

use std::thread;
use std::time::Duration;

use crate::error::Error;

/// How often an operation is tried before its conflict is reported.
const ATTEMPTS_MAX: u32 = 200;
/// Attempts without a wait between them.
const ATTEMPTS_AT_ONCE: u32 = 3;
/// The longest wait between two attempts.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// Counts the attempts of one operation.
#[derive(Debug, Default)]
pub struct Retry {
    attempts: u32,
}

impl Retry {
    /// Waits before the next attempt after a conflict. Returns any other error, and the conflict
    /// itself after too many attempts.
    pub fn after(&mut self, error: Error) -> Result<(), Error> {
        if !error.is_conflict() || self.attempts >= ATTEMPTS_MAX {
            return Err(error);
        }
        self.attempts += 1;
        if self.attempts > ATTEMPTS_AT_ONCE {
            let doublings = (self.attempts - ATTEMPTS_AT_ONCE).min(8);
            let longest = Duration::from_micros(50 << doublings).min(WAIT_MAX);
            // A random part keeps writers that collided from colliding again.
            thread::sleep(longest.mul_f64(rand::random::<f64>()));
        }
        Ok(())
    }

    /// Conflicts so far.
    pub fn conflicts(&self) -> u32 {
        self.attempts
    }
}
