//! Entries of the profiler are written soon.

use std::sync::Arc;

use super::unless_stopped;
use crate::state::Server;

/// Writes them, as long as the server runs.
pub async fn write_profiles(server: Arc<Server>) {
    let mut stop = server.stop_signal();
    loop {
        let is_last = !unless_stopped(&mut stop, server.records.profiler.wait()).await;
        tokio::task::block_in_place(|| {
            // While fsync holds its lock, records wait.
            let writing = server.maintenance.fsync_lock.try_write();
            if is_last || writing.is_some() {
                server.records.profiler.flush(&server.store);
            }
        });
        if is_last {
            return;
        }
    }
}
