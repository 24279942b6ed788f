//! `rolesInfo`

use frond_bson::{DocBuf, doc};
use frond_error::Result;

use super::{Command, Traits};
use crate::context::Context;

/// Lists the roles, of which there are none.
pub struct RolesInfo;

impl Command for RolesInfo {
    fn names(&self) -> &'static [&'static str] {
        &["rolesInfo"]
    }

    fn doc(&self) -> &'static str {
        "Lists the roles, of which there are none."
    }

    fn fields(&self) -> &'static [&'static str] {
        &[
            "showAuthenticationRestrictions",
            "showBuiltinRoles",
            "showPrivileges",
        ]
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
    }

    fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
        Ok(doc! {"roles": []})
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
            server.run("admin", doc! {"rolesInfo": 1}),
            doc! {"roles": [], "ok": 1.0}
        );
    }
}
