//! A connection's future, its state, and the group that it belongs to.

use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::Wake;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::socket::Ready;

/// States of a task. A woken one is run once more when it stops running.
pub(super) mod state {
    pub const WAITING: u8 = 0;
    pub const QUEUED: u8 = 1;
    pub const RUNNING: u8 = 2;
    pub const WOKEN: u8 = 3;
    pub const ENDED: u8 = 4;
}

/// A task that runs as often as this in an interval is busy.
const BUSY_RUNS: u32 = 16;

/// The file of a socket, which the future owns.
type File = Weak<dyn AsFd + Send + Sync>;

/// A group, as its tasks see it.
pub(super) trait Group: Send + Sync {
    fn index(&self) -> usize;
    /// Queues a task that was woken.
    fn push(&self, task: Arc<Task>);
    /// Stops watching the socket of a task that moves to another group, and forgets the task.
    fn release(&self, file: BorrowedFd<'_>, token: u64) -> Result<(), Errno>;
    /// Forgets a task that has ended.
    fn forget(&self, token: u64);
}

/// A future with its socket's state.
pub(super) struct Task {
    /// The group whose epoll instance has the socket, and the token there.
    pub home: Mutex<Home>,
    pub ready: Arc<Ready>,
    pub file: File,
    state: AtomicU8,
    runs: Runs,
    /// Locked by the thread that runs it.
    pub future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

pub(super) struct Home {
    pub group: Weak<dyn Group>,
    pub token: u64,
}

impl Task {
    /// A task that is queued at once.
    pub fn new(
        group: Weak<dyn Group>,
        file: File,
        ready: Arc<Ready>,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Task {
        Task {
            home: Mutex::new(Home { group, token: 0 }),
            ready,
            file,
            state: AtomicU8::new(state::QUEUED),
            runs: Runs::default(),
            future: Mutex::new(Some(Box::pin(future))),
        }
    }

    pub fn set_state(&self, to: u8) {
        self.state.store(to, Ordering::Release);
    }

    /// Notes that it is to be run. True if it was waiting and is now in the state `next`.
    pub fn notify(&self, next: u8) -> bool {
        let mut now = self.state.load(Ordering::Acquire);
        loop {
            let to = match now {
                state::WAITING => next,
                state::RUNNING => state::WOKEN,
                _ => return false,
            };
            match (self.state).compare_exchange_weak(now, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return to == next,
                Err(found) => now = found,
            }
        }
    }

    /// Stops running, unless it was woken meanwhile.
    pub fn pause(&self) -> bool {
        let paused = (self.state).compare_exchange(
            state::RUNNING,
            state::WAITING,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if paused.is_err() {
            self.set_state(state::RUNNING);
        }
        paused.is_ok()
    }

    /// Counts a run. True if it makes the task one of the busy ones of the interval.
    pub fn note_run(&self, interval: u32) -> bool {
        self.runs.note(interval) == BUSY_RUNS
    }
}

impl Wake for Task {
    fn wake(self: Arc<Task>) {
        if self.notify(state::QUEUED) {
            let group = self.home.lock().group.upgrade();
            if let Some(group) = group {
                group.push(self);
            }
        }
    }
}

/// The runs of a task in the last interval in which it ran. Only the thread that runs the task writes it.
#[derive(Default)]
struct Runs {
    interval: AtomicU32,
    count: AtomicU32,
}

impl Runs {
    fn note(&self, interval: u32) -> u32 {
        let count = if self.interval.load(Ordering::Relaxed) == interval {
            self.count.load(Ordering::Relaxed).saturating_add(1)
        } else {
            self.interval.store(interval, Ordering::Relaxed);
            1
        };
        self.count.store(count, Ordering::Relaxed);
        count
    }
}
