//! The result of a command: a reply, or a wait without a thread.
//!
//! The task of the connection waits, and then continues the command where it stopped. `currentOp` shows both parts as one
//! operation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::DocBuf;
use frond_error::Result;
use frond_store::TailSignal;
use tokio::sync::{Notify, watch};

use crate::observability::metrics::Metrics;
use crate::replication::Acknowledgment;
use crate::tail_throttle::{TailPermit, TailThrottle};

/// The wait of a getMore whose client gives no time.
pub const AWAIT_DEFAULT: Duration = Duration::from_secs(1);

/// A reader waits for a turn at least this long.
const TURN_WAIT_MIN: Duration = Duration::from_millis(100);

/// The result of a command that has not failed.
#[derive(Debug)]
pub enum Outcome {
    /// It has ended with this reply, which lacks `ok`.
    Reply(DocBuf),
    /// It continues after a wait.
    Wait(Wait),
}

/// A wait of a command.
#[derive(Debug)]
pub enum Wait {
    /// A getMore waits for inserts into a capped collection. It does not hold its cursor meanwhile.
    Tail(Tail),
    /// A getMore waits until its backup has more to send. It does not hold its cursor meanwhile.
    Pause(Pause),
    /// A reply waits for the journal or for other members.
    Durability(DurabilityWait),
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
    pub cursor: i64,
    /// The signal of new documents, and how many notifications the cursor has seen. `None` if it waits for a turn only.
    pub signal: Option<(Arc<TailSignal>, u64)>,
    /// Whether it got a turn before its time was over.
    pub has_turn: bool,
    /// When the client wants a reply, with or without documents.
    pub until: Instant,
}

/// A reply, or an error by what a write has found, that waits until what it is about is durable.
#[derive(Debug)]
pub struct DurabilityWait {
    pub outcome: Result<DocBuf>,
    pub until: Acknowledgment,
    /// The limit of the write concern.
    pub timeout: Option<Duration>,
    /// When its time is over.
    pub deadline: Option<Instant>,
}

/// The wait of a hello, in `currentOp`.
pub const TOPOLOGY_WAIT: &str = "a change of the topology";

impl Wait {
    /// The cursor of a getMore that waits.
    pub fn cursor(&self) -> Option<i64> {
        match self {
            Wait::Tail(tail) => Some(tail.cursor),
            Wait::Pause(pause) => Some(pause.cursor),
            Wait::Topology(_) | Wait::Durability(_) => None,
        }
    }

    /// Its description in `currentOp`.
    pub fn description(&self) -> &'static str {
        match self {
            Wait::Tail(_) => "documents",
            Wait::Pause(_) => "more of a backup",
            Wait::Durability(wait) => wait.until.description(),
            Wait::Topology(_) => TOPOLOGY_WAIT,
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
        turns: &'a TailThrottle,
        metrics: &'a Metrics,
    ) -> Option<TailPermit<'a>> {
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
