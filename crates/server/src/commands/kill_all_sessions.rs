//! `killAllSessions`

use frond_bson::{DocBuf, Value};
use frond_error::Result;

use super::{Command, Traits};
use crate::authorization::{Action, Needs, Requested};
use crate::context::Context;
use crate::context::unsupported_option;
use crate::transactions;

/// Aborts the transactions of all logical sessions, and ends their cursors and their operations.
pub struct KillAllSessions;

impl Command for KillAllSessions {
    fn names(&self) -> &'static [&'static str] {
        &["killAllSessions"]
    }

    fn doc(&self) -> &'static str {
        "Aborts the transactions of all logical sessions, and ends their cursors and their operations."
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::KillAnySession))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        match cx.body.get("killAllSessions") {
            // There are no users to select by.
            Some(Value::Array(users)) if users.is_empty() => {}
            Some(Value::Array(_)) => return Err(unsupported_option("killAllSessions", "users")),
            other => {
                return Err(cx.args().wrong_type(
                    "killAllSessions",
                    &other.unwrap_or(Value::Null),
                    "type 'array'",
                ));
            }
        }
        transactions::clear_all_sessions(cx.server, cx.connection.id);
        Ok(DocBuf::new())
    }
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
        let cursors = &server.server.cursors;
        cursors.insert(cursor);
        cursors.insert(Cursor::fixed("db.c", vec![doc! {}]));
        server.run("admin", doc! {"killAllSessions": []});
        assert_eq!(server.server.cursors.list().len(), 1);
        assert_eq!(
            server.code("admin", doc! {"killAllSessions": [{"user": "x"}]}),
            238
        );
        assert_eq!(server.code("admin", doc! {"killAllSessions": 1}), 14);
    }
}
