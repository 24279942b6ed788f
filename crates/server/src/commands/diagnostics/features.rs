use frond_bson::{DocBuf, doc};
use frond_error::Result;

use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct Features;

const SPEC: Spec = Spec {
    names: &["features"],
    doc: "Lists the features of this build.",
    fields: &["oidReset"],
    ..Spec::CHEAP
};

impl Command for Features {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::LoggedIn)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        Ok(doc! {"js": cx.server.execution.javascript.is_some(), "dbname": false, "oidMachine": 0})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn javascript_is_told() {
        let reply = TestServer::new().run("admin", doc! {"features": 1});
        assert_eq!(reply.get_bool("js"), Some(true));
        let mut without = TestServer::with(|settings| settings.javascript.is_enabled = false);
        let reply = without.run("admin", doc! {"features": 1});
        assert_eq!(reply.get_bool("js"), Some(false));
    }
}
