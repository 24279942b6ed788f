use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::{AdmissionClass, Work};
use frond_store::Durability;

use crate::concern::WriteConcern;
use crate::connection::AsksForLastError;
use crate::outcome::{DurabilityWait, Outcome, Wait};
use crate::replication::Acknowledgment;
use crate::state::Server;

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

    fn start(&self, cx: &mut Context<'_>) -> Result<Outcome> {
        cx.state.asks_for_last_error = AsksForLastError::Yes;
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
        if !has_succeeded(&reply) {
            return Ok(Outcome::Reply(reply));
        }
        let replication = cx.server.set.replication.as_ref();
        let member = replication.and_then(|set| set.member());
        let set = member.as_ref().map(|member| &*member.config);
        let parsed = WriteConcern::parse(&concern, cx.server.settings.journal, set);
        let parsed = parsed.and_then(|parsed| match parsed.unsatisfiable {
            Some(unsatisfied) => Err(unsatisfied),
            None => Ok(parsed),
        });
        Ok(match parsed {
            // A client that is not logged in cannot have written, so there is no write to wait for.
            Ok(concern) if !cx.caller.is_stranger() => match acknowledgment(cx.server, &concern) {
                Some(until) => Outcome::Wait(Wait::Durability(DurabilityWait {
                    outcome: Ok(reply),
                    until,
                    timeout: concern.timeout,
                    deadline: cx.limits.deadline,
                })),
                None => Outcome::Reply(reply),
            },
            Ok(_) => Outcome::Reply(reply),
            // The write is done; only the write concern is refused.
            Err(failure) => {
                let mut refused = without_error(&reply);
                refused.push("err", "norepl");
                refused.push("wnote", failure.message());
                Outcome::Reply(refused)
            }
        })
    }

    fn unacknowledged(&self, reply: &Doc, failure: &Error) -> Option<DocBuf> {
        let mut reply = without_error(reply);
        if failure.code() == ErrorCode::WriteConcernTimeout {
            reply.push("wtimeout", true);
            reply.push("err", "timeout");
        } else {
            reply.push("err", failure.message());
        }
        reply.push("code", failure.code().code());
        reply.push("codeName", &*failure.code().name());
        Some(reply)
    }
}

/// Whether the last write has not failed.
fn has_succeeded(reply: &Doc) -> bool {
    matches!(reply.get("err"), Some(Value::Null))
}

/// A reply without its field for the error, which is null.
fn without_error(reply: &Doc) -> DocBuf {
    let mut rest = DocBuf::new();
    for (name, value) in reply.iter().filter(|(name, _)| *name != "err") {
        rest.push(name, value);
    }
    rest
}

/// The condition under which everything that this server has written until now satisfies a write concern; none if it does already. The last
/// write of the connection is a part of it.
fn acknowledgment(server: &Server, concern: &WriteConcern) -> Option<Acknowledgment> {
    let journal = (concern.durability == Durability::Synced).then_some(Acknowledgment::Journal);
    let set = server.set.replication.as_ref();
    let members = set
        .zip(server.set.consensus())
        .and_then(|(set, consensus)| {
            let config = || set.member().map(|member| member.config.clone());
            Acknowledgment::of_write(&concern.wanted, consensus.end_position(), config)
        });
    members.or(journal)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::testing::TestServer;

    use super::*;

    #[test]
    fn a_write_that_is_not_acknowledged_has_the_old_form() {
        let reply = doc! {"connectionId": 1, "n": 2, "err": null, "writtenTo": null};
        for (code, err, is_timeout) in [
            (ErrorCode::WriteConcernTimeout, "timeout", Some(true)),
            (ErrorCode::PrimarySteppedDown, "the reason", None),
        ] {
            let failure = Error::new(code, "the reason");
            let shown = GetLastError.unacknowledged(&reply, &failure).unwrap();
            assert_eq!(shown.get_i32("n"), Some(2));
            assert_eq!(shown.get_str("err"), Some(err));
            assert_eq!(shown.get_bool("wtimeout"), is_timeout);
            assert_eq!(shown.get_i32("code"), Some(code.code()));
        }
    }

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
