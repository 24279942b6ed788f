use frond_bson::DocBuf;
use frond_error::Result;

use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct ResetError;

const SPEC: Spec = Spec {
    names: &["resetError", "reseterror"],
    doc: "Clears the last error on this connection.",
    keeps_last_error: true,
    ..Spec::CHEAP
};

impl Command for ResetError {
    fn spec(&self) -> &'static Spec {
        &SPEC
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
