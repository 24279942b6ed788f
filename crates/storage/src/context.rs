//! The limits of one operation: a deadline and a flag that interrupts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use frond_error::ErrorCode;
use parking_lot::Mutex;

use crate::error::{Result, command};
use crate::plan_rules::PlanRules;

/// Steps between two checks of the clock.
const STEPS_BETWEEN_CHECKS: u32 = 128;

/// The limits of an operation. Clone it into the cursor it opens; the clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct OpContext {
    /// The time after which the operation fails with `MaxTimeMSExpired` (50).
    pub deadline: Option<Instant>,
    /// Set by `killOp` and `killCursors`: `Interrupted` (11601).
    pub killed: Arc<AtomicBool>,
    /// The client that waits for the result, if the operation ends with its connection: `ClientDisconnect` (279).
    pub waiting: Option<Waiting>,
    /// The progress of a long operation.
    pub progress: Option<Arc<Progress>>,
    /// Rules for the planner, besides what the queries say.
    pub rules: Option<Arc<PlanRules>>,
    /// Lets other operations go first, if this is a read that may wait for them.
    pub others_first: Option<OthersFirst>,
    /// Steps since the last check.
    steps: u32,
}

type WaitForOthers = dyn Fn(&OpContext) -> Result<()> + Send + Sync;

/// Lets other operations go first, if they wait and this one has run for long.
#[derive(Clone)]
pub struct OthersFirst(Arc<WaitForOthers>);

impl OthersFirst {
    /// Calls `wait` with the limits of the operation, which end the wait.
    pub fn new(wait: impl Fn(&OpContext) -> Result<()> + Send + Sync + 'static) -> OthersFirst {
        OthersFirst(Arc::new(wait))
    }
}

impl std::fmt::Debug for OthersFirst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OthersFirst").finish_non_exhaustive()
    }
}

/// A client that waits for a result.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Set when the client closes its connection.
    pub gone: Arc<AtomicBool>,
    /// The operation goes on until this time anyway. A client may close its half of the connection right after its request and
    /// still read the reply.
    pub grace: Instant,
}

impl Waiting {
    fn has_left(&self) -> bool {
        self.gone.load(Ordering::Relaxed) && Instant::now() >= self.grace
    }
}

/// The progress of a long operation: a step, the work done, and the total.
#[derive(Debug, Default)]
pub struct Progress {
    step: Mutex<&'static str>,
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// The step, the work done and the total; `None` before the first step.
    pub fn get(&self) -> Option<(&'static str, u64, u64)> {
        let step = *self.step.lock();
        let (done, total) = (&self.done, &self.total);
        let figures = (done.load(Ordering::Relaxed), total.load(Ordering::Relaxed));
        (!step.is_empty()).then_some((step, figures.0, figures.1))
    }

    /// Sets the step, the work done and the total.
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

    pub fn with_deadline(deadline: Option<Instant>) -> OpContext {
        OpContext::with_limits(deadline, Arc::default())
    }

    /// With a deadline and the flag that interrupts it.
    pub fn with_limits(deadline: Option<Instant>, killed: Arc<AtomicBool>) -> OpContext {
        OpContext {
            deadline,
            killed,
            waiting: None,
            progress: None,
            rules: None,
            others_first: None,
            steps: 0,
        }
    }

    /// Fails if the operation was killed, its deadline has passed, or its client has closed the connection.
    pub fn check(&self) -> Result<()> {
        if self.killed.load(Ordering::Relaxed) {
            return Err(command(ErrorCode::Interrupted, "operation was interrupted"));
        }
        if self.waiting.as_ref().is_some_and(Waiting::has_left) {
            return Err(command(
                ErrorCode::ClientDisconnect,
                "operation was interrupted because a client disconnected",
            ));
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(command(
                ErrorCode::MaxTimeMSExpired,
                "operation exceeded time limit",
            )),
            _ => Ok(()),
        }
    }

    /// As [`OpContext::check`], where the operation holds nothing that others wait for: it lets them go first.
    pub fn check_between_steps(&self) -> Result<()> {
        self.check()?;
        match &self.others_first {
            Some(OthersFirst(wait)) => wait(self),
            None => Ok(()),
        }
    }

    /// Call it for each key or document examined; it checks at intervals.
    pub fn step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps < STEPS_BETWEEN_CHECKS {
            return Ok(());
        }
        self.steps = 0;
        self.check_between_steps()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    #[test]
    fn an_operation_ends_some_time_after_its_client() {
        let gone = Arc::new(AtomicBool::new(false));
        let with_grace = |grace| OpContext {
            waiting: Some(Waiting {
                gone: gone.clone(),
                grace,
            }),
            ..OpContext::default()
        };
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(1000));
        assert!(with_grace(now).check().is_ok());
        gone.store(true, Ordering::Relaxed);
        let crate::error::Error::Command(error) = with_grace(now).check().unwrap_err() else {
            panic!("not an error of the command");
        };
        assert_eq!(error.code(), ErrorCode::ClientDisconnect);
        assert!(with_grace(later).check().is_ok());
        assert!(OpContext::new().check().is_ok());
    }
}
