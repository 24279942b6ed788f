//! Aborting transactions that are open for too long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::doc;

use super::every;
use crate::observability::log::Component;
use crate::state::Server;
use crate::transactions::abort_expired;

/// The interval of checks of the open transactions.
const PERIOD: Duration = Duration::from_millis(250);

/// Aborts them until the server stops.
pub async fn expire_transactions(server: Arc<Server>) {
    every(&server, PERIOD, || {
        // An abort waits for a statement that is staging its writes.
        let aborted = tokio::task::block_in_place(|| abort_expired(&server, Instant::now()));
        if aborted > 0 {
            server.log.info(
                Component::Transaction,
                20707,
                "TransactionReaper",
                "Aborted transactions that were open for longer than transactionLifetimeLimitSeconds",
                &doc! {"aborted": i64::try_from(aborted).unwrap_or(i64::MAX)},
            );
        }
    })
    .await;
}
