//! The second tier of the page cache: compressed blocks, in a log of segments.
//!
//! A block is a third of its page or less, so this tier holds several times as many pages as the first one, and a miss of the
//! first tier costs a decompression instead of a read of the device. Blocks are appended to segments of one size. Eviction frees
//! the oldest segment, and appends those of its blocks again that were used meanwhile: first in, first out with reinsertion,
//! which is CLOCK on a log. So memory is neither rounded up per block nor fragmented, and shrinking the tier returns whole
//! segments to the allocator.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};

use frond_kv::IdentityHasher;
use parking_lot::Mutex;

use super::Key;

/// The header of a block in its segment: run (8 bytes), page (4), length (4).
const HEADER_BYTES: usize = 16;
/// The overhead of a block outside of its segment, in bytes: its share of the table.
const ENTRY_COST: u64 = 56;
/// The size of a segment; with little memory it is smaller.
const SEGMENT_BYTES_MAX: u64 = 256 << 10;
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// A segment has at most this share of the memory of its shard.
const SEGMENT_SHARE: u64 = 64;
/// One shard per this many bytes, so that threads seldom wait for each other.
const SHARD_BYTES: u64 = 32 << 20;
const SHARDS_MAX: u64 = 16;
/// A shard that may have fewer segments than this stays empty.
const SEGMENTS_MIN: u64 = 4;
/// Once one insertion has gone through this number of segments, it evicts used blocks, too.
const REINSERTED_SEGMENTS_MAX: usize = 4;

/// Where a block is.
struct Place {
    /// The number of its segment.
    segment: u32,
    at: u32,
    /// Whether it was used since it was appended.
    used: bool,
}

struct Segment {
    bytes: Vec<u8>,
    /// Bytes of the blocks that were not removed, with their headers.
    live: usize,
}

/// H2: each place is that of a block in a segment, and each block is live until it is removed or evicted.
#[derive(Default)]
struct Shard {
    places: HashMap<Key, Place, BuildHasherDefault<IdentityHasher>>,
    /// From the oldest to the one that is appended to.
    segments: VecDeque<Segment>,
    /// The number of the first segment. Numbers wrap around.
    first: u32,
    /// H3: the sum of the capacities of the segments.
    allocated: u64,
    /// H4: the bytes of the blocks that were not removed, with their headers: the sum over the segments.
    live: u64,
}

/// Is notified of evicted blocks, with their bytes.
type Evicted<'a> = dyn FnMut(Key, usize) + 'a;

/// Compressed blocks by run and page number.
pub(super) struct BlockTier {
    shards: Box<[Mutex<Shard>]>,
    segment_bytes: usize,
    bytes: AtomicU64,
}

