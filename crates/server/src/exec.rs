//! Where commands run: the one place that decides it.
//!
//! The store is synchronous: it reads files, waits for the journal, and takes as long as a query
//! takes. Tokio runs such work with `block_in_place`, which hands the other tasks of the thread to
//! another thread. That costs two or three context switches, more than a whole look-up by `_id`. So
//! work that is usually short runs directly on the thread that read the request, with two precautions:
//!
//! - While a thread works, no thread may be polling the sockets: the thread that read the last request
//!   was the one that polled, and Tokio wakes another only when it knows of more work. A watchdog wakes
//!   one each millisecond while work runs, which bounds how long a request can be overlooked.
//! - Some threads are kept free: when too many run short work at the same time, further work goes
//!   through `block_in_place` after all.
//!
//! Many busy clients would reach that limit all the time, and most work would be handed over. So a
//! connection acquires a [`Permit`] before it handles a message, and there are as many permits as pieces
//! of work that may run without a hand-over. The watchdog releases the permit of work that turns out
//! to take long.
//!
//! Measured with single-document operations, a hand-over for every command cost three context switches
//! instead of one, and about half as much processor time again. With 64 clients on two cores, permits
//! doubled the rate of short operations.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::{JoinHandle, park, sleep};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use frond_error::{Error, ErrorCode, Result};

/// How long a command may keep its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It reads memory only.
    Instant,
    /// It reads or writes a few documents, usually.
    Short,
    /// It waits for the journal, or scans whole collections.
    Long,
}

/// Threads kept free for polling and for work that is handed over.
const THREADS_FREE: usize = 4;

/// Period of the watchdog while work runs.
const TICK: Duration = Duration::from_millis(1);

/// After this many ticks without work the watchdog sleeps until it is woken.
const TICKS_AWAKE: u32 = 100;

/// Ticks after which work counts as long. On a shared machine short work is preempted for some milliseconds now and
/// then.
const TICKS_LONG: u32 = 10;

/// Permits that the watchdog can watch; more than any machine has.
const PERMITS_MAX: usize = 64;

/// Threads that the runtime should have: enough to keep some free on the smallest machine.
pub fn worker_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (2 * cores).max(3 * THREADS_FREE)
}

/// Runs commands on the threads of a runtime.
pub struct Executor {
    shared: Arc<Shared>,
    short_max: usize,
    watchdog: Option<JoinHandle<()>>,
}

struct Shared {
    /// Short work that runs now.
    running: AtomicUsize,
    /// Whether the watchdog sleeps; the next short work must wake it.
    asleep: AtomicBool,
    stop: AtomicBool,
    permits: Semaphore,
    /// A bit for each slot of `since` that is in use.
    slots: AtomicU64,
    /// The tick at which the permit of each slot was acquired; [`RELEASED`] once the watchdog released it.
    since: [AtomicU32; PERMITS_MAX],
    /// Ticks of the watchdog.
    ticks: AtomicU32,
}

/// Marks a permit that is released.
const RELEASED: u32 = u32::MAX;

impl Shared {
    /// Claims a slot for a permit that is acquired. None if all are in use.
    fn claim_slot(&self) -> Option<usize> {
        let mut used = self.slots.load(Ordering::Relaxed);
        loop {
            let slot = used.trailing_ones() as usize;
            if slot >= PERMITS_MAX {
                return None;
            }
            let more = used | 1 << slot;
            match self
                .slots
                .compare_exchange_weak(used, more, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => {
                    let now = self.ticks.load(Ordering::Relaxed) % RELEASED;
                    self.since.get(slot)?.store(now, Ordering::Release);
                    return Some(slot);
                }
                Err(now) => used = now,
            }
        }
    }

    /// Releases the permits of work that takes long.
    fn release_long_permits(&self) {
        let now = self.ticks.fetch_add(1, Ordering::Relaxed) % RELEASED;
        let used = self.slots.load(Ordering::Acquire);
        for (slot, since) in self.since.iter().enumerate() {
            let began = since.load(Ordering::Acquire);
            // A slot that was just claimed is still marked as released until its tick is stored.
            if used >> slot & 1 == 1
                && began != RELEASED
                && now.wrapping_sub(began) >= TICKS_LONG
                && since
                    .compare_exchange(began, RELEASED, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                self.permits.add_permits(1);
            }
        }
    }
}

