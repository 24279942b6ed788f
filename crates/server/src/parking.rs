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

use crate::metrics::Metrics;
use crate::tail_turns::{TailTurns, Turn};

/// How long a getMore waits if the client gives no time.
pub const AWAIT_DEFAULT: Duration = Duration::from_secs(1);

/// A reader waits for a turn at least this long.
const TURN_WAIT_MIN: Duration = Duration::from_millis(100);

/// Times that an operation has waited, by what it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// For a ticket.
    pub ticket: Duration,
    /// For the journal, after its commit.
    pub journal: Duration,
    /// Inside of commits: for other commits, a memtable, room in the journal, space on the disk, an open transaction.
    pub commit: [Duration; 5],
}

/// What a command waits for.
#[derive(Debug)]
pub enum Parked {
    /// A getMore waits for inserts into a capped collection. It does not hold its cursor meanwhile.
    Tail(Tail),
    /// A getMore waits for the next moment of the stream of a backup. It does not hold its cursor meanwhile.
    Pause(Pause),
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

/// A getMore that waits for some time.
#[derive(Debug)]
pub struct Pause {
    /// The cursor.
    pub cursor: i64,
    /// When it looks again.
    pub at: Instant,
    /// When the client wants a reply, with or without documents.
    pub until: Instant,
}

impl Pause {
    /// Waits until it is time, or the operation is interrupted.
    pub async fn wait(&self, wake: &Notify) {
        tokio::select! {
            () = wake.notified() => {}
            () = tokio::time::sleep_until(self.at.min(self.until).into()) => {}
        }
    }
}

/// A getMore that waits for inserts.
#[derive(Debug)]
pub struct Tail {
    /// The cursor.
    pub cursor: i64,
    /// The signal of new documents, and how many notifications the cursor has seen. `None` if it waits for a turn only.
    pub signal: Option<(Arc<TailSignal>, u64)>,
    /// Whether it got a turn before its time was over.
    pub has_turn: bool,
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

/// What a hello waits for, in `currentOp`.
pub const TOPOLOGY_WAIT: &str = "a change of the topology";

impl Parked {
    /// The cursor of a getMore that waits.
    pub fn cursor(&self) -> Option<i64> {
        match self {
            Parked::Tail(tail) => Some(tail.cursor),
            Parked::Pause(pause) => Some(pause.cursor),
            Parked::Topology(_) | Parked::Journal(_) => None,
        }
    }

    /// What the command waits for, for `currentOp`.
    pub fn what(&self) -> &'static str {
        match self {
            Parked::Tail(_) => "documents",
            Parked::Pause(_) => "more of a backup",
            Parked::Journal(_) => "the journal",
            Parked::Topology(_) => TOPOLOGY_WAIT,
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
    /// Waits until there may be more documents, the time is over, or the operation is interrupted. Then waits for a turn, at
    /// most until the time is over, or for [`TURN_WAIT_MIN`].
    pub async fn wait<'a>(
        &mut self,
        wake: &Notify,
        turns: &'a TailTurns,
        metrics: &'a Metrics,
    ) -> Option<Turn<'a>> {
        // An interrupted command runs at once, and reports the interruption.
        self.has_turn = true;
        if let Some((signal, seen)) = &self.signal {
            tokio::select! {
                () = signal.newer(*seen) => {}
                () = wake.notified() => return None,
                () = tokio::time::sleep_until(self.until.into()) => {}
            }
        }
        let until = self.until.max(Instant::now() + TURN_WAIT_MIN);
        tokio::select! {
            turn = turns.take(metrics) => turn,
            () = wake.notified() => None,
            () = tokio::time::sleep_until(until.into()) => {
                self.has_turn = false;
                None
            }
        }
    }
}
