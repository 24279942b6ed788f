use frond_bson::DocBuf;
use frond_error::Result;

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::cursors::Cursor;
use crate::reply::{BatchOptions, first_batch};

pub struct ListIndexes;

const SPEC: Spec = Spec {
    names: &["listIndexes"],
    doc: "Lists the indexes of a collection.",
    fields: &["cursor"],
    unsupported_fields: &[
        "includeBuildUUIDs",
        "includeIndexBuildInfo",
        "isTimeseriesNamespace",
    ],
    on_collection: true,
    ..Spec::CATALOG
};

impl Command for ListIndexes {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::ListIndexes)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let batch = BatchOptions::of_cursor_field(&cx.args())?;
        let indexes = cx.server.store.list_indexes(&namespace)?;
        first_batch(cx, Cursor::fixed(namespace.as_str(), indexes), batch)
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn indexes_are_listed() {
        let mut server = TestServer::new();
        assert_eq!(server.code("test", doc! {"listIndexes": "c"}), 26);
        server.run("test", doc! {"createIndexes": "c", "indexes": [{"key": {"a": -1}, "name": "x", "unique": true}]});
        let reply = server.run("test", doc! {"listIndexes": "c"});
        let expected = [
            doc! {"v": 2, "key": {"_id": 1}, "name": "_id_"},
            doc! {"v": 2, "key": {"a": -1}, "name": "x", "unique": true},
        ];
        assert_eq!(server.batch(&reply, "firstBatch"), expected);
    }
}
