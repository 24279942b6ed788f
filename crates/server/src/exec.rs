//! Where commands run: the one place that decides it.
//!
//! The store is synchronous: it reads files, waits for the journal, and takes as long as a query
//! takes. Tokio's way to run such work is `block_in_place`, which hands the other tasks of the
//! thread to another one. That costs two or three switches between threads, more than a look-up by
//! `_id` costs altogether. So work that is usually short runs as it is, on the thread that read
//! the request, with two precautions:
//!
//! - While a thread works, nobody may be listening to the sockets: the thread that took the last
//!   request was the one that listened, and Tokio wakes another only when it knows of more work. A
//!   watchdog wakes one each millisecond while work runs, so that is how long a request can be
//!   overlooked.
//! - Some threads are kept free: when too many work in this way at the same time, further work is
//!   handed over after all.
//!
//! With many busy clients that limit would be met all the time, and most work would be handed over.
//! So a connection waits for its [`Turn`] before it handles a message, and there are as many turns
//! as work may run without a hand-over. Work that takes long after all gives its turn back: the
//! watchdog sees to that.
//!
//! Measured with single-document operations, a hand-over for every command cost three switches of
//! threads instead of one, and about half as much processor time again. With 64 clients on two cores,
//! waiting for turns doubled the rate of short operations.

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
    /// It looks at memory only.
    Instant,
    /// It reads or writes a few documents, usually.
    Short,
    /// It waits for the journal, or goes through whole collections.
    Long,
}

/// Threads kept for listening and for work that is handed over.
const THREADS_FREE: usize = 4;

/// How often the watchdog looks while work runs.
const TICK: Duration = Duration::from_millis(1);

/// After so many looks without work the watchdog sleeps until it is woken.
const TICKS_AWAKE: u32 = 100;

/// After so many looks a turn is taken to be long. On a machine that others use too, work that is short is put off
/// for some milliseconds now and then.
const TICKS_LONG: u32 = 10;

/// Turns that are watched; it is more than there are on any machine.
const TURNS_MAX: usize = 64;

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
    /// The watchdog sleeps, and the next short work must wake it.
    asleep: AtomicBool,
    stop: AtomicBool,
    turns: Semaphore,
    /// A bit for each place in `since` that is taken.
    places: AtomicU64,
    /// The look of the watchdog at which a turn began; [`GIVEN_BACK`] when it took too long.
    since: [AtomicU32; TURNS_MAX],
    /// Looks of the watchdog.
    ticks: AtomicU32,
}

/// Marks a turn that somebody else has by now.
const GIVEN_BACK: u32 = u32::MAX;

impl Shared {
    /// Notes a turn that begins. None if too many are noted already.
    fn take_place(&self) -> Option<usize> {
        let mut taken = self.places.load(Ordering::Relaxed);
        loop {
            let place = taken.trailing_ones() as usize;
            if place >= TURNS_MAX {
                return None;
            }
            let more = taken | 1 << place;
            match self.places.compare_exchange_weak(
                taken,
                more,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    let now = self.ticks.load(Ordering::Relaxed) % GIVEN_BACK;
                    self.since.get(place)?.store(now, Ordering::Release);
                    return Some(place);
                }
                Err(now) => taken = now,
            }
        }
    }

    /// Gives others the turns of work that takes long.
    fn give_back_long_turns(&self) {
        let now = self.ticks.fetch_add(1, Ordering::Relaxed) % GIVEN_BACK;
        let taken = self.places.load(Ordering::Acquire);
        for (place, since) in self.since.iter().enumerate() {
            let began = since.load(Ordering::Acquire);
            // One that was taken this moment is marked until its beginning is noted.
            if taken >> place & 1 == 1
                && began != GIVEN_BACK
                && now.wrapping_sub(began) >= TICKS_LONG
                && since
                    .compare_exchange(began, GIVEN_BACK, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                self.turns.add_permits(1);
            }
        }
    }
}

