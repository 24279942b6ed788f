use frond_bson::{DocBuf, Value, doc};
use frond_error::{Error, Result};
use frond_store::{CollectionInfo, CollectionKind};

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::cursors::Cursor;
use crate::reply::{BatchOptions, first_batch};

pub struct ListCollections;

const SPEC: Spec = Spec {
    names: &["listCollections"],
    doc: "Lists the collections of a database.",
    fields: &["filter", "cursor", "nameOnly", "authorizedCollections"],
    ..Spec::CATALOG
};

impl Command for ListCollections {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let args = request.args();
        let is_set = |name| Ok::<_, Error>(args.flag(name)?.unwrap_or(false));
        let listing = Needs::on_database(request, Action::ListCollections);
        if is_set("authorizedCollections")? && is_set("nameOnly")? {
            Ok(listing.or(Needs::SomethingIn(request.db.into())))
        } else {
            Ok(listing)
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let only_own = args.bool("authorizedCollections")?.unwrap_or(false);
        let is_seen = |name: &str| !only_own || cx.caller.may_see(cx.db, name);
        let name_only = args.bool("nameOnly")?.unwrap_or(false);
        let filter = args.list_filter()?;
        let batch = BatchOptions::of_cursor_field(&args)?;
        let mut documents = Vec::new();
        for info in cx.server.store.list_collections(cx.db)? {
            if !is_seen(&info.name) {
                continue;
            }
            let full = describe(&info);
            let passes = filter.as_ref().map(|filter| filter.try_matches(&full));
            if passes.transpose()?.unwrap_or(true) {
                documents.push(if name_only {
                    doc! {"name": &info.name, "type": info.kind.name()}
                } else {
                    full
                });
            }
        }
        let cursor = Cursor::fixed(format!("{}.$cmd.listCollections", cx.db), documents);
        first_batch(cx, cursor, batch)
    }
}

fn describe(info: &CollectionInfo) -> DocBuf {
    let mut about = doc! {"readOnly": info.kind == CollectionKind::View};
    if let Some(uuid) = &info.uuid {
        let uuid = Value::Binary {
            subtype: 4,
            bytes: uuid,
        };
        about.push("uuid", uuid);
    }
    let mut out = doc! {
        "name": &info.name,
        "type": info.kind.name(),
        "options": &info.options,
        "info": about,
    };
    if let Some(index) = &info.id_index {
        out.push("idIndex", index);
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn collections_are_listed_by_name() {
        let mut server = TestServer::new();
        for name in ["b", "a", "c"] {
            server.run("test", doc! {"create": name});
        }
        let reply = server.run("test", doc! {"listCollections": 1, "nameOnly": true});
        let names: Vec<String> = server
            .batch(&reply, "firstBatch")
            .iter()
            .map(|d| d.get_str("name").unwrap().into())
            .collect();
        assert_eq!(names, ["a", "b", "c"]);
        let ns = reply.get_doc("cursor").and_then(|c| c.get_str("ns"));
        assert_eq!(ns, Some("test.$cmd.listCollections"));

        let one = server.run("test", doc! {"listCollections": 1, "filter": {"name": "b"}});
        let one = server.batch(&one, "firstBatch").remove(0);
        assert_eq!(
            one.get_doc("info")
                .unwrap()
                .get_binary("uuid")
                .unwrap()
                .len(),
            16
        );
        assert_eq!(
            one.get_doc("idIndex").unwrap(),
            &*doc! {"v": 2, "key": {"_id": 1}, "name": "_id_"}
        );

        for (filter, found) in [
            (doc! {"$expr": {"$in": ["$name", ["a", "c", "x"]]}}, 2),
            (doc! {"$expr": {"$eq": ["$type", "view"]}}, 0),
            (
                doc! {"$or": [{"name": "a"}, {"$expr": {"$gt": ["$name", "b"]}}]},
                2,
            ),
            (
                doc! {"$jsonSchema": {"properties": {"name": {"enum": ["b"]}}}},
                1,
            ),
        ] {
            let reply = server.run("test", doc! {"listCollections": 1, "filter": &filter});
            assert_eq!(
                server.batch(&reply, "firstBatch").len(),
                found,
                "{filter:?}"
            );
        }
        for (filter, code) in [
            (doc! {"$where": "true"}, 2),
            (doc! {"$text": {"$search": "x"}}, 2),
            (doc! {"name": {"$near": [0, 0]}}, 5626500),
            (doc! {"$expr": {"$divide": [1, "$name"]}}, 14),
        ] {
            let request = doc! {"listCollections": 1, "filter": &filter};
            assert_eq!(server.code("test", request), code, "{filter:?}");
        }

        let first = server.run(
            "test",
            doc! {"listCollections": 1, "cursor": {"batchSize": 2}},
        );
        let id = first.get_doc("cursor").unwrap().get_i64("id").unwrap();
        assert_ne!(id, 0);
        let rest = server.run(
            "test",
            doc! {"getMore": id, "collection": "$cmd.listCollections"},
        );
        assert_eq!(server.batch(&rest, "nextBatch").len(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_unknown_database_is_empty() {
        let mut server = TestServer::new();
        let reply = server.run("none", doc! {"listCollections": 1, "cursor": {}});
        assert!(server.batch(&reply, "firstBatch").is_empty());
        assert_eq!(server.code("no good", doc! {"listCollections": 1}), 73);
    }
}
