//! From a request to a command: the arguments that all commands share, and the record of each operation.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{PlanRules, scripted};
use frond_wire::DocIter;
use parking_lot::RwLockReadGuard;

use crate::client::Client;
use crate::commands::aggregate::Reach;
use crate::commands::{self, proper_name};
use crate::context::Context;
use crate::errors::{reply_too_large, truncated, write_error};
use crate::exec::Lane;
use crate::fail_points::{Effect, SwitchName};
use crate::fsync_lock;
use crate::labels::{self, Part};
use crate::limits::REPLY_BYTES_MAX;
use crate::parking::{JournalWait, Parked};
use crate::replication::{Replication, Wrote};
use crate::sessions::SessionId;
use crate::state::Server;
use crate::transactions::Statement;

mod common;
mod gate;
#[cfg(test)]
mod gate_tests;
mod operation;
#[cfg(test)]
mod ownership_tests;
#[cfg(test)]
mod request_times_tests;
mod tracing;
mod transaction;

use common::Common;
pub use gate::{caller, current_caller, require};
pub use operation::abandon;
use operation::{Operation, kind};

/// A command as it arrived, by whatever opcode.
pub struct CommandRequest<'a> {
    /// The database.
    pub db: &'a str,
    /// The command's document, validated.
    pub body: &'a Doc,
    /// Document sequences beside it.
    pub sequences: &'a [(&'a str, DocIter<'a>)],
    /// The client accepts several replies.
    pub exhaust_allowed: bool,
    /// It came by a legacy opcode: some commands then reply as the servers of that time did.
    pub legacy: bool,
}

/// A command's reply.
pub struct Answer {
    /// The reply, with `ok`.
    pub reply: DocBuf,
    /// Another reply follows without a request.
    pub more_to_come: bool,
    /// Wait this long before the reply is sent.
    pub wait: Option<Duration>,
    /// Close the connection instead.
    pub close: bool,
}

impl Answer {
    /// The reply for an error, in a size that clients accept: an error may quote the request.
    pub fn failed(failure: Error) -> Answer {
        Answer::labelled(failure, |_| None, None)
    }

    /// The reply for an error with the label that its code has in this command, or those of a fail point.
    fn labelled(
        failure: Error,
        label: impl FnOnce(ErrorCode) -> Option<&'static str>,
        forced: Option<&ArrayBuf>,
    ) -> Answer {
        let mut reply = DocBuf::new();
        let code = failure.code();
        write_error(&mut reply, &truncated(failure));
        labels::write(&mut reply, forced, label(code));
        Answer {
            reply,
            more_to_come: false,
            wait: None,
            close: false,
        }
    }
}

/// Runs a command. There is always a reply. A member of a replica set adds its times.
pub fn run_command(client: &mut Client<'_>, request: &CommandRequest<'_>) -> Answer {
    let Some(set) = &client.server.replication else {
        return answer_command(client, request);
    };
    if client.state.resumed.is_none() {
        client.state.written = None;
        client.state.entry_at = None;
    }
    let mut answer = answer_command(client, request);
    // A command that waits has no reply yet.
    if client.state.park.is_none() {
        let written = client.state.written.take();
        let entry = written.and_then(|written| written.get());
        let entry = client.state.entry_at.take().or(entry);
        // One that failed may have written a part.
        set.add_times(
            &mut answer.reply,
            writes(request).then_some(Wrote { entry }),
        );
    }
    answer
}

/// Whether a command writes.
fn writes(request: &CommandRequest<'_>) -> bool {
    let name = request.body.first().map_or("", |(name, _)| name);
    commands::find(name).is_some_and(|(_, command)| command.traits().writes)
        || lane(name, request.body.as_bytes()) == Some(Lane::Write)
}

