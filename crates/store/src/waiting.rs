//! The waiting that all tests share, for tests inside of this crate.

#[path = "../../../tests/support/waiting.rs"]
mod shared;

pub(crate) use shared::*;
