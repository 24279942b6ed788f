//! The distribution of operations over their latencies.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use frond_bson::{DocBuf, doc};

/// Latencies are counted by their highest bit, and from 1 ms on by the next one too.
const BUCKETS: usize = 54;

/// From this bit on there are two buckets for each.
const FINE_FROM: u32 = 10;

/// Counts of operations by their latency. Each count stops at 2^32.
#[derive(Debug)]
pub struct Histogram([AtomicU32; BUCKETS]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram([const { AtomicU32::new(0) }; BUCKETS])
    }
}

/// The bucket of a latency in microseconds.
fn bucket(micros: u64) -> usize {
    let Some(bit) = micros.checked_ilog2() else {
        return 0;
    };
    let index = match bit.checked_sub(FINE_FROM) {
        None => bit,
        Some(above) => {
            let half = u32::from(micros & 1 << (bit - 1) != 0);
            FINE_FROM + 2 * above + half
        }
    };
    (index as usize).min(BUCKETS - 1)
}

/// The least latency of a bucket.
fn least(bucket: usize) -> i64 {
    let bucket = u32::try_from(bucket).unwrap_or(0);
    match bucket.checked_sub(FINE_FROM) {
        None if bucket == 0 => 0,
        None => 1 << bucket,
        Some(above) => {
            let power = 1i64 << (FINE_FROM + above / 2);
            power + power / 2 * i64::from(above % 2)
        }
    }
}

impl Histogram {
    pub fn add(&self, micros: u64) {
        if let Some(count) = self.0.get(bucket(micros)) {
            let before = count.fetch_add(1, Relaxed);
            if before == u32::MAX {
                count.store(u32::MAX, Relaxed);
            }
        }
    }

    /// Adds the counts of another one. Nothing else may add to this one meanwhile.
    pub fn add_all(&self, other: &Histogram) {
        for (count, more) in self.0.iter().zip(&other.0) {
            let sum = (count.load(Relaxed)).saturating_add(more.load(Relaxed));
            count.store(sum, Relaxed);
        }
    }

    /// The buckets that are not empty, as MongoDB shows them: each with its least latency.
    pub fn push_to(&self, out: &mut DocBuf) {
        out.push_array("histogram", |list| {
            for (at, count) in self.0.iter().enumerate() {
                let count = count.load(Relaxed);
                if count > 0 {
                    list.push(&doc! {"micros": least(at), "count": i64::from(count)});
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_histograms_stops_at_the_largest_count() {
        let (sum, few, full) = (
            Histogram::default(),
            Histogram::default(),
            Histogram::default(),
        );
        few.add(300);
        few.add(300);
        full.0[bucket(600)].store(u32::MAX, Relaxed);
        for part in [&few, &full, &full] {
            sum.add_all(part);
        }
        let mut shown = DocBuf::new();
        sum.push_to(&mut shown);
        let expected = doc! {"histogram": [
            {"micros": 256i64, "count": 2i64},
            {"micros": 512i64, "count": i64::from(u32::MAX)},
        ]};
        assert_eq!(shown, expected);
    }

    #[test]
    fn every_latency_is_in_the_bucket_that_begins_below_it() {
        let bounds: Vec<i64> = (0..BUCKETS).map(least).collect();
        assert!(bounds.is_sorted_by(|a, b| a < b), "{bounds:?}");
        assert_eq!(bounds[8..14], [256, 512, 1024, 1536, 2048, 3072]);
        let edges = bounds
            .iter()
            .flat_map(|bound| [bound - 1, *bound, bound + 1]);
        for micros in edges.filter(|micros| *micros >= 0).chain([i64::MAX]) {
            let at = bucket(micros as u64);
            assert!(bounds[at] <= micros, "{micros}");
            assert!(
                bounds.get(at + 1).is_none_or(|next| micros < *next),
                "{micros}"
            );
        }
    }
}
