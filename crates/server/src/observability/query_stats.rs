//! `$queryStats`: figures of queries by their shape, which is the command without its constants.
//!
//! Only so many queries a second are counted, so a busy server pays nothing for them; the others are counted whenever there
//! is room. The figures take a bounded memory: when it is full, the shapes that were not seen for longest are forgotten.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use frond_bson::{ArrayBuf, Doc, DocBuf, Timestamp, Value, doc};
use frond_query::matcher::canonical;
use frond_store::OpStats;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::host::clock::now_ms;
use crate::observability::metrics::{Counter, micros};

/// Bytes of all shapes with their figures.
const BYTES_MAX: usize = 8 << 20;

/// The longest command whose shape is kept.
const COMMAND_BYTES_MAX: usize = 16 << 10;

/// The figures of a shape, roughly.
const FIGURES_BYTES: usize = 512;

/// The hash of a shape.
pub type ShapeHash = [u8; 32];

/// A sum with its extremes.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    sum: u64,
    max: u64,
    min: Option<u64>,
    squares: f64,
}

impl Sum {
    fn add(&mut self, n: u64) {
        self.sum = self.sum.saturating_add(n);
        self.max = self.max.max(n);
        self.min = Some(self.min.map_or(n, |min| min.min(n)));
        self.squares += (n as f64) * (n as f64);
    }

    fn to_doc(self) -> DocBuf {
        let long = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        doc! {
            "sum": long(self.sum),
            "max": long(self.max),
            "min": long(self.min.unwrap_or(0)),
            "sumOfSquares": self.squares,
        }
    }
}

/// The figures of a shape.
#[derive(Clone, Debug)]
struct Entry {
    /// The shape and what belongs to it.
    key: DocBuf,
    executions: u64,
    last: u64,
    total: Sum,
    first_response: Sum,
    returned: Sum,
    keys: Sum,
    documents: Sum,
    cpu_nanos: Sum,
    sorted: u64,
    used_disk: u64,
    tried_plans: u64,
    knew_plan: u64,
    first_seen_ms: i64,
    last_seen_ms: i64,
}

/// A reply to a query.
pub struct Reply<'a> {
    /// Whether it is the first reply; later ones answer getMore.
    pub is_first: bool,
    pub took: Duration,
    pub cpu: Duration,
    pub op_stats: &'a OpStats,
}

#[derive(Default)]
struct Entries {
    by_hash: HashMap<ShapeHash, Entry>,
    bytes: usize,
}

/// The figures of all shapes.
pub struct QueryStats {
    /// Queries a second that are counted; 0 for none, a negative number for all.
    rate: AtomicI64,
    began: Instant,
    /// The second, and how many queries of it were counted, in the lower 32 bits.
    second: AtomicU64,
    entries: Mutex<Entries>,
    /// Shapes that were forgotten because there was no memory.
    pub evicted: Counter,
}

impl QueryStats {
    /// Counts this many queries a second.
    pub fn new(rate: i64) -> QueryStats {
        QueryStats {
            rate: AtomicI64::new(rate),
            began: Instant::now(),
            second: AtomicU64::new(0),
            entries: Mutex::default(),
            evicted: Counter::default(),
        }
    }

    /// Queries a second that are counted.
    pub fn rate(&self) -> i64 {
        self.rate.load(Relaxed)
    }

    /// Changes [`QueryStats::rate`].
    pub fn set_rate(&self, rate: i64) {
        self.rate.store(rate, Relaxed);
    }

    /// Whether a query is counted that begins now.
    #[inline]
    pub fn admits(&self, now: Instant) -> bool {
        let rate = self.rate();
        if rate <= 0 {
            return rate < 0;
        }
        let second = now.saturating_duration_since(self.began).as_secs() << 32;
        let seen = self.second.load(Relaxed);
        if seen & !0xffff_ffff == second && (seen & 0xffff_ffff) as i64 >= rate {
            return false;
        }
        // Two queries may both count as the first of a second. That does no harm.
        let next = if seen & !0xffff_ffff == second {
            seen + 1
        } else {
            second | 1
        };
        self.second.store(next, Relaxed);
        true
    }

