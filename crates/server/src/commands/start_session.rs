//! `startSession`

use frond_bson::{DocBuf, doc};
use frond_error::Result;

use super::{Command, Traits};
use crate::authorization::{Action, Needs, Requested};
use crate::context::Context;
use crate::sessions::SessionId;

/// Begins a logical session.
pub struct StartSession;

impl Command for StartSession {
    fn names(&self) -> &'static [&'static str] {
        &["startSession"]
    }

    fn doc(&self) -> &'static str {
        "Begins a logical session."
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::LoggedIn)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let id = cx
            .caller
            .session(SessionId::random(), Action::Impersonate)?;
        cx.server.sessions.touch(id);
        Ok(doc! {"id": id.to_client_doc(), "timeoutMinutes": cx.server.sessions.timeout_minutes()})
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
        assert_eq!(server.server.sessions.len(), 1);
    }
}
