//! The state of the background flusher: its thread, its pool, and the information for committers.

use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::worker_pool::WorkerPool;
use crate::write_throttle::FlushRate;
use crate::{Error, TreeId};

/// The background thread, seen from the others.
#[derive(Default)]
pub(crate) struct Flusher {
    signal: Mutex<Signal>,
    wake: Condvar,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
    /// Further threads that flush a memtable to several trees in parallel.
    pub(crate) pool: WorkerPool,
    /// The rate at which memtables are flushed, for the write throttle.
    pub(crate) rate: FlushRate,
    /// Where the log of the last checkpoint starts.
    pub(crate) last_log_start: AtomicU64,
    /// Bytes that idle compaction may write.
    pub(crate) compaction_credit: AtomicU64,
    /// The tree that is compacted while the disk is nearly full, and the bytes of its buffers at first.
    pub(crate) emptied: Mutex<Option<(TreeId, u64)>>,
    /// Held during a flush, a compaction or a checkpoint: one at a time. True while a checkpoint is due.
    pub(crate) working: Mutex<bool>,
    /// Why the last flush failed, while it is retried.
    stalled: Mutex<Option<Stall>>,
}

/// A failure that may go away.
#[derive(Clone)]
pub(crate) struct Stall {
    pub(crate) disk_full: bool,
    pub(crate) reason: String,
}

/// The reasons for which the thread is woken.
#[derive(Clone, Copy, Default)]
pub(crate) struct Signal {
    /// A memtable was sealed.
    pub(crate) work: bool,
    pub(crate) stop: bool,
}

impl Flusher {
    /// Wakes the thread after a memtable was sealed.
    pub(crate) fn wake(&self) {
        self.signal.lock().work = true;
        self.wake.notify_one();
    }

    pub(crate) fn stop(&self) {
        self.signal.lock().stop = true;
        self.wake.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        self.pool.stop();
    }

    /// Whether the thread is to flush or to stop.
    pub(crate) fn has_work(&self) -> bool {
        let signal = self.signal.lock();
        signal.work || signal.stop
    }

    /// Waits for a signal, at most for `timeout`, and takes it.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Signal {
        let mut signal = self.signal.lock();
        while !signal.work && !signal.stop {
            match timeout {
                None => self.wake.wait(&mut signal),
                Some(timeout) if self.wake.wait_for(&mut signal, timeout).timed_out() => break,
                Some(_) => {}
            }
        }
        take(&mut signal)
    }

    /// Waits until `pause` is over or the next signal comes, even if there is work; takes the signal.
    pub(crate) fn pause(&self, pause: Duration) -> Signal {
        let mut signal = self.signal.lock();
        if !signal.stop {
            self.wake.wait_for(&mut signal, pause);
        }
        take(&mut signal)
    }

    /// Notes why the last flush failed, or that it did not.
    pub(crate) fn set_stall(&self, stall: Option<Stall>) {
        *self.stalled.lock() = stall;
    }

    /// The error of a commit that needs room, if none can be made for now.
    pub(crate) fn stall(&self) -> Option<Error> {
        let stall = self.stalled.lock().clone()?;
        let Stall { disk_full, reason } = stall;
        Some(Error::Stalled { disk_full, reason })
    }
}

/// The signal, with `work` reset.
fn take(signal: &mut Signal) -> Signal {
    let taken = *signal;
    signal.work = false;
    taken
}