impl BlockTier {
    /// An empty tier, which will be given at most `bytes`.
    pub(super) fn new(bytes: u64) -> BlockTier {
        let shards = (bytes / SHARD_BYTES).clamp(1, SHARDS_MAX);
        let segment = bytes / shards / SEGMENT_SHARE;
        BlockTier {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            segment_bytes: segment.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX) as usize,
            bytes: AtomicU64::new(0),
        }
    }

    fn shard(&self, key: Key) -> &Mutex<Shard> {
        // The table uses the low bits and the highest ones.
        &self.shards[(key.mixed() >> 40) as usize % self.shards.len()]
    }

    /// The part of `limit` that a shard gets.
    fn shard_limit(&self, limit: u64) -> u64 {
        let part = limit / self.shards.len() as u64;
        if part < SEGMENTS_MIN * self.segment_bytes as u64 {
            0
        } else {
            part
        }
    }

    /// Bytes of memory that the tier takes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether no block has to be evicted soon for a new one, if the tier may take `limit` bytes.
    pub(super) fn has_room(&self, limit: u64) -> bool {
        let reserve = 2 * self.shards.len() as u64 * self.segment_bytes as u64;
        self.bytes() + reserve < limit
    }

    /// Bytes of the blocks that the tier holds.
    pub(super) fn live(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().live).sum()
    }

    /// Runs a change of a shard, and accounts for it.
    fn change<T>(&self, shard: &mut Shard, change: impl FnOnce(&mut Shard) -> T) -> T {
        let before = shard.weight();
        let result = change(shard);
        let after = shard.weight();
        // Wraps around for a smaller weight, as intended.
        (self.bytes).fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        result
    }

    /// Replaces `out` with a block, and returns whether it was used before; `None` if it is not here. `is_use` indicates whether this
    /// counts as a use.
    pub(super) fn get(&self, key: Key, is_use: bool, out: &mut Vec<u8>) -> Option<bool> {
        if self.bytes() == 0 {
            return None;
        }
        let mut shard = self.shard(key).lock();
        let shard = &mut *shard;
        let place = shard.places.get_mut(&key)?;
        let segment = place.segment.wrapping_sub(shard.first) as usize;
        let segment = shard.segments.get(segment)?;
        let (_, block) = read(&segment.bytes, place.at as usize)?;
        let was_used = place.used;
        place.used |= is_use;
        out.clear();
        out.extend_from_slice(block);
        Some(was_used)
    }

    /// Whether a block is here.
    pub(super) fn holds(&self, key: Key) -> bool {
        self.bytes() > 0 && self.shard(key).lock().places.contains_key(&key)
    }

    /// Adds a block, and evicts others while the tier would have more than `limit` bytes. A block that the limit is too
    /// small for counts as evicted at once.
    pub(super) fn insert(&self, key: Key, block: &[u8], limit: u64, evicted: &mut Evicted<'_>) {
        let limit = self.shard_limit(limit);
        let need = HEADER_BYTES + block.len();
        let mut shard = self.shard(key).lock();
        self.change(&mut shard, |shard| {
            // A block that takes much of a shard would evict too many others.
            if need as u64 > limit / 8 {
                shard.evict_to(limit, self.segment_bytes, evicted);
                evicted(key, block.len());
            } else if !shard.places.contains_key(&key) {
                let fits = shard
                    .segments
                    .back()
                    .is_some_and(|last| last.has_room(need));
                let more = if fits {
                    0
                } else {
                    self.segment_bytes.max(need) as u64
                };
                assert!(more <= limit, "H3: a segment is larger than its shard");
                shard.evict_to(limit - more, self.segment_bytes, evicted);
                shard.append(key, block, self.segment_bytes);
            }
        });
    }

    /// Evicts blocks until the tier has at most about `limit` bytes.
    pub(super) fn trim(&self, limit: u64, evicted: &mut Evicted<'_>) {
        let limit = self.shard_limit(limit);
        for shard in &self.shards {
            let mut shard = shard.lock();
            self.change(&mut shard, |shard| {
                shard.evict_to(limit, self.segment_bytes, evicted);
            });
        }
    }

    pub(super) fn remove(&self, key: Key) {
        if self.bytes() == 0 {
            return;
        }
        let mut shard = self.shard(key).lock();
        self.change(&mut shard, |shard| shard.remove(key));
    }
}

impl Segment {
    fn has_room(&self, need: usize) -> bool {
        self.bytes.capacity() - self.bytes.len() >= need
    }
}

/// The key and the bytes of the block at an offset of a segment.
fn read(bytes: &[u8], at: usize) -> Option<(Key, &[u8])> {
    let (header, rest) = bytes.get(at..)?.split_first_chunk::<HEADER_BYTES>()?;
    let (run, rest_of_header) = header.split_first_chunk::<8>()?;
    let (page, len) = rest_of_header.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len.first_chunk()?) as usize;
    let (run, page) = (u64::from_le_bytes(*run), u32::from_le_bytes(*page));
    let key = Key { run, page };
    Some((key, rest.get(..len)?))
}

impl Shard {
    fn weight(&self) -> u64 {
        self.allocated + self.places.len() as u64 * ENTRY_COST
    }

