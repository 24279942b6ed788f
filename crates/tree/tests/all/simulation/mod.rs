//! The engine on a simulated disk: crashes at any operation, torn, lost and reordered writes, failing
//! operations, full disks, flipped bits. After each crash the content is compared with a model, and some of
//! the stores are verified.
//!
//! `FROND_CRASHES` sets the number of crashes, `FROND_SEED` the first seed, `FROND_FLIP_STEP` which bits are flipped:
//! each one, or at regular intervals. One seed in four has an encrypted store; with `FROND_ENCRYPTED=1` all have one. A failure names the seed; `FROND_SEED=<seed> FROND_CRASHES=1` runs it again.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod copies;
mod defects;
mod flips;
mod full_disk;
mod log;
pub(crate) mod model;
mod stamps;
mod transactions;
mod trouble;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use trouble::Counts;

/// Crashes without a setting: a share that takes some seconds.
const CRASHES: u64 = 500;
/// One in this number of seeds runs with background threads, and cannot be replayed exactly.
const THREADED: u64 = 16;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// One in this number of seeds has an encrypted store.
const ENCRYPTED: u64 = 4;

fn is_encrypted(seed: u64) -> bool {
    seed % ENCRYPTED == 1 || setting("FROND_ENCRYPTED", 0) > 0
}

fn is_inline(seed: u64) -> bool {
    !seed.is_multiple_of(THREADED)
}

/// This number of crashes is a proof, which takes all processors and shows that each fault happened.
const PROOF: u64 = 10_000;

/// Runs the seeds on several threads until there were enough crashes.
#[test]
fn survives_crashes_at_random_operations() {
    let first = setting("FROND_SEED", 1);
    let wanted = setting("FROND_CRASHES", CRASHES);
    let next = AtomicU64::new(first);
    let counts = Mutex::new(Counts::default());
    let failed = Mutex::new(Vec::new());
    let reported = Mutex::new(Instant::now());
    let threads = match wanted {
        1 => 1,
        PROOF.. => std::thread::available_parallelism().map_or(2, Into::into),
        _ => 2,
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while counts.lock().unwrap().crashes < wanted {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let run = || world::run(seed, is_inline(seed), is_encrypted(seed));
                    match catch_unwind(AssertUnwindSafe(run)) {
                        Ok(outcome) => *counts.lock().unwrap() += outcome.counts,
                        Err(_) => {
                            println!("seed {seed} failed");
                            failed.lock().unwrap().push(seed);
                            if failed.lock().unwrap().len() >= 20 {
                                return;
                            }
                        }
                    }
                    let mut reported = reported.lock().unwrap();
                    if reported.elapsed() > Duration::from_secs(10) {
                        *reported = Instant::now();
                        let crashes = counts.lock().unwrap().crashes;
                        println!("{crashes} of {wanted} crashes, seeds {first} to {seed}");
                    }
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    let last = next.load(Ordering::Relaxed) - 1;
    println!("seeds {first} to {last}:\n{counts}");
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "failed seeds: {failed:?}");
    if wanted >= PROOF {
        let missing = counts.missing();
        assert!(missing.is_empty(), "these never happened: {missing:?}");
    }
}

#[test]
fn a_seed_replays_exactly() {
    for seed in (1..9).filter(|seed| is_inline(*seed)) {
        assert_eq!(
            world::run(seed, true, is_encrypted(seed)),
            world::run(seed, true, is_encrypted(seed)),
            "seed {seed}"
        );
    }
}
