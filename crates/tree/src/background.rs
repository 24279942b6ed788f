//! The background thread: it flushes sealed memtables, and compacts while the store is idle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::fail_stop::contain;
use crate::idle_compaction::{IDLE_CHECK, IdleWatch};
use crate::low_space::Considered;
use crate::{Error, Result};

/// The pause before a flush that failed is retried, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The pause between two steps of the work that has time.
const MAINTENANCE_PAUSE: Duration = Duration::from_millis(10);
/// An idle store looks for such work at this interval: a snapshot that is dropped may leave some.
const MAINTENANCE_CHECK: Duration = Duration::from_secs(10);

/// After each such time, the recent use of memory by writers counts less.
const AGING_STEP: Duration = Duration::from_millis(250);
/// Spare memory for memtables is freed after this number of steps without use.
const UNUSED_STEPS: u32 = 8;

/// Starts the threads of a store.
pub(crate) fn start(engine: &Arc<Engine>) -> Result<()> {
    if engine.options.inline {
        return Ok(());
    }
    let workers = engine.options.flush_threads - 1;
    engine.flusher.pool.start("flusher", workers)?;
    let for_thread = engine.clone();
    let thread = std::thread::Builder::new()
        .name("flusher".to_owned())
        .spawn(move || run(&for_thread))
        .map_err(Error::io("starting the flusher thread"))?;
    *engine.flusher.thread.lock() = Some(thread);
    if engine.disk_space.is_known() {
        let for_thread = engine.clone();
        let thread = std::thread::Builder::new()
            .name("disk-space".to_owned())
            .spawn(move || watch_space(&for_thread))
            .map_err(Error::io("starting the thread that watches the disk"))?;
        *engine.disk_space.thread.lock() = Some(thread);
    }
    Ok(())
}

/// Measures the room of the file system, the more often the faster it may change.
fn watch_space(engine: &Engine) {
    let mut sequence = 0;
    loop {
        engine.check_space();
        let before = std::mem::replace(&mut sequence, engine.publisher.visible());
        let pause = engine.disk_space.pause(before != sequence);
        if engine.disk_space.wait(pause) {
            return;
        }
    }
}

impl Engine {
    /// Lets the page cache have what writers do not use any more, or take less for a memtable that fills. Called again and
    /// again, with the number of [`AGING_STEP`]s since the last time.
    fn give_memory_back(&self, steps: u32, steps_since_freed: &mut u32) {
        *steps_since_freed += steps;
        if *steps_since_freed >= UNUSED_STEPS {
            *steps_since_freed = 0;
            self.spare_blocks.free_unused();
        }
        self.runs.budget.age(steps);
        self.runs.budget.shrink_cache();
    }
}

fn run(engine: &Engine) {
    let mut watch = IdleWatch::new();
    // A store that was just opened is compacted only after commits.
    let mut compacted = true;
    let mut pause: Option<Duration> = None;
    let mut considered = Considered::default();
    let mut checked_at = Instant::now();
    let mut aged_at = Instant::now();
    let mut steps_since_freed = 0;
    loop {
        let is_low = engine.disk_space.is_low();
        let has_maintenance = engine.has_maintenance();
        let signal = match pause {
            Some(pause) => engine.flusher.pause(pause),
            None if has_maintenance => engine.flusher.wait(Some(MAINTENANCE_PAUSE)),
            None if compacted && !is_low => engine.flusher.wait(Some(MAINTENANCE_CHECK)),
            None => engine.flusher.wait(Some(IDLE_CHECK)),
        };
        if signal.stop {
            return;
        }
        let steps = aged_at.elapsed().as_millis() / AGING_STEP.as_millis();
        if steps > 0 {
            aged_at = Instant::now();
            engine.give_memory_back(steps as u32, &mut steps_since_freed);
        }
        // A panic interrupts only work that is not published yet, so it is a failure like others. Committers must not
        // wait for it.
        let outcome = contain(|| {
            let has_work = signal.work || pause.is_some();
            if has_maintenance && !has_work {
                engine.maintain();
                if checked_at.elapsed() < IDLE_CHECK {
                    return Ok(compacted);
                }
            }
            checked_at = Instant::now();
            if engine.disk_space.is_low() {
                if has_work || engine.could_make_space(considered) {
                    considered = engine.make_space()?;
                }
                return Ok(false);
            }
            if has_work {
                engine.flush_all().map(|()| false)
            } else if compacted {
                Ok(true)
            } else {
                engine.compact_when_idle(&mut watch)
            }
        });
        if let Err(Error::Internal(reason)) = &outcome {
            engine.note_outcome(&Err(Error::Internal(reason)));
        }
        pause = match outcome {
            Ok(done) => {
                compacted = done;
                None
            }
            Err(error) if !engine.is_retryable(&error) => {
                engine.fail(format!("flushing a memtable failed: {error}"));
                return;
            }
            Err(_) => Some(pause.map_or(PAUSE_MIN, |pause| (pause * 2).min(PAUSE_MAX))),
        };
    }
}
