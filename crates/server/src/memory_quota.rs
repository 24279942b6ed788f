//! Memory for what arrives from clients and what they have not read yet.
//!
//! The memory budget of the process counts it. A [`MemoryQuota`] also bounds it: a connection that needs more than a few KiB
//! takes a [`Permit`] first, and waits for one without a thread where that is possible.
//!
//! Requests and replies have a quota each. A command holds its request while it makes its reply, so with one quota two
//! commands could wait for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use frond_error::{Error, ErrorCode, Result};
use frond_runtime::{MEMORY_WAITS_MAX, Waiting};
use frond_store::{MemoryBudget, MemoryUse, OpContext, Reservation};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::held_documents::HeldDocuments;
use crate::limits::REPLY_BYTES_MAX;
use crate::socket_memory::{Full, SocketMemory};

/// Permits are counted in units of this many bytes.
const UNIT: usize = 4 << 10;

/// The interval at which a waiting thread tries again.
const CHECK: Duration = Duration::from_millis(5);

/// The longest wait of a command for a reply that cannot be made smaller.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// While memory is scarce, a command that waits releases what it keeps at this interval.
const RELEASE_AFTER: Duration = Duration::from_millis(100);

/// The longest wait of one that cannot.
const SHORT_WAIT_MAX: Duration = Duration::from_millis(500);

/// A quota counts as short for this time after a request for memory had to wait.
const SHORT: Duration = Duration::from_secs(1);

/// A client that has neither sent nor read anything for this time while it holds memory loses its connection, if the quota is
/// short.
pub const STALLED: Duration = Duration::from_secs(5);

/// The limit that replaces [`STALLED`] for clients that do not read their replies while full sockets take much memory.
pub const STALLED_SOON: Duration = Duration::from_secs(2);

/// The memory that an operation can do without while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The pages that it reads.
    Pages,
    /// Memtables, and rows that can go to disk.
    Memory,
}

/// Memory that many connections share.
pub struct MemoryQuota {
    purpose: MemoryUse,
    memory: MemoryBudget,
    sockets: SocketMemory,
    units: Semaphore,
    capacity: usize,
    waiting: AtomicUsize,
    held: Arc<HeldDocuments>,
    /// Held by an operation that releases memory.
    releasing: Mutex<()>,
    began: Instant,
    /// Milliseconds from the beginning until which it counts as short.
    short_until: AtomicU64,
}

/// The quotas of a server.
pub struct MemoryQuotas {
    /// For requests, from their first bytes to their reply.
    pub requests: Arc<MemoryQuota>,
    /// For replies that are being made or sent.
    pub replies: Arc<MemoryQuota>,
}

impl MemoryQuotas {
    /// Quotas that are parts of the `bytes` for clients. A message that is larger than its quota takes all of it: with little memory
    /// there is one at a time.
    pub fn new(memory: &MemoryBudget, bytes: u64) -> MemoryQuotas {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let sockets = SocketMemory::new(memory);
        let quota = |purpose, bytes| MemoryQuota::beside(&sockets, memory, purpose, bytes);
        MemoryQuotas {
            requests: quota(MemoryUse::Requests, bytes / 3),
            replies: quota(MemoryUse::Replies, bytes / 4),
        }
    }
}

impl MemoryQuota {
    /// A quota of about `bytes` bytes.
    #[cfg(test)]
    pub fn new(memory: &MemoryBudget, purpose: MemoryUse, bytes: usize) -> Arc<MemoryQuota> {
        MemoryQuota::beside(&SocketMemory::new(memory), memory, purpose, bytes)
    }

