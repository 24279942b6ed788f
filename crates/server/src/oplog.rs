//! Whether there is an oplog, how large a new one is, and what its upkeep has done.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use frond_bson::{Doc, DocBuf, doc};
use frond_error::{Error, Result};
use frond_store::{DocumentStore, OplogSettings};

use crate::observability::metrics::{Counter, Timed};
use crate::settings::{OplogMode, Settings};

/// The largest size that is chosen by itself, as in MongoDB.
const BYTES_MAX: u64 = 50 << 30;

/// Turns the oplog on or off as the server's settings say. `is_member` indicates whether the server is a member of an initiated
/// replica set. An oplog that exists is kept, so that it has no gap, unless the settings turn it off. Returns what the
/// operator should know.
///
/// # Errors
/// Errors of the store.
pub fn open(
    store: &DocumentStore,
    settings: &Settings,
    is_member: bool,
) -> Result<Option<&'static str>> {
    let is_on = store.oplog().is_on();
    let wanted = match settings.oplog {
        OplogMode::On => true,
        OplogMode::Off => false,
        OplogMode::Auto => is_on || is_member,
    };
    match (is_on, wanted) {
        (false, false) => Ok(None),
        (false, true) => {
            turn_on(store, settings)?;
            Ok(Some("The oplog is turned on"))
        }
        (true, false) => {
            store.turn_off_oplog()?;
            Ok(Some(
                "The oplog is turned off, as the settings say: its entries are dropped",
            ))
        }
        (true, true) => {
            if settings.is_explicit(RETENTION_KEY) {
                let kept = store.oplog().settings();
                store.oplog().resize(OplogSettings {
                    min_retention_hours: retention_hours(settings),
                    ..kept
                })?;
            }
            let is_needed = is_member || settings.oplog == OplogMode::On;
            Ok((!is_needed).then_some(
                "The data directory has an oplog: it goes on, so that it has no gap. --oplog off drops it",
            ))
        }
    }
}

/// The key of `--oplogMinRetentionHours`.
const RETENTION_KEY: &str = "storage.oplogMinRetentionHours";

fn retention_hours(settings: &Settings) -> f64 {
    settings.oplog_min_retention.as_secs_f64() / 3600.0
}

/// Turns the oplog on when a replica set is initiated, unless the settings forbid it.
///
/// # Errors
/// Errors of the store.
pub fn initiate(store: &DocumentStore, settings: &Settings) -> Result<()> {
    if settings.oplog == OplogMode::Off || store.oplog().is_on() {
        Ok(())
    } else {
        turn_on(store, settings)
    }
}

fn turn_on(store: &DocumentStore, settings: &Settings) -> Result<()> {
    let free = store.disk_space().map_or(0, |space| space.available_bytes);
    let bytes_max = settings.oplog_bytes.unwrap_or_else(|| default_bytes(free));
    Ok(store.turn_on_oplog(OplogSettings {
        bytes_max,
        min_retention_hours: retention_hours(settings),
    })?)
}

/// The size of a new oplog: 5% of the free bytes of the file system, within bounds, as in MongoDB.
fn default_bytes(free: u64) -> u64 {
    (free / 20).clamp(OplogSettings::BYTES_MIN, BYTES_MAX)
}

/// The code of an event that fits into no reply.
const BSON_OBJECT_TOO_LARGE: i32 = 10334;

/// The settings and the counters of the upkeep.
#[derive(Debug)]
pub struct OplogUpkeep {
    pre_image_period_secs: AtomicU64,
    /// Removals of the oldest entries.
    pub truncations: Timed,
    pub pre_image_passes: Timed,
    /// Pre-images that were removed.
    pub pre_images_removed: Counter,
    /// Events that were larger than a document may be.
    pub large_events_failed: Counter,
    /// Events that were divided.
    pub large_events_split: Counter,
    /// Streams that were opened with `showExpandedEvents`.
    pub expanded_streams: Counter,
}

