use frond_bson::{Doc, DocBuf};
use frond_error::Result;

use crate::arguments::Arguments;
use crate::authorization::{Action, Needs, Requested, UserName};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::sessions::SessionOwner;
use crate::transactions;

pub struct KillAllSessions;

const SPEC: Spec = Spec {
    names: &["killAllSessions"],
    doc: "Aborts the transactions of all logical sessions, and ends their cursors and their operations.",
    ..Spec::CHEAP
};

impl Command for KillAllSessions {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::KillAnySession))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let Some(users) = cx.args().documents("killAllSessions")? else {
            return Err(cx.args().missing("killAllSessions"));
        };
        let owners = owners("killAllSessions", &users)?;
        transactions::clear_sessions(cx.server, cx.connection.id, |session| {
            let is_of_one = |owner| owners.contains(&owner);
            owners.is_empty() || session.owner().is_some_and(is_of_one)
        });
        Ok(DocBuf::new())
    }
}

/// The owners of the sessions of users, which are named by `{user, db}`.
pub fn owners(command: &str, users: &[&Doc]) -> Result<Vec<SessionOwner>> {
    let owner = |user: &&Doc| {
        let args = Arguments::new(command, user);
        args.only(&["user", "db"])?;
        let name = args.str("user")?.ok_or_else(|| args.missing("user"))?;
        let db = args.str("db")?.ok_or_else(|| args.missing("db"))?;
        Ok(SessionOwner::for_user(&UserName::new(name, db)))
    };
    users.iter().map(owner).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    use crate::cursors::Cursor;
    use crate::sessions::SessionId;

    #[tokio::test(flavor = "multi_thread")]
    async fn cursors_of_all_sessions_close() {
        let mut server = TestServer::new();
        let mut cursor = Cursor::fixed("db.c", vec![doc! {}]);
        cursor.session = Some(SessionId::random());
        let cursors = &server.server.clients.cursors;
        cursors.insert(cursor);
        cursors.insert(Cursor::fixed("db.c", vec![doc! {}]));
        server.run("admin", doc! {"killAllSessions": []});
        assert_eq!(server.server.clients.cursors.list().len(), 1);
        assert_eq!(
            server.code("admin", doc! {"killAllSessions": [{"user": "x"}]}),
            40414
        );
        assert_eq!(server.code("admin", doc! {"killAllSessions": 1}), 14);
    }
}
