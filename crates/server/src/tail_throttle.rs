//! Turns of readers that follow the end of a collection or of the oplog.
//!
//! A commit may wake a thousand change streams, and each of them builds its own events. Only a few run at a time. While more
//! streams wait for a turn than there are turns, and other clients read or write, each turn is followed by a pause. The pause
//! grows to many times the length of the turn while the processors are busy, and shrinks slowly when they are idle. So streams
//! use the processor time that other clients leave. They may fall behind, and catch up later.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::observability::metrics::{Metrics, Op};

/// From this number of cursors on, a getMore takes a turn even if it has not waited.
const CROWD: usize = 16;
/// The longest pause, as a multiple of the turn before it.
const PAUSE_FACTOR_MAX: u32 = 15;
/// The interval at which the pause is adapted to the load.
const SAMPLE: Duration = Duration::from_millis(250);
/// A load measured over a longer interval is ignored.
const SAMPLE_MAX: Duration = Duration::from_secs(2);
/// The pause grows below the first idle share of the processors, and shrinks above the second.
const IDLE_SHARES: (f64, f64) = (0.15, 0.3);
/// The longest pause in absolute terms.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Other clients count as active for this long after their last operation.
const AT_WORK: Duration = Duration::from_millis(100);

/// Counts the open cursors that follow the end of a collection or of the oplog.
#[derive(Debug, Default)]
pub struct Followers(Arc<AtomicUsize>);

/// One such cursor; dropping it decrements the count.
#[derive(Debug)]
pub struct Follower(Arc<AtomicUsize>);

impl Followers {
    /// Counts one more cursor.
    pub fn add(&self) -> Follower {
        self.0.fetch_add(1, Ordering::Relaxed);
        Follower(self.0.clone())
    }

    /// Whether there are enough of them that each getMore takes a turn before it looks for documents.
    pub fn are_a_crowd(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= CROWD
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The turns of a server.
#[derive(Debug)]
pub struct TailThrottle {
    permits: Semaphore,
    turns: usize,
    /// The earliest start of each free turn.
    free: Mutex<Vec<Instant>>,
    /// The number of readers that hold a turn or wait for one.
    wanting: AtomicUsize,
    /// The last count of other clients' operations, and when it last grew.
    work: Mutex<(i64, Instant)>,
    load: Mutex<Load>,
}

/// The load of the machine.
#[derive(Debug)]
struct Load {
    sampled: Instant,
    /// Ticks of all processors since boot, at the last sample.
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
    /// The ticks since boot; `None` if they cannot be read. See proc_stat(5).
    fn now() -> Option<Ticks> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let fields = stat.lines().next()?.split_ascii_whitespace().skip(1);
        let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        Some(Ticks {
            // I/O wait counts as idle.
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
pub struct TailPermit<'a> {
    turns: &'a TailThrottle,
    metrics: &'a Metrics,
    /// When the turn began; `None` while it waits for its start.
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

impl TailThrottle {
    /// As many turns at a time as there are cores, but at least two.
    pub fn of_this_machine() -> TailThrottle {
        let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
        TailThrottle::with_turns(cores)
    }

    fn with_turns(turns: usize) -> TailThrottle {
        let now = Instant::now();
        TailThrottle {
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

    /// Waits for a turn.
    pub async fn take<'a>(&'a self, metrics: &'a Metrics) -> Option<TailPermit<'a>> {
        self.wanting.fetch_add(1, Ordering::Relaxed);
        let wanting = Wanting(&self.wanting);
        let permit = self.permits.acquire().await.ok()?;
        let mut turn = TailPermit {
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

    /// The length of the next pause, as a multiple of the turn that has just ended.
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

    /// Whether other clients have read or written lately.
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

impl Drop for TailPermit<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let turns = self.turns;
        let next = match self.began {
            None => self.not_before,
            Some(began) => {
                let is_crowded = turns.wanting.load(Ordering::Relaxed) > turns.turns;
                if is_crowded && turns.are_others_at_work(self.metrics, now) {
                    let pause = (now - began) * turns.pause_factor(now);
                    now + pause.min(PAUSE_MAX)
                } else {
                    now
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
    use crate::testing::wait_for;

    const SHORT: Duration = Duration::from_millis(10);

    /// The pause after a short turn, and whether it is over when the turn has ended.
    fn pause_after_a_turn(others_want: bool, others_work: bool) -> (Duration, bool) {
        let (turns, metrics) = (TailThrottle::with_turns(1), Metrics::default());
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        runtime.block_on(async {
            let turn = turns.take(&metrics).await.unwrap();
            // Creating the turns counts as an operation of others.
            std::thread::sleep(if others_work { SHORT } else { AT_WORK + SHORT });
            if others_work {
                metrics.count(Op::Insert, 1);
            }
            if others_want {
                let waits = tokio::time::timeout(Duration::from_millis(1), turns.take(&metrics));
                assert!(waits.await.is_err(), "there is one turn");
                turns.wanting.fetch_add(1, Ordering::Relaxed);
            }
            let end = Instant::now();
            drop(turn);
            let ended = Instant::now();
            let next = turns.free.lock()[0];
            drop(turns.take(&metrics).await.unwrap());
            assert!(Instant::now() >= next);
            (next - end, next <= ended)
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
        let share = wait_for("ticks", || Ticks::now()?.idle_share(before));
        assert!((0.0..=1.0).contains(&share), "{share}");
    }

    #[test]
    fn a_crowd_pauses_while_others_are_at_work() {
        let (pause, _) = pause_after_a_turn(true, true);
        assert!(pause >= SHORT * PAUSE_FACTOR_MAX, "{pause:?}");
        for (others_want, others_work) in [(false, true), (true, false)] {
            let (pause, is_over) = pause_after_a_turn(others_want, others_work);
            assert!(is_over, "{pause:?}");
        }
    }
}
