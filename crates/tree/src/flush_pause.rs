//! Pauses in which the data file does not change, so that others may copy the files of a store.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use crate::engine::Engine;
use crate::store::Store;
use crate::{Error, Result};

/// While it lives, no memtable is flushed, nothing is compacted, and no checkpoint is written: the data file stays as it is.
/// Commits go on as long as there is room in memory. Dropping it ends the pause.
///
/// Whoever calls [`Store::checkpoint`], [`Store::compact`] or [`Store::close`] meanwhile waits for the end of the pause.
pub struct FlushPause {
    /// Dropping it wakes the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for FlushPause {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Store {
    /// Writes a checkpoint of everything that is committed, and begins a pause.
    ///
    /// # Errors
    /// Errors of the disk; the system refuses to start a thread.
    pub fn pause_flushing(&self) -> Result<FlushPause> {
        let engine = self.engine().clone();
        let (end, ended) = channel::<()>();
        let (report, reported) = channel();
        // The lock that is held during the pause belongs to a thread.
        let thread = std::thread::Builder::new()
            .name("flush-pause".to_owned())
            .spawn(move || {
                let engine: Arc<Engine> = engine;
                let outcome = engine.checkpoint_all();
                let _working = engine.flusher.working.lock();
                let is_paused = outcome.is_ok();
                let _ = report.send(outcome);
                if is_paused {
                    // Nothing is ever sent: this returns when the pause is dropped.
                    let _ = ended.recv();
                }
            })
            .map_err(Error::io("starting the thread of a pause"))?;
        let pause = FlushPause {
            end: Some(end),
            thread: Some(thread),
        };
        match reported.recv() {
            Ok(outcome) => outcome.map(|()| pause),
            Err(_) => Err(Error::Internal(frond_kv::PANICKED)),
        }
    }
}
