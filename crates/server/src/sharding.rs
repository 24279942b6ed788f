//! The database `config` of a cluster in the terms of MongoDB's sharded clusters, so that tools such as `sh.status()` find what
//! they look for.
//!
//! A TiKV cluster is one shard here: TiKV divides and places ranges of keys by itself, below what a client sees. `shardCollection` is
//! recorded, and otherwise has no effect.

use frond_bson::{Doc, DocBuf, ObjectId, Timestamp, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{DocumentStore, FindRequest, Namespace, OpContext};

use crate::host::clock::now_ms;
use crate::internal_collections::{delete_all, find_one, replace_first};

/// The name of the only shard.
pub const SHARD: &str = "tikv";

const VERSION: (&str, &str) = ("config", "version");
const SHARDS: (&str, &str) = ("config", "shards");
const ROUTERS: (&str, &str) = ("config", "mongos");
const DATABASES: (&str, &str) = ("config", "databases");
const COLLECTIONS: (&str, &str) = ("config", "collections");
const CHUNKS: (&str, &str) = ("config", "chunks");
const SETTINGS: (&str, &str) = ("config", "settings");

/// The name of a shard with the hosts behind it.
pub fn shard_host(pd: &[String]) -> String {
    format!("{SHARD}/{}", pd.join(","))
}

/// The document of the shard in `config.shards`.
pub fn shard(pd: &[String]) -> DocBuf {
    doc! {
        "_id": SHARD, "host": shard_host(pd), "state": 1, "topologyTime": Timestamp { time: 1, increment: 0 },
    }
}

/// The prefix of the ids of a server's cursors.
pub fn mark(name: &str) -> u16 {
    let hash = (name.bytes()).fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    (hash ^ hash >> 16) as u16 & 0x7fff
}

/// The name of the server whose cursors have this mark, if it is known.
///
/// # Errors
/// Errors of the store.
pub fn server_with_mark(store: &DocumentStore, wanted: u16) -> Result<Option<String>> {
    let ns = Namespace::new(ROUTERS.0, ROUTERS.1)?;
    let mut all = store.find(&ns, &FindRequest::default(), &OpContext::new())?;
    while let Some(router) = all.next()? {
        if let Some(name) = router.get_str("_id")
            && mark(name) == wanted
        {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

/// Describes the cluster in `config`. Each server does it when it starts.
///
/// # Errors
/// Errors of the store.
pub fn describe_cluster(store: &DocumentStore, pd: &[String]) -> Result<()> {
    if find_one(store, VERSION, doc! {"_id": 1})?.is_none() {
        let version = doc! {"_id": 1, "clusterId": ObjectId::new()};
        replace_first(store, VERSION, &doc! {"_id": 1}, &version)?;
    }
    let described = shard(pd);
    if find_one(store, SHARDS, doc! {"_id": SHARD})?.as_ref() != Some(&described) {
        replace_first(store, SHARDS, &doc! {"_id": SHARD}, &described)?;
    }
    Ok(())
}

/// Records in `config.mongos` that this server is alive.
///
/// # Errors
/// Errors of the store.
pub fn tell_life(store: &DocumentStore, name: &str, version: &str, up_secs: u64) -> Result<()> {
    let now = now_ms();
    let up = i64::try_from(up_secs).unwrap_or(i64::MAX);
    let router = doc! {
        "_id": name,
        "advisoryHostFQDNs": frond_bson::ArrayBuf::new(),
        "created": Value::DateTime(now - up * 1000),
        "mongoVersion": version,
        "ping": Value::DateTime(now),
        "up": up,
        "waiting": true,
    };
    replace_first(store, ROUTERS, &doc! {"_id": name}, &router)
}

/// Records a database as one that may have sharded collections.
///
/// # Errors
/// Errors of the store.
pub fn enable(store: &DocumentStore, db: &str) -> Result<()> {
    let database = doc! {"_id": db, "primary": SHARD, "partitioned": true};
    replace_first(store, DATABASES, &doc! {"_id": db}, &database)
}

/// Records a collection as sharded by a key.
///
/// # Errors
/// `AlreadyInitialized` (23) if it is by another one.
pub fn record(
    store: &DocumentStore,
    ns: &Namespace,
    uuid: &Value<'_>,
    key: &Doc,
    unique: bool,
) -> Result<()> {
    if let Some(known) = find_one(store, COLLECTIONS, doc! {"_id": ns.as_str()})? {
        let is_same = known.get_doc("key").is_some_and(|known| known == key)
            && known.get("unique").is_some_and(|known| known.truthy()) == unique;
        if is_same && known.get("uuid").as_ref() == Some(uuid) {
            return Ok(());
        }
        if known.get("uuid").as_ref() == Some(uuid) {
            return Err(Error::new(
                ErrorCode::AlreadyInitialized,
                format!(
                    "sharding already enabled for collection {} with another key",
                    ns.as_str()
                ),
            ));
        }
    }
    enable(store, ns.db())?;
    let epoch = ObjectId::new();
    let time = Timestamp {
        time: u32::try_from(now_ms() / 1000).unwrap_or(u32::MAX),
        increment: 1,
    };
    let bound = |value: Value<'static>| {
        let mut bound = DocBuf::new();
        for (field, _) in key.iter() {
            bound.push(field, value);
        }
        bound
    };
    delete_all(store, CHUNKS, &doc! {"uuid": uuid.clone()})?;
    let chunk_id = ObjectId::new();
    let chunk = doc! {
        "_id": chunk_id, "uuid": uuid.clone(), "min": bound(Value::MinKey), "max": bound(Value::MaxKey), "shard": SHARD,
        "lastmod": Timestamp { time: 1, increment: 0 },
    };
    replace_first(store, CHUNKS, &doc! {"_id": chunk_id}, &chunk)?;
    let collection = doc! {
        "_id": ns.as_str(), "lastmodEpoch": epoch, "lastmod": Value::DateTime(now_ms()), "timestamp": time,
        "uuid": uuid.clone(), "key": key, "unique": unique, "noBalance": false,
    };
    replace_first(store, COLLECTIONS, &doc! {"_id": ns.as_str()}, &collection)
}

/// Forgets a dropped collection.
///
/// # Errors
/// Errors of the store.
pub fn forget(store: &DocumentStore, ns: &Namespace) -> Result<()> {
    if let Some(known) = find_one(store, COLLECTIONS, doc! {"_id": ns.as_str()})? {
        if let Some(uuid) = known.get("uuid") {
            delete_all(store, CHUNKS, &doc! {"uuid": uuid})?;
        }
        delete_all(store, COLLECTIONS, &doc! {"_id": ns.as_str()})?;
    }
    Ok(())
}

/// Forgets a dropped database.
///
/// # Errors
/// Errors of the store.
pub fn forget_database(store: &DocumentStore, db: &str) -> Result<()> {
    let all = doc! {"_id": {"$gte": format!("{db}."), "$lt": format!("{db}/")}};
    while let Some(known) = find_one(store, COLLECTIONS, all.clone())? {
        let Some(ns) = known.get_str("_id") else {
            break;
        };
        forget(store, &Namespace::parse(ns)?)?;
    }
    delete_all(store, DATABASES, &doc! {"_id": db})
}

/// Whether the balancer counts as stopped.
///
/// # Errors
/// Errors of the store.
pub fn is_balancer_stopped(store: &DocumentStore) -> Result<bool> {
    let stored = find_one(store, SETTINGS, doc! {"_id": "balancer"})?;
    Ok(stored.is_some_and(|stored| stored.get("stopped").is_some_and(|on| on.truthy())))
}

/// Records whether the balancer counts as stopped.
///
/// # Errors
/// Errors of the store.
pub fn set_balancer_stopped(store: &DocumentStore, stopped: bool) -> Result<()> {
    let mode = if stopped { "off" } else { "full" };
    let setting = doc! {"_id": "balancer", "mode": mode, "stopped": stopped};
    replace_first(store, SETTINGS, &doc! {"_id": "balancer"}, &setting)
}
