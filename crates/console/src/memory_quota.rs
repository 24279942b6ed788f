//! A quota of memory for large requests and replies, so that all of them together take a bounded part of memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use frond_http::Refusal;

/// Kibibytes of all requests and replies that are read, converted and sent at the same time.
const QUOTA_KIB: u32 = 32 << 10;

/// A request or a reply in JSON, with its source, takes this many times the bytes of one of them.
const FACTOR: usize = 4;

/// Requests and replies of at most this size take nothing of it: there are no more of them than connections.
pub const SMALL_BYTES: usize = 16 << 10;

/// The longest wait for memory, and for a turn to log in.
pub const WAIT_MAX: Duration = Duration::from_secs(10);

/// The memory for the large requests and replies of a console.
pub struct MemoryQuota(Arc<Semaphore>);

impl Default for MemoryQuota {
    fn default() -> MemoryQuota {
        MemoryQuota(Arc::new(Semaphore::new(QUOTA_KIB as usize)))
    }
}

/// A part of the quota; `None` for what is small.
pub type Permit = Option<OwnedSemaphorePermit>;

impl MemoryQuota {
    /// Waits for memory for a request or a reply of this size. A request must not hold any while it waits for that of its reply.
    ///
    /// # Errors
    /// A refusal with this message if there is none for a while.
    pub async fn take(&self, length: usize, message: &'static str) -> Result<Permit, Refusal> {
        if length <= SMALL_BYTES {
            return Ok(None);
        }
        let part = self.0.clone().acquire_many_owned(kib(length, FACTOR));
        match tokio::time::timeout(WAIT_MAX, part).await {
            Ok(Ok(part)) => Ok(Some(part)),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(Refusal::busy(message)),
        }
    }
}

/// Gives back what a text does not need that is all that remains of a request or a reply.
pub fn keep_for_text(part: &mut Permit, length: usize) {
    if let Some(part) = part {
        let more = part.num_permits().saturating_sub(kib(length, 1) as usize);
        drop(part.split(more));
    }
}

fn kib(length: usize, factor: usize) -> u32 {
    let kib = length.saturating_mul(factor).div_ceil(1 << 10);
    u32::try_from(kib).unwrap_or(QUOTA_KIB).clamp(1, QUOTA_KIB)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_and_the_wait_for_it_too() {
        let memory_quota = MemoryQuota::default();
        assert!(memory_quota.take(SMALL_BYTES, "").await.unwrap().is_none());
        let mut all = memory_quota.take(64 << 20, "").await.unwrap();
        let waits = tokio::time::Instant::now();
        assert!(memory_quota.take(1 << 20, "later").await.is_err());
        assert_eq!(waits.elapsed(), WAIT_MAX);
        // A small one never waits.
        assert!(memory_quota.take(SMALL_BYTES, "").await.is_ok());
        keep_for_text(&mut all, 8 << 20);
        assert_eq!(memory_quota.0.available_permits(), 24 << 10);
        assert!(memory_quota.take(6 << 20, "").await.is_ok());
        keep_for_text(&mut all, 1 << 30);
        assert_eq!(memory_quota.0.available_permits(), 24 << 10);
        drop(all);
        assert_eq!(memory_quota.0.available_permits(), 32 << 10);
    }
}
