use frond_bson::DocBuf;
use frond_error::Result;

use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct Ping;

const SPEC: Spec = Spec {
    names: &["ping"],
    doc: "Replies, to show that the server is running.",
    stable_api: true,
    ..Spec::CHEAP
};

impl Command for Ping {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn it_answers() {
        let mut server = TestServer::new();
        assert_eq!(server.run("admin", doc! {"ping": 1}), doc! {"ok": 1.0});
        assert_eq!(server.code("admin", doc! {"ping": 1, "pong": 1}), 40415);
    }
}
