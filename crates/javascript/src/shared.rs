//! The state that the engines of all threads share.

use std::sync::Arc;

use frond_error::Result;

use crate::limits::Heaps;

/// The state that the engines of all threads share.
pub struct Shared {
    pub heaps: Arc<Heaps>,
    /// Fails if the request of this thread has to end.
    pub check: Box<dyn Fn() -> Result<()> + Send + Sync>,
    /// Writes what a function prints.
    pub print: Box<dyn Fn(&str) + Send + Sync>,
}
