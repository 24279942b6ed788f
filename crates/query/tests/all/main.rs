//! Tests of the query language through the public functions.
//!
//! They are one program, because each program of its own is linked with everything below it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod allocations;
mod hostile;
mod keys_cover_matches;
