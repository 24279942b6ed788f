//! `connectionStatus`

use frond_bson::{DocBuf, doc};
use frond_error::Result;

use super::{Command, InTransactions, Traits};
use crate::authorization::{Needs, Requested};
use crate::context::Context;

/// Lists the authenticated users of this connection, of which there are none.
pub struct ConnectionStatus;

impl Command for ConnectionStatus {
    fn names(&self) -> &'static [&'static str] {
        &["connectionStatus"]
    }

    fn doc(&self) -> &'static str {
        "Lists the authenticated users of this connection, of which there are none."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["showPrivileges"]
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP.in_transactions(InTransactions::Later)
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let mut auth = doc! {"authenticatedUsers": [], "authenticatedUserRoles": []};
        if cx.args().flag("showPrivileges")?.unwrap_or(false) {
            auth.push_array("authenticatedUserPrivileges", |_| ());
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
    async fn nobody_is_logged_in() {
        let mut server = TestServer::new();
        let reply = server.run(
            "admin",
            doc! {"connectionStatus": 1, "showPrivileges": true},
        );
        let expected = doc! {
            "authInfo": {
                "authenticatedUsers": [],
                "authenticatedUserRoles": [],
                "authenticatedUserPrivileges": [],
            },
            "ok": 1.0,
        };
        assert_eq!(reply, expected);
    }
}
