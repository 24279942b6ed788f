//! Counters for `serverStatus` and `top`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use frond_bson::{Doc, DocBuf, doc};
use frond_store::OpStats;
use frond_striped::Striped;
use parking_lot::RwLock;

use crate::observability::histogram::Histogram;

/// A counter that many threads add to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The count, as a BSON long.
    pub fn get(&self) -> i64 {
        i64::try_from(self.0.load(Relaxed)).unwrap_or(i64::MAX)
    }
}

/// A counter to which nearly every command adds. Threads have copies of it.
#[derive(Debug, Default)]
pub struct BusyCounter(Striped<AtomicU64>);

impl BusyCounter {
    pub fn add(&self, n: u64) {
        self.0.own().fetch_add(n, Relaxed);
    }

    /// The count, as a BSON long.
    pub fn get(&self) -> i64 {
        let sum: u64 = self.0.iter().map(|part| part.load(Relaxed)).sum();
        i64::try_from(sum).unwrap_or(i64::MAX)
    }
}

/// The kinds of operations in `opcounters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Insert,
    Query,
    Update,
    Delete,
    /// Batches fetched from cursors.
    GetMore,
    Command,
}

impl Op {
    /// Every kind, in the order of the reply.
    pub const ALL: [Op; 6] = [
        Op::Insert,
        Op::Query,
        Op::Update,
        Op::Delete,
        Op::GetMore,
        Op::Command,
    ];

    /// The name in the reply.
    pub fn name(self) -> &'static str {
        match self {
            Op::Insert => "insert",
            Op::Query => "query",
            Op::Update => "update",
            Op::Delete => "delete",
            Op::GetMore => "getmore",
            Op::Command => "command",
        }
    }
}

/// The class of an operation, for `opLatencies` and `top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Read,
    Write,
    Command,
}

impl Class {
    /// Every class, with its name in replies.
    pub const NAMED: [(&'static str, Class); 3] = [
        ("reads", Class::Read),
        ("writes", Class::Write),
        ("commands", Class::Command),
    ];
}

/// Number and total time of operations.
#[derive(Debug, Default)]
pub struct Timed {
    pub count: Counter,
    /// Total time in microseconds.
    pub micros: Counter,
}

impl Timed {
    pub fn record(&self, took: Duration) {
        self.count.add(1);
        self.micros.add(micros(took));
    }

    fn add(&self, other: &Timed) {
        self.count.0.fetch_add(other.count.0.load(Relaxed), Relaxed);
        (self.micros.0).fetch_add(other.micros.0.load(Relaxed), Relaxed);
    }
}

/// The latencies of operations.
#[derive(Debug, Default)]
pub struct Latencies {
    /// Their number and their sum.
    pub timed: Timed,
    pub histogram: Histogram,
}

impl Latencies {
    pub fn record(&self, took: Duration) {
        self.timed.record(took);
        self.histogram.add(micros(took));
    }

    /// The sum of the copies that threads have.
    fn sum(parts: &Striped<Latencies>) -> Latencies {
        let sum = Latencies::default();
        for part in parts.iter() {
            sum.timed.add(&part.timed);
            sum.histogram.add_all(&part.histogram);
        }
        sum
    }