    /// Counts a reply to a query of this shape. `key` makes the description of a new one.
    pub fn record(&self, hash: ShapeHash, key: Option<DocBuf>, reply: &Reply<'_>) {
        let now = now_ms();
        let mut entries = self.entries.lock();
        let Entries { by_hash, bytes } = &mut *entries;
        let entry = match (by_hash.get_mut(&hash), key) {
            (Some(entry), _) => entry,
            // It was forgotten while its cursor was open.
            (None, None) => return,
            (None, Some(key)) => {
                *bytes += key.len_bytes() + FIGURES_BYTES;
                if *bytes > BYTES_MAX {
                    self.evicted.add(forget(by_hash, bytes) as u64);
                    *bytes += key.len_bytes() + FIGURES_BYTES;
                }
                by_hash.entry(hash).or_insert_with(|| Entry::new(key, now))
            }
        };
        entry.add(reply, now);
    }

    /// Shapes, and about how many bytes they take of how many.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let entries = self.entries.lock();
        (entries.by_hash.len(), entries.bytes, BYTES_MAX)
    }

    /// The documents of the stage.
    pub fn to_docs(&self) -> Vec<DocBuf> {
        let seconds = now_ms() / 1000;
        let as_of = Timestamp {
            time: u32::try_from(seconds).unwrap_or(0),
            increment: 0,
        };
        let mut all: Vec<_> = {
            let entries = self.entries.lock();
            entries
                .by_hash
                .iter()
                .map(|(hash, entry)| (*hash, entry.clone()))
                .collect()
        };
        all.sort_by_key(|(hash, entry)| (entry.first_seen_ms, *hash));
        let to_doc = |(hash, entry): &(ShapeHash, Entry)| entry.to_doc(hash, as_of);
        all.iter().map(to_doc).collect()
    }
}

/// Forgets the half that was not seen for longest. Returns how many.
fn forget(by_hash: &mut HashMap<ShapeHash, Entry>, bytes: &mut usize) -> usize {
    let before = by_hash.len();
    let mut seen: Vec<_> = by_hash.values().map(|entry| entry.last_seen_ms).collect();
    seen.sort_unstable();
    let middle = seen.get(before / 2).copied().unwrap_or(i64::MAX);
    by_hash.retain(|_, entry| entry.last_seen_ms > middle);
    *bytes = by_hash
        .values()
        .map(|entry| entry.key.len_bytes() + FIGURES_BYTES)
        .sum();
    before - by_hash.len()
}

impl Entry {
    fn new(key: DocBuf, now: i64) -> Entry {
        Entry {
            key,
            executions: 0,
            last: 0,
            total: Sum::default(),
            first_response: Sum::default(),
            returned: Sum::default(),
            keys: Sum::default(),
            documents: Sum::default(),
            cpu_nanos: Sum::default(),
            sorted: 0,
            used_disk: 0,
            tried_plans: 0,
            knew_plan: 0,
            first_seen_ms: now,
            last_seen_ms: now,
        }
    }

    fn add(&mut self, reply: &Reply<'_>, now: i64) {
        let (took, op_stats) = (micros(reply.took), reply.op_stats);
        self.last_seen_ms = now;
        self.total.add(took);
        self.returned.add(op_stats.returned);
        self.keys.add(op_stats.keys_examined);
        self.documents.add(op_stats.docs_examined);
        let nanos = u64::try_from(reply.cpu.as_nanos()).unwrap_or(u64::MAX);
        self.cpu_nanos.add(nanos);
        if reply.is_first {
            self.executions += 1;
            self.last = took;
            self.first_response.add(took);
            self.sorted += u64::from(op_stats.has_sort_stage);
            self.tried_plans += u64::from(op_stats.from_multi_planner);
            self.knew_plan += u64::from(op_stats.from_plan_cache);
        }
        self.used_disk += u64::from(op_stats.used_disk);
    }

    fn to_doc(&self, hash: &ShapeHash, as_of: Timestamp) -> DocBuf {
        let long = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let hex = frond_bson::hex(hash);
        let shape = self.key.get_doc("queryShape").unwrap_or(Doc::empty());
        let shape: ShapeHash = Sha256::digest(without_hint(shape).as_bytes()).into();
        let shape_hash = frond_bson::hex(&shape).to_uppercase();
        let told = |n: u64| {
            let rest = self.executions.saturating_sub(n);
            doc! {"true": long(n), "false": long(rest)}
        };
        doc! {
            "key": &self.key,
            "keyHash": hex.as_str(),
            "queryShapeHash": shape_hash.as_str(),
            "metrics": {
                "lastExecutionMicros": long(self.last),
                "execCount": long(self.executions),
                "totalExecMicros": self.total.to_doc(),
                "firstResponseExecMicros": self.first_response.to_doc(),
                "docsReturned": self.returned.to_doc(),
                "keysExamined": self.keys.to_doc(),
                "docsExamined": self.documents.to_doc(),
                "cpuNanos": self.cpu_nanos.to_doc(),
                "hasSortStage": told(self.sorted),
                "usedDisk": told(self.used_disk),
                "fromMultiPlanner": told(self.tried_plans),
                "fromPlanCache": told(self.knew_plan),
                "firstSeenTimestamp": Value::DateTime(self.first_seen_ms),
                "latestSeenTimestamp": Value::DateTime(self.last_seen_ms),
            },
            "asOf": as_of,
        }
    }
}

