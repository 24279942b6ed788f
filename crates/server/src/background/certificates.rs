//! Warning of certificates that expire.

use std::sync::Arc;
use std::time::Duration;

use crate::state::Server;

/// Time between two checks.
const PERIOD: Duration = Duration::from_secs(24 * 60 * 60);

/// Logs each day what expires soon, until the server stops. The start has logged it once.
pub async fn watch_certificates(server: Arc<Server>) {
    let Some(tls) = &server.clients.tls else {
        return;
    };
    let mut stop = server.stop_signal();
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(PERIOD) => tls.warn_of_expiry(&server.log),
        }
    }
}
