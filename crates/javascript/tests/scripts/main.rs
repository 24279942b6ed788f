//! Functions as queries call them, in both placements: in this process, and in workers.

#![allow(clippy::unwrap_used)]
// The same cases, for each placement.
#![allow(clippy::duplicate_mod)]

use std::path::PathBuf;

use frond_javascript::{Placement, WorkerProgram};

#[path = "cases.rs"]
mod by_threads;
#[path = "cases.rs"]
mod by_workers;
mod hostile;
mod workers;

/// Workers that run the program of this crate's tests.
fn in_workers() -> Placement {
    Placement::Workers(WorkerProgram {
        path: PathBuf::from(env!("CARGO_BIN_EXE_frond-javascript-worker")),
        arguments: Vec::new(),
        variables: Vec::new(),
    })
}

/// The placement for one of the two modules of cases.
fn placement(module: &str) -> Placement {
    if module.ends_with("by_workers") {
        in_workers()
    } else {
        Placement::InProcess
    }
}