/// The shape of a query and its hash: the command without its constants. `None` if it is too long, or if it is none.
pub fn shape_of(
    db: &str,
    command: &str,
    body: &Doc,
    application: Option<&str>,
) -> Option<(ShapeHash, DocBuf)> {
    if body.len_bytes() > COMMAND_BYTES_MAX {
        return None;
    }
    let collection = match body.first()?.1 {
        Value::String(collection) => collection,
        // A pipeline over a database: stages of the server.
        _ => return None,
    };
    let mut shape = doc! {"cmdNs": {"db": db, "coll": collection}, "command": command};
    for (name, value) in body.iter().skip(1) {
        match (name, value) {
            ("filter" | "query", Value::Document(filter)) => {
                shape.push(name, &without_constants(&canonical(filter)));
            }
            ("pipeline", Value::Array(stages)) => {
                let mut shown = ArrayBuf::new();
                for stage in stages.values() {
                    match stage.as_doc().and_then(Doc::first) {
                        Some(("$match", Value::Document(filter))) => {
                            let filter = without_constants(&canonical(filter));
                            shown.push(&doc! {"$match": &filter});
                        }
                        Some((name, value)) => {
                            let mut one = DocBuf::new();
                            push_shape(&mut one, name, &value);
                            shown.push(&one);
                        }
                        None => return None,
                    }
                }
                shape.push("pipeline", &shown);
            }
            // They belong to the shape unchanged.
            ("sort" | "collation" | "hint", value) => shape.push(name, value),
            ("projection", Value::Document(fields)) => {
                let mut shown = DocBuf::new();
                for (path, value) in fields.iter() {
                    match value {
                        Value::Bool(_) => shown.push(path, value),
                        value if value.is_number() => shown.push(path, value),
                        value => push_shape(&mut shown, path, &value),
                    }
                }
                shape.push(name, &shown);
            }
            ("key", value) => shape.push(name, value),
            ("skip" | "limit" | "let" | "min" | "max", value) => {
                push_shape(&mut shape, name, &value)
            }
            (
                "tailable" | "awaitData" | "singleBatch" | "returnKey" | "showRecordId"
                | "allowDiskUse",
                value,
            ) => {
                shape.push(name, value);
            }
            _ => {}
        }
    }
    let mut key = doc! {"queryShape": &shape};
    if let Some(application) = application {
        key.push("client", &doc! {"application": {"name": application}});
    }
    key.push("collectionType", "collection");
    let hash = Sha256::digest(key.as_bytes());
    Some((hash.into(), key))
}

/// The shape of a query as query settings know it, and its hash: hints and applications do not belong to it.
pub fn query_shape(db: &str, command: &str, body: &Doc) -> Option<(ShapeHash, DocBuf)> {
    let (_, key) = shape_of(db, command, body, None)?;
    let shape = without_hint(key.get_doc("queryShape")?);
    Some((Sha256::digest(shape.as_bytes()).into(), shape))
}

fn without_hint(shape: &Doc) -> DocBuf {
    let mut out = DocBuf::new();
    for (name, value) in shape.iter().filter(|(name, _)| *name != "hint") {
        out.push(name, value);
    }
    out
}

fn without_constants(doc: &Doc) -> DocBuf {
    let mut out = DocBuf::new();
    for (name, value) in doc.iter() {
        push_shape(&mut out, name, &value);
    }
    out
}