    /// As `opLatencies` and `$collStats` show them.
    pub fn to_doc(&self, histograms: bool) -> DocBuf {
        let mut out = DocBuf::new();
        if histograms {
            self.histogram.push_to(&mut out);
        }
        out.push("latency", self.timed.micros.get());
        out.push("ops", self.timed.count.get());
        out
    }
}

/// A duration in whole microseconds.
pub fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// Runs and failures of a command.
#[derive(Debug, Default)]
pub struct CommandCount {
    pub name: &'static str,
    pub total: BusyCounter,
    pub failed: Counter,
}

/// Time spent on a collection, as `top` shows it.
#[derive(Debug, Default)]
pub struct Usage {
    /// Finds, counts, distincts, aggregations.
    pub queries: Timed,
    pub getmore: Timed,
    pub insert: Timed,
    pub update: Timed,
    pub remove: Timed,
    pub commands: Timed,
    /// All operations that read.
    pub reads: Latencies,
    /// All operations that write.
    pub writes: Latencies,
    pub others: Latencies,
    /// Queries that scanned the whole collection.
    pub collection_scans: Counter,
    /// Those of them that do not wait at the end of a capped collection for more.
    pub finite_scans: Counter,
    /// Whether `top` has it no longer, because its collection was dropped.
    is_forgotten: AtomicBool,
}

/// The usage of the last collection of a connection. The next command on that collection then needs neither the lock of `top` nor a
/// new reference to the usage: all threads would write to both.
#[derive(Debug, Default)]
pub struct LastUsed {
    namespace: String,
    usage: Option<Arc<Usage>>,
}

impl LastUsed {
    /// The usage of a collection, which `find` looks up if it is not the last one.
    fn get(
        &mut self,
        namespace: &str,
        find: impl FnOnce(&str) -> Option<Arc<Usage>>,
    ) -> Option<&Usage> {
        let known = (self.usage.as_ref()).is_some_and(|usage| !usage.is_forgotten.load(Relaxed));
        if !known || self.namespace != namespace {
            self.usage = find(namespace);
            self.namespace.clear();
            self.namespace.push_str(namespace);
        }
        self.usage.as_deref()
    }
}

impl Usage {
    /// The latencies of a class of operations.
    pub fn latencies(&self, class: Class) -> &Latencies {
        match class {
            Class::Read => &self.reads,
            Class::Write => &self.writes,
            Class::Command => &self.others,
        }
    }
}

/// Collections in `top`, so that requests for ever more names cannot fill the memory.
const TOP_MAX: usize = 20_000;

/// All counters of a server.
#[derive(Debug, Default)]
pub struct Metrics {
    ops: [BusyCounter; Op::ALL.len()],
    latencies: [Striped<Latencies>; 3],
    /// Transactions that have ended, from their beginning.
    pub transactions: Timed,
    /// Waits for tickets: of those who read, of those who write.
    pub ticket_waits: [Timed; 2],
    /// Writes that waited for the journal.
    pub journal_waits: Timed,
    /// Replies that waited for other members of the set.
    pub replication_waits: Timed,
    /// Those whose write concern had a limit that was over first.
    pub replication_timeouts: Counter,
    /// By the index of the command in the table.
    pub commands: Vec<CommandCount>,
    /// Commands refused because the client is not logged in, or lacks a privilege.
    pub unauthorized: Counter,
    /// Requests for commands that do not exist.
    pub unknown_commands: Counter,
    /// Bytes of messages from clients, after decompression.
    pub bytes_in: BusyCounter,
    /// Bytes of replies to clients, before compression.
    pub bytes_out: BusyCounter,
    /// Bytes read from sockets.
    pub physical_bytes_in: BusyCounter,
    /// Bytes written to sockets.
    pub physical_bytes_out: BusyCounter,
    pub requests: BusyCounter,
    /// Operations slower than the threshold.
    pub slow_operations: Counter,
    /// Errors caused by clients.
    pub user_errors: Counter,
    /// Panics and internal errors.
    pub internal_errors: Counter,
    pub bad_messages: Counter,
    pub connections_created: Counter,
    /// Connections refused because there were too many.
    pub connections_rejected: Counter,
    /// Connections closed because they stalled while they held memory that others needed.
    pub connections_stalled: Counter,
    /// Documents inserted, by any command.
    pub documents_inserted: BusyCounter,
    /// Documents returned, by any command.
    pub documents_returned: BusyCounter,
    /// Documents updated, by any command.
    pub documents_updated: BusyCounter,
    /// Documents deleted, by any command.
    pub documents_deleted: BusyCounter,
    /// Index keys examined, by any command.
    pub keys_examined: BusyCounter,
    /// Documents examined, by any command.
    pub documents_examined: BusyCounter,
    /// Commits refused because another writer was faster.
    pub write_conflicts: Counter,
    /// Operations that ended because their client had disconnected.
    pub killed_for_disconnect: Counter,
    /// Operations that ended at their time limit.
    pub killed_for_time: Counter,
    /// Operations that sorted, because no index gave the order.
    pub sorts: Counter,
    /// Operations that wrote temporary files.
    pub disk_sorts: Counter,
    /// Queries whose plan was known.
    pub plan_cache_hits: Counter,
    /// Queries for which several plans were tried.
    pub plan_trials: Counter,
    /// Queries that scanned a whole collection.
    pub collection_scans: Counter,
    /// Those of them that do not wait at the end of a capped collection for more.
    pub finite_scans: Counter,
    pub cursors_opened: Counter,
    /// Cursors closed by the idle timeout.
    pub cursors_timed_out: Counter,
    /// Times that an idle cursor moved what it kept in memory to disk.
    pub cursors_moved_to_disk: Counter,
    /// Idle cursors closed because memory was scarce.
    pub cursors_closed_for_memory: Counter,
    top: Top,
}

/// The use of collections, by name.
type Top = Arc<RwLock<HashMap<String, Arc<Usage>>>>;

impl Metrics {
    /// Reads the statistics of a collection's use: `latencyStats` and `queryExecStats` of `$collStats`.
    pub fn teller(&self) -> impl Fn(&str, &str, &Doc) -> DocBuf + Send + Sync + 'static {
        let top = self.top.clone();
        move |namespace, part, options| {
            let usage = top.read().get(namespace).cloned().unwrap_or_default();
            let mut out = DocBuf::new();
            if part == "queryExecStats" {
                let (total, finite) = (&usage.collection_scans, &usage.finite_scans);
                let scans = doc! {"total": total.get(), "nonTailable": finite.get()};
                out.push("collectionScans", &scans);
                return out;
            }
            let histograms = options.get("histograms").is_some_and(|on| on.truthy());
            for (name, class) in Class::NAMED {
                out.push(name, &usage.latencies(class).to_doc(histograms));
            }
            out.push("transactions", &Latencies::default().to_doc(histograms));
            out
        }
    }

