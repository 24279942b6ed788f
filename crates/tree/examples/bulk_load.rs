//! Fills a tree with random keys of 44 bytes by commits, by the bulk loader, and by the bulk loader from sorted
//! keys, and prints the speed, the processor time, and the bytes written.
//!
//! `cargo run --release -p frond-tree --example bulk_load -- DIRECTORY [MILLIONS] [CACHE_MIB]`

#[path = "../../../tests/support/processor_time.rs"]
mod processor_time;

use std::time::Instant;

use frond_tree::{Duplicates, Durability, Options, Result, Store, TreeOptions, WriteSet};
use processor_time::processor_time;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Entries in one commit.
const COMMIT_ENTRIES: u64 = 1000;

fn key(number: u64) -> [u8; 44] {
    let mut key = [0; 44];
    SmallRng::seed_from_u64(number).fill(&mut key[..32]);
    key[36..].copy_from_slice(&number.to_be_bytes());
    key
}

fn measure(
    name: &str,
    store: &Store,
    entries: u64,
    load: impl FnOnce(&Store) -> Result<()>,
) -> Result<()> {
    let before = store.stats();
    let (start, processor) = (Instant::now(), processor_time("self"));
    load(store)?;
    let (took, processor) = (start.elapsed(), processor_time("self") - processor);
    let after = store.stats();
    let written = after.written_bytes - before.written_bytes + after.log_bytes - before.log_bytes;
    println!(
        "{name:<28}{:>9.0} entries/s, {:.2} CPU seconds for a million, {:.2} bytes written for each logical byte",
        entries as f64 / took.as_secs_f64(),
        processor.as_secs_f64() / entries as f64 * 1e6,
        written as f64 / (entries * 44) as f64,
    );
    Ok(())
}

fn bulk_load(store: &Store, keys: impl Iterator<Item = [u8; 44]>) -> Result<()> {
    let tree = store.allocate_tree();
    let mut set = WriteSet::new();
    set.create_tree_to_load(tree, &TreeOptions::default());
    store.commit(set, Durability::Logged)?;
    let mut loader = store.bulk_loader(&[(tree, Duplicates::LastWins)], None)?;
    for key in keys {
        loader.add(0, &key, b"")?;
    }
    loader.finish()
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize, default: u64| {
        arguments
            .get(index)
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let mut options = Options::new(arguments.get(1).expect("a directory"));
    let entries = number(2, 2) * 1_000_000;
    options.cache_bytes = number(3, 256) as usize * 1024 * 1024;
    let store = Store::open(options)?;
    measure("commits of 1000 entries", &store, entries, |store| {
        let tree = store.allocate_tree();
        let mut set = WriteSet::new();
        set.create_tree(tree, &TreeOptions::default());
        for first in (0..entries).step_by(COMMIT_ENTRIES as usize) {
            for number in first..(first + COMMIT_ENTRIES).min(entries) {
                set.put(tree, &key(number), b"");
            }
            store.commit(std::mem::take(&mut set), Durability::Logged)?;
        }
        store.checkpoint()
    })?;
    measure("bulk loader", &store, entries, |store| {
        bulk_load(store, (0..entries).map(key))
    })?;
    let mut sorted: Vec<[u8; 44]> = (0..entries).map(key).collect();
    sorted.sort_unstable();
    measure("bulk loader, sorted keys", &store, entries, |store| {
        bulk_load(store, sorted.into_iter())
    })?;
    store.close()
}
