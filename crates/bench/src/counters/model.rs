//! The values that counters must have.
//!
//! The model follows one counter of [`STRIDE`]. An atomic pair counts the additions to it that have begun and those that are acknowledged. A
//! reader takes the acknowledged ones before its read and those that have begun after it: the value lies between. At the end
//! both are equal, and the value is exact. The sum over all counters is compared with the number of all additions.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The workload follows one counter of each group of this size.
pub const STRIDE: u64 = 64;

pub struct Model {
    followed: Vec<Followed>,
    /// Additions to all counters.
    total: AtomicU64,
}

#[derive(Default)]
struct Followed {
    begun: AtomicU32,
    acknowledged: AtomicU32,
}

impl Model {
    pub fn new(counters: u64) -> Model {
        let followed = counters.div_ceil(STRIDE);
        Model {
            followed: (0..followed).map(|_| Followed::default()).collect(),
            total: AtomicU64::new(0),
        }
    }

    /// The number of counters that are followed.
    pub fn len(&self) -> u64 {
        self.followed.len() as u64
    }

    /// The key of the followed counter with this number.
    pub fn key(&self, number: u64) -> i64 {
        (number * STRIDE) as i64
    }

    fn followed(&self, key: i64) -> Option<&Followed> {
        let key = u64::try_from(key).ok()?;
        let number = usize::try_from(key / STRIDE).ok()?;
        key.is_multiple_of(STRIDE)
            .then(|| self.followed.get(number))
            .flatten()
    }

    /// Notes that additions are about to be sent.
    pub fn begin(&self, keys: &[i64]) {
        for one in keys.iter().filter_map(|key| self.followed(*key)) {
            one.begun.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Notes that they are acknowledged.
    pub fn acknowledge(&self, keys: &[i64]) {
        for one in keys.iter().filter_map(|key| self.followed(*key)) {
            one.acknowledged.fetch_add(1, Ordering::SeqCst);
        }
        self.total.fetch_add(keys.len() as u64, Ordering::SeqCst);
    }

    /// The least value that a read that begins now may find.
    pub fn least(&self, key: i64) -> i64 {
        self.followed(key)
            .map_or(0, |one| one.acknowledged.load(Ordering::SeqCst).into())
    }

    /// The greatest value that a read that has ended may have found.
    pub fn greatest(&self, key: i64) -> i64 {
        self.followed(key)
            .map_or(i64::MAX, |one| one.begun.load(Ordering::SeqCst).into())
    }

    /// The sum of all counters, once all additions are acknowledged.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_lies_between_the_acknowledged_and_the_begun_additions() {
        let model = Model::new(130);
        assert_eq!((model.len(), model.key(2)), (3, 128));
        let batch = [64, 64, 5, 128];
        model.begin(&batch);
        assert_eq!((model.least(64), model.greatest(64)), (0, 2));
        model.acknowledge(&batch);
        assert_eq!((model.least(64), model.greatest(64)), (2, 2));
        assert_eq!((model.least(128), model.greatest(128)), (1, 1));
        assert_eq!((model.least(0), model.greatest(0)), (0, 0));
        // Not followed.
        assert_eq!((model.least(5), model.greatest(5)), (0, i64::MAX));
        assert_eq!(model.total(), 4);
    }
}