impl OplogUpkeep {
    /// With this time between two passes over pre-images.
    pub fn new(pre_image_period: Duration) -> OplogUpkeep {
        OplogUpkeep {
            pre_image_period_secs: AtomicU64::new(pre_image_period.as_secs().max(1)),
            truncations: Timed::default(),
            pre_image_passes: Timed::default(),
            pre_images_removed: Counter::default(),
            large_events_failed: Counter::default(),
            large_events_split: Counter::default(),
            expanded_streams: Counter::default(),
        }
    }

    /// Time between two passes over pre-images.
    pub fn pre_image_period(&self) -> Duration {
        Duration::from_secs(self.pre_image_period_secs.load(Relaxed))
    }

    /// Changes [`OplogUpkeep::pre_image_period`].
    pub fn set_pre_image_period_secs(&self, seconds: u64) {
        self.pre_image_period_secs.store(seconds.max(1), Relaxed);
    }

    /// Counts the events of a batch that were divided.
    pub fn count_split_events(&self, batch: &Doc) {
        let fragments = (batch.values()).filter_map(|event| event.as_doc()?.get_doc("splitEvent"));
        let events = fragments.filter(|split| split.get_i32("fragment") == Some(1));
        self.large_events_split.add(events.count() as u64);
    }

    /// Counts an event that is too large, if that is why a change stream failed.
    pub fn note_failure(&self, failure: &Error) {
        if failure.code().code() == BSON_OBJECT_TOO_LARGE {
            self.large_events_failed.add(1);
        }
    }

    /// The section `oplogTruncation` of `serverStatus`.
    pub fn truncation(&self, settings: OplogSettings) -> DocBuf {
        doc! {
            "oplogMinRetentionHours": settings.min_retention_hours,
            "totalTimeTruncatingMicros": self.truncations.micros.get(),
            "truncateCount": self.truncations.count.get(),
        }
    }

    /// The section `changeStreamPreImages` of `serverStatus`.
    pub fn pre_images(&self, expiry: Option<Duration>) -> DocBuf {
        let mut section = doc! {
            "purgingJob": {
                "totalPass": self.pre_image_passes.count.get(),
                "docsDeleted": self.pre_images_removed.get(),
                "timeElapsedMillis": self.pre_image_passes.micros.get() / 1000,
            },
        };
        if let Some(expiry) = expiry {
            section.push("expireAfterSeconds", expiry.as_secs() as i64);
        }
        section
    }

    /// The part `changeStreams` of `metrics` in `serverStatus`.
    pub fn change_streams(&self) -> DocBuf {
        doc! {
            "largeEventsFailed": self.large_events_failed.get(),
            "largeEventsSplit": self.large_events_split.get(),
            "showExpandedEvents": self.expanded_streams.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn an_oplog_is_kept_unless_it_is_turned_off() {
        let server = TestServer::new();
        let store = &server.server.store;
        let with = |mode: OplogMode| Settings {
            oplog: mode,
            ..Settings::default()
        };
        let open = |mode, is_member| open(store, &with(mode), is_member).unwrap();
        assert_eq!(open(OplogMode::Auto, false), None);
        assert!(!store.oplog().is_on());
        assert!(open(OplogMode::Auto, true).unwrap().contains("turned on"));
        let first = store.oplog().first();
        assert_eq!(open(OplogMode::On, false), None);
        assert_eq!(open(OplogMode::Auto, true), None);
        assert!(open(OplogMode::Auto, false).unwrap().contains("goes on"));
        assert_eq!(store.oplog().first(), first);
        assert!(open(OplogMode::Off, true).unwrap().contains("dropped"));
        assert!(!store.oplog().is_on());
        initiate(store, &with(OplogMode::Off)).unwrap();
        assert!(!store.oplog().is_on());
    }

    #[test]
    fn a_new_oplog_has_a_share_of_the_free_space() {
        assert_eq!(default_bytes(0), 990 << 20);
        assert_eq!(default_bytes(100 << 30), 5 << 30);
        assert_eq!(default_bytes(u64::MAX), 50 << 30);
    }
}
