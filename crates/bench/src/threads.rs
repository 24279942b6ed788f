//! Connections that work at the same time, and one thread that samples them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

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
