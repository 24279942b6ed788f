//! From a request to a command: the arguments that all commands share, and the record of each operation.

use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{Durability, OpContext, check_database_name};
use frond_wire::DocIter;

use crate::arguments::{Arguments, declines, name_bit, whole};
use crate::commands::{self, Command, Traits, proper_name};
use crate::concern::{WriteConcern, check_read_concern};
use crate::connection::{ClientState, Connection, short_command};
use crate::context::{Context, unsupported_option};
use crate::errors::{reply_too_large, truncated, write_error};
use crate::exec::Work;
use crate::fail_points::Effect;
use crate::limits::REPLY_BYTES_MAX;
use crate::log::{Component, Severity};
use crate::metrics::Class;
use crate::sessions::SessionId;
use crate::state::Server;

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
        let mut reply = DocBuf::new();
        write_error(&mut reply, &truncated(failure));
        Answer {
            reply,
            more_to_come: false,
            wait: None,
            close: false,
        }
    }
}

/// Runs a command. There is always a reply.
pub fn run_command(
    server: &Server,
    connection: &Connection,
    state: &mut ClientState,
    request: &CommandRequest<'_>,
) -> Answer {
    let effect = match state.resumed {
        // The fail point was checked before the command waited.
        Some(_) => Effect::default(),
        None => effect(server, connection, request).unwrap_or_default(),
    };
    if let Some(failure) = effect.failure().or_else(|| closing(&effect)) {
        return Answer {
            wait: effect.block,
            close: effect.close,
            ..Answer::failed(failure)
        };
    }
    let mut more_to_come = false;
    let mut wait = effect.block;
    match try_command(
        server,
        connection,
        state,
        request,
        &mut more_to_come,
        &mut wait,
    ) {
        Ok(mut reply) => {
            effect.add_to(&mut reply);
            reply.push("ok", 1.0);
            Answer {
                reply,
                more_to_come,
                wait,
                close: false,
            }
        }
        Err(failure) => Answer {
            wait: effect.block,
            ..Answer::failed(failure)
        },
    }
}

