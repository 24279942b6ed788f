//! Write sets and transactions.

use frond_kv::Transaction as Kv;

use super::{Committed, Durability, EngineError, Snapshot};

type Result<T, E = EngineError> = std::result::Result<T, E>;

/// The operations of one commit, and the snapshot that guarded keys must not have changed since.
pub type WriteSet = frond_kv::WriteSet<Snapshot>;

/// The write set for the engine with files.
///
/// # Errors
/// [`EngineError::InvalidOption`] if its snapshot is that of a cluster.
#[inline]
pub(super) fn for_files(set: WriteSet) -> Result<frond_tree::WriteSet> {
    let (operations, snapshot) = set.into_parts();
    let snapshot = match snapshot {
        None => None,
        Some(Snapshot::Files(snapshot)) => Some(snapshot),
        Some(Snapshot::Tikv(_)) => return Err(foreign()),
    };
    Ok(frond_tree::WriteSet::from_parts(operations, snapshot))
}

/// The write set for a cluster.
///
/// # Errors
/// [`EngineError::InvalidOption`] if its snapshot is one of files.
pub(super) fn for_cluster(set: WriteSet) -> Result<frond_tikv::WriteSet> {
    let (operations, snapshot) = set.into_parts();
    let snapshot = match snapshot {
        None => None,
        Some(Snapshot::Tikv(snapshot)) => Some(snapshot),
        Some(Snapshot::Files(_)) => return Err(foreign()),
    };
    Ok(frond_tikv::WriteSet::from_parts(operations, snapshot))
}

#[cold]
fn foreign() -> EngineError {
    EngineError::InvalidOption("the snapshot of a write set is of another engine".to_owned())
}

/// A transaction of the engine: a snapshot, and writes on it that only its own reads see until it is committed. Dropping it
/// aborts it.
// There is one for each transaction, and it is not moved.
#[allow(clippy::large_enum_variant)]
pub enum EngineTransaction {
    Files(frond_tree::Transaction),
    /// Of a TiKV cluster.
    Tikv(frond_tikv::Transaction),
}

impl EngineTransaction {
    /// A snapshot with the writes that are staged so far. It does not see later ones.
    pub fn snapshot(&self) -> Snapshot {
        match self {
            EngineTransaction::Files(transaction) => Snapshot::Files(transaction.snapshot()),
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
        let (operations, _) = set.into_parts();
        match self {
            EngineTransaction::Files(transaction) => {
                Kv::stage_leaving_room(transaction, operations, extra_bytes)
            }
            EngineTransaction::Tikv(transaction) => {
                transaction.stage_leaving_room(operations, extra_bytes)
            }
        }
    }

    /// Memory that the transaction takes, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            EngineTransaction::Files(transaction) => transaction.bytes(),
            EngineTransaction::Tikv(transaction) => transaction.bytes(),
        }
    }

    /// Whether nothing is staged, not even a guard.
    pub fn is_empty(&self) -> bool {
        match self {
            EngineTransaction::Files(transaction) => transaction.is_empty(),
            EngineTransaction::Tikv(transaction) => transaction.is_empty(),
        }
    }

    /// Lets go of the memtables of its base that are flushed meanwhile.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn detach(&self) -> Result<()> {
        match self {
            EngineTransaction::Files(transaction) => transaction.detach(),
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
        let (operations, _) = extra.into_parts();
        match self {
            EngineTransaction::Files(transaction) => {
                Kv::commit_reserving(transaction, operations, how, reserve)
            }
            EngineTransaction::Tikv(transaction) => transaction.commit(operations),
        }
    }
}
