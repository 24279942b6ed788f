//! Random numbers for ids, not for secrets.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// 64 random bits. Each new `RandomState` of the standard library has random keys.
pub fn bits() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(CALLS.fetch_add(1, Ordering::Relaxed));
    hasher.finish()
}

/// 16 random bytes.
pub fn bytes() -> [u8; 16] {
    let mut out = [0; 16];
    for (place, byte) in out
        .iter_mut()
        .zip(bits().to_le_bytes().into_iter().chain(bits().to_le_bytes()))
    {
        *place = byte;
    }
    out
}

/// A new UUID, version 4 (random).
pub fn uuid() -> [u8; 16] {
    let mut uuid = bytes();
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ() {
        let mut seen: Vec<u64> = (0..1000).map(|_| bits()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
        assert_ne!(bytes(), bytes());
        let uuid = uuid();
        assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (4, 2));
    }
}
