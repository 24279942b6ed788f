//! Random numbers that a seed repeats.
//!
//! This is not a generator of the crate `rand`: a seed and a number define the documents of a workload, also in reports of earlier
//! runs, and `rand` may change its generators in any version.

/// Steele, Lea and Flood's SplitMix64 ("Fast splittable pseudorandom number generators", 2014):
/// a counter, hashed. Two multiplications a number.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The stream of random numbers that belongs to one document, or to one of anything else.
    pub fn new(seed: u64, number: u64) -> Self {
        // Both go through the hash, so near seeds and near numbers share nothing.
        let mut of_seed = SplitMix64(seed);
        SplitMix64(of_seed.next() ^ SplitMix64(number).next().rotate_left(32))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, by taking the high half of a product.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Puts the items into a random order: each order is as likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffled_items_are_all_there_in_an_order_of_their_own() {
        let mut items: Vec<u32> = (0..1000).collect();
        SplitMix64::new(1, 1).shuffle(&mut items);
        let mut again: Vec<u32> = (0..1000).collect();
        SplitMix64::new(1, 1).shuffle(&mut again);
        assert_eq!(items, again);
        assert!(!items.is_sorted());
        let in_place = (0..1000).zip(&items).filter(|(n, item)| n == *item).count();
        assert!(in_place < 10, "{in_place}");
        items.sort_unstable();
        assert!(items.into_iter().eq(0..1000));
        SplitMix64::new(1, 1).shuffle::<u32>(&mut []);
    }
}
