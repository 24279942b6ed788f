//! Random numbers for `$rand`, `$sampleRate` and `$sample`, which need no secrets.
//!
//! This is not a generator of the crate `rand`: several threads share one, once or more per document, through `&self`. An atomic
//! counter that is hashed takes no lock for that, while a generator of `rand` needs `&mut self`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// SplitMix64 (Steele, Lea, Flood 2014), for several threads.
#[derive(Debug)]
pub(crate) struct Random(AtomicU64);

impl Random {
    /// Always the same numbers for a seed.
    pub(crate) fn seeded(seed: u64) -> Random {
        Random(AtomicU64::new(seed))
    }

    /// Other numbers each time: the standard library seeds its hash maps randomly.
    pub(crate) fn new() -> Random {
        Random::seeded(RandomState::new().build_hasher().finish())
    }

    pub(crate) fn next(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let state = self.0.fetch_add(STEP, Ordering::Relaxed);
        let mut z = state.wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to below 1.
    pub(crate) fn fraction(&self) -> f64 {
        // A double has 53 bits.
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
