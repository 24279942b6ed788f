//! Write sets and transactions.

use std::ops::{Deref, DerefMut};

use super::{Committed, Durability, EngineError, Snapshot};

type Result<T, E = EngineError> = std::result::Result<T, E>;

/// Operations that are committed together or not at all. Later operations on a key win over earlier ones.
///
/// Both engines take the same list of operations. A cluster also needs the snapshot that guarded keys must not have changed since,
/// which the embedded engine keeps in the list.
#[derive(Default)]
pub struct WriteSet {
    pub(super) list: frond_tree::WriteSet,
    pub(super) base: Option<frond_tikv::Snapshot>,
}

impl WriteSet {
    /// An empty write set without a snapshot: its guarded keys are only recorded, for others.
    #[inline]
    pub fn new() -> WriteSet {
        WriteSet::default()
    }

    /// An empty write set whose guarded keys must not have changed since `snapshot`.
    #[inline]
    pub fn with_snapshot(snapshot: &Snapshot) -> WriteSet {
        match snapshot {
            Snapshot::Tree(snapshot) => {
                WriteSet::of_list(frond_tree::WriteSet::with_snapshot(snapshot))
            }
            Snapshot::Tikv(snapshot) => WriteSet::on(snapshot),
        }
    }

    #[inline]
    pub(super) fn of_list(list: frond_tree::WriteSet) -> WriteSet {
        WriteSet { list, base: None }
    }

    pub(super) fn on(snapshot: &frond_tikv::Snapshot) -> WriteSet {
        WriteSet {
            list: frond_tree::WriteSet::new(),
            base: Some(snapshot.clone()),
        }
    }
}

impl Deref for WriteSet {
    type Target = frond_tree::WriteSet;

    #[inline]
    fn deref(&self) -> &frond_tree::WriteSet {
        &self.list
    }
}

impl DerefMut for WriteSet {
    #[inline]
    fn deref_mut(&mut self) -> &mut frond_tree::WriteSet {
        &mut self.list
    }
}

/// A transaction of the engine: a snapshot, and writes on it that only its own reads see until it is committed. Dropping it
/// aborts it.
// There is one for each transaction, and it is not moved.
#[allow(clippy::large_enum_variant)]
pub enum EngineTransaction {
    /// Of the embedded engine.
    Tree(frond_tree::Transaction),
    /// Of a TiKV cluster.
    Tikv(frond_tikv::Transaction),
}

impl EngineTransaction {
    /// A snapshot with the writes that are staged so far. It does not see later ones.
    pub fn snapshot(&self) -> Snapshot {
        match self {
            EngineTransaction::Tree(transaction) => Snapshot::Tree(transaction.snapshot()),
            EngineTransaction::Tikv(transaction) => Snapshot::Tikv(transaction.snapshot()),
        }
    }

    /// Adds the operations of a write set to the transaction: all of them, or nothing after an error. It also fails if the
    /// transaction could not be committed with an extra write set of this many bytes.
    ///
    /// # Errors
    /// [`EngineError::Conflict`], [`EngineError::TooLarge`], [`EngineError::OutOfMemory`], [`EngineError::InvalidOption`] if it
    /// has stamped keys.
    pub fn stage_leaving_room(&self, set: WriteSet, extra_bytes: usize) -> Result<()> {
        match self {
            EngineTransaction::Tree(transaction) => {
                transaction.stage_leaving_room(set.list, extra_bytes)
            }
            EngineTransaction::Tikv(transaction) => {
                transaction.stage_leaving_room(set.list, extra_bytes)
            }
        }
    }

    /// Memory that the transaction takes, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            EngineTransaction::Tree(transaction) => transaction.bytes(),
            EngineTransaction::Tikv(transaction) => transaction.bytes(),
        }
    }

    /// Whether nothing is staged, not even a guard.
    pub fn is_empty(&self) -> bool {
        match self {
            EngineTransaction::Tree(transaction) => transaction.is_empty(),
            EngineTransaction::Tikv(transaction) => transaction.is_empty(),
        }
    }

    /// Lets go of the memtables of its base that are flushed meanwhile.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn detach(&self) -> Result<()> {
        match self {
            EngineTransaction::Tree(transaction) => transaction.detach(),
            EngineTransaction::Tikv(_) => Ok(()),
        }
    }

    /// Commits the transaction together with the operations of `extra`, which may have stamped keys: all of it or nothing.
    /// `reserve` is that of [`super::Engine::commit_reserving`].
    ///
    /// # Errors
    /// As [`super::Engine::commit`].
    pub fn commit_reserving(
        self,
        extra: WriteSet,
        how: Durability,
        reserve: impl FnMut() -> bool,
    ) -> Result<Committed> {
        match self {
            EngineTransaction::Tree(transaction) => {
                transaction.commit_reserving(extra.list, how, reserve)
            }
            EngineTransaction::Tikv(transaction) => transaction.commit(extra.list),
        }
    }
}
