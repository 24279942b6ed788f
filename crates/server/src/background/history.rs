//! Recording the server's figures.

use std::sync::Arc;
use std::time::Duration;

use frond_bson::doc;

use super::unless_stopped;
use crate::host::clock::now_ms;
use crate::observability::log::Component;
use crate::observability::metric_samples::sample;
use crate::state::Server;

/// Time between two samples.
const PERIOD: Duration = Duration::from_secs(1);

/// Takes a sample each second until the server stops.
pub async fn record_history(server: Arc<Server>) {
    let mut stop = server.stop_signal();
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut has_failed = false;
    while unless_stopped(&mut stop, ticks.tick()).await {
        let recorder = server.clone();
        // It appends to a file, and reads files of the system.
        let added = tokio::task::spawn_blocking(move || {
            let sample = sample(now_ms(), &recorder.sources());
            recorder.records.history.add(sample)
        });
        // A panic is logged already.
        if let Ok(Err(error)) = added.await
            && !std::mem::replace(&mut has_failed, true)
        {
            server.log.warning(
                Component::Control,
                9_100_062,
                "History",
                "The history of the server's figures cannot be written; it is kept in memory only",
                &doc! {"error": error.to_string()},
            );
        }
    }
}
