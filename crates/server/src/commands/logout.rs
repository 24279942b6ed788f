//! `logout`

use frond_bson::DocBuf;
use frond_error::Result;

use super::{Command, Traits};
use crate::authorization::{Needs, Requested};
use crate::context::Context;

/// Ends the authentication of this connection, of which there is none.
pub struct Logout;

impl Command for Logout {
    fn names(&self) -> &'static [&'static str] {
        &["logout"]
    }

    fn doc(&self) -> &'static str {
        "Ends the authentication of this connection, of which there is none."
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
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
        assert_eq!(
            TestServer::new().run("admin", doc! {"logout": 1}),
            doc! {"ok": 1.0}
        );
    }
}
