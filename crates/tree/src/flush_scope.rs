//! Divides the work of one flush among the threads of the pool. A task of work may be divided further while it runs.

use std::collections::VecDeque;
use std::sync::Arc;

use frond_kv::PANICKED;
use parking_lot::{Condvar, Mutex};

use crate::fail_stop::contain;
use crate::{Error, Result};

/// A task of work.
pub(crate) type Task<T> = Box<dyn FnOnce() -> Result<T> + Send>;

/// The threads that work on one flush.
pub(crate) struct FlushScope {
    width: usize,
    /// Without threads: decides the order of the tasks.
    seed: Option<u64>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Batches that are not finished, in the order in which they came.
    batches: Vec<Arc<dyn Tasks>>,
    is_closed: bool,
}

/// Tasks that may still wait for a thread.
trait Tasks: Send + Sync {
    fn are_waiting(&self) -> bool;
    /// Runs one of them. False if none waits.
    fn run_next(&self) -> bool;
}

impl FlushScope {
    /// A scope of up to `width` threads. With a `seed` there is only one thread, which takes the tasks in an order that
    /// depends on the seed alone.
    pub(crate) fn new(width: usize, seed: Option<u64>) -> Arc<FlushScope> {
        Arc::new(FlushScope {
            width,
            seed,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// A scope of one thread.
    pub(crate) fn of_one_thread() -> Arc<FlushScope> {
        FlushScope::new(1, None)
    }

    /// The number of tasks that can run side by side.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Runs all tasks, on this thread and on those that help. Returns their results, in the order of the tasks, when all
    /// are finished. A panic in a task is an error of this task.
    pub(crate) fn run<T: Send + 'static>(&self, tasks: Vec<Task<T>>) -> Vec<Result<T>> {
        let is_shared = self.width > 1 && self.seed.is_none() && tasks.len() > 1;
        let batch = Batch::new(tasks, self.seed);
        if !is_shared {
            while batch.run_next() {}
            return batch.results();
        }
        let batch = Arc::new(batch);
        self.state.lock().batches.push(batch.clone());
        self.changed.notify_all();
        while batch.run_next() {}
        let is_other =
            |other: &Arc<dyn Tasks>| !std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(&batch));
        self.state.lock().batches.retain(is_other);
        batch.results()
    }

    /// Runs tasks of others until the scope is closed.
    pub(crate) fn help(&self) {
        let mut state = self.state.lock();
        while !state.is_closed {
            let waiting = |batch: &&Arc<dyn Tasks>| batch.are_waiting();
            match state.batches.iter().find(waiting).cloned() {
                None => self.changed.wait(&mut state),
                Some(batch) => {
                    drop(state);
                    batch.run_next();
                    state = self.state.lock();
                }
            }
        }
    }

    /// Ends the help of other threads.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }
}

/// Tasks and their results.
struct Batch<T> {
    state: Mutex<Progress<T>>,
    finished: Condvar,
}

struct Progress<T> {
    waiting: VecDeque<(usize, Task<T>)>,
    /// W3: each task runs once, so the results that are missing are as many as `left`.
    results: Vec<Option<Result<T>>>,
    left: usize,
}

impl<T: Send + 'static> Batch<T> {
    fn new(tasks: Vec<Task<T>>, seed: Option<u64>) -> Batch<T> {
        let left = tasks.len();
        let mut waiting: VecDeque<_> = tasks.into_iter().enumerate().collect();
        if let Some(seed) = seed {
            waiting.rotate_left(seed as usize % left.max(1));
            if seed / 2 % 2 == 1 {
                waiting.make_contiguous().reverse();
            }
        }
        Batch {
            state: Mutex::new(Progress {
                waiting,
                results: (0..left).map(|_| None).collect(),
                left,
            }),
            finished: Condvar::new(),
        }
    }

    /// Waits until all tasks are finished.
    fn results(&self) -> Vec<Result<T>> {
        let mut state = self.state.lock();
        while state.left > 0 {
            self.finished.wait(&mut state);
        }
        let results = std::mem::take(&mut state.results);
        let missing = || Err(Error::Internal(PANICKED));
        (results.into_iter())
            .map(|result| result.unwrap_or_else(missing))
            .collect()
    }
}

