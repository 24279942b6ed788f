//! Turns of readers that follow the end of a collection or of the oplog.
//!
//! A commit may wake a thousand change streams, each of which builds the events of its own. They go on a few at a time. While
//! more of them want to than may, and other clients read or write, each turn is followed by a pause that is many times as long,
//! so that all of them together leave the processor to the others. They get further behind then, and catch up when the others
//! are done.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::metrics::{Metrics, Op};

/// With fewer cursors that follow, a getMore takes no turn before it has waited.
const CROWD: usize = 16;
/// How many times as long as a turn the pause after it is.
const PAUSE_FACTOR: u32 = 15;
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Others are at work for this long after their last operation.
const AT_WORK: Duration = Duration::from_millis(100);

/// The turns of a server.
#[derive(Debug)]
pub struct TailTurns {
    permits: Semaphore,
    turns: usize,
    /// For each turn that is not taken: when it may begin.
    free: Mutex<Vec<Instant>>,
    /// Readers that have a turn, or wait for one.
    wanting: AtomicUsize,
    /// The operations of others that were counted last, and when they were more than before.
    work: Mutex<(i64, Instant)>,
}

/// A turn; it ends when it is dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a TailTurns,
    metrics: &'a Metrics,
    /// Since when; None before it has begun.
    began: Option<Instant>,
    not_before: Instant,
    _permit: SemaphorePermit<'a>,
    _wanting: Wanting<'a>,
}

#[derive(Debug)]
struct Wanting<'a>(&'a AtomicUsize);

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TailTurns {
    /// As many turns at a time as there are cores, but at least two.
    pub fn of_this_machine() -> TailTurns {
        let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
        TailTurns::with_turns(cores)
    }

    fn with_turns(turns: usize) -> TailTurns {
        let now = Instant::now();
        TailTurns {
            permits: Semaphore::new(turns),
            turns,
            free: Mutex::new(vec![now; turns]),
            wanting: AtomicUsize::new(0),
            work: Mutex::new((0, now)),
        }
    }

    /// Whether a getMore takes a turn before it looks for documents, if this many cursors follow an end.
    pub fn are_scarce(&self, followers: usize) -> bool {
        followers >= CROWD
    }

    /// Waits for a turn.
    pub async fn take<'a>(&'a self, metrics: &'a Metrics) -> Option<Turn<'a>> {
        self.wanting.fetch_add(1, Ordering::Relaxed);
        let wanting = Wanting(&self.wanting);
        let permit = self.permits.acquire().await.ok()?;
        let mut turn = Turn {
            turns: self,
            metrics,
            began: None,
            not_before: self.free.lock().pop()?,
            _permit: permit,
            _wanting: wanting,
        };
        if turn.not_before > Instant::now() {
            tokio::time::sleep_until(turn.not_before.into()).await;
        }
        turn.began = Some(Instant::now());
        Some(turn)
    }

    /// Whether others than the readers have done anything lately.
    fn are_others_at_work(&self, metrics: &Metrics, now: Instant) -> bool {
        let ops = [Op::Insert, Op::Query, Op::Update, Op::Delete];
        let count = ops.into_iter().map(|op| metrics.op(op).get()).sum();
        let mut work = self.work.lock();
        if work.0 != count {
            *work = (count, now);
        }
        now.saturating_duration_since(work.1) < AT_WORK
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let turns = self.turns;
        let next = match self.began {
            None => self.not_before,
            Some(began) => {
                let is_crowded = turns.wanting.load(Ordering::Relaxed) > turns.turns;
                match is_crowded && turns.are_others_at_work(self.metrics, now) {
                    true => now + ((now - began) * PAUSE_FACTOR).min(PAUSE_MAX),
                    false => now,
                }
            }
        };
        turns.free.lock().push(next);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(10);

    /// How long the next one waits for its turn after a turn of some milliseconds.
    fn wait_after_a_turn(others_want: bool, others_work: bool) -> Duration {
        let (turns, metrics) = (TailTurns::with_turns(1), Metrics::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        runtime.block_on(async {
            let turn = turns.take(&metrics).await.unwrap();
            // The clock of the work begins with the turns.
            std::thread::sleep(if others_work { SHORT } else { AT_WORK + SHORT });
            if others_work {
                metrics.count(Op::Insert, 1);
            }
            if others_want {
                let waits = tokio::time::timeout(Duration::from_millis(1), turns.take(&metrics));
                assert!(waits.await.is_err(), "there is one turn");
                turns.wanting.fetch_add(1, Ordering::Relaxed);
            }
            drop(turn);
            let began = Instant::now();
            drop(turns.take(&metrics).await.unwrap());
            began.elapsed()
        })
    }

    #[test]
    fn a_crowd_pauses_while_others_are_at_work() {
        assert!(wait_after_a_turn(true, true) >= SHORT * PAUSE_FACTOR);
        assert!(wait_after_a_turn(false, true) < SHORT * PAUSE_FACTOR);
        assert!(wait_after_a_turn(true, false) < SHORT * PAUSE_FACTOR);
    }
}
