use frond_bson::{DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};

use crate::audit::Actor;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::state::Server;
use frond_runtime::Work;

pub struct LogRotate;

const SPEC: Spec = Spec {
    names: &["logRotate"],
    doc: "Begins a new log file, a new file of the audit log, or both.",
    work: Work::Long,
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for LogRotate {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::LogRotate))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let which = match cx.body.get("logRotate") {
            Some(Value::String("server")) => (true, false),
            Some(Value::String("audit")) if cx.server.audit.is_some() => (false, true),
            Some(Value::String(other)) => {
                return Err(Error::new(
                    ErrorCode::NoSuchKey,
                    format!("Unknown log type '{other}' for rotation"),
                ));
            }
            Some(value) if value.truthy() => (true, true),
            _ => return Err(Error::bad_value("Invalid log rotation command")),
        };
        let actor = Actor::Client(cx.connection, cx.caller.user().map(|user| &**user));
        rotate_logs(cx.server, actor, which).map_err(|error| {
            Error::new(
                ErrorCode::OperationFailed,
                format!("Log rotation failed: {error}"),
            )
        })?;
        Ok(DocBuf::new())
    }
}

/// Rotates the log of the server, the audit log, or both. One that fails does not stop the other.
///
/// # Errors
/// The first failure.
pub fn rotate_logs(
    server: &Server,
    actor: Actor<'_>,
    (own, audit): (bool, bool),
) -> std::io::Result<()> {
    let of_server = if own { server.log.rotate() } else { Ok(()) };
    let of_audit = match &server.audit {
        Some(log) if audit => log.rotate(actor),
        _ => Ok(()),
    };
    of_server.and(of_audit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_log_of_the_server_rotates() {
        let mut server = TestServer::new();
        assert_eq!(server.run("admin", doc! {"logRotate": 1}), doc! {"ok": 1.0});
        assert_eq!(server.code("admin", doc! {"logRotate": "audit"}), 4);
    }
}