impl<T: Send + 'static> Tasks for Batch<T> {
    fn are_waiting(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }

    fn run_next(&self) -> bool {
        let next = self.state.lock().waiting.pop_front();
        let Some((index, task)) = next else {
            return false;
        };
        let result = contain(task);
        let mut state = self.state.lock();
        let before = state.results[index].replace(result);
        assert!(before.is_none() && state.left > 0, "W3: a task ran twice");
        state.left -= 1;
        if state.left == 0 {
            self.finished.notify_all();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    /// The numbers below `count`, divided again and again.
    fn sum(scope: &Arc<FlushScope>, range: std::ops::Range<u64>) -> Result<u64> {
        if range.end - range.start <= 3 {
            return Ok(range.sum());
        }
        let step = (range.end - range.start).div_ceil(3);
        let tasks = (range.clone().step_by(step as usize))
            .map(|start| {
                let (scope, end) = (scope.clone(), (start + step).min(range.end));
                let task: Task<u64> = Box::new(move || sum(&scope, start..end));
                task
            })
            .collect();
        scope.run(tasks).into_iter().sum()
    }

    fn with_helpers<T>(scope: &Arc<FlushScope>, helpers: usize, act: impl FnOnce() -> T) -> T {
        let helpers: Vec<_> = (0..helpers)
            .map(|_| {
                let scope = scope.clone();
                thread::spawn(move || scope.help())
            })
            .collect();
        let result = act();
        scope.close();
        for helper in helpers {
            helper.join().unwrap();
        }
        result
    }

    #[test]
    fn pieces_are_divided_among_threads_at_any_depth() {
        for helpers in [0, 1, 3] {
            for _ in 0..200 {
                let scope = FlushScope::new(helpers + 1, None);
                let total = with_helpers(&scope, helpers, || sum(&scope, 0..1000).unwrap());
                assert_eq!(total, 499_500);
                assert!(scope.state.lock().batches.is_empty());
            }
        }
    }

    /// Each task waits for the other one: this ends only if they run at the same time.
    #[test]
    fn pieces_run_side_by_side() {
        let scope = FlushScope::new(2, None);
        let barrier = Arc::new(Barrier::new(2));
        let tasks = (0..2)
            .map(|number| {
                let barrier = barrier.clone();
                let task: Task<usize> = Box::new(move || {
                    barrier.wait();
                    Ok(number)
                });
                task
            })
            .collect();
        let results = with_helpers(&scope, 1, || scope.run(tasks));
        let results: Vec<usize> = results.into_iter().map(Result::unwrap).collect();
        assert_eq!(results, [0, 1]);
    }

    #[test]
    fn a_panic_is_an_error_of_its_piece() {
        for helpers in [0, 2] {
            let scope = FlushScope::new(helpers + 1, None);
            let tasks = (0..20)
                .map(|number| {
                    let task: Task<usize> = Box::new(move || {
                        assert!(number != 7, "one task panics");
                        Ok(number)
                    });
                    task
                })
                .collect();
            let results = with_helpers(&scope, helpers, || scope.run(tasks));
            for (number, result) in results.into_iter().enumerate() {
                match number {
                    7 => assert!(matches!(result, Err(Error::Internal(_)))),
                    number => assert_eq!(result.unwrap(), number),
                }
            }
        }
    }

    #[test]
    fn a_seed_decides_the_order() {
        let order = |seed| {
            let scope = FlushScope::new(4, Some(seed));
            let ran = Arc::new(Mutex::new(Vec::new()));
            let count = Arc::new(AtomicUsize::new(0));
            let tasks = (0..5)
                .map(|number| {
                    let (ran, count) = (ran.clone(), count.clone());
                    let task: Task<()> = Box::new(move || {
                        ran.lock().push(number);
                        count.fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    });
                    task
                })
                .collect();
            assert!(scope.run(tasks).iter().all(Result::is_ok));
            assert_eq!(count.load(Ordering::Relaxed), 5);
            ran.lock().clone()
        };
        let orders: BTreeSet<Vec<i32>> = (0..40).map(order).collect();
        assert_eq!(orders.len(), 10);
        assert_eq!(order(3), order(3));
    }
}
