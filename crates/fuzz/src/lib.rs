//! Fuzz targets: everything that Frond decodes or parses, from the wire, from the disk and from its command line. The README
//! describes how to run them.

#![forbid(unsafe_code)]

mod corpus;
mod memory_disk;
mod mutate;
mod panics;
mod target;
mod targets;

pub use corpus::{folder, inputs};
pub use mutate::Mutator;
pub use panics::watch as watch_panics;
pub use target::{Format, Target};
pub use targets::{TARGETS, named};
