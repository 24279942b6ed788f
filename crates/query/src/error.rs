//! The error of this crate is the one of `frond-error`.

pub use frond_error::{Error, ErrorCode, Result};
