//! The stored form of collections: documents and entries of indexes as keys and values in ordered trees of bytes.
#![forbid(unsafe_code)]

pub mod clock;
pub mod compute_slots;
pub mod context;
pub mod environment;
pub mod error;
pub mod index;
pub mod intervals;
pub mod keyspace;
pub mod merge;
pub mod namespace;
pub mod options;
pub mod plan_rules;
pub mod points;
pub mod record;
pub mod record_layout;
pub mod scripts;
pub mod text;
pub mod tree_options;
