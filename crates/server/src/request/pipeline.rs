//! The way of a command from its request to its answer, as a fixed list of steps:
//!
//! 1. [`InFlight::begin`]: fail point, caller, admission, the fields that all commands share;
//! 2. [`InFlight::admit`]: a ticket, for which the command may wait without a thread;
//! 3. [`InFlight::run`]: authorization, session, transaction, time limit; then the command itself;
//! 4. [`InFlight::wait`] and [`InFlight::resume`], if the command waits without a thread. Of the steps before, only the ticket is
//!    taken and the authorization checked again;
//! 5. [`InFlight::conclude`]: the record of the operation, and the answer.
//!
//! A future that is dropped while it waits, because its client has disconnected, ends the record of its operation.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use frond_bson::{DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{OpContext, noting_changes, scripted, watch};
use parking_lot::RwLockReadGuard;

use super::answer::{
    Answer, add_times, at_shutdown, check_size, close_cursor, has_concern, label,
    push_concern_of_failure, push_unacknowledged, push_unsatisfied,
};
use super::armed::{apply_time_fail_points, closing, effect};
use super::limits::Limits;
use super::parse::{Known, Request};
use super::shared_fields::SharedFields;
use super::waits::{REPLIES_WAIT, interrupted, replies_read, until};
use super::{Stopping, audit, durability, gate, parsed_memory, record, tracing};
use crate::authorization::Caller;
use crate::client::Client;
use crate::commands;
use crate::connection::ClientState;
use crate::context::Context;
use crate::errors::truncated;
use crate::fail_points::Effect;
use crate::fsync_lock;
use crate::labels::{self, Part};
use crate::operation::{Exhaust, Operation};
use crate::outcome::{DurabilityWait, Outcome, Wait};
use crate::replication::Replication;
use crate::sessions::SessionId;
use crate::state::Server;
use crate::tail_throttle::TailPermit;
use crate::transactions::Statement;
use frond_runtime::{AdmissionClass, Owner, Ticket, set_held};

/// Runs a command to its answer. A failure is an answer, too.
///
/// # Errors
/// The server stops, and the command has not run.
pub async fn execute(
    client: &mut Client<'_>,
    request: &Request<'_>,
    exhaust: &mut Exhaust,
) -> std::result::Result<Answer, Stopping> {
    let mut command = match InFlight::begin(client, request, exhaust) {
        Ok(command) => command,
        Err(refused) => return Ok(*refused),
    };
    let ticket = command.admit().await?;
    let mut step = command.run(ticket);
    loop {
        match step {
            Step::Done(answer) => return Ok(answer),
            Step::Wait(Wait::Durability(wait)) => {
                let (server, connection) = (command.client.server, command.client.connection);
                let (outcome, failure, took) = durability::wait(server, connection, wait).await;
                command.operation.waited.journal += took;
                return Ok(command.after_durability(outcome, failure));
            }
            Step::Wait(mut wait) => {
                let turn = command.wait(&mut wait).await?;
                let ticket = command.admit().await?;
                step = command.resume(ticket, wait);
                drop(turn);
            }
        }
    }
}

/// The state of a command after a step.
pub enum Step {
    Done(Answer),
    /// It continues after a wait.
    Wait(Wait),
}

/// A command between its request and its answer.
pub struct InFlight<'c, 's, 'r> {
    client: &'c mut Client<'s>,
    request: &'r Request<'r>,
    known: Known,
    exhaust: &'c mut Exhaust,
    caller: Caller,
    is_admitted: bool,
    /// The fields that all commands share. The error of a request that is refused becomes its answer when it runs, so that it is
    /// recorded as any other operation.
    shared: Result<SharedFields>,
    /// The effect of a fail point on the reply.
    effect: Effect,
    operation: Operation,
    /// Whether `currentOp` shows the operation.
    is_shown: bool,
    /// The cursor of a getMore that has waited. It is closed if the command does not continue.
    waiting_cursor: Option<i64>,
}

impl Drop for InFlight<'_, '_, '_> {
    fn drop(&mut self) {
        if let Some(cursor) = self.waiting_cursor {
            self.client.server.clients.cursors.kill(cursor);
        }
        if self.is_shown {
            record::abandon(self.client);
        }
    }
}

