//! `ping`

use frond_bson::DocBuf;
use frond_error::Result;

use super::{Command, Traits};
use crate::authorization::{Needs, Requested};
use crate::context::Context;

/// Replies, to show that the server is running.
pub struct Ping;

impl Command for Ping {
    fn names(&self) -> &'static [&'static str] {
        &["ping"]
    }

    fn doc(&self) -> &'static str {
        "Replies, to show that the server is running."
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP.stable(true)
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
