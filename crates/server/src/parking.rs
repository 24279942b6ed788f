//! Commands that wait without a thread.
//!
//! Such a command returns, the task of the connection waits for it, and then handles the same message again. `currentOp`
//! shows it as one operation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::DocBuf;
use frond_error::Error;
use frond_store::TailSignal;
use tokio::sync::Notify;

/// How long a getMore waits if the client gives no time.
pub const AWAIT_DEFAULT: Duration = Duration::from_secs(1);

/// What a command waits for.
#[derive(Debug)]
pub enum Parked {
    /// A getMore waits for inserts into a capped collection. It does not hold its cursor meanwhile.
    Tail(Tail),
    /// A write that is applied waits for the journal.
    Journal(JournalWait),
}

/// A getMore that waits for inserts.
#[derive(Debug)]
pub struct Tail {
    /// The cursor.
    pub cursor: i64,
    /// Signals inserts.
    pub signal: Arc<TailSignal>,
    /// Inserts that the cursor has seen.
    pub seen: u64,
    /// When the client wants a reply, with or without documents.
    pub until: Instant,
}

/// A write that waits for the journal.
#[derive(Debug)]
pub struct JournalWait {
    /// Its reply.
    pub reply: DocBuf,
    /// When its time is over.
    pub deadline: Option<Instant>,
    /// Why the journal is not known to be synced; set after the wait.
    pub failure: Option<Error>,
}

impl Parked {
    /// What the command waits for, for `currentOp`.
    pub fn what(&self) -> &'static str {
        match self {
            Parked::Tail(_) => "documents",
            Parked::Journal(_) => "the journal",
        }
    }
}

impl Tail {
    /// Waits until there may be more documents, the time is over, or the operation is interrupted.
    pub async fn wait(&self, wake: &Notify) {
        tokio::select! {
            () = self.signal.newer(self.seen) => {}
            () = wake.notified() => {}
            () = tokio::time::sleep_until(self.until.into()) => {}
        }
    }
}