fn answer_command(client: &mut Client<'_>, request: &CommandRequest<'_>) -> Answer {
    let effect = match client.state.resumed {
        // The fail point was checked before the command waited.
        Some(_) => client
            .state
            .effect
            .take()
            .map_or_else(Effect::default, |effect| *effect),
        None => effect(client, request).unwrap_or_default(),
    };
    client.state.reads_change_stream = false;
    if let Some(failure) = effect.failure().or_else(|| closing(&effect)) {
        // The point comes before the cursor is looked up, so that a getMore is not known as that of a change stream.
        let label = |code| label(request, false, code);
        return Answer {
            wait: effect.block,
            close: effect.close,
            ..Answer::labelled(failure, label, effect.labels.as_ref())
        };
    }
    let mut more_to_come = false;
    let outcome = try_command(client, request, &mut more_to_come);
    let is_parked = client.state.park.is_some();
    if is_parked && effect != Effect::default() {
        client.state.effect = Some(Box::new(effect.clone()));
    }
    let close = client.server.fail_points.is_on()
        && !is_parked
        && client.connection.closes.swap(false, Ordering::Relaxed);
    // A hello succeeds also if the login in it has failed.
    let wait = effect.block.max(client.state.login.delay.take());
    match outcome {
        Ok(mut reply) => {
            if let Some(code) = effect.add_to(&mut reply) {
                let label = Part::of(request.body).label(None, Some(code));
                labels::write(&mut reply, effect.labels.as_ref(), label);
            }
            reply.push("ok", 1.0);
            Answer {
                reply,
                more_to_come,
                wait,
                close,
            }
        }
        Err(failure) => {
            let label = |code| label(request, client.state.reads_change_stream, code);
            Answer {
                wait,
                close,
                ..Answer::labelled(failure, label, None)
            }
        }
    }
}

/// The label of a command's error. `reads_change_stream` tells whether it is a getMore of a change stream.
fn label(
    request: &CommandRequest<'_>,
    reads_change_stream: bool,
    code: ErrorCode,
) -> Option<&'static str> {
    let label = Part::of(request.body).label(Some(code), None);
    label.or_else(|| {
        labels::of_change_stream(code, || {
            reads_change_stream || commands::watch::opens(request.body)
        })
    })
}

/// The effect of a fail point on this command.
fn effect(client: &Client<'_>, request: &CommandRequest<'_>) -> Option<Effect> {
    let (server, connection) = (client.server, client.connection);
    if !server.fail_points.is_on() {
        return None;
    }
    let (name, value) = request.body.first()?;
    // A fail point may name a command that does not exist.
    let proper = commands::find(name).map_or(name, |(_, command)| proper_name(command));
    // A handshake itself names the application.
    let metadata = request.body.get_doc("client");
    let application = connection
        .application()
        .or_else(|| metadata?.get_doc("application")?.get_str("name"));
    let thread = connection.name.as_str();
    server
        .fail_points
        .of(&[proper, name], application, thread, || {
            format!("{}.{}", request.db, value.as_str().unwrap_or_default())
        })
}

/// The error of a command whose connection a fail point closes; it is not sent.
fn closing(effect: &Effect) -> Option<Error> {
    effect
        .close
        .then(|| Error::new(ErrorCode::NetworkTimeout, "closed by a fail point"))
}

