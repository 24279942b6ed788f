use frond_bson::DocBuf;
use frond_error::Result;

use super::end_sessions::session_list;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct RefreshSessions;

const SPEC: Spec = Spec {
    names: &["refreshSessions"],
    doc: "Keeps logical sessions from expiring.",
    stable_api: true,
    ..Spec::CHEAP
};

impl Command for RefreshSessions {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::LoggedIn)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        for id in session_list(cx, Action::Impersonate)? {
            cx.server.clients.sessions.touch(id);
        }
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    use crate::sessions::SessionId;

    #[tokio::test(flavor = "multi_thread")]
    async fn sessions_live_on() {
        let mut server = TestServer::new();
        let id = SessionId::random().to_doc();
        server.run("admin", doc! {"refreshSessions": [&id]});
        assert_eq!(server.server.clients.sessions.len(), 1);
        assert_eq!(server.code("admin", doc! {"refreshSessions": 1}), 14);
    }
}
