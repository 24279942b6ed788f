//! Inserts documents with random secondary keys, prints the speed and how long commits take, then reads some of them back.
//!
//! `cargo run --release -p frond-tree --example random_insert -- DIRECTORY [MILLIONS] [CACHE_MIB] [THREADS] [load]`
//!
//! With `load` it reads nothing.

#[path = "../../../tests/support/processor_time.rs"]
mod processor_time;

use std::io::Write;
use std::ops::Bound;
use std::time::{Duration, Instant};

use frond_tree::{Direction, Durability, Options, Result, Store, TreeId, TreeOptions, WriteSet};
use processor_time::processor_time;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Secondary trees; each document has a random key of 32 bytes in each.
const SECONDARIES: usize = 3;
/// Documents in one report.
const REPORT: u64 = 250_000;

fn secondary_key(document: u64, tree: usize) -> [u8; 44] {
    let mut random = SmallRng::seed_from_u64(document ^ (tree as u64 + 1) << 56);
    let mut key = [0; 44];
    random.fill(&mut key[..32]);
    key[32..].copy_from_slice(&primary_key(document));
    key
}

fn primary_key(document: u64) -> [u8; 12] {
    let mut key = [7; 12];
    key[4..].copy_from_slice(&document.to_be_bytes());
    key
}

/// 200 bytes, half of them random.
fn value(document: u64) -> [u8; 200] {
    let mut value = [b'v'; 200];
    SmallRng::seed_from_u64(document).fill(&mut value[..96]);
    value
}

/// A short random sleep-free loop of writers; returns when all documents from `from` to `to` are in, with the time of each commit
/// in nanoseconds.
fn load(
    store: &Store,
    primary: TreeId,
    secondaries: &[TreeId],
    from: u64,
    to: u64,
    threads: u64,
) -> Result<Vec<u32>> {
    let results: Vec<Result<Vec<u32>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut document = from + thread;
                    let mut times = Vec::with_capacity(((to - from) / threads) as usize + 1);
                    let mut begin = Instant::now();
                    while document < to {
                        let mut set = WriteSet::new();
                        set.put(primary, &primary_key(document), &value(document));
                        for (index, tree) in secondaries.iter().enumerate() {
                            set.put(*tree, &secondary_key(document, index), &[]);
                        }
                        store.commit(set, Durability::Logged)?;
                        document += threads;
                        let end = Instant::now();
                        times.push((end - begin).as_nanos().min(u128::from(u32::MAX)) as u32);
                        begin = end;
                    }
                    Ok(times)
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("a writer"))
            .collect()
    });
    let parts: Result<Vec<Vec<u32>>> = results.into_iter().collect();
    Ok(parts?.concat())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize, default: u64| {
        arguments
            .get(index)
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let directory = arguments.get(1).expect("a directory");
    let documents = number(2, 2) * 1_000_000;
    let mut options = Options::new(directory);
    options.cache_bytes = number(3, 256) as usize * 1024 * 1024;
    let threads = number(4, 1);
    let store = Store::open(options)?;
    let primary = store.allocate_tree();
    let secondaries: Vec<TreeId> = (0..SECONDARIES).map(|_| store.allocate_tree()).collect();
    let mut set = WriteSet::new();
    for tree in secondaries.iter().chain([&primary]) {
        set.create_tree(*tree, &TreeOptions::default());
    }
    store.commit(set, Durability::Logged)?;

    let start = Instant::now();
    let (mut done, mut times) = (0, Vec::new());
    while done < documents {
        let part = Instant::now();
        times.extend(load(
            &store,
            primary,
            &secondaries,
            done,
            done + REPORT,
            threads,
        )?);
        done += REPORT;
        let stats = store.stats();
        println!(
            "{:>6.2} M  {:>7.0}/s  logged {:>5} MB  written {:>6} MB  file {:>5} MB",
            done as f64 / 1e6,
            REPORT as f64 / part.elapsed().as_secs_f64(),
            stats.log_written_bytes >> 20,
            stats.written_bytes >> 20,
            stats.space.file_bytes >> 20,
        );
        std::io::stdout().flush().expect("standard output");
    }
    let processor = processor_time("self").as_secs_f64() / done as f64 * 1e6;
    times.sort_unstable();
    let at = |share: f64| f64::from(times[((times.len() - 1) as f64 * share) as usize]) / 1000.0;
    println!(
        "commits: p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, p99.99 {:.0} us, longest {:.0} us; {processor:.2} processor seconds a million",
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        at(1.0),
    );
    drop(times);
    let logical = done * (212 + 44 * SECONDARIES as u64);
    let stats = store.stats();
    println!(
        "{:.0} documents/s; written per logical byte {:.2} with the log, {:.3} for the log; file {:.2} of logical",
        done as f64 / start.elapsed().as_secs_f64(),
        (stats.written_bytes + stats.log_written_bytes) as f64 / logical as f64,
        stats.log_written_bytes as f64 / logical as f64,
        stats.space.file_bytes as f64 / logical as f64,
    );
    for tree in secondaries.iter().chain([&primary]) {
        println!("{:?}", store.tree_stats(*tree));
    }

    if arguments.get(5).is_some_and(|option| option == "load") {
        return store.close();
    }
    let snapshot = store.snapshot();
    let mut random = SmallRng::seed_from_u64(99);
    measure("point reads of the primary", || {
        let document = random.random_range(0..done);
        let found = snapshot.get(primary, &primary_key(document))?;
        assert_eq!(found.as_deref(), Some(&value(document)[..]));
        Ok(1)
    })?;
    measure("absent keys of a secondary", || {
        let key = secondary_key(random.random::<u64>() | 1 << 63, 0);
        assert!(!snapshot.contains(secondaries[0], &key)?);
        Ok(1)
    })?;
    measure("scans of 100 entries of a secondary", || {
        let key = secondary_key(random.random(), 1);
        let lower = Bound::Included(&key[..32]);
        let mut cursor =
            snapshot.cursor(secondaries[1], lower, Bound::Unbounded, Direction::Forward)?;
        for _ in 0..100 {
            cursor.next()?;
        }
        Ok(1)
    })?;
    let mut cursor = snapshot.cursor(
        secondaries[1],
        Bound::Unbounded,
        Bound::Unbounded,
        Direction::Forward,
    )?;
    let start = Instant::now();
    let mut entries = 0u64;
    while cursor.next()?.is_some() {
        entries += 1;
    }
    assert_eq!(entries, done);
    println!(
        "full scan: {:.0} entries/s",
        entries as f64 / start.elapsed().as_secs_f64()
    );
    let start = Instant::now();
    store.close()?;
    println!("closed in {:?}", start.elapsed());
    Ok(())
}

/// Calls `work` for three seconds and prints how often it ran in one.
fn measure(name: &str, mut work: impl FnMut() -> Result<u64>) -> Result<()> {
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(3) {
        for _ in 0..100 {
            count += work()?;
        }
    }
    println!(
        "{name}: {:.0}/s",
        count as f64 / start.elapsed().as_secs_f64()
    );
    Ok(())
}
