//! Tells in the log when the disk becomes full, and when it is not any more.

use std::sync::Arc;
use std::time::Duration;

use frond_bson::doc;
use frond_store::DiskSpace;

use crate::log::Component;
use crate::state::Server;

/// How often the state is looked at.
const PERIOD: Duration = Duration::from_millis(250);

/// Watches the state until the server stops.
pub async fn watch_disk_space(server: Arc<Server>) {
    let mut stop = server.stop_signal();
    let mut told = DiskSpace::default();
    loop {
        let now = server.store.disk_space();
        tell(&server, &told, &now);
        told = now;
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

fn tell(server: &Server, before: &DiskSpace, now: &DiskSpace) {
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let attributes = doc! {
        "availableBytes": bytes(now.available_bytes),
        "reserveBytes": bytes(now.reserve_bytes),
        "totalBytes": bytes(now.total_bytes),
        "refusedWrites": bytes(now.refused),
    };
    if now.times_low > before.times_low {
        server.log.warning(
            Component::Storage,
            9_100_003,
            "DiskSpaceMonitor",
            "The disk is nearly full: writes get OutOfDiskSpace until there is room again; reads, deletes and drops go on",
            &attributes,
        );
    }
    let was_low = before.low_since.is_some() || now.times_low > before.times_low;
    if was_low && now.low_since.is_none() {
        server.log.info(
            Component::Storage,
            9_100_004,
            "DiskSpaceMonitor",
            "The disk has room again: writes are accepted",
            &attributes,
        );
    }
}
