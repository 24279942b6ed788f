//! The Frond server: connections, sessions, commands, cursors and settings.
//!
//! [`command_line`] makes the arguments of `frond serve`, and [`run`] runs the server.
#![forbid(unsafe_code)]

mod access;
mod addresses;
mod arguments;
mod audit;
mod authentication;
mod authorization;
mod background;
mod backup_directory;
mod backups;
mod client;
#[cfg(test)]
mod client_fields;
mod cluster_parameters;
mod commands;
mod concern;
mod connection;
mod context;
mod cursors;
pub mod doctor;
mod errors;
mod fail_points;
mod feature_version;
mod fsync_lock;
mod held_documents;
mod host;
mod http;
mod internal_collections;
mod labels;
mod last_error;
mod lifecycle;
mod limits;
mod logins;
mod memory_quota;
mod needs;
mod net;
mod observability;
pub mod offline;
pub mod offline_keys;
mod operation;
mod oplog;
mod outcome;
mod parameters;
mod peer;
mod peers;
mod query_settings;
pub mod reference;
mod replication;
mod reply;
mod reply_quota;
mod request;
mod resync;
mod rollback;
mod scripting;
mod sessions;
mod settings;
mod sharding;
mod shown_command;
mod socket_memory;
mod state;
mod statements;
mod tail_throttle;
#[cfg(test)]
mod testing;
mod tls;
mod transactions;
mod ttl;

pub use host::memory::usable_bytes;
pub use lifecycle::run;
pub use parameters::command_line;
pub use scripting::{run_as_worker, worker_program};

/// Reads the settings from a command line, and from the configuration file that it names, without a server: for the fuzz
/// targets.
///
/// # Errors
/// The message that `frond serve` prints.
#[doc(hidden)]
pub fn check_settings(arguments: &clap::ArgMatches) -> Result<(), String> {
    let settings = parameters::read(arguments);
    settings.map(drop).map_err(|error| error.to_string())
}
