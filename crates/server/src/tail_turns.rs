//! Turns of readers that follow the end of a collection or of the oplog.
//!
//! A commit may wake a thousand change streams, each of which builds the events of its own. They go on a few at a time. While
//! more of them want to than may, and other clients read or write, a pause follows each turn. It grows up to many times the
//! length of the turn as long as the processors are hardly idle, and shrinks slowly when they are. So the readers take what the others leave;
//! they may get further behind, and catch up later.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::metrics::{Metrics, Op};

/// With fewer cursors that follow, a getMore takes no turn before it has waited.
const CROWD: usize = 16;
/// How many times as long as a turn the pause after it is at most.
const PAUSE_FACTOR_MAX: u32 = 15;
/// The pause is adapted to the load at these intervals.
const SAMPLE: Duration = Duration::from_millis(250);
/// A load that was measured over a longer time says little of the present.
const SAMPLE_MAX: Duration = Duration::from_secs(2);
/// Below this idle share of the processors the pause grows, above the other one it shrinks.
const IDLE_SHARES: (f64, f64) = (0.15, 0.3);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Others are at work for this long after their last operation.
const AT_WORK: Duration = Duration::from_millis(100);

/// How many open cursors follow an end.
#[derive(Debug, Default)]
pub struct Followers(Arc<AtomicUsize>);

/// Counts one of them, until it is dropped.
#[derive(Debug)]
pub struct Follower(Arc<AtomicUsize>);

impl Followers {
    /// One more.
    pub fn add(&self) -> Follower {
        self.0.fetch_add(1, Ordering::Relaxed);
        Follower(self.0.clone())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

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
    load: Mutex<Load>,
}

/// The load of the machine.
#[derive(Debug)]
struct Load {
    sampled: Instant,
    /// Ticks of all processors since the machine was started.
    ticks: Ticks,
    pause_factor: u32,
}

/// Processor time, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    /// Those of this machine, if it tells. Source: proc_stat(5).
    fn now() -> Option<Ticks> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let fields = stat.lines().next()?.split_ascii_whitespace().skip(1);
        let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        Some(Ticks {
            // Waiting for a disk leaves the processor idle.
            idle: ticks.get(3)? + ticks.get(4)?,
            all: ticks.iter().take(8).sum(),
        })
    }

    /// The idle share since an earlier time.
    fn idle_share(self, earlier: Ticks) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|all| *all > 0)?;
        Some(self.idle.saturating_sub(earlier.idle) as f64 / all as f64)
    }
}

/// The next factor of the pause.
fn adapted(factor: u32, idle_share: f64) -> u32 {
    let (grows, shrinks) = IDLE_SHARES;
    if idle_share < grows {
        (2 * factor + 1).min(PAUSE_FACTOR_MAX)
    } else if idle_share > shrinks {
        factor.saturating_sub(1)
    } else {
        factor
    }
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
            load: Mutex::new(Load {
                sampled: now,
                ticks: Ticks::default(),
                pause_factor: PAUSE_FACTOR_MAX,
            }),
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

    /// How many times as long as a turn that has just ended the pause is.
    fn pause_factor(&self, now: Instant) -> u32 {
        let mut load = self.load.lock();
        let since = now.saturating_duration_since(load.sampled);
        if since >= SAMPLE {
            match Ticks::now() {
                None => load.pause_factor = PAUSE_FACTOR_MAX,
                Some(ticks) => {
                    let share = ticks.idle_share(load.ticks);
                    if let Some(share) = share.filter(|_| since <= SAMPLE_MAX) {
                        load.pause_factor = adapted(load.pause_factor, share);
                    }
                    load.ticks = ticks;
                }
            }
            load.sampled = now;
        }
        load.pause_factor
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
                    true => {
                        let pause = (now - began) * turns.pause_factor(now);
                        now + pause.min(PAUSE_MAX)
                    }
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
    fn the_pause_follows_the_load() {
        let mut factor = 0;
        let mut next = |idle_share| {
            factor = adapted(factor, idle_share);
            factor
        };
        assert_eq!([0.0; 5].map(&mut next), [1, 3, 7, 15, 15]);
        assert_eq!([0.2, 0.5, 0.5].map(&mut next), [15, 14, 13]);
        assert_eq!([0.1, 1.0].map(&mut next), [15, 14]);
    }

    #[test]
    fn the_machine_tells_its_load() {
        let before = Ticks::now().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let share = Ticks::now().unwrap().idle_share(before).unwrap();
        assert!((0.0..=1.0).contains(&share), "{share}");
    }

    #[test]
    fn a_crowd_pauses_while_others_are_at_work() {
        assert!(wait_after_a_turn(true, true) >= SHORT * PAUSE_FACTOR_MAX);
        assert!(wait_after_a_turn(false, true) < SHORT * PAUSE_FACTOR_MAX);
        assert!(wait_after_a_turn(true, false) < SHORT * PAUSE_FACTOR_MAX);
    }
}
