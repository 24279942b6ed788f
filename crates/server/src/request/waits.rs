//! Waits of connections.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::connection::Connection;

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
