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

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use frond_bson::{Collator, Doc, Timestamp};
use frond_query::Environment;

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

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

/// What expressions in filters and projections refer to, as of now.
pub(crate) fn environment<'a>(
    variables: Option<&'a Doc>,
    collator: &'a Collator,
) -> Environment<'a> {
    Environment {
        variables,
        now_ms: now_ms(),
        collator,
    }
}

/// The next timestamp: the second, and a number that makes it unique in this process.
pub(crate) fn clock_timestamp() -> Timestamp {
    static COUNTER: AtomicU32 = AtomicU32::new(1);
    Timestamp {
        time: u32::try_from(now_ms() / 1000).unwrap_or(u32::MAX),
        increment: COUNTER.fetch_add(1, Ordering::Relaxed),
    }
}
