//! One operation of a client: the state that belongs to a request, not to its connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::{DocBuf, Timestamp};
use frond_store::{LastWritten, OpStats, Reservation};

use crate::memory_quota::Permit;
use crate::observability::op_record::Waited;
use crate::observability::profiler::ProfileLevel;
use crate::observability::query_stats::ShapeHash;
use frond_runtime::HeldTicket;

/// The shared resources that an operation holds.
#[derive(Default)]
pub struct Permits {
    /// Its ticket. A command that waits for long takes it out and gives it back.
    pub ticket: Option<HeldTicket>,
    /// Memory for its reply, which is held until the reply is sent.
    pub reply: Option<Permit>,
    /// Memory for what is parsed of its request, if that is large. A cursor that stays open keeps it.
    pub parsed: Option<Reservation>,
    /// Memory for what it has made outside of a batch.
    pub values: Option<Reservation>,
}

/// One command of a client while it runs or waits.
pub struct Operation {
    /// Start of its time limit. A getMore that has waited for documents starts again when there are some.
    pub started: Instant,
    /// Whether the client waits for a reply.
    pub is_acknowledged: bool,
    /// Whether its message holds a secret: the bytes of the message are overwritten after use.
    pub has_secrets: bool,
    /// The shared resources that it holds.
    pub permits: Permits,
    /// Its figures, except while it runs.
    pub op_stats: Option<Box<OpStats>>,
    /// The processor time that it used before its last wait.
    pub cpu: Duration,
    /// The processor time of its thread when it began, or went on after a wait.
    pub cpu_at_begin: Option<Duration>,
    /// Times that it has waited without a thread.
    pub waited: Waited,
    /// The operations of its database that are recorded.
    pub profiling: Option<ProfileLevel>,
    /// Identifies the shape of its query, if `$queryStats` counts it.
    pub query_shape: Option<ShapeHash>,
    /// The shape itself, unless `$queryStats` has it from an earlier query.
    pub new_shape: Option<DocBuf>,
    /// The command that opened the cursor of a getMore.
    pub originating: Option<Arc<DocBuf>>,
    /// Whether it is a getMore of a change stream, which decides the labels of its errors.
    pub reads_change_stream: bool,
    /// Collects the time of the last oplog entry that it writes, if its reply names that time.
    pub written: Option<LastWritten>,
    /// The time of its oplog entry where `written` does not see it: that of a transaction.
    pub entry_at: Option<Timestamp>,
}

impl Operation {
    /// An operation that starts now.
    pub fn new(is_acknowledged: bool, spare: Option<Box<OpStats>>) -> Operation {
        Operation {
            started: Instant::now(),
            is_acknowledged,
            has_secrets: false,
            permits: Permits::default(),
            op_stats: spare,
            cpu: Duration::ZERO,
            cpu_at_begin: None,
            waited: Waited::default(),
            profiling: None,
            query_shape: None,
            new_shape: None,
            originating: None,
            reads_change_stream: false,
            written: None,
            entry_at: None,
        }
    }

    /// The profiling level of its database.
    pub fn profile_level(&self) -> u8 {
        self.profiling.as_ref().map_or(0, |level| level.level)
    }
}

/// The replies to one message whose client accepts several.
#[derive(Debug, Default)]
pub struct Exhaust {
    /// Whether the client accepts several replies.
    pub allowed: bool,
    /// Set by a command after whose reply another one follows.
    pub more_to_come: bool,
    /// The counter of the topology version in the last reply of a `hello`. The next reply waits for a newer one.
    pub topology_sent: Option<i64>,
}
