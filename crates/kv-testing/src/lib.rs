//! What tests of storage engines share: the conformance suite of the seam ([`conformance`]), and an engine in memory
//! ([`Memory`]) that passes it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "this is code of tests; a failed expectation is a failed test"
)]

mod checks;
mod conformance;
mod memory;
mod operators;

pub use conformance::{Check, Keyspace, checks, run};
pub use memory::{Memory, MemoryOptions};
pub use operators::{Adds, Numbers, number, to_bytes};
