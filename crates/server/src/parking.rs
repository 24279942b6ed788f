//! Commands that wait without a thread.
//!
//! Such a command returns, the task of the connection waits for it, and then handles the same message again. `currentOp`
//! shows it as one operation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::DocBuf;
use frond_error::Error;
use frond_store::TailSignal;
use tokio::sync::{Notify, watch};

/// How long a getMore waits if the client gives no time.
pub const AWAIT_DEFAULT: Duration = Duration::from_secs(1);

/// What a command waits for.
#[derive(Debug)]
pub enum Parked {
    /// A getMore waits for inserts into a capped collection. It does not hold its cursor meanwhile.
    Tail(Tail),
    /// A write that is applied waits for the journal.
    Journal(JournalWait),
    /// A hello waits for a change of the topology version.
    Topology(TopologyWait),
}

/// A hello that waits for a change of the topology version.
#[derive(Debug)]
pub struct TopologyWait {
    /// The counter that the client knows. None if it never changes, as that of a standalone server.
    pub topology: Option<watch::Receiver<i64>>,
    /// When the client wants a reply without a change.
    pub until: Instant,
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
            Parked::Topology(_) => "a change of the topology",
        }
    }
}

impl TopologyWait {
    /// Waits until the topology version has changed, the time is over, or the operation is interrupted.
    pub async fn wait(&mut self, wake: &Notify) {
        let changed = async {
            match &mut self.topology {
                // An error means that the server is gone.
                Some(topology) => drop(topology.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed => {}
            () = wake.notified() => {}
            () = tokio::time::sleep_until(self.until.into()) => {}
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
