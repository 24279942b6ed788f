//! Sections of `serverStatus` that monitoring agents written for mongod read.
//!
//! Frond's counters are reported under the names that agents read. Counters of features that Frond does not
//! have, such as collection locks, are 0.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use frond_bson::{Doc, DocBuf, doc};
use frond_store::MemoryUse;

use crate::host::memory::process_memory;
use crate::observability::metrics::{Class, Op};
use crate::state::Server;
use crate::tls::TlsCounts;
use frond_runtime::AdmissionClass;

fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Operations take tickets, which are shown as the global lock. There are no locks of databases and collections that
/// readers or writers would wait for: these are taken as often, and never waited for.
pub fn locks(server: &Server) -> DocBuf {
    let metrics = &server.metrics;
    let taken = |class| metrics.latency(class).timed.count.get();
    let (readers, writers) = (taken(Class::Read), taken(Class::Write));
    let [reads, writes] = &metrics.ticket_waits;
    let acquired = doc! {"r": readers, "w": writers, "R": 0i64, "W": 0i64};
    let waits = doc! {"r": reads.count.get(), "w": writes.count.get(), "R": 0i64, "W": 0i64};
    let waited = doc! {"r": reads.micros.get(), "w": writes.micros.get(), "R": 0i64, "W": 0i64};
    let none = doc! {"r": 0i64, "w": 0i64, "R": 0i64, "W": 0i64};
    let mut out = DocBuf::new();
    for resource in ["Global", "Database", "Collection"] {
        let is_global = resource == "Global";
        let (waits, waited) = if is_global {
            (&waits, &waited)
        } else {
            (&none, &none)
        };
        out.push(
            resource,
            &doc! {"acquireCount": &acquired, "acquireWaitCount": waits, "timeAcquiringMicros": waited},
        );
    }
    out
}

/// The numbers of collections and views in the catalog.
pub fn catalog_stats(server: &Server) -> DocBuf {
    let counts = server.store.catalog_counts();
    doc! {
        "collections": count(counts.collections),
        "capped": count(counts.capped),
        "views": count(counts.views),
        "timeseries": count(counts.time_series),
        "internalCollections": count(counts.internal),
    }
}

/// Flow control delays writers for secondaries that lag. A set of one has none.
pub fn flow_control(_: &Server) -> DocBuf {
    doc! {"enabled": false, "isLagged": false, "isLaggedCount": 0i64, "timeAcquiringMicros": 0i64}
}

/// The allocated memory, in the two fields of `tcmalloc` that agents read. The allocator is jemalloc.
pub fn tcmalloc(server: &Server) -> DocBuf {
    let memory = server.store.memory();
    let used = MemoryUse::ALL
        .iter()
        .map(|purpose| memory.used(*purpose))
        .sum();
    let stats = server.store.engine_stats();
    let in_cache = stats.page_bytes + stats.memtable_bytes;
    let process = process_memory();
    doc! {
        "generic": {
            "current_allocated_bytes": count(in_cache.max(used)),
            "heap_size": count(process.resident_bytes),
        },
        "tcmalloc": {"pageheap_free_bytes": count(process.resident_bytes.saturating_sub(in_cache.max(used)))},
    }
}

/// Replicated operations: none on a standalone server.
pub fn opcounters_repl(_: &Server) -> DocBuf {
    let mut out = DocBuf::new();
    for op in Op::ALL {
        out.push(op.name(), 0i64);
    }
    out
}

/// The tickets of readers and writers: see [`crate::admission`].
pub fn queues(server: &Server) -> DocBuf {
    let mut execution = DocBuf::new();
    for (name, admission) in [
        ("write", AdmissionClass::Write),
        ("read", AdmissionClass::Read),
    ] {
        let (available, total) = (
            server.execution.executor.available(admission) as i64,
            admission.tickets() as i64,
        );
        execution.push(
            name,
            &doc! {"out": total - available, "available": available, "totalTickets": total},
        );
    }
    doc! {"execution": &execution}
}

/// Logins by their mechanisms, and TLS.
pub fn security(server: &Server) -> DocBuf {
    let logins = &server.clients.logins;
    let mut out = doc! {"authentication": logins.counters.to_doc(logins.mechanisms())};
    if let Some(tls) = &server.clients.tls {
        tls.describe(&mut out);
    }
    out
}

/// Transactions and retryable writes. Nothing is prepared: there are no shards.
pub fn transactions(server: &Server) -> DocBuf {
    let sessions = &server.clients.sessions;
    let open = sessions.open_transactions();
    let active = open.iter().filter(|open| open.activity().is_active());
    let active = count(active.count() as u64);
    let current = count(open.len() as u64);
    let counts = &sessions.counts;
    let total = |counter: &AtomicU64| count(counter.load(Relaxed));
    doc! {
        "retriedCommandsCount": total(&counts.retried_commits),
        "retriedStatementsCount": count(sessions.retried()),
        "currentActive": active,
        "currentInactive": current - active,
        "currentOpen": current,
        "currentPrepared": 0i64,
        "totalAborted": total(&counts.aborted),
        "totalCommitted": total(&counts.committed),
        "totalExpired": total(&counts.expired),
        "totalAbortedForMemory": total(&counts.aborted_for_memory),
        "totalPrepared": 0i64,
        "totalStarted": total(&counts.started),
    }
}

/// Connections over TLS, by its version.
pub fn transport_security(server: &Server) -> DocBuf {
    let none = TlsCounts::default();
    (server.clients.tls.as_ref())
        .map_or(&none, |tls| &tls.counts)
        .to_doc()
}

/// The engine's counters under WiredTiger's names, which agents read. The section `frond` has them too.
pub fn wired_tiger(server: &Server) -> DocBuf {
    let stats = server.store.engine_stats();
    let queues = queues(server);
    let tickets = queues.get_doc("execution").unwrap_or(Doc::empty());
    let transactions = &server.clients.sessions.counts;
    let of_transactions = |counter: &AtomicU64| count(counter.load(Relaxed));
    doc! {
        "note": "counters of the engine frond under the names that agents read",
        "concurrentTransactions": tickets,
        "session": {
            "open cursor count": server.clients.cursors.counts().open,
            "open session count": server.clients.sessions.len() as i64,
        },
        "block-manager": {
            "blocks read": count(stats.reads),
            "bytes read": count(stats.read_bytes),
            "bytes written": count(stats.written_bytes),
        },
        "cache": {
            "bytes currently in the cache": count(stats.page_bytes + stats.memtable_bytes),
            "bytes read into cache": count(stats.read_bytes),
            "bytes written from cache": count(stats.written_bytes),
            "maximum bytes configured": count(stats.cache_bytes_max),
            "pages read into cache": count(stats.cache_misses - stats.block_hits.min(stats.cache_misses)),
            "pages requested from the cache": count(stats.cache_hits + stats.cache_misses),
            // Committed data that is not in the data file yet.
            "tracked dirty bytes in the cache": count(stats.memtable_bytes),
        },
        "log": {"log bytes written": count(stats.log_written_bytes)},
        "transaction": {
            "transaction checkpoints": count(stats.checkpoints),
            "transactions committed": count(stats.commits),
            "transaction begins": of_transactions(&transactions.started),
            "transactions rolled back": of_transactions(&transactions.aborted),
        },
    }
}
