//! An index never changes an answer: random documents, indexes of all kinds, filters and requests. What the planner
//! and every index that holds all documents find equals what a scan of the collection finds.
//!
//! Each round has a collection with up to six indexes and a copy of it without any. Finds with sort, skip and limit,
//! counts, distinct values, projections, updates and deletes by filter are compared. `FROND_PLAN_FUZZ` is the number of
//! comparisons to make and `FROND_PLAN_FUZZ_SEED` the seed of the first round: a failure names its own.
#![allow(clippy::unwrap_used)]

use crate::common;
mod compare;
mod generate;

use std::sync::atomic::{AtomicU64, Ordering};

use common::Fixture;

/// Comparisons in a default test run.
const COMPARISONS: u64 = 20_000;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

/// Runs rounds on all cores until the number of comparisons is reached.
#[test]
fn plans_find_what_a_collection_scan_finds() {
    let wanted = setting("FROND_PLAN_FUZZ", COMPARISONS);
    let next_seed = AtomicU64::new(setting("FROND_PLAN_FUZZ_SEED", 1));
    let compared = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let fixture = Fixture::new();
                while compared.load(Ordering::Relaxed) < wanted {
                    let seed = next_seed.fetch_add(1, Ordering::Relaxed);
                    let made = compare::round(&fixture, seed);
                    compared.fetch_add(made, Ordering::Relaxed);
                }
            });
        }
    });
    let (compared, last) = (compared.into_inner(), next_seed.into_inner() - 1);
    println!("{compared} comparisons, none wrong; the last seed was {last}");
}
