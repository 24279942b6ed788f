//! The log and the trees of an engine, as `openraft` wants to see them.

mod log;
mod machine;
mod reader;

pub(crate) use log::Log;
pub(crate) use machine::Machine;

#[cfg(test)]
mod suite;