fn try_command(
    client: &mut Client<'_>,
    request: &CommandRequest<'_>,
    more_to_come: &mut bool,
) -> Result<DocBuf> {
    let server = client.server;
    let name = request.body.first().map_or("", |(name, _)| name);
    let Some((index, command)) = commands::find(name) else {
        server.metrics.unknown_commands.add(1);
        // It may be one of another version that has a password, such as `copydbsaslstart`.
        client.state.wipes_message = true;
        let failure = Error::new(
            ErrorCode::CommandNotFound,
            match commands::absent::advice(name) {
                Some(advice) => format!("no such command: '{name}'; {advice}"),
                None => format!("no such command: '{name}'"),
            },
        );
        client.state.last_error.failed(failure.clone());
        return Err(failure);
    };
    let traits = command.traits();
    let proper = proper_name(command);
    if !traits.keeps_last_error && client.state.resumed.is_none() {
        client.state.last_error.begin();
    }
    let (caller, known) = match gate::current_caller(client) {
        Ok(caller) => (caller, Ok(())),
        Err(failure) => (gate::caller(client), Err(failure)),
    };
    let admitted = known.and_then(|()| gate::admit(client, &caller, index, command));
    let is_admitted = admitted.is_ok();
    let common = admitted.and_then(|()| Common::parse(server, command, request, &caller));
    let operation = Operation {
        traits,
        name: proper,
        kind: kind(proper),
        index,
        is_admitted,
    };
    operation.run(client, request, |client, limits| {
        if let Some(Parked::Journal(waited)) = &mut client.state.resumed {
            let common = common?;
            let is_read = lane(name, request.body.as_bytes()) == Some(Lane::Read);
            if is_read && let Some(failure) = waited.failure.take() {
                close_cursor(client.server, &waited.reply);
                return Err(failure);
            }
            let mut reply = after_journal(waited);
            push_unsatisfied(&common, request, &mut reply);
            return Ok(reply);
        }
        let common =
            common.inspect_err(|_| close_parked_cursor(server, client.state.resumed.take()))?;
        let needs = match gate::check(client, &caller, command, request) {
            Ok(needs) => needs,
            Err(failure) => {
                close_parked_cursor(server, client.state.resumed.take());
                return Err(failure);
            }
        };
        if common.help {
            return Ok(doc! {"help": command.doc()});
        }
        if let Some(session) = common.session {
            touch_session(client, session);
            client.connection.running.lock().session = Some(session);
        }
        let mut context = limits.with_limit(common.time_limit);
        context.rules = rules(server, request)?;
        if traits.lane == Some(Lane::Read) {
            context.waiting = limits.waiting();
        }
        if server.fail_points.is_on() && common.time_limit.is_some() {
            if server
                .fail_points
                .acts(SwitchName::MaxTimeAlwaysTimeOut, "")
                .is_some()
            {
                return Err(Error::new(
                    ErrorCode::MaxTimeMSExpired,
                    "operation exceeded time limit",
                ));
            }
            let is_endless = server.fail_points.acts(SwitchName::MaxTimeNeverTimeOut, "");
            if is_endless.is_some() {
                context.deadline = None;
            }
        }
        let statement = match (&common.transaction, common.session) {
            (Some(asked), Some(session)) => {
                let at = common.transaction_moment(server)?;
                let connection = client.connection;
                Some(Statement::begin(
                    server, connection, session, asked, at, &context,
                )?)
            }
            _ => None,
        };
        let moment = match statement {
            Some(_) => None,
            None => common.moment(server)?,
        };
        let is_noted =
            server.replication.is_some() && server.store.oplog().is_on() && writes(request);
        let noting = is_noted.then(|| {
            let (store, written) = server.store.noting_writes();
            client.state.written = Some(written);
            store
        });
        let mut cx = Context {
            noting,
            caller: &caller,
            needs,
            server,
            connection: client.connection,
            state: client.state,
            name: proper,
            db: request.db,
            body: request.body,
            sequences: request.sequences,
            session: common.session,
            txn_number: common.txn_number,
            statement,
            moment,
            write_concern: common.write_concern,
            limits: context,
            max_time: common.max_time,
            exhaust_allowed: request.exhaust_allowed,
            legacy: request.legacy,
            more_to_come: false,
        };
        // It may have waited, for a ticket or for documents.
        if let Err(failure) = cx.limits.check() {
            close_parked_cursor(server, cx.state.resumed.take());
            let failure = Error::from(failure);
            return Err(match cx.statement.take() {
                Some(statement) => statement.explain(failure),
                None => failure,
            });
        }
        let _writing = match waits_for_unlock(request) {
            true => Some(begin_write(&cx)?),
            false => None,
        };
        // A change of the catalog may have to undo what it did, which nothing must interrupt.
        let mut context = cx.limits.clone();
        // No function goes on for a client that is gone, also not one of a write.
        context.waiting = context.waiting.or_else(|| limits.waiting());
        let cluster_time = (server.replication.as_ref()).and_then(Replication::expression_time);
        let mut reply =
            scripted(
                &server.functions,
                request.db,
                context,
                cluster_time,
                || match traits.lane {
                    Some(Lane::Read | Lane::Write) => {
                        let interrupt = limits.interrupt(common.time_limit);
                        interrupt.run(|| command.run(&mut cx))
                    }
                    _ => command.run(&mut cx),
                },
            );
        if let Some(statement) = cx.statement.take() {
            reply = end_statement(statement, reply);
        }
        let mut reply = reply?;
        if common.waits_for_journal() && cx.state.park.is_none() {
            if !cx.legacy {
                cx.state.park = Some(Parked::Journal(JournalWait {
                    reply,
                    deadline: cx.limits.deadline,
                    failure: None,
                }));
                return Ok(DocBuf::new());
            }
            if let Err(failure) = server.store.flush_log() {
                push_journal_failure(&mut reply, failure.message());
            }
        }
        push_unsatisfied(&common, request, &mut reply);
        check_size(&reply)?;
        *more_to_come = cx.more_to_come;
        Ok(reply)
    })
}

