//! Moments that snapshot reads have seen, kept so that later reads can see them again.
//!
//! A read with the level `snapshot` and no time gets the current moment and its time; the reads that follow name that time.
//! Only such moments are kept, and those of times after which nothing was written.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frond_bson::Timestamp;
use frond_error::{Error, ErrorCode, Result};
use frond_store::{DocumentStore, SnapshotReads};
use parking_lot::Mutex;

use super::shown;

/// Moments that are kept at once. Beyond that the oldest is dropped.
const MOMENTS_MAX: usize = 256;

/// The longest wait of a read at the time of a write until no server commits with an earlier time, and the interval of its checks.
const SETTLED_WAIT: Duration = Duration::from_secs(1);
const SETTLED_LOOK: Duration = Duration::from_millis(20);

/// The default of `minSnapshotHistoryWindowInSeconds`.
const WINDOW_SECONDS: u64 = 300;

/// A moment, and the times at which it was the state of the store.
struct KeptSnapshot {
    reads: SnapshotReads,
    /// The time of the last write before it.
    written: Timestamp,
    taken: Instant,
}

/// The moments of a server, by the time that was given out for them.
pub struct ReadTimestamps {
    kept: Mutex<BTreeMap<Timestamp, KeptSnapshot>>,
    window_seconds: AtomicU64,
}

impl Default for ReadTimestamps {
    fn default() -> ReadTimestamps {
        ReadTimestamps {
            kept: Mutex::default(),
            window_seconds: AtomicU64::new(WINDOW_SECONDS),
        }
    }
}

impl ReadTimestamps {
    /// The lifetime of a moment.
    pub fn window(&self) -> Duration {
        Duration::from_secs(self.window_seconds.load(Ordering::Relaxed))
    }

    /// Changes [`ReadTimestamps::window`].
    pub fn set_window_seconds(&self, seconds: u64) {
        self.window_seconds.store(seconds, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.kept.lock().len()
    }

    /// The current moment and its time, which is not before `least`. `written` is the time of the last write.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn now(
        &self,
        store: &DocumentStore,
        written: impl Fn() -> Timestamp,
        least: Timestamp,
    ) -> Result<(SnapshotReads, Timestamp)> {
        let mut kept = self.kept.lock();
        // Nothing was acknowledged since.
        if let Some((time, newest)) = kept.last_key_value()
            && newest.written == written()
            && *time >= least
        {
            return Ok((newest.reads.clone(), *time));
        }
        let before = written();
        // The time first: what was acknowledged by it is in the snapshot.
        let time = store.cluster_time().tick()?;
        let reads = store.snapshot_reads();
        insert(&mut kept, time, before, &reads);
        Ok((reads, time))
    }

    /// The moment of a time that the clock has reached.
    ///
    /// # Errors
    /// `SnapshotTooOld` (239) if it is not kept.
    pub fn at(
        &self,
        store: &DocumentStore,
        written: impl Fn() -> Timestamp,
        time: Timestamp,
    ) -> Result<SnapshotReads> {
        let mut kept = self.kept.lock();
        if let Some((_, next)) = kept.range(time..).next()
            && next.written <= time
        {
            return Ok(next.reads.clone());
        }
        let before = written();
        if before <= time {
            let reads = store.snapshot_reads();
            insert(&mut kept, time, before, &reads);
            return Ok(reads);
        }
        Err(Error::new(
            ErrorCode::SnapshotTooOld,
            format!(
                "Read timestamp {} is not available: the server keeps the times that snapshot reads have returned, \
                 for minSnapshotHistoryWindowInSeconds ({} s) or until memory is scarce; begin a new snapshot session",
                shown(time),
                self.window().as_secs()
            ),
        ))
    }

    /// The moment of a member that follows the primary, at a time, or the current one with its time: the last entry that was
    /// applied. Between entries it has no times of its own.
    ///
    /// # Errors
    /// `SnapshotTooOld` (239) for a time that is not kept, errors of the engine.
    pub fn of_follower(
        &self,
        store: &DocumentStore,
        at: Option<Timestamp>,
    ) -> Result<(SnapshotReads, Timestamp)> {
        let mut kept = self.kept.lock();
        if let Some(at) = at
            && let Some(moment) = kept.get(&at)
        {
            return Ok((moment.reads.clone(), at));
        }
        let reads = store.snapshot_reads();
        let time = reads.last_entry(store)?;
        insert(&mut kept, time, time, &reads);
        match at {
            Some(at) if at != time => Err(Error::new(
                ErrorCode::SnapshotTooOld,
                format!(
                    "Read timestamp {} is not available: a secondary has the times between the batches of entries that it \
                     applies, and keeps those that snapshot reads have returned; begin a new snapshot session, or ask the primary",
                    shown(at)
                ),
            )),
            _ => Ok((reads, time)),
        }
    }

    /// The moment of a server of a cluster at a time, or the current one with its time. Nothing is kept: any server finds the moment
    /// of a time by itself. `None` if the store is not in a cluster.
    ///
    /// # Errors
    /// `SnapshotTooOld` (239) for a time that no server has given out for a moment, or of too long ago; errors of the engine.
    pub fn of_cluster(
        &self,
        store: &DocumentStore,
        at: Option<Timestamp>,
    ) -> Result<Option<(SnapshotReads, Timestamp)>> {
        let Some(now) = store.timed_snapshot_reads()? else {
            return Ok(None);
        };
        let Some(at) = at else {
            return Ok(Some(now));
        };
        let age = u64::from(now.1.time).saturating_sub(u64::from(at.time));
        if age <= self.window().as_secs()
            && let Some(reads) = store.snapshot_reads_at(at)?
        {
            return Ok(Some((reads, at)));
        }
        // The time of the last write is that of the current moment, as long as there is no later one, and none comes before it.
        let until = Instant::now() + SETTLED_WAIT;
        while store.oplog().durable() < at.to_u64() && Instant::now() < until {
            std::thread::sleep(SETTLED_LOOK);
            store.flush_log()?;
        }
        let reads = store.snapshot_reads();
        let last = reads.last_entry(store)?;
        if last != Timestamp::default() && last <= at && store.oplog().durable() >= at.to_u64() {
            return Ok(Some((reads, at)));
        }
        Err(Error::new(
            ErrorCode::SnapshotTooOld,
            format!(
                "Read timestamp {} is not available: servers of a cluster have the times that snapshot reads have returned,                  for minSnapshotHistoryWindowInSeconds ({} s); begin a new snapshot session",
                shown(at),
                self.window().as_secs()
            ),
        ))
    }

    /// Drops moments that are older than the window; all but the newest while memory is scarce.
    pub fn expire(&self, now: Instant, is_scarce: bool) {
        let window = self.window();
        let mut kept = self.kept.lock();
        if is_scarce && kept.len() > 1 {
            let newest = kept.pop_last();
            kept.clear();
            kept.extend(newest);
        }
        kept.retain(|_, moment| now.saturating_duration_since(moment.taken) < window);
    }
}

fn insert(
    kept: &mut BTreeMap<Timestamp, KeptSnapshot>,
    time: Timestamp,
    written: Timestamp,
    reads: &SnapshotReads,
) {
    let moment = KeptSnapshot {
        reads: reads.clone(),
        written,
        taken: Instant::now(),
    };
    kept.insert(time, moment);
    if kept.len() > MOMENTS_MAX {
        kept.pop_first();
    }
}