    /// New counters. `commands` are the proper names of the commands, in the order of their table.
    pub fn new(commands: impl IntoIterator<Item = &'static str>) -> Metrics {
        let count = |name| CommandCount {
            name,
            ..CommandCount::default()
        };
        Metrics {
            commands: commands.into_iter().map(count).collect(),
            ..Metrics::default()
        }
    }

    pub fn count(&self, op: Op, n: u64) {
        self.op(op).add(n);
    }

    /// The counter of a kind of operation.
    pub fn op(&self, op: Op) -> &BusyCounter {
        let [insert, query, update, delete, getmore, command] = &self.ops;
        match op {
            Op::Insert => insert,
            Op::Query => query,
            Op::Update => update,
            Op::Delete => delete,
            Op::GetMore => getmore,
            Op::Command => command,
        }
    }

    /// The times of a class of operations.
    pub fn latency(&self, class: Class) -> Latencies {
        Latencies::sum(self.latencies(class))
    }

    fn latencies(&self, class: Class) -> &Striped<Latencies> {
        let [reads, writes, commands] = &self.latencies;
        match class {
            Class::Read => reads,
            Class::Write => writes,
            Class::Command => commands,
        }
    }

    /// Adds what an operation has examined.
    pub fn add_stats(&self, op_stats: &OpStats) {
        for (counter, n) in [
            (&self.keys_examined, op_stats.keys_examined),
            (&self.documents_examined, op_stats.docs_examined),
        ] {
            if n > 0 {
                counter.add(n);
            }
        }
        for (counter, n) in [
            (&self.write_conflicts, op_stats.write_conflicts),
            (&self.sorts, u64::from(op_stats.has_sort_stage)),
            (&self.disk_sorts, u64::from(op_stats.used_disk)),
            (&self.plan_cache_hits, u64::from(op_stats.from_plan_cache)),
            (&self.plan_trials, u64::from(op_stats.from_multi_planner)),
        ] {
            if n > 0 {
                counter.add(n);
            }
        }
    }

    /// Counts the scan of a whole collection by a query.
    pub fn count_scan(&self, last: &mut LastUsed, namespace: &str, is_finite: bool) {
        let usage = (!namespace.is_empty()).then(|| last.get(namespace, |name| self.usage(name)));
        let of_collection = usage.flatten().into_iter().flat_map(|usage| {
            let finite = is_finite.then_some(&usage.finite_scans);
            [Some(&usage.collection_scans), finite]
        });
        let finite = is_finite.then_some(&self.finite_scans);
        let all = of_collection.chain([Some(&self.collection_scans), finite]);
        all.flatten().for_each(|counter| counter.add(1));
    }

