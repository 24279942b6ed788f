//! Warning of certificates that expire.

use std::sync::Arc;
use std::time::Duration;

use super::every;
use crate::state::Server;

/// Time between two checks.
const PERIOD: Duration = Duration::from_secs(24 * 60 * 60);

/// Logs each day what expires soon, until the server stops. The start has logged it once.
pub async fn watch_certificates(server: Arc<Server>) {
    let Some(tls) = &server.clients.tls else {
        return;
    };
    every(&server, PERIOD, || tls.warn_of_expiry(&server.log)).await;
}
