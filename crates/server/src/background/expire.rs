//! Closing idle cursors and ending idle sessions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::unless_stopped;
use crate::sessions::AbortReason;
use crate::state::Server;
use crate::transactions::abort_soon;

/// The longest time between two passes.
const PERIOD_MAX: Duration = Duration::from_secs(4);

/// Closes idle cursors and ends idle sessions until the server stops.
pub async fn expire(server: Arc<Server>) {
    let mut stop = server.stop_signal();
    let period = || {
        PERIOD_MAX
            .min(server.cursor_timeout() / 2)
            .max(Duration::from_millis(10))
    };
    while unless_stopped(&mut stop, tokio::time::sleep(period())).await {
        let now = Instant::now();
        let closed = tokio::task::block_in_place(|| {
            server.clients.cursors.expire(now, server.cursor_timeout())
        });
        server.metrics.cursors_timed_out.add(closed);
        let expired = tokio::task::block_in_place(|| {
            // A later search finds the records that cannot be read or removed now.
            if server.leads() {
                let _ = server.clients.sessions.search_expired(&server.store);
            }
            server.clients.sessions.expire(now, &server.store)
        });
        for open in expired {
            abort_soon(&server, &open, AbortReason::Killed);
        }
        if let Some(set) = &server.set.replication {
            set.read_timestamps.expire(now, false);
        }
        // If it fails, the next tick tries again and reports it.
        if server.leads() {
            let _ = tokio::task::block_in_place(|| server.store.cluster_time().reserve_ahead());
        }
    }
}
