use frond_bson::{DocBuf, doc};
use frond_error::Result;
use frond_store::DatabaseInfo;

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct ListDatabases;

const SPEC: Spec = Spec {
    names: &["listDatabases"],
    doc: "Lists the databases and their sizes.",
    // Without authorization, every database is visible.
    fields: &["nameOnly", "filter", "authorizedDatabases"],
    admin_only: true,
    ..Spec::CATALOG
};

impl Command for ListDatabases {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        // Without the privilege to list all, a user sees the databases on which it has privileges.
        match request.args().bool("authorizedDatabases")? {
            Some(false) => Ok(Needs::cluster(Action::ListDatabases)),
            _ => Ok(Needs::LoggedIn),
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let sees_all = cx.caller.may(&Needs::cluster(Action::ListDatabases));
        let only_own = args.bool("authorizedDatabases")?.unwrap_or(!sees_all);
        let is_seen = |db: &str| !only_own || cx.caller.may(&Needs::SomethingIn(db.into()));
        let name_only = args.flag("nameOnly")?.unwrap_or(false);
        let filter = args.list_filter()?;
        let mut total: i64 = 0;
        let mut reply = DocBuf::new();
        let mut databases = cx.server.store.list_databases()?;
        // MongoDB has these from its first start, and clients rely on them.
        for own in ["admin", "config", "local"] {
            if let Err(place) = databases.binary_search_by(|one| one.name.as_str().cmp(own)) {
                let info = DatabaseInfo {
                    name: own.to_owned(),
                    size_on_disk: 0,
                    empty: false,
                };
                databases.insert(place, info);
            }
        }
        let mut entries = Vec::new();
        for database in databases.iter().filter(|one| is_seen(&one.name)) {
            let size = i64::try_from(database.size_on_disk).unwrap_or(i64::MAX);
            let entry = if name_only {
                doc! {"name": &database.name}
            } else {
                doc! {"name": &database.name, "sizeOnDisk": size, "empty": database.empty}
            };
            let passes = filter.as_ref().map(|filter| filter.try_matches(&entry));
            if passes.transpose()?.unwrap_or(true) {
                total = total.saturating_add(size);
                entries.push(entry);
            }
        }
        reply.push_array("databases", |list| {
            entries.iter().for_each(|entry| list.push(entry));
        });
        if !name_only {
            reply.push("totalSize", total);
            reply.push("totalSizeMb", total >> 20);
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn databases_with_collections_are_listed() {
        let mut server = TestServer::new();
        for db in ["b", "a"] {
            server.run(db, doc! {"insert": "c", "documents": [{"_id": 1}]});
        }
        let reply = server.run("admin", doc! {"listDatabases": 1, "nameOnly": true});
        assert_eq!(
            reply,
            doc! {"databases": [
                {"name": "a"}, {"name": "admin"}, {"name": "b"}, {"name": "config"}, {"name": "local"},
            ], "ok": 1.0}
        );
        let reply = server.run("admin", doc! {"listDatabases": 1, "filter": {"name": "b"}});
        let list = reply.get_array("databases").unwrap();
        assert_eq!(
            (list.count(), list.get_doc("0").unwrap().get_bool("empty")),
            (1, Some(false))
        );
        assert!(reply.get_i64("totalSize").is_some());
        for name_only in [false, true] {
            let filter = doc! {"$expr": {"$lt": ["$name", "admin"]}};
            let request = doc! {"listDatabases": 1, "filter": &filter, "nameOnly": name_only};
            let reply = server.run("admin", request);
            let list = reply.get_array("databases").unwrap();
            assert_eq!(list.count(), 1, "{reply:?}");
        }
        assert_eq!(server.code("a", doc! {"listDatabases": 1}), 13);
    }
}
