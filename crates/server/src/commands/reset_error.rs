//! `resetError`

use frond_bson::DocBuf;
use frond_error::Result;

use super::{Command, Traits};
use crate::authorization::{Needs, Requested};
use crate::context::Context;

/// Clears the last error on this connection.
pub struct ResetError;

impl Command for ResetError {
    fn names(&self) -> &'static [&'static str] {
        &["resetError", "reseterror"]
    }

    fn doc(&self) -> &'static str {
        "Clears the last error on this connection."
    }

    fn traits(&self) -> Traits {
        Traits {
            keeps_last_error: true,
            ..Traits::CHEAP
        }
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        cx.state.last_error.reset();
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
            TestServer::new().run("test", doc! {"resetError": 1}),
            doc! {"ok": 1.0}
        );
    }
}
