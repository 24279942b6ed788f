//! The TTL monitor: a thread that now and then deletes the documents that have expired.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use frond_bson::{DocBuf, doc};
use frond_store::OpContext;
use parking_lot::{Condvar, Mutex};

use crate::log::Component;
use crate::metrics::Counter;
use crate::state::{Server, now_ms};

/// How the monitor runs, and what it has done.
#[derive(Debug)]
pub struct Ttl {
    enabled: AtomicBool,
    sleep_secs: AtomicU64,
    /// Documents deleted.
    pub deleted: Counter,
    /// Passes over all indexes.
    pub passes: Counter,
    /// Wakes the monitor when a setting changes.
    changed: (Mutex<()>, Condvar),
}

impl Ttl {
    /// As the operator wants it.
    pub fn new(enabled: bool, sleep: Duration) -> Ttl {
        Ttl {
            enabled: AtomicBool::new(enabled),
            sleep_secs: AtomicU64::new(sleep.as_secs().max(1)),
            deleted: Counter::default(),
            passes: Counter::default(),
            changed: Default::default(),
        }
    }

    /// Whether it deletes anything.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Relaxed)
    }

    /// Switches it on or off.
    pub fn enable(&self, on: bool) {
        self.enabled.store(on, Relaxed);
        self.wake();
    }

    /// Seconds between two passes.
    pub fn sleep_secs(&self) -> u64 {
        self.sleep_secs.load(Relaxed)
    }

    /// Changes [`Ttl::sleep_secs`].
    pub fn set_sleep_secs(&self, seconds: u64) {
        self.sleep_secs.store(seconds.max(1), Relaxed);
        self.wake();
    }

    fn wake(&self) {
        // A monitor that is about to sleep holds the lock, so it does not miss this.
        let _asleep = self.changed.0.lock();
        self.changed.1.notify_all();
    }

    /// Sleeps until the next pass is due. Returns false if a setting changed first.
    fn sleep(&self, stopping: &AtomicBool) -> bool {
        let mut lock = self.changed.0.lock();
        if stopping.load(Relaxed) {
            return false;
        }
        let time = Duration::from_secs(self.sleep_secs());
        self.changed.1.wait_for(&mut lock, time).timed_out()
    }

    /// The section of `serverStatus`.
    pub fn to_doc(&self) -> DocBuf {
        doc! {
            "deletedDocuments": self.deleted.get(),
            "passes": self.passes.get(),
            "subPasses": self.passes.get(),
        }
    }
}

/// The running monitor.
pub struct Monitor {
    server: Arc<Server>,
    context: OpContext,
    thread: JoinHandle<()>,
}

impl Monitor {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(server: &Arc<Server>) -> std::io::Result<Monitor> {
        let context = OpContext::new();
        let (watched, limits) = (server.clone(), context.clone());
        let thread = std::thread::Builder::new()
            .name("frond-ttl".into())
            .spawn(move || {
                while !limits.killed.load(Relaxed) {
                    if watched.ttl.sleep(&limits.killed) && watched.ttl.is_enabled() {
                        pass(&watched, &limits);
                    }
                }
            })?;
        Ok(Monitor {
            server: server.clone(),
            context,
            thread,
        })
    }

    /// Stops it, in the middle of a pass too.
    pub fn stop(self) {
        self.context.killed.store(true, Relaxed);
        self.server.ttl.wake();
        // A panic in it is logged already.
        let _ = tokio::task::block_in_place(|| self.thread.join());
    }
}

/// One pass over all indexes.
pub fn pass(server: &Server, limits: &OpContext) {
    let done = server.store.delete_expired(now_ms(), limits);
    server.ttl.deleted.add(done.deleted);
    server.ttl.passes.add(1);
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
        assert_eq!(server.server.ttl.deleted.get(), 2);
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
