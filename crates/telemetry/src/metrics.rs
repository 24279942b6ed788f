//! The metrics of a server: Frond's own, and those of `mongodb_exporter`.
//!
//! Both are made from the replies of commands, so `serverStatus` and the metrics cannot differ. Frond's names follow
//! <https://prometheus.io/docs/practices/naming/>: base units, `_total` for what only grows.

use frond_bson::path::get_path;
use frond_bson::{Doc, DocBuf, Value};

use crate::exporter;
use crate::families::{Bucket, Families, Labels};

/// The samples that a scrape reports.
#[derive(Debug, Default)]
pub struct Report {
    /// The reply of `serverStatus`, with the histograms of `opLatencies`.
    pub server_status: DocBuf,
    /// The field `totals` of the reply of `top`.
    pub top: DocBuf,
    /// The reply of `dbStats` for each database, by its name.
    pub databases: Vec<(String, DocBuf)>,
    pub collections: Vec<CollectionStats>,
    /// Collections that are not among them, because there are too many.
    pub collections_left_out: usize,
}

/// Samples of one collection, with those of its indexes.
#[derive(Debug)]
pub struct CollectionStats {
    pub database: String,
    /// The collection in it.
    pub collection: String,
    /// The reply of `collStats`.
    pub storage: DocBuf,
    pub indexes: Vec<IndexStats>,
}

/// Samples of one index of a collection.
#[derive(Debug)]
pub struct IndexStats {
    pub name: String,
    /// Plans that have used it since the server started or the index was made.
    pub accesses: u64,
}

