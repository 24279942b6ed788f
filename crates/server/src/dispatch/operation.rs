//! The record of an operation while it runs and after it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{Figures, Interrupt, OpContext, UsedPlan, Waiting, watch};
use frond_wire::DocIter;

use super::{CommandRequest, tracing};
use crate::client::Client;
use crate::clock::now_ms;
use crate::commands::{Command, Traits, find};
use crate::connection::Connection;
use crate::cpu;
use crate::errors::{is_refusal, truncated};
use crate::exec::Work;
use crate::log::{Component, Severity};
use crate::metrics::{Class, Op};
use crate::op_record::{Changed, OpRecord};
use crate::parking::{Parked, Waited};
use crate::profiler::{ProfileLevel, Profiler};
use crate::query_stats::{self, is_query};

/// What is recorded about a command.
pub struct Operation {
    /// How the dispatcher treats it.
    pub traits: Traits,
    /// The proper name.
    pub name: &'static str,
    /// As [`kind`] returns it.
    pub kind: &'static str,
    /// Index in the table of commands.
    pub index: usize,
    /// Whether it was let in: what is refused before a login counts as a command without a kind.
    pub is_admitted: bool,
}

/// The fields of writes that may hold credentials of users.
const WRITTEN: [&str; 7] = [
    "applyOps",
    "deletes",
    "documents",
    "ops",
    "query",
    "update",
    "updates",
];

/// Whether a name is that of the collection of users, or of one in which mongorestore prepares it; with or without the
/// database.
fn is_of_users(name: &str) -> bool {
    name.contains("system.users") || name.contains("tempusers")
}