/// The rules for the queries of a command: its query settings, and the parameter `notablescan`.
fn rules(server: &Server, request: &CommandRequest<'_>) -> Result<Option<Arc<PlanRules>>> {
    let (body, is_explained) = match request.body.first() {
        Some(("explain", Value::Document(inner))) => (inner, true),
        _ => (request.body, false),
    };
    let name = body.first().map_or("", |(name, _)| name);
    let rules = match name {
        "find" | "aggregate" | "distinct" => {
            (server.query_settings).rules(request.db, name, body, is_explained)?
        }
        _ => None,
    };
    if !server.no_collection_scans.load(Ordering::Relaxed) {
        return Ok(rules);
    }
    let rules = rules.map_or_else(PlanRules::default, |rules| PlanRules::clone(&rules));
    Ok(Some(Arc::new(PlanRules {
        no_collection_scans: true,
        ..rules
    })))
}

/// Whether a command waits while `fsync` holds its lock.
fn waits_for_unlock(request: &CommandRequest<'_>) -> bool {
    match request.body.first().map_or("", |(name, _)| name) {
        "abortTransaction" => false,
        "compact" => true,
        _ => writes(request),
    }
}

/// Waits until `fsync` holds no lock.
fn begin_write<'s>(cx: &Context<'s>) -> Result<RwLockReadGuard<'s, ()>> {
    let mut waits = false;
    let server = cx.server;
    let begun = server.fsync_lock.write(|| {
        if !waits {
            waits = true;
            cx.connection.running.lock().waits_for = Some(fsync_lock::WAIT);
            server.executor.pool.leave();
        }
        if cx.connection.gone.load(Ordering::Relaxed) {
            return Err(Error::new(
                ErrorCode::Interrupted,
                "the client has disconnected",
            ));
        }
        Ok(cx.limits.check()?)
    });
    if waits {
        cx.connection.running.lock().waits_for = None;
    }
    begun
}

/// Ends a statement. One that failed aborts its transaction.
fn end_statement(statement: Statement<'_>, outcome: Result<DocBuf>) -> Result<DocBuf> {
    match outcome {
        Ok(reply) => {
            statement.finish();
            Ok(reply)
        }
        // Dropping it aborts the transaction.
        Err(failure) => Err(statement.explain(failure)),
    }
}

/// Closes the cursor of a getMore that has waited and does not continue.
fn close_parked_cursor(server: &Server, parked: Option<Parked>) {
    if let Some(cursor) = parked.and_then(|parked| parked.cursor()) {
        server.cursors.kill(cursor);
    }
}

/// Closes the cursor in a reply that is not sent.
fn close_cursor(server: &Server, reply: &Doc) {
    let cursor = reply
        .get_doc("cursor")
        .and_then(|cursor| cursor.get_i64("id"));
    if let Some(id) = cursor.filter(|id| *id != 0) {
        server.cursors.kill(id);
    }
}

/// The reply of a write that has waited for the journal.
fn after_journal(waited: &mut JournalWait) -> DocBuf {
    let mut reply = std::mem::take(&mut waited.reply);
    if let Some(failure) = waited.failure.take() {
        push_journal_failure(&mut reply, failure.message());
    }
    reply
}

