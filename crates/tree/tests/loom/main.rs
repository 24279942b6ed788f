//! The lock-free parts under a model checker: every interleaving of a few threads, with all values that
//! the memory model allows a load to return.
//!
//! `FROND_PREEMPTIONS` is the number of preemptions per run (2); `all` removes the
//! bound, which takes minutes. The files under test are compiled into this
//! program again, with the atomics and locks of the model checker instead of the system's.

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

mod arena;
mod commits;
mod entries;
mod sync;

#[path = "../../src/memtable/entry.rs"]
#[allow(dead_code, reason = "the models do not call all of it")]
mod entry;
#[path = "../../src/publisher.rs"]
#[allow(dead_code, unused_imports, reason = "the models do not call all of it")]
mod publisher;
#[path = "../../src/memtable/reservations.rs"]
mod reservations;
#[path = "../../../../tests/support/waiting.rs"]
mod waiting;

/// The kinds of messages, for the entries of the models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Delete,
}

impl Kind {
    fn to_byte(self) -> u8 {
        self as u8
    }

    fn from_byte(byte: u8) -> Option<Kind> {
        [Kind::Put, Kind::Delete].get(usize::from(byte)).copied()
    }
}

type Model = (&'static str, fn());

const MODELS: &[Model] = &[
    (
        "entries::a_reader_sees_whole_entries",
        entries::a_reader_sees_whole_entries,
    ),
    (
        "commits::become_visible_in_order",
        commits::become_visible_in_order,
    ),
    (
        "commits::a_snapshot_has_what_was_acknowledged",
        commits::a_snapshot_has_what_was_acknowledged,
    ),
    (
        "commits::a_durable_stamp_is_visible",
        commits::a_durable_stamp_is_visible,
    ),
    (
        "commits::a_flush_sees_all_of_a_sealed_memtable",
        commits::a_flush_sees_all_of_a_sealed_memtable,
    ),
    (
        "commits::a_fold_sees_all_that_is_visible_and_the_flush_waits_for_it",
        commits::a_fold_sees_all_that_is_visible_and_the_flush_waits_for_it,
    ),
    (
        "commits::a_reservation_is_never_counted_too_low",
        commits::a_reservation_is_never_counted_too_low,
    ),
    (
        "commits::a_snapshot_holds_all_that_is_visible",
        commits::a_snapshot_holds_all_that_is_visible,
    ),
    (
        "commits::a_snapshot_sees_trees_with_their_commit",
        commits::a_snapshot_sees_trees_with_their_commit,
    ),
];

fn main() {
    let bound = std::env::var("FROND_PREEMPTIONS").unwrap_or_default();
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let mut passed = 0;
    println!("\nrunning {} models", MODELS.len());
    for (name, model) in MODELS {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = match bound.as_str() {
            "all" => None,
            text => Some(text.parse().unwrap_or(2)),
        };
        let began = std::time::Instant::now();
        // A model that fails panics, and the panic ends the program.
        let (runs, model) = (Arc::new(AtomicUsize::new(0)), *model);
        let counter = runs.clone();
        builder.check(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            model();
        });
        passed += 1;
        let runs = runs.load(Ordering::Relaxed);
        println!("model {name} ... ok ({runs} runs, {:.1?})", began.elapsed());
    }
    println!("\ntest result: ok. {passed} passed; 0 failed");
}
