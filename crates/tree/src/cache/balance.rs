//! Divides the page cache's memory between its tiers.
//!
//! Each tier has a list of what it evicted lately, of as many bytes as the other one's and few of them: its ghosts. A miss that finds its page
//! there is one that a little more memory for this tier would have saved, and what it would have saved is known: the time of
//! a decompression, or of a read of the device, both as measured. From time to time the tier whose ghosts would have saved more
//! gets memory of the other one. So the division settles where another byte is worth the same in both tiers. The idea
//! is that of ARC (Megiddo and Modha, FAST 2003), with costs in place of counts.
//!
//! One page in eight is looked at, chosen by its hash, as in SHARDS (Waldspurger et al., FAST 2015).

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frond_kv::IdentityHasher;
use parking_lot::Mutex;

use super::Key;

/// One page in this many is looked at.
const SAMPLED: u64 = 8;
/// Shares of the memory are counted in units of this part of it.
const WHOLE: u64 = 1 << 16;
/// The largest share of compressed blocks, and the first one: pages that are read again and again in the same order
/// leave no ghosts that return in time, and fit as blocks rather than as pages.
const SHARE_MAX: u64 = WHOLE / 8 * 7;
const SHARE_FIRST: u64 = WHOLE / 4 * 3;
/// Ghosts stand for this part of the memory. With larger lists, one that has more than could be used would count too much.
const GHOSTS_PART: u64 = 16;
/// The division changes after pages of this part of the memory were read ...
const ROUND_PART: u64 = 32;
/// ... by at most this part of it.
const STEP: u64 = WHOLE / 48;
/// As many decompressions saved are little evidence. Not reads: with many threads their times include waits for a processor.
const EVIDENCE: u64 = 40;
/// About as many rounds are remembered.
const MEMORY: u64 = 8;
/// Times until they are measured, in nanoseconds.
const READ_NS: u64 = 100_000;
const DECODE_NS: u64 = 10_000;
/// Measured times count this part.
const TIME_PART: u64 = 64;
/// A time counts at most this many times the average.
const TIME_MAX: u64 = 16;

/// A miss of the first tier.
pub(super) struct Miss {
    pub(super) key: Key,
    /// The bytes of the page in memory.
    pub(super) bytes: u64,
    /// Whether the device was read for it.
    pub(super) is_read: bool,
    /// Whether the second tier has room left, so that the next miss of this page will find its block.
    pub(super) has_room: bool,
}

/// Divides the memory of the cache between pages and compressed blocks.
pub(super) struct Balance {
    /// H5: the part of the memory for compressed blocks while pages need it too, in parts of [`WHOLE`], at most [`SHARE_MAX`].
    share: AtomicU64,
    /// The memory of both tiers in bytes.
    all: AtomicU64,
    /// Averages in nanoseconds.
    read_ns: AtomicU64,
    decode_ns: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pages: Ghosts,
    blocks: Ghosts,
    /// The time that more memory would have saved, in nanoseconds.
    saved_by_pages: u64,
    saved_by_blocks: u64,
    /// Bytes of sampled pages that were missed since the last change.
    missed: u64,
    #[cfg(test)]
    is_fixed: bool,
}

/// Recent evictions, by hash.
#[derive(Default)]
struct Ghosts {
    /// The number of the last eviction of each.
    numbers: HashMap<u64, u64, BuildHasherDefault<IdentityHasher>>,
    /// Hash and bytes, the oldest first.
    order: VecDeque<(u64, u32)>,
    /// The number of the first in `order`.
    first: u64,
    /// H6: the bytes of those in `order`.
    bytes: u64,
}

impl Balance {
    pub(super) fn new(all: u64) -> Balance {
        Balance {
            share: AtomicU64::new(SHARE_FIRST),
            all: AtomicU64::new(all),
            read_ns: AtomicU64::new(READ_NS),
            decode_ns: AtomicU64::new(DECODE_NS),
            state: Mutex::default(),
        }
    }

    /// Whether a page is one that is looked at.
    pub(super) fn samples(&self, key: Key) -> bool {
        (key.mixed() >> 32).is_multiple_of(SAMPLED)
    }

    /// Fixes the share of the blocks, in parts of 64.
    #[cfg(test)]
    pub(super) fn fix(&self, share: u64) {
        self.share.store(WHOLE / 64 * share, Ordering::Relaxed);
        // Rounds never end.
        self.state.lock().is_fixed = true;
    }

