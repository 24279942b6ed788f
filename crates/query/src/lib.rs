//! MongoDB's query, update and aggregation languages as pure functions over BSON.
//!
//! Everything here takes documents as bytes ([`frond_bson::Doc`]) and returns booleans, keys or new
//! documents. Nothing reads files, sockets or clocks.

#[allow(dead_code)] // used by the update operators too
mod display;
pub mod error;
pub mod matcher;
pub mod paths;
pub mod sort;
#[cfg(test)]
mod testing;
