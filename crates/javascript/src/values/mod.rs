//! Values of BSON in JavaScript, and the other way round.

mod lazy;
mod names;
pub mod read;
mod types;
pub mod write;

pub use lazy::Document;
pub use types::Types;
