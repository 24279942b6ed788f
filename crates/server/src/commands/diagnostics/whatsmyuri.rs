use frond_bson::{DocBuf, doc};
use frond_error::Result;

use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct WhatsMyUri;

const SPEC: Spec = Spec {
    names: &["whatsmyuri"],
    doc: "Returns the address from which the client is connected.",
    ..Spec::CHEAP
};

impl Command for WhatsMyUri {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        Ok(doc! {"you": cx.connection.peer.to_string()})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn it_names_the_peer() {
        let mut server = TestServer::new();
        let reply = server.run("admin", doc! {"whatsmyuri": 1});
        assert_eq!(reply.get_str("you"), Some("anonymous unix socket"));
    }
}
