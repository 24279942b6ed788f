//! Connections that work at the same time, and one thread that samples them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::meter::Meter;
use frond_client::{Error, Result};

/// Stack of a thread. It needs little, and there may be a thousand of them.
const STACK_BYTES: usize = 512 * 1024;

/// Runs `work` with each connection on a thread of its own, and `watch` on this one. `watch` gets a
/// function that says whether all the others are done, and must not return before. Errors of `work`
/// go to the meter, which ends the run.
pub fn with_each<C: Send>(
    clients: &mut [C],
    meter: &Meter,
    work: impl Fn(usize, &mut C) -> Result<()> + Sync,
    watch: impl FnOnce(&dyn Fn() -> bool) -> Result<()>,
) -> Result<()> {
    let done = AtomicU64::new(0);
    let all = clients.len() as u64;
    thread::scope(|scope| {
        for (index, client) in clients.iter_mut().enumerate() {
            let (done, work) = (&done, &work);
            let body = move || {
                let guard = CountOnDrop(done);
                if let Err(error) = work(index, client) {
                    meter.fail(error);
                }
                meter.worked();
                drop(guard);
            };
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            if let Err(error) = builder.spawn_scoped(scope, body) {
                meter.fail(Error::Io("starting a thread".to_owned(), error));
                done.fetch_add(1, Ordering::Release);
            }
        }
        let watched = watch(&|| done.load(Ordering::Acquire) == all);
        if watched.is_err() {
            meter.stop();
        }
        watched
    })
}

/// Runs `work` with each client on a thread of its own, all of which begin when the last one has started. Returns the
/// results and the time until the last one was done.
pub fn run_all<C: Send, T: Send>(
    clients: &mut [C],
    work: impl Fn(&mut C) -> Result<T> + Sync,
) -> Result<(Vec<T>, Duration)> {
    let gate = RwLock::new(false);
    thread::scope(|scope| {
        let mut open = gate.write().unwrap_or_else(PoisonError::into_inner);
        let (mut threads, mut failed) = (Vec::new(), None);
        for client in clients {
            let (gate, work) = (&gate, &work);
            let body = move || {
                let open = *gate.read().unwrap_or_else(PoisonError::into_inner);
                if open {
                    work(client)
                } else {
                    Err(Error::Stopped)
                }
            };
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            match builder.spawn_scoped(scope, body) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    failed = Some(Error::Io("starting a thread".to_owned(), error));
                    break;
                }
            }
        }
        *open = failed.is_none();
        drop(open);
        let started = Instant::now();
        let panicked = || Err(Error::Protocol("a client's thread panicked".to_owned()));
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        let results: Vec<Result<T>> = joined
            .map(|result| result.unwrap_or_else(|_| panicked()))
            .collect();
        if let Some(error) = failed {
            return Err(error);
        }
        let results: Result<Vec<T>> = results.into_iter().collect();
        Ok((results?, started.elapsed()))
    })
}

/// Ends what is repeated for some time, or until the user asks to stop.
pub fn goes_on(until: Instant, stop: &AtomicBool) -> Result<bool> {
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Stopped);
    }
    Ok(Instant::now() < until)
}

/// Waits until a moment of the run, or until all threads are done. True in the second case.
pub fn wait_until(meter: &Meter, at: Duration, all_done: impl Fn() -> bool) -> bool {
    const NAP: Duration = Duration::from_millis(20);
    loop {
        if all_done() {
            return true;
        }
        let left = at.saturating_sub(meter.elapsed());
        if left.is_zero() {
            return false;
        }
        thread::sleep(left.min(NAP));
    }
}

/// Counts a thread as done however it ends.
struct CountOnDrop<'a>(&'a AtomicU64);

impl Drop for CountOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}
