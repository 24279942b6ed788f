//! Reporting fast updates that have failed: their clients had their replies before.

use std::sync::Arc;
use std::time::Duration;

use frond_bson::doc;

use super::every;
use crate::observability::log::Component;
use crate::state::Server;

/// The interval of log lines: there is one for all errors of it.
const PERIOD: Duration = Duration::from_secs(10);

/// Logs how many have failed until the server stops.
pub async fn report_fast_updates(server: Arc<Server>) {
    every(&server, PERIOD, || {
        if let Some((errors, first)) = server.store.fast_updates().unreported() {
            let attributes = doc! {
                "errors": i64::try_from(errors).unwrap_or(i64::MAX),
                "code": first.code().code(),
                "first": first.message(),
            };
            server.log.warning(
                Component::Storage,
                9_100_070,
                "FastUpdates",
                "Fast updates have failed, and their documents stay as they are",
                &attributes,
            );
        }
    })
    .await;
}
