//! Makes a store durable every 100 ms, for engines that leave that to their users.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Error, Result};

/// How long a write may wait for its sync.
pub const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// A thread that calls a function every 100 ms if something was written.
pub struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Default)]
struct Shared {
    written: AtomicBool,
    stop: AtomicBool,
    failed: AtomicBool,
}

impl Syncer {
    pub fn start(mut sync: impl FnMut() -> Result<()> + Send + 'static) -> Syncer {
        let shared = Arc::new(Shared::default());
        let seen = shared.clone();
        let thread = std::thread::spawn(move || {
            while !seen.stop.load(Ordering::Acquire) {
                std::thread::sleep(SYNC_INTERVAL);
                if seen.written.swap(false, Ordering::AcqRel)
                    && let Err(error) = sync()
                {
                    seen.failed.store(true, Ordering::Release);
                    return Err(error);
                }
            }
            Ok(())
        });
        Syncer {
            shared,
            thread: Some(thread),
        }
    }

    /// Notes that something was written. Fails if a sync failed.
    pub fn note_write(&self) -> Result<()> {
        // A load first: most writes find the mark set, and then need not own its cache line.
        if !self.shared.written.load(Ordering::Relaxed) {
            self.shared.written.store(true, Ordering::Release);
        }
        if self.shared.failed.load(Ordering::Relaxed) {
            return Err(Error::Engine("syncing", "a sync failed".to_owned()));
        }
        Ok(())
    }

    pub fn stop(&mut self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Release);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::Engine("syncing", "the thread panicked".to_owned())),
            None => Ok(()),
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        // The store is given up; an error was seen by the next write.
        let _ = self.stop();
    }
}
