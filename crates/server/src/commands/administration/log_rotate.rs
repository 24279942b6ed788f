use frond_bson::{DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct LogRotate;

const SPEC: Spec = Spec {
    names: &["logRotate"],
    doc: "Begins a new log file.",
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
        match cx.body.get("logRotate") {
            Some(Value::String("server")) => {}
            Some(Value::String(other)) => {
                return Err(Error::new(
                    ErrorCode::NoSuchKey,
                    format!("Unknown log type '{other}' for rotation"),
                ));
            }
            Some(value) if value.truthy() => {}
            _ => return Err(Error::bad_value("Invalid log rotation command")),
        }
        cx.server.log.rotate().map_err(|error| {
            Error::new(
                ErrorCode::OperationFailed,
                format!("Log rotation failed: {error}"),
            )
        })?;
        Ok(DocBuf::new())
    }
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
