use frond_bson::{DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct GetLog;

const SPEC: Spec = Spec {
    names: &["getLog"],
    doc: "Returns the last lines of the log, or the warnings since the start.",
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for GetLog {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::GetLog))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let name = match cx.body.get("getLog") {
            Some(Value::String(name)) => name,
            other => {
                return Err(Error::new(
                    ErrorCode::TypeMismatch,
                    format!(
                        "Argument to getLog must be of type String; found type {}",
                        other.map_or("missing", |value| value.type_name())
                    ),
                ));
            }
        };
        let (lines, total) = match name {
            "*" => return Ok(doc! {"names": ["global", "startupWarnings"]}),
            "global" => cx.server.log.recent(),
            "startupWarnings" => {
                let lines = cx.server.log.startup_warnings();
                let total = lines.len() as u64;
                (lines, total)
            }
            other => {
                return Err(Error::new(
                    ErrorCode::OperationFailed,
                    format!("No log named '{other}'"),
                ));
            }
        };
        let mut reply = doc! {"totalLinesWritten": i64::try_from(total).unwrap_or(i64::MAX)};
        reply.push_array("log", |log| {
            for line in &lines {
                log.push(line);
            }
        });
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    use crate::observability::log::Component;

    #[tokio::test(flavor = "multi_thread")]
    async fn logs_have_names() {
        let mut server = TestServer::new();
        let names = server.run("admin", doc! {"getLog": "*"});
        assert_eq!(
            names,
            doc! {"names": ["global", "startupWarnings"], "ok": 1.0}
        );
        let none = server.run("admin", doc! {"getLog": "startupWarnings"});
        assert_eq!(none, doc! {"totalLinesWritten": 0i64, "log": [], "ok": 1.0});
        server
            .server
            .log
            .info(Component::Control, 1, "test", "a line", &doc! {});
        let log = server.run("admin", doc! {"getLog": "global"});
        let last = log.get_array("log").unwrap().values().last().unwrap();
        assert!(last.as_str().unwrap().contains("\"msg\":\"a line\""));
        assert_eq!(server.code("admin", doc! {"getLog": "x"}), 96);
        assert_eq!(server.code("admin", doc! {"getLog": 1}), 14);
    }
}