    /// Appends a block that is not here.
    fn append(&mut self, key: Key, block: &[u8], segment_bytes: usize) {
        let need = HEADER_BYTES + block.len();
        if !(self.segments.back()).is_some_and(|last| last.has_room(need)) {
            let bytes = Vec::with_capacity(segment_bytes.max(need));
            self.allocated += bytes.capacity() as u64;
            self.segments.push_back(Segment { bytes, live: 0 });
        }
        let number = self.first.wrapping_add(self.segments.len() as u32 - 1);
        let Some(last) = self.segments.back_mut() else {
            return;
        };
        assert!(last.has_room(need), "H3: a segment has no room for a block");
        let at = last.bytes.len() as u32;
        last.bytes.extend_from_slice(&key.run.to_le_bytes());
        last.bytes.extend_from_slice(&key.page.to_le_bytes());
        last.bytes
            .extend_from_slice(&(block.len() as u32).to_le_bytes());
        last.bytes.extend_from_slice(block);
        last.live += need;
        self.live += need as u64;
        let place = Place {
            segment: number,
            at,
            used: false,
        };
        let before = self.places.insert(key, place);
        assert!(
            before.is_none_or(|before| before.segment != number),
            "H2: a segment has a block twice"
        );
    }

    /// Evicts the oldest segments until `limit` is kept.
    fn evict_to(&mut self, limit: u64, segment_bytes: usize, evicted: &mut Evicted<'_>) {
        let mut gone_through = 0;
        while self.weight() > limit && !self.segments.is_empty() {
            // Blocks of a segment with many removed ones stay while the others would fit without those.
            let without = self.live + self.places.len() as u64 * ENTRY_COST;
            let has_garbage = without + without / 8 < limit;
            let keeps = gone_through < REINSERTED_SEGMENTS_MAX && limit > 0;
            self.evict_segment(segment_bytes, keeps, has_garbage, evicted);
            gone_through += 1;
        }
        if self.segments.is_empty() {
            self.places = HashMap::default();
        }
    }

    /// Frees the oldest segment. Its blocks that were used are appended again if `keeps`, and all of them if
    /// `keeps_all` too.
    fn evict_segment(
        &mut self,
        segment_bytes: usize,
        keeps: bool,
        keeps_all: bool,
        evicted: &mut Evicted<'_>,
    ) {
        let number = self.first;
        let Some(segment) = self.segments.pop_front() else {
            return;
        };
        self.first = self.first.wrapping_add(1);
        self.subtract(segment.live, segment.bytes.capacity());
        let mut at = 0;
        while let Some((key, block)) = read(&segment.bytes, at) {
            let is_here = |place: &&Place| place.segment == number && place.at as usize == at;
            if let Some(place) = self.places.get(&key).filter(is_here) {
                if keeps && (keeps_all || place.used) {
                    self.append(key, block, segment_bytes);
                } else {
                    self.places.remove(&key);
                    evicted(key, block.len());
                }
            }
            at += HEADER_BYTES + block.len();
        }
    }

    fn remove(&mut self, key: Key) {
        let Some(place) = self.places.remove(&key) else {
            return;
        };
        let segment = place.segment.wrapping_sub(self.first) as usize;
        let Some(segment) = self.segments.get_mut(segment) else {
            return;
        };
        if let Some((_, block)) = read(&segment.bytes, place.at as usize) {
            let bytes = HEADER_BYTES + block.len();
            assert!(
                segment.live >= bytes,
                "H4: more of a segment is removed than is live"
            );
            segment.live -= bytes;
            self.subtract(bytes, 0);
        }
        while self.segments.len() > 1 && self.segments[0].live == 0 {
            let capacity = self.segments[0].bytes.capacity();
            self.segments.pop_front();
            self.first = self.first.wrapping_add(1);
            self.subtract(0, capacity);
        }
    }

