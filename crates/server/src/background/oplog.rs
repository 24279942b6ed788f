//! Removing the oldest entries of the oplog, and pre-images that have expired.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::doc;

use super::every;
use crate::host::clock::now_ms;
use crate::observability::log::Component;
use crate::state::Server;

/// The interval of checks of the size.
const PERIOD: Duration = Duration::from_secs(1);

/// Removes what is beyond the settings until the server stops.
pub async fn trim_oplog(server: Arc<Server>) {
    let mut maintenance = TrimState::new(Instant::now());
    every(&server, PERIOD, || {
        // While fsync holds its lock, nothing is removed.
        let writing = server.maintenance.fsync_lock.try_write();
        if writing.is_some() && server.store.oplog().is_on() {
            tokio::task::block_in_place(|| {
                // Of several servers over one keyspace one removes for all.
                if server.leads() && server.store.leads("oplog").unwrap_or(false) {
                    maintenance.step(&server, Instant::now());
                }
            });
        }
    })
    .await;
}

/// The state between two steps.
struct TrimState {
    /// When pre-images were looked at.
    pre_images_at: Instant,
    /// Whether the last step failed, so that a failure is logged once.
    is_failing: bool,
}

impl TrimState {
    fn new(now: Instant) -> TrimState {
        TrimState {
            pre_images_at: now,
            is_failing: false,
        }
    }

    /// Does what is due. A failure is tried again by the next step: the disk may be full, or the store closed.
    fn step(&mut self, server: &Server, now: Instant) {
        let mut done = trim(server);
        if done.is_ok()
            && now.saturating_duration_since(self.pre_images_at)
                >= server.maintenance.oplog.pre_image_period()
        {
            self.pre_images_at = now;
            done = expire_pre_images(server);
        }
        let was_failing = std::mem::replace(&mut self.is_failing, done.is_err());
        if let Err(error) = done
            && !was_failing
        {
            server.log.warning(
                Component::Storage,
                9_100_030,
                "OplogTruncator",
                "The oplog cannot be trimmed; it is tried again each second",
                &doc! {"error": error.to_string()},
            );
        }
    }
}

/// Removes the oldest entries, step by step.
fn trim(server: &Server) -> frond_store::Result<()> {
    while !server.is_stopping() {
        let began = Instant::now();
        if server.store.oplog().trim(now_ms())?.entries == 0 {
            break;
        }
        server.maintenance.oplog.truncations.record(began.elapsed());
    }
    Ok(())
}

/// Removes the pre-images whose entries are gone, and those that have expired.
fn expire_pre_images(server: &Server) -> frond_store::Result<()> {
    let began = Instant::now();
    let expiry = server.set.cluster_parameters.pre_image_expiry();
    let seconds = expiry.map(|expiry| i64::try_from(expiry.as_secs()).unwrap_or(i64::MAX));
    for limit in [None].into_iter().chain(seconds.map(Some)) {
        while !server.is_stopping() {
            let (removed, more) = server.store.oplog().expire_pre_images(limit, now_ms())?;
            server.maintenance.oplog.pre_images_removed.add(removed);
            if !more {
                break;
            }
        }
    }
    server
        .maintenance
        .oplog
        .pre_image_passes
        .record(began.elapsed());
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::DocBuf;

    use super::*;
    use crate::settings::OplogMode;
    use crate::testing::{TestServer, wait_until};

    fn status(server: &mut TestServer, section: &str) -> DocBuf {
        let reply = server.run("admin", doc! {"serverStatus": 1});
        reply.get_doc(section).unwrap().to_owned()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_oldest_entries_are_removed_unless_they_are_young() {
        let mut server = TestServer::with(|settings| {
            settings.oplog = OplogMode::On;
            settings.oplog_bytes = Some(1 << 20);
        });
        let text = "x".repeat(10 << 10);
        let fill = |server: &mut TestServer| {
            for _ in 0..300 {
                server.run(
                    "test",
                    doc! {"insert": "c", "documents": [{"t": text.as_str()}]},
                );
            }
        };
        fill(&mut server);
        let oplog = server.server.store.oplog().clone();
        let (first, size) = (oplog.first(), oplog.size_bytes());
        assert!(size > 2 << 20, "{size}");
        let mut maintenance = TrimState::new(Instant::now());
        let young = frond_store::OplogSettings {
            min_retention_hours: 1.0,
            ..oplog.settings()
        };
        oplog.resize(young).unwrap();
        maintenance.step(&server.server, Instant::now());
        assert_eq!(oplog.first(), first);
        let old = frond_store::OplogSettings {
            min_retention_hours: 0.0,
            ..young
        };
        oplog.resize(old).unwrap();
        maintenance.step(&server.server, Instant::now());
        assert!(oplog.first() > first);
        assert!(oplog.size_bytes() < 2 << 20, "{}", oplog.size_bytes());
        assert!(!maintenance.is_failing);
        let truncation = status(&mut server, "oplogTruncation");
        assert!(truncation.get_i64("truncateCount").unwrap() > 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn pre_images_expire() {
        let mut server = TestServer::with(|settings| settings.oplog = OplogMode::On);
        let images = doc! {"enabled": true};
        server.run(
            "test",
            doc! {"create": "c", "changeStreamPreAndPostImages": &images},
        );
        server.fill("c", 5);
        let update =
            doc! {"update": "c", "updates": [{"q": {}, "u": {"$inc": {"a": 1}}, "multi": true}]};
        server.run("test", update);
        let begin = Instant::now();
        let mut maintenance = TrimState::new(begin);
        // Without a limit they stay as long as their entries.
        maintenance.step(&server.server, begin + Duration::from_secs(11));
        let images = status(&mut server, "changeStreamPreImages");
        let job = images.get_doc("purgingJob").unwrap();
        assert_eq!(job.get_i64("totalPass"), Some(1));
        assert_eq!(job.get_i64("docsDeleted"), Some(0));
        let expiry = doc! {"preAndPostImages": {"expireAfterSeconds": 1}};
        let set = doc! {"setClusterParameter": {"changeStreamOptions": &expiry}};
        server.run("admin", set);
        maintenance.step(&server.server, begin + Duration::from_secs(12));
        let images = status(&mut server, "changeStreamPreImages");
        assert_eq!(images.get_i64("expireAfterSeconds"), Some(1));
        let job = images.get_doc("purgingJob").unwrap();
        assert_eq!(job.get_i64("docsDeleted"), Some(0), "not due yet");
        // The images become old by the clock of the machine.
        let mut now = begin + Duration::from_secs(12);
        wait_until("purged images", || {
            now += Duration::from_secs(10);
            maintenance.step(&server.server, now);
            let images = status(&mut server, "changeStreamPreImages");
            let job = images.get_doc("purgingJob").unwrap();
            job.get_i64("docsDeleted") == Some(5)
        });
    }
}
