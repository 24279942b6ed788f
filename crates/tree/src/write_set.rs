//! Write sets of this engine.

use crate::snapshot::Snapshot;

/// The operations of one commit, and the snapshot that guarded keys must not have changed since.
pub type WriteSet = frond_kv::WriteSet<Snapshot>;
