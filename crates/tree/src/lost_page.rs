//! Pages of trees that cannot be read: both copies are damaged.
//!
//! The store opens without them. Their trees answer with the error, the checkpoints go on referring to the page, and
//! it is tried again by each open. Messages of the log for such trees gather in a tree that waits for its load, under the same id.

use std::sync::Arc;

use crate::metadata::StoredTwice;
use crate::{Error, TreeId};

/// A page of trees that cannot be read.
#[derive(Clone)]
pub(crate) struct LostPage {
    /// The ids of its trees without their low bits.
    pub(crate) number: u32,
    /// Trees with this id or a higher one were created after the page was written.
    pub(crate) until: u32,
    /// Trees of the page that were dropped since.
    pub(crate) dropped: Vec<TreeId>,
    pub(crate) stored: Arc<StoredTwice>,
    error: Arc<Error>,
}

impl LostPage {
    pub(crate) fn new(number: u32, until: u32, stored: StoredTwice, error: Error) -> LostPage {
        LostPage {
            number,
            until,
            dropped: Vec::new(),
            stored: Arc::new(stored),
            error: Arc::new(error),
        }
    }

    /// Whether a tree may be in the page; `number` is that of its page.
    pub(crate) fn holds(&self, id: TreeId, number: u32) -> bool {
        self.number == number && id.0 < self.until && !self.dropped.contains(&id)
    }

    /// Why the page cannot be read.
    pub(crate) fn error(&self) -> Error {
        self.error.repeated()
    }
}
