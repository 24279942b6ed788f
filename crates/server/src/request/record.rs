//! The record of an operation while it runs and after it: `currentOp`, counters, `$queryStats`, the log and the profiler.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use frond_bson::{Doc, doc};
use frond_error::{Error, ErrorCode};
use frond_store::UsedPlan;

use super::parse::{Known, Request};
use super::secrets::secrets;
use crate::client::Client;
use crate::errors::is_refusal;
use crate::host::clock::now_ms;
use crate::host::cpu;
use crate::observability::log::{Component, Severity};
use crate::observability::metrics::{Class, Op};
use crate::observability::op_record::{Changed, OpRecord, Waited};
use crate::observability::profiler::Profiler;
use crate::observability::query_stats;
use crate::operation::Operation;
use frond_runtime::Work;

/// Bytes of `ok: 1.0`, which a reply gets at its end.
const OK_BYTES: usize = 12;

/// Whether an operation is recorded by the profiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Profiles {
    No,
    /// If it is logged, too: if it is slow, or matches the filter.
    AsLogged,
    Always,
}

/// The documents that a write has changed, read from its reply.
fn changed(command: &str, reply: &Doc) -> Changed {
    let count = |name: &str| reply.get(name).and_then(|n| n.as_i64_lossless());
    match command {
        "insert" => Changed {
            inserted: count("n"),
            ..Changed::default()
        },
        "delete" => Changed {
            deleted: count("n"),
            ..Changed::default()
        },
        "update" => {
            let upserted = reply.get_array("upserted").map_or(0, Doc::count);
            let upserted = i64::try_from(upserted).unwrap_or(i64::MAX);
            Changed {
                matched: count("n").map(|n| n - upserted),
                modified: count("nModified"),
                upserted: (upserted > 0).then_some(upserted),
                ..Changed::default()
            }
        }
        "bulkWrite" => Changed {
            matched: count("nMatched"),
            modified: count("nModified"),
            upserted: count("nUpserted"),
            inserted: count("nInserted"),
            deleted: count("nDeleted"),
        },
        "findAndModify" => {
            let Some(last) = reply.get_doc("lastErrorObject") else {
                return Changed::default();
            };
            let n = last.get("n").and_then(|n| n.as_i64_lossless());
            let upserts = last.contains_key("upserted");
            match last.get("updatedExisting") {
                None => Changed {
                    deleted: n,
                    ..Changed::default()
                },
                Some(existing) => Changed {
                    matched: Some(i64::from(existing.truthy())),
                    modified: Some(i64::from(existing.truthy())),
                    upserted: upserts.then_some(1),
                    ..Changed::default()
                },
            }
        }
        _ => Changed::default(),
    }
}

/// Shows the operation in `currentOp`. A command that is not admitted counts as a command of no kind.
pub fn begin(
    client: &mut Client<'_>,
    request: &Request<'_>,
    known: &Known,
    operation: &mut Operation,
    is_admitted: bool,
) {
    let (server, connection) = (client.server, client.connection);
    server.clients.connections.begin_command();
    // A write counts its statements itself.
    if known.spec.class != Class::Write {
        let op = if is_admitted {
            known.spec.op
        } else {
            Op::Command
        };
        server.metrics.count(op, 1);
    }
    let secrets = secrets(known.spec, request);
    operation.has_secrets = !secrets.is_empty();
    connection.plan.clear();
    let mut running = connection.running.lock();
    running.active = true;
    running.id = server.clients.connections.operation_id();
    running.started = Some(operation.started);
    running.kind = known.spec.kind;
    running.writes = known.spec.writes;
    running.waits_for = None;
    running.session = None;
    running.transaction = None;
    running.progress = None;
    running.keep_command(request.body, secrets);
    running.namespace.clear();
    running.namespace.push_str(request.db);
    running.namespace.push('.');
    let collection = request.collection().unwrap_or("$cmd");
    // A longer name is no collection's; only its start is kept.
    running
        .namespace
        .push_str(collection.get(..255).unwrap_or(collection));
    // Under the lock, so that a kill of the previous operation cannot interrupt this one.
    connection.killed.store(false, Relaxed);
}

