//! The memory budget of the process.
//!
//! It has two parts. The engine's part is what its options name: memtables, nodes under construction, loaders and
//! read-ahead reserve what they need; indexes and filters of runs may be pinned up to a share; the page cache gets the
//! rest. The other part is for what clients make grow: queries, cursors, write sets, requests, replies. While they
//! use it, the page cache gives way, so that the process stays within the engine's part as long as it can, and they may use
//! more than their part if the cache has it.
//!
//! The page cache also has what writers do not use. A reservation makes it give way before its caller allocates. It gets
//! back what was released little by little ([`MemoryBudget::age`]), so that it does not grow and shrink with each memtable.
//!
//! A memtable fills slowly, so the cache gives way to it in small steps. Spare blocks of memtables that were not needed for two
//! seconds are freed. Buffers of evicted pages are reused for the pages read next (`buffers.rs`): an allocator may keep memory that
//! another thread than the one that allocated it has freed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The cache of pages never shrinks below this share of the engine's part.
const CACHE_SHARE_MIN: u64 = 8;
/// The overhead of a pinned object, in bytes.
const PIN_COST: u64 = 32;
/// The cache gives way to this many times what clients reserve: the allocator rounds sizes up, and has memory that is free
/// between what is in use.
const CLIENT_COST: u64 = 2;
/// The memory of the last peak fades by this part with each step.
const FADING: u64 = 16;
/// The cache shrinks at once when it has this part of the budget too much.
const SLACK: u64 = 64;
/// A holder that grows fairly leaves at least this many times its own bytes to the others.
const FAIR_REST: u64 = 2;

/// The purpose of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryUse {
    /// Memtables: the current ones, those that snapshots hold, and spare blocks.
    Memtables,
    Loads,
    /// Runs that are being written, and read-ahead.
    Runs,
    /// Recent commits that open transactions need to find conflicts.
    Conflicts,
    /// Writes of open transactions.
    Transactions,
    /// Write sets before their commit.
    WriteSets,
    /// Sorts, groups and other rows that commands hold while they run.
    Queries,
    /// State of cursors between two batches.
    Cursors,
    /// Requests, from their arrival to their reply.
    Requests,
    /// Replies that clients have not read.
    Replies,
    /// Connections: their buffers and state.
    Connections,
    /// Buffers of the system for sockets that are full.
    Sockets,
}

impl MemoryUse {
    pub const ALL: [MemoryUse; 12] = [
        MemoryUse::Memtables,
        MemoryUse::Loads,
        MemoryUse::Runs,
        MemoryUse::Conflicts,
        MemoryUse::Transactions,
        MemoryUse::WriteSets,
        MemoryUse::Queries,
        MemoryUse::Cursors,
        MemoryUse::Requests,
        MemoryUse::Replies,
        MemoryUse::Connections,
        MemoryUse::Sockets,
    ];

    /// Its name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            MemoryUse::Memtables => "memtables",
            MemoryUse::Loads => "loads",
            MemoryUse::Runs => "runs",
            MemoryUse::Conflicts => "conflicts",
            MemoryUse::Transactions => "transactions",
            MemoryUse::WriteSets => "writeSets",
            MemoryUse::Queries => "queries",
            MemoryUse::Cursors => "cursors",
            MemoryUse::Requests => "requests",
            MemoryUse::Replies => "replies",
            MemoryUse::Connections => "connections",
            MemoryUse::Sockets => "sockets",
        }
    }

    /// Whether it belongs to the engine's part of the budget.
    fn is_engine(self) -> bool {
        matches!(
            self,
            MemoryUse::Memtables
                | MemoryUse::Loads
                | MemoryUse::Runs
                | MemoryUse::Conflicts
                | MemoryUse::Transactions
        )
    }
}

type Shrink = Box<dyn Fn() + Send + Sync>;

struct Counts {
    /// The engine's part, in bytes.
    bytes: u64,
    /// The part of `bytes` that writers may need.
    for_writers: u64,
    /// The part for what clients make grow, in bytes.
    client_bytes: u64,
    pinned: AtomicU64,
    /// Reserved of the engine's part.
    engine: AtomicU64,
    /// Reserved of the clients' part.
    clients: AtomicU64,
    /// The last peak of the reservations of the engine's part, fading.
    recent: AtomicU64,
    /// The limit that the page cache has applied.
    cache: AtomicU64,
    /// Makes the page cache use no more than it may now.
    shrink_cache: OnceLock<Shrink>,
    by_use: [AtomicU64; MemoryUse::ALL.len()],
    refused: AtomicU64,
}

