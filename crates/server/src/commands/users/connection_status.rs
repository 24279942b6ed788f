use frond_bson::{DocBuf, doc};
use frond_error::Result;

use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::commands::support::access_fields as fields;
use crate::context::Context;

pub struct ConnectionStatus;

const SPEC: Spec = Spec {
    names: &["connectionStatus"],
    doc: "Shows who is logged in on this connection, with its roles and privileges.",
    fields: &["showPrivileges"],
    in_transactions: InTransactions::Later,
    ..Spec::CHEAP
};

impl Command for ConnectionStatus {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let user = cx.caller.user();
        let users = fields::user_array(user.map(|user| &user.name));
        let roles = fields::role_array(user.iter().flat_map(|user| &user.all_roles));
        let mut auth = doc! {
            "authenticatedUsers": users.as_value(), "authenticatedUserRoles": roles.as_value(),
        };
        if cx.args().flag("showPrivileges")?.unwrap_or(false) {
            let all = user.iter().flat_map(|user| user.privileges.iter());
            let privileges = fields::privilege_array(all);
            auth.push_value("authenticatedUserPrivileges", &privileges.as_value());
        }
        Ok(doc! {"authInfo": auth})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn whoever_is_logged_in_is_shown() {
        let mut server = TestServer::new();
        let command = doc! {"connectionStatus": 1, "showPrivileges": true};
        let nobody = doc! {
            "authInfo": {
                "authenticatedUsers": [],
                "authenticatedUserRoles": [],
                "authenticatedUserPrivileges": [],
            },
            "ok": 1.0,
        };
        assert_eq!(server.run("admin", command.clone()), nobody);
        let role = doc! {
            "createRole": "r", "roles": [{"role": "empty", "db": "a"}],
            "privileges": [{"resource": {"db": "a", "collection": "c"}, "actions": ["insert", "find"]}],
        };
        server.run(
            "a",
            doc! {"createRole": "empty", "roles": [], "privileges": []},
        );
        server.run("a", role);
        let user = doc! {"createUser": "ann", "pwd": "p", "roles": ["r"]};
        server.run("a", user);
        server.log_in_as("ann", "a");
        let ann = doc! {
            "authInfo": {
                "authenticatedUsers": [{"user": "ann", "db": "a"}],
                "authenticatedUserRoles": [{"role": "empty", "db": "a"}, {"role": "r", "db": "a"}],
                "authenticatedUserPrivileges": [
                    {"resource": {"db": "a", "collection": "c"}, "actions": ["find", "insert"]}
                ],
            },
            "ok": 1.0,
        };
        assert_eq!(server.run("a", command), ann);
        let mut short = server.run("admin", doc! {"connectionStatus": 1});
        short = short.get_doc("authInfo").unwrap().to_owned();
        assert!(short.get("authenticatedUserPrivileges").is_none());
    }
}
