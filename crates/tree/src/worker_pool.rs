//! Threads that share one piece of work. They live as long as the store: the allocator returns the memory of a thread
//! that ends late, so none is started per flush.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use crate::fail_stop::contain;
use crate::{Error, Result};

/// A piece of work that any number of threads can run side by side.
pub(crate) trait Work: Send + Sync {
    /// Takes parts of the work until there are none left.
    fn run(&self);
    /// Called when `run` panicked.
    fn panicked(&self);
}

#[derive(Default)]
pub(crate) struct WorkerPool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// W1: one at a time. It is taken away when it is done, and the next one comes when no thread is busy.
    work: Option<Arc<dyn Work>>,
    /// Raised with each new work, so that no thread joins in twice.
    number: u64,
    /// W2: the threads that run the work now.
    busy: usize,
    stop: bool,
}

impl WorkerPool {
    /// Starts `count` threads with this name.
    pub(crate) fn start(&self, name: &str, count: usize) -> Result<()> {
        for _ in 0..count {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || shared.serve())
                .map_err(Error::io(format!("starting a {name} thread")))?;
            self.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Runs the work on this thread and on all of the pool. Returns when it is done.
    pub(crate) fn run(&self, work: Arc<dyn Work>) {
        {
            let mut state = self.shared.state.lock();
            assert!(
                state.work.is_none() && state.busy == 0,
                "W1: the pool runs two works at a time"
            );
            state.work = Some(work.clone());
            state.number += 1;
            self.shared.changed.notify_all();
        }
        run_caught(&*work);
        let mut state = self.shared.state.lock();
        state.work = None;
        while state.busy > 0 {
            self.shared.changed.wait(&mut state);
        }
    }

    pub(crate) fn stop(&self) {
        self.shared.state.lock().stop = true;
        self.shared.changed.notify_all();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

fn run_caught(work: &dyn Work) {
    let run = || {
        work.run();
        Ok(())
    };
    if contain(run).is_err() {
        work.panicked();
    }
}

impl Shared {
    fn serve(&self) {
        let mut seen = 0;
        let mut state = self.state.lock();
        while !state.stop {
            let next = match &state.work {
                Some(work) if state.number != seen => work.clone(),
                _ => {
                    self.changed.wait(&mut state);
                    continue;
                }
            };
            seen = state.number;
            state.busy += 1;
            drop(state);
            run_caught(&*next);
            drop(next);
            state = self.state.lock();
            assert!(
                state.busy > 0,
                "W2: a thread ends work that it did not begin"
            );
            state.busy -= 1;
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Sum {
        left: AtomicU64,
        sum: AtomicU64,
        panics: AtomicU64,
    }

    impl Work for Sum {
        fn run(&self) {
            while let Ok(left) =
                self.left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                        left.checked_sub(1)
                    })
            {
                assert!(left != 500, "one part of the work panics");
                self.sum.fetch_add(left, Ordering::SeqCst);
            }
        }

        fn panicked(&self) {
            self.panics.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn all_parts_are_done_and_a_panic_is_reported() {
        let pool = WorkerPool::default();
        pool.start("worker", 3).unwrap();
        for _ in 0..50 {
            let (left, sum, panics) = (AtomicU64::new(1000), AtomicU64::new(0), AtomicU64::new(0));
            let work = Arc::new(Sum { left, sum, panics });
            pool.run(work.clone());
            assert_eq!(work.panics.load(Ordering::SeqCst), 1);
            // The thread that panicked took no further part, and the others did the rest; one thread
            // alone would have stopped half way.
            let sum = work.sum.load(Ordering::SeqCst);
            assert!(sum <= 500_500 - 500 && sum >= (501..=1000).sum::<u64>());
        }
        pool.stop();
    }
}
