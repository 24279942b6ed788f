//! Stopping the commits of a server that was given up.
//!
//! A server that is not heard of may be slow only: a commit that it has begun can come at any time. Every commit writes the
//! record of a slot as its primary key. So the server that gives it up writes the records of all slots of its instance. A commit
//! with an earlier timestamp is over then, or conflicts with this.
//!
//! That leaves the commits with later timestamps. A server makes none whose timestamp is beyond the end of its lease, and it is
//! not fenced before. Timestamps are times of PD, so no other clock matters.
//!
//! # Design
//! ```text
//! fence(instance, until):
//!     wait until a timestamp of PD is beyond `until`, the end of the lease
//!     in one transaction, again after each conflict:
//!         instance record: fenced_at = start timestamp; without a record: no slots
//!         write the record of each slot as it is
//! ```
//! - After the fence no commit of the instance can succeed: one that began before has written the record of its slot, which the fence
//!   has read, or finds it changed; one that begins later has a timestamp beyond the lease, and the server does not make it.
//! - The fence changes no content of a record: it still has the last commit of the slot. So a fence may be repeated, and two servers
//!   may fence the same instance.
//! - An instance without a record has never reserved a slot, and cannot reserve one with an earlier timestamp afterwards: its
//!   reservation conflicts with the record that the fence has written.
//!
//! A fence that each commit reads would be simpler. But a transaction conflicts with writes of others only on keys that it writes, so
//! each commit would have to lock the fence, and all commits of an instance would take turns there. With one record per slot, a
//! commit writes a key that it writes anyway. To compare local clocks is no alternative: a paused process does not notice that its
//! lease is over between the check and the commit.

use std::collections::HashMap;

use frond_kv::Result;
use tikv::TimestampExt;

use crate::client::connection::{Kind, PHYSICAL_SHIFT, options};
use crate::client::instances::{Attempt, Instance, again, finish};
use crate::client::keys::{Keys, Writer};
use crate::client::shared::Shared;
use crate::client::value::record;

/// See [`crate::Cluster::fence`].
pub(crate) fn fence(shared: &Shared, instance: u32, until_ms: u64) -> Result<()> {
    let connection = &shared.connection;
    let key = shared.keys.instance(instance);
    let is_over = again(connection, || {
        let at = connection.timestamp()?.version();
        Ok(if at >> PHYSICAL_SHIFT > until_ms {
            Attempt::Done(())
        } else {
            Attempt::Again
        })
    });
    is_over?;
    again(connection, || {
        let key = key.clone();
        let records = {
            let keys = Keys::clone(&shared.keys);
            move |slots| -> Vec<Vec<u8>> {
                let writers = (0..slots).map(|slot| Writer { instance, slot });
                writers.map(|writer| keys.record(writer)).collect()
            }
        };
        connection.read(Kind::Commit, move |client| {
            let (key, records) = (key.clone(), records.clone());
            async move {
                let mut transaction = client.begin_with_options(options()).await?;
                let stored = transaction.get(key.clone()).await?;
                let Some(mut after) = stored.as_deref().and_then(Instance::read) else {
                    // It has no slot, so it has never committed. It cannot reserve one with an earlier timestamp.
                    let fenced = Instance {
                        slots: 0,
                        fenced_at: transaction.start_timestamp().version(),
                    };
                    transaction.put(key, fenced.to_value()).await?;
                    return finish(transaction, ()).await;
                };
                after.fenced_at = transaction.start_timestamp().version();
                let records = records(after.slots);
                let stored = transaction.batch_get(records.iter().cloned()).await?;
                let mut stored: HashMap<Vec<u8>, Vec<u8>> =
                    stored.map(|pair| (pair.0.into(), pair.1)).collect();
                transaction.put(key, after.to_value()).await?;
                for key in records {
                    // The record still names the slot's last commit.
                    let value = stored.remove(&key).unwrap_or_else(|| record(0, &[]));
                    transaction.put(key, value).await?;
                }
                finish(transaction, ()).await
            }
        })
    })
}