impl<'c, 's, 'r> InFlight<'c, 's, 'r> {
    /// Begins a command.
    ///
    /// # Errors
    /// The answer of a command that a fail point ends, or that does not exist.
    pub fn begin(
        client: &'c mut Client<'s>,
        request: &'r Request<'r>,
        exhaust: &'c mut Exhaust,
    ) -> std::result::Result<InFlight<'c, 's, 'r>, Box<Answer>> {
        exhaust.more_to_come = false;
        let effect = effect(client, request).unwrap_or_default();
        if let Some(failure) = effect.failure().or_else(|| closing(&effect)) {
            // The fail point comes before the look-up of the cursor, so that a getMore is not known as one of a change stream.
            let label = |code| label(request, false, code);
            let mut answer = Answer {
                wait: effect.block,
                close: effect.close,
                ..Answer::labelled(failure, label, effect.labels.as_ref())
            };
            add_times(client.server, request, None, &mut answer.reply);
            return Err(Box::new(answer));
        }
        let Some(known) = request.known else {
            return Err(Box::new(unknown_command(client, request, &effect)));
        };
        if !known.spec.keeps_last_error {
            client.state.last_error.begin();
        }
        let (caller, current) = match gate::current_caller(client) {
            Ok(caller) => (caller, Ok(())),
            Err(failure) => (gate::caller(client), Err(failure)),
        };
        let admitted = current.and_then(|()| gate::admit(client, &caller, &known));
        let is_admitted = admitted.is_ok();
        let shared =
            admitted.and_then(|()| SharedFields::parse(client.server, &known, request, &caller));
        let spare = client.state.spare_figures.take();
        Ok(InFlight {
            client,
            request,
            known,
            exhaust,
            caller,
            is_admitted,
            shared,
            effect,
            operation: Operation::new(request.is_acknowledged, spare),
            is_shown: false,
            waiting_cursor: None,
        })
    }

    /// Takes a ticket, if the command needs one. None also if the operation was interrupted or its time is over while it waited:
    /// the command then fails at once.
    ///
    /// # Errors
    /// The server stops.
    pub async fn admit(&mut self) -> std::result::Result<Option<Ticket<'s>>, Stopping> {
        self.reach().await;
        // A request that is refused needs no ticket.
        let Some(mut admission) = self.request.admission.filter(|_| self.shared.is_ok()) else {
            return Ok(None);
        };
        let server = self.client.server;
        if admission == AdmissionClass::Read && server.execution.quotas.replies.is_exceeded() {
            self.await_readers().await?;
        }
        let executor = &server.execution.executor;
        let owner = owner(server, self.client.state);
        if let Some(ticket) = executor.try_ticket(admission, owner) {
            return Ok(Some(ticket));
        }
        // Writers may hold all tickets and wait for open transactions, so the statements of transactions have tickets of
        // their own.
        if self.request.is_statement() {
            admission = AdmissionClass::Transaction;
            if let Some(ticket) = executor.try_ticket(admission, owner) {
                return Ok(Some(ticket));
            }
        } else if self.request.finds_by_id()
            && let Some(ticket) = executor.try_ticket(AdmissionClass::Lookup, owner)
        {
            return Ok(Some(ticket));
        }
        let owner = owner.clone();
        let has_begun = self.is_shown;
        self.show();
        record::suspend(self.client, &mut self.operation, admission.ticket_name());
        // The time limit of a getMore is that of its cursor.
        let limit = self
            .shared
            .as_ref()
            .ok()
            .and_then(|shared| shared.time_limit);
        let deadline = limit.and_then(|limit| self.operation.started.checked_add(limit));
        let began = Instant::now();
        let ticket = async {
            tokio::select! {
                biased;
                ticket = executor.ticket(admission, &owner) => Some(ticket),
                () = interrupted(self.client.connection) => None,
                () = until(deadline.filter(|_| !has_begun)) => None,
            }
        };
        // A client that asks for no reply may disconnect at once and have the write done.
        let ticket = if self.operation.is_acknowledged {
            unless_stopped(server, ticket).await
        } else {
            Ok(ticket.await)
        };
        let took = began.elapsed();
        let [reads, writes] = &server.metrics.ticket_waits;
        let waits = if admission == AdmissionClass::Read {
            reads
        } else {
            writes
        };
        waits.record(took);
        self.operation.waited.ticket += took;
        ticket
    }

    /// Waits until clients have read more of their replies.
    async fn await_readers(&mut self) -> std::result::Result<(), Stopping> {
        let (server, connection) = (self.client.server, self.client.connection);
        self.show();
        record::suspend(self.client, &mut self.operation, REPLIES_WAIT);
        let limit = self
            .shared
            .as_ref()
            .ok()
            .and_then(|shared| shared.time_limit);
        let deadline = limit.and_then(|limit| self.operation.started.checked_add(limit));
        let quota = &server.execution.quotas.replies;
        unless_stopped(server, replies_read(quota, connection, deadline)).await
    }

    /// Waits until this server has what the read is to see.
    async fn reach(&mut self) {
        let (server, connection) = (self.client.server, self.client.connection);
        let Some(set) = &server.set.replication else {
            return;
        };
        let Ok(shared) = &mut self.shared else {
            return;
        };
        let Some((field, time)) = shared.reaches.take() else {
            return;
        };
        let deadline = shared
            .time_limit
            .and_then(|limit| self.operation.started.checked_add(limit));
        let failure = tokio::select! {
            reached = set.reached(field, time) => reached.err(),
            () = interrupted(connection) => None,
            () = until(deadline) => {
                Some(Error::new(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"))
            }
        };
        if let Some(failure) = failure {
            self.shared = Err(failure);
        }
    }

    /// Runs the command to its end, or until it waits.
    pub fn run(&mut self, ticket: Option<Ticket<'_>>) -> Step {
        self.work(ticket, None)
    }

    /// Waits without a thread. Returns the turn of a reader that follows the end of a collection.
    ///
    /// # Errors
    /// The server stops.
    pub async fn wait(
        &mut self,
        wait: &mut Wait,
    ) -> std::result::Result<Option<TailPermit<'s>>, Stopping> {
        let (server, wake) = (self.client.server, &self.client.connection.wake);
        let waited = async {
            match wait {
                Wait::Tail(tail) => {
                    tail.wait(wake, &server.execution.tail_throttle, &server.metrics)
                        .await
                }
                Wait::Pause(pause) => {
                    pause.wait(wake).await;
                    None
                }
                Wait::Topology(topology) => {
                    topology.wait(wake).await;
                    None
                }
                // It does not come here: see `execute`.
                Wait::Durability(_) => None,
            }
        };
        unless_stopped(server, waited).await
    }

    /// Continues the command after a wait. Its caller may have lost privileges meanwhile.
    pub fn resume(&mut self, ticket: Option<Ticket<'_>>, wait: Wait) -> Step {
        match gate::current_caller(self.client) {
            Ok(caller) => self.caller = caller,
            Err(failure) => self.shared = Err(failure),
        }
        // The time of a getMore begins when there is something to do.
        self.operation.started = Instant::now();
        self.work(ticket, Some(wait))
    }

    /// Ends a command whose outcome has waited. `failure` is the reason why what it is about may not be durable.
    pub fn after_durability(&mut self, outcome: Result<DocBuf>, failure: Option<Error>) -> Answer {
        let mut reply = match outcome {
            Ok(reply) => reply,
            Err(outcome) => return self.fail(outcome, failure),
        };
        if let Some(failure) = failure {
            let failure = at_shutdown(self.client.server, failure);
            if let Some(reply) = self.known.command.unacknowledged(&reply, &failure) {
                return self.conclude(Ok(reply));
            }
            let part = Part::from_command(self.request.body);
            // A read must not return what may be lost. Of a statement of a transaction nothing is written before the commit, so it
            // has failed as a whole.
            let is_statement = matches!(part, Part::Statement);
            if self.request.admission == Some(AdmissionClass::Read) || is_statement {
                close_cursor(self.client.server, &reply);
                let failure = match failure.code() {
                    ErrorCode::PrimarySteppedDown => frond_replset::interrupted(),
                    _ => failure,
                };
                return self.conclude(Err(failure));
            }
            if let Ok(shared) = &self.shared {
                push_unacknowledged(
                    self.client.server,
                    shared,
                    self.request,
                    &mut reply,
                    &failure,
                );
            }
            let code = match failure.code() {
                ErrorCode::PrimarySteppedDown | ErrorCode::InterruptedAtShutdown => failure.code(),
                _ => ErrorCode::WriteConcernTimeout,
            };
            let label = part.label(None, Some(code));
            if !reply.contains_key("errorLabels") {
                labels::write(&mut reply, None, label);
            }
        }
        if let Ok(shared) = &self.shared {
            push_unsatisfied(self.client.server, shared, self.request, &mut reply);
        }
        self.conclude(Ok(reply))
    }

    /// Ends a command that has failed. `unacknowledged` is the reason why what it has found may be lost.
    fn fail(&mut self, failure: Error, unacknowledged: Option<Error>) -> Answer {
        let code = failure.code();
        let mut answer = self.conclude(Err(failure));
        if let Ok(shared) = &self.shared {
            let unacknowledged = unacknowledged.map(|error| at_shutdown(self.client.server, error));
            push_concern_of_failure(
                self.client.server,
                shared,
                self.request,
                &mut answer.reply,
                code,
                unacknowledged,
            );
        }
        answer
    }

    /// Shows the operation in `currentOp`.
    fn show(&mut self) {
        if !std::mem::replace(&mut self.is_shown, true) {
            record::begin(
                self.client,
                self.request,
                &self.known,
                &mut self.operation,
                self.is_admitted,
            );
        }
    }

    /// Runs the command, or continues it after a wait.
    fn work(&mut self, ticket: Option<Ticket<'_>>, after: Option<Wait>) -> Step {
        self.show();
        self.client.connection.running.lock().waits_for = None;
        record::prepare(self.client, self.request, &self.known, &mut self.operation);
        let held = ticket.as_ref().map(Ticket::held);
        self.operation.permits.ticket = held;
        set_held(held);
        let executor = &self.client.server.execution.executor;
        let mut op_stats = self.operation.op_stats.take();
        let outcome = watch(&mut op_stats, || {
            executor.run(self.known.spec.work, || self.call(after))
        });
        self.operation.op_stats = op_stats;
        let step = match outcome {
            Ok(Outcome::Wait(wait)) => {
                self.waiting_cursor = wait.cursor();
                record::suspend(self.client, &mut self.operation, wait.description());
                Step::Wait(wait)
            }
            Ok(Outcome::Reply(reply)) => Step::Done(self.conclude(Ok(reply))),
            Err(failure) => Step::Done(self.fail(failure, None)),
        };
        set_held(None);
        self.operation.permits.ticket = None;
        drop(ticket);
        step
    }

    /// Checks that the caller may run the command, prepares what the command works with, and runs it.
    fn call(&mut self, after: Option<Wait>) -> Result<Outcome> {
        let InFlight {
            client,
            request,
            known,
            exhaust,
            caller,
            shared,
            operation,
            waiting_cursor,
            ..
        } = self;
        let server = client.server;
        let shared = (shared.as_ref())
            .map_err(|failure| gate::explain(client, caller, known, request, failure))?;
        let limits = Limits::new(client.connection, operation);
        let mut context = limits.with_limit(shared.time_limit);
        let needs = gate::check(client, caller, known, request)?;
        let (mut statement, mut point_in_time, mut noting) = (None, None, None);
        if after.is_none() && shared.help {
            return Ok(Outcome::Reply(doc! {"help": known.spec.doc}));
        }
        let audited = audit::begin(client, caller, known, request, after.is_some())?;
        if after.is_none() {
            if let Some(session) = shared.session {
                touch_session(client, session);
                client.connection.running.lock().session = Some(session);
            }
            apply_time_fail_points(server, shared, &mut context)?;
            context.rules = super::rules::rules(server, request)?;
            statement = begin_statement(client, shared, &context)?;
            if statement.is_none() {
                point_in_time = shared.point_in_time(server)?;
            }
            if server.set.replication.is_some() && server.store.oplog().is_on() && request.writes()
            {
                let (store, written) = server.store.noting_writes();
                operation.written = Some(written);
                noting = Some(store);
            }
        }
        // It may have waited, for a ticket or for documents.
        let checked = context.check().map_err(Error::from);
        let parsed = checked.and_then(|()| match after {
            None => parsed_memory::reserve(server, request, &context),
            Some(_) => Ok(operation.permits.parsed.take()),
        });
        match parsed {
            Ok(parsed) => operation.permits.parsed = parsed,
            Err(failure) => {
                return Err(match statement {
                    Some(statement) => statement.explain(failure),
                    None => failure,
                });
            }
        }
        *waiting_cursor = None;
        if known.spec.admission == Some(AdmissionClass::Read) {
            context.waiting = limits.waiting();
            // Others may wait for what a transaction holds.
            let is_alone = statement.is_none();
            context.others_first = is_alone.then(|| server.execution.others_first.clone());
        }
        let mut cx = Context {
            noting,
            caller,
            needs,
            server,
            connection: client.connection,
            state: client.state,
            operation,
            name: known.name(),
            db: request.db,
            body: request.body,
            sequences: &request.sequences,
            session: shared.session,
            txn_number: shared.txn_number,
            statement,
            point_in_time,
            write_concern: shared.write_concern.clone(),
            limits: context,
            max_time: shared.max_time,
            exhaust,
            legacy: request.legacy,
        };
        let run = || run_in(&mut cx, &limits, known, shared, after, request);
        let (outcome, changes) = match &audited {
            Some(_) => noting_changes(run),
            None => (run(), Vec::new()),
        };
        let outcome = match cx.statement.take() {
            Some(statement) => end_statement(server, statement, outcome),
            None => outcome,
        };
        let outcome = match audited {
            Some(audited) => audited.end(outcome, &changes, request),
            None => outcome,
        };
        let outcome = match outcome {
            Ok(Outcome::Reply(reply)) => Ok(reply),
            Ok(wait) => return Ok(wait),
            Err(failure) if has_concern(shared, request, failure.code()) => Err(failure),
            Err(failure) => return Err(failure),
        };
        if let Some(until) = shared.acknowledgment(server, request) {
            return Ok(Outcome::Wait(Wait::Durability(DurabilityWait {
                outcome,
                until,
                timeout: shared.write_concern.timeout,
                deadline: cx.limits.deadline,
            })));
        }
        let mut reply = outcome?;
        push_unsatisfied(server, shared, request, &mut reply);
        check_size(&reply)?;
        Ok(Outcome::Reply(reply))
    }

    /// Ends the record of the operation, and makes the answer. A member of a replica set adds its times.
    fn conclude(&mut self, outcome: Result<DocBuf>) -> Answer {
        let InFlight {
            client,
            request,
            known,
            operation,
            effect,
            ..
        } = self;
        let server = client.server;
        let outcome = outcome.map_err(|failure| truncated(at_shutdown(server, failure)));
        if let Err(failure) = &outcome {
            record::count_failure(client, known, failure);
            audit::refused(client, known, request, failure);
            if !known.spec.keeps_last_error {
                client.state.last_error.failed(failure.clone());
            }
        }
        let took = operation.started.elapsed();
        tracing::record(client, request, known.name(), took, outcome.as_ref().err());
        self.is_shown = false;
        let shown = outcome.as_ref().map(|reply| &**reply);
        record::end(client, request, known, operation, shown);
        let close = server.execution.fail_points.is_on()
            && client.connection.closes.swap(false, Ordering::Relaxed);
        // A hello succeeds also if the login in it has failed.
        let wait = effect.block.max(client.state.login.delay.take());
        let mut answer = match outcome {
            Ok(mut reply) => {
                if let Some(code) = effect.add_to(&mut reply) {
                    let label = Part::from_command(request.body).label(None, Some(code));
                    labels::write(&mut reply, effect.labels.as_ref(), label);
                }
                reply.push("ok", 1.0);
                Answer {
                    reply,
                    more_to_come: self.exhaust.more_to_come,
                    ..Answer::default()
                }
            }
            Err(failure) => {
                let label = |code| label(request, operation.reads_change_stream, code);
                Answer::labelled(failure, label, None)
            }
        };
        add_times(server, request, Some(operation), &mut answer.reply);
        answer.close = close;
        answer.wait = wait;
        answer.has_secrets = operation.has_secrets;
        answer.permit = operation.permits.reply.take();
        answer
    }
}