/// The right to handle a message on the thread that read it.
pub struct Turn {
    shared: Arc<Shared>,
    place: Option<usize>,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut is_ours = true;
        if let Some(place) = self.place
            && let Some(since) = self.shared.since.get(place)
        {
            // Whoever marks it first, gives the turn to others.
            is_ours = since.swap(GIVEN_BACK, Ordering::AcqRel) != GIVEN_BACK;
            self.shared
                .places
                .fetch_and(!(1 << place), Ordering::AcqRel);
        }
        if is_ours {
            self.shared.turns.add_permits(1);
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
            turns: Semaphore::new(short_max.max(1)),
            places: AtomicU64::new(0),
            since: [const { AtomicU32::new(GIVEN_BACK) }; TURNS_MAX],
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

    /// Turns that are free, and all.
    pub fn tickets(&self) -> (usize, usize) {
        let all = self.short_max.max(1);
        (self.shared.turns.available_permits().min(all), all)
    }

    /// Waits until a message may be handled.
    pub async fn turn(&self) -> Turn {
        // Nobody closes it.
        if let Ok(permit) = self.shared.turns.acquire().await {
            permit.forget();
        }
        Turn {
            place: self.shared.take_place(),
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
                format!(
                    "the server failed inside this command: {}",
                    panic_text(&*payload)
                ),
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

/// The watchdog's life: while short work runs, a task that does nothing is spawned now and then,
/// which makes the runtime wake a thread that sleeps; that one then listens to the sockets.
fn watch(shared: &Shared, runtime: &Handle) {
    let mut quiet = 0;
    while !shared.stop.load(Ordering::Acquire) {
        shared.give_back_long_turns();
        if shared.running.load(Ordering::Acquire) > 0 {
            quiet = 0;
            runtime.spawn(async {});
        } else {
            quiet += 1;
        }
        if quiet < TICKS_AWAKE {
            sleep(TICK);
            continue;
        }
        shared.asleep.store(true, Ordering::SeqCst);
        // Work that began before it could see the flag would not wake us.
        if shared.running.load(Ordering::SeqCst) == 0 && shared.places.load(Ordering::SeqCst) == 0 {
            while shared.asleep.load(Ordering::Acquire) && !shared.stop.load(Ordering::Acquire) {
                park();
            }
        }
        shared.asleep.store(false, Ordering::Release);
        quiet = 0;
    }
}

/// What a panic said.
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

    /// Work that holds its turn for long does not keep others from theirs, and all turns come back.
    #[test]
    fn turns_of_long_work_are_given_to_others() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS_FREE + 2)
            .build()
            .unwrap();
        let executor = Arc::new(runtime.block_on(async { Executor::new() }).unwrap());
        let free = || executor.shared.turns.available_permits();
        assert_eq!((executor.short_max, free()), (2, 2));
        for _ in 0..3 {
            let (go_on, wait) = std::sync::mpsc::channel::<()>();
            let wait = Arc::new(std::sync::Mutex::new(wait));
            let long: Vec<_> = (0..2)
                .map(|_| {
                    let (executor, wait) = (executor.clone(), wait.clone());
                    runtime.spawn(async move {
                        let _turn = executor.turn().await;
                        let done = executor.run(Work::Short, || {
                            let _ = wait.lock().unwrap().recv();
                            Ok(())
                        });
                        done.unwrap();
                    })
                })
                .collect();
            // Two more can only have turns that were given back.
            let more = runtime.block_on(async { (executor.turn().await, executor.turn().await) });
            drop(go_on);
            for task in long {
                runtime.block_on(task).unwrap();
            }
            drop(more);
            assert_eq!(free(), 2);
            assert_eq!(executor.shared.places.load(Ordering::SeqCst), 0);
        }
    }

    /// Clients that do not know of each other are served while others run "short" work that is
    /// not short at all, in any number.
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
            // The clients are no part of the runtime, which may stand still.
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
