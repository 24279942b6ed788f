//! Operations on top of a snapshot.

use std::ops::{Deref, DerefMut};

use crate::operations::Operations;

/// Operations that are committed together or not at all. Later operations on a key win over earlier ones.
///
/// Keys that two writers may change depending on what they read must always be written with the
/// guarded calls: then the later commit fails with [`crate::Error::Conflict`] if the key was committed
/// after its snapshot. Other writes are blind and never conflict.
///
/// The operations are the same for all engines; only the snapshot `S`, which guarded keys must not have changed since, is the
/// engine's own.
pub struct WriteSet<S> {
    operations: Operations,
    snapshot: Option<S>,
}

impl<S> Default for WriteSet<S> {
    fn default() -> WriteSet<S> {
        WriteSet {
            operations: Operations::default(),
            snapshot: None,
        }
    }
}

impl<S> WriteSet<S> {
    /// An empty write set without a snapshot: its guarded keys are only recorded, for others.
    pub fn new() -> WriteSet<S> {
        WriteSet::default()
    }

    /// These operations, whose guarded keys must not have changed since `snapshot`, if there is one.
    #[inline]
    pub fn from_parts(operations: Operations, snapshot: Option<S>) -> WriteSet<S> {
        WriteSet {
            operations,
            snapshot,
        }
    }

    /// The operations, and the snapshot that guarded keys must not have changed since.
    #[inline]
    pub fn into_parts(self) -> (Operations, Option<S>) {
        (self.operations, self.snapshot)
    }

    /// The snapshot that guarded keys must not have changed since.
    #[inline]
    pub fn snapshot(&self) -> Option<&S> {
        self.snapshot.as_ref()
    }

    /// Replaces the snapshot by another one of the same moment.
    pub fn set_snapshot(&mut self, snapshot: S) {
        self.snapshot = Some(snapshot);
    }

    /// Drops the snapshot and all operations, and keeps the buffers for reuse. `None` if they are too small or too large.
    pub fn into_spare(self) -> Option<WriteSet<S>> {
        let spare = self.operations.into_spare()?;
        Some(WriteSet::from_parts(spare, None))
    }
}

impl<S: Clone> WriteSet<S> {
    /// An empty write set whose guarded keys must not have changed since `snapshot`.
    pub fn with_snapshot(snapshot: &S) -> WriteSet<S> {
        WriteSet::from_parts(Operations::default(), Some(snapshot.clone()))
    }

    /// Sets the snapshot, and reserves capacity for operations of about `bytes` bytes.
    pub fn with_capacity(mut self, snapshot: &S, bytes: usize) -> WriteSet<S> {
        self.snapshot = Some(snapshot.clone());
        self.operations.reserve(bytes);
        self
    }
}

impl<S> Deref for WriteSet<S> {
    type Target = Operations;

    #[inline]
    fn deref(&self) -> &Operations {
        &self.operations
    }
}

impl<S> DerefMut for WriteSet<S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Operations {
        &mut self.operations
    }
}
