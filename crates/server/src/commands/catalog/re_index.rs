use frond_bson::{DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct ReIndex;

const SPEC: Spec = Spec {
    names: &["reIndex"],
    doc: "Rebuilds all indexes of a collection while writes continue.",
    stable_api: false,
    ..Spec::CATALOG_WRITE
};

impl Command for ReIndex {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::ReIndex)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let store = &cx.server.store;
        if !store.collection_exists(&namespace) {
            return Err(Error::new(
                ErrorCode::NamespaceNotFound,
                "collection does not exist",
            ));
        }
        let indexes = store.list_indexes(&namespace)?;
        // An interrupted build would resume at the next start of the server, so a deadline does not end it.
        let mut limits = cx.limits.clone();
        limits.deadline = None;
        store.rebuild_indexes(&namespace, &limits)?;
        let count = indexes.len() as i32;
        let mut reply = doc! {"nIndexesWas": count, "nIndexes": count};
        reply.push_array("indexes", |list| {
            indexes.iter().for_each(|index| list.push(index));
        });
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn indexes_are_built_anew() {
        let mut server = TestServer::new();
        assert_eq!(server.code("test", doc! {"reIndex": "none"}), 26);
        server.fill("c", 2500);
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [
                {"key": {"a": 1}, "name": "a_1"}, {"key": {"a": -1}, "name": "u", "unique": true},
            ]},
        );
        let reply = server.run("test", doc! {"reIndex": "c"});
        assert_eq!(reply.get_i32("nIndexes"), Some(3));
        assert_eq!(reply.get_array("indexes").unwrap().count(), 3);
        let valid = server.run("test", doc! {"validate": "c"});
        assert_eq!(valid.get_bool("valid"), Some(true));
        assert_eq!(
            valid.get_doc("keysPerIndex").unwrap().get_i64("u"),
            Some(2500)
        );
    }
}
