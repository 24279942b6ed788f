//! The engine in memory passes the conformance suite.

use std::sync::Arc;

use frond_kv_testing::{Adds, Keyspace, Memory, MemoryOptions, Numbers};

fn fresh() -> Option<Keyspace<Memory>> {
    let numbers = Arc::new(Numbers::default());
    let engine = Memory::new(MemoryOptions {
        merge: Arc::new(Adds),
        stamps: Some(numbers.clone()),
        ..MemoryOptions::default()
    });
    Some(Keyspace {
        open: Box::new(move || engine.clone()),
        reopen: None,
        numbers: Some(numbers),
        remembers_guards: true,
        scans_the_past_backward: true,
    })
}

frond_kv_testing::conformance!(fresh);
