//! The gate: whether a client may run a command.

use frond_bson::{Doc, doc};
use frond_error::{Error, ErrorCode, Result};

use super::audit::checked_query;
use super::parse::{Known, Request};
use super::secrets::secrets;
use crate::authentication::current_user;
use crate::authorization::{Caller, Needs, Requested};
use crate::client::Client;
use crate::commands::requires_login;
use crate::observability::log::Component;
use crate::shown_command::{short_command, without_secrets};

/// The caller of a command, with the user as of the last check.
pub fn caller(client: &Client<'_>) -> Caller {
    let user = client.state.identity.clone();
    Caller::new(client.server, client.connection, user)
}

/// The caller of a command, with the user as it is now.
///
/// # Errors
/// If the user has changed and cannot be read: the command must not run.
pub fn current_caller(client: &mut Client<'_>) -> Result<Caller> {
    current_user(client.server, client.connection, client.state)?;
    Ok(caller(client))
}

/// Refuses a command of a client that is not logged in, whatever its fields, unless the command is open to anyone.
///
/// # Errors
/// `Unauthorized`.
pub fn admit(client: &Client<'_>, caller: &Caller, known: &Known) -> Result<()> {
    if !caller.is_stranger() || !requires_login(client.server, known.index) {
        return Ok(());
    }
    client.server.metrics.unauthorized.add(1);
    Err(without_login(known.name()))
}

fn without_login(name: &str) -> Error {
    Error::new(
        ErrorCode::Unauthorized,
        format!("Command {name} requires authentication"),
    )
}

/// Refuses a command whose needs the caller does not meet. Returns the needs; none where nothing is checked.
///
/// # Errors
/// `Unauthorized`, and errors of commands that do not say what they touch.
pub fn check<'a>(
    client: &Client<'a>,
    caller: &'a Caller,
    known: &Known,
    request: &'a Request<'_>,
) -> Result<Option<Needs<'a>>> {
    if !caller.is_checked() {
        return Ok(None);
    }
    let needs = known.command.needs(&Requested {
        server: client.server,
        name: known.name(),
        db: request.db,
        body: request.body,
        sequences: &request.sequences,
        user: caller.name(),
    })?;
    if !caller.may(&needs) {
        if caller.user().is_none() {
            client.server.metrics.unauthorized.add(1);
            return Err(without_login(known.name()));
        }
        let secrets = secrets(known.spec, request);
        let shown = short_command(&without_secrets(request.body, secrets));
        return Err(refused(client, request.db, &shown));
    }
    Ok(Some(needs))
}

/// The error of a command whose fields were refused. A client without the privileges does not learn the state of the member, as in
/// MongoDB.
pub fn explain(
    client: &Client<'_>,
    caller: &Caller,
    known: &Known,
    request: &Request<'_>,
    failure: &Error,
) -> Error {
    if !frond_replset::is_refusal(failure) {
        return failure.clone();
    }
    let checked = check(client, caller, known, request);
    checked.err().unwrap_or_else(|| failure.clone())
}

/// Refuses what is not a command of the table, such as a query of a legacy opcode, unless the caller meets its needs.
///
/// # Errors
/// `Unauthorized`.
pub fn require(
    client: &Client<'_>,
    caller: &Caller,
    needs: &Needs<'_>,
    db: &str,
    shown: &Doc,
) -> Result<()> {
    let checked = if caller.may(needs) {
        Ok(())
    } else {
        Err(refused(client, db, &short_command(shown)))
    };
    checked_query(client, db, shown, checked)
}

/// The error of a command that is refused, which is counted and logged.
fn refused(client: &Client<'_>, db: &str, shown: &Doc) -> Error {
    let message = format!("not authorized on {db} to execute command {shown:?}");
    let failure = Error::new(ErrorCode::Unauthorized, message);
    client.server.metrics.unauthorized.add(1);
    client.server.log.info(
        Component::Access,
        20436,
        &client.connection.name,
        "Checking authorization failed",
        &doc! {"error": {
            "code": failure.code().code(),
            "codeName": &*failure.code().name(),
            "errmsg": failure.message(),
        }},
    );
    failure
}
