use frond_bson::{DocBuf, doc};
use frond_error::{Error, Result};
use frond_store::CollectionStats;

use crate::arguments::Arguments;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::reply::push_count;

pub struct CollStats;

const SPEC: Spec = Spec {
    names: &["collStats", "collstats"],
    doc: "Reports the sizes of a collection and its indexes.",
    fields: &["scale", "waitForLock", "verbose"],
    on_collection: true,
    stable_api: false,
    ..Spec::CATALOG
};

impl Command for CollStats {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::CollStats)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let scale = scale(&cx.args())?;
        let stats = cx.server.store.collection_stats(&namespace)?;
        Ok(describe(namespace.as_str(), &stats, scale))
    }
}

/// The `scale` by which sizes are divided, 1 by default.
pub fn scale(args: &Arguments<'_>) -> Result<u64> {
    match args.i64("scale")? {
        None => Ok(1),
        Some(n) if n > 0 => Ok(n.unsigned_abs()),
        Some(n) => Err(Error::location(
            51024,
            format!("BSON field 'scale' value must be >= 1, actual value '{n}'"),
        )),
    }
}

/// The reply for a collection.
pub fn describe(namespace: &str, stats: &CollectionStats, scale: u64) -> DocBuf {
    let bytes = |bytes: u64| bytes / scale.max(1);
    let mut reply = doc! {"ns": namespace};
    push_count(&mut reply, "size", bytes(stats.size));
    push_count(&mut reply, "count", stats.count);
    if stats.count > 0 {
        push_count(&mut reply, "avgObjSize", stats.avg_obj_size);
    }
    if stats.uncounted_updates > 0 {
        push_count(&mut reply, "uncountedFastUpdates", stats.uncounted_updates);
    }
    reply.push("numOrphanDocs", 0);
    push_count(&mut reply, "storageSize", bytes(stats.storage_size));
    reply.push("freeStorageSize", 0);
    reply.push("capped", stats.capped.is_some());
    if let Some(capped) = stats.capped {
        push_count(&mut reply, "max", capped.documents.unwrap_or(0));
        push_count(&mut reply, "maxSize", bytes(capped.bytes));
    }
    reply.push("nindexes", stats.index_sizes.len() as i32);
    reply.push_array("indexBuilds", |_| ());
    push_count(&mut reply, "totalIndexSize", bytes(stats.total_index_size));
    push_count(
        &mut reply,
        "totalSize",
        bytes(stats.storage_size + stats.total_index_size),
    );
    reply.push_doc("indexSizes", |sizes| {
        for (name, size) in &stats.index_sizes {
            push_count(sizes, name, bytes(*size));
        }
    });
    reply.push("scaleFactor", i32::try_from(scale).unwrap_or(i32::MAX));
    reply
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn sizes_are_reported() {
        let mut server = TestServer::new();
        server.run(
            "test",
            doc! {"insert": "c", "documents": [{"_id": 1, "a": 1}, {"_id": 2, "a": 1}]},
        );
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
        );
        let reply = server.run("test", doc! {"collStats": "c"});
        assert_eq!(
            (reply.get_i32("count"), reply.get_i32("nindexes")),
            (Some(2), Some(2))
        );
        assert_eq!(
            reply.get_i32("avgObjSize"),
            Some(doc! {"_id": 1, "a": 1}.len_bytes() as i32)
        );
        assert!(reply.get_doc("indexSizes").unwrap().contains_key("a_1"));
        let scaled = server.run("test", doc! {"collstats": "c", "scale": 1024});
        assert_eq!(
            (scaled.get_i32("size"), scaled.get_i32("scaleFactor")),
            (Some(0), Some(1024))
        );
        assert_eq!(
            server.code("test", doc! {"collStats": "c", "scale": 0}),
            51024
        );
        let none = server.run("test", doc! {"collStats": "none"});
        assert_eq!(
            (none.get_i32("count"), none.get_i32("nindexes")),
            (Some(0), Some(0))
        );
    }

    /// All commands report the same storage and index sizes.
    fn sizes(server: &mut TestServer) -> (i64, i64) {
        let before = server.run("sizes", doc! {"collStats": "c"});
        let of_db = server.run("sizes", doc! {"dbStats": 1});
        let listed = server.run(
            "admin",
            doc! {"listDatabases": 1, "filter": {"name": "sizes"}},
        );
        let stage = server.run(
            "sizes",
            doc! {"aggregate": "c", "cursor": {}, "pipeline": [{"$collStats": {"storageStats": {}}}]},
        );
        let after = server.run("sizes", doc! {"collStats": "c"});
        if before != after {
            // A checkpoint was written meanwhile.
            return sizes(server);
        }
        let figure = |name: &str| before.get(name).unwrap().as_i64_lossless().unwrap();
        let (storage, indexes) = (figure("storageSize"), figure("totalIndexSize"));
        assert_eq!(figure("totalSize"), storage + indexes);
        let listed_sizes = before.get_doc("indexSizes").unwrap().values();
        let sum: i64 = listed_sizes
            .map(|size| size.as_i64_lossless().unwrap())
            .sum();
        assert_eq!(sum, indexes);
        assert_eq!(of_db.get_i64("storageSize"), Some(storage));
        assert_eq!(of_db.get_i64("indexSize"), Some(indexes));
        let database = listed.get_array("databases").unwrap().get_doc("0").unwrap();
        assert_eq!(database.get_i64("sizeOnDisk"), Some(storage + indexes));
        let stage = server.batch(&stage, "firstBatch").remove(0);
        let stage = stage.get_doc("storageStats").unwrap();
        for name in [
            "storageSize",
            "totalIndexSize",
            "indexSizes",
            "size",
            "count",
        ] {
            assert_eq!(stage.get(name), before.get(name), "{name}");
        }
        (storage, indexes)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_no_checkpoint_has_written_has_a_size() {
        let plain = doc! {"create": "c"};
        let by_insertion = doc! {"create": "c", "naturalOrder": "insertion"};
        let capped = doc! {"create": "c", "capped": true, "size": 8 << 20};
        for create in [plain, by_insertion, capped] {
            are_counted(create);
        }
    }

    fn are_counted(create: DocBuf) {
        let mut server = TestServer::new();
        server.run("sizes", create);
        assert_eq!(sizes(&mut server), (0, 0));
        let mut insert = doc! {"insert": "c"};
        insert.push_array("documents", |list| {
            for n in 0..1000 {
                list.push(&doc! {"_id": n, "text": "abcdefghij".repeat(120)});
            }
        });
        server.run("sizes", insert);
        let (storage, indexes) = sizes(&mut server);
        assert!(storage > 1_200_000 && indexes > 0, "{storage} {indexes}");
        assert!(indexes < storage / 10, "{indexes}");
        let key = doc! {"createIndexes": "c", "indexes": [{"key": {"text": 1}, "name": "text_1"}]};
        server.run("sizes", key);
        let (_, with_index) = sizes(&mut server);
        assert!(with_index > indexes + 4096, "{indexes} {with_index}");
        // A checkpoint compresses the data.
        server.run("admin", doc! {"fsync": 1});
        let (written, written_indexes) = sizes(&mut server);
        assert!(
            (4000..storage / 4).contains(&written),
            "{storage} {written}"
        );
        assert!(written_indexes > 4096, "{written_indexes}");
    }
}
