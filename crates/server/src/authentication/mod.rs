//! Logins: who a connection acts for.
//!
//! A connection has one user at most, as in MongoDB since 6.0: logging in again as the same user is accepted, as another
//! one refused until the first logged out. Every failed login gets the same answer, later the more often it happens; the
//! log says why it failed.

mod mechanisms;
mod mongo_cr;
mod sasl;
#[cfg(test)]
mod tests;
mod x509;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use frond_auth::{Ends, LoginMechanism, UserName};
use frond_bson::{DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};

pub use mechanisms::supported_mechanisms;
pub use mongo_cr::{get_nonce, log_in_by_cr};
pub use sasl::{sasl_continue, sasl_start};
pub use x509::log_in_by_certificate;

use crate::access::{User, restrictions_allow};
use crate::arguments::Arguments;
use crate::audit::{self, Actor, When};
use crate::connection::{ClientState, Connection, Peer};
use crate::context::Context;
use crate::logins::Attempt;
use crate::observability::log::Component;
use crate::state::Server;

/// The result of a login that was begun and not continued, in the audit log.
const AUTHENTICATION_ABANDONED: i32 = 337;

/// Characters of the name of a user, and of the reason of a failure, that the log shows.
const LOGGED_CHARS_MAX: usize = 256;

/// The user that is logged in, with its present privileges. A user who was dropped, or whose restrictions the connection no longer
/// meets, is logged out.
///
/// # Errors
/// If the user has changed and cannot be read. The command must not run then.
pub fn current_user(
    server: &Server,
    connection: &Connection,
    state: &mut ClientState,
) -> Result<Option<Arc<User>>> {
    let Some(known) = &state.identity else {
        return Ok(None);
    };
    if known.generation == server.clients.access.generation() {
        return Ok(Some(known.clone()));
    }
    let found = server.clients.access.find(&known.name)?;
    let why = match &found {
        Some(user) if user.id != known.id => "the user was dropped and created again",
        Some(user) if !restrictions_allow(user, &ends(connection)) => {
            "the connection does not meet the restrictions of the user"
        }
        Some(user) => {
            set_identity(connection, state, Some(user.clone()));
            return Ok(found);
        }
        None => "the user was dropped",
    };
    server.log.info(
        Component::Access,
        20245,
        &connection.name,
        "Removed deleted user from session cache of user information",
        &doc! {"user": name_doc(&known.name), "reason": why},
    );
    set_identity(connection, state, None);
    Ok(None)
}

/// Records a login that was begun and is not continued.
pub fn abandoned(server: &Server, connection: &Connection, state: &mut ClientState) {
    let pending = state.login.pending.take();
    // A driver that has guessed the mechanism begins with the right one.
    let pending = pending.filter(|pending| !pending.attempt.speculative);
    if let (Some(audit), Some(pending)) = (&server.audit, pending) {
        let user = shortened_name(&pending.attempt.user);
        let param = audit::of_login(&user, pending.attempt.mechanism.name());
        let actor = Actor::Client(connection, state.identity.as_deref());
        let code = AUTHENTICATION_ABANDONED;
        // Nothing is refused by it; `record` counts and logs an event that cannot be written.
        let _ = audit.record(actor, "authenticate", &param, code, When::After);
    }
}

/// Ends the login of a connection.
pub fn log_out(connection: &Connection, state: &mut ClientState) {
    set_identity(connection, state, None);
}

fn set_identity(connection: &Connection, state: &mut ClientState, user: Option<Arc<User>>) {
    connection.identity.lock().clone_from(&user);
    state.identity = user;
}

/// The addresses of a connection, for restrictions.
fn ends(connection: &Connection) -> Ends {
    let mapped = |ip: IpAddr| ip.to_canonical();
    Ends {
        client: match &connection.peer {
            Peer::Tcp(address) => Some(mapped(address.ip())),
            Peer::Unix => None,
        },
        server: connection.local_ip.get().copied().map(mapped),
    }
}

fn name_doc(name: &UserName) -> DocBuf {
    doc! {"user": &*name.name, "db": &*name.db}
}

fn begin(
    cx: &mut Context<'_>,
    mechanism: LoginMechanism,
    user: UserName,
    speculative: bool,
) -> Attempt {
    let began = Instant::now();
    cx.server
        .clients
        .logins
        .counters
        .begun(mechanism, speculative);
    cx.state.login.begin(began);
    Attempt {
        mechanism,
        user,
        speculative,
        began,
    }
}

/// A login fails. The reply has no further details.
fn fail(cx: &mut Context<'_>, attempt: &Attempt, why: &str) -> Error {
    let server = cx.server;
    let mut attributes = attributes(cx.connection, attempt);
    let why = format!("AuthenticationFailed: {why}");
    attributes.push("error", shortened(&why));
    attributes.push("result", ErrorCode::AuthenticationFailed.code());
    server.log.info(
        Component::Access,
        5_286_307,
        &cx.connection.name,
        "Failed to authenticate",
        &attributes,
    );
    if let Some(audit) = &server.audit {
        let user = shortened_name(&attempt.user);
        let param = audit::of_login(&user, attempt.mechanism.name());
        let actor = Actor::Client(cx.connection, cx.state.identity.as_deref());
        let code = ErrorCode::AuthenticationFailed.code();
        // The login has failed in any case; `record` counts and logs an event that cannot be written.
        let _ = audit.record(actor, "authenticate", &param, code, When::After);
    }
    server.clients.logins.counters.failed();
    let delay = server.settings.logins.failed_delay;
    if attempt.speculative && cx.name == "hello" {
        cx.state.login.speculation_failed(delay)
    } else {
        cx.state.login.failed(delay)
    }
    authentication_failed()
}

