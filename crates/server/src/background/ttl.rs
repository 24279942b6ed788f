//! The TTL monitor: a thread that deletes expired documents at intervals.

use std::sync::Arc;

use frond_bson::doc;
use frond_store::OpContext;

use super::Job;
use crate::host::clock::now_ms;
use crate::observability::log::Component;
use crate::state::Server;

pub struct Monitor {
    server: Arc<Server>,
    job: Job,
}

impl Monitor {
    /// Starts it.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub fn start(server: &Arc<Server>) -> std::io::Result<Monitor> {
        let watched = server.clone();
        let job = Job::start("frond-ttl", move |limits| {
            while !Job::is_interrupted(limits) {
                // On other members documents expire as the primary says.
                let is_due = watched.maintenance.ttl.sleep(&limits.killed)
                    && watched.maintenance.ttl.is_enabled();
                // Of several servers over one keyspace one deletes for all.
                let leads = is_due && watched.store.leads("ttl").unwrap_or(false);
                if leads && watched.leads() {
                    pass(&watched, limits);
                }
            }
        })?;
        Ok(Monitor {
            server: server.clone(),
            job,
        })
    }

    /// Stops it, also in the middle of a pass.
    pub fn stop(self) {
        self.job.interrupt();
        self.server.maintenance.ttl.wake();
        self.job.join();
    }
}

/// One pass over all indexes.
fn pass(server: &Server, limits: &OpContext) {
    // While fsync holds its lock, documents stay.
    let Some(_writing) = server.maintenance.fsync_lock.try_write() else {
        return;
    };
    let done = server.store.delete_expired(now_ms(), limits);
    server.maintenance.ttl.deleted.add(done.deleted);
    if let Some(set) = &server.set.replication
        && done.deleted > 0
    {
        // The entries of the deletes are in the oplog already.
        set.wrote(None);
    }
    server.maintenance.ttl.passes.add(1);
    server.metrics.documents_deleted.add(done.deleted);
    for (ns, index, error) in done.failed {
        let attributes = doc! {
            "namespace": ns.as_str(), "index": index.as_str(), "error": error.to_string(),
        };
        server.log.warning(
            Component::Index,
            5_400_703,
            "TTLMonitor",
            "Error running TTL job on collection",
            &attributes,
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{ArrayBuf, Value};

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn documents_expire_by_their_lowest_date() {
        let mut server = TestServer::new();
        let hour = |hours: i64| Value::DateTime(now_ms() - hours * 3_600_000);
        let dates: ArrayBuf = [hour(-5), hour(5)].into_iter().collect();
        let young: ArrayBuf = [hour(-5), hour(-6)].into_iter().collect();
        server.run(
            "test",
            doc! {"insert": "c", "documents": [
                {"_id": 1, "at": hour(2)},
                {"_id": 2, "at": hour(0)},
                {"_id": 3, "at": dates},
                {"_id": 4, "at": young},
                {"_id": 5, "at": 5},
                {"_id": 6},
                {"_id": 7, "at": "2001-01-01"},
                {"_id": 8, "at": hour(9), "keep": true},
            ]},
        );
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [{
                "key": {"at": -1}, "name": "at", "expireAfterSeconds": 3600, "hidden": true,
                "partialFilterExpression": {"_id": {"$lt": 8}},
            }]},
        );
        pass(&server.server, &OpContext::new());
        let reply = server.run("test", doc! {"find": "c", "sort": {"_id": 1}});
        let left = server.batch(&reply, "firstBatch");
        let ids: Vec<i64> = left.iter().filter_map(|doc| doc.get_i64("_id")).collect();
        assert_eq!(ids, [2, 4, 5, 6, 7, 8]);
        assert_eq!(server.server.maintenance.ttl.deleted.get(), 2);
        let status = server.run("admin", doc! {"serverStatus": 1});
        let ttl = status.get_doc("metrics").unwrap().get_doc("ttl").unwrap();
        assert_eq!(ttl.get_i64("deletedDocuments"), Some(2));
        assert_eq!(ttl.get_i64("passes"), Some(1));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn collections_let_their_documents_expire() {
        let mut server = TestServer::new();
        let hour = |hours: i64| Value::DateTime(now_ms() - hours * 3_600_000);
        for options in [
            doc! {"clusteredIndex": {"key": {"_id": 1}, "unique": true}},
            doc! {"timeseries": {"timeField": "at"}},
        ] {
            let mut create = doc! {"create": "c"};
            create.push_all(&options);
            create.push("expireAfterSeconds", 3600i64);
            server.run("test", create);
            server.run(
                "test",
                doc! {"insert": "c", "documents": [
                    {"_id": hour(2), "at": hour(2), "n": 1},
                    {"_id": hour(0), "at": hour(0), "n": 2},
                    {"_id": hour(3), "at": hour(3), "n": 3},
                ]},
            );
            pass(&server.server, &OpContext::new());
            let reply = server.run("test", doc! {"find": "c"});
            let left = server.batch(&reply, "firstBatch");
            let left: Vec<_> = left.iter().map(|doc| doc.get_i32("n")).collect();
            assert_eq!(left, [Some(2)], "{options:?}");
            server.run("test", doc! {"drop": "c"});
        }
    }
}