/// Prepares the figures of an operation that is about to run, or to continue after a wait.
pub fn prepare(
    client: &Client<'_>,
    request: &Request<'_>,
    known: &Known,
    operation: &mut Operation,
) {
    let (server, connection) = (client.server, client.connection);
    let now = Instant::now();
    operation.profiling = server.records.profiler.recorded(request.db);
    operation.cpu_at_begin = Some(cpu::at_begin(now, operation.profile_level()));
    let op_stats = operation.op_stats.get_or_insert_default();
    op_stats
        .shown
        .get_or_insert_with(|| connection.plan.clone());
    if let Some(level) = &operation.profiling
        && let Some(from) = Profiler::stats_from(level, operation.started, server.slow_operation())
    {
        let filter = request.body.get_doc("filter");
        let filter = filter.or_else(|| request.body.get_doc("query"));
        op_stats.want_exec_stats(from, filter, request.body.get_doc("sort"));
    }
    if server.records.profiler.is_pending()
        && reads_profile(request, known)
        && let Some(_writing) = server.maintenance.fsync_lock.try_write()
    {
        server.records.profiler.flush(&server.store);
    }
    if known.spec.counts_shapes && server.records.query_stats.admits(now) {
        let application = connection.application();
        let shape = query_stats::shape_of(request.db, known.name(), request.body, application);
        (operation.query_shape, operation.new_shape) = shape.unzip();
    }
}

/// Shows that an operation waits without a thread.
pub fn suspend(client: &Client<'_>, operation: &mut Operation, waits_for: &'static str) {
    client.connection.running.lock().waits_for = Some(waits_for);
    if let Some(begin) = operation.cpu_at_begin.take() {
        operation.cpu += cpu::thread_time().saturating_sub(begin);
    }
}

/// Whether a command may read entries that the profiler has not written yet.
fn reads_profile(request: &Request<'_>, known: &Known) -> bool {
    if known.spec.class == Class::Write {
        return false;
    }
    // The name may be that of the command's collection, or stand in a pipeline that joins it.
    let mut dots = request.body.as_bytes();
    while let Some(dot) = dots.iter().position(|byte| *byte == b'.') {
        let (before, behind) = dots.split_at(dot);
        dots = behind.get(1..).unwrap_or_default();
        if before.ends_with(b"system") && dots.starts_with(b"profile") {
            return true;
        }
    }
    false
}