    /// Records an operation on a namespace.
    pub fn record(
        &self,
        last: &mut LastUsed,
        namespace: &str,
        op: Op,
        class: Class,
        took: Duration,
    ) {
        self.latencies(class).own().record(took);
        if namespace.is_empty() {
            return;
        }
        let Some(usage) = last.get(namespace, |name| self.usage(name)) else {
            return;
        };
        match op {
            Op::Insert => &usage.insert,
            Op::Query => &usage.queries,
            Op::Update => &usage.update,
            Op::Delete => &usage.remove,
            Op::GetMore => &usage.getmore,
            Op::Command => &usage.commands,
        }
        .record(took);
        usage.latencies(class).record(took);
    }

    fn usage(&self, namespace: &str) -> Option<Arc<Usage>> {
        if let Some(usage) = self.top.read().get(namespace) {
            return Some(usage.clone());
        }
        let mut top = self.top.write();
        if top.len() >= TOP_MAX && !top.contains_key(namespace) {
            return None;
        }
        Some(top.entry(namespace.to_string()).or_default().clone())
    }

    /// Removes a dropped collection, or a whole database if the name ends in a dot.
    pub fn forget(&self, namespace: &str) {
        let mut top = self.top.write();
        if namespace.ends_with('.') {
            top.retain(|name, usage| {
                let stays = !name.starts_with(namespace);
                if !stays {
                    usage.is_forgotten.store(true, Relaxed);
                }
                stays
            });
        } else if let Some(usage) = top.remove(namespace) {
            usage.is_forgotten.store(true, Relaxed);
        }
    }

    /// The usage of all collections, by name.
    pub fn top(&self) -> Vec<(String, Arc<Usage>)> {
        let mut all: Vec<_> = self
            .top
            .read()
            .iter()
            .map(|(name, usage)| (name.clone(), usage.clone()))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_kept_by_collection() {
        let metrics = Metrics::default();
        let mut last = LastUsed::default();
        let mut record = |namespace, op, class| {
            metrics.record(&mut last, namespace, op, class, Duration::from_micros(7));
        };
        record("db.a", Op::Insert, Class::Write);
        record("db.a", Op::Query, Class::Read);
        record("db2.b", Op::Command, Class::Command);
        record("", Op::Command, Class::Command);
        let top = metrics.top();
        assert_eq!(
            top.iter()
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>(),
            ["db.a", "db2.b"]
        );
        let a = &top[0].1;
        assert_eq!(
            (
                a.insert.count.get(),
                a.insert.micros.get(),
                a.writes.timed.count.get()
            ),
            (1, 7, 1)
        );
        assert_eq!((a.reads.timed.count.get(), a.commands.count.get()), (1, 0));
        assert_eq!(metrics.latency(Class::Command).timed.count.get(), 2);
        metrics.forget("db.");
        assert_eq!(metrics.top().len(), 1);
        metrics.forget("db2.b");
        assert!(metrics.top().is_empty());
    }

    #[test]
    fn a_collection_that_was_dropped_and_made_again_is_counted_anew() {
        let metrics = Metrics::default();
        let mut last = LastUsed::default();
        for forgotten in ["db.a", "db."] {
            for _ in 0..2 {
                let took = Duration::ZERO;
                metrics.record(&mut last, "db.a", Op::Query, Class::Read, took);
            }
            metrics.count_scan(&mut last, "db.a", true);
            let (_, usage) = metrics.top().remove(0);
            assert_eq!(usage.queries.count.get(), 2, "{forgotten}");
            assert_eq!(usage.finite_scans.get(), 1, "{forgotten}");
            metrics.forget(forgotten);
        }
    }

    #[test]
    fn names_of_collections_are_bounded() {
        let metrics = Metrics::default();
        for n in 0..TOP_MAX + 10 {
            let (name, mut last) = (format!("db.{n}"), LastUsed::default());
            metrics.record(&mut last, &name, Op::Query, Class::Read, Duration::ZERO);
        }
        assert_eq!(metrics.top().len(), TOP_MAX);
    }
}
