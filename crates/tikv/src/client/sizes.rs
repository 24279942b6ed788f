//! Estimates of the space that trees take.
//!
//! PD knows the size of each region, but a region may have many trees, and a small tree is only a part of one. So the first rows of a
//! tree are read. If the tree has no others, the size is theirs. Otherwise the estimate is their mean size times the number of rows that
//! the caller knows, within limits that PD sets: a tree has at least the regions that lie within it, and at most those that it has a
//! key in.
//!
//! A size is that of one copy. It is remembered for some seconds. `measure.rs` has the requests.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use frond_kv::TreeId;
use parking_lot::Mutex;

use crate::client::pd_http::RegionStats;
use crate::tree_size::TreeSize;

/// A size is measured again after this time.
const AGE_MAX: Duration = Duration::from_secs(10);
/// The most trees whose sizes are remembered.
const TREES_MAX: usize = 16 << 10;
/// The bytes that PD counts for a region without figures.
const REGION_BYTES_MIN: u64 = 1 << 20;

/// The measurements of trees.
#[derive(Default)]
pub(crate) struct Sizes {
    known: Mutex<HashMap<TreeId, (Instant, Measured)>>,
}

impl Sizes {
    pub(crate) fn get(&self, tree: TreeId) -> Option<Measured> {
        let known = self.known.lock();
        let found = known.get(&tree).filter(|(at, _)| at.elapsed() < AGE_MAX);
        found.map(|(_, measured)| *measured)
    }

    pub(crate) fn set(&self, tree: TreeId, measured: Measured) {
        let mut known = self.known.lock();
        if known.len() >= TREES_MAX {
            known.clear();
        }
        known.insert(tree, (Instant::now(), measured));
    }
}

/// The first rows of a tree, and the regions around it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) rows: u64,
    /// The bytes of the keys of these rows, and of all of them.
    pub(crate) key_bytes: u64,
    pub(crate) bytes: u64,
    /// Whether there are no other rows.
    pub(crate) is_all: bool,
    /// The regions within the tree, and those that it has a key in, if PD knows them.
    pub(crate) within: RegionStats,
    pub(crate) around: RegionStats,
}

impl Measured {
    /// The size of the tree if it has about this number of rows.
    pub(crate) fn estimate(&self, rows: u64) -> TreeSize {
        if self.is_all || self.rows == 0 {
            return TreeSize {
                bytes: self.bytes,
                key_bytes: self.key_bytes,
            };
        }
        let times = |part: u64, all: u64| {
            let product = u128::from(part) * u128::from(all) / u128::from(self.rows);
            u64::try_from(product).unwrap_or(u64::MAX)
        };
        let by_rows = times(self.bytes, rows.max(self.rows));
        let is_known = |stats: &RegionStats| stats.bytes > stats.regions * REGION_BYTES_MIN;
        let most = is_known(&self.around).then_some(self.around.bytes);
        let least = is_known(&self.within).then_some(self.within.bytes);
        let bytes = by_rows.min(most.unwrap_or(u64::MAX));
        let bytes = bytes.max(least.unwrap_or(0)).max(self.bytes.min(by_rows));
        let part = u128::from(bytes) * u128::from(self.key_bytes) / u128::from(self.bytes.max(1));
        TreeSize {
            bytes,
            key_bytes: u64::try_from(part).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn regions(regions: u64, mib: u64) -> RegionStats {
        RegionStats {
            regions,
            bytes: mib * MIB,
        }
    }

    #[test]
    fn sizes_are_those_of_rows_within_what_pd_knows() {
        let some = Measured {
            rows: 256,
            key_bytes: 256 * 100,
            bytes: 256 * 1000,
            ..Measured::default()
        };
        let all = Measured {
            is_all: true,
            around: regions(1, 96),
            ..some
        };
        let in_one = Measured {
            around: regions(1, 96),
            ..some
        };
        let in_several = Measured {
            within: regions(8, 800),
            around: regions(10, 1000),
            ..some
        };
        let unknown = Measured {
            around: regions(3, 3),
            within: regions(1, 1),
            ..some
        };
        let cases = [
            (Measured::default(), 1000, 0),
            (all, 1_000_000, 256_000),
            (some, 1000, 1_000_000),
            // The number of rows is older than what was read.
            (some, 10, 256_000),
            (in_one, 10_000, 10_000_000),
            (in_one, 1_000_000, 96 * MIB),
            (in_several, 1000, 800 * MIB),
            (in_several, 900_000, 900_000_000),
            (in_several, 10_000_000, 1000 * MIB),
            (unknown, 10_000, 10_000_000),
        ];
        for (measured, rows, bytes) in cases {
            let size = measured.estimate(rows);
            assert_eq!(size.bytes, bytes, "{measured:?} {rows}");
            assert_eq!(size.key_bytes, bytes / 10, "{measured:?} {rows}");
        }
    }
}
