//! Tests of documents through the public functions.
//!
//! They are one program, because each program of its own is linked with everything below it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(unused_imports, reason = "each test uses a part of it")]
#[path = "../common/mod.rs"]
mod common;

mod allocations;
mod decimals;
mod documents;
mod json;
mod keys;
