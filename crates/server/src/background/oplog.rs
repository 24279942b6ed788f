//! Removing the oldest entries of the oplog, and pre-images that have expired.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::doc;

use crate::clock::now_ms;
use crate::log::Component;
use crate::state::Server;

/// How often the size of the oplog is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// Removes what is beyond the settings until the server stops.
pub async fn trim_oplog(server: Arc<Server>) {
    let mut stop = server.stop_signal();
    let mut upkeep = Upkeep::new(Instant::now());
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        if server.store.oplog().is_on() {
            tokio::task::block_in_place(|| upkeep.step(&server, Instant::now()));
        }
    }
}

/// The state between two steps.
struct Upkeep {
    /// When pre-images were looked at.
    pre_images_at: Instant,
    /// Whether the last step failed, so that a failure is told once.
    is_failing: bool,
}

impl Upkeep {
    fn new(now: Instant) -> Upkeep {
        Upkeep {
            pre_images_at: now,
            is_failing: false,
        }
    }

    /// Does what is due. A failure is tried again by the next step: the disk may be full, or the store closed.
    fn step(&mut self, server: &Server, now: Instant) {
        let mut done = trim(server);
        if done.is_ok()
            && now.saturating_duration_since(self.pre_images_at) >= server.oplog.pre_image_period()
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
        server.oplog.truncations.record(began.elapsed());
    }
    Ok(())
}

/// Removes the pre-images whose entries are gone, and those that have expired.
fn expire_pre_images(server: &Server) -> frond_store::Result<()> {
    let began = Instant::now();
    let expiry = server.cluster_parameters.pre_image_expiry();
    let seconds = expiry.map(|expiry| i64::try_from(expiry.as_secs()).unwrap_or(i64::MAX));
    for limit in [None].into_iter().chain(seconds.map(Some)) {
        while !server.is_stopping() {
            let (removed, more) = server.store.oplog().expire_pre_images(limit, now_ms())?;
            server.oplog.pre_images_removed.add(removed);
            if !more {
                break;
            }
        }
    }
    server.oplog.pre_image_passes.record(began.elapsed());
    Ok(())
}