/// The source of a metric.
enum Source {
    /// One figure at a path.
    One(&'static str),
    /// Each figure below a path, with its name as the value of a label.
    Each(&'static str, &'static str),
    /// One figure of each document below a path, with the name of the document as the value of a label.
    Inner(&'static str, &'static str, &'static str),
}

use Source::{Each, Inner, One};

/// A metric of Frond: its name without the prefix, its help, its source, and the factor to its unit.
struct Metric(&'static str, &'static str, Source, f64);

/// Upper bounds of durations in microseconds. Each is a bound of the finer buckets of `opLatencies`, which leaves out those
/// that are empty, so that the counts are exact and the series always the same.
const DURATION_BOUNDS: [u64; 19] = [
    16,
    32,
    64,
    128,
    256,
    512,
    1 << 10,
    1 << 11,
    1 << 12,
    1 << 13,
    1 << 14,
    1 << 15,
    1 << 16,
    1 << 17,
    1 << 18,
    1 << 19,
    1 << 20,
    1 << 22,
    1 << 24,
];

const MEBIBYTE: f64 = 1_048_576.0;
const MILLISECOND: f64 = 1e-3;
const MICROSECOND: f64 = 1e-6;

/// Frond's metrics from `serverStatus`. What ends in `_total` is a counter, anything else a gauge.
#[rustfmt::skip]
const METRICS: &[Metric] = &[
    Metric("uptime_seconds", "Time since the server started.", One("uptimeMillis"), MILLISECOND),
    Metric("operations_total", "Operations by their kind; inserts, updates and deletes by statement.", Each("opcounters", "kind"), 1.0),
    Metric("commands_total", "Runs of each command.", Inner("metrics.commands", "command", "total"), 1.0),
    Metric("command_failures_total", "Runs of each command that failed.", Inner("metrics.commands", "command", "failed"), 1.0),
    Metric("documents_total", "Documents inserted, returned, updated and deleted.", Each("metrics.document", "operation"), 1.0),
    Metric("slow_operations_total", "Operations slower than the threshold of the profiler.", One("metrics.operation.slow"), 1.0),
    Metric("write_conflicts_total", "Writes that were tried again after a conflict.", One("metrics.operation.writeConflicts"), 1.0),
    Metric("scanned_keys_total", "Keys of indexes that queries have read.", One("metrics.queryExecutor.scanned"), 1.0),
    Metric("scanned_documents_total", "Documents that queries have read.", One("metrics.queryExecutor.scannedObjects"), 1.0),
    Metric("collection_scans_total", "Scans of whole collections.", One("metrics.queryExecutor.collectionScans.total"), 1.0),
    Metric("assertions_total", "Errors by their kind; user errors are those of clients.", Each("asserts", "kind"), 1.0),
    Metric("connections", "Connections now open, active, and still available.", Each("connections", "state"), 1.0),
    Metric("connections_created_total", "Connections accepted.", One("connections.totalCreated"), 1.0),
    Metric("connections_rejected_total", "Connections refused because there were too many.", One("connections.rejected"), 1.0),
    Metric("connections_stalled_total", "Connections closed because they stalled while others needed their memory.", One("connections.stalled"), 1.0),
    Metric("network_received_bytes_total", "Bytes of messages from clients, after decompression.", One("network.bytesIn"), 1.0),
    Metric("network_sent_bytes_total", "Bytes of replies to clients, before compression.", One("network.bytesOut"), 1.0),
    Metric("network_requests_total", "Messages from clients.", One("network.numRequests"), 1.0),
    Metric("active_clients", "Operations that run now.", Each("globalLock.activeClients", "kind"), 1.0),
    Metric("waiting_clients", "Operations that wait now.", Each("globalLock.currentQueue", "kind"), 1.0),
    Metric("tickets", "Readers and writers that may run at once.", Inner("queues.execution", "kind", "totalTickets"), 1.0),
    Metric("tickets_out", "Readers and writers that run now.", Inner("queues.execution", "kind", "out"), 1.0),
    Metric("cursors", "Open cursors.", Each("metrics.cursor.open", "state"), 1.0),
    Metric("cursors_opened_total", "Cursors opened.", One("metrics.cursor.totalOpened"), 1.0),
    Metric("cursors_timed_out_total", "Cursors closed because they were idle.", One("metrics.cursor.timedOut"), 1.0),
    Metric("sessions", "Logical sessions.", One("logicalSessionRecordCache.activeSessionsCount"), 1.0),
    Metric("transactions_open", "Open transactions.", One("transactions.currentOpen"), 1.0),
    Metric("transactions_started_total", "Transactions started.", One("transactions.totalStarted"), 1.0),
    Metric("transactions_committed_total", "Transactions committed.", One("transactions.totalCommitted"), 1.0),
    Metric("transactions_aborted_total", "Transactions aborted.", One("transactions.totalAborted"), 1.0),
    Metric("logins_total", "Logins begun, by their mechanism.", Inner("security.authentication.mechanisms", "mechanism", "authenticate.received"), 1.0),
    Metric("logins_successful_total", "Logins that succeeded, by their mechanism.", Inner("security.authentication.mechanisms", "mechanism", "authenticate.successful"), 1.0),
    Metric("ttl_deleted_documents_total", "Documents that TTL indexes have deleted.", One("metrics.ttl.deletedDocuments"), 1.0),
    Metric("ttl_backlog_documents", "Documents that have expired and are still there, about.", One("metrics.ttl.backlog.documents"), 1.0),
    Metric("ttl_backlog_seconds", "Time since the oldest document that is still there has expired.", One("metrics.ttl.backlog.oldestExpiredSecs"), 1.0),
    Metric("resident_memory_bytes", "Memory of the process that is in RAM.", One("mem.resident"), MEBIBYTE),
    Metric("page_faults_total", "Page faults of the process that needed the disk.", One("extra_info.page_faults"), 1.0),
    Metric("memory_limit_bytes", "The memory budget of the process.", One("frond.memory.limit"), 1.0),
    Metric("memory_used_bytes", "Memory of the budget that is in use, by its owner.", Each("frond.memory.used", "owner"), 1.0),
    Metric("memory_free_for_clients_bytes", "Memory of the budget that requests, replies and sorts may still take.", One("frond.memory.free for clients"), 1.0),
    Metric("memory_refused_total", "Requests for memory of the budget that were refused.", One("frond.memory.refused"), 1.0),
    Metric("memory_kept_by_snapshots_bytes", "Memtables that only open snapshots still need.", One("frond.memory.kept by snapshots"), 1.0),
    Metric("cache_limit_bytes", "The size of the cache.", One("frond.cache.maximum bytes configured"), 1.0),
    Metric("cache_pages_bytes", "Pages in the cache.", One("frond.cache.bytes of pages in the cache"), 1.0),
    Metric("cache_blocks_bytes", "Compressed blocks in the cache.", One("frond.cache.bytes of compressed blocks in the cache"), 1.0),
    Metric("cache_memtables_bytes", "Memtables: committed data that is not in the data file yet.", One("frond.cache.bytes of memtables"), 1.0),
    Metric("cache_hits_total", "Look-ups of pages that found them in the cache.", One("frond.cache.hits"), 1.0),
    Metric("cache_misses_total", "Look-ups of pages that did not.", One("frond.cache.misses"), 1.0),
    Metric("cache_block_hits_total", "Misses that found the compressed block in the cache.", One("frond.cache.compressed hits"), 1.0),
    Metric("memtables_waiting", "Full memtables that wait to be fed to the trees.", One("frond.memtables.waiting"), 1.0),
    Metric("memtables_flushed_total", "Memtables fed to the trees.", One("frond.memtables.flushed"), 1.0),
    Metric("trees", "Trees: one for each index, and those of the catalog.", One("frond.trees"), 1.0),
    Metric("disk_reads_total", "Blocks read from the data file.", One("frond.disk.reads"), 1.0),
    Metric("disk_read_bytes_total", "Bytes read from the data file.", One("frond.disk.bytes read"), 1.0),
    Metric("disk_written_bytes_total", "Bytes written to the data file.", One("frond.disk.bytes written"), 1.0),
    Metric("log_written_bytes_total", "Bytes written to the log (the journal).", One("frond.log.bytes written"), 1.0),
    Metric("commits_total", "Commits of the engine.", One("frond.transactions.committed"), 1.0),
    Metric("replica_set_state", "The state of a member of a replica set, with MongoDB's numbers.", One("frond.replicaSet.state"), 1.0),
    Metric("replica_set_primary", "Of a member: 1 while it is the primary.", One("frond.replicaSet.isPrimary"), 1.0),
    Metric("replica_set_has_primary", "Of a member: 1 while it knows a primary.", One("frond.replicaSet.hasPrimary"), 1.0),
    Metric("replica_set_term", "The term that a member is in.", One("frond.replicaSet.term"), 1.0),
    Metric("replica_set_log_bytes", "Bytes of the log that a member keeps for others.", One("frond.replicaSet.logBytes"), 1.0),
    Metric("replica_set_member_state", "The state of each member, as this one knows it.", Inner("frond.replicaSet.members", "member", "state"), 1.0),
    Metric("replica_set_member_up", "1 for each member that answers this one.", Inner("frond.replicaSet.members", "member", "isUp"), 1.0),
    Metric("replica_set_member_lag_seconds", "How far each member is behind the primary.", Inner("frond.replicaSet.members", "member", "lagSeconds"), 1.0),
    Metric("replica_set_member_ping_seconds", "The mean time of an answer of each member.", Inner("frond.replicaSet.members", "member", "pingMicros"), MICROSECOND),
    Metric("replica_set_messages_sent_total", "Requests to other members.", One("frond.replicaSet.messages.sent"), 1.0),
    Metric("replica_set_messages_received_total", "Requests of other members.", One("frond.replicaSet.messages.received"), 1.0),
    Metric("replica_set_sent_bytes_total", "Bytes of messages to other members.", One("frond.replicaSet.messages.bytesSent"), 1.0),
    Metric("replica_set_received_bytes_total", "Bytes of messages from other members.", One("frond.replicaSet.messages.bytesReceived"), 1.0),
    Metric("replica_set_waits_total", "Replies that waited for members.", One("frond.replicaSet.waits.num"), 1.0),
    Metric("replica_set_wait_seconds_total", "Time that replies waited for members.", One("frond.replicaSet.waits.totalMicros"), MICROSECOND),
    Metric("replica_set_wait_timeouts_total", "Write concerns whose time limit was over first.", One("frond.replicaSet.waits.timeouts"), 1.0),
    Metric("elections_total", "Elections that this member stood for, by their cause.", Inner("electionMetrics", "cause", "called"), 1.0),
    Metric("elections_won_total", "Elections that this member won, by their cause.", Inner("electionMetrics", "cause", "successful"), 1.0),
    Metric("step_downs_for_higher_term_total", "Times that this primary ended because another member stood.", One("electionMetrics.numStepDownsCausedByHigherTerm"), 1.0),
    Metric("checkpoints_total", "Checkpoints of the engine.", One("frond.transactions.checkpoints"), 1.0),
    Metric("disk_space_bytes", "Size of the file system of the data directory.", One("frond.disk space.total bytes"), 1.0),
    Metric("disk_space_available_bytes", "Bytes of that file system that are available.", One("frond.disk space.available bytes"), 1.0),
    Metric("disk_space_low", "1 while writes are refused because the disk is nearly full.", One("frond.disk space.low"), 1.0),
    Metric("disk_space_refused_writes_total", "Writes refused because the disk was nearly full.", One("frond.disk space.writes refused"), 1.0),
];

/// Fields of `connections` that are no state of a connection.
const NO_STATES: [&str; 4] = ["totalCreated", "rejected", "stalled", "exhaustIsMaster"];

/// The text of the metrics, of Frond's own names, of those of `mongodb_exporter`, or of both.
pub fn render(report: &Report, own: bool, of_exporter: bool) -> String {
    let mut families = Families::default();
    if own {
        add_own(&mut families, report);
    }
    if of_exporter {
        add_of_exporter(&mut families, report);
    }
    families.encode()
}

fn add_own(families: &mut Families, report: &Report) {
    let status = &report.server_status;
    let version = get_path(status, "frond.version").and_then(|version| version.as_str());
    families.gauge(
        "frond_build_info",
        "1, with the version of Frond as a label.",
        &[("version", version.unwrap_or(""))],
        1.0,
    );
    for metric in METRICS {
        add_metric(families, status, metric);
    }
    if let Some(latencies) = status.get_doc("opLatencies") {
        for (class, stats) in latencies.iter() {
            if let Value::Document(stats) = stats {
                add_latency(families, class, stats);
            }
        }
    }
    let damage = get_path(status, "frond.damage").and_then(|damage| damage.as_array());
    families.gauge(
        "frond_damaged_blocks",
        "Damaged blocks found since the server started.",
        &[],
        damage.map_or(0, |blocks| blocks.iter().count()) as f64,
    );
    families.gauge(
        "frond_collections_left_out",
        "Collections without figures of their own, because there are too many.",
        &[],
        report.collections_left_out as f64,
    );
    for (namespace, usage) in report.top.iter() {
        if let (Some((database, collection)), Value::Document(usage)) =
            (namespace.split_once('.'), usage)
        {
            add_usage(families, database, collection, usage);
        }
    }
    for collection in &report.collections {
        add_collection(families, collection);
    }
}

fn add_metric(families: &mut Families, status: &Doc, metric: &Metric) {
    let Metric(name, help, source, factor) = metric;
    let name = format!("frond_{name}");
    let mut push = |labels: &Labels<'_>, figure: f64| {
        if name.ends_with("_total") {
            families.counter(&name, help, labels, figure * factor)
        } else {
            families.gauge(&name, help, labels, figure * factor)
        }
    };
    match source {
        One(path) => {
            if let Some(figure) = get_path(status, path).and_then(figure) {
                push(&[], figure);
            }
        }
        Each(path, label) => {
            for (field, value) in below(status, path) {
                // A total would count everything twice.
                if field != "total"
                    && !NO_STATES.contains(&field)
                    && let Some(figure) = figure(value)
                {
                    push(&[(label, field)], figure);
                }
            }
        }
        Inner(path, label, inner) => {
            for (field, value) in below(status, path) {
                let value = value.as_doc().and_then(|doc| get_path(doc, inner));
                // There are some hundred commands; those that never ran would be most of the text.
                if let Some(figure) = value.and_then(figure)
                    && (figure != 0.0 || *label != "command")
                {
                    push(&[(label, field)], figure);
                }
            }
        }
    }
}

fn below<'a>(status: &'a Doc, path: &str) -> impl Iterator<Item = (&'a str, Value<'a>)> {
    let section = get_path(status, path).and_then(|section| section.as_doc());
    section.unwrap_or(Doc::empty()).iter()
}

