//! Backs a store up while it is written to, verifies the copy, and salvages it after some damage.
//!
//! ```text
//! cargo run --release -p frond-tree --example backup -- DIRECTORY
//! ```

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use frond_tree::disk::FsDisk;
use frond_tree::{Durability, Options, Store, TreeOptions, WriteSet};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("which directory?")?);
    let (live, copy) = (directory.join("live"), directory.join("copy"));
    let store = Store::open(Options::new(&live))?;
    let tree = store.allocate_tree();
    let mut set = WriteSet::new();
    set.create_tree(tree, &TreeOptions::default());
    for number in 0..200_000u32 {
        set.put(
            tree,
            &number.to_be_bytes(),
            format!("value {number}").as_bytes(),
        );
    }
    store.commit(set, Durability::Logged)?;
    store.checkpoint()?;

    // The copy is what this snapshot sees, whatever is committed from here on.
    let snapshot = store.snapshot();
    let mut later = WriteSet::new();
    later.put(tree, b"later", b"not in the copy");
    store.commit(later, Durability::Logged)?;
    let report = snapshot.backup(Options::new(&copy), &mut |_| {})?;
    println!("copied {} runs, {} bytes", report.runs, report.run_bytes);

    // Verification changes nothing, so a read-only disk suffices.
    let read_only = Options::with_disk(Arc::new(FsDisk::read_only(copy.clone())));
    let report = Store::verify(&read_only, &mut |_| {})?;
    println!(
        "verified {} entries, {} problems",
        report.entries,
        report.problems.len()
    );

    let file = copy.join("data.frond");
    let mut bytes = std::fs::read(&file)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes)?;
    for problem in Store::verify(&read_only, &mut |_| {})?.problems {
        println!("found {problem}");
    }
    let new = Options::new(directory.join("new"));
    let report = Store::salvage(&read_only, new, &mut |_| {})?;
    println!("salvaged {} messages", report.messages);
    for lost in report.lost {
        println!("lost {lost}");
    }
    Ok(())
}
