//! Memory limits of engines, together and each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The least limit of an engine, however many there are.
const HEAP_BYTES_MIN: usize = 8 << 20;

/// A lone engine may have this part of what all may have, the next one this part of the rest, and so on.
const SHARE: usize = 4;

/// The memory of all engines.
#[derive(Debug)]
pub struct Heaps {
    /// The limit of all engines together.
    total: usize,
    /// The most for one engine: `jsHeapLimitMB`.
    each: AtomicUsize,
    /// The sum of the limits of the engines that there are.
    granted: AtomicUsize,
}

/// The limit of one engine, given back when it is dropped.
#[derive(Debug)]
pub struct Grant {
    heaps: Arc<Heaps>,
    bytes: usize,
}

impl Heaps {
    /// `total` bytes for all engines, and `each` for one of them.
    pub fn new(total: usize, each: usize) -> Heaps {
        Heaps {
            total,
            each: AtomicUsize::new(each),
            granted: AtomicUsize::new(0),
        }
    }

    /// `bytes` for the only engine of this process.
    pub fn one(bytes: usize) -> Heaps {
        Heaps::new(bytes.saturating_mul(SHARE), bytes)
    }

    /// The most for one engine.
    pub fn each(&self) -> usize {
        self.each.load(Ordering::Relaxed)
    }

    /// Changes [`Heaps::each`] for engines that begin from now on.
    pub fn set_each(&self, bytes: usize) {
        self.each.store(bytes, Ordering::Relaxed);
    }

    /// The sum of the limits now.
    pub fn granted(&self) -> usize {
        self.granted.load(Ordering::Relaxed)
    }

    /// Memory for one more engine.
    pub fn grant(self: &Arc<Heaps>) -> Grant {
        let each = self.each();
        let share = |granted: usize| {
            let fair = self.total.saturating_sub(granted) / SHARE;
            fair.max(HEAP_BYTES_MIN).min(each)
        };
        let before = self
            .granted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |granted| {
                Some(granted.saturating_add(share(granted)))
            });
        let (Ok(before) | Err(before)) = before;
        Grant {
            heaps: self.clone(),
            bytes: share(before),
        }
    }
}

impl Grant {
    /// Bytes that the engine may have.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let subtract = |granted: usize| Some(granted.saturating_sub(self.bytes));
        let _ = (self.heaps.granted).fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn many_engines_share_what_all_may_have() {
        let heaps = Arc::new(Heaps::new(4096 * MIB, 1100 * MIB));
        let mut grants = vec![heaps.grant()];
        assert_eq!(grants[0].bytes(), 1024 * MIB);
        for _ in 1..64 {
            grants.push(heaps.grant());
        }
        assert!(grants.iter().all(|grant| grant.bytes() >= HEAP_BYTES_MIN));
        assert!(heaps.granted() <= (4096 + 64 * 8) * MIB);
        drop(grants);
        assert_eq!(heaps.granted(), 0);
        let one = Arc::new(Heaps::one(100 * MIB));
        assert_eq!(one.grant().bytes(), 100 * MIB);
        heaps.set_each(MIB);
        assert_eq!(heaps.grant().bytes(), MIB);
    }
}