    /// Counts live and allocated bytes as gone.
    fn subtract(&mut self, live: usize, allocated: usize) {
        assert!(self.live >= live as u64, "H4: more is gone than is live");
        assert!(
            self.allocated >= allocated as u64,
            "H3: more is gone than was allocated"
        );
        self.live -= live as u64;
        self.allocated -= allocated as u64;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn key(page: u32) -> Key {
        Key { run: 3, page }
    }

    fn block(page: u32) -> Vec<u8> {
        vec![page as u8; 100 + page as usize % 3000]
    }

    fn get(tier: &BlockTier, page: u32, is_use: bool) -> bool {
        let mut found = vec![9; 7];
        let is_here = tier.get(key(page), is_use, &mut found).is_some();
        if is_here {
            assert_eq!(found, block(page));
        }
        is_here
    }

    #[test]
    fn blocks_come_back_as_they_were_until_they_are_evicted_or_removed() {
        let tier = BlockTier::new(64 << 20);
        let limit = 8 << 20;
        let mut rng = StdRng::seed_from_u64(1);
        let mut here = std::collections::HashSet::new();
        for step in 0..60_000 {
            let page = rng.random_range(0..20_000);
            match step % 7 {
                0 => {
                    tier.remove(key(page));
                    here.remove(&page);
                }
                1 => assert_eq!(get(&tier, page, true), here.contains(&page), "{page}"),
                2 => assert_eq!(get(&tier, page, false), here.contains(&page), "{page}"),
                _ => {
                    tier.insert(key(page), &block(page), limit, &mut |key, bytes| {
                        assert!(here.remove(&key.page));
                        assert_eq!(bytes, block(key.page).len());
                    });
                    here.insert(page);
                }
            }
            assert!(tier.bytes() <= limit + (1 << 20), "{}", tier.bytes());
        }
        let live: usize = here
            .iter()
            .map(|&page| block(page).len() + HEADER_BYTES)
            .sum();
        assert_eq!(tier.live(), live as u64);
        assert!(live as u64 > limit / 4 * 3, "{live}");
        tier.trim(limit / 2, &mut |key, _| assert!(here.remove(&key.page)));
        assert!(tier.bytes() <= limit / 2);
        assert!(here.iter().all(|&page| get(&tier, page, false)));
        tier.trim(0, &mut |key, _| assert!(here.remove(&key.page)));
        assert_eq!((here.len(), tier.live(), tier.bytes()), (0, 0, 0));
    }

    #[test]
    fn blocks_in_use_stay() {
        let tier = BlockTier::new(32 << 20);
        let limit = 4 << 20;
        for page in 0..40_000 {
            tier.insert(key(page), &[1; 1000], limit, &mut |_, _| ());
            let used = page % 50;
            let mut found = Vec::new();
            let was_used = tier.get(key(used), true, &mut found);
            assert!(was_used.is_some() || page < used);
            // Once it is at the end of the log, a block counts as new.
            assert!(page >= 50 || was_used.is_none() || was_used == Some(false));
        }
    }

    #[test]
    fn removed_blocks_leave_room_before_others_are_evicted() {
        let tier = BlockTier::new(32 << 20);
        let limit = 4 << 20;
        let never = &mut |_, _| panic!("nothing has to be evicted");
        for page in 0..30_000 {
            tier.insert(key(page), &[1; 1000], limit, never);
            // A thousand stay, scattered; at most two thousand others are here.
            if page >= 2000 && page % 30 != 0 {
                tier.remove(key(page - 2000 + page % 30 % 2));
            }
            if page % 30 == 0 && page > 3000 {
                tier.remove(key(page - 3000));
            }
            if page >= 2000 {
                tier.remove(key(page - 2000));
            }
        }
    }

    #[test]
    fn a_block_too_large_for_the_tier_evicts_nothing() {
        let tier = BlockTier::new(32 << 20);
        let limit = 4 << 20;
        for page in 0..100 {
            tier.insert(key(page), &[1; 1000], limit, &mut |_, _| ());
        }
        let never = &mut |key: Key, _| assert_eq!(key.page, 200);
        tier.insert(key(200), &vec![1; 1 << 20], limit, never);
        tier.insert(key(201), &vec![1; 400 << 10], limit, never);
        let mut found = Vec::new();
        assert_eq!(tier.get(key(200), true, &mut found), None);
        assert_eq!(tier.get(key(201), true, &mut found), Some(false));
        assert_eq!(tier.get(key(201), true, &mut found), Some(true));
        assert_eq!(found.len(), 400 << 10);
    }
}