/// Accounts for the memory of the process. A handle; clones share the budget.
#[derive(Clone)]
pub struct MemoryBudget {
    counts: Arc<Counts>,
}

impl std::fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryBudget")
            .field("limit", &self.limit())
            .field("free", &self.free())
            .finish_non_exhaustive()
    }
}

impl MemoryBudget {
    /// A budget whose engine's part has `bytes` bytes, of which writers may need `for_writers`, and whose clients' part has
    /// `client_bytes`.
    pub fn new(bytes: usize, for_writers: usize, client_bytes: usize) -> MemoryBudget {
        MemoryBudget {
            counts: Arc::new(Counts {
                bytes: bytes as u64,
                for_writers: for_writers as u64,
                client_bytes: client_bytes as u64,
                pinned: AtomicU64::new(0),
                engine: AtomicU64::new(0),
                clients: AtomicU64::new(0),
                recent: AtomicU64::new(0),
                cache: AtomicU64::new(0),
                shrink_cache: OnceLock::new(),
                by_use: Default::default(),
                refused: AtomicU64::new(0),
            }),
        }
    }

    /// A budget of its own for clients, without an engine: for tests, and for commands that run without a store.
    pub fn for_clients(bytes: usize) -> MemoryBudget {
        MemoryBudget::new(0, 0, bytes)
    }