/// Adds `writeConcernError` to a reply. The write is applied and its statements are recorded by then: reported as
/// refused, it would be applied again.
fn push_journal_failure(reply: &mut DocBuf, failure: impl std::fmt::Display) {
    let code = ErrorCode::WriteConcernTimeout;
    let message = format!("the write is applied, but the journal is not synced yet: {failure}");
    reply.push(
        "writeConcernError",
        &doc! {"code": code.code(), "codeName": &*code.name(), "errmsg": message},
    );
}

/// Adds `writeConcernError` to the reply of an applied write whose write concern the replica set cannot satisfy.
fn push_unsatisfied(common: &Common, request: &CommandRequest<'_>, reply: &mut DocBuf) {
    let reach = common.write_concern.reach;
    let given = request.body.get_doc("writeConcern").unwrap_or(Doc::empty());
    let w = given.get("w").unwrap_or(Value::Null);
    let Some(error) = reach.error(&w) else {
        return;
    };
    if reply.contains_key("writeConcernError") {
        return;
    }
    let timeout = given.get("wtimeout").unwrap_or(Value::Int32(0));
    let concern = doc! {"w": w, "wtimeout": timeout, "provenance": "clientSupplied"};
    let code = error.code();
    reply.push(
        "writeConcernError",
        &doc! {
            "code": code.code(), "codeName": &*code.name(), "errmsg": error.message(),
            "errInfo": {"writeConcern": concern},
        },
    );
}

/// The lane whose ticket a command needs.
pub fn lane(name: &str, body: &[u8]) -> Option<Lane> {
    let (_, command) = commands::find(name)?;
    let lane = command.traits().lane;
    if matches!(name, "mapReduce" | "mapreduce") {
        // One that answers inline writes nothing.
        let is_inline = Doc::validate(body).is_ok_and(|body| {
            let out = body.get_doc("out");
            out.is_some_and(|out| out.contains_key("inline"))
        });
        return if is_inline { lane } else { Some(Lane::Write) };
    }
    if name != "aggregate" {
        return lane;
    }
    let body = Doc::validate(body);
    let Some(pipeline) = body
        .as_ref()
        .ok()
        .and_then(|body| body.get_array("pipeline"))
    else {
        return lane;
    };
    match commands::aggregate::reach(pipeline) {
        Reach::Written => Some(Lane::Write),
        Reach::Read => lane,
        Reach::Memory => None,
    }
}

/// Whether a command is a statement of a transaction, which does not wait for tickets that others hold.
pub fn is_statement(body: &[u8]) -> bool {
    Doc::validate(body).is_ok_and(transaction::is_statement)
}

/// Shows a command in `currentOp` that has to wait before it can run. Returns when its time is over.
pub fn announce(
    client: &mut Client<'_>,
    request: &CommandRequest<'_>,
    waits_for: &'static str,
) -> Option<Instant> {
    let (index, command) = commands::find(request.body.first()?.0)?;
    let proper = proper_name(command);
    let operation = Operation {
        traits: command.traits(),
        name: proper,
        kind: kind(proper),
        index,
        is_admitted: true,
    };
    operation.announce(client, request, waits_for);
    let caller = gate::caller(client);
    let common = Common::parse(client.server, command, request, &caller).ok()?;
    Instant::now().checked_add(common.time_limit?)
}

/// Refuses a reply that is larger than clients accept, with room for `ok`.
fn check_size(reply: &DocBuf) -> Result<()> {
    const OK_BYTES: usize = 64;
    let bytes = reply.len_bytes() + OK_BYTES;
    if bytes > REPLY_BYTES_MAX {
        return Err(reply_too_large(bytes));
    }
    Ok(())
}

/// Restarts the idle time of a session, without a look-up for each of its commands.
fn touch_session(client: &mut Client<'_>, session: SessionId) {
    let now = Instant::now();
    let fresh = client.state.session.is_some_and(|(last, touched)| {
        last == session && now.saturating_duration_since(touched) < Duration::from_secs(60)
    });
    if !fresh {
        client.server.sessions.touch(session);
        client.state.session = Some((session, now));
    }
}
