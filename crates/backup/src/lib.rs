//! Backups of a running server, the archive of its log, and restores to a moment: `frond backup`, `frond archive` and
//! `frond restore`.
#![forbid(unsafe_code)]

mod archive;
mod check;
mod command_line;
mod description;
mod error;
mod extent;
mod files;
mod log_store;
mod mark;
mod moment;
mod parts;
mod plan;
mod progress;
mod record;
mod repository;
mod restore;
mod stream;
mod take;

pub use command_line::{
    archive, archive_command, backup, backup_command, restore, restore_command,
};
pub use error::{Error, Result};
