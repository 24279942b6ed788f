//! A getMore that waits for inserts into a capped collection.
//!
//! It holds no thread and no cursor while it waits: the command returns, the task of the connection waits
//! for the collection, and then handles the same message again. `currentOp` shows it as one operation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_store::TailSignal;
use tokio::sync::Notify;

/// How long a getMore waits if the client gives no time.
pub const AWAIT_DEFAULT: Duration = Duration::from_secs(1);

/// What a getMore waits for.
#[derive(Debug)]
pub struct Parked {
    /// The cursor.
    pub cursor: i64,
    /// Signals inserts.
    pub signal: Arc<TailSignal>,
    /// Inserts that the cursor has seen.
    pub seen: u64,
    /// When the client wants a reply, with or without documents.
    pub until: Instant,
}

impl Parked {
    /// Waits until there may be more documents, the time is over, or the operation is interrupted.
    pub async fn wait(&self, wake: &Notify) {
        tokio::select! {
            () = self.signal.newer(self.seen) => {}
            () = wake.notified() => {}
            () = tokio::time::sleep_until(self.until.into()) => {}
        }
    }
}
