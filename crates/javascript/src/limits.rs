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
    reserved: AtomicUsize,
}

/// The limit of one engine, given back when it is dropped.
#[derive(Debug)]
pub struct HeapReservation {
    heaps: Arc<Heaps>,
    bytes: usize,
}

impl Heaps {
    /// `total` bytes for all engines, and `each` for one of them.
    pub fn new(total: usize, each: usize) -> Heaps {
        Heaps {
            total,
            each: AtomicUsize::new(each),
            reserved: AtomicUsize::new(0),
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
    pub fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Memory for one more engine.
    pub fn reserve(self: &Arc<Heaps>) -> HeapReservation {
        let each = self.each();
        let share = |reserved: usize| {
            let fair = self.total.saturating_sub(reserved) / SHARE;
            fair.max(HEAP_BYTES_MIN).min(each)
        };
        let before = self
            .reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reserved| {
                Some(reserved.saturating_add(share(reserved)))
            });
        let (Ok(before) | Err(before)) = before;
        HeapReservation {
            heaps: self.clone(),
            bytes: share(before),
        }
    }
}

impl HeapReservation {
    /// Bytes that the engine may have.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HeapReservation {
    fn drop(&mut self) {
        let subtract = |reserved: usize| Some(reserved.saturating_sub(self.bytes));
        let _ = (self.heaps.reserved).fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn many_engines_share_what_all_may_have() {
        let heaps = Arc::new(Heaps::new(4096 * MIB, 1100 * MIB));
        let mut grants = vec![heaps.reserve()];
        assert_eq!(grants[0].bytes(), 1024 * MIB);
        for _ in 1..64 {
            grants.push(heaps.reserve());
        }
        assert!(
            grants
                .iter()
                .all(|reserve| reserve.bytes() >= HEAP_BYTES_MIN)
        );
        assert!(heaps.reserved() <= (4096 + 64 * 8) * MIB);
        drop(grants);
        assert_eq!(heaps.reserved(), 0);
        let one = Arc::new(Heaps::one(100 * MIB));
        assert_eq!(one.reserve().bytes(), 100 * MIB);
        heaps.set_each(MIB);
        assert_eq!(heaps.reserve().bytes(), MIB);
    }
}
