//! An engine as the checks see it.

use std::sync::Arc;

use crate::Numbers;

/// An empty keyspace of an engine whose merge operator is [`crate::Adds`].
pub struct Keyspace<E> {
    /// A handle: that of another server, if the engine can have several.
    pub open: Box<dyn Fn() -> E>,
    /// Closes the engine and opens it again with what is durable; `None` if nothing outlives it.
    pub reopen: Option<Box<dyn Fn() -> E>>,
    /// The engine's source of stamps; `None` if it makes them itself.
    pub numbers: Option<Arc<Numbers>>,
    /// Whether a key that was guarded and not written makes later guards conflict.
    pub remembers_guards: bool,
    /// Whether scans backward of a snapshot find what was replaced since.
    pub scans_the_past_backward: bool,
}

impl<E> Keyspace<E> {
    /// A handle, with some stamps reserved.
    pub(crate) fn engine(&self) -> E {
        if let Some(numbers) = &self.numbers {
            numbers.reserve(1 << 20);
        }
        (self.open)()
    }
}
