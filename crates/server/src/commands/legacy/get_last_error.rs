use frond_bson::{DocBuf, Value, doc};
use frond_error::Result;

use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::{AdmissionClass, Work};
use frond_store::Durability;

use crate::concern::WriteConcern;

pub struct GetLastError;

const SPEC: Spec = Spec {
    names: &["getLastError", "getlasterror"],
    doc: "Reports the result of the last write on this connection.",
    fields: &["w", "j", "fsync", "wtimeout", "wElectionId", "wOpTime"],
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    keeps_last_error: true,
    ..Spec::CHEAP
};

impl Command for GetLastError {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let mut concern = DocBuf::new();
        for name in ["w", "j", "fsync", "wtimeout"] {
            if let Some(value) = cx.args().get(name) {
                concern.push(name, value);
            }
        }
        let mut reply = doc! {"connectionId": i32::try_from(cx.connection.id).unwrap_or(i32::MAX)};
        cx.state.last_error.write_reply(&mut reply);
        reply.push("syncMillis", 0);
        reply.push("writtenTo", None::<i32>);
        let replication = cx.server.set.replication.as_ref();
        let member = replication.and_then(|set| set.member());
        let set = member.as_ref().map(|member| &*member.config);
        let parsed = WriteConcern::parse(&concern, cx.server.settings.journal, set);
        let parsed = parsed.and_then(|parsed| match parsed.unsatisfiable {
            Some(unsatisfied) => Err(unsatisfied),
            None => Ok(parsed),
        });
        match parsed {
            // A client that is not logged in cannot have written, so there is no write to wait for.
            Ok(concern) if concern.durability == Durability::Synced && !cx.caller.is_stranger() => {
                cx.server.store.flush_log()?;
            }
            Ok(_) => {}
            // The write is done; only the write concern is refused.
            Err(failure) => {
                if matches!(reply.get("err"), Some(Value::Null)) {
                    let mut refused = DocBuf::new();
                    for (name, value) in reply.iter().filter(|(name, _)| *name != "err") {
                        refused.push(name, value);
                    }
                    refused.push("err", "norepl");
                    refused.push("wnote", failure.message());
                    return Ok(refused);
                }
            }
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    use frond_error::Error;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_last_write_is_reported() {
        let mut server = TestServer::new();
        let reply = server.run("test", doc! {"getlasterror": 1});
        assert_eq!(
            (reply.get_i32("n"), reply.get("err").map(|e| e.is_nullish())),
            (Some(0), Some(true))
        );
        server.state.last_error.inserted(3);
        for command in [
            doc! {"getLastError": 1, "j": true},
            doc! {"getLastError": 1, "w": 1},
        ] {
            assert_eq!(server.run("test", command).get_i32("n"), Some(3));
        }
        let reply = server.run("test", doc! {"getLastError": 1, "w": 2});
        assert_eq!(reply.get_str("err"), Some("norepl"));
        server.state.last_error.failed(Error::bad_value("no"));
        let reply = server.run("test", doc! {"getLastError": 1, "w": 2});
        assert_eq!(
            (reply.get_str("err"), reply.get_i32("code")),
            (Some("no"), Some(2))
        );
        server.run("test", doc! {"ping": 1});
        let reply = server.run("test", doc! {"getLastError": 1});
        assert_eq!(reply.get_str("err"), None);
        assert_eq!(server.code("test", doc! {"getLastError": 1, "x": 1}), 40415);
    }
}
