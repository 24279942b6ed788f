//! The engine's counters, for the section `frond` of `serverStatus`.

use std::time::{SystemTime, UNIX_EPOCH};

use frond_bson::{DocBuf, Value, doc};
use frond_store::{DamagePlace, DamagedBlock, DiskSpace, DocumentStore, EngineStats, MemoryUse};

fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The counters as a document; sizes are in bytes.
pub fn to_doc(stats: &EngineStats) -> DocBuf {
    doc! {
        "version": env!("CARGO_PKG_VERSION"),
        "trees": count(stats.trees),
        "cache": {
            "maximum bytes configured": count(stats.cache_bytes_max),
            "bytes of pages in the cache": count(stats.page_bytes),
            "bytes of memtables": count(stats.memtable_bytes),
            "hits": count(stats.cache_hits),
            "misses": count(stats.cache_misses),
            "bytes of compressed blocks in the cache": count(stats.block_bytes),
            "share of compressed blocks": count(stats.block_bytes_max),
            "compressed hits": count(stats.block_hits),
            "compressed misses": count(stats.block_misses),
        },
        "memtables": {
            "waiting": count(stats.sealed_memtables),
            "flushed": count(stats.memtables_flushed),
        },
        "disk": {
            "reads": count(stats.reads),
            "bytes read": count(stats.read_bytes),
            "bytes written": count(stats.written_bytes),
        },
        "disk space": disk_space(&stats.disk_space),
        "log": {"bytes written": count(stats.log_written_bytes)},
        "transactions": {
            "committed": count(stats.commits),
            "checkpoints": count(stats.checkpoints),
        },
    }
}

/// The memory budget of the process, and what holds it, in bytes.
pub fn memory_to_doc(store: &DocumentStore) -> DocBuf {
    let memory = store.memory();
    let mut doc = doc! {
        "limit": count(memory.limit()),
        "limit for clients": count(memory.client_limit()),
        "free for clients": count(memory.free()),
        "refused": count(memory.refused()),
        "kept by snapshots": count(store.retained_bytes()),
    };
    doc.push_doc("used", |used| {
        for purpose in MemoryUse::ALL {
            used.push(purpose.name(), count(memory.used(purpose)));
        }
    });
    doc
}

/// A damaged block, with the collection and the index that it belongs to where they are known.
pub fn damage_to_doc(block: &DamagedBlock) -> DocBuf {
    let damage = &block.damage;
    let found = damage.found.duration_since(SystemTime::UNIX_EPOCH);
    let mut doc = DocBuf::new();
    if let Some(ns) = &block.namespace {
        doc.push("ns", ns.as_str());
    }
    if let Some(index) = &block.index {
        doc.push("index", index);
    }
    if let Some(tree) = damage.tree {
        doc.push("tree", i64::from(tree.0));
    }
    match &damage.place {
        DamagePlace::Block { file, offset } => {
            doc.push("file", file);
            doc.push("offset", count(*offset));
        }
        DamagePlace::Key(key) => {
            let (subtype, bytes) = (0, key.as_slice());
            doc.push("key", Value::Binary { subtype, bytes });
        }
    }
    doc.push("error", &damage.what);
    let found = found.map_or(0, |found| found.as_millis() as i64);
    doc.push("found", Value::DateTime(found));
    doc
}

fn disk_space(space: &DiskSpace) -> DocBuf {
    let mut doc = doc! {
        "total bytes": count(space.total_bytes),
        "available bytes": count(space.available_bytes),
        "reserved bytes": count(space.reserve_bytes),
        "bytes of the reserve file": count(space.held_bytes),
        "low": space.low_since.is_some(),
    };
    if let Some(since) = space.low_since {
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        doc.push("low since", Value::DateTime(millis));
    }
    doc.push("times low", count(space.times_low));
    doc.push("writes refused", count(space.refused));
    doc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_longs() {
        let stats = EngineStats {
            cache_hits: u64::MAX,
            ..EngineStats::default()
        };
        let doc = to_doc(&stats);
        let hits = doc.get_doc("cache").and_then(|cache| cache.get("hits"));
        assert!(matches!(hits, Some(frond_bson::Value::Int64(i64::MAX))));
    }
}
