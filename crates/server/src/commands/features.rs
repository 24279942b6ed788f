//! `features`

use frond_bson::{DocBuf, doc};
use frond_error::Result;

use super::{Command, Traits};
use crate::authorization::{Needs, Requested};
use crate::context::Context;

/// Lists the features of this build.
pub struct Features;

impl Command for Features {
    fn names(&self) -> &'static [&'static str] {
        &["features"]
    }

    fn doc(&self) -> &'static str {
        "Lists the features of this build."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["oidReset"]
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::LoggedIn)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        Ok(doc! {"js": cx.server.javascript.is_some(), "dbname": false, "oidMachine": 0})
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
