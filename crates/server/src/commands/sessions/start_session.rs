use frond_bson::{DocBuf, doc};
use frond_error::Result;

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::sessions::SessionId;

pub struct StartSession;

const SPEC: Spec = Spec {
    names: &["startSession"],
    doc: "Begins a logical session.",
    ..Spec::CHEAP
};

impl Command for StartSession {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::LoggedIn)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let id = cx
            .caller
            .session(SessionId::random(), Action::Impersonate)?;
        cx.server.clients.sessions.touch(id);
        Ok(
            doc! {"id": id.to_client_doc(), "timeoutMinutes": cx.server.clients.sessions.timeout_minutes()},
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    use crate::sessions::SessionId;

    #[tokio::test(flavor = "multi_thread")]
    async fn it_returns_an_id() {
        let mut server = TestServer::new();
        let reply = server.run("admin", doc! {"startSession": 1});
        assert!(SessionId::parse(reply.get_doc("id").unwrap()).is_ok());
        assert_eq!(server.server.clients.sessions.len(), 1);
    }
}