    /// The part of `all` bytes that compressed blocks may take while pages need the memory too.
    pub(super) fn for_blocks(&self, all: u64) -> u64 {
        self.all.store(all, Ordering::Relaxed);
        // In this order there is no overflow for any size of a memory.
        all / WHOLE * self.share.load(Ordering::Relaxed)
    }

    /// Notes the eviction of a page with its size in bytes.
    pub(super) fn page_left(&self, key: Key, bytes: u64) {
        if self.samples(key) {
            let limit = self.ghost_bytes();
            self.state.lock().pages.add(key.mixed(), bytes, limit);
        }
    }

    /// Notes the eviction of a block with its size in bytes.
    pub(super) fn block_left(&self, key: Key, bytes: u64) {
        if self.samples(key) {
            let limit = self.ghost_bytes();
            self.state.lock().blocks.add(key.mixed(), bytes, limit);
        }
    }

    fn ghost_bytes(&self) -> u64 {
        self.all.load(Ordering::Relaxed) / GHOSTS_PART / SAMPLED
    }

    /// Notes how long a read of the device took.
    pub(super) fn note_read(&self, time: Duration) {
        add_time(&self.read_ns, time);
    }

    /// Notes how long a page took to decompress and decode.
    pub(super) fn note_decode(&self, time: Duration) {
        add_time(&self.decode_ns, time);
    }

    /// Notes a miss of the first tier, of a page that is looked at.
    pub(super) fn note_miss(&self, miss: &Miss) {
        let decode = self.decode_ns.load(Ordering::Relaxed);
        let read = if miss.is_read {
            self.read_ns.load(Ordering::Relaxed)
        } else {
            0
        };
        let hash = miss.key.mixed();
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.pages.take(hash) {
            state.saved_by_pages += if miss.has_room { decode } else { decode + read };
        }
        if miss.is_read && state.blocks.take(hash) {
            state.saved_by_blocks += read;
        }
        state.missed += miss.bytes;
        if state.missed >= self.all.load(Ordering::Relaxed) / ROUND_PART / SAMPLED {
            state.missed = 0;
            self.change(state);
        }
    }

    /// Changes the division towards the tier that would have saved more.
    fn change(&self, state: &mut State) {
        #[cfg(test)]
        if state.is_fixed {
            return;
        }
        let (pages, blocks) = (state.saved_by_pages, state.saved_by_blocks);
        // So little evidence moves little.
        let little = EVIDENCE * self.decode_ns.load(Ordering::Relaxed);
        let step = |more: u64, less: u64| STEP * (more - less) / (more + less + little).max(1);
        let share = self.share.load(Ordering::Relaxed);
        let share = if blocks > pages {
            (share + step(blocks, pages)).min(SHARE_MAX)
        } else {
            share.saturating_sub(step(pages, blocks))
        };
        assert!(
            share <= SHARE_MAX,
            "H5: compressed blocks get more than their largest part"
        );
        self.share.store(share, Ordering::Relaxed);
        // Later rounds count more.
        state.saved_by_pages -= state.saved_by_pages / MEMORY;
        state.saved_by_blocks -= state.saved_by_blocks / MEMORY;
    }
}

/// Adds a time to a moving average.
fn add_time(average: &AtomicU64, time: Duration) {
    let before = average.load(Ordering::Relaxed);
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let time = time.min(before * TIME_MAX);
    let after = before - before / TIME_PART + time / TIME_PART;
    average.store(after.max(TIME_PART), Ordering::Relaxed);
}

impl Ghosts {
    fn add(&mut self, hash: u64, bytes: u64, limit: u64) {
        let number = self.first + self.order.len() as u64;
        self.numbers.insert(hash, number);
        let bytes = bytes.min(u64::from(u32::MAX)) as u32;
        self.order.push_back((hash, bytes));
        self.bytes += u64::from(bytes);
        while self.bytes > limit
            && let Some((hash, bytes)) = self.order.pop_front()
        {
            assert!(
                self.bytes >= u64::from(bytes),
                "H6: more ghosts leave than there are"
            );
            self.bytes -= u64::from(bytes);
            if self.numbers.get(&hash) == Some(&self.first) {
                self.numbers.remove(&hash);
            }
            self.first += 1;
        }
    }

    /// Whether this was evicted lately; if so, it is no ghost any more.
    fn take(&mut self, hash: u64) -> bool {
        self.numbers.remove(&hash).is_some()
    }
}
