//! Checkpoints at intervals, for `syncdelay`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use frond_bson::doc;

use super::every;
use crate::observability::log::Component;
use crate::state::Server;

/// The interval of the checks whether one is due.
const TICK: Duration = Duration::from_secs(1);

/// Writes checkpoints until the server stops.
pub async fn write_checkpoints(server: Arc<Server>) {
    let (mut last, mut commits) = (Instant::now(), 0);
    every(&server, TICK, || {
        let seconds = server.maintenance.checkpoint_secs.load(Relaxed);
        if seconds == 0 || last.elapsed() < Duration::from_secs(seconds) {
            return;
        }
        last = Instant::now();
        let now = server.store.engine_stats().commits;
        // While fsync holds its lock, the data files stay as they are.
        if now == commits || server.maintenance.fsync_lock.count() > 0 {
            return;
        }
        commits = now;
        if let Err(error) = tokio::task::block_in_place(|| server.store.checkpoint()) {
            server.log.warning(
                Component::Storage,
                9_100_040,
                "checkpointer",
                "A checkpoint has failed; it is tried again after the next commit",
                &doc! {"error": error.to_string()},
            );
        }
    })
    .await;
}