/// The answer to every login that fails.
fn authentication_failed() -> Error {
    Error::new(ErrorCode::AuthenticationFailed, "Authentication failed.")
}

/// A user has proved who it is. It is logged in, if it may be over this connection. `id` is the `userId` of the document that
/// its credential is from.
fn succeed(cx: &mut Context<'_>, attempt: &Attempt, id: Option<[u8; 16]>) -> Result<()> {
    let server = cx.server;
    let user = match server.clients.access.find(&attempt.user) {
        Ok(Some(user)) if user.id == id => user,
        Ok(_) => return Err(fail(cx, attempt, "the user was dropped meanwhile")),
        Err(error) => return Err(fail(cx, attempt, error.message())),
    };
    if !restrictions_allow(&user, &ends(cx.connection)) {
        let why = "the connection does not meet the authentication restrictions of the user";
        return Err(fail(cx, attempt, why));
    }
    if let Some(previous) = current_user(server, cx.connection, cx.state)?
        && let Err(refused) = check_same_user(cx, &previous.name, &user.name)
    {
        // The client has proved the password, so the reply may give the reason.
        fail(cx, attempt, refused.message());
        return Err(refused);
    }
    if let Some(audit) = &server.audit {
        let param = audit::of_login(&attempt.user, attempt.mechanism.name());
        let actor = Actor::Client(cx.connection, Some(&user));
        let recorded = audit.record(actor, "authenticate", &param, 0, When::Before);
        if let Err(refused) = recorded {
            server.clients.logins.counters.failed();
            return Err(refused);
        }
    }
    set_identity(cx.connection, cx.state, Some(user.clone()));
    cx.state.login.succeeded();
    let took = attempt.began.elapsed();
    let counters = &server.clients.logins.counters;
    counters.succeeded(attempt.mechanism, attempt.speculative, took);
    if !server.settings.quiet {
        let mut attributes = attributes(cx.connection, attempt);
        attributes.push("result", 0);
        let micros = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
        attributes.push(
            "metrics",
            &doc! {"conversation_duration": {"micros": micros}},
        );
        server.log.info(
            Component::Access,
            5_286_306,
            &cx.connection.name,
            "Successfully authenticated",
            &attributes,
        );
    }
    Ok(())
}

/// Refuses a second user of a connection.
fn check_same_user(cx: &mut Context<'_>, previous: &UserName, user: &UserName) -> Result<()> {
    let once = "Each client connection may only be authenticated once";
    let failure = if previous == user {
        if !cx.args().flag("apiStrict")?.unwrap_or(false) {
            cx.server.log.warning(
                Component::Access,
                5_626_700,
                &cx.connection.name,
                "Client has attempted to reauthenticate as a single user",
                &doc! {"user": name_doc(user)},
            );
            return Ok(());
        }
        Error::location(5_626_703, once)
    } else if previous.db == user.db {
        let message = format!("{once}. Previously authenticated as: {previous}");
        Error::location(5_626_701, message)
    } else {
        let message = format!(
            "Client has attempted to authenticate on multiple databases. Already authenticated as: {previous}; log out \
             first, or use another connection"
        );
        Error::location(5_626_702, message)
    };
    Err(failure)
}

/// The attributes of a login's log line.
fn attributes(connection: &Connection, attempt: &Attempt) -> DocBuf {
    doc! {
        "client": connection.peer.to_string(),
        "isSpeculative": attempt.speculative,
        "isClusterMember": attempt.user == UserName::system(),
        "mechanism": attempt.mechanism.name(),
        "user": shortened(&attempt.user.name),
        "db": shortened(&attempt.user.db),
    }
}

/// The beginning of a text that a client without a login has sent. The log must not grow by all of it.
fn shortened(text: &str) -> &str {
    match text.char_indices().nth(LOGGED_CHARS_MAX) {
        Some((end, _)) => text.get(..end).unwrap_or_default(),
        None => text,
    }
}

/// The same of the name of a user.
fn shortened_name(user: &UserName) -> UserName {
    UserName::new(shortened(&user.name), shortened(&user.db))
}

/// The mechanism that a command names, if it is enabled.
fn enabled_mechanism(server: &Server, args: &Arguments<'_>) -> Result<LoginMechanism> {
    let name = args.str("mechanism")?;
    let name = name.ok_or_else(|| args.missing("mechanism"))?;
    LoginMechanism::named(name)
        .filter(|mechanism| server.clients.logins.allows(*mechanism))
        .ok_or_else(|| unavailable(server, name))
}

/// The error for a mechanism that is not enabled.
fn unavailable(server: &Server, name: &str) -> Error {
    let enabled = server.clients.logins.mechanisms().iter();
    let enabled: Vec<&str> = enabled.map(|mechanism| mechanism.name()).collect();
    Error::new(
        ErrorCode::MechanismUnavailable,
        format!(
            "Received authentication for mechanism {name} which is unknown or not enabled; enabled are: {} (parameter \
             authenticationMechanisms)",
            enabled.join(", ")
        ),
    )
}