fn figure(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Bool(on) => Some(f64::from(u8::from(on))),
        value => value.as_f64(),
    }
}

/// A class of `opLatencies` as a histogram. Its list `histogram` has for each bucket the lower bound in microseconds and
/// the number of operations in it.
fn add_latency(families: &mut Families, class: &str, stats: &Doc) {
    let long = |doc: &Doc, name: &str| {
        let value = doc.get(name).and_then(|value| value.as_i64_lossless());
        value.map_or(0, |n| u64::try_from(n).unwrap_or(0))
    };
    let listed = stats.get_array("histogram").unwrap_or(Doc::empty());
    let listed: Vec<(u64, u64)> = (listed.iter())
        .filter_map(|(_, bucket)| bucket.as_doc())
        .map(|bucket| (long(bucket, "micros"), long(bucket, "count")))
        .collect();
    let buckets = DURATION_BOUNDS.map(|bound| Bucket {
        upper_bound: bound as f64 * MICROSECOND,
        cumulative_count: (listed.iter())
            .filter(|(lower_bound, _)| *lower_bound < bound)
            .map(|(_, count)| count)
            .sum(),
    });
    families.histogram(
        "frond_operation_duration_seconds",
        "Durations of operations: reads, writes, commands and transactions.",
        &[("class", class)],
        buckets,
        long(stats, "ops"),
        long(stats, "latency") as f64 * MICROSECOND,
    );
}

