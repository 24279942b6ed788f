use std::sync::Arc;

use frond_bson::{Doc, DocBuf};
use frond_error::{Error, Result};
use frond_store::index::spec::IndexSpec;

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::context::Context;

pub struct CreateIndexes;

const SPEC: Spec = Spec {
    names: &["createIndexes"],
    doc: "Creates indexes, also over existing documents.",
    // Every commit quorum of a standalone server is reached when the build is done.
    fields: &[
        "collectionUUID",
        "indexes",
        "commitQuorum",
        "ignoreUnknownIndexOptions",
    ],
    unsupported_fields: &["isTimeseriesNamespace"],
    in_transactions: InTransactions::Always,
    ..Spec::CATALOG_WRITE
};

impl Command for CreateIndexes {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::CreateIndex)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let args = cx.args();
        let specs = cx.documents("indexes")?;
        if specs.is_empty() {
            return Err(Error::bad_value(
                "Must specify at least one index to create",
            ));
        }
        let ignore = args.flag("ignoreUnknownIndexOptions")? == Some(true);
        let known = |spec: &&Doc| {
            if ignore {
                IndexSpec::known(spec)
            } else {
                (*spec).to_owned()
            }
        };
        let specs: Vec<DocBuf> = specs.iter().map(known).collect();
        let specs: Vec<&Doc> = specs.iter().map(|spec| &**spec).collect();
        specs
            .iter()
            .try_for_each(|spec| IndexSpec::check_has_name(spec))?;
        let progress = cx.limits.progress.insert(Arc::default()).clone();
        cx.connection.running.lock().progress = Some(progress);
        let made = cx.store().build_indexes(&namespace, &specs, &cx.limits)?;
        let mut reply = DocBuf::new();
        reply.push("numIndexesBefore", made.before as i32);
        reply.push("numIndexesAfter", made.after as i32);
        if made.before == made.after {
            reply.push("note", "all indexes already exist");
        } else {
            reply.push("createdCollectionAutomatically", made.created_collection);
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn indexes_are_made_once() {
        let mut server = TestServer::new();
        let command = doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]};
        let made = doc! {
            "numIndexesBefore": 1, "numIndexesAfter": 2, "createdCollectionAutomatically": true,
            "ok": 1.0,
        };
        assert_eq!(server.run("test", command.clone()), made);
        let again = doc! {
            "numIndexesBefore": 2, "numIndexesAfter": 2, "note": "all indexes already exist",
            "ok": 1.0,
        };
        assert_eq!(server.run("test", command), again);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_indexes_are_refused() {
        let mut server = TestServer::new();
        server.run(
            "test",
            doc! {"insert": "c", "documents": [{"a": 1}, {"a": 1}]},
        );
        let cases = [
            (doc! {"createIndexes": "c", "indexes": []}, 2),
            (doc! {"createIndexes": "c"}, 40414),
            (doc! {"createIndexes": "c", "indexes": [1]}, 14),
            (
                doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "u", "unique": true}]},
                11000,
            ),
            (
                doc! {"createIndexes": "c", "indexes": [{"key": {"a": "nonsense"}, "name": "x"}]},
                67,
            ),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }
}
