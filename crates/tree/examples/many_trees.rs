//! Opens a store of many trees, and prints how long it took and how much memory it takes.
//!
//! ```text
//! cargo run --release -p frond-tree --example many_trees -- DIRECTORY [TREES] [ENTRIES]
//! ```
//! The first run fills the directory: trees are created one commit at a time, every tenth stays
//! empty. Later runs open them.

use std::error::Error;
use std::ops::Bound::Unbounded;
use std::path::PathBuf;
use std::time::Instant;

use frond_tree::{Direction, Durability, Options, Store, TreeId, TreeOptions, WriteSet};

/// A field of `/proc/self/status`, in KiB.
fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| {
        rest.trim_start_matches(':')
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    })
    .unwrap_or(0)
}

fn fill(store: &Store, trees: u32, entries: u32) -> frond_tree::Result<()> {
    let began = Instant::now();
    let mut half = began.elapsed();
    for number in 0..trees {
        let mut set = WriteSet::new();
        set.create_tree(store.allocate_tree(), &TreeOptions::default());
        store.commit(set, Durability::Logged)?;
        if number == trees / 2 {
            half = began.elapsed();
        }
    }
    let all = began.elapsed();
    println!(
        "created {trees} trees: first half {half:.2?}, second half {:.2?}",
        all - half
    );
    for number in 1..=trees {
        if number % 10 == 0 {
            continue;
        }
        let mut set = WriteSet::new();
        for entry in 0..entries {
            let key = format!("key {entry:06}");
            set.put(
                TreeId(number),
                key.as_bytes(),
                b"a value of some thirty bytes...",
            );
        }
        store.commit(set, Durability::Logged)?;
    }
    println!("filled after {:.2?}", began.elapsed());
    let began = Instant::now();
    store.checkpoint()?;
    println!("checkpoint of all {:.2?}", began.elapsed());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("which directory?")?);
    let trees = arguments.next().map_or(Ok(10_000), |text| text.parse())?;
    let entries = arguments.next().map_or(Ok(300), |text| text.parse())?;
    if !directory.join("data.frond").exists() {
        let store = Store::open(Options::new(&directory))?;
        fill(&store, trees, entries)?;
        return Ok(());
    }
    let before = status("VmRSS");
    let began = Instant::now();
    let store = Store::open(Options::new(&directory))?;
    let opened = began.elapsed();
    let (rss, peak) = (status("VmRSS"), status("VmHWM"));
    println!(
        "opened {} trees in {opened:.2?}: resident {:.1} MiB (peak {:.1}, {:.1} before)",
        store.stats().trees,
        rss as f64 / 1024.0,
        peak as f64 / 1024.0,
        before as f64 / 1024.0,
    );

    let mut set = WriteSet::new();
    set.put(TreeId(1), b"one", b"more");
    store.commit(set, Durability::Logged)?;
    let written = store.stats().written_bytes;
    let began = Instant::now();
    store.checkpoint()?;
    println!(
        "checkpoint of one tree {:.2?}, {} bytes",
        began.elapsed(),
        store.stats().written_bytes - written
    );

    let snapshot = store.snapshot();
    let (began, mut found) = (Instant::now(), 0u64);
    for number in 1..=store.stats().trees as u32 {
        let mut cursor =
            snapshot.cursor(TreeId(number), Unbounded, Unbounded, Direction::Forward)?;
        while cursor.next()?.is_some() {
            found += 1;
        }
    }
    println!(
        "read {found} entries of all trees in {:.2?}",
        began.elapsed()
    );
    Ok(())
}
