//! Tests of the workloads against a small server.
//!
//! They are one program, because each program of its own is linked with everything below it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(unused_imports, reason = "each test uses a part of it")]
#[path = "../store/mod.rs"]
mod store;

mod finds;
mod groups;
mod indexcost;
mod manykeys;
mod null;
mod servers;
mod sysbench;
