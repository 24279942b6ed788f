use frond_bson::{DocBuf, doc};
use frond_error::Result;

use super::coll_stats::scale;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::state::Server;

pub struct DbStats;

const SPEC: Spec = Spec {
    names: &["dbStats", "dbstats"],
    doc: "Reports the sizes of a database.",
    fields: &["scale", "freeStorage"],
    stable_api: false,
    ..Spec::CATALOG
};

impl Command for DbStats {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::on_database(request, Action::DbStats))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let scale = scale(&cx.args())?;
        let mut reply = describe(cx.server, cx.db, scale)?;
        if cx.args().flag("freeStorage")?.unwrap_or(false) {
            // Free space is not assigned to databases.
            for name in [
                "freeStorageSize",
                "indexFreeStorageSize",
                "totalFreeStorageSize",
            ] {
                reply.push(name, 0.0);
            }
        }
        Ok(reply)
    }
}

/// The reply for a database.
///
/// # Errors
/// `InvalidNamespace` (73).
pub fn describe(server: &Server, db: &str, scale: u64) -> Result<DocBuf> {
    let stats = server.store.database_stats(db)?;
    let average = if stats.objects == 0 {
        0.0
    } else {
        stats.data_size as f64 / stats.objects as f64
    };
    // MongoDB reports sizes as doubles, and numbers as longs.
    let scaled = |bytes: u64| bytes as f64 / scale.max(1) as f64;
    let mut reply = doc! {
        "db": db,
        "collections": stats.collections as i64,
        "views": stats.views as i64,
        "objects": stats.objects as i64,
        "avgObjSize": average,
        "dataSize": scaled(stats.data_size),
        "storageSize": scaled(stats.storage_size),
        "indexes": stats.indexes as i64,
        "indexSize": scaled(stats.index_size),
        "totalSize": scaled(stats.storage_size + stats.index_size),
        "scaleFactor": scale as i64,
    };
    if let Ok(disk) = rustix::fs::statvfs(&server.settings.db_path) {
        let total = disk.f_blocks.saturating_mul(disk.f_frsize);
        let free = disk.f_bfree.saturating_mul(disk.f_frsize);
        reply.push("fsUsedSize", scaled(total.saturating_sub(free)));
        reply.push("fsTotalSize", scaled(total));
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use frond_bson::{Value, doc};

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn sizes_are_reported() {
        let mut server = TestServer::new();
        server.run(
            "test",
            doc! {"insert": "c", "documents": [{"_id": 1}, {"_id": 2}]},
        );
        server.run("test", doc! {"create": "d"});
        let reply = server.run("test", doc! {"dbStats": 1});
        for (name, n) in [
            ("collections", 2),
            ("objects", 2),
            ("indexes", 2),
            ("scaleFactor", 1),
        ] {
            assert_eq!(reply.get_i64(name), Some(n), "{name}");
        }
        assert_eq!(
            reply.get("dataSize"),
            Some(Value::Double(2.0 * doc! {"_id": 1}.len_bytes() as f64))
        );
        let sizes = [
            "storageSize",
            "indexSize",
            "totalSize",
            "fsUsedSize",
            "fsTotalSize",
            "freeStorageSize",
        ];
        let reply = server.run("test", doc! {"dbStats": 1, "scale": 1024, "freeStorage": 1});
        for name in sizes {
            assert!(matches!(reply.get(name), Some(Value::Double(_))), "{name}");
        }
        assert_eq!(
            server
                .run("none", doc! {"dbstats": 1})
                .get_i64("collections"),
            Some(0)
        );
        assert_eq!(server.code("test", doc! {"dbStats": 1, "scale": -1}), 51024);
    }
}
