//! `serverStatus`: the counters that monitoring tools read.

mod agents;
mod replica_set;

use std::sync::atomic::Ordering::Relaxed;

use frond_bson::{DocBuf, Value, doc};
use frond_error::Result;
use frond_javascript::JavaScript;
use frond_store::encryption::KeysInfo;

use super::build_info::COMPATIBLE_VERSION;
use super::hello::describe_role;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::host::clock::now_ms;
use crate::host::memory::process_memory;
use crate::observability::metrics::{Class, Op};
use crate::outcome::TOPOLOGY_WAIT;
use crate::state::Server;
use frond_runtime::Work;

pub struct ServerStatus;

const SPEC: Spec = Spec {
    names: &["serverStatus"],
    doc: "Reports the counters of the server.",
    work: Work::Long,
    // The fields switch sections on and off.
    takes_any_field: true,
    ..Spec::CHEAP
};

impl Command for ServerStatus {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ServerStatus))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        // A section is on unless the client switches it off.
        let is_on = |name: &str| cx.body.get(name).is_none_or(|value| value.truthy());
        let latencies = cx.body.get_doc("opLatencies");
        let histograms = latencies
            .is_some_and(|options| options.get("histograms").is_some_and(|on| on.truthy()));
        if histograms {
            Ok(report_with_histograms(cx.server, is_on))
        } else {
            Ok(report(cx.server, is_on))
        }
    }
}

/// As [`report`], with the histograms of `opLatencies`.
pub fn report_with_histograms(server: &Server, is_on: impl Fn(&str) -> bool) -> DocBuf {
    let mut reply = report(server, |name| name != "opLatencies" && is_on(name));
    reply.push("opLatencies", &op_latencies(server, true));
    reply
}

/// The status of a server, with the sections that are on.
pub fn report(server: &Server, is_on: impl Fn(&str) -> bool) -> DocBuf {
    let uptime = server.instance.started.elapsed();
    let mut reply = doc! {
        "host": server.host_and_port(),
        "version": COMPATIBLE_VERSION,
        "process": "frond",
        "pid": i64::from(std::process::id()),
        "uptime": uptime.as_secs_f64().floor(),
        "uptimeMillis": uptime.as_millis() as i64,
        "uptimeEstimate": uptime.as_secs() as i64,
        "localTime": Value::DateTime(now_ms()),
    };
    let set = server.set.replication.as_ref();
    if set.is_some_and(|set| !set.is_router()) && is_on("repl") {
        reply.push_doc("repl", |repl| {
            let mut role = doc! {"topologyVersion": server.topology_version()};
            describe_role(server, "isWritablePrimary", &mut role);
            repl.push_all(&role);
        });
    }
    if is_on("electionMetrics")
        && let Some(elections) = replica_set::elections(server)
    {
        reply.push("electionMetrics", &elections);
    }
    if let Some(audit) = server.audit.as_ref().filter(|_| is_on("auditLog")) {
        reply.push("auditLog", &audit.status());
    }
    if is_on("encryptionAtRest")
        && let Some(keys) = server.store.keys()
    {
        reply.push("encryptionAtRest", &encryption(server, keys));
    }
    if set.is_some_and(|set| set.is_router()) && is_on("sharding") {
        reply.push("sharding", &doc! {"configsvrConnectionString": crate::sharding::shard_host(&server.settings.tikv.pd)});
    }
    if let Some((stats, instance)) = server.store.tikv_stats().filter(|_| is_on("tikv")) {
        reply.push(
            "tikv",
            &crate::observability::tikv_stats::to_doc(&stats, instance),
        );
    }
    for (name, section) in SECTIONS {
        if is_on(name) {
            reply.push(name, &section(server));
        }
    }
    reply
}