/// The effect of a fail point on this command.
fn effect(
    server: &Server,
    connection: &Connection,
    request: &CommandRequest<'_>,
) -> Option<Effect> {
    if !server.fail_points.is_on() {
        return None;
    }
    let (name, value) = request.body.first()?;
    // A fail point may name a command that does not exist.
    let proper = commands::find(name).map_or(name, |(_, command)| proper_name(command));
    // A handshake itself names the application.
    let client = request.body.get_doc("client");
    let application = connection
        .application()
        .or_else(|| client?.get_doc("application")?.get_str("name"));
    server.fail_points.of(&[proper, name], application, || {
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
    server: &Server,
    connection: &Connection,
    state: &mut ClientState,
    request: &CommandRequest<'_>,
    more_to_come: &mut bool,
    wait: &mut Option<Duration>,
) -> Result<DocBuf> {
    let name = request.body.first().map_or("", |(name, _)| name);
    let Some((at, command)) = commands::find(name) else {
        server.metrics.unknown_commands.add(1);
        let failure = Error::new(
            ErrorCode::CommandNotFound,
            match commands::absent::advice(name) {
                Some(advice) => format!("no such command: '{name}'; {advice}"),
                None => format!("no such command: '{name}'"),
            },
        );
        state.last_error.failed(failure.clone());
        return Err(failure);
    };
    let traits = command.traits();
    let proper = proper_name(command);
    if !traits.keeps_last_error {
        state.last_error.begin();
    }
    let common = Common::parse(server, command, request);
    let synced =
        matches!(&common, Ok(common) if common.write_concern.durability == Durability::Synced);
    let operation = Operation {
        traits,
        work: if synced && traits.writes {
            Work::Long
        } else {
            traits.work
        },
        name: proper,
        kind: kind(proper),
        at: Some(at),
    };
    observed(
        server,
        connection,
        state,
        &operation,
        request,
        |state, limits| {
            let common = common?;
            if common.help {
                return Ok(doc! {"help": command.doc()});
            }
            if let Some(session) = common.session {
                touch_session(server, state, session);
                connection.running.lock().session = Some(session);
            }
            let mut cx = Context {
                server,
                connection,
                state,
                name: proper,
                db: request.db,
                body: request.body,
                sequences: request.sequences,
                session: common.session,
                txn_number: common.txn_number,
                write_concern: common.write_concern,
                limits: limits.with_limit(common.max_time),
                max_time: common.max_time,
                exhaust_allowed: request.exhaust_allowed,
                legacy: request.legacy,
                more_to_come: false,
                wait: None,
            };
            let reply = command.run(&mut cx)?;
            check_size(&reply)?;
            *more_to_come = cx.more_to_come;
            *wait = (*wait).max(cx.wait);
            Ok(reply)
        },
    )
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

/// What is recorded about a command or a legacy operation.
pub struct Operation {
    /// How the dispatcher treats it.
    pub traits: Traits,
    /// How long it may keep its thread.
    pub work: Work,
    /// The proper name.
    pub name: &'static str,
    /// As [`kind`] returns it.
    pub kind: &'static str,
    /// Index in the table of commands.
    pub at: Option<usize>,
}

/// The kind of a command's operation, as `currentOp` names it.
fn kind(command: &str) -> &'static str {
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

/// Makes the limits of an operation that a connection begins.
pub struct Limits<'a>(&'a Connection);

impl Limits<'_> {
    /// Limits with this time, counted from now.
    pub fn with_limit(&self, time: Option<Duration>) -> OpContext {
        let mut context =
            OpContext::with_deadline(time.and_then(|time| Instant::now().checked_add(time)));
        context.killed = self.0.killed.clone();
        context
    }
}

/// Runs an operation that `currentOp` shows, `killOp` interrupts, `serverStatus` counts and the log reports if it is
/// slow.
pub fn observed<T>(
    server: &Server,
    connection: &Connection,
    state: &mut ClientState,
    operation: &Operation,
    request: &CommandRequest<'_>,
    run: impl FnOnce(&mut ClientState, Limits<'_>) -> Result<T>,
) -> Result<T> {
    let started = Instant::now();
    if state.resumed.is_none() {
        begin(server, connection, operation, request, started);
    } else {
        connection.running.lock().waits = false;
    }
    if operation.work == Work::Long {
        // So that other connections may run work meanwhile.
        state.permit = None;
    }
    let outcome = server
        .executor
        .run(operation.work, || run(state, Limits(connection)));
    if outcome.is_ok() && state.park.is_some() {
        // It continues later.
        connection.running.lock().waits = true;
        return outcome;
    }
    let took = started.elapsed();
    let outcome = outcome.map_err(|failure| match failure.code() {
        ErrorCode::Interrupted if server.is_stopping() => {
            Error::new(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown")
        }
        _ => truncated(failure),
    });
    if let Err(failure) = &outcome {
        count_failure(server, connection, operation, failure);
        if !operation.traits.keeps_last_error {
            state.last_error.failed(failure.clone());
        }
    }
    end(server, connection, operation, took);
    outcome
}

fn begin(
    server: &Server,
    connection: &Connection,
    operation: &Operation,
    request: &CommandRequest<'_>,
    started: Instant,
) {
    server
        .connections
        .active
        .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // A write counts its statements itself.
    if operation.traits.class != Class::Write {
        server.metrics.count(operation.traits.op, 1);
    }
    let mut running = connection.running.lock();
    running.active = true;
    running.id = server.connections.operation_id();
    running.started = Some(started);
    running.kind = operation.kind;
    running.writes = operation.traits.writes;
    running.waits = false;
    running.session = None;
    running.progress = None;
    running.keep_command(request.body);
    running.namespace.clear();
    running.namespace.push_str(request.db);
    running.namespace.push('.');
    let collection = match request.body.first() {
        Some((_, Value::String(collection))) if operation.traits.on_collection => collection,
        _ => request
            .body
            .get_str("collection")
            .filter(|_| operation.name == "getMore")
            .unwrap_or("$cmd"),
    };
    // A longer name is no collection's; only its start is kept.
    running
        .namespace
        .push_str(collection.get(..255).unwrap_or(collection));
    // Under the lock, so that a kill of the previous operation cannot interrupt this one.
    connection
        .killed
        .store(false, std::sync::atomic::Ordering::Relaxed);
}

/// Ends an operation that waited and does not continue.
pub fn abandon(server: &Server, connection: &Connection) {
    server
        .connections
        .active
        .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    connection.running.lock().active = false;
}

fn end(server: &Server, connection: &Connection, operation: &Operation, took: Duration) {
    server
        .connections
        .active
        .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    let traits = operation.traits;
    if let Some(count) = operation.at.and_then(|at| server.metrics.commands.get(at)) {
        count.total.add(1);
    }
    let slow = took >= server.slow_operation() && operation.work != Work::Instant;
    let mut running = connection.running.lock();
    running.active = false;
    let counted = traits.on_collection || operation.name == "getMore";
    let namespace = if counted {
        running.namespace.as_str()
    } else {
        ""
    };
    server
        .metrics
        .record(namespace, traits.op, traits.class, took);
    let attributes = slow.then(|| {
        doc! {
            // MongoDB names the kind only in lines of single statements, which this server does not write.
            "type": "command",
            "ns": &running.namespace,
            "appName": connection.application().unwrap_or(""),
            "command": short_command(&running.command_doc()),
            "durationMillis": i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
        }
    });
    running.forget_long_command();
    drop(running);
    if let Some(attributes) = attributes {
        server.metrics.slow_operations.add(1);
        server.log.info(
            Component::Command,
            51803,
            &connection.name,
            "Slow query",
            &attributes,
        );
    }
}

fn count_failure(server: &Server, connection: &Connection, operation: &Operation, failure: &Error) {
    if let Some(count) = operation.at.and_then(|at| server.metrics.commands.get(at)) {
        count.failed.add(1);
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
    } else {
        Severity::Debug(1)
    };
    if server.log.wants(severity) {
        let attributes = doc! {
            "command": operation.name,
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

/// Restarts the idle time of a session, without a look-up for each of its commands.
fn touch_session(server: &Server, state: &mut ClientState, session: SessionId) {
    let now = Instant::now();
    let fresh = state.session.is_some_and(|(last, touched)| {
        last == session && now.saturating_duration_since(touched) < Duration::from_secs(60)
    });
    if !fresh {
        server.sessions.touch(session);
        state.session = Some((session, now));
    }
}

/// Commands that may be sent again with the same `txnNumber`.
const RETRYABLE: &[&str] = &["insert", "update", "delete", "findAndModify", "bulkWrite"];

/// The arguments that all commands share.
struct Common {
    session: Option<SessionId>,
    txn_number: Option<i64>,
    write_concern: WriteConcern,
    max_time: Option<Duration>,
    help: bool,
}

impl Common {
    fn parse(
        server: &Server,
        command: &dyn Command,
        request: &CommandRequest<'_>,
    ) -> Result<Common> {
        let traits = command.traits();
        let name = proper_name(command);
        // Authentication by certificates and external systems names this database; `saslStart` explains why it fails.
        if request.db != "$external" || name != "saslStart" {
            check_database_name(request.db)?;
        }
        if traits.admin_only && request.db != "admin" {
            return Err(Error::new(
                ErrorCode::Unauthorized,
                format!("{name} may only be run against the admin database."),
            ));
        }
        let args = Arguments::new(name, request.body);
        let mut common = Common {
            session: None,
            txn_number: None,
            write_concern: WriteConcern::DEFAULT,
            max_time: None,
            help: false,
        };
        let (mut api_version, mut api_strict, mut api_details) = (None, false, false);
        let mut names = request
            .body
            .first()
            .map_or(0, |(name, _)| name_bit(name.as_bytes()));
        for (at, (field, value)) in request.body.iter().enumerate().skip(1) {
            let mut known = true;
            let bit = name_bit(field.as_bytes());
            let may_be_there = names & bit != 0;
            names |= bit;
            match field {
                "$db" | "comment" | "$clusterTime" => {}
                "lsid" => {
                    if let Some(lsid) = args.doc_field("lsid")? {
                        common.session = Some(SessionId::parse(lsid)?);
                    }
                }
                "txnNumber" => match value {
                    Value::Int64(n) if n >= 0 => common.txn_number = Some(n),
                    Value::Int64(_) => {
                        return Err(Error::new(
                            ErrorCode::InvalidOptions,
                            "Transaction number cannot be negative",
                        ));
                    }
                    other => return Err(args.wrong_type(field, &other, "type 'long'")),
                },
                // Tools match this text, so nothing is added.
                "startTransaction" | "autocommit" => {
                    return Err(Error::new(
                        ErrorCode::IllegalOperation,
                        "Transaction numbers are only allowed on a replica set member or mongos",
                    ));
                }
                "$readPreference" => check_read_preference(&args)?,
                "$queryOptions" => {
                    args.doc_field(field)?;
                }
                "readConcern" => {
                    if let Some(concern) = args.doc_field(field)? {
                        check_read_concern(concern)?;
                    }
                }
                "writeConcern" => {
                    if let Some(concern) = args.doc_field(field)? {
                        if !traits.writes && !command.fields().contains(&field) {
                            return Err(Error::new(
                                ErrorCode::InvalidOptions,
                                format!("Command {name} does not support writeConcern"),
                            ));
                        }
                        common.write_concern =
                            WriteConcern::parse(concern, server.settings.journal)?;
                    }
                }
                "maxTimeMS" => common.max_time = parse_max_time(field, &value)?,
                "apiVersion" => api_version = Some(value),
                "apiStrict" => {
                    api_strict = args.bool(field)?.unwrap_or(false);
                    api_details = true;
                }
                "apiDeprecationErrors" => {
                    args.bool(field)?;
                    api_details = true;
                }
                "help" if !command.fields().contains(&"help") => {
                    common.help = value.truthy();
                }
                _ => known = false,
            }
            if !known && !traits.takes_any_field && !command.fields().contains(&field) {
                if !command.unsupported_fields().contains(&field) {
                    return Err(args.unknown(field));
                }
                if !declines(&value) {
                    return Err(unsupported_option(name, field));
                }
            }
            if !traits.takes_any_field
                && may_be_there
                && request
                    .body
                    .iter()
                    .take(at)
                    .any(|(other, _)| other == field)
            {
                return Err(args.duplicate(field));
            }
        }
        for (field, _) in request.sequences {
            if !traits.takes_any_field && !command.fields().contains(field) {
                return Err(args.unknown(field));
            }
        }
        check_api(name, traits, api_version, api_strict, api_details)?;
        if common.txn_number.is_some() {
            if common.session.is_none() {
                return Err(Error::new(
                    ErrorCode::InvalidOptions,
                    "Transaction number requires a session ID to also be specified",
                ));
            }
            if !RETRYABLE.contains(&name) {
                return Err(Error::new(
                    ErrorCode::NotARetryableWriteCommand,
                    format!(
                        "txnNumber may only be provided for multi-document transactions and \
                         retryable write commands. autocommit:false was not provided, and {name} \
                         is not a retryable write command."
                    ),
                ));
            }
        }
        Ok(common)
    }
}

fn check_read_preference(args: &Arguments<'_>) -> Result<()> {
    const MODES: [&str; 5] = [
        "primary",
        "primaryPreferred",
        "secondary",
        "secondaryPreferred",
        "nearest",
    ];
    let Some(preference) = args.doc_field("$readPreference")? else {
        return Ok(());
    };
    match preference.get("mode") {
        Some(Value::String(mode)) if MODES.contains(&mode) => Ok(()),
        Some(Value::String(mode)) => Err(Error::new(
            ErrorCode::FailedToParse,
            format!("Could not parse $readPreference mode '{mode}'."),
        )),
        Some(other) => Err(Arguments::new("$readPreference", preference).wrong_type(
            "mode",
            &other,
            "type 'string'",
        )),
        None => Err(Arguments::new("$readPreference", preference).missing("mode")),
    }
}

/// A time limit in milliseconds; 0 is none.
pub fn parse_max_time(field: &str, value: &Value<'_>) -> Result<Option<Duration>> {
    if value.is_nullish() {
        return Ok(None);
    }
    if !value.is_number() {
        return Err(Error::bad_value(format!("{field} must be a number")));
    }
    let ms = whole(value);
    if value.as_f64().is_some_and(|n| n.fract() != 0.0) {
        return Err(Error::bad_value(format!("{field} has non-integral value")));
    }
    match u64::try_from(ms) {
        Ok(0) => Ok(None),
        Ok(n) if n <= i32::MAX as u64 => Ok(Some(Duration::from_millis(n))),
        _ => Err(Error::bad_value(format!(
            "{ms} value for {field} is out of range"
        ))),
    }
}

fn check_api(
    name: &str,
    traits: Traits,
    version: Option<Value<'_>>,
    strict: bool,
    details: bool,
) -> Result<()> {
    match version {
        None if details => Err(Error::new(
            ErrorCode::InvalidOptions,
            "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion",
        )),
        None => Ok(()),
        Some(Value::String("1")) if strict && !traits.stable_api => Err(Error::new(
            ErrorCode::APIStrictError,
            format!("Provided apiStrict:true, but the command {name} is not in API Version 1."),
        )),
        Some(Value::String("1")) => Ok(()),
        Some(_) => Err(Error::new(
            ErrorCode::APIVersionError,
            "API version must be \"1\"",
        )),
    }
}
