//! The lock of `fsync` with `lock: true`: writes wait, and the data files stay as they are, so that they can be copied.
//!
//! Each write holds the lock shared while it runs. The lock itself is held by a thread of its own, because the client that asked
//! for it may be gone when another one unlocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use frond_error::{Error, ErrorCode, Result};
use frond_store::DocumentStore;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

/// The interval at which a waiting write or lock checks for an interruption.
const LOOK: Duration = Duration::from_millis(20);

/// The description of the wait in `currentOp`.
pub const WAIT: &str = "fsyncUnlock";

/// The description of the wait of `fsync` itself.
pub const LOCK_WAIT: &str = "the end of writes";

#[derive(Default)]
pub struct FsyncLock {
    writes: Arc<RwLock<()>>,
    /// Whether a lock waits for the writes before it. Later ones wait meanwhile, although it tries to lock again and again.
    is_wanted: Arc<AtomicBool>,
    /// Held while one is locked.
    locking: Mutex<()>,
    holder: Mutex<Option<Holder>>,
}

/// The holders of the lock.
struct Holder {
    /// The number of locks that are not unlocked yet.
    count: i64,
    /// Dropping it ends the thread.
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Holder {
    fn release(self) {
        drop(self.end);
        let _ = self.thread.join();
    }
}

/// Keeps new writes waiting while a lock waits for those before it, until it is dropped.
struct Wanted(Arc<AtomicBool>);

impl Wanted {
    fn begin(flag: &Arc<AtomicBool>) -> Wanted {
        flag.store(true, Ordering::SeqCst);
        Wanted(flag.clone())
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl FsyncLock {
    /// Begins a write. While the lock is held it waits, calling `check` again and again, the first time before it has waited.
    ///
    /// # Errors
    /// Those of `check`.
    pub fn write(&self, mut check: impl FnMut() -> Result<()>) -> Result<RwLockReadGuard<'_, ()>> {
        if let Some(guard) = self.try_write() {
            return Ok(guard);
        }
        loop {
            check()?;
            if self.is_wanted.load(Ordering::SeqCst) {
                std::thread::sleep(LOOK);
            } else if let Some(guard) = self.writes.try_read_for(LOOK) {
                return Ok(guard);
            }
        }
    }

    /// Begins a write, unless the lock is held or wanted.
    pub fn try_write(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let is_wanted = self.is_wanted.load(Ordering::SeqCst);
        (!is_wanted).then(|| self.writes.try_read()).flatten()
    }

    /// The number of locks that are not unlocked yet.
    pub fn count(&self) -> i64 {
        self.holder.lock().as_ref().map_or(0, |holder| holder.count)
    }

    /// Locks: waits for the writes that have begun, for `timeout` at most, and writes a checkpoint. One that is locked is locked
    /// once more. Returns how often it is locked. `check` is called again and again while it waits.
    ///
    /// # Errors
    /// `LockTimeout` (24), errors of the store and of `check`.
    pub fn lock(
        &self,
        store: &DocumentStore,
        timeout: Duration,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<i64> {
        let _locking = loop {
            if let Some(locking) = self.locking.try_lock_for(LOOK) {
                break locking;
            }
            check()?;
        };
        if let Some(holder) = &mut *self.holder.lock() {
            holder.count += 1;
            return Ok(holder.count);
        }
        // It ends before the next one is locked.
        let _wanted = Wanted::begin(&self.is_wanted);
        let is_wanted = self.is_wanted.clone();
        let until = Instant::now() + timeout;
        let (writes, store) = (self.writes.clone(), store.clone());
        let (end, ended) = channel::<()>();
        let (tell, told) = channel();
        let thread = std::thread::Builder::new()
            .name("fsync-lock".to_owned())
            .spawn(move || {
                let _writes = loop {
                    if let Some(writes) = writes.try_write_for(LOOK) {
                        break writes;
                    }
                    if !is_wanted.load(Ordering::SeqCst) {
                        return;
                    }
                    if Instant::now() >= until {
                        let message = "Fsync lock timed out";
                        let _ = tell.send(Err(Error::new(ErrorCode::LockTimeout, message)));
                        return;
                    }
                };
                match store.pause_flushing() {
                    Ok(_pause) => {
                        let _ = tell.send(Ok(()));
                        // Nothing is ever sent: this returns when the lock is released.
                        let _ = ended.recv();
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error.into()));
                    }
                }
            })
            .map_err(|error| Error::new(ErrorCode::InternalError, error.to_string()))?;
        let died = || Error::new(ErrorCode::InternalError, "the thread of the lock has ended");
        loop {
            match told.recv_timeout(LOOK) {
                Ok(locked) => break locked?,
                Err(RecvTimeoutError::Timeout) => check()?,
                Err(RecvTimeoutError::Disconnected) => return Err(died()),
            }
        }
        let count = 1;
        *self.holder.lock() = Some(Holder { count, end, thread });
        Ok(count)
    }

    /// Unlocks once. Returns how often it is still locked.
    ///
    /// # Errors
    /// `IllegalOperation` (20) if it is not locked.
    pub fn unlock(&self) -> Result<i64> {
        let mut current = self.holder.lock();
        let Some(holder) = &mut *current else {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                "fsyncUnlock called when not locked",
            ));
        };
        holder.count -= 1;
        let count = holder.count;
        if count == 0
            && let Some(holder) = current.take()
        {
            holder.release();
        }
        Ok(count)
    }

    /// Unlocks at the shutdown of the server, however often it was locked.
    pub fn release(&self) {
        if let Some(holder) = self.holder.lock().take() {
            holder.release();
        }
    }

    /// Refuses what would write into the data files.
    ///
    /// # Errors
    /// `IllegalOperation` (20) while it is locked.
    pub fn check_unlocked(&self, what: &str) -> Result<()> {
        match self.count() {
            0 => Ok(()),
            _ => Err(Error::new(
                ErrorCode::IllegalOperation,
                format!(
                    "{what} is not possible while the server is locked by fsync; run fsyncUnlock first"
                ),
            )),
        }
    }
}
