//! The engine on a simulated disk: crashes at any operation, torn, lost and reordered writes, failing
//! operations, full disks, flipped bits. After each crash the content is compared with a model, and some of
//! the stores are verified.
//!
//! `FROND_CRASHES` sets the number of crashes, `FROND_SEED` the first seed, `FROND_FLIP_STEP` which bits are flipped:
//! each one, or each so many. A failure names the seed; `FROND_SEED=<seed> FROND_CRASHES=1` runs it again.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod defects;
mod flips;
mod log;
mod model;
#[allow(dead_code, reason = "each test uses a part of it")]
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Crashes without a setting: a share that takes some seconds.
const CRASHES: u64 = 1000;
/// One seed in so many runs with background threads, and cannot be replayed exactly.
const THREADED: u64 = 16;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn is_inline(seed: u64) -> bool {
    !seed.is_multiple_of(THREADED)
}

/// Runs the seeds on two threads until there were enough crashes.
#[test]
fn survives_crashes_at_random_operations() {
    let first = setting("FROND_SEED", 1);
    let wanted = setting("FROND_CRASHES", CRASHES);
    let (next, crashes) = (AtomicU64::new(first), AtomicU64::new(0));
    let (faults, commits) = (AtomicU64::new(0), AtomicU64::new(0));
    let (loads, verified) = (AtomicU64::new(0), AtomicU64::new(0));
    let failed = Mutex::new(Vec::new());
    let reported = Mutex::new(Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..if wanted == 1 { 1 } else { 2 } {
            scope.spawn(|| {
                while crashes.load(Ordering::Relaxed) < wanted {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let run = || world::run(seed, is_inline(seed));
                    match catch_unwind(AssertUnwindSafe(run)) {
                        Ok(outcome) => {
                            crashes.fetch_add(outcome.crashes, Ordering::Relaxed);
                            faults.fetch_add(outcome.faults, Ordering::Relaxed);
                            commits.fetch_add(outcome.commits, Ordering::Relaxed);
                            loads.fetch_add(outcome.loads, Ordering::Relaxed);
                            verified.fetch_add(outcome.verified, Ordering::Relaxed);
                        }
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
                        println!(
                            "{} of {wanted} crashes, seeds {first} to {seed}",
                            crashes.load(Ordering::Relaxed)
                        );
                    }
                }
            });
        }
    });
    println!(
        "{} crashes, {} verified, {} faults, {} commits, {} loads, seeds {first} to {}",
        crashes.load(Ordering::Relaxed),
        verified.load(Ordering::Relaxed),
        faults.load(Ordering::Relaxed),
        commits.load(Ordering::Relaxed),
        loads.load(Ordering::Relaxed),
        next.load(Ordering::Relaxed) - 1
    );
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "failed seeds: {failed:?}");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in (1..9).filter(|seed| is_inline(*seed)) {
        assert_eq!(
            world::run(seed, true),
            world::run(seed, true),
            "seed {seed}"
        );
    }
}
