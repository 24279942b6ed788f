//! The TTL monitor: a thread that deletes expired documents at intervals.
//!
//! A pass lasts until nothing more has expired, so a backlog is not left until the next one. It consists of sub-passes, as in
//! MongoDB: the indexes take turns, a batch each, until all are done or the time of the sub-pass is over; then they are listed
//! again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::doc;
use frond_store::{Error, Expiring, OpContext};

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
                if !watched.maintenance.ttl.sleep(&limits.killed) {
                    continue;
                }
                match may_delete(&watched) {
                    Some(true) => pass(&watched, limits),
                    Some(false) => measure(&watched, limits),
                    // The other server has the backlog.
                    None => watched.maintenance.ttl.keep_backlog_of(&[]),
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

/// Whether this server deletes what has expired. `None` if another server over the same keyspace does.
fn may_delete(server: &Server) -> Option<bool> {
    let leads = server.store.leads("ttl").unwrap_or(false);
    // On other members of a replica set documents expire as the primary says.
    leads.then(|| server.maintenance.ttl.is_enabled() && server.leads())
}

/// Deletes documents until none is left that has expired.
fn pass(server: &Server, limits: &OpContext) {
    let ttl = &server.maintenance.ttl;
    let mut all = server.store.expiring();
    // Only now, so that an index that is renamed or dropped is not listed for ever.
    ttl.keep_backlog_of(&all);
    while !all.is_empty() {
        if !sub_pass(server, &mut all, limits) {
            return;
        }
        ttl.sub_passes.add(1);
        if !all.is_empty() {
            let listed = server.store.expiring();
            ttl.keep_backlog_of(&listed);
            all = continued(&all, listed);
        }
    }
    ttl.passes.add(1);
}

/// The indexes that there are now. Those that are not done continue where they are; the others begin again, so that none
/// waits for the end of a backlog of another.
fn continued(unfinished: &[Expiring], listed: Vec<Expiring>) -> Vec<Expiring> {
    let known = |one: &Expiring| unfinished.iter().find(|other| other.is_same(one)).cloned();
    let mut all = listed;
    for one in &mut all {
        if let Some(known) = known(one) {
            *one = known;
        }
    }
    all
}

/// Lets each index have a batch in turn, until all are done or the time is over. Those that are done are removed from `all`.
/// False if the pass has to end.
fn sub_pass(server: &Server, all: &mut Vec<Expiring>, limits: &OpContext) -> bool {
    let ttl = &server.maintenance.ttl;
    let begun = Instant::now();
    while !all.is_empty() {
        let mut unfinished = Vec::new();
        for mut expiring in all.drain(..) {
            if limits.check().is_err() || may_delete(server) != Some(true) {
                return false;
            }
            // While fsync holds its lock, documents stay.
            let Some(writing) = server.maintenance.fsync_lock.try_write() else {
                return false;
            };
            let now_ms = now_ms();
            let batch_limits = ttl.limits(&expiring, now_ms);
            let batch =
                (server.store).delete_expired_batch(&mut expiring, now_ms, &batch_limits, limits);
            drop(writing);
            ttl.deleted.add(batch.deleted);
            server.metrics.documents_deleted.add(batch.deleted);
            if let Some(set) = &server.set.replication
                && batch.deleted > 0
            {
                // The entries of the deletes are in the oplog already.
                set.wrote(None);
            }
            note_backlog(server, &expiring, limits);
            if let Some(error) = &batch.error {
                warn(server, &expiring, error);
            } else if batch.more {
                unfinished.push(expiring);
            }
        }
        *all = unfinished;
        if begun.elapsed() >= Duration::from_secs(ttl.batches().sub_pass_secs) {
            break;
        }
    }
    true
}

/// Notes the backlog of all indexes.
fn measure(server: &Server, limits: &OpContext) {
    let all = server.store.expiring();
    server.maintenance.ttl.keep_backlog_of(&all);
    for expiring in &all {
        note_backlog(server, expiring, limits);
    }
}

fn note_backlog(server: &Server, expiring: &Expiring, limits: &OpContext) {
    // An index that cannot be read keeps its last figures; the next batch reports the error.
    if let Ok(Some(backlog)) = server.store.ttl_backlog(expiring, now_ms(), limits) {
        server.maintenance.ttl.note_backlog(expiring, backlog);
    }
}

fn warn(server: &Server, expiring: &Expiring, error: &Error) {
    let attributes = doc! {
        "namespace": expiring.ns().as_str(), "index": expiring.name(), "error": error.to_string(),
    };
    server.log.warning(
        Component::Index,
        5_400_703,
        "TTLMonitor",
        "Error running TTL job on collection",
        &attributes,
    );
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

    /// Its pass deleted documents of one index after the other, and ended with what had expired when it began.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_pass_lasts_until_nothing_more_has_expired() {
        let mut server = TestServer::new();
        let past = Value::DateTime(now_ms() - 3_600_000);
        let parameters = doc! {
            "setParameter": 1, "ttlIndexDeleteTargetDocs": 30, "ttlMonitorSubPassTargetSecs": 0,
        };
        server.run("admin", parameters);
        for name in ["a", "b"] {
            let docs: Vec<_> = (0..100).map(|id| doc! {"_id": id, "at": past}).collect();
            let docs: ArrayBuf = docs.iter().map(|doc| Value::Document(doc)).collect();
            server.run("test", doc! {"insert": name, "documents": &docs});
            let index = doc! {"key": {"at": 1}, "name": "at", "expireAfterSeconds": 0};
            server.run("test", doc! {"createIndexes": name, "indexes": [index]});
        }
        let ttl = |server: &mut TestServer| {
            let status = server.run("admin", doc! {"serverStatus": 1});
            let metrics = status.get_doc("metrics").unwrap();
            metrics.get_doc("ttl").unwrap().to_owned()
        };
        measure(&server.server, &OpContext::new());
        let before = ttl(&mut server);
        let backlog = before.get_doc("backlog").unwrap();
        assert_eq!(backlog.get_i64("documents"), Some(200));
        assert!(backlog.get_i64("oldestExpiredSecs").unwrap() >= 3600);
        pass(&server.server, &OpContext::new());
        let after = ttl(&mut server);
        assert_eq!(after.get_i64("deletedDocuments"), Some(200));
        assert_eq!(after.get_i64("passes"), Some(1));
        // Four batches of 30 for each collection, and a sub-pass for each batch.
        assert_eq!(after.get_i64("subPasses"), Some(4));
        let expected = doc! {"documents": 0i64, "oldestExpiredSecs": 0i64};
        assert_eq!(after.get_doc("backlog").unwrap(), &*expected);
        server.run("test", doc! {"drop": "a"});
        server.run("test", doc! {"drop": "b"});
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
