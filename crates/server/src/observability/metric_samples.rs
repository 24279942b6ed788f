//! The metrics that the history keeps, and samples of them.

use frond_store::{DocumentStore, EngineStats, MemoryBudget, MemoryUse};
use frond_telemetry::history::{Kind, Metric, Sample};

use crate::host::memory::process_memory;
use crate::observability::metrics::{Class, Metrics, Op};
use frond_runtime::{AdmissionClass, Executor};

/// The source of a sample.
pub struct Sources<'a> {
    pub metrics: &'a Metrics,
    pub store: &'a DocumentStore,
    pub executor: &'a Executor,
    pub connections: u64,
    /// Connections with an operation that runs.
    pub active_connections: u64,
    pub open_cursors: u64,
    pub open_transactions: u64,
}

/// The statistics that all metrics of a sample share.
struct Read<'a> {
    from: &'a Sources<'a>,
    engine: EngineStats,
    memory: &'a MemoryBudget,
    resident: u64,
    cpu_millis: u64,
}

type Row = (&'static str, Kind, fn(&Read<'_>) -> u64);

fn whole(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

fn ops(read: &Read<'_>, op: Op) -> u64 {
    whole(read.from.metrics.op(op).get())
}

fn count(read: &Read<'_>, class: Class) -> u64 {
    whole(read.from.metrics.latency(class).timed.count.get())
}

fn micros(read: &Read<'_>, class: Class) -> u64 {
    whole(read.from.metrics.latency(class).timed.micros.get())
}

fn held(read: &Read<'_>, class: AdmissionClass) -> u64 {
    (class.tickets() as u64).saturating_sub(read.from.executor.available(class) as u64)
}

/// Names, kinds and sources. The files of the history have the names, so that a metric can be added or removed.
#[rustfmt::skip]
static ROWS: &[Row] = {
    use Kind::{Counter, Gauge};
    &[
        ("ops.insert", Counter, |r| ops(r, Op::Insert)),
        ("ops.query", Counter, |r| ops(r, Op::Query)),
        ("ops.update", Counter, |r| ops(r, Op::Update)),
        ("ops.delete", Counter, |r| ops(r, Op::Delete)),
        ("ops.getmore", Counter, |r| ops(r, Op::GetMore)),
        ("ops.command", Counter, |r| ops(r, Op::Command)),
        ("docs.inserted", Counter, |r| whole(r.from.metrics.documents_inserted.get())),
        ("docs.returned", Counter, |r| whole(r.from.metrics.documents_returned.get())),
        ("docs.updated", Counter, |r| whole(r.from.metrics.documents_updated.get())),
        ("docs.deleted", Counter, |r| whole(r.from.metrics.documents_deleted.get())),
        ("reads.count", Counter, |r| count(r, Class::Read)),
        ("reads.micros", Counter, |r| micros(r, Class::Read)),
        ("writes.count", Counter, |r| count(r, Class::Write)),
        ("writes.micros", Counter, |r| micros(r, Class::Write)),
        ("commands.count", Counter, |r| count(r, Class::Command)),
        ("commands.micros", Counter, |r| micros(r, Class::Command)),
        ("slow", Counter, |r| whole(r.from.metrics.slow_operations.get())),
        ("errors", Counter, |r| whole(r.from.metrics.user_errors.get())),
        ("replication.waits", Counter, |r| whole(r.from.metrics.replication_waits.count.get())),
        ("replication.waits.micros", Counter, |r| whole(r.from.metrics.replication_waits.micros.get())),
        ("replication.timeouts", Counter, |r| whole(r.from.metrics.replication_timeouts.get())),
        ("net.in", Counter, |r| whole(r.from.metrics.physical_bytes_in.get())),
        ("net.out", Counter, |r| whole(r.from.metrics.physical_bytes_out.get())),
        ("connections", Gauge, |r| r.from.connections),
        ("connections.active", Gauge, |r| r.from.active_connections),
        ("connections.created", Counter, |r| whole(r.from.metrics.connections_created.get())),
        ("running.read", Gauge, |r| held(r, AdmissionClass::Read)),
        ("running.write", Gauge, |r| held(r, AdmissionClass::Write)),
        ("waiting.read", Gauge, |r| r.from.executor.waiting(AdmissionClass::Read) as u64),
        ("waiting.write", Gauge, |r| r.from.executor.waiting(AdmissionClass::Write) as u64),
        ("cursors", Gauge, |r| r.from.open_cursors),
        ("transactions", Gauge, |r| r.from.open_transactions),
        ("cpu.millis", Counter, |r| r.cpu_millis),
        ("memory.resident", Gauge, |r| r.resident),
        ("memory.pages", Gauge, |r| r.engine.page_bytes),
        ("memory.blocks", Gauge, |r| r.engine.block_bytes),
        ("memory.memtables", Gauge, |r| r.memory.used(MemoryUse::Memtables)),
        ("memory.loads", Gauge, |r| r.memory.used(MemoryUse::Loads)),
        ("memory.runs", Gauge, |r| r.memory.used(MemoryUse::Runs)),
        ("memory.conflicts", Gauge, |r| r.memory.used(MemoryUse::Conflicts)),
        ("memory.transactions", Gauge, |r| r.memory.used(MemoryUse::Transactions)),
        ("memory.writeSets", Gauge, |r| r.memory.used(MemoryUse::WriteSets)),
        ("memory.queries", Gauge, |r| r.memory.used(MemoryUse::Queries)),
        ("memory.cursors", Gauge, |r| r.memory.used(MemoryUse::Cursors)),
        ("memory.requests", Gauge, |r| r.memory.used(MemoryUse::Requests)),
        ("memory.replies", Gauge, |r| r.memory.used(MemoryUse::Replies)),
        ("memory.connections", Gauge, |r| r.memory.used(MemoryUse::Connections)),
        ("memory.limit", Gauge, |r| r.memory.limit()),
        ("cache.limit", Gauge, |r| r.engine.cache_bytes_max),
        ("cache.hits", Counter, |r| r.engine.cache_hits),
        ("cache.misses", Counter, |r| r.engine.cache_misses),
        ("cache.blockHits", Counter, |r| r.engine.block_hits),
        ("cache.blockMisses", Counter, |r| r.engine.block_misses),
        ("disk.reads", Counter, |r| r.engine.reads),
        ("disk.read", Counter, |r| r.engine.read_bytes),
        ("disk.written", Counter, |r| r.engine.written_bytes),
        ("disk.available", Gauge, |r| r.engine.disk_space.available_bytes),
        ("disk.total", Gauge, |r| r.engine.disk_space.total_bytes),
        ("log.written", Counter, |r| r.engine.log_written_bytes),
        ("flush.debt", Gauge, |r| r.engine.memtable_bytes),
        ("flush.waiting", Gauge, |r| r.engine.sealed_memtables),
        ("flush.done", Counter, |r| r.engine.memtables_flushed),
        ("commits", Counter, |r| r.engine.commits),
        ("checkpoints", Counter, |r| r.engine.checkpoints),
    ]
};

/// The metrics, in the order of a sample's values.
pub fn sampled_metrics() -> Vec<Metric> {
    let figure = |(name, kind, _): &Row| Metric { name, kind: *kind };
    ROWS.iter().map(figure).collect()
}

/// A sample of now.
pub fn sample(time_ms: i64, from: &Sources<'_>) -> Sample {
    let process = process_memory();
    let read = Read {
        from,
        engine: from.store.engine_stats(),
        memory: from.store.memory(),
        resident: process.resident_bytes,
        cpu_millis: (process.user_micros + process.system_micros) / 1000,
    };
    Sample {
        time_ms,
        values: ROWS.iter().map(|(_, _, value)| value(&read)).collect(),
    }
}
