//! `addPartition`, `dropPartition`, `getPartitionInfo`, with the fields of TokuMX.

use frond_bson::{DocBuf, OwnedValue};
use frond_error::{Error, Result};
use frond_store::PartitionSelector;

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct AddPartition;

const ADD: Spec = Spec {
    names: &["addPartition"],
    audits: Audited::Itself,
    doc: "Ends the last partition of a collection, with `newMax` or its greatest value, and begins the next one.",
    fields: &["newMax"],
    stable_api: false,
    ..Spec::CATALOG_WRITE
};

impl Command for AddPartition {
    fn spec(&self) -> &'static Spec {
        &ADD
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::CollMod)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let max = cx.args().doc_field("newMax")?;
        let id = cx.server.store.add_partition(&namespace, max)?;
        let mut reply = DocBuf::new();
        reply.push("id", id);
        Ok(reply)
    }
}

pub struct DropPartition;

const DROP: Spec = Spec {
    names: &["dropPartition"],
    audits: Audited::Itself,
    doc: "Drops the partition `id` of a collection, or all up to `max`, with their documents.",
    fields: &["id", "max"],
    stable_api: false,
    ..Spec::CATALOG_WRITE
};

impl Command for DropPartition {
    fn spec(&self) -> &'static Spec {
        &DROP
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::DropCollection)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let args = cx.args();
        let which = match (args.get("id"), args.doc_field("max")?) {
            (Some(id), None) => PartitionSelector::Id(OwnedValue::from(id)),
            (None, Some(max)) => PartitionSelector::Through(max.to_owned()),
            _ => {
                return Err(Error::bad_value(
                    "'dropPartition' needs either 'id' or 'max'",
                ));
            }
        };
        let (partitions, documents) = cx.server.store.drop_partitions(&namespace, &which)?;
        let mut reply = DocBuf::new();
        reply.push(
            "nPartitionsDropped",
            i64::try_from(partitions).unwrap_or(i64::MAX),
        );
        reply.push("nDocuments", documents);
        Ok(reply)
    }
}

pub struct GetPartitionInfo;

const INFO: Spec = Spec {
    names: &["getPartitionInfo"],
    doc: "Lists the partitions of a collection, with their documents and bytes.",
    on_collection: true,
    stable_api: false,
    ..Spec::CATALOG
};

impl Command for GetPartitionInfo {
    fn spec(&self) -> &'static Spec {
        &INFO
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::CollStats)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let partitions = cx.store().partitions(&namespace)?;
        let mut reply = DocBuf::new();
        reply.push(
            "numPartitions",
            i64::try_from(partitions.len()).unwrap_or(i64::MAX),
        );
        reply.push_array("partitions", |list| {
            for partition in &partitions {
                list.push(partition);
            }
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
    async fn partitions_are_added_shown_and_dropped() {
        let mut server = TestServer::new();
        server.run(
            "test",
            doc! {"create": "c", "primaryKey": {"n": 1, "_id": 1}, "partitioned": true},
        );
        let insert = |from: i32| doc! {"insert": "c", "documents": [{"_id": from, "n": from}]};
        server.run("test", insert(1));
        let added = server.run("test", doc! {"addPartition": "c"});
        assert_eq!(added.get_i64("id"), Some(1));
        server.run("test", insert(2));
        let info = server.run("test", doc! {"getPartitionInfo": "c"});
        assert_eq!(info.get_i64("numPartitions"), Some(2));
        let dropped = server.run("test", doc! {"dropPartition": "c", "id": 0});
        assert_eq!(dropped.get_i64("nDocuments"), Some(1));
        server.fill("d", 1);
        server.run("test", doc! {"create": "v", "viewOn": "c", "pipeline": []});
        for (command, code) in [
            (doc! {"addPartition": "d"}, 20),
            (doc! {"addPartition": "none"}, 26),
            (doc! {"addPartition": "v"}, 166),
            (doc! {"addPartition": "c", "newMax": 5}, 14),
            (doc! {"addPartition": "c", "newMax": {"n": 1}}, 2),
            (doc! {"addPartition": "c", "x": 1}, 40415),
            (doc! {"dropPartition": "c"}, 2),
            (doc! {"dropPartition": "c", "id": 1, "max": {"n": 5}}, 2),
            (doc! {"dropPartition": "c", "id": 0}, 2),
            (doc! {"dropPartition": "c", "id": "x"}, 2),
            (doc! {"dropPartition": "d", "id": 0}, 20),
            (doc! {"dropPartition": "c", "max": {"_id": 5}}, 72),
            (doc! {"getPartitionInfo": "d"}, 20),
            (doc! {"getPartitionInfo": "none"}, 26),
        ] {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }
}