/// The right to handle a message on the thread that read it.
pub struct Permit {
    shared: Arc<Shared>,
    slot: Option<usize>,
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut is_held = true;
        if let Some(slot) = self.slot
            && let Some(since) = self.shared.since.get(slot)
        {
            // The first to mark the slot, this or the watchdog, releases the permit.
            is_held = since.swap(RELEASED, Ordering::AcqRel) != RELEASED;
            self.shared.slots.fetch_and(!(1 << slot), Ordering::AcqRel);
        }
        if is_held {
            self.shared.permits.add_permits(1);
        }
    }
}

impl Executor {
    /// An executor for the runtime that it is called in.
    pub fn new() -> std::io::Result<Executor> {
        let runtime = Handle::current();
        let short_max = runtime.metrics().num_workers().saturating_sub(THREADS_FREE);
        let shared = Arc::new(Shared {
            running: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            permits: Semaphore::new(short_max.max(1)),
            slots: AtomicU64::new(0),
            since: [const { AtomicU32::new(RELEASED) }; PERMITS_MAX],
            ticks: AtomicU32::new(0),
        });
        let watched = shared.clone();
        let watchdog = std::thread::Builder::new()
            .name("frond-watchdog".into())
            .spawn(move || watch(&watched, &runtime))?;
        Ok(Executor {
            shared,
            short_max,
            watchdog: Some(watchdog),
        })
    }

    /// Available permits, and all permits.
    pub fn permits(&self) -> (usize, usize) {
        let all = self.short_max.max(1);
        (self.shared.permits.available_permits().min(all), all)
    }

    /// Waits for the permit to handle a message.
    pub async fn acquire(&self) -> Permit {
        // The semaphore is never closed.
        if let Ok(permit) = self.shared.permits.acquire().await {
            permit.forget();
        }
        Permit {
            slot: self.shared.claim_slot(),
            shared: self.shared.clone(),
        }
    }

    /// Runs a command; a panic in it becomes an `InternalError`, which the panic hook has logged.
    pub fn run<T>(&self, work: Work, command: impl FnOnce() -> Result<T>) -> Result<T> {
        let caught = || catch_unwind(AssertUnwindSafe(command));
        let outcome = match work {
            Work::Instant => caught(),
            Work::Long => tokio::task::block_in_place(caught),
            Work::Short => {
                let others = self.shared.running.fetch_add(1, Ordering::SeqCst);
                let outcome = if others < self.short_max {
                    self.wake_watchdog();
                    caught()
                } else {
                    tokio::task::block_in_place(caught)
                };
                self.shared.running.fetch_sub(1, Ordering::AcqRel);
                outcome
            }
        };
        outcome.unwrap_or_else(|payload| {
            Err(Error::new(
                ErrorCode::InternalError,
                format!("internal error in this command: {}", panic_text(&*payload)),
            ))
        })
    }

    fn wake_watchdog(&self) {
        if self.shared.asleep.load(Ordering::SeqCst)
            && self.shared.asleep.swap(false, Ordering::SeqCst)
            && let Some(watchdog) = &self.watchdog
        {
            watchdog.thread().unpark();
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.thread().unpark();
            // It cannot panic, and there would be nothing to do about it.
            let _ = watchdog.join();
        }
    }
}

