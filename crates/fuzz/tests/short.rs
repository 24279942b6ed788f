//! A short share of fuzzing: all inputs that are kept, and some changes of them, the same each time. `make fuzz` goes on.
//!
//! `FROND_FUZZ_TARGET` names one target, `FROND_FUZZ_MILLIS` is the time for the changes of each (700), and
//! `FROND_FUZZ_SEED` chooses other changes.
#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use frond_fuzz::{Mutator, TARGETS, Target, inputs};

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

/// Runs an input, and keeps it in a file if it fails.
fn check(target: &Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| target.check(input))).is_err() {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let file = folder.join(format!("fuzz-{}", target.name));
        std::fs::write(&file, input).unwrap();
        panic!(
            "the target {} failed; repeat it by: cargo run -p frond-fuzz {} {}",
            target.name,
            target.name,
            file.display()
        );
    }
}

/// One after the other, since a panic anywhere counts.
#[test]
fn no_input_fails() {
    frond_fuzz::watch_panics();
    let only = std::env::var("FROND_FUZZ_TARGET").ok();
    let time = Duration::from_millis(setting("FROND_FUZZ_MILLIS", 700));
    let mut run = 0;
    for target in TARGETS {
        if only.as_deref().is_some_and(|only| only != target.name) {
            continue;
        }
        run += 1;
        let known = inputs(target);
        assert!(!known.is_empty(), "{} has no inputs", target.name);
        known.iter().for_each(|input| check(target, input));
        let count = known.len();
        let mut mutator = Mutator::new(target.format, known, setting("FROND_FUZZ_SEED", 1));
        let (began, mut changed) = (Instant::now(), 0);
        while changed == 0 || began.elapsed() < time {
            check(target, &mutator.input());
            changed += 1;
        }
        println!("{}: {count} inputs, {changed} changed ones", target.name);
    }
    assert!(run > 0, "FROND_FUZZ_TARGET names no target");
}
