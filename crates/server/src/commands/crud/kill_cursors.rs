use frond_bson::{Doc, DocBuf, Value};
use frond_error::Result;

use crate::authorization::{Action, Needs, Place, Requested, split};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::context::Context;

pub struct KillCursors;

const SPEC: Spec = Spec {
    names: &["killCursors"],
    doc: "Closes cursors.",
    fields: &["cursors"],
    on_collection: true,
    stable_api: true,
    in_transactions: InTransactions::Later,
    ..Spec::CHEAP
};

impl Command for KillCursors {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let ids = request.args().array("cursors")?.unwrap_or(Doc::empty());
        let mut needs = Needs::LoggedIn;
        for value in ids.values() {
            // The command fails without a number.
            let Value::Int64(id) = value else { continue };
            match request.server.clients.cursors.owner(id) {
                None => {}
                Some((_, Some(owner))) if Some(&owner.user) == request.user => {}
                Some((namespace, _)) => needs = needs.and(killing(&namespace)?),
            }
        }
        Ok(needs)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        // The name is not compared with those of the cursors, whose ids are enough.
        let args = cx.args();
        args.str("killCursors")?
            .ok_or_else(|| args.missing("killCursors"))?;
        let list = args
            .array("cursors")?
            .ok_or_else(|| args.missing("cursors"))?;
        let (mut killed, mut unknown) = (Vec::new(), Vec::new());
        for (at, value) in list.iter() {
            let Value::Int64(id) = value else {
                return Err(args.wrong_type(&format!("cursors.{at}"), &value, "type 'long'"));
            };
            if cx.server.clients.cursors.kill(id) {
                killed.push(id);
            } else {
                unknown.push(id);
            }
        }
        let mut reply = DocBuf::new();
        for (name, ids) in [
            ("cursorsKilled", &killed),
            ("cursorsNotFound", &unknown),
            ("cursorsAlive", &Vec::new()),
            ("cursorsUnknown", &Vec::new()),
        ] {
            reply.push_array(name, |list| {
                for id in ids {
                    list.push(*id);
                }
            });
        }
        Ok(reply)
    }
}

/// The privilege needed to close another user's cursor.
fn killing(namespace: &str) -> Result<Needs<'static>> {
    let (db, name) = split(namespace)?;
    let place = match name {
        "$cmd.listCollections" => Place::database(db),
        name => Place::collection(db, name),
    };
    let there = Needs::on(place, Action::KillAnyCursor);
    Ok(Needs::cluster(Action::KillAnyCursor).or(there.into_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn cursors_are_closed() {
        let mut server = TestServer::new();
        server.fill("c", 10);
        let reply = server.run("test", doc! {"find": "c", "batchSize": 2});
        let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
        let reply = server.run("test", doc! {"killCursors": "c", "cursors": [id, 5i64]});
        let expected = doc! {
            "cursorsKilled": [id], "cursorsNotFound": [5i64], "cursorsAlive": [],
            "cursorsUnknown": [], "ok": 1.0,
        };
        assert_eq!(reply, expected);
        assert_eq!(
            server.code("test", doc! {"getMore": id, "collection": "c"}),
            43
        );
        // By another name, as drivers send for cursors of a database.
        let reply = server.run("test", doc! {"find": "c", "batchSize": 2});
        let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
        let elsewhere = server.run("test", doc! {"killCursors": "d", "cursors": [id]});
        assert_eq!(elsewhere.get_array("cursorsKilled").unwrap().count(), 1);
        assert_eq!(
            server.code("test", doc! {"killCursors": "c", "cursors": [1]}),
            14
        );
        assert_eq!(server.code("test", doc! {"killCursors": "c"}), 40414);
    }
}
