use frond_bson::{DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::sessions::SessionId;
use crate::transactions;

pub struct EndSessions;

const SPEC: Spec = Spec {
    names: &["endSessions"],
    doc: "Ends logical sessions and closes their cursors.",
    // The Node.js driver sends `w: 0` when it closes, and ignores errors.
    fields: &["writeConcern"],
    stable_api: true,
    ..Spec::CHEAP
};

impl Command for EndSessions {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::LoggedIn)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        for id in session_list(cx, Action::Impersonate)? {
            transactions::clear_session(cx.server, id);
            cx.server.clients.sessions.end(id);
        }
        Ok(DocBuf::new())
    }
}

/// Sessions in one command, as MongoDB limits them.
const SESSIONS_MAX: usize = 10_000;

/// Reads the array of `{id: UUID}` that is the value of the command: sessions of the caller. Those with the digest of
/// another user need the privilege for this action.
pub fn session_list(cx: &Context<'_>, others: Action) -> Result<Vec<SessionId>> {
    let (command, value) = (cx.name, cx.body.get(cx.name));
    let Some(Value::Array(list)) = value else {
        return Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{command}.{command}' is the wrong type '{}', expected type 'array'",
                value.map_or("missing", |value| value.type_name())
            ),
        ));
    };
    let mut sessions = Vec::new();
    for value in list.values() {
        let Value::Document(session) = value else {
            return Err(Error::new(
                ErrorCode::TypeMismatch,
                format!("an element of '{command}' is not an object"),
            ));
        };
        if sessions.len() == SESSIONS_MAX {
            return Err(Error::bad_value(format!(
                "'{command}' takes at most {SESSIONS_MAX} sessions"
            )));
        }
        let session = SessionId::parse(session)?;
        sessions.push(cx.caller.session(session, others)?);
    }
    Ok(sessions)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Instant;

    use frond_bson::doc;

    use crate::testing::TestServer;

    use crate::cursors::Cursor;
    use crate::sessions::SessionId;

    #[tokio::test(flavor = "multi_thread")]
    async fn cursors_of_a_session_close() {
        let mut server = TestServer::new();
        let id = SessionId::random();
        server.server.clients.sessions.touch(id);
        server.server.clients.sessions.touch(SessionId::random());
        let mut cursor = Cursor::fixed("db.c", vec![doc! {}]);
        cursor.session = Some(id);
        server.server.clients.cursors.insert(cursor);
        server
            .server
            .clients
            .cursors
            .insert(Cursor::fixed("db.c", vec![doc! {}]));
        server.run("admin", doc! {"endSessions": [id.to_doc()]});
        assert_eq!(server.server.clients.cursors.list().len(), 1);
        let store = &server.server.store;
        server.server.clients.sessions.expire(Instant::now(), store);
        assert_eq!(server.server.clients.sessions.len(), 1);
        assert_eq!(server.code("admin", doc! {"endSessions": [1]}), 14);
        assert_eq!(server.code("admin", doc! {"endSessions": [{"id": 1}]}), 14);
    }
}