/// The thread of the watchdog. While short work runs it spawns an empty task each tick, which makes the runtime wake
/// a sleeping thread; that thread then polls the sockets.
fn watch(shared: &Shared, runtime: &Handle) {
    let mut idle_ticks = 0;
    while !shared.stop.load(Ordering::Acquire) {
        shared.release_long_permits();
        if shared.running.load(Ordering::Acquire) > 0 {
            idle_ticks = 0;
            runtime.spawn(async {});
        } else {
            idle_ticks += 1;
        }
        if idle_ticks < TICKS_AWAKE {
            sleep(TICK);
            continue;
        }
        shared.asleep.store(true, Ordering::SeqCst);
        // Work that began before the flag was set does not wake this thread.
        if shared.running.load(Ordering::SeqCst) == 0 && shared.slots.load(Ordering::SeqCst) == 0 {
            while shared.asleep.load(Ordering::Acquire) && !shared.stop.load(Ordering::Acquire) {
                park();
            }
        }
        shared.asleep.store(false, Ordering::Release);
        idle_ticks = 0;
    }
}

/// The message of a panic.
pub fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Instant;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_is_an_error() {
        let executor = Executor::new().unwrap();
        for work in [Work::Instant, Work::Short, Work::Long] {
            assert_eq!(executor.run(work, || Ok(3)), Ok(3));
            let failure = executor.run::<()>(work, || panic!("a {} thing", "bad"));
            let failure = failure.unwrap_err();
            assert_eq!(failure.code(), ErrorCode::InternalError);
            assert!(failure.message().ends_with("a bad thing"));
        }
        assert_eq!(executor.shared.running.load(Ordering::SeqCst), 0);
    }

    /// Work that holds its permit for long does not block others, and all permits are released.
    #[test]
    fn permits_of_long_work_are_released_early() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS_FREE + 2)
            .build()
            .unwrap();
        let executor = Arc::new(runtime.block_on(async { Executor::new() }).unwrap());
        let free = || executor.shared.permits.available_permits();
        assert_eq!((executor.short_max, free()), (2, 2));
        for _ in 0..3 {
            let (go_on, wait) = std::sync::mpsc::channel::<()>();
            let wait = Arc::new(std::sync::Mutex::new(wait));
            let long: Vec<_> = (0..2)
                .map(|_| {
                    let (executor, wait) = (executor.clone(), wait.clone());
                    runtime.spawn(async move {
                        let _permit = executor.acquire().await;
                        let done = executor.run(Work::Short, || {
                            let _ = wait.lock().unwrap().recv();
                            Ok(())
                        });
                        done.unwrap();
                    })
                })
                .collect();
            // Two more permits are available only because the watchdog released the first two.
            let more =
                runtime.block_on(async { (executor.acquire().await, executor.acquire().await) });
            drop(go_on);
            for task in long {
                runtime.block_on(task).unwrap();
            }
            drop(more);
            assert_eq!(free(), 2);
            assert_eq!(executor.shared.slots.load(Ordering::SeqCst), 0);
        }
    }

    /// A client is served while any number of others run work that is declared short but takes long.
    #[test]
    fn long_work_that_was_taken_for_short_does_not_stop_the_others() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(6)
            .enable_all()
            .build()
            .unwrap();
        for busy in [1, 2, 20] {
            let executor = Arc::new(runtime.block_on(async { Executor::new() }).unwrap());
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            runtime.spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let executor = executor.clone();
                    tokio::spawn(async move {
                        let mut byte = [0];
                        while stream.read_exact(&mut byte).await.is_ok() {
                            let pause = Duration::from_millis(u64::from(byte[0]) * 10);
                            let done = executor.run(Work::Short, || {
                                std::thread::sleep(pause);
                                Ok(())
                            });
                            done.unwrap();
                            stream.write_all(&byte).await.unwrap();
                        }
                    });
                }
            });
            // The clients run outside of the runtime, which may stall.
            let ask = |stream: &mut TcpStream| {
                stream.write_all(&[0]).unwrap();
                stream.read_exact(&mut [9]).unwrap();
            };
            let mut clients: Vec<_> = (0..=busy)
                .map(|_| TcpStream::connect(address).unwrap())
                .collect();
            clients.iter_mut().for_each(ask);
            let (quick, slow) = clients.split_first_mut().unwrap();
            for stream in slow {
                stream.write_all(&[100]).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
            let began = Instant::now();
            for _ in 0..20 {
                ask(quick);
            }
            let took = began.elapsed();
            assert!(took < Duration::from_millis(900), "{busy} busy: {took:?}");
        }
    }
}