/// Whether a write names a collection of users. The documents that are written are not searched: there may be many.
fn names_users(body: &Doc, sequences: &[(&str, DocIter<'_>)]) -> bool {
    let is_named = |doc: &Doc| doc.get_str("ns").is_some_and(is_of_users);
    match body.first() {
        Some(("applyOps", Value::Array(entries))) => {
            let mut entries = entries.values().filter_map(|entry| entry.as_doc());
            entries.any(|entry| {
                let holds_entries = |inner: &&Doc| inner.contains_key("applyOps");
                let inner = entry.get_doc("o").filter(holds_entries);
                is_named(entry) || inner.is_some_and(|inner| names_users(inner, &[]))
            })
        }
        Some(("bulkWrite", _)) => {
            let mut infos = body.get_array("nsInfo").unwrap_or(Doc::empty()).values();
            let mut sequences = sequences.iter().filter(|(name, _)| *name == "nsInfo");
            infos.any(|info| info.as_doc().is_some_and(is_named))
                || sequences.any(|(_, infos)| {
                    // One that is malformed may name anything.
                    infos
                        .into_iter()
                        .any(|info| Doc::validate(info).map_or(true, is_named))
                })
        }
        Some((_, Value::String(collection))) => is_of_users(collection),
        // A UUID may be that of the collection of users.
        Some((_, Value::Binary { .. })) => true,
        _ => false,
    }
}

/// The fields of a command whose values are shown nowhere.
pub fn secrets(traits: &Traits, request: &CommandRequest<'_>) -> &'static [&'static str] {
    match request.body.first() {
        Some(("explain", Value::Document(inner))) => {
            let name = inner.first().map_or("", |(name, _)| name);
            let hides = |command: &dyn Command| {
                !secrets_in(&command.traits(), request.db, inner, &[]).is_empty()
            };
            match find(name).is_some_and(|(_, command)| hides(command)) {
                true => &["explain"],
                false => &[],
            }
        }
        _ => secrets_in(traits, request.db, request.body, request.sequences),
    }
}

fn secrets_in(
    traits: &Traits,
    db: &str,
    body: &Doc,
    sequences: &[(&str, DocIter<'_>)],
) -> &'static [&'static str] {
    if traits.secrets.iter().any(|field| body.contains_key(field)) {
        return traits.secrets;
    }
    // A restore of users writes their credentials as documents.
    match traits.writes && db == "admin" && names_users(body, sequences) {
        true => &WRITTEN,
        false => &[],
    }
}

/// How long an operation goes on whose client has disconnected.
const GRACE: Duration = Duration::from_millis(500);

/// The kind of a command's operation, as `currentOp` names it.
pub fn kind(command: &str) -> &'static str {
    match command {
        "find" => "query",
        "getMore" => "getmore",
        "insert" => "insert",
        "update" => "update",
        "delete" => "remove",
        "bulkWrite" => "bulkWrite",
        _ => "command",
    }
}

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

/// The results of an operation that has ended.
struct Ended<'a> {
    /// Which operations of its database are recorded.
    level: Option<ProfileLevel>,
    took: Duration,
    /// The processor time of its thread when it began, or went on.
    cpu_at_begin: Duration,
    figures: Box<Figures>,
    /// The shape of a query that `$queryStats` counts.
    new_shape: Option<DocBuf>,
    outcome: std::result::Result<&'a Doc, &'a Error>,
}

/// Whether the statements of a command are recorded one by one.
fn has_statements(command: &str) -> bool {
    matches!(command, "update" | "delete")
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

/// Makes the limits of an operation that a connection begins.
pub struct Limits<'a> {
    connection: &'a Connection,
    started: Instant,
    is_acknowledged: bool,
}

impl Limits<'_> {
    /// What ends the waits of a commit of the operation.
    pub fn interrupt(&self, time: Option<Duration>) -> Interrupt {
        Interrupt {
            killed: self.connection.killed.clone(),
            // Who asks for no reply may disconnect at once and have the write done.
            abandoned: self.is_acknowledged.then(|| self.connection.gone.clone()),
            deadline: time.and_then(|time| self.started.checked_add(time)),
            waits: self.connection.commit_waits.clone(),
        }
    }

    /// Limits with this time, counted from the start of the operation.
    pub fn with_limit(&self, time: Option<Duration>) -> OpContext {
        let deadline = time.and_then(|time| self.started.checked_add(time));
        OpContext::with_limits(deadline, self.connection.killed.clone())
    }

    /// The client as the one who waits for the operation. None if it asks for no reply: then it may disconnect and have the
    /// operation done.
    pub fn waiting(&self) -> Option<Waiting> {
        self.is_acknowledged.then(|| Waiting {
            gone: self.connection.gone.clone(),
            grace: self.started + GRACE,
        })
    }
}

impl Operation {
    /// Runs it. `currentOp` shows it, `killOp` interrupts it, `serverStatus` counts it, and the log reports it if it is
    /// slow.
    pub fn run(
        &self,
        client: &mut Client<'_>,
        request: &CommandRequest<'_>,
        run: impl FnOnce(&mut Client<'_>, Limits<'_>) -> Result<DocBuf>,
    ) -> Result<DocBuf> {
        let (server, connection) = (client.server, client.connection);
        let now = Instant::now();
        let mut started = now;
        let announced = std::mem::take(&mut client.state.announced);
        match client.state.resumed {
            None if !announced => self.begin(client, request, started),
            // The time of a getMore begins when there is something to do.
            Some(Parked::Tail(_) | Parked::Pause(_) | Parked::Topology(_)) => {
                connection.running.lock().waits_for = None
            }
            None | Some(Parked::Journal(_)) => {
                let mut running = connection.running.lock();
                running.waits_for = None;
                started = running.started.unwrap_or(started);
            }
        }
        let limits = Limits {
            connection,
            started,
            is_acknowledged: !client.state.unacknowledged,
        };
        let level = server.profiler.of(request.db);
        let cpu_at_begin = cpu::at_begin(now, level.as_ref().map_or(0, |level| level.level));
        client.state.profile_level = level.as_ref().map_or(0, |level| level.level);
        let mut figures = client.state.figures.take().unwrap_or_default();
        figures.shown.get_or_insert_with(|| connection.plan.clone());
        if let Some(level) = &level
            && let Some(from) = Profiler::stats_from(level, started, server.slow_operation())
        {
            let filter = request.body.get_doc("filter");
            let filter = filter.or_else(|| request.body.get_doc("query"));
            figures.want_exec_stats(from, filter, request.body.get_doc("sort"));
        }
        if server.profiler.is_pending()
            && self.reads_profile(request)
            && let Some(_writing) = server.fsync_lock.try_write()
        {
            server.profiler.flush(&server.store);
        }
        let mut new_shape = None;
        if is_query(self.name) && server.query_stats.admits(now) {
            let application = connection.application();
            let shape = query_stats::shape_of(request.db, self.name, request.body, application);
            (client.state.query_shape, new_shape) = shape.unzip();
        }
        let executor = &server.executor;
        let mut lent = Some(figures);
        let outcome = watch(&mut lent, || {
            executor.run(self.traits.work, || run(client, limits))
        });
        let figures = lent.unwrap_or_default();
        if let Ok(_) = &outcome
            && let Some(parked) = &client.state.park
        {
            // It continues later.
            connection.running.lock().waits_for = Some(parked.what());
            client.state.figures = Some(figures);
            client.state.cpu += cpu::thread_time().saturating_sub(cpu_at_begin);
            return outcome;
        }
        client.state.park = None;
        let took = started.elapsed();
        let outcome = outcome.map_err(|failure| match failure.code() {
            ErrorCode::Interrupted if server.is_stopping() => {
                Error::new(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown")
            }
            _ => truncated(failure),
        });
        if let Err(failure) = &outcome {
            self.count_failure(client, failure);
            if !self.traits.keeps_last_error {
                client.state.last_error.failed(failure.clone());
            }
        }
        let failure = outcome.as_ref().err();
        let on_collection = self.traits.on_collection;
        tracing::record(client, request, self.name, on_collection, took, failure);
        let ended = Ended {
            level,
            took,
            cpu_at_begin,
            figures,
            new_shape,
            outcome: outcome.as_ref().map(|reply| &**reply),
        };
        self.end(client, request, ended);
        outcome
    }

    /// Begins it before it can run.
    pub fn announce(
        &self,
        client: &mut Client<'_>,
        request: &CommandRequest<'_>,
        waits_for: &'static str,
    ) {
        self.begin(client, request, Instant::now());
        client.connection.running.lock().waits_for = Some(waits_for);
        client.state.announced = true;
    }

    fn begin(&self, client: &mut Client<'_>, request: &CommandRequest<'_>, started: Instant) {
        let (server, connection) = (client.server, client.connection);
        server.connections.active.fetch_add(1, Relaxed);
        // A write counts its statements itself.
        if self.traits.class != Class::Write {
            let op = if self.is_admitted {
                self.traits.op
            } else {
                Op::Command
            };
            server.metrics.count(op, 1);
        }
        let secrets = secrets(&self.traits, request);
        client.state.wipes_message |= !secrets.is_empty();
        connection.plan.clear();
        let mut running = connection.running.lock();
        running.active = true;
        running.id = server.connections.operation_id();
        running.started = Some(started);
        running.kind = self.kind;
        running.writes = self.traits.writes;
        running.waits_for = None;
        running.session = None;
        running.transaction = None;
        running.progress = None;
        running.keep_command(request.body, secrets);
        running.namespace.clear();
        running.namespace.push_str(request.db);
        running.namespace.push('.');
        let collection = match request.body.first() {
            Some((_, Value::String(collection))) if self.traits.on_collection => collection,
            _ => request
                .body
                .get_str("collection")
                .filter(|_| self.name == "getMore")
                .unwrap_or("$cmd"),
        };
        // A longer name is no collection's; only its start is kept.
        running
            .namespace
            .push_str(collection.get(..255).unwrap_or(collection));
        // Under the lock, so that a kill of the previous operation cannot interrupt this one.
        connection.killed.store(false, Relaxed);
    }

    /// Whether it may read what the profiler has not written yet. Who writes cannot.
    fn reads_profile(&self, request: &CommandRequest<'_>) -> bool {
        // The name may be that of the command's collection, or stand in a pipeline that joins it.
        let mut dots = request.body.as_bytes();
        if self.traits.class == Class::Write {
            return false;
        }
        while let Some(dot) = dots.iter().position(|byte| *byte == b'.') {
            let (before, behind) = dots.split_at(dot);
            dots = behind.get(1..).unwrap_or_default();
            if before.ends_with(b"system") && dots.starts_with(b"profile") {
                return true;
            }
        }
        false
    }

    fn end(&self, client: &mut Client<'_>, request: &CommandRequest<'_>, ended: Ended<'_>) {
        let (server, connection) = (client.server, client.connection);
        server.connections.active.fetch_sub(1, Relaxed);
        let traits = self.traits;
        if let Some(count) = server.metrics.commands.get(self.index) {
            count.total.add(1);
        }
        let waited = Waited {
            commit: connection.commit_waits.take(),
            ..std::mem::take(&mut client.state.waited)
        };
        let cpu_before = std::mem::take(&mut client.state.cpu);
        let originating = client.state.originating.take();
        if let Some(hash) = client
            .state
            .query_shape
            .take()
            .filter(|_| ended.outcome.is_ok())
        {
            let reply = query_stats::Reply {
                is_first: ended.new_shape.is_some(),
                took: ended.took,
                cpu: cpu_before + cpu::at_end().saturating_sub(ended.cpu_at_begin),
                figures: &ended.figures,
            };
            server.query_stats.record(hash, ended.new_shape, &reply);
        }
        let is_refused =
            matches!(ended.outcome, Err(failure) if failure.code() == ErrorCode::Unauthorized);
        server.metrics.add_figures(&ended.figures);
        let is_slow = ended.took >= server.slow_operation();
        let filter = ended.level.as_ref().and_then(|level| level.filter.as_ref());
        let profiles = match ended.level.as_ref().map_or(0, |level| level.level) {
            // Each statement of these has an entry of its own.
            _ if is_refused || (has_statements(self.name) && ended.outcome.is_ok()) => Profiles::No,
            0 => Profiles::No,
            1 => Profiles::AsLogged,
            _ => Profiles::Always,
        };
        let may_log = match filter {
            Some(_) => true,
            None => is_slow && server.profiler.samples(),
        };
        let mut running = connection.running.lock();
        running.active = false;
        // What is refused has done nothing with the collection, which need not exist.
        let counted = (traits.on_collection || self.name == "getMore") && !is_refused;
        let namespace = if counted {
            running.namespace.as_str()
        } else {
            ""
        };
        server
            .metrics
            .record(namespace, traits.op, traits.class, ended.took);
        let scans = ended
            .figures
            .plan
            .as_ref()
            .map(UsedPlan::is_collection_scan);
        if scans == Some(true) && self.traits.op == Op::Query {
            let is_tail =
                self.name == "find" && request.body.get("tailable").is_some_and(|on| on.truthy());
            server.metrics.count_scan(namespace, !is_tail);
        }
        let is_told = may_log && (traits.work != Work::Instant || profiles == Profiles::AsLogged);
        let told = (is_told || profiles == Profiles::Always).then(|| {
            let cpu = cpu::at_end().saturating_sub(ended.cpu_at_begin);
            (running.namespace.clone(), running.command.clone(), cpu)
        });
        running.forget_long_command();
        drop(running);
        let Some((namespace, command, cpu)) = told else {
            let mut figures = ended.figures;
            figures.clear();
            client.state.figures = Some(figures);
            return;
        };
        let (figures, reply) = (ended.figures, ended.outcome);
        let reply_doc = reply.unwrap_or(Doc::empty());
        let cursor = reply_doc.get_doc("cursor");
        let cursor = cursor.and_then(|cursor| cursor.get_i64("id"));
        let returns = cursor.is_some();
        let record = OpRecord {
            ended_ms: now_ms(),
            op: self.kind,
            namespace,
            command,
            originating,
            cursor: cursor.filter(|id| *id != 0),
            exhausted: cursor == Some(0),
            figures: *figures,
            returns,
            changed: changed(self.name, reply_doc),
            reply_bytes: reply_doc.len_bytes() + OK_BYTES,
            legacy: request.legacy,
            lane: traits.lane,
            took: ended.took,
            cpu: cpu + cpu_before,
            waited,
            failure: reply.err().cloned(),
            peer: connection.peer.clone(),
            application: connection.application().map(str::to_owned),
            user: client.state.identity.clone(),
        };
        let passes = match filter {
            Some(filter) => filter.matches(&record.entry()),
            None => may_log,
        };
        if passes && traits.work != Work::Instant {
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
            server.profiler.record(&server.store, request.db, record);
        }
    }

    /// Counts and logs a failure.
    fn count_failure(&self, client: &Client<'_>, failure: &Error) {
        let (server, connection) = (client.server, client.connection);
        if let Some(count) = server.metrics.commands.get(self.index) {
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
                "command": self.name,
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
}

/// Ends an operation that waited and does not continue.
pub fn abandon(client: &mut Client<'_>) {
    let state = &mut *client.state;
    (state.figures, state.cpu) = Default::default();
    (state.waited, state.originating, state.query_shape) = Default::default();
    client.server.connections.active.fetch_sub(1, Relaxed);
    let mut running = client.connection.running.lock();
    running.active = false;
    running.forget_long_command();
}

#[cfg(test)]
mod tests {
    use frond_bson::{DocBuf, Value, doc};

    use super::*;

    fn hidden(body: &DocBuf) -> &'static [&'static str] {
        let name = body.first().map_or("", |(name, _)| name);
        let (_, command) = find(name).expect("the command exists");
        let request = CommandRequest {
            db: "admin",
            body,
            sequences: &[],
            exhaust_allowed: false,
            legacy: false,
        };
        secrets(&command.traits(), &request)
    }

    #[test]
    fn secrets_are_found_by_the_names_of_collections() {
        let of_users = doc! {"update": "system.users", "updates": [{"q": {}, "u": {}}]};
        let uuid = Value::Binary {
            subtype: 4,
            bytes: &[7; 16],
        };
        let entry = doc! {"op": "i", "ns": "admin.system.users", "o": {}};
        let entries = doc! {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": [&entry]}};
        let writes = [
            of_users.clone(),
            doc! {"insert": "tempusers", "documents": [{}]},
            doc! {"insert": uuid, "documents": [{}]},
            doc! {"bulkWrite": 1, "ops": [], "nsInfo": [{"ns": "admin.c"}, {"ns": "admin.system.users"}]},
            doc! {"applyOps": [{"op": "n", "ns": ""}, &entry]},
            doc! {"applyOps": [&entries]},
        ];
        for write in writes {
            assert_eq!(hidden(&write), WRITTEN, "{write:?}");
        }
        let create = doc! {"createUser": "a", "pwd": "pencil", "roles": []};
        for inner in [of_users, create] {
            assert_eq!(hidden(&doc! {"explain": &inner}), ["explain"]);
        }
        // The text inside of documents says nothing.
        let text = doc! {"a": "tempusers and system.users"};
        let shown = [
            doc! {"bulkWrite": 1, "ops": [{"insert": 0, "document": &text}], "nsInfo": [{"ns": "admin.c"}]},
            doc! {"insert": "c", "documents": [&text]},
            doc! {"find": "system.users"},
            doc! {"explain": {"find": "c", "filter": &text}},
        ];
        for command in shown {
            assert!(hidden(&command).is_empty(), "{command:?}");
        }
    }
}
