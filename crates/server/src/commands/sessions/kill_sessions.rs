use frond_bson::DocBuf;
use frond_error::Result;

use super::end_sessions::session_list;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::transactions;

pub struct KillSessions;

const SPEC: Spec = Spec {
    names: &["killSessions"],
    doc: "Aborts the transactions of logical sessions, and ends their cursors and their operations.",
    ..Spec::CHEAP
};

impl Command for KillSessions {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::LoggedIn)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        for id in session_list(cx, Action::KillAnySession)? {
            cx.server.clients.connections.kill_session(id);
            transactions::clear_session(cx.server, id);
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
    async fn what_a_session_has_committed_stays_known() {
        let mut server = TestServer::new();
        let lsid = SessionId::random().to_doc();
        let insert =
            doc! {"insert": "c", "documents": [{"_id": 1}], "lsid": &lsid, "txnNumber": 1i64};
        server.run("test", insert.clone());
        server.run("admin", doc! {"killSessions": [&lsid]});
        // It is not executed again.
        let again = server.run("test", insert);
        assert!(!again.contains_key("writeErrors"), "{again:?}");
    }
}
