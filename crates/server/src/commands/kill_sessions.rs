//! `killSessions`

use frond_bson::DocBuf;
use frond_error::Result;

use super::end_sessions::session_list;
use super::{Command, Traits};
use crate::context::Context;
use crate::transactions;

/// Ends logical sessions, their cursors and their operations.
pub struct KillSessions;

impl Command for KillSessions {
    fn names(&self) -> &'static [&'static str] {
        &["killSessions"]
    }

    fn doc(&self) -> &'static str {
        "Ends logical sessions, their cursors and their operations."
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        for id in session_list(cx.body.get("killSessions"), "killSessions")? {
            cx.server.connections.kill_session(id);
            transactions::end_session(cx.server, id);
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
    async fn sessions_end() {
        let mut server = TestServer::new();
        let id = SessionId::random();
        server.server.sessions.touch(id);
        server.run("admin", doc! {"killSessions": [id.to_doc()]});
        assert_eq!(server.server.sessions.len(), 0);
    }
}