/// An entry of `top`.
fn add_usage(families: &mut Families, database: &str, collection: &str, usage: &Doc) {
    for kind in [
        "queries", "getmore", "insert", "update", "remove", "commands",
    ] {
        let Some(timed) = usage.get_doc(kind) else {
            continue;
        };
        let labels = [
            ("database", database),
            ("collection", collection),
            ("kind", kind),
        ];
        let count = timed.get("count").and_then(figure).unwrap_or(0.0);
        if count == 0.0 {
            continue;
        }
        families.counter(
            "frond_collection_operations_total",
            "Operations on each collection.",
            &labels,
            count,
        );
        families.counter(
            "frond_collection_operation_seconds_total",
            "Time of the operations on each collection.",
            &labels,
            timed.get("time").and_then(figure).unwrap_or(0.0) * MICROSECOND,
        );
    }
}

fn add_collection(families: &mut Families, stats: &CollectionStats) {
    let labels = [
        ("database", &*stats.database),
        ("collection", &*stats.collection),
    ];
    for (name, help, field) in [
        (
            "frond_collection_documents",
            "Documents of each collection.",
            "count",
        ),
        (
            "frond_collection_data_bytes",
            "Documents of each collection, uncompressed.",
            "size",
        ),
        (
            "frond_collection_storage_bytes",
            "Space of the documents of each collection on disk.",
            "storageSize",
        ),
    ] {
        if let Some(value) = stats.storage.get(field).and_then(figure) {
            families.gauge(name, help, &labels, value);
        }
    }
    let sizes = stats.storage.get_doc("indexSizes");
    let index_label = |name| labels.iter().copied().chain([("index", name)]);
    for (name, size) in sizes.unwrap_or(Doc::empty()).iter() {
        let labels: Vec<_> = index_label(name).collect();
        let help = "Space of each index on disk.";
        let bytes = figure(size).unwrap_or(0.0);
        families.gauge("frond_index_storage_bytes", help, &labels, bytes);
    }
    for index in &stats.indexes {
        let labels: Vec<_> = index_label(&index.name).collect();
        let help = "Plans that have used each index.";
        families.counter(
            "frond_index_accesses_total",
            help,
            &labels,
            index.accesses as f64,
        );
    }
}

