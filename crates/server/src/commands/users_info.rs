//! `usersInfo`

use frond_bson::{DocBuf, doc};
use frond_error::Result;

use super::{Command, Traits};
use crate::context::Context;

/// Lists the users, of which there are none.
pub struct UsersInfo;

impl Command for UsersInfo {
    fn names(&self) -> &'static [&'static str] {
        &["usersInfo"]
    }

    fn doc(&self) -> &'static str {
        "Lists the users, of which there are none."
    }

    fn fields(&self) -> &'static [&'static str] {
        &[
            "showAuthenticationRestrictions",
            "showCredentials",
            "showCustomData",
            "showPrivileges",
            "filter",
        ]
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
    }

    fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
        Ok(doc! {"users": []})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn there_are_none() {
        let mut server = TestServer::new();
        assert_eq!(
            server.run("admin", doc! {"usersInfo": 1}),
            doc! {"users": [], "ok": 1.0}
        );
    }
}
