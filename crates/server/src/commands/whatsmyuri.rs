//! `whatsmyuri`

use frond_bson::{DocBuf, doc};
use frond_error::Result;

use super::{Command, Traits};
use crate::authorization::{Needs, Requested};
use crate::context::Context;

/// Returns the address from which the client is connected.
pub struct WhatsMyUri;

impl Command for WhatsMyUri {
    fn names(&self) -> &'static [&'static str] {
        &["whatsmyuri"]
    }

    fn doc(&self) -> &'static str {
        "Returns the address from which the client is connected."
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
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
