//! MongoDB's query, update and aggregation languages as pure functions over BSON.
//!
//! Everything here takes documents as bytes ([`frond_bson::Doc`]) and returns booleans, keys or new
//! documents. Nothing reads files, sockets or clocks.

mod accumulators;
pub mod aggregate;
mod bounded_sort;
pub mod bounds;
mod characters;
pub mod collation;
mod decimal;
mod display;
mod element_order;
mod environment;
pub mod expr;
pub mod geo;
mod hash;
pub mod matcher;
pub mod memory;
pub mod meta;
mod number;
mod options;
pub mod paths;
mod pattern;
pub mod projection;
mod random;
mod raw;
pub mod reference;
pub mod required_fields;
pub mod script;
pub mod sort;
pub mod spill;
mod statistics;
#[cfg(test)]
mod testing;
pub mod text;
pub mod update;

pub use environment::Environment;
pub use hash::{Md5, hash64};
