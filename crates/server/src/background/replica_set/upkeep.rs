//! Work of a member at intervals: notes of an idle primary, the removal of entries that the log need not keep, and the replacement of
//! a damaged store.

use std::sync::Weak;
use std::time::Duration;

use frond_bson::doc;
use frond_replset::needs_idle_write;

use super::CONTEXT;
use super::damage::replace_damaged;
use crate::host::clock::now_ms;
use crate::observability::log::Component;
use crate::replication::Consensus;
use crate::state::Server;

const PERIOD: Duration = Duration::from_secs(1);

/// Rounds between two looks at the size of the log.
const ROUNDS_PER_PURGE: u32 = 5;

/// Bytes of the log that a set of several keeps for members that were away, if it has no oplog whose size says so.
const LOG_BYTES_MIN: u64 = 256 << 20;

/// Commits with `w: 1` reach the other members after this time at the latest, so that secondaries are not behind by the whole interval of
/// the journal.
const SENDING_PERIOD: Duration = Duration::from_millis(10);

/// The interval of checks of a server that does not lead a set of several.
const IDLE_PERIOD: Duration = Duration::from_millis(500);

/// Sends what no client waits for until the server is dropped.
pub async fn send_rest(server: Weak<Server>) {
    loop {
        let Some(owned) = server.upgrade() else {
            return;
        };
        let member = owned.set.replication.as_ref().and_then(|set| set.member());
        let leads =
            member.is_some_and(|member| member.is_primary() && member.config.members.len() > 1);
        let period = match owned.set.consensus().filter(|_| leads) {
            Some(consensus) => {
                consensus.send_rest();
                SENDING_PERIOD
            }
            None => IDLE_PERIOD,
        };
        drop(owned);
        tokio::time::sleep(period).await;
    }
}

/// Works until the server is dropped.
pub async fn keep_up(server: Weak<Server>) {
    let mut rounds = 0u32;
    loop {
        tokio::time::sleep(PERIOD).await;
        let Some(owned) = server.upgrade() else {
            return;
        };
        rounds = rounds.wrapping_add(1);
        let purges = rounds.is_multiple_of(ROUNDS_PER_PURGE);
        let worker = owned.clone();
        let looked = tokio::task::spawn_blocking(move || {
            note_idleness(&worker);
            if purges { purgeable(&worker) } else { None }
        });
        let through = looked.await.ok().flatten();
        replace_damaged(&owned).await;
        if let (Some(through), Some(consensus)) = (through, owned.set.consensus())
            && let Err(error) = consensus.member().purge(through).await
        {
            owned.log.warning(
                Component::Replication,
                9_937_020,
                CONTEXT,
                "The log of the replica set could not be shortened; it is tried again",
                &doc! {"error": error.to_string()},
            );
        }
    }
}

/// Writes a note into the oplog if there was no write for a while. Clients compute the lag of a secondary from the last write.
fn note_idleness(server: &Server) {
    let Some(set) = &server.set.replication else {
        return;
    };
    let is_of_several = |config: &frond_replset::SetConfig| config.members.len() > 1;
    let is_due = set.member().is_some_and(|member| {
        let last = i64::from(set.last_write().time) * 1000;
        member.is_primary() && is_of_several(&member.config) && needs_idle_write(last, now_ms())
    });
    let oplog = server.store.oplog();
    if is_due && oplog.is_on() && server.maintenance.fsync_lock.count() == 0 {
        // A full disk, or another primary: the next round tries again.
        let _ = oplog.append_noop(&doc! {"msg": "periodic noop"});
    }
}

/// The last entry that the log need not keep.
fn purgeable(server: &Server) -> Option<frond_replica::EntryId> {
    let (set, consensus) = (server.set.replication.as_ref()?, server.set.consensus()?);
    let member = set.member()?;
    let keeps = if member.config.members.len() == 1 {
        0
    } else if server.store.oplog().is_on() {
        server.store.oplog().settings().bytes_max
    } else {
        LOG_BYTES_MIN
    };
    let through = consensus.applied_beyond(keeps)?;
    // The log waits for a slow follower, which would have to copy the whole store otherwise.
    let slowest = || slowest_follower(consensus, keeps);
    slowest().map_or(Some(through), |slowest| Some(through.min(slowest)))
}

/// The last entry of the member that is the furthest behind, as long as the log is not twice as long as it should be.
fn slowest_follower(consensus: &Consensus, keeps: u64) -> Option<frond_replica::EntryId> {
    if consensus.log_bytes() > keeps.saturating_mul(2).max(LOG_BYTES_MIN) {
        return None;
    }
    let followers = consensus.followers();
    followers
        .iter()
        .map(|follower| follower.matched.unwrap_or_default())
        .min()
}
