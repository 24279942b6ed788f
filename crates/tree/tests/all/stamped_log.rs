//! A tree of stamped keys as a log that is trimmed: what appends and trims read and write.

#![allow(clippy::unwrap_used, missing_docs)]

use std::ops::Bound::Unbounded;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frond_tree::{
    Compression, Direction, Durability, Options, Stamps, Store, StoreStats, TreeId, TreeOptions,
    WriteSet,
};

const VALUE_BYTES: usize = 200;
const BATCH: u64 = 100;
const ENTRY_BYTES: u64 = VALUE_BYTES as u64 + 8;

#[derive(Default)]
struct Counter(AtomicU64);

impl Stamps for Counter {
    fn take(&self, count: u32) -> Option<u64> {
        Some(self.0.fetch_add(count.into(), Ordering::Relaxed) + 1)
    }
}

struct Fixture {
    store: Store,
    log: TreeId,
    data: TreeId,
    _directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::new(directory.path());
        options.cache_bytes = 8 << 20;
        options.memtable_bytes = Some(256 << 10);
        options.fanout = 4;
        options.stamps = Some(Arc::new(Counter::default()));
        let store = Store::open(options).unwrap();
        let [log, data] = [store.allocate_tree(), store.allocate_tree()];
        let tree_options = TreeOptions {
            compression: Compression::None,
            node_bytes: 64 << 10,
            page_bytes: 2 << 10,
        };
        let mut set = WriteSet::new();
        set.create_tree(log, &tree_options);
        set.create_tree(data, &tree_options);
        store.commit(set, Durability::Logged).unwrap();
        Fixture {
            store,
            log,
            data,
            _directory: directory,
        }
    }

    /// Appends entries up to a stamp, and some other keys with them.
    fn append_to(&self, from: u64, to: u64) {
        for batch in (from..to).step_by(BATCH as usize) {
            let mut set = WriteSet::new();
            for offset in 0..BATCH as u32 {
                // Pages of equal bytes would take less than they hold.
                let number = (batch + u64::from(offset)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let value: Vec<u8> = (0..VALUE_BYTES as u64 / 8)
                    .flat_map(|part| (number.wrapping_mul(part * 2 + 1)).to_le_bytes())
                    .collect();
                set.put_stamped(self.log, offset, b"", &value);
            }
            let key = (batch.wrapping_mul(7_919) % 1000).to_be_bytes();
            set.put(self.data, &key, &[1; 10]);
            let committed = self.store.commit(set, Durability::Logged).unwrap();
            assert_eq!(committed.first_stamp, Some(batch + 1));
        }
    }

    /// Deletes the entries below a stamp.
    fn trim(&self, below: u64) {
        let mut set = WriteSet::new();
        set.delete_range(self.log, b"", Some(&below.to_be_bytes()));
        set.set_frees_space();
        self.store.commit(set, Durability::Logged).unwrap();
    }

    fn first(&self) -> u64 {
        let snapshot = self.store.snapshot();
        let mut cursor =
            (snapshot.cursor(self.log, Unbounded, Unbounded, Direction::Forward)).unwrap();
        let (key, _) = cursor.next().unwrap().unwrap();
        u64::from_be_bytes(key.try_into().unwrap())
    }

    fn used(&self) -> u64 {
        let space = self.store.stats().space;
        space.file_bytes - space.free_bytes - space.waiting_bytes
    }
}

/// Bytes that were read and written since then.
fn since(store: &Store, before: &StoreStats) -> (u64, u64) {
    let now = store.stats();
    (
        now.read_bytes - before.read_bytes,
        now.written_bytes - before.written_bytes,
    )
}

#[test]
fn trimming_most_of_a_log_reads_hardly_any_of_it() {
    const COUNT: u64 = 60_000;
    let fixture = Fixture::new();
    let store = &fixture.store;
    fixture.append_to(0, COUNT);
    store.checkpoint().unwrap();
    let stats = store.tree_stats(fixture.log);
    assert!(stats.height > 2 && stats.pending_bytes == 0, "{stats:?}");
    let bytes = COUNT * ENTRY_BYTES;
    let written = store.stats().written_bytes;
    // Each entry is written once; the rest is for the other tree and for the nodes of many checkpoints.
    assert!(written < bytes * 3 / 2, "{written} for {bytes}");
    assert!(fixture.used() > bytes);

    let before = store.stats();
    fixture.trim(COUNT - 1000);
    store.checkpoint().unwrap();
    let (read, written) = since(store, &before);
    assert!(read < 512 << 10 && written < 512 << 10, "{read} {written}");
    // The space that the trim leaves is free after the next checkpoint.
    store.checkpoint().unwrap();
    assert!(fixture.used() < bytes / 10, "{} of {bytes}", fixture.used());
    assert_eq!(fixture.first(), COUNT - 1000);
    fixture.append_to(COUNT, COUNT + 1000);
    store.checkpoint().unwrap();
    // The range delete waits for the leaf that it covers in part, and counts as 4 KiB. The new entries do not wait.
    let pending = store.tree_stats(fixture.log).pending_bytes;
    assert!(pending < 8 << 10, "{pending}");
}

#[test]
fn a_log_that_is_trimmed_all_the_time_stays_small_and_is_written_once() {
    const COUNT: u64 = 100_000;
    const KEPT: u64 = 10_000;
    const STEP: u64 = 2_000;
    let fixture = Fixture::new();
    let store = &fixture.store;
    let (mut largest, mut warm) = (0, None);
    for from in (0..COUNT).step_by(STEP as usize) {
        fixture.append_to(from, from + STEP);
        if from >= KEPT {
            fixture.trim(from - KEPT);
            warm.get_or_insert_with(|| store.stats());
        }
        if from > 2 * KEPT {
            largest = largest.max(fixture.used());
        }
    }
    store.checkpoint().unwrap();
    let before = warm.unwrap();
    let (read, written) = since(store, &before);
    let bytes = (COUNT - KEPT) * ENTRY_BYTES;
    println!("{read} read, {written} written, {largest} used for {bytes} in all");
    assert!(written < bytes * 2, "{written} written for {bytes}");
    assert!(read < bytes / 4, "{read} read for {bytes}");
    assert!(largest < 2 * (KEPT + STEP) * ENTRY_BYTES, "{largest}");
    assert_eq!(fixture.first(), COUNT - STEP - KEPT);
}
