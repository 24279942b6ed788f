//! Waits of connections.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::memory_quota::MemoryQuota;

/// The wait of a read for clients that have not read their replies, in `currentOp`.
pub const REPLIES_WAIT: &str = "replies to be read";

/// The longest such wait, and the interval of its looks.
const REPLIES_WAIT_MAX: Duration = Duration::from_secs(60);
const REPLIES_LOOK: Duration = Duration::from_millis(10);

/// Returns when the operation of a connection is interrupted.
pub async fn interrupted(connection: &Connection) {
    while !connection.killed.load(Ordering::Relaxed) {
        connection.wake.notified().await;
    }
}

/// Returns at this time, or never.
pub async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// Returns when the replies that clients have not read are no more than the quota allows, or the operation is interrupted or out of
/// time. Small replies need no room beforehand, but many of them together exceed the quota. Clients that read nothing lose their
/// connections meanwhile.
pub async fn replies_read(quota: &MemoryQuota, connection: &Connection, deadline: Option<Instant>) {
    let read = async {
        while quota.is_exceeded() {
            tokio::time::sleep(REPLIES_LOOK).await;
        }
    };
    tokio::select! {
        () = read => {}
        () = interrupted(connection) => {}
        () = until(deadline) => {}
        () = tokio::time::sleep(REPLIES_WAIT_MAX) => {}
    }
}
