//! The fail points that act on a command.

use frond_error::{Error, ErrorCode, Result};
use frond_store::OpContext;

use super::parse::Request;
use super::shared_fields::SharedFields;
use crate::client::Client;
use crate::fail_points::{Effect, SwitchName};
use crate::state::Server;

/// Applies the fail points about time limits.
pub fn apply_time_fail_points(
    server: &Server,
    shared: &SharedFields,
    limits: &mut OpContext,
) -> Result<()> {
    let points = &server.execution.fail_points;
    if !points.is_on() || shared.time_limit.is_none() {
        return Ok(());
    }
    if points.acts(SwitchName::MaxTimeAlwaysTimeOut, "").is_some() {
        return Err(Error::new(
            ErrorCode::MaxTimeMSExpired,
            "operation exceeded time limit",
        ));
    }
    if points.acts(SwitchName::MaxTimeNeverTimeOut, "").is_some() {
        limits.deadline = None;
    }
    Ok(())
}

/// The effect of a fail point on a command.
pub fn effect(client: &Client<'_>, request: &Request<'_>) -> Option<Effect> {
    let (server, connection) = (client.server, client.connection);
    if !server.execution.fail_points.is_on() {
        return None;
    }
    let (name, value) = request.body.first()?;
    // A fail point may name a command that does not exist.
    let proper = request.known.map_or(name, |known| known.name());
    // A handshake itself names the application.
    let metadata = request.body.get_doc("client");
    let application = connection
        .application()
        .or_else(|| metadata?.get_doc("application")?.get_str("name"));
    let thread = connection.name.as_str();
    server
        .execution
        .fail_points
        .effect_on(&[proper, name], application, thread, || {
            format!("{}.{}", request.db, value.as_str().unwrap_or_default())
        })
}

/// The error of a command whose connection a fail point closes; it is not sent.
pub fn closing(effect: &Effect) -> Option<Error> {
    effect
        .close
        .then(|| Error::new(ErrorCode::NetworkTimeout, "closed by a fail point"))
}