/// Runs a command in its context, or continues it after a wait.
fn run_in(
    cx: &mut Context<'_>,
    limits: &Limits<'_>,
    known: &Known,
    shared: &SharedFields,
    after: Option<Wait>,
    request: &Request<'_>,
) -> Result<Outcome> {
    let server = cx.server;
    let _writing = if waits_for_unlock(request) {
        Some(begin_write(cx)?)
    } else {
        None
    };
    // A function ends with its client, also one of a write. A change of the catalog does not: it may have to undo a part of
    // its work, and must not be interrupted then.
    let mut context = cx.limits.clone();
    context.waiting = context.waiting.or_else(|| limits.waiting());
    let cluster_time = (server.set.replication.as_ref()).and_then(Replication::expression_time);
    let run = || match after {
        None => known.command.start(cx),
        Some(wait) => known.command.resume(cx, wait),
    };
    scripted(
        &server.execution.functions,
        request.db,
        context,
        cluster_time,
        || {
            let only_schema = !matches!(
                known.spec.admission,
                Some(AdmissionClass::Read | AdmissionClass::Write)
            );
            limits.interrupt(shared.time_limit, only_schema).run(run)
        },
    )
}

/// Begins the statement of a transaction that the command is.
fn begin_statement<'s>(
    client: &Client<'s>,
    shared: &SharedFields,
    limits: &OpContext,
) -> Result<Option<Statement<'s>>> {
    let (Some(wanted), Some(session)) = (&shared.transaction, shared.session) else {
        return Ok(None);
    };
    let (server, connection) = (client.server, client.connection);
    let at = shared.transaction_moment(server)?;
    Statement::begin(server, connection, session, wanted, at, limits).map(Some)
}

