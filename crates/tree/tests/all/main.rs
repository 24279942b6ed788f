//! Tests of the engine through its public functions.
//!
//! They are one program, because each program of its own is linked with everything below it.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[allow(dead_code, unused_imports, reason = "each test uses a part of it")]
#[path = "../support/mod.rs"]
mod support;

#[path = "../support/list.rs"]
mod list;

#[path = "../../../../tests/support/waiting.rs"]
mod waiting;

mod backup;
mod bulk;
mod conformance;
mod copy;
mod cores;
mod damage;
mod encryption;
mod forged;
mod format;
mod kill;
mod log_recovery;
mod long_keys;
mod malformed;
mod model;
mod open;
mod panics;
mod range_delete;
mod replica_set;
mod replica_threads;
mod retained;
mod salvage;
mod simulation;
mod stalls;
mod stamped_log;
mod stamps;
mod transaction_model;
mod transactions;
