//! Writing documents: [`insert`], [`update`], [`delete`], [`find_and_modify`].
//!
//! Every commit puts documents and index entries into one write set ([`staging`]) on top of a
//! snapshot. The primary keys and the keys of unique indexes are guarded: if another writer commits
//! one of them first, the engine refuses the whole write set, and the operation is tried again on a
//! newer snapshot ([`retry`]). Entries of other indexes are blind puts: nothing is read for them.

pub mod delete;
pub(crate) mod duplicate;
pub mod find_and_modify;
pub mod insert;
mod large;
mod modify;
mod retry;
pub mod staging;
pub mod update;

use crate::error::Error;
pub(crate) use retry::Retry;

/// One document or statement of a bulk operation that failed.
#[derive(Debug)]
pub struct WriteError {
    /// Its place in the request.
    pub index: usize,
    /// Why.
    pub error: Error,
}
