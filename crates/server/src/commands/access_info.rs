//! `usersInfo` and `rolesInfo`: this server has no access control, so both lists are empty.

use frond_bson::DocBuf;
use frond_error::Result;

use super::{Command, Traits};
use crate::authorization::{Action, Needs, Requested};
use crate::context::Context;

/// Lists the users or the roles.
pub struct AccessInfo {
    names: &'static [&'static str],
    doc: &'static str,
    fields: &'static [&'static str],
    /// The field of the reply with the list.
    list: &'static str,
    /// What is needed on the database.
    action: Action,
}

/// `usersInfo`
pub static USERS_INFO: AccessInfo = AccessInfo {
    names: &["usersInfo"],
    doc: "Lists the users, of which there are none.",
    fields: &[
        "showAuthenticationRestrictions",
        "showCredentials",
        "showCustomData",
        "showPrivileges",
        "filter",
    ],
    list: "users",
    action: Action::ViewUser,
};

/// `rolesInfo`
pub static ROLES_INFO: AccessInfo = AccessInfo {
    names: &["rolesInfo"],
    doc: "Lists the roles, of which there are none.",
    fields: &[
        "showAuthenticationRestrictions",
        "showBuiltinRoles",
        "showPrivileges",
    ],
    list: "roles",
    action: Action::ViewRole,
};

impl Command for AccessInfo {
    fn names(&self) -> &'static [&'static str] {
        self.names
    }

    fn doc(&self) -> &'static str {
        self.doc
    }

    fn fields(&self) -> &'static [&'static str] {
        self.fields
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::on_database(request, self.action))
    }

    fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
        let mut reply = DocBuf::new();
        reply.push_array(self.list, |_| {});
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn there_are_no_users_and_no_roles() {
        let mut server = TestServer::new();
        assert_eq!(
            server.run("admin", doc! {"usersInfo": 1, "showCredentials": true}),
            doc! {"users": [], "ok": 1.0}
        );
        assert_eq!(
            server.run("admin", doc! {"rolesInfo": 1, "showBuiltinRoles": true}),
            doc! {"roles": [], "ok": 1.0}
        );
    }
}
