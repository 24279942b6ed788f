//! A getMore that waits for insertions into a capped collection.
//!
//! It holds no thread and no cursor while it waits: the command returns, the connection's task waits
//! for the collection, and then runs the same message again. For everybody else it is one operation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_store::TailSignal;
use tokio::sync::Notify;

/// How long a getMore waits if the client does not say.
pub const AWAIT_DEFAULT: Duration = Duration::from_secs(1);

/// What a getMore waits for.
#[derive(Debug)]
pub struct Parked {
    /// The cursor.
    pub cursor: i64,
    /// Tells of insertions.
    pub signal: Arc<TailSignal>,
    /// Insertions that the cursor has seen.
    pub seen: u64,
    /// When the client wants an answer, whatever there is.
    pub until: Instant,
}

impl Parked {
    /// Waits until there may be more documents, the time is over, or somebody interrupts the operation.
    pub async fn wait(&self, wake: &Notify) {
        tokio::select! {
            () = self.signal.newer(self.seen) => {}
            () = wake.notified() => {}
            () = tokio::time::sleep_until(self.until.into()) => {}
        }
    }
}
