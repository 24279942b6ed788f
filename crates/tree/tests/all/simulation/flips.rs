//! Every bit of a small store is flipped, one at a time: each flip is reported, or changes no result. A verification
//! reports each one that is not in free space.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use frond_tree::{Durability, Error, Options, Result, Store, VerifyReport};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::simulation::model::{Adder, Model, check_store, commits_in, write_set};
use crate::simulation::setting;
use crate::support::SimDisk;

fn options(disk: &SimDisk) -> Options {
    let mut options = Options::with_disk(Arc::new(disk.clone()));
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(16 << 10);
    options.fanout = 4;
    options.inline = true;
    options.merge = Arc::new(Adder);
    options
}

/// A store with trees of every kind, of which some commits are only in the log. Its content after each commit
/// that only the log holds, and how many were synced before the last group was written.
fn build(seed: u64) -> (SimDisk, Vec<Model>, usize) {
    let mut random = SmallRng::seed_from_u64(seed);
    let disk = SimDisk::new(seed);
    let store = Store::open(options(&disk)).unwrap();
    let mut model = Model::default();
    let mut commit = |model: &mut Model, how| {
        let commit = model.random_commit(&mut random, &store);
        store.commit(write_set(&commit), how).unwrap();
        model.apply(&commit);
    };
    for _ in 0..150 {
        commit(&mut model, Durability::Logged);
    }
    store.checkpoint().unwrap();
    let mut models = vec![model.clone()];
    for _ in 0..12 {
        commit(&mut model, Durability::Synced);
        models.push(model.clone());
    }
    let synced = models.len() - 2;
    disk.crash_after(0);
    drop(store);
    (disk.after_kill(), models, synced)
}

/// The log's buffer. All that it holds is in the log too, so it is not needed.
const BUFFER: &str = "log-buffer.frond";

/// The content of a damaged store is right, or the damage is reported.
fn check(disk: &SimDisk, name: &str, models: &[Model], synced: usize) -> Result<()> {
    let mut random = SmallRng::seed_from_u64(0);
    let is_log = name.starts_with("log") && name != BUFFER;
    let store = Store::open(options(disk))?;
    let outcome = commits_in(&store.snapshot()).and_then(|commits| {
        let lost = models[models.len() - 1].commits - commits;
        let most = if is_log { models.len() - 1 - synced } else { 0 };
        assert!(lost as usize <= most, "{lost} commits are lost");
        let expected = &models[models.len() - 1 - lost as usize];
        check_store(&store, expected, &mut random)
    });
    disk.crash_after(0);
    outcome
}

fn verify(disk: &SimDisk) -> VerifyReport {
    Store::verify(&options(disk), &mut |_| {}).unwrap()
}

/// Blocks of the data file: what is reachable and what is free begins and ends with one.
const BLOCK_BITS: usize = 8 * 4096;

#[test]
fn every_flipped_bit_is_named_or_changes_nothing() {
    let step = setting("FROND_FLIP_STEP", 1021) as usize;
    assert!(step <= BLOCK_BITS, "some blocks would be passed over");
    let (disk, models, synced) = build(setting("FROND_SEED", 1));
    let clean = verify(&disk.copy());
    assert_eq!(clean.problems, []);
    assert!(clean.log_frames > 0 && clean.nodes > 0 && clean.free_bytes > 0);
    let bits: Vec<(String, usize)> = (disk.files().into_iter())
        .flat_map(|(name, len)| {
            let bits = (0..len * 8).step_by(step);
            bits.map(move |bit| (name.clone(), bit))
        })
        .collect();
    let (next, named) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // For each block of the data file, flips that a verification named and that it did not name.
    let blocks = Mutex::new(BTreeMap::<usize, (usize, usize)>::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((name, bit)) = bits.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let copy = disk.copy();
                    copy.flip_bit(name, *bit);
                    let report = verify(&copy);
                    let is_data = name.starts_with("data");
                    if is_data {
                        let is_named =
                            (report.problems.iter()).any(|problem| problem.file == *name);
                        let mut blocks = blocks.lock().unwrap();
                        let (by, not) = blocks.entry(bit / BLOCK_BITS).or_default();
                        *(if is_named { by } else { not }) += 1;
                    } else if name == BUFFER {
                        assert!(report == clean, "bit {bit} of {name}: {report:?}");
                    } else {
                        // At the end a crash could have done it, and so it is reported as one.
                        assert!(report != clean, "bit {bit} of {name} is not named");
                    }
                    match check(&copy, name, &models, synced) {
                        Ok(()) => {}
                        Err(Error::Corrupt { file, .. }) if file == *name => {
                            let problems = &report.problems;
                            assert!(!problems.is_empty(), "bit {bit} of {name}: {report:?}");
                            named.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => panic!("bit {bit} of {name}: {error}"),
                    }
                }
            });
        }
    });
    let named = named.into_inner();
    let blocks = blocks.into_inner().unwrap();
    let verified: usize = blocks.values().map(|(by, _)| by).sum();
    let free = blocks.values().filter(|(by, _)| *by == 0);
    let free_bytes = free.count() as u64 * BLOCK_BITS as u64 / 8;
    println!(
        "{} bits flipped, {named} named by readers; of {} in the data file {verified} named by a verification, \
         the others in {free_bytes} free bytes",
        bits.len(),
        (bits.iter())
            .filter(|(name, _)| name.starts_with("data"))
            .count()
    );
    assert!(named > bits.len() / 20);
    let mixed = blocks.iter().find(|(_, (by, not))| *by > 0 && *not > 0);
    assert_eq!(mixed, None, "a block of which only some bits are watched");
    assert_eq!(free_bytes, clean.free_bytes);
}
