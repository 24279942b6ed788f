//! Whether keys are still what a snapshot has.
//!
//! TiKV compares the keys of a transaction with later commits when the transaction is committed. A client of MongoDB expects a conflict
//! at the statement that meets it. So each statement of a transaction reads the keys that it guards once more, as of now, and compares them
//! with the snapshot. The reads of the snapshot go on meanwhile, so the statement waits for a timestamp and one look-up of all keys. Values
//! are compared, because TiKV's answers do not have the timestamps of commits; a key that was changed and changed back is the same.
//! Later commits of others are found at the commit, as ever.
//!
//! TiKV's pessimistic locks would also stop others until the commit. They are not used: the client takes them as of the time of the lock,
//! not of the snapshot, so the comparison would be needed all the same; they belong to a primary key, which here is the record of a slot
//! that is taken at the commit only; and those of a server that has stopped delay everybody.
//!
//! A transaction in the past cannot use its timestamp for a commit, which others may have done with the same timestamp. Its commit
//! takes a new one. Everything that it writes has to be the same at both times.

use std::collections::HashMap;
use std::sync::Arc;

use frond_kv::{Error, Operations, Result, TreeId};
use futures_util::future::try_join;
use tikv::{Timestamp, TimestampExt, TransactionClient};

use crate::client::connection::{Calls, Kind, options};
use crate::client::overlay::Overlay;
use crate::client::shared::Shared;
use crate::client::snapshot::Base;

/// The most keys that are read at once.
const KEYS_AT_ONCE: usize = 2048;
/// The bytes of rows that are read at once, so that fewer keys are read where rows are large.
const BYTES_AT_ONCE: usize = 8 << 20;

/// Fails with a conflict if a key that is guarded in `set` is not what it was in a snapshot.
pub(crate) fn check_guarded(shared: &Shared, base: &Base, set: &Operations) -> Result<()> {
    check(shared, base, set.guarded_keys(), None)
}

/// The current moment, if nothing of some changes is other than in a snapshot of the past. A conflict otherwise.
pub(crate) fn move_to_now(shared: &Arc<Shared>, base: &Base, changes: &Overlay) -> Result<Base> {
    let now = Base::new(shared);
    let at = now.at()?;
    let keys = changes.changes().keys().chain(changes.guards());
    let keys = keys.map(|(tree, key)| (*tree, key.as_slice()));
    check(shared, base, keys, Some(at))?;
    Ok(now)
}

/// Fails with a conflict if one of some keys is not what it was in a snapshot: at a time, or else now.
fn check<'a>(
    shared: &Shared,
    base: &Base,
    keys: impl Iterator<Item = (TreeId, &'a [u8])>,
    at: Option<u64>,
) -> Result<()> {
    // Counters have no conflicts.
    let mut keys: Vec<(TreeId, &[u8])> = keys
        .filter(|(tree, key)| !shared.is_counter(*tree, key))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let rows_of = |tree| BYTES_AT_ONCE / shared.row_bytes.get(tree).max(1);
    let trees = keys.iter().map(|(tree, _)| *tree);
    let rows = trees.map(rows_of).min().unwrap_or_default();
    for some in keys.chunks(rows.clamp(16, KEYS_AT_ONCE)) {
        if let Some((tree, key)) = first_changed(shared, base, some, at)? {
            Calls::count(&shared.connection.calls.conflicts);
            return Err(Error::Conflict {
                tree,
                key: key.to_vec(),
                held: false,
            });
        }
    }
    Ok(())
}

fn first_changed<'a>(
    shared: &Shared,
    base: &Base,
    keys: &[(TreeId, &'a [u8])],
    at: Option<u64>,
) -> Result<Option<(TreeId, &'a [u8])>> {
    let connection = &shared.connection;
    let then = Timestamp::from_version(base.at()?);
    let stored: Arc<[Vec<u8>]> = keys
        .iter()
        .map(|(tree, key)| shared.keys.value(*tree, key))
        .collect();
    let wanted = stored.clone();
    if at.is_none() {
        // The timestamp, before the look-up.
        Calls::count(&connection.calls.round_trips);
    }
    let (before, mut after) = connection.read(Kind::Get, move |client| {
        let wanted = wanted.clone();
        async move {
            let newest = async {
                let now = match at {
                    Some(at) => Timestamp::from_version(at),
                    None => client.current_timestamp().await?,
                };
                values_at(&client, now, &wanted).await
            };
            try_join(values_at(&client, then, &wanted), newest).await
        }
    })?;
    let mut both = keys.iter().zip(&*stored);
    let changed = both.find(|(_, stored)| before.get(*stored) != after.remove(*stored).as_ref());
    Ok(changed.map(|(key, _)| *key))
}

/// The values of some keys at a time, as they are stored.
async fn values_at(
    client: &TransactionClient,
    at: Timestamp,
    keys: &[Vec<u8>],
) -> tikv::Result<HashMap<Vec<u8>, Vec<u8>>> {
    let mut snapshot = client.snapshot(at, options());
    if let [key] = keys {
        let value = snapshot.get(key.clone()).await?;
        return Ok(value
            .map(|value| (key.clone(), value))
            .into_iter()
            .collect());
    }
    let pairs = snapshot.batch_get(keys.to_vec()).await?;
    Ok(pairs.map(|pair| (pair.0.into(), pair.1)).collect())
}
