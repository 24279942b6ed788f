//! Aggregations that write, on a secondary: the primary runs them. Drivers send them to a secondary if the read preference of the
//! application allows it, as they may with MongoDB 5.0 and newer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use frond_bson::DocBuf;
use frond_client::Client;
use frond_error::{Error, ErrorCode, Result};

use crate::context::Context;
use crate::peers::login_uris;

/// Fields of a request that are between the client and this server.
const OWN_FIELDS: [&str; 5] = ["$db", "$readPreference", "$clusterTime", "lsid", "$audit"];

/// Runs the command on the primary, as a member of the set. The privileges of the client were checked here.
///
/// # Errors
/// `PrimarySteppedDown` (189) without a primary, `HostUnreachable` (6), and the error of the primary.
pub fn to_primary(cx: &Context<'_>) -> Result<DocBuf> {
    let set = cx.server.set.replication.as_ref();
    let member = set.and_then(|set| set.member());
    let primary = member.as_ref().and_then(|member| {
        let primary = member.primary?;
        member.config.member(primary)
    });
    let Some(primary) = primary else {
        return Err(Error::new(
            ErrorCode::PrimarySteppedDown,
            "there is no primary that could write the result of the aggregation",
        ));
    };
    let mut command = DocBuf::new();
    for (name, value) in cx
        .body
        .iter()
        .filter(|(name, _)| !OWN_FIELDS.contains(name))
    {
        command.push(name, value);
    }
    let uris =
        login_uris(&primary.host, &cx.server.settings).map_err(|error| unreachable(&error))?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut client = Err(frond_client::Error::Stopped);
    for uri in &uris {
        client = Client::connect(uri, stop.clone());
        if client.is_ok() {
            break;
        }
    }
    let mut client = client.map_err(|error| unreachable(&error))?;
    let reply = client
        .command(cx.db, &command)
        .map_err(|error| match error {
            frond_client::Error::Server { code, message, .. } => {
                Error::new(ErrorCode::from_code(code), message)
            }
            error => unreachable(&error),
        })?;
    let mut own = DocBuf::new();
    for (name, value) in reply.iter() {
        if !matches!(name, "ok" | "$clusterTime" | "operationTime") {
            own.push(name, value);
        }
    }
    Ok(own)
}

fn unreachable(error: &frond_client::Error) -> Error {
    Error::new(
        ErrorCode::HostUnreachable,
        format!("the primary, which has to write the result of the aggregation: {error}"),
    )
}