    /// Pins `bytes` of an index or a filter in memory with its run. False if pinned objects would take more
    /// than half of what is not reserved.
    pub fn pin(&self, bytes: usize) -> bool {
        let bytes = bytes as u64 + PIN_COST;
        let limit = self.bytes().saturating_sub(self.taken()) / 2;
        let pinned = &self.counts.pinned;
        if pinned.fetch_add(bytes, Ordering::Relaxed) + bytes > limit {
            pinned.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Counts `bytes` as pinned, whatever the limit.
    pub fn pin_always(&self, bytes: usize) {
        (self.counts.pinned).fetch_add(bytes as u64 + PIN_COST, Ordering::Relaxed);
    }

    /// Reverts a `pin`.
    pub fn unpin(&self, bytes: usize) {
        (self.counts.pinned).fetch_sub(bytes as u64 + PIN_COST, Ordering::Relaxed);
    }

    /// Reserves `bytes` until the result is dropped, also when there are not that many left. For what exists already, or must
    /// go on.
    pub fn reserve(&self, purpose: MemoryUse, bytes: usize) -> Reservation {
        self.add(purpose, bytes);
        Reservation {
            budget: self.clone(),
            purpose,
            bytes,
        }
    }

    /// Reserves `bytes` until the result is dropped; `None` if there are not that many left.
    pub fn try_reserve(&self, purpose: MemoryUse, bytes: usize) -> Option<Reservation> {
        self.try_add(purpose, bytes).then(|| Reservation {
            budget: self.clone(),
            purpose,
            bytes,
        })
    }

    /// Reserves `wanted` bytes, or fewer if more than half of the engine's part would be in use, but at least `least`.
    pub fn reserve_up_to(&self, purpose: MemoryUse, wanted: usize, least: usize) -> Reservation {
        let free = (self.bytes() / 2).saturating_sub(self.pinned() + self.engine());
        self.reserve(purpose, wanted.min(free as usize).max(least))
    }

    /// The counter of the reservations of a part. `None` for connections and their sockets: the page cache gives way to them, so that
    /// clients that compute do not miss their memory.
    fn part(&self, purpose: MemoryUse) -> Option<&AtomicU64> {
        match purpose {
            MemoryUse::Connections | MemoryUse::Sockets => None,
            engine if engine.is_engine() => Some(&self.counts.engine),
            _ => Some(&self.counts.clients),
        }
    }

    fn add(&self, purpose: MemoryUse, bytes: usize) {
        let now = self.part(purpose).map_or(0, |part| {
            part.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64
        });
        self.counts.by_use[purpose as usize].fetch_add(bytes as u64, Ordering::Relaxed);
        if purpose.is_engine() {
            self.counts.recent.fetch_max(now, Ordering::Relaxed);
        }
        // A memtable fills slowly. The cache gives way to it meanwhile.
        if purpose != MemoryUse::Memtables && self.cache_has_too_much() {
            self.shrink_cache();
        }
    }

    fn cache_has_too_much(&self) -> bool {
        let cache = self.counts.cache.load(Ordering::Relaxed);
        cache > self.for_cache() + self.bytes() / SLACK
    }

    /// Makes the page cache use no more than it may now.
    pub fn shrink_cache(&self) {
        if let Some(shrink) = self.counts.shrink_cache.get() {
            shrink();
        }
    }

    /// Sets what makes the page cache use no more than it may.
    pub fn on_shrink(&self, shrink: impl Fn() + Send + Sync + 'static) {
        let _ = self.counts.shrink_cache.set(Box::new(shrink));
    }

    /// Notes the limit that the page cache applies.
    pub fn note_cache(&self, bytes: u64) {
        self.counts.cache.store(bytes, Ordering::Relaxed);
    }

    /// The limit that the page cache has noted.
    pub fn cache(&self) -> u64 {
        self.counts.cache.load(Ordering::Relaxed)
    }

    /// Lets what was in use lately fade by `steps` steps of a sixteenth.
    pub fn age(&self, steps: u32) {
        for _ in 0..steps.min(512) {
            let recent = self.counts.recent.load(Ordering::Relaxed);
            let faded = recent - recent.div_ceil(FADING);
            let least = self.engine();
            if faded <= least {
                self.counts.recent.store(least, Ordering::Relaxed);
                return;
            }
            self.counts.recent.store(faded, Ordering::Relaxed);
        }
    }

    fn try_add(&self, purpose: MemoryUse, bytes: usize) -> bool {
        self.add(purpose, bytes);
        if self.clients() > self.for_clients_now() {
            self.remove(purpose, bytes);
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    fn remove(&self, purpose: MemoryUse, bytes: usize) {
        if let Some(part) = self.part(purpose) {
            part.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
        self.counts.by_use[purpose as usize].fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Both parts together, in bytes.
    pub fn limit(&self) -> u64 {
        self.bytes().saturating_add(self.counts.client_bytes)
    }

    /// The most bytes that clients may reserve, while the engine needs no more than its part.
    pub fn client_limit(&self) -> u64 {
        self.client_room(self.counts.for_writers)
    }

    /// Bytes that can still be reserved for clients.
    pub fn free(&self) -> u64 {
        self.for_clients_now().saturating_sub(self.clients())
    }

    /// The bytes that clients may reserve now.
    fn for_clients_now(&self) -> u64 {
        self.client_room(self.pinned() + self.taken())
    }

    /// The clients' part and what the page cache can spare, if the engine needs so much beside that; or less than their
    /// part if it needs more than its own.
    fn client_room(&self, needed: u64) -> u64 {
        let connections = self.connections();
        let needed = needed + connections + self.bytes() / CACHE_SHARE_MIN;
        let own = self.counts.client_bytes;
        match self.bytes().checked_sub(needed) {
            Some(spare) => own.saturating_add(spare / CLIENT_COST),
            None => own.saturating_sub(needed - self.bytes()),
        }
    }

    /// Bytes that are reserved for one use.
    pub fn used(&self, purpose: MemoryUse) -> u64 {
        self.counts.by_use[purpose as usize].load(Ordering::Relaxed)
    }

    /// Bytes of connections and their sockets.
    fn connections(&self) -> u64 {
        self.used(MemoryUse::Connections) + self.used(MemoryUse::Sockets)
    }

    /// Counts the failures of [`MemoryBudget::try_reserve`] and its kind.
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::Relaxed)
    }

    /// Bytes of pinned objects.
    pub fn pinned(&self) -> u64 {
        self.counts.pinned.load(Ordering::Relaxed)
    }

    fn engine(&self) -> u64 {
        self.counts.engine.load(Ordering::Relaxed)
    }

    fn clients(&self) -> u64 {
        self.counts.clients.load(Ordering::Relaxed)
    }

    /// Whether clients use much of their part, with what connections take beside it.
    pub fn clients_are_many(&self) -> bool {
        self.clients() + self.connections() > self.counts.client_bytes / 2
    }

    /// The engine's part without what connections take, in bytes.
    pub fn beside_connections(&self) -> u64 {
        self.bytes().saturating_sub(self.connections())
    }

    /// Bytes of the engine's part that are reserved, or that writers may need.
    fn taken(&self) -> u64 {
        self.engine().max(self.counts.for_writers)
    }

    /// Whether little is left for the cache: then read-ahead should be short.
    pub fn is_tight(&self) -> bool {
        self.pinned() + self.taken() > self.bytes() / 4 * 3
    }

    /// The engine's part, in bytes.
    pub fn bytes(&self) -> u64 {
        self.counts.bytes
    }

    /// The bytes that the page cache may use now.
    pub fn for_cache(&self) -> u64 {
        let recent = self.counts.recent.load(Ordering::Relaxed);
        let clients = self.clients().saturating_mul(CLIENT_COST);
        let connections = self.connections();
        let others = self.pinned() + self.engine().max(recent) + clients + connections;
        let rest = self.bytes().saturating_sub(others);
        rest.max(self.bytes() / CACHE_SHARE_MIN)
    }
}

/// A reserved part of the budget, until it is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: MemoryBudget,
    purpose: MemoryUse,
    bytes: usize,
}

impl Reservation {
    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The budget that it is a part of.
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Reserves `more` bytes, also when there are not that many left.
    pub fn grow(&mut self, more: usize) {
        self.budget.add(self.purpose, more);
        self.bytes += more;
    }

    /// Reserves `more` bytes; false, without effect, if there are not that many left.
    pub fn try_grow(&mut self, more: usize) -> bool {
        let fits = self.budget.try_add(self.purpose, more);
        if fits {
            self.bytes += more;
        }
        fits
    }

    /// As [`Reservation::try_grow`], but leaves twice its own bytes to others, so that many that grow get equal shares, and what
    /// comes after them finds some left.
    pub fn try_grow_fairly(&mut self, more: usize) -> bool {
        let after = (self.bytes + more) as u64;
        if after * FAIR_REST + more as u64 > self.budget.free() {
            self.budget.counts.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.try_grow(more)
    }

    /// Releases `fewer` bytes, at most all.
    pub fn shrink(&mut self, fewer: usize) {
        let fewer = fewer.min(self.bytes);
        self.bytes -= fewer;
        self.budget.remove(self.purpose, fewer);
    }

    /// Grows or shrinks to `bytes`, also when there are not that many left.
    pub fn resize(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => self.shrink(self.bytes - bytes),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.remove(self.purpose, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_cache_gets_what_is_not_reserved() {
        let budget = MemoryBudget::new(64 * MIB, 0, 0);
        assert!(budget.pin(20 * MIB));
        assert!(!budget.pin(20 * MIB), "more than half");
        assert!(budget.for_cache() <= 44 << 20);
        let reserved = budget.reserve(MemoryUse::Runs, 30 * MIB);
        assert!(budget.for_cache() <= 14 << 20);
        assert!(!budget.pin(MIB), "more than half of the rest");
        let more = budget.reserve(MemoryUse::Memtables, 100 * MIB);
        assert_eq!(budget.for_cache(), 8 << 20);
        drop((reserved, more));
        budget.unpin(20 * MIB);
        assert_eq!(budget.for_cache(), 8 << 20, "not at once");
        budget.age(u32::MAX);
        assert_eq!(budget.for_cache(), 64 << 20);
        let up_to = || budget.reserve_up_to(MemoryUse::Loads, 100 * MIB, MIB);
        assert_eq!(up_to().bytes(), 32 * MIB);
        let _most = budget.reserve(MemoryUse::Runs, 60 * MIB);
        assert_eq!(up_to().bytes(), MIB);
    }

    #[test]
    fn what_writers_release_returns_to_the_cache_little_by_little() {
        let budget = MemoryBudget::new(64 * MIB, 24 * MIB, 0);
        assert_eq!(budget.for_cache(), 64 << 20, "nothing is kept free");
        let lent = budget.reserve(MemoryUse::Memtables, 20 * MIB);
        assert_eq!(budget.for_cache(), 44 << 20);
        drop(lent);
        let lent = budget.reserve(MemoryUse::Memtables, 4 * MIB);
        let mut before = 44 << 20;
        for _ in 0..25 {
            budget.age(1);
            let now = budget.for_cache();
            assert!(now > before && now - before <= 20 << 20 >> 4, "{now}");
            before = now;
        }
        budget.age(3);
        assert_eq!(budget.for_cache(), 60 << 20);
        drop(lent);
    }

    #[test]
    fn the_cache_shrinks_before_a_reservation_returns_but_not_for_a_memtable() {
        let budget = MemoryBudget::new(64 * MIB, 0, 64 * MIB);
        budget.note_cache(budget.for_cache());
        let weak = Arc::downgrade(&budget.counts);
        budget.on_shrink(move || {
            if let Some(counts) = weak.upgrade() {
                let budget = MemoryBudget { counts };
                budget.note_cache(budget.for_cache());
            }
        });
        let _slack = budget.reserve(MemoryUse::Replies, 100 << 10);
        assert_eq!(budget.cache(), 64 << 20);
        let _sort = budget.reserve(MemoryUse::Queries, 2 * MIB);
        assert!(budget.cache() < 61 << 20, "{}", budget.cache());
        let before = budget.cache();
        let _memtable = budget.reserve(MemoryUse::Memtables, 10 * MIB);
        assert_eq!(budget.cache(), before);
        budget.shrink_cache();
        assert_eq!(budget.cache(), before - (10 << 20));
        let _run = budget.reserve(MemoryUse::Runs, 10 * MIB);
        assert_eq!(budget.cache(), before - (20 << 20));
    }

    #[test]
    fn the_cache_gives_way_to_clients() {
        let budget = MemoryBudget::new(64 * MIB, 26 * MIB, 100 * MIB);
        assert_eq!(budget.free(), 115 << 20, "and half of 30 MiB");
        let mut sort = budget.reserve(MemoryUse::Queries, 20 * MIB);
        assert_eq!(budget.for_cache(), 24 << 20);
        sort.grow(30 * MIB);
        assert_eq!((budget.for_cache(), budget.free()), (8 << 20, 65 << 20));
        sort.shrink(500 * MIB);
        assert_eq!(budget.for_cache(), 64 << 20);
    }

    #[test]
    fn the_cache_gives_way_to_connections_before_clients_do() {
        let budget = MemoryBudget::new(64 * MIB, 26 * MIB, 100 * MIB);
        let connections = budget.reserve(MemoryUse::Connections, 20 * MIB);
        assert_eq!(budget.for_cache(), 44 << 20);
        assert_eq!(budget.free(), 105 << 20, "and half of 10 MiB");
        let sockets = budget.reserve(MemoryUse::Sockets, 20 * MIB);
        assert_eq!(budget.for_cache(), 24 << 20);
        assert_eq!(
            budget.free(),
            90 << 20,
            "they have taken 10 MiB of the clients' part"
        );
        assert_eq!(budget.beside_connections(), 24 << 20);
        assert!(!budget.clients_are_many());
        let more = budget.reserve(MemoryUse::Sockets, 20 * MIB);
        assert!(
            budget.clients_are_many(),
            "more than half of the clients' part"
        );
        drop((connections, sockets, more));
        assert_eq!(budget.free(), 115 << 20);
    }

    #[test]
    fn clients_get_what_the_engine_leaves() {
        let budget = MemoryBudget::new(64 * MIB, 26 * MIB, 100 * MIB);
        assert_eq!(budget.client_limit(), 115 << 20);
        assert!(budget.try_reserve(MemoryUse::Replies, 121 * MIB).is_none());
        let reply = budget.try_reserve(MemoryUse::Replies, 90 * MIB);
        assert!(budget.try_reserve(MemoryUse::Queries, 31 * MIB).is_none());
        assert_eq!(budget.used(MemoryUse::Replies), 90 << 20);
        assert_eq!(budget.used(MemoryUse::Queries), 0);
        // The engine uses more than its part.
        let memtables = budget.reserve(MemoryUse::Memtables, 64 * MIB);
        assert_eq!(budget.free(), 2 << 20);
        assert!(budget.try_reserve(MemoryUse::Queries, 3 * MIB).is_none());
        assert_eq!(budget.refused(), 3);
        drop((reply, memtables));
        assert_eq!(budget.free(), 115 << 20);
        assert!(
            MemoryUse::ALL
                .iter()
                .all(|&purpose| budget.used(purpose) == 0)
        );
    }

    #[test]
    fn many_that_grow_fairly_get_equal_shares() {
        let budget = MemoryBudget::for_clients(100 * MIB);
        let mut all: Vec<Reservation> = (0..20)
            .map(|_| budget.reserve(MemoryUse::Queries, 0))
            .collect();
        let grow = |one: &mut Reservation| usize::from(one.try_grow_fairly(64 << 10));
        while all.iter_mut().map(grow).sum::<usize>() > 0 {}
        let sizes: Vec<usize> = all.iter().map(Reservation::bytes).collect();
        let (least, most) = (sizes.iter().min(), sizes.iter().max());
        assert!(least.is_some_and(|&least| least > 4 * MIB), "{sizes:?}");
        assert!(most.is_some_and(|&most| most < 5 * MIB), "{sizes:?}");
        assert!(budget.free() > 8 << 20, "{}", budget.free());
        all.truncate(1);
        while grow(&mut all[0]) > 0 {}
        assert!(all[0].bytes() > 30 * MIB && all[0].bytes() < 34 * MIB);
    }
}
