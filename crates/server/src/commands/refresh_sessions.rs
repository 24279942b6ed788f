//! `refreshSessions`

use frond_bson::DocBuf;
use frond_error::Result;

use super::end_sessions::session_list;
use super::{Command, Traits};
use crate::authorization::{Action, Needs, Requested};
use crate::context::Context;

/// Keeps logical sessions from expiring.
pub struct RefreshSessions;

impl Command for RefreshSessions {
    fn names(&self) -> &'static [&'static str] {
        &["refreshSessions"]
    }

    fn doc(&self) -> &'static str {
        "Keeps logical sessions from expiring."
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP.stable(true)
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::LoggedIn)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        for id in session_list(cx, Action::Impersonate)? {
            cx.server.sessions.touch(id);
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
        assert_eq!(server.server.sessions.len(), 1);
        assert_eq!(server.code("admin", doc! {"refreshSessions": 1}), 14);
    }
}
