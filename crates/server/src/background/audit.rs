//! Writes audit events to the disk that are in the file only.

use std::sync::Arc;

use super::every;
use crate::state::Server;

/// Writes them as often as the journal is written, until the server stops: like its data, a crash of the machine costs events of the
/// last interval. Events of changes are on the disk before.
pub async fn sync_audit(server: Arc<Server>) {
    let Some(audit) = &server.audit else {
        return;
    };
    every(&server, server.settings.journal_commit_interval, || {
        tokio::task::block_in_place(|| audit.sync());
    })
    .await;
}