    /// A quota of messages that come from these sockets or go there.
    pub fn beside(
        sockets: &SocketMemory,
        memory: &MemoryBudget,
        purpose: MemoryUse,
        bytes: usize,
    ) -> Arc<MemoryQuota> {
        let capacity = (bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Arc::new(MemoryQuota {
            purpose,
            memory: memory.clone(),
            sockets: sockets.clone(),
            units: Semaphore::new(capacity),
            capacity,
            waiting: AtomicUsize::new(0),
            held: HeldDocuments::new(memory, capacity.saturating_mul(UNIT)),
            releasing: Mutex::new(()),
            began: Instant::now(),
            short_until: AtomicU64::new(0),
        })
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.capacity.saturating_mul(UNIT)
    }

    /// Units for `bytes` bytes. What is larger than the quota takes all of it.
    fn units(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT).min(self.capacity)).unwrap_or(u32::MAX)
    }

    fn permit(self: &Arc<MemoryQuota>, units: u32, bytes: usize) -> Permit {
        Permit {
            quota: self.clone(),
            units,
            reservation: self.memory.reserve(self.purpose, bytes),
        }
    }

    /// A permit for this many bytes, if they are free.
    pub fn try_acquire(self: &Arc<MemoryQuota>, bytes: usize) -> Option<Permit> {
        let units = self.units(bytes);
        match self.units.try_acquire_many(units) {
            Ok(permit) => {
                permit.forget();
                Some(self.permit(units, bytes))
            }
            Err(_) => {
                let until = self.began.elapsed() + SHORT;
                let until = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
                self.short_until.store(until, Ordering::Relaxed);
                None
            }
        }
    }

    /// Waits for `bytes` bytes, without a thread. Those who wait get theirs in their order.
    pub async fn wait(self: &Arc<MemoryQuota>, bytes: usize) -> Permit {
        let units = self.units(bytes);
        let _waiting = Waiting::begin(&self.waiting);
        // It is never closed.
        if let Ok(permit) = self.units.acquire_many(units).await {
            permit.forget();
        }
        self.permit(units, bytes)
    }

    /// Waits for `bytes` bytes on this thread. While `is_scarce` the operation, which keeps memory itself, has to `release` that, one
    /// operation at a time. If it cannot, its wait is short.
    ///
    /// # Errors
    /// `ExceededMemoryLimit` (146) if too many wait or there is none for long; an interruption.
    pub fn wait_here(
        self: &Arc<MemoryQuota>,
        bytes: usize,
        limits: &OpContext,
        is_scarce: impl Fn() -> bool,
        release: &mut dyn FnMut(Release) -> Result<()>,
    ) -> Result<Permit> {
        if let Some(permit) = self.try_acquire(bytes) {
            return Ok(permit);
        }
        let _waiting = Waiting::begin(&self.waiting);
        release(Release::Pages)?;
        let began = Instant::now();
        let mut released_at = began;
        let mut keeps_memory = false;
        while self.waiting.load(Ordering::Relaxed) <= MEMORY_WAITS_MAX
            && began.elapsed() < WAIT_MAX
            && !(keeps_memory && began.elapsed() > SHORT_WAIT_MAX)
        {
            limits.check()?;
            std::thread::sleep(CHECK);
            if released_at.elapsed() > RELEASE_AFTER {
                keeps_memory = false;
                // Others may do it at this moment. It writes to disk, with buffers.
                if is_scarce()
                    && let Some(_turn) = self.releasing.try_lock()
                {
                    keeps_memory = release(Release::Memory).is_err();
                    released_at = Instant::now();
                }
            }
            if let Some(permit) = self.try_acquire(bytes) {
                return Ok(permit);
            }
        }
        Err(self.exceeded(bytes))
    }

    /// The documents of operations that wait for the room of a reply.
    pub fn held_documents(&self) -> &Arc<HeldDocuments> {
        &self.held
    }

    /// The error of a reply of `bytes` bytes that finds no room.
    pub fn exceeded(&self, bytes: usize) -> Error {
        Error::new(
            ErrorCode::ExceededMemoryLimit,
            format!(
                "there is no memory for a reply of {bytes} bytes: clients have not read {} bytes of other replies. \
                 Try again later, ask for fewer fields, or give the server more memory",
                self.memory.used(self.purpose)
            ),
        )
    }

    /// Counts what the system holds for a socket that is full. `None` if sockets hold too much: then the connection has to be closed.
    pub fn in_socket(&self, full: Full) -> Option<Reservation> {
        self.sockets.hold(full)
    }

    /// Whether sockets hold so much that clients that do not read should soon lose their connections.
    pub fn sockets_are_short(&self) -> bool {
        self.sockets.is_short()
    }

    /// Counts memory that exists already, whether or not the quota allows it.
    pub fn count(&self, bytes: usize) -> Reservation {
        self.memory.reserve(self.purpose, bytes)
    }

    /// Whether more is counted than the quota allows, and more than the largest reply.
    pub fn is_exceeded(&self) -> bool {
        let most = self.bytes().max(REPLY_BYTES_MAX + UNIT);
        self.memory.used(self.purpose) > most as u64
    }

    /// Whether a client waits, a request for memory was refused lately, or more is counted than the quota allows.
    pub fn is_short(&self) -> bool {
        let short_until = self.short_until.load(Ordering::Relaxed);
        self.waiting.load(Ordering::Relaxed) > 0
            || self.memory.used(self.purpose) > self.bytes() as u64
            || self.began.elapsed().as_millis() < u128::from(short_until)
    }
}

