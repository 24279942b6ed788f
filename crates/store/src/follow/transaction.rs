//! Transactions: their entries, in one commit.

use std::sync::Arc;

use super::{commands, documents};
use crate::oplog::{Copied, CopiedEntries};
use crate::store::DocumentStore;
use crate::write::copied::Touched;
use crate::write::staging::{Buffers, Staged, Staging};
use frond_oplog::entry::{Kind, RawEntry, set_pre_images};
use frond_storage::error::{Result, corrupt};
use frond_storage::keyspace::Durability;

/// Commits the entries of a transaction. Those that had nothing to do are not in the result's commit.
///
/// # Errors
/// As [`super::Follower::apply`].
pub(super) fn commit(
    store: &DocumentStore,
    first: u64,
    values: &[(u64, &[u8])],
) -> Result<Arc<Copied>> {
    let copied = Arc::new(Copied::new(first));
    let too_long = || corrupt("the timestamps of a transaction's entries");
    let transaction = store
        .with_catalog(store.catalog().copying(copied.clone()))
        .begin_for_server();
    let in_transaction = store.in_transaction(&transaction);
    let catalog = in_transaction.catalog().copying(copied.clone());
    let handle = in_transaction.with_catalog(catalog);
    let mut given = CopiedEntries::default();
    let mut keeps: Vec<[u8; 16]> = Vec::new();
    for (ts, value) in values {
        let offset = copied.offset(*ts).ok_or_else(too_long)?;
        let entry = RawEntry::read(value)?;
        let operations: Vec<RawEntry<'_>> = entry.operations().collect::<Result<_, _>>()?;
        let mut at = 0;
        while let Some(operation) = operations.get(at) {
            if operation.kind() == Kind::Command {
                copied.set_place(offset, at as u32);
                commands::apply(&handle, operation)?;
                at += 1;
                continue;
            }
            let uuid = operation.uuid();
            let collection = documents::collection_of(handle.catalog(), operation.ns(), uuid)?;
            if collection.settings.keeps_pre_images() && !keeps.contains(&collection.uuid) {
                keeps.push(collection.uuid);
            }
            // Consecutive operations on one collection, until one has to see what was done before.
            let mut buffers = Buffers::default();
            let snapshot = handle.catalog().snapshot()?;
            let mut staging =
                Staging::in_group(handle.catalog(), &collection, snapshot, &mut buffers);
            let mut touched = Touched::default();
            let before = at;
            while let Some(operation) = operations.get(at)
                && operation.kind() != Kind::Command
                && operation.uuid() == uuid
                && !staging.is_full()
            {
                copied.set_place(offset, at as u32);
                if staging.stage_copied(operation, &mut touched)? == Staged::NextCommit {
                    break;
                }
                at += 1;
            }
            if at == before {
                return Err(corrupt("an operation that does not fit into a commit"));
            }
            staging.commit(Durability::Logged)?;
        }
        let value = given.add(offset, entry.ns(), value);
        if !keeps.is_empty() {
            set_pre_images(value, |operation| {
                matches!(
                    operation.kind(),
                    Kind::Update | Kind::Replace | Kind::Delete
                ) && operation.uuid().is_some_and(|uuid| keeps.contains(uuid))
            })?;
        }
    }
    copied.fill(given);
    transaction.commit(Durability::Logged)?;
    Ok(copied)
}
