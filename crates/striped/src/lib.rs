//! Figures that many threads write to at the same time.
//!
//! A counter that all threads share costs each of them a miss of the processor's cache, because the cache line of the counter moves
//! from core to core. Here each thread, or each few of them, add to a copy in a cache line of its own, and a reader adds the copies up,
//! as Java's `LongAdder` does.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of copies. Threads beyond this number share them.
pub const STRIPES: usize = 16;

thread_local! {
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

/// The number of the copies of this thread.
pub fn stripe() -> usize {
    STRIPE.with(|stripe| *stripe)
}

/// Several copies of `T`, one for each group of threads.
#[derive(Debug, Default)]
pub struct Striped<T>([CacheLine<T>; STRIPES]);

/// A value that shares its cache line with no other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CacheLine<T>(T);

impl<T> Striped<T> {
    /// The copy of this thread. Other threads may write to it, too.
    pub fn own(&self) -> &T {
        &self.0[stripe()].0
    }

    /// The copies of all threads.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|line| &line.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn what_all_threads_add_is_the_sum_of_the_copies() {
        let count = Striped::<AtomicU64>::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * STRIPES + 1 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        count.own().fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let sum: u64 = count.iter().map(|part| part.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, (2 * STRIPES as u64 + 1) * 1_000);
    }

    #[test]
    fn copies_lie_in_different_cache_lines() {
        let count = Striped::<AtomicU64>::default();
        let lines: Vec<usize> = (count.iter())
            .map(|part| std::ptr::from_ref(part).addr() / 64)
            .collect();
        assert!(lines.is_sorted_by(|a, b| a < b), "{lines:?}");
    }
}
