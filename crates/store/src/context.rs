//! The limits of one operation: a deadline and a switch that stops it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use frond_query::error::ErrorCode;
use parking_lot::Mutex;

use crate::error::{Result, command};

/// Steps between two checks of the clock.
const STEPS_BETWEEN_CHECKS: u32 = 128;

/// When an operation must end. Clone it into the cursor it opens; the clones share the switch.
#[derive(Clone, Debug, Default)]
pub struct OpContext {
    /// The time after which the operation fails with `MaxTimeMSExpired` (50).
    pub deadline: Option<Instant>,
    /// Set by `killOp`, `killCursors` or a closed connection: `Interrupted` (11601).
    pub killed: Arc<AtomicBool>,
    /// Where a long operation shows how far it has come.
    pub progress: Option<Arc<Progress>>,
    /// Steps since the last check.
    steps: u32,
}

/// How far a long operation has come.
#[derive(Debug, Default)]
pub struct Progress {
    step: Mutex<&'static str>,
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// What is done now, how much of it, and how much there is; `None` if nothing was shown yet.
    pub fn get(&self) -> Option<(&'static str, u64, u64)> {
        let step = *self.step.lock();
        let (done, total) = (&self.done, &self.total);
        let figures = (done.load(Ordering::Relaxed), total.load(Ordering::Relaxed));
        (!step.is_empty()).then_some((step, figures.0, figures.1))
    }

    /// Shows what is done now, how much of it, and how much there is.
    pub fn set(&self, step: &'static str, done: u64, total: u64) {
        let mut now = self.step.lock();
        *now = step;
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }
}

impl OpContext {
    /// No deadline, not killed.
    pub fn new() -> OpContext {
        OpContext::default()
    }

    /// With a deadline.
    pub fn with_deadline(deadline: Option<Instant>) -> OpContext {
        OpContext {
            deadline,
            ..OpContext::default()
        }
    }

    /// Fails if the operation was killed or its time is over.
    pub fn check(&self) -> Result<()> {
        if self.killed.load(Ordering::Relaxed) {
            return Err(command(ErrorCode::Interrupted, "operation was interrupted"));
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(command(
                ErrorCode::MaxTimeMSExpired,
                "operation exceeded time limit",
            )),
            _ => Ok(()),
        }
    }

    /// Called for each key or document looked at; checks once in a while.
    pub(crate) fn step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps < STEPS_BETWEEN_CHECKS {
            return Ok(());
        }
        self.steps = 0;
        self.check()
    }
}
