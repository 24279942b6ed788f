//! Values of BSON in JavaScript, and the other way round.

mod document;
mod names;
mod properties;
pub mod read;
mod types;
pub mod write;

pub use document::{Bytes, Document};
pub use types::Types;