/// Ends the record of an operation.
pub fn end(
    client: &mut Client<'_>,
    request: &Request<'_>,
    known: &Known,
    operation: &mut Operation,
    outcome: std::result::Result<&Doc, &Error>,
) {
    let (server, connection) = (client.server, client.connection);
    let took = operation.started.elapsed();
    server.clients.connections.end_command();
    let spec = known.spec;
    if let Some(count) = server.metrics.commands.get(known.index) {
        count.total.add(1);
    }
    let waited = Waited {
        commit: connection.commit_waits.take(),
        ..operation.waited
    };
    let mut op_stats = operation.op_stats.take().unwrap_or_default();
    let cpu_at_begin = operation.cpu_at_begin.take();
    let cpu_before = operation.cpu;
    let cpu = || {
        let last = cpu_at_begin.map(|begin| cpu::at_end().saturating_sub(begin));
        cpu_before + last.unwrap_or_default()
    };
    if let Some(hash) = operation.query_shape.filter(|_| outcome.is_ok()) {
        let new_shape = operation.new_shape.take();
        let reply = query_stats::Reply {
            is_first: new_shape.is_some(),
            took,
            cpu: cpu(),
            op_stats: &op_stats,
        };
        server.records.query_stats.record(hash, new_shape, &reply);
    }
    let is_refused = matches!(outcome, Err(failure) if failure.code() == ErrorCode::Unauthorized);
    server.metrics.add_stats(&op_stats);
    let is_slow = took >= server.slow_operation();
    let level = operation.profiling.take();
    let filter = level.as_ref().and_then(|level| level.filter.as_ref());
    let profiles = match level.as_ref().map_or(0, |level| level.level) {
        // Each statement of these has an entry of its own.
        _ if is_refused || (spec.profiles_statements && outcome.is_ok()) => Profiles::No,
        0 => Profiles::No,
        1 => Profiles::AsLogged,
        _ => Profiles::Always,
    };
    let may_log = filter.is_some() || (is_slow && server.records.profiler.samples());
    let mut running = connection.running.lock();
    running.active = false;
    // A refused command has done nothing with the collection, which need not exist.
    let counted = (spec.on_collection || known.name() == "getMore") && !is_refused;
    let namespace = if counted {
        running.namespace.as_str()
    } else {
        ""
    };
    let last = &mut client.state.last_used;
    (server.metrics).record(last, namespace, spec.op, spec.class, took);
    let scans = op_stats.plan.as_ref().map(UsedPlan::is_collection_scan);
    if scans == Some(true) && spec.op == Op::Query {
        let is_tail =
            known.name() == "find" && request.body.get("tailable").is_some_and(|on| on.truthy());
        server.metrics.count_scan(last, namespace, !is_tail);
    }
    let may_log_this = may_log && (spec.work != Work::Instant || profiles == Profiles::AsLogged);
    let described = (may_log_this || profiles == Profiles::Always)
        .then(|| (running.namespace.clone(), running.command.clone()));
    running.forget_long_command();
    drop(running);
    let Some((namespace, command)) = described else {
        op_stats.clear();
        client.state.spare_figures = Some(op_stats);
        return;
    };
    let reply = outcome.unwrap_or(Doc::empty());
    let cursor = reply.get_doc("cursor");
    let cursor = cursor.and_then(|cursor| cursor.get_i64("id"));
    let record = OpRecord {
        ended_ms: now_ms(),
        op: known.spec.kind,
        namespace,
        command,
        originating: operation.originating.take(),
        cursor: cursor.filter(|id| *id != 0),
        exhausted: cursor == Some(0),
        op_stats: *op_stats,
        returns: cursor.is_some(),
        changed: changed(known.name(), reply),
        reply_bytes: reply.len_bytes() + OK_BYTES,
        legacy: request.legacy,
        admission: spec.admission,
        took,
        cpu: cpu(),
        waited,
        failure: outcome.err().cloned(),
        peer: connection.peer.clone(),
        application: connection.application().map(str::to_owned),
        user: client.state.identity.clone(),
    };
    let passes = match filter {
        Some(filter) => filter.matches(&record.entry()),
        None => may_log,
    };
    if passes && spec.work != Work::Instant {
        server.metrics.slow_operations.add(1);
        server.log.info(
            Component::Command,
            51803,
            &connection.name,
            "Slow query",
            &record.attributes(),
        );
    }
    if profiles == Profiles::Always || (profiles == Profiles::AsLogged && passes) {
        server
            .records
            .profiler
            .record(&server.store, request.db, record);
    }
}

/// Counts and logs a failure.
pub fn count_failure(client: &Client<'_>, known: &Known, failure: &Error) {
    let (server, connection) = (client.server, client.connection);
    if let Some(count) = server.metrics.commands.get(known.index) {
        count.failed.add(1);
    }
    match failure.code() {
        ErrorCode::ClientDisconnect => server.metrics.killed_for_disconnect.add(1),
        ErrorCode::MaxTimeMSExpired => server.metrics.killed_for_time.add(1),
        _ => {}
    }
    let internal = matches!(
        failure.code(),
        ErrorCode::InternalError | ErrorCode::DataCorruptionDetected
    );
    if internal {
        server.metrics.internal_errors.add(1);
    } else {
        server.metrics.user_errors.add(1);
    }
    let severity = if internal {
        Severity::Error
    } else if is_refusal(failure.code()) {
        Severity::Warning
    } else {
        Severity::Debug(1)
    };
    if server.log.wants(Component::Command, severity) {
        let attributes = doc! {
            "command": known.name(),
            "error": {
                "code": failure.code().code(),
                "codeName": &*failure.code().name(),
                "errmsg": failure.message(),
            },
        };
        server.log.line(
            severity,
            Component::Command,
            21962,
            &connection.name,
            "Assertion while executing command",
            &attributes,
        );
    }
}

/// Ends an operation that has waited and does not continue.
pub fn abandon(client: &Client<'_>) {
    client.server.clients.connections.end_command();
    let mut running = client.connection.running.lock();
    running.active = false;
    running.forget_long_command();
}
