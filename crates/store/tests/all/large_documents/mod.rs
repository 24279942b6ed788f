//! Clients cannot distinguish documents stored in parts from others: after any operation they see the documents of a plain
//! map of whole documents, byte by byte. Random operations at several sizes, on a disk that crashes, in several threads,
//! and hand-written cases.
//!
//! `FROND_LARGE_UPDATES` sets how many operations there are, `FROND_LARGE_SEED` the first seed. A failure names its
//! setting and its seed; `FROND_LARGE_SEED=<seed> FROND_LARGE_UPDATES=1` runs that seed alone.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod corners;
mod crashes;
pub(crate) mod model;
pub(crate) mod operations;
mod queries;
mod setting;
mod shrink;
#[allow(dead_code, unused_imports, reason = "each test uses a part of it")]
#[path = "../../../../tree/tests/support/mod.rs"]
mod support;
mod tables;
mod threads;
mod twins;
pub(crate) mod updates;
pub(crate) mod values;
