//! Fast updates: updates of ordinary documents as messages that the engine keeps, folds and applies. Nothing is read to send one.
//!
//! A message holds operators in a form of its own ([`message`]). To apply them is [`frond_query`]'s work, the same as for an
//! update that has read its document. An update that fails, because of the document that it meets, leaves it as it is; it is
//! counted when its message is applied for good ([`FastUpdateStats`]).
//!
//! A document that is stored in parts cannot be changed by a message to its header alone. Such a header keeps the message
//! ([`crate::record`]): readers apply it to the document, and the next update that reads the document writes it whole.

mod fold;
mod group;
pub mod message;

use std::sync::atomic::{AtomicU64, Ordering};

use frond_error::Error;
use parking_lot::Mutex;

pub use message::Encoder;

/// The number of fast updates since the start of the process.
#[derive(Debug, Default)]
pub struct FastUpdateStats {
    updates: AtomicU64,
    upserts: AtomicU64,
    errors: AtomicU64,
    /// The first error that was not reported yet.
    unreported: Mutex<Option<Error>>,
    reported: AtomicU64,
}

impl FastUpdateStats {
    /// Counts updates that were committed as messages, and those of them that are upserts.
    pub fn sent(&self, updates: u64, upserts: u64) {
        self.updates.fetch_add(updates, Ordering::Relaxed);
        self.upserts.fetch_add(upserts, Ordering::Relaxed);
    }

    /// Counts updates that failed when they were applied.
    pub(crate) fn failed(&self, updates: u64, error: Option<Error>) {
        self.errors.fetch_add(updates, Ordering::Relaxed);
        if let Some(error) = error {
            self.unreported.lock().get_or_insert(error);
        }
    }

    /// Updates that were committed as messages.
    pub fn updates(&self) -> u64 {
        self.updates.load(Ordering::Relaxed)
    }

    /// Returns the number of upserts among the updates that were committed as messages.
    pub fn upserts(&self) -> u64 {
        self.upserts.load(Ordering::Relaxed)
    }

    /// Updates that failed when they were applied.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// The number of errors since the last call, and the first of them. `None` if there was none.
    pub fn unreported(&self) -> Option<(u64, Error)> {
        let error = self.unreported.lock().take()?;
        let errors = self.errors();
        let before = self.reported.swap(errors, Ordering::Relaxed);
        Some((errors.saturating_sub(before), error))
    }
}
