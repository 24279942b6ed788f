use frond_bson::{Doc, DocBuf, Value};
use frond_error::Result;

use crate::arguments::Arguments;
use crate::authorization::{Action, ActionSet, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::{Context, unsupported_option};
use crate::sessions::{SessionId, SessionOwner};
use crate::transactions;

const NAME: &str = "killAllSessionsByPattern";

pub struct KillAllSessionsByPattern;

const SPEC: Spec = Spec {
    names: &[NAME],
    doc: "Aborts the transactions of the logical sessions that match a pattern, and ends their cursors and their operations.",
    ..Spec::CHEAP
};

impl Command for KillAllSessionsByPattern {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let patterns = request.args().documents(NAME)?.unwrap_or_default();
        let names_others = |pattern: &&Doc| {
            ["users", "roles"]
                .iter()
                .any(|field| pattern.contains_key(field))
        };
        let mut actions = ActionSet::from(Action::KillAnySession);
        if patterns.iter().any(names_others) {
            actions.insert(Action::Impersonate);
        }
        Ok(Needs::cluster(actions))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let patterns = args.documents(NAME)?.ok_or_else(|| args.missing(NAME))?;
        let (mut ids, mut owners) = (Vec::new(), Vec::new());
        let mut matches_all = patterns.is_empty();
        for given in patterns {
            let pattern = Arguments::new(NAME, given);
            pattern.only(&["lsid", "uid", "users", "roles"])?;
            // Not supported: to end sessions in the name of other users or roles.
            for field in ["users", "roles"] {
                let is_empty =
                    |value: &Value<'_>| value.as_array().is_some_and(|list| list.is_empty());
                if pattern.get(field).is_some_and(|value| !is_empty(&value)) {
                    return Err(unsupported_option(NAME, field));
                }
            }
            match (pattern.doc_field("lsid")?, SessionOwner::of_field(given)?) {
                (Some(lsid), _) => {
                    let session = SessionId::parse(lsid)?;
                    ids.push(cx.caller.session(session, Action::KillAnySession)?);
                }
                (None, Some(owner)) => owners.push(owner),
                (None, None) => matches_all = true,
            }
        }
        // The operation of an own session that is named ends, too.
        for id in ids {
            cx.server.clients.connections.kill_session(id);
            transactions::clear_session(cx.server, id);
        }
        transactions::clear_sessions(cx.server, cx.connection.id, |session| {
            let is_of_one = |owner| owners.contains(&owner);
            matches_all || session.owner().is_some_and(is_of_one)
        });
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;
    use crate::cursors::Cursor;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn sessions_that_match_end() {
        let mut server = TestServer::new();
        let ids = [
            SessionId::random(),
            SessionId::random(),
            SessionId::random(),
        ];
        for id in ids {
            let mut cursor = Cursor::fixed("db.c", vec![doc! {}]);
            cursor.session = Some(id);
            server.server.clients.cursors.insert(cursor);
        }
        let [first, ..] = ids;
        server.run("admin", doc! {NAME: [{"lsid": &first.to_doc()}]});
        assert_eq!(server.server.clients.cursors.list().len(), 2);
        server.run("admin", doc! {NAME: []});
        assert_eq!(server.server.clients.cursors.list().len(), 0);
        for (pattern, code) in [
            (doc! {"users": ["x"]}, 238),
            (doc! {"uid": 1}, 14),
            (doc! {"x": 1}, 40415),
            (doc! {"lsid": {"id": 1}}, 14),
        ] {
            assert_eq!(
                server.code("admin", doc! {NAME: [&pattern]}),
                code,
                "{pattern:?}"
            );
        }
    }
}
