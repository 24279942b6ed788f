use frond_bson::{DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::arguments::whole;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct KillOp;

const SPEC: Spec = Spec {
    names: &["killOp"],
    doc: "Interrupts an operation.",
    fields: &["op"],
    admin_only: true,
    // As in MongoDB, whose error for a missing `op` is clearer than one for an unknown field.
    takes_any_field: true,
    ..Spec::CHEAP
};

impl Command for KillOp {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let id = request.body.get("op").filter(|id| id.is_number());
        let owner = id.and_then(|id| request.server.clients.connections.owner_of(whole(&id)));
        match owner {
            Some(owner) if owner.is_none() || owner.as_ref() != request.user => {
                Ok(Needs::cluster(Action::Killop))
            }
            // It is the user's own, or has ended.
            _ => Ok(Needs::LoggedIn),
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let id = match cx.body.get("op") {
            Some(value) if value.is_number() => whole(&value),
            Some(other) => {
                return Err(cx.args().wrong_type(
                    "op",
                    &other,
                    "types '[long, int, decimal, double]'",
                ));
            }
            None => {
                return Err(Error::new(
                    ErrorCode::NoSuchKey,
                    "Did not provide \"op\" field",
                ));
            }
        };
        // As in MongoDB, the reply does not depend on whether the operation was running: it may have just ended.
        // One that began after the needs were checked may be another user's.
        let caller = cx.caller;
        let may =
            |owner: Option<&_>| caller.is(owner) || caller.may(&Needs::cluster(Action::Killop));
        cx.server.clients.connections.kill_operation(id, may);
        Ok(doc! {"info": "attempting to kill op"})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn it_needs_a_number() {
        let mut server = TestServer::new();
        let reply = server.run("admin", doc! {"killOp": 1, "op": 12345});
        assert_eq!(reply, doc! {"info": "attempting to kill op", "ok": 1.0});
        assert_eq!(server.code("admin", doc! {"killOp": 1}), 4);
        assert_eq!(server.code("admin", doc! {"killOp": 1, "op": "x"}), 14);
    }
}