/// Ends a statement. One that failed aborts its transaction.
fn end_statement(
    server: &Server,
    statement: Statement<'_>,
    outcome: Result<Outcome>,
) -> Result<Outcome> {
    match outcome {
        Ok(mut outcome) => {
            statement.finish();
            // A driver sends it with the commit, which any server can answer.
            if server.store.is_shared()
                && let Outcome::Reply(reply) = &mut outcome
            {
                reply.push("recoveryToken", &doc! {"recoveryShardId": "tikv"});
            }
            Ok(outcome)
        }
        // Dropping it aborts the transaction.
        Err(failure) => Err(statement.explain(failure)),
    }
}

/// The answer to a command that does not exist.
fn unknown_command(client: &mut Client<'_>, request: &Request<'_>, effect: &Effect) -> Answer {
    let name = request.name;
    client.server.metrics.unknown_commands.add(1);
    let message = match commands::absent::advice(name) {
        Some(advice) => format!("no such command: '{name}'; {advice}"),
        None => format!("no such command: '{name}'"),
    };
    let failure = Error::new(ErrorCode::CommandNotFound, message);
    client.state.last_error.failed(failure.clone());
    let mut answer = Answer::labelled(failure, |code| label(request, false, code), None);
    add_times(client.server, request, None, &mut answer.reply);
    answer.wait = effect.block;
    // It may be a command of another version that has a password, such as `copydbsaslstart`.
    answer.has_secrets = true;
    answer
}

