//! Tests of replica sets.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod engine;
mod simulation;
mod threads;
