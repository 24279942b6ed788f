//! Backups of a store that is open: a copy of a checkpoint, and the log, as a stream of documents or in a directory.

mod directory;
mod rate;
mod request;
mod stream;
mod target;

pub use directory::DirectoryBackup;
pub use rate::Rate;
pub use request::BackupRequest;
pub use stream::{BackupProgress, BackupStream, Step};
pub use target::{RestoreTarget, after};

pub use frond_storage::keyspace::{RestorePoint, Restored};

#[cfg(test)]
mod tests;