/// Whether a command waits while `fsync` holds its lock.
fn waits_for_unlock(request: &Request<'_>) -> bool {
    match request.name {
        "abortTransaction" => false,
        "compact" => true,
        _ => request.writes(),
    }
}

/// Waits until `fsync` holds no lock.
fn begin_write<'s>(cx: &Context<'s>) -> Result<RwLockReadGuard<'s, ()>> {
    let mut waits = false;
    let server = cx.server;
    let begun = server.maintenance.fsync_lock.write(|| {
        if !waits {
            waits = true;
            cx.connection.running.lock().waits_for = Some(fsync_lock::WAIT);
            server.execution.executor.pool.leave();
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

/// Restarts the idle time of a session, without a look-up for each of its commands.
fn touch_session(client: &mut Client<'_>, session: SessionId) {
    let now = Instant::now();
    let fresh = client.state.session.is_some_and(|(last, touched)| {
        last == session && now.saturating_duration_since(touched) < Duration::from_secs(60)
    });
    if !fresh {
        client.server.clients.sessions.touch(session);
        client.state.session = Some((session, now));
    }
}

/// The tickets of the user of a connection.
fn owner<'o>(server: &Server, state: &'o mut ClientState) -> &'o Owner {
    match (&state.identity, &state.tickets) {
        (None, None) => {}
        (Some(user), Some(tickets)) if user.name == *tickets.name() => {}
        (None, Some(_)) => state.tickets = None,
        (Some(user), _) => {
            state.tickets = Some(Arc::new(server.execution.executor.user(&user.name)));
        }
    }
    &state.tickets
}

/// Waits for something, unless the server stops.
async fn unless_stopped<T>(
    server: &Server,
    wait: impl Future<Output = T>,
) -> std::result::Result<T, Stopping> {
    let mut stop = server.stop_signal();
    tokio::select! {
        biased;
        done = wait => Ok(done),
        // The sender lives as long as the server.
        _ = stop.wait_for(|stop| *stop) => Err(Stopping),
    }
}
