//! The record of each statement of an update or a delete, for the profiler: as in MongoDB, these have entries of their own.

use std::time::Instant;

use frond_bson::Doc;
use frond_error::Result;
use frond_store::watch_part;

use crate::context::Context;
use crate::host::clock::now_ms;
use crate::host::cpu;
use crate::observability::op_record::{Changed, OpRecord, Waited};
use crate::sessions::Updated;
use crate::shown_command::{short_command, without_secrets};
use frond_runtime::AdmissionClass;

/// The longest statement that is recorded whole.
const STATEMENT_BYTES_MAX: usize = 50 << 10;

/// The result of a statement.
pub trait Outcome {
    /// As in the field `op` of the profiler.
    const OP: &'static str;

    /// The documents that it has changed.
    fn changed(&self) -> Changed;
}

impl Outcome for Updated {
    const OP: &'static str = "update";

    fn changed(&self) -> Changed {
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let upserted = u64::from(self.upserted.is_some());
        Changed {
            matched: Some(count(self.n - upserted.min(self.n))),
            modified: Some(count(self.modified)),
            upserted: (upserted > 0).then_some(1),
            ..Changed::default()
        }
    }
}

impl Outcome for u64 {
    const OP: &'static str = "remove";

    fn changed(&self) -> Changed {
        Changed {
            deleted: Some(i64::try_from(*self).unwrap_or(i64::MAX)),
            ..Changed::default()
        }
    }
}

/// Runs a statement, and passes its record to the profiler if the level of the database requires one.
pub fn profiled<T: Outcome>(
    cx: &Context<'_>,
    statement: &Doc,
    run: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (server, profiler) = (cx.server, &cx.server.records.profiler);
    let began = Instant::now();
    let cpu_at_begin = cpu::at_begin(began, cx.operation.profile_level());
    let (outcome, op_stats) = watch_part(run);
    let took = began.elapsed();
    let level = profiler.level(cx.db);
    let is_slow = took >= server.slow_operation();
    let may_record = match (cx.operation.profile_level(), &level.filter) {
        (2.., _) | (_, Some(_)) => true,
        _ => is_slow && profiler.samples(),
    };
    if !may_record {
        return outcome;
    }
    let running = cx.connection.running.lock();
    let namespace = running.namespace.clone();
    drop(running);
    // A restore of users writes their credentials.
    let is_secret = cx.operation.has_secrets;
    let short;
    let command = match statement.len_bytes() {
        _ if is_secret => {
            short = without_secrets(statement, &["q", "u"]);
            &*short
        }
        0..=STATEMENT_BYTES_MAX => statement,
        _ => {
            short = short_command(statement);
            &*short
        }
    };
    let record = OpRecord {
        ended_ms: now_ms(),
        op: T::OP,
        namespace,
        command: command.as_bytes().to_vec(),
        originating: None,
        cursor: None,
        exhausted: false,
        op_stats,
        returns: false,
        changed: outcome.as_ref().map(T::changed).unwrap_or_default(),
        reply_bytes: 0,
        legacy: cx.legacy,
        admission: Some(AdmissionClass::Write),
        took,
        cpu: cpu::at_end().saturating_sub(cpu_at_begin),
        waited: Waited {
            commit: cx.connection.commit_waits.take(),
            ..Waited::default()
        },
        failure: outcome.as_ref().err().cloned(),
        peer: cx.connection.peer.clone(),
        application: cx.connection.application().map(str::to_owned),
        user: cx.state.identity.clone(),
    };
    let passes = match &level.filter {
        Some(filter) if cx.operation.profile_level() < 2 => filter.matches(&record.entry()),
        _ => true,
    };
    if passes {
        profiler.record(&server.store, cx.db, record);
    }
    outcome
}