/// The name of a section, and the function that makes it.
type Section = (&'static str, fn(&Server) -> DocBuf);

static SECTIONS: &[Section] = &[
    ("asserts", asserts),
    ("changeStreamPreImages", pre_images),
    ("connections", connections),
    ("catalogStats", agents::catalog_stats),
    ("extra_info", extra_info),
    ("fastUpdates", fast_updates),
    ("flowControl", agents::flow_control),
    ("globalLock", global_lock),
    ("locks", agents::locks),
    ("logicalSessionRecordCache", sessions),
    ("mem", mem),
    ("tcmalloc", agents::tcmalloc),
    ("metrics", metrics),
    ("network", network),
    ("opLatencies", latencies),
    ("opcounters", opcounters),
    ("opcountersRepl", agents::opcounters_repl),
    ("oplogTruncation", oplog_truncation),
    ("queues", agents::queues),
    ("security", agents::security),
    ("storageEngine", storage_engine),
    ("transactions", agents::transactions),
    ("transportSecurity", agents::transport_security),
    ("wiredTiger", agents::wired_tiger),
    ("frond", engine),
];

/// The store keys of an encrypted data directory.
fn encryption(server: &Server, keys: KeysInfo) -> DocBuf {
    let reencrypted = server.maintenance.reencrypted_key.load(Relaxed);
    doc! {
        "encryptionEnabled": true,
        "encryptionCipherMode": "AES256-GCM",
        "allDataIsEncrypted": !keys.accepts_plain,
        "storeKeys": keys.count as i64,
        "currentStoreKey": i64::from(keys.current),
        "allDataHasCurrentStoreKey": reencrypted == keys.current,
    }
}

fn asserts(server: &Server) -> DocBuf {
    let metrics = &server.metrics;
    doc! {
        "regular": metrics.internal_errors.get(),
        "warning": 0i64,
        "msg": metrics.bad_messages.get(),
        "user": metrics.user_errors.get(),
        "tripwire": 0i64,
        "rollovers": 0i64,
    }
}

fn connections(server: &Server) -> DocBuf {
    let current = server.clients.connections.len();
    let active = server.clients.connections.active();
    let connections = server.clients.connections.list();
    let waits = |one: &&std::sync::Arc<crate::connection::Connection>| {
        one.running.lock().waits_for == Some(TOPOLOGY_WAIT)
    };
    let waiting_hellos = connections.iter().filter(waits).count() as i64;
    doc! {
        "current": current as i64,
        "available": server.settings.connections_max.saturating_sub(current) as i64,
        "totalCreated": server.metrics.connections_created.get(),
        "stalled": server.metrics.connections_stalled.get(),
        "rejected": server.metrics.connections_rejected.get(),
        "active": active,
        "threaded": current as i64,
        "exhaustHello": waiting_hellos,
        "awaitingTopologyChanges": waiting_hellos,
        "loadBalanced": 0i64,
    }
}

fn extra_info(_: &Server) -> DocBuf {
    let process = process_memory();
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    // A block has 512 bytes.
    doc! {
        "note": "fields vary by platform",
        "user_time_us": count(process.user_micros),
        "system_time_us": count(process.system_micros),
        "maximum_resident_set_kb": count(process.resident_bytes_max >> 10),
        "input_blocks": count(process.disk_read_bytes >> 9),
        "output_blocks": count(process.disk_written_bytes >> 9),
        "page_reclaims": count(process.page_reclaims),
        "page_faults": count(process.page_faults),
        "threads": count(process.threads),
    }
}

/// There is no global lock; tools read the running and waiting operations from this section.
fn global_lock(server: &Server) -> DocBuf {
    let (mut readers, mut writers) = (0i64, 0i64);
    let (mut queued_readers, mut queued_writers) = (0i64, 0i64);
    for connection in server.clients.connections.list() {
        let running = connection.running.lock();
        if !running.active {
            continue;
        }
        let waits_for = running.waits_for.or(connection.commit_waits.get());
        let count = match (waits_for, running.writes) {
            (None, true) => &mut writers,
            (None, false) => &mut readers,
            (Some(_), true) => &mut queued_writers,
            (Some(_), false) => &mut queued_readers,
        };
        *count += 1;
    }
    doc! {
        "totalTime": i64::try_from(server.instance.started.elapsed().as_micros()).unwrap_or(i64::MAX),
        "currentQueue": {
            "total": queued_readers + queued_writers, "readers": queued_readers, "writers": queued_writers,
        },
        "activeClients": {"total": readers + writers, "readers": readers, "writers": writers},
    }
}

/// The updates that were sent as messages, and those that have failed since.
fn fast_updates(server: &Server) -> DocBuf {
    let stats = server.store.fast_updates();
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    doc! {
        "updates": count(stats.updates()),
        "upserts": count(stats.upserts()),
        "errors": count(stats.errors()),
    }
}

fn sessions(server: &Server) -> DocBuf {
    doc! {"activeSessionsCount": server.clients.sessions.len() as i64}
}

fn mem(_: &Server) -> DocBuf {
    let memory = process_memory();
    doc! {
        "bits": i32::try_from(usize::BITS).unwrap_or(64),
        "resident": (memory.resident_bytes >> 20) as i32,
        "virtual": (memory.virtual_bytes >> 20) as i32,
        "supported": true,
    }
}

fn metrics(server: &Server) -> DocBuf {
    let counters = &server.metrics;
    let cursors = server.clients.cursors.counts();
    let mut out = DocBuf::new();
    out.push_doc("commands", |commands| {
        commands.push("<UNKNOWN>", counters.unknown_commands.get());
        for count in &counters.commands {
            commands.push_doc(count.name, |entry| {
                entry.push("failed", count.failed.get());
                entry.push("total", count.total.get());
            });
        }
    });
    out.push(
        "authorization",
        &doc! {"refused": counters.unauthorized.get()},
    );
    out.push("changeStreams", &server.maintenance.oplog.change_streams());
    out.push(
        "cursor",
        &doc! {
            "timedOut": counters.cursors_timed_out.get(),
            "totalOpened": counters.cursors_opened.get(),
            "movedToDisk": counters.cursors_moved_to_disk.get(),
            "closedForMemory": counters.cursors_closed_for_memory.get(),
            "open": {
                "noTimeout": cursors.no_timeout, "pinned": cursors.pinned, "total": cursors.open,
            },
        },
    );
    out.push(
        "document",
        &doc! {
            "deleted": counters.documents_deleted.get(),
            "inserted": counters.documents_inserted.get(),
            "returned": counters.documents_returned.get(),
            "updated": counters.documents_updated.get(),
        },
    );
    let (journal, members) = (&counters.journal_waits, &counters.replication_waits);
    let millis = (journal.micros.get() + members.micros.get()) / 1000;
    let timeouts = counters.replication_timeouts.get();
    out.push(
        "getLastError",
        &doc! {
            "wtime": {"num": journal.count.get() + members.count.get(), "totalMillis": millis},
            "wtimeouts": timeouts,
            "default": {"unsatisfiable": 0i64, "wtimeouts": 0i64},
        },
    );
    out.push(
        "operation",
        &doc! {
            "scanAndOrder": counters.sorts.get(),
            "writeConflicts": counters.write_conflicts.get(),
            "killedDueToClientDisconnect": counters.killed_for_disconnect.get(),
            "killedDueToMaxTimeMSExpired": counters.killed_for_time.get(),
            "slow": counters.slow_operations.get(),
        },
    );
    out.push(
        "profiler",
        &doc! {
            "written": server.records.profiler.written.get(),
            "dropped": server.records.profiler.dropped.get(),
            "failed": server.records.profiler.failed.get(),
        },
    );
    out.push(
        "query",
        &doc! {
            "multiPlanner": {"classicCount": counters.plan_trials.get()},
            "planCache": {
                "classic": {"hits": counters.plan_cache_hits.get(), "misses": counters.plan_trials.get()},
            },
            "sort": {"spillToDisk": counters.disk_sorts.get()},
        },
    );
    let scans = doc! {
        "nonTailable": counters.finite_scans.get(), "total": counters.collection_scans.get(),
    };
    out.push(
        "queryExecutor",
        &doc! {
            "scanned": counters.keys_examined.get(),
            "scannedObjects": counters.documents_examined.get(),
            "collectionScans": scans,
        },
    );
    let (shapes, bytes, bytes_max) = server.records.query_stats.sizes();
    out.push(
        "queryStats",
        &doc! {
            "numEntries": shapes as i64,
            "numEvicted": server.records.query_stats.evicted.get(),
            "queryStatsStoreSizeEstimateBytes": bytes as i64,
            "maxSizeBytes": bytes_max as i64,
        },
    );
    // Documents never move when they grow.
    out.push("record", &doc! {"moves": 0i64});
    out.push("ttl", &server.maintenance.ttl.to_doc(now_ms()));
    out
}

fn network(server: &Server) -> DocBuf {
    let metrics = &server.metrics;
    doc! {
        "bytesIn": metrics.bytes_in.get(),
        "bytesOut": metrics.bytes_out.get(),
        "physicalBytesIn": metrics.physical_bytes_in.get(),
        "physicalBytesOut": metrics.physical_bytes_out.get(),
        "numRequests": metrics.requests.get(),
    }
}

fn pre_images(server: &Server) -> DocBuf {
    let expiry = server.set.cluster_parameters.pre_image_expiry();
    server.maintenance.oplog.pre_images(expiry)
}

fn oplog_truncation(server: &Server) -> DocBuf {
    server
        .maintenance
        .oplog
        .truncation(server.store.oplog().settings())
}

fn latencies(server: &Server) -> DocBuf {
    op_latencies(server, false)
}

fn op_latencies(server: &Server, histograms: bool) -> DocBuf {
    let mut out = DocBuf::new();
    for (name, class) in Class::NAMED {
        let latencies = server.metrics.latency(class);
        out.push(name, &latencies.to_doc(histograms));
    }
    let transactions = &server.metrics.transactions;
    out.push(
        "transactions",
        &doc! {"latency": transactions.micros.get(), "ops": transactions.count.get()},
    );
    out
}

fn opcounters(server: &Server) -> DocBuf {
    let mut out = DocBuf::new();
    for op in Op::ALL {
        out.push(op.name(), server.metrics.op(op).get());
    }
    out
}

fn storage_engine(server: &Server) -> DocBuf {
    doc! {
        "name": "frond",
        "supportsCommittedReads": true,
        "persistent": true,
        "readOnly": false,
        "backupCursorOpen": server.maintenance.backups.is_open(),
    }
}

fn engine(server: &Server) -> DocBuf {
    let mut section = crate::observability::engine_stats::to_doc(&server.store.engine_stats());
    section.push(
        "memory",
        &crate::observability::engine_stats::memory_to_doc(&server.store),
    );
    if let Some(part) = replica_set::describe(server) {
        section.push("replicaSet", &part);
    }
    if let Some(engine) = &server.execution.javascript {
        section.push("javascript", &javascript(engine));
    }
    section.push("backup", &server.maintenance.backups.to_doc());
    section.push_array("damage", |list| {
        for block in server.store.damage() {
            list.push(&crate::observability::engine_stats::damage_to_doc(&block));
        }
    });
    section
}

fn javascript(engine: &JavaScript) -> DocBuf {
    let int = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let mut section = doc! {
        "heapLimits": int(engine.heap_granted()),
        "heapLimitEach": int(engine.heap_each()),
    };
    if let Some(workers) = engine.workers() {
        section.push(
            "workers",
            &doc! {
                "current": int(workers.current),
                "idle": int(workers.idle),
                "started": count(workers.started),
                "killed": count(workers.killed),
                "lost": count(workers.lost),
            },
        );
    }
    section
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn sections_can_be_switched_off() {
        let mut server = TestServer::new();
        let reply = server.run(
            "admin",
            doc! {"serverStatus": 1, "metrics": 0, "recordStats": 0},
        );
        assert_eq!(reply.get("metrics"), None);
        for (name, _) in SECTIONS {
            assert!(
                *name == "metrics" || reply.get_doc(name).is_some(),
                "{name}"
            );
        }
        assert!(reply.get_doc("mem").unwrap().get_i32("resident").unwrap() > 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn agents_find_their_sections() {
        let mut server = TestServer::new();
        let session = doc! {"id": Value::Binary {subtype: 4, bytes: &[7; 16]}};
        let insert = doc! {"insert": "c", "documents": [{"_id": 1}, {"_id": 2}], "lsid": &session, "txnNumber": 1i64};
        server.run("test", insert.clone());
        let reply = server.run("test", insert);
        assert_eq!(reply.get_i32("n"), Some(2), "the retry does nothing");
        let reply = server.run("admin", doc! {"serverStatus": 1});
        let figure = |path: &str| {
            let mut parts = path.split('/');
            let section = reply.get_doc(parts.next().unwrap()).unwrap();
            let (mut doc, mut value) = (section, None);
            for name in parts {
                value = doc.get(name);
                if let Some(Value::Document(inner)) = value {
                    doc = inner;
                }
            }
            value
                .unwrap_or_else(|| panic!("{path}"))
                .as_i64_lossless()
                .unwrap()
        };
        // The fields that mongostat, exporters and Compass read, each with its minimum value.
        for (path, least) in [
            ("locks/Global/acquireCount/r", 0),
            ("locks/Collection/acquireCount/W", 0),
            ("opcountersRepl/insert", 0),
            ("queues/execution/read/out", 0),
            ("queues/execution/write/totalTickets", 1),
            ("queues/execution/write/available", 0),
            ("transactions/totalStarted", 0),
            ("transactions/currentOpen", 0),
            ("transportSecurity/1.3", 0),
            ("wiredTiger/cache/maximum bytes configured", 1 << 20),
            ("wiredTiger/cache/bytes currently in the cache", 1),
            ("wiredTiger/cache/tracked dirty bytes in the cache", 1),
            ("wiredTiger/cache/pages requested from the cache", 0),
            ("wiredTiger/transaction/transaction checkpoints", 0),
            ("wiredTiger/transaction/transactions committed", 1),
            ("wiredTiger/log/log bytes written", 0),
            ("wiredTiger/block-manager/bytes read", 0),
        ] {
            assert!(figure(path) >= least, "{path}: {}", figure(path));
        }
        assert_eq!(figure("transactions/retriedStatementsCount"), 2);
        let login = reply
            .get_doc("security")
            .unwrap()
            .get_doc("authentication")
            .unwrap();
        let mechanisms = login.get_doc("mechanisms").unwrap();
        let names: Vec<&str> = mechanisms.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["MONGODB-X509", "SCRAM-SHA-1", "SCRAM-SHA-256"]);
        assert_eq!(
            reply.get_doc("storageEngine").unwrap().get_str("name"),
            Some("frond")
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn operations_are_counted() {
        let mut server = TestServer::new();
        server.run(
            "test",
            doc! {"insert": "c", "documents": [{"_id": 1}, {"_id": 2}]},
        );
        server.run("test", doc! {"find": "c"});
        server.run(
            "test",
            doc! {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]},
        );
        server.run(
            "test",
            doc! {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]},
        );
        server.run("test", doc! {"ping": 1});
        server.code("test", doc! {"nonsense": 1});
        server.code("test", doc! {"ping": 1, "x": 1});
        let reply = server.run("admin", doc! {"serverStatus": 1});
        let counters = reply.get_doc("opcounters").unwrap();
        for (name, n) in [
            ("insert", 2),
            ("query", 1),
            ("update", 1),
            ("delete", 1),
            ("getmore", 0),
            ("command", 3),
        ] {
            assert_eq!(counters.get_i64(name), Some(n), "{name}");
        }
        let metrics = reply.get_doc("metrics").unwrap();
        let documents = metrics.get_doc("document").unwrap();
        for (name, n) in [
            ("inserted", 2),
            ("returned", 2),
            ("updated", 1),
            ("deleted", 1),
        ] {
            assert_eq!(documents.get_i64(name), Some(n), "{name}");
        }
        let commands = metrics.get_doc("commands").unwrap();
        assert_eq!(commands.get_i64("<UNKNOWN>"), Some(1));
        let ping = commands.get_doc("ping").unwrap();
        assert_eq!(
            (ping.get_i64("total"), ping.get_i64("failed")),
            (Some(2), Some(1))
        );
    }
}