/// Adds a value without its constants: documents keep the names of their fields, and paths of fields stay.
fn push_shape(out: &mut DocBuf, name: &str, value: &Value<'_>) {
    match value {
        Value::Document(inner) if inner.is_empty() => out.push(name, "?object"),
        Value::Document(inner) => {
            // A document without operators that is compared with is a constant.
            let is_constant = matches!(name, "$eq" | "$gt" | "$gte" | "$lt" | "$lte" | "$ne");
            if is_constant {
                out.push(name, "?object")
            } else {
                out.push(name, &without_constants(inner))
            }
        }
        Value::Array(list) => {
            let has_parts = list.values().any(|one| match one {
                Value::Document(_) => !matches!(name, "$in" | "$nin" | "$eq"),
                Value::String(text) => text.starts_with('$'),
                _ => false,
            });
            if !has_parts {
                let mut kinds: Vec<String> = list.values().map(|one| kind(&one)).collect();
                kinds.dedup();
                let text = match kinds.as_slice() {
                    [] => "[]".to_owned(),
                    [only] => format!("?array<{only}>"),
                    _ => "?array<>".to_owned(),
                };
                return out.push(name, &text);
            }
            let mut shown = DocBuf::new();
            for (at, one) in list.iter() {
                push_shape(&mut shown, at, &one);
            }
            out.push_value(name, &Value::Array(&shown));
        }
        Value::String(text) if text.starts_with('$') => out.push(name, *text),
        // Names of collections and of new fields.
        Value::String(_)
            if matches!(
                name,
                "from" | "as" | "coll" | "into" | "localField" | "foreignField" | "path"
            ) =>
        {
            out.push_value(name, value);
        }
        other => out.push(name, &kind(other)),
    }
}

fn kind(value: &Value<'_>) -> String {
    let name = match value {
        value if value.is_number() => "number",
        value => value.type_name(),
    };
    format!("?{name}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn shape(body: &Doc) -> DocBuf {
        let name = body.first().unwrap().0;
        let (_, key) = shape_of("test", name, body, None).unwrap();
        key.get_doc("queryShape").unwrap().to_owned()
    }

    #[test]
    fn constants_are_left_out() {
        let cases = [
            (
                doc! {"find": "c", "filter": {"a": 5, "b": {"$in": [1, 2]}, "c": {"$gt": "x"}}, "sort": {"a": -1}, "limit": 7},
                doc! {
                    "filter": {"$and": [{"a": {"$eq": "?number"}}, {"c": {"$gt": "?string"}}, {"b": {"$in": "?array<?number>"}}]},
                    "sort": {"a": -1}, "limit": "?number",
                },
            ),
            (
                doc! {"aggregate": "c", "pipeline": [{"$match": {"a": {"x": 1}}}, {"$group": {"_id": "$a", "n": {"$sum": 1}}}], "cursor": {}},
                doc! {"pipeline": [{"$match": {"a": {"$eq": "?object"}}}, {"$group": {"_id": "$a", "n": {"$sum": "?number"}}}]},
            ),
            (
                doc! {"distinct": "c", "key": "a", "query": {}},
                doc! {"key": "a", "query": {}},
            ),
        ];
        for (body, expected) in cases {
            let (name, _) = body.first().unwrap();
            let mut all = doc! {"cmdNs": {"db": "test", "coll": "c"}, "command": name};
            all.push_all(&expected);
            assert_eq!(shape(&body), all);
        }
        let hash = |a: i32| {
            shape_of(
                "test",
                "find",
                &doc! {"find": "c", "filter": {"a": a}},
                None,
            )
            .unwrap()
            .0
        };
        assert_eq!(hash(1), hash(2));
    }

    #[test]
    fn memory_and_the_rate_are_bounded() {
        let stats = QueryStats::new(3);
        let now = Instant::now();
        let admitted = (0..10).filter(|_| stats.admits(now)).count();
        assert_eq!(admitted, 3);
        assert!(stats.admits(now + Duration::from_secs(1)));
        stats.set_rate(0);
        assert!(!stats.admits(now));
        stats.set_rate(-1);
        let reply = Reply {
            is_first: true,
            took: Duration::from_micros(7),
            cpu: Duration::ZERO,
            op_stats: &OpStats::default(),
        };
        for n in 0..20_000u32 {
            assert!(stats.admits(now));
            let mut hash = ShapeHash::default();
            hash[..4].copy_from_slice(&n.to_le_bytes());
            stats.record(
                hash,
                Some(doc! {"queryShape": {"n": "x".repeat(200)}}),
                &reply,
            );
        }
        assert!(stats.entries.lock().bytes <= BYTES_MAX);
        assert!(stats.evicted.get() > 0);
    }
}
