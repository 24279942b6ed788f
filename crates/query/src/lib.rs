//! MongoDB's query, update and aggregation languages as pure functions over BSON.

pub mod error;
