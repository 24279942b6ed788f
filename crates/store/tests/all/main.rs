//! Tests of the store through its public functions.
//!
//! They are one program, because each program of its own is linked with everything below it.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[allow(unused_imports, reason = "each test uses a part of it")]
#[path = "../common/mod.rs"]
mod common;

mod aggregate;
mod basic;
mod capped;
mod change_streams;
mod collation;
mod compact;
mod concurrent;
mod crash;
mod device_reads;
mod emptying;
mod expiry;
mod explain;
mod expressions;
mod fast_updates;
mod geo;
mod index_builds;
mod index_kinds;
mod interrupted_waits;
mod large_documents;
mod long_keys;
mod memory;
mod multikey;
mod natural_order;
mod noted_changes;
mod offline;
mod oplog;
mod parallel_scans;
mod partition_crashes;
mod partitions;
mod plan_abilities;
mod plan_corners;
mod plan_fuzz;
mod primary_key;
mod same_results;
mod servers;
mod session_records;
mod stalls;
mod text;
mod transactions;
mod views;
mod writes;
