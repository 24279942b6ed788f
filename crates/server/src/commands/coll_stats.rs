//! `collStats`

use frond_bson::{DocBuf, doc};
use frond_store::CollectionStats;

use super::{Command, Traits};
use crate::arguments::Arguments;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// Reports the sizes of a collection and its indexes.
pub struct CollStats;

impl Command for CollStats {
    fn names(&self) -> &'static [&'static str] {
        &["collStats", "collstats"]
    }

    fn doc(&self) -> &'static str {
        "Reports the sizes of a collection and its indexes."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["scale", "waitForLock", "verbose"]
    }

    fn traits(&self) -> Traits {
        Traits {
            on_collection: true,
            ..Traits::CATALOG.stable(false)
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let scale = scale(&cx.args())?;
        let stats = cx.server.store.collection_stats(&namespace)?;
        Ok(describe(namespace.as_str(), &stats, scale))
    }
}

/// The `scale` by which sizes are divided: 1 when it is not given.
pub fn scale(args: &Arguments<'_>) -> Result<u64> {
    match args.i64("scale")? {
        None => Ok(1),
        Some(n) if n > 0 => Ok(n.unsigned_abs()),
        Some(n) => Err(Failure::location(
            51024,
            format!("BSON field 'scale' value must be >= 1, actual value '{n}'"),
        )),
    }
}

/// A size divided by the scale.
pub fn scaled(bytes: u64, scale: u64) -> i64 {
    i64::try_from(bytes / scale.max(1)).unwrap_or(i64::MAX)
}

fn describe(namespace: &str, stats: &CollectionStats, scale: u64) -> DocBuf {
    let mut reply = doc! {
        "ns": namespace,
        "size": scaled(stats.size, scale),
        "count": scaled(stats.count, 1),
    };
    if stats.count > 0 {
        reply.push("avgObjSize", scaled(stats.avg_obj_size, 1));
    }
    reply.push("numOrphanDocs", 0);
    reply.push("storageSize", scaled(stats.storage_size, scale));
    reply.push("freeStorageSize", 0i64);
    reply.push("capped", stats.capped.is_some());
    if let Some(capped) = stats.capped {
        let max = capped.documents.unwrap_or(0);
        reply.push("max", i64::try_from(max).unwrap_or(i64::MAX));
        reply.push("maxSize", scaled(capped.bytes, scale));
    }
    reply.push("nindexes", stats.index_sizes.len() as i32);
    reply.push_array("indexBuilds", |_| ());
    reply.push("totalIndexSize", scaled(stats.total_index_size, scale));
    reply.push(
        "totalSize",
        scaled(stats.storage_size + stats.total_index_size, scale),
    );
    reply.push_doc("indexSizes", |sizes| {
        for (name, bytes) in &stats.index_sizes {
            sizes.push(name, scaled(*bytes, scale));
        }
    });
    reply.push("scaleFactor", i32::try_from(scale).unwrap_or(i32::MAX));
    reply
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

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
            (reply.get_i64("count"), reply.get_i32("nindexes")),
            (Some(2), Some(2))
        );
        assert_eq!(
            reply.get_i64("avgObjSize"),
            Some(doc! {"_id": 1, "a": 1}.len_bytes() as i64)
        );
        assert!(reply.get_doc("indexSizes").unwrap().contains_key("a_1"));
        let scaled = server.run("test", doc! {"collstats": "c", "scale": 1024});
        assert_eq!(
            (scaled.get_i64("size"), scaled.get_i32("scaleFactor")),
            (Some(0), Some(1024))
        );
        assert_eq!(
            server.code("test", doc! {"collStats": "c", "scale": 0}),
            51024
        );
        let none = server.run("test", doc! {"collStats": "none"});
        assert_eq!(
            (none.get_i64("count"), none.get_i32("nindexes")),
            (Some(0), Some(0))
        );
    }
}
