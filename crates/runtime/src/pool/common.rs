//! The state that all groups share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;

/// A thread is added when no thread has taken an event for this time.
pub(super) const TICK: Duration = Duration::from_millis(1);

pub(super) struct Common {
    pub threads: AtomicUsize,
    threads_max: usize,
    /// Threads that busy-poll. Each of them needs a processor, and so does each of their clients.
    awake: AtomicUsize,
    awake_max: usize,
    /// Counts the times at which the busy tasks of each group are counted.
    pub interval: AtomicU32,
    pub monitor: Mutex<Option<Thread>>,
    pub monitor_sleeps: AtomicBool,
    pub stop: AtomicBool,
    pub runtime: Handle,
}

impl Common {
    pub fn new(threads_max: usize) -> Common {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Common {
            threads: AtomicUsize::new(0),
            threads_max: threads_max.max(1),
            awake: AtomicUsize::new(0),
            awake_max: (processors / 2).max(1),
            interval: AtomicU32::new(0),
            monitor: Mutex::default(),
            monitor_sleeps: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            runtime: Handle::current(),
        }
    }

    /// Counts one more thread, unless there are as many as may be.
    pub fn count_thread(&self) -> bool {
        self.threads
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |threads| {
                (threads < self.threads_max).then_some(threads + 1)
            })
            .is_ok()
    }

    /// The right to busy-poll, until it is dropped.
    pub fn stay_awake(&self) -> Option<Awake<'_>> {
        let awake = Awake(&self.awake);
        (self.awake.fetch_add(1, Ordering::Relaxed) < self.awake_max).then_some(awake)
    }

    pub fn wake_monitor(&self) {
        if self.monitor_sleeps.load(Ordering::SeqCst)
            && self.monitor_sleeps.swap(false, Ordering::SeqCst)
            && let Some(monitor) = &*self.monitor.lock()
        {
            monitor.unpark();
        }
    }
}

pub(super) struct Awake<'a>(&'a AtomicUsize);

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
