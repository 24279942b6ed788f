use frond_bson::{DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::observability::log::Component;

pub struct Shutdown;

const SPEC: Spec = Spec {
    names: &["shutdown"],
    audits: Audited::Shutdown,
    doc: "Stops the server; without authorization only clients on the same machine may.",
    fields: &["force", "timeoutSecs"],
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for Shutdown {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::Shutdown))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        if !cx.caller.is_checked() && !cx.connection.peer.is_local() {
            return Err(Error::new(
                ErrorCode::Unauthorized,
                "shutdown must run from localhost when running db without auth",
            ));
        }
        let attributes = doc! {"remote": cx.connection.peer.to_string()};
        cx.server.log.info(
            Component::Control,
            4695400,
            &cx.connection.name,
            "Shutdown command received",
            &attributes,
        );
        cx.server.stop();
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn it_stops_the_server() {
        let mut server = TestServer::new();
        assert_eq!(server.code("test", doc! {"shutdown": 1}), 13);
        assert!(!server.server.is_stopping());
        server.run("admin", doc! {"shutdown": 1, "force": true});
        assert!(server.server.is_stopping());
    }
}
