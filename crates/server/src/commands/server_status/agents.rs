//! Sections of `serverStatus` that monitoring agents written for mongod read.
//!
//! Frond's counters are reported under the names that agents read. Counters of features that Frond does not
//! have, such as collection locks, are 0.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use frond_bson::{DocBuf, doc};

use crate::exec::Lane;
use crate::metrics::Op;
use crate::state::Server;
use crate::tls::TlsCounts;

fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Neither readers nor writers lock a collection.
pub fn locks(_: &Server) -> DocBuf {
    let mut out = DocBuf::new();
    for resource in ["Global", "Database", "Collection"] {
        out.push(
            resource,
            &doc! {"acquireCount": {"r": 0i64, "w": 0i64, "R": 0i64, "W": 0i64}},
        );
    }
    out
}

/// Replicated operations: none on a standalone server.
pub fn opcounters_repl(_: &Server) -> DocBuf {
    let mut out = DocBuf::new();
    for op in Op::ALL {
        out.push(op.name(), 0i64);
    }
    out
}

/// The tickets of readers and writers: see [`crate::exec`].
pub fn queues(server: &Server) -> DocBuf {
    let mut execution = DocBuf::new();
    for (name, lane) in [("write", Lane::Write), ("read", Lane::Read)] {
        let (available, total) = (
            server.executor.available(lane) as i64,
            lane.tickets() as i64,
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
    let logins = &server.logins;
    let mut out = doc! {"authentication": logins.counters.to_doc(logins.mechanisms())};
    if let Some(tls) = &server.tls {
        tls.describe(&mut out);
    }
    out
}

/// Transactions and retryable writes. Nothing is prepared: there are no shards.
pub fn transactions(server: &Server) -> DocBuf {
    let sessions = &server.sessions;
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
    (server.tls.as_ref())
        .map_or(&none, |tls| &tls.counts)
        .to_doc()
}

/// The engine's counters under WiredTiger's names, which agents read. The section `frond` has them too.
pub fn wired_tiger(server: &Server) -> DocBuf {
    let stats = server.store.engine_stats();
    doc! {
        "note": "counters of the engine frond under the names that agents read",
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
        },
    }
}