fn add_of_exporter(families: &mut Families, report: &Report) {
    families.gauge(
        "mongodb_up",
        "1: the server answers. As mongodb_exporter names it.",
        &[],
        1.0,
    );
    let mut status = DocBuf::new();
    // mongod has no section of this name; its figures have Frond's own names.
    for (name, section) in report
        .server_status
        .iter()
        .filter(|(name, _)| *name != "frond")
    {
        status.push(name, section);
    }
    exporter::add(families, "serverStatus", &status, &[]);
    for (namespace, usage) in report.top.iter() {
        if let (Some((database, collection)), Value::Document(usage)) =
            (namespace.split_once('.'), usage)
        {
            let labels = [("database", database), ("collection", collection)];
            exporter::add(families, "top", usage, &labels);
        }
    }
    for (database, stats) in &report.databases {
        exporter::add(families, "dbstats", stats, &[("database", database)]);
    }
    for of in &report.collections {
        let labels = [("database", &*of.database), ("collection", &*of.collection)];
        exporter::add(families, "collstats.storageStats", &of.storage, &labels);
        for index in &of.indexes {
            let [database, collection] = labels;
            let labels = [database, collection, ("key_name", &index.name)];
            families.gauge(
                "mongodb_indexstats_accesses_ops",
                "Plans that have used each index, as mongodb_exporter names it.",
                &labels,
                index.accesses as f64,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use frond_bson::doc;

    use super::*;

    fn report() -> Report {
        let bucket = |micros: i64, count: i64| doc! {"micros": micros, "count": count};
        Report {
            server_status: doc! {
                "uptimeMillis": 1500i64,
                "opcounters": {"insert": 7i64},
                "connections": {"current": 3i64, "totalCreated": 9i64},
                "globalLock": {"currentQueue": {"total": 5i64, "readers": 2i64, "writers": 3i64}},
                "queues": {"execution": {"read": {"out": 1i64, "totalTickets": 64i64}}},
                "metrics": {"commands": {"find": {"total": 4i64, "failed": 0i64}, "drop": {"total": 0i64}}},
                "opLatencies": {"reads": {
                    "latency": 90i64, "ops": 6i64,
                    "histogram": [&bucket(2, 1), &bucket(16, 2), &bucket(3072, 3)],
                }},
                "frond": {
                    "version": "1", "damage": [{"error": "x"}], "disk space": {"low": true},
                    "memory": {"used": {"sorts": 8i64}},
                    "replicaSet": {"isPrimary": true, "members": {"a.example:1": {"state": 2i32, "isUp": true, "lagSeconds": 3i64}, "b:1": {"isUp": false}}},
                },
                "electionMetrics": {"stepUpCmd": {"called": 2i64, "successful": 1i64}, "numCatchUps": 0i64},
            },
            top: doc! {"note": "t", "db.c.d": {"insert": {"time": 2_000_000i64, "count": 2i64}, "update": {"count": 0i64}}},
            databases: vec![("db".to_string(), doc! {"collections": 1i64})],
            collections: vec![CollectionStats {
                database: "db".to_string(),
                collection: "c.d".to_string(),
                storage: doc! {"count": 2i64, "size": 40i64, "indexSizes": {"_id_": 16i64}},
                indexes: vec![IndexStats {
                    name: "_id_".to_string(),
                    accesses: 11,
                }],
            }],
            collections_left_out: 0,
        }
    }

    fn lines(own: bool, of_exporter: bool) -> HashSet<String> {
        let text = render(&report(), own, of_exporter);
        text.lines().map(str::to_string).collect()
    }

    #[test]
    fn frond_metrics_come_from_the_status() {
        let lines = lines(true, false);
        for line in [
            "frond_build_info{version=\"1\"} 1",
            "frond_uptime_seconds 1.5",
            "# TYPE frond_operations_total counter",
            "frond_operations_total{kind=\"insert\"} 7",
            "frond_connections{state=\"current\"} 3",
            "frond_connections_created_total 9",
            "frond_waiting_clients{kind=\"readers\"} 2",
            "frond_tickets{kind=\"read\"} 64",
            "frond_commands_total{command=\"find\"} 4",
            "frond_operation_duration_seconds_bucket{class=\"reads\",le=\"0.000016\"} 1",
            "frond_operation_duration_seconds_bucket{class=\"reads\",le=\"0.000032\"} 3",
            "frond_operation_duration_seconds_bucket{class=\"reads\",le=\"0.002048\"} 3",
            "frond_operation_duration_seconds_bucket{class=\"reads\",le=\"0.004096\"} 6",
            "frond_operation_duration_seconds_bucket{class=\"reads\",le=\"+Inf\"} 6",
            "frond_operation_duration_seconds_count{class=\"reads\"} 6",
            "frond_damaged_blocks 1",
            "frond_disk_space_low 1",
            "frond_memory_used_bytes{owner=\"sorts\"} 8",
            "frond_replica_set_primary 1",
            "frond_replica_set_member_up{member=\"b:1\"} 0",
            "frond_replica_set_member_lag_seconds{member=\"a.example:1\"} 3",
            "frond_elections_total{cause=\"stepUpCmd\"} 2",
            "frond_elections_won_total{cause=\"stepUpCmd\"} 1",
            "frond_collection_operation_seconds_total{database=\"db\",collection=\"c.d\",kind=\"insert\"} 2",
            "frond_collection_documents{database=\"db\",collection=\"c.d\"} 2",
            "frond_index_storage_bytes{database=\"db\",collection=\"c.d\",index=\"_id_\"} 16",
            "frond_index_accesses_total{database=\"db\",collection=\"c.d\",index=\"_id_\"} 11",
        ] {
            assert!(lines.contains(line), "{line}\n{lines:#?}");
        }
        for absent in [
            "mongodb_",
            "totalCreated",
            "command=\"drop\"",
            "kind=\"total\"",
            "kind=\"update\"",
        ] {
            assert!(!lines.iter().any(|line| line.contains(absent)), "{absent}");
        }
    }

    #[test]
    fn exporter_metrics_have_its_names() {
        let lines = lines(false, true);
        for line in [
            "mongodb_up 1",
            "mongodb_ss_opcounters{legacy_op_type=\"insert\"} 7",
            "mongodb_ss_opLatencies_ops{op_type=\"reads\"} 6",
            "mongodb_ss_wt_concurrentTransactions_out{txn_rw_type=\"read\"} 1",
            "mongodb_top_insert_count{database=\"db\",collection=\"c.d\"} 2",
            "mongodb_dbstats_collections{database=\"db\"} 1",
            "mongodb_collstats_storageStats_count{database=\"db\",collection=\"c.d\"} 2",
            "mongodb_collstats_storageStats_indexSizes{database=\"db\",collection=\"c.d\",index_name=\"_id_\"} 16",
            "mongodb_indexstats_accesses_ops{database=\"db\",collection=\"c.d\",key_name=\"_id_\"} 11",
        ] {
            assert!(lines.contains(line), "{line}\n{lines:#?}");
        }
        assert!(!lines.iter().any(|line| line.contains("frond")));
    }

    #[test]
    fn names_are_unique_and_have_help() {
        let mut names = HashSet::new();
        for Metric(name, help, ..) in METRICS {
            assert!(names.insert(name), "{name} is there twice");
            assert!(help.ends_with('.'), "{name}: {help}");
        }
    }
}
