//! Measures scans of whole collections: a find without an index over documents of 2,400 bytes, and `$group` over small ones.
//!
//! `cargo run --release -p frond-store --example scans -- load LARGE SMALL DIRECTORY`, then
//! `… -- run DIRECTORY [CACHE_MIB] [ROUNDS]`
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/processor_time.rs"]
mod processor_time;

use std::time::Instant;

use frond_bson::{Doc, DocBuf, ObjectId, Value, doc};
use frond_store::{
    AggregateRequest, CountRequest, DocumentStore, Durability, EngineOptions, FindRequest,
    InsertOptions, Namespace, OpContext, StoreOptions,
};
use processor_time::processor_time;

const INSERT: InsertOptions = InsertOptions {
    ordered: true,
    durability: Durability::Logged,
    bypass_validation: false,
    keep_empty_timestamps: false,
};

fn ns(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

fn open(directory: &str, cache_mib: usize) -> DocumentStore {
    let mut options = EngineOptions::new(directory);
    options.cache_bytes = cache_mib << 20;
    DocumentStore::open_engine(options, StoreOptions::default()).unwrap()
}

fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn object_id(number: u64) -> Value<'static> {
    let mut id = [0; 12];
    id[..4].copy_from_slice(&(0x6700_0000 + (number / 5000) as u32).to_be_bytes());
    id[4..9].copy_from_slice(&[1, 2, 3, 4, 5]);
    id[9..].copy_from_slice(&(number as u32).to_be_bytes()[1..]);
    Value::ObjectId(ObjectId(id))
}

fn large(number: u64) -> DocBuf {
    let name = format!("Name{:04} Last{:05}", mix(number) % 4096, number % 99_991);
    doc! {
        "_id": object_id(number), "name": &*name, "someId1": 1_000_000 + number as i64, "str1": "U",
        "date1": Value::DateTime(315_532_800_000 + (mix(number + 7) % 631_152_000_000) as i64),
        "bio": &*"I am a Java Developer. ".repeat(100),
    }
}

fn small(number: u64) -> DocBuf {
    doc! {
        "_id": number as i32,
        "g": (mix(number) % 1000) as i32,
        "v": (mix(number + 1) % 100_000) as i32,
        "x": (mix(number + 2) % 1_000_000) as f64 / 100.0,
    }
}

fn load(store: &DocumentStore, name: &str, count: u64, make: fn(u64) -> DocBuf) {
    let mut at = 0;
    while at < count {
        let docs: Vec<DocBuf> = (at..count.min(at + 1000)).map(make).collect();
        let refs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
        let outcome = store.insert(&ns(name), &refs, INSERT).unwrap();
        assert!(outcome.errors.is_empty());
        at += 1000;
    }
}

fn timed(what: &str, rounds: usize, mut run: impl FnMut() -> String) {
    for _ in 0..rounds {
        let (started, cpu) = (Instant::now(), processor_time("self").as_secs_f64());
        let result = run();
        println!(
            "{what:<28} {:>7.3} s, CPU {:>6.2} s: {result}",
            started.elapsed().as_secs_f64(),
            processor_time("self").as_secs_f64() - cpu
        );
    }
}

fn aggregate(store: &DocumentStore, name: &str, stages: &[DocBuf]) -> String {
    let mut pipeline = frond_bson::ArrayBuf::new();
    stages.iter().for_each(|stage| pipeline.push(stage));
    let request = AggregateRequest {
        pipeline: &pipeline,
        hint: None,
        variables: None,
        durability: Durability::Logged,
        bypass_validation: false,
        allow_disk_use: None,
        collation: None,
    };
    let ns = ns(name);
    let context = OpContext::new();
    let mut cursor = store
        .aggregate("db", Some(&ns), &request, &context)
        .unwrap();
    let (mut count, mut hash) = (0, 0u64);
    while let Some(doc) = cursor.next().unwrap() {
        count += 1;
        for byte in doc.as_bytes() {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    format!("{count} rows, hash {hash:016x}")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments[0] == "load" {
        let number = |at: usize| -> u64 { arguments[at].parse().unwrap() };
        let store = open(&arguments[3], 1024);
        load(&store, "db.large", number(1), large);
        load(&store, "db.small", number(2), small);
        store.close().unwrap();
        return;
    }
    let number = |at: usize, or: usize| arguments.get(at).map_or(or, |text| text.parse().unwrap());
    let store = open(&arguments[1], number(2, 512));
    let rounds = number(3, 2);
    let only = arguments.get(4).map_or("", String::as_str);
    let find = |collection: &str, filter: &Doc| {
        let request = FindRequest {
            filter: Some(filter),
            ..FindRequest::default()
        };
        let mut cursor = store
            .find(&ns(collection), &request, &OpContext::new())
            .unwrap();
        let (mut found, mut bytes) = (0, 0);
        let visit = &mut |doc: &Doc| {
            found += 1;
            bytes += doc.len_bytes();
            frond_store::Flow::Continue
        };
        cursor.for_each(visit).unwrap();
        format!("{found} documents, {bytes} bytes")
    };
    let count = |collection: &str, filter: &Doc| {
        let request = CountRequest {
            filter: Some(filter),
            ..CountRequest::default()
        };
        let counted = store.count(&ns(collection), &request, &OpContext::new());
        format!("{} documents", counted.unwrap())
    };
    type Case<'a> = (&'a str, Box<dyn Fn() -> String + 'a>);
    let group = |id: &str, fields: DocBuf| {
        let mut spec = doc! {"_id": id};
        fields
            .iter()
            .for_each(|(name, value)| spec.push(name, value));
        doc! {"$group": &spec}
    };
    let cases: Vec<Case<'_>> = vec![
        (
            "find name",
            Box::new(|| find("db.large", &doc! {"name": "Name0000 Last00077"})),
        ),
        ("find everything", Box::new(|| find("db.large", &doc! {}))),
        (
            "count of a half",
            Box::new(|| count("db.small", &doc! {"v": {"$lt": 50_000}})),
        ),
        (
            "find small",
            Box::new(|| find("db.small", &doc! {"v": 77, "g": {"$gte": 500}})),
        ),
        (
            "group g count",
            Box::new(|| aggregate(&store, "db.small", &[group("$g", doc! {"n": {"$sum": 1}})])),
        ),
        (
            "group g sum avg",
            Box::new(|| {
                let fields = doc! {"n": {"$sum": "$v"}, "a": {"$avg": "$x"}};
                aggregate(&store, "db.small", &[group("$g", fields)])
            }),
        ),
        (
            "match group sum",
            Box::new(|| {
                let fields = doc! {"n": {"$sum": "$v"}, "m": {"$max": "$x"}};
                let filter = doc! {"$match": {"v": {"$lt": 50_000}}};
                aggregate(&store, "db.small", &[filter, group("$g", fields)])
            }),
        ),
    ];
    for (what, run) in cases {
        if what.starts_with(only) {
            timed(what, rounds, run);
        }
    }
    store.close().unwrap();
}
