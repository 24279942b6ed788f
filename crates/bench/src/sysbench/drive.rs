//! Threads that run transactions for some seconds, and one that samples them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::tally::Tally;
use super::transaction::{Dataset, Worker};
use crate::random::SplitMix64;
use crate::system::Session;
use frond_client::{Error, Result};

/// Stack of a thread. It needs little, and there may be a thousand of them.
const STACK_BYTES: usize = 512 * 1024;

/// A slice of a level.
pub struct Slice<'a> {
    /// The collections that transactions use.
    pub dataset: &'a Dataset,
    /// Where they are counted.
    pub tally: &'a Tally,
    pub time: Duration,
    /// Random numbers are those of this seed …
    pub seed: u64,
    /// … and of this number, which no other slice of the run has.
    pub number: u64,
    /// Set when the user asked to stop.
    pub stop: &'a AtomicBool,
}

/// State that the threads of a slice share.
struct Shared<'a> {
    slice: &'a Slice<'a>,
    started: Instant,
    /// Set at the first error.
    failed: AtomicBool,
    error: Mutex<Option<Error>>,
    /// Time at work of all threads that are done, in nanoseconds.
    worked: AtomicU64,
    done: AtomicUsize,
}

impl Slice<'_> {
    /// Runs transactions, a thread for each session, until the time is up. A transaction that has
    /// begun is done to its end, so that no document stays deleted. `watch` is called on this thread
    /// every `every`, and once at the end, with the time since the start.
    pub fn run(
        &self,
        sessions: &mut [Box<dyn Session>],
        every: Duration,
        mut watch: impl FnMut(Duration) -> Result<()>,
    ) -> Result<()> {
        let threads = sessions.len();
        let shared = Shared {
            slice: self,
            started: Instant::now(),
            failed: AtomicBool::new(false),
            error: Mutex::new(None),
            worked: AtomicU64::new(0),
            done: AtomicUsize::new(0),
        };
        let watched = thread::scope(|scope| {
            let mut started = 0;
            for (index, session) in sessions.iter_mut().enumerate() {
                let shared = &shared;
                let work = move || shared.work(index, session.as_mut());
                let spawned = thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, work);
                match spawned {
                    Ok(_) => started += 1,
                    Err(error) => {
                        shared.fail(Error::Io("starting a thread".to_owned(), error));
                        break;
                    }
                }
            }
            let result = shared.sample(started, every, &mut watch);
            if result.is_err() {
                shared.failed.store(true, Ordering::Relaxed);
            }
            result
        });
        let worked = Duration::from_nanos(shared.worked.into_inner());
        self.tally.slice(worked / threads.max(1) as u32);
        let error = shared
            .error
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => Err(error),
            None => watched,
        }
    }
}

impl Shared<'_> {
    fn work(&self, index: usize, session: &mut dyn Session) {
        let done = CountOnDrop(&self.done);
        let slice = self.slice;
        // A thread's numbers are its own, however many threads a slice has.
        let stream = (slice.number << 16) | index as u64;
        let mut worker = Worker::new(slice.dataset, SplitMix64::new(slice.seed, stream));
        while self.started.elapsed() < slice.time
            && !slice.stop.load(Ordering::Relaxed)
            && !self.failed.load(Ordering::Relaxed)
        {
            match worker.transaction(session) {
                Ok(timings) => slice.tally.count(&timings),
                Err(error) => {
                    self.fail(error);
                    break;
                }
            }
        }
        let worked = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.worked.fetch_add(worked, Ordering::Relaxed);
        drop(done);
    }

    /// Ends the slice; the first error is kept.
    fn fail(&self, error: Error) {
        self.failed.store(true, Ordering::Relaxed);
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(error);
    }

    fn sample(
        &self,
        threads: usize,
        every: Duration,
        watch: &mut impl FnMut(Duration) -> Result<()>,
    ) -> Result<()> {
        const NAP: Duration = Duration::from_millis(20);
        let mut at = every;
        loop {
            let done = self.done.load(Ordering::Acquire) == threads;
            let now = self.started.elapsed();
            if done || now >= at {
                watch(now)?;
                at = now + every;
            }
            if done {
                return Ok(());
            }
            thread::sleep(NAP.min(at.saturating_sub(now)));
        }
    }
}

/// Counts a thread as done however it ends.
struct CountOnDrop<'a>(&'a AtomicUsize);

impl Drop for CountOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}