/// A part of a quota, given back on drop.
pub struct Permit {
    quota: Arc<MemoryQuota>,
    units: u32,
    reservation: Reservation,
}

impl Permit {
    /// Gives back what is not needed.
    pub fn shrink_to(&mut self, bytes: usize) {
        let units = self.quota.units(bytes);
        if let Some(more) = self.units.checked_sub(units) {
            self.units = units;
            self.quota.units.add_permits(more as usize);
            self.reservation.resize(bytes);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.quota.units.add_permits(self.units as usize);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn memory_is_granted_up_to_the_quota_and_given_back() {
        let memory = MemoryBudget::for_clients(100 << 20);
        let quota = MemoryQuota::new(&memory, MemoryUse::Replies, 1 << 20);
        let mut first = quota.try_acquire(800 << 10).unwrap();
        assert_eq!(memory.used(MemoryUse::Replies), 800 << 10);
        assert!(!quota.is_short() && quota.try_acquire(300 << 10).is_none());
        assert!(quota.is_short());
        let limits = OpContext::with_deadline(Some(Instant::now() + Duration::from_millis(20)));
        let mut nothing = |_| Ok(());
        let error = quota.wait_here(300 << 10, &limits, || false, &mut nothing);
        assert_eq!(error.err().unwrap().code(), ErrorCode::MaxTimeMSExpired);
        first.shrink_to(100 << 10);
        let second = quota.try_acquire(900 << 10).unwrap();
        // More than there ever is takes all.
        let (all, ()) = tokio::join!(quota.wait(5 << 20), async {
            tokio::task::yield_now().await;
            drop((first, second));
        });
        assert_eq!(memory.used(MemoryUse::Replies), 5 << 20);
        drop(all);
        assert_eq!(memory.used(MemoryUse::Replies), 0);
        assert!(!quota.is_exceeded());
        let _over = quota.count(2 << 20);
        assert!(quota.is_short() && !quota.is_exceeded());
        let _more = quota.count(15 << 20);
        assert!(quota.is_exceeded(), "more than a reply that takes all");
    }

    /// Queries that waited kept the memtables of their snapshots: 75 MiB of a server in 256 MiB.
    #[test]
    fn an_operation_that_waits_releases_what_it_keeps_or_ends_soon() {
        let memory = MemoryBudget::for_clients(100 << 20);
        let quota = MemoryQuota::new(&memory, MemoryUse::Replies, 1 << 20);
        let others = quota.try_acquire(1 << 20).unwrap();
        let failing = &mut |what| match what {
            Release::Pages => Ok(()),
            Release::Memory => Err(Error::new(ErrorCode::InternalError, "a full disk")),
        };
        let error = quota.wait_here(300 << 10, &OpContext::new(), || true, failing);
        let code = error.err().unwrap().code();
        assert_eq!(code, ErrorCode::ExceededMemoryLimit);
        let mut others = Some(others);
        let (began, mut releases) = (Instant::now(), 0);
        let waited = quota.wait_here(300 << 10, &OpContext::new(), || true, &mut |_| {
            releases += 1;
            if began.elapsed() > 2 * SHORT_WAIT_MAX {
                others = None;
            }
            Ok(())
        });
        assert!(waited.is_ok());
        assert!(releases > 1, "once only");
    }
}
