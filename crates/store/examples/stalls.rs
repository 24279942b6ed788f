//! Measures how long finds, inserts and implicit creations of collections take at most while another thread runs commands
//! whose work grows with the data: large inserts, createIndexes, collMod to unique, convertToCapped, reIndex, drop.
//!
//! `cargo run --release -p frond-store --example stalls -- DOCUMENTS [DIRECTORY] [CACHE_MIB]`
//!
//! It ends with 1 if one of them took longer than [`BOUND`] beside a change of the catalog.
#![allow(clippy::unwrap_used)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, doc};
use frond_store::{
    DocumentStore, Durability, EngineOptions, FindRequest, IndexChange, IndexSelector,
    InsertOptions, Namespace, OpContext, StoreOptions,
};

const INSERT: InsertOptions = InsertOptions {
    ordered: true,
    durability: Durability::Logged,
    bypass_validation: false,
    keep_empty_timestamps: false,
};

/// No change of the catalog keeps others waiting for longer.
const BOUND: Duration = Duration::from_millis(50);

/// Actions that run beside the commands. `other` is a small collection.
const ACTIONS: [&str; 5] = [
    "find",
    "insert",
    "find in other",
    "insert into other",
    "create",
];

fn ns(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

fn insert(store: &DocumentStore, name: &str, docs: &[DocBuf]) {
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    let outcome = store.insert(&ns(name), &docs, INSERT).unwrap();
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

fn find(store: &DocumentStore, name: &str, id: u64) {
    let filter = doc! {"_id": id as i64};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    let mut cursor = store.find(&ns(name), &request, &OpContext::new()).unwrap();
    cursor.next().unwrap();
}

fn act(store: &DocumentStore, action: usize, documents: u64, next: &AtomicU64) {
    let id = next.fetch_add(1, Ordering::Relaxed);
    let a = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
    match action {
        0 => find(store, "db.c", id.wrapping_mul(7_919) % documents),
        1 => insert(
            store,
            "db.c",
            &[doc! {"_id": id as i64, "a": a, "b": "new"}],
        ),
        2 => find(store, "db.other", id % 1000),
        3 => insert(store, "db.other", &[doc! {"_id": id as i64, "a": a}]),
        _ => {
            let name = format!("db.new{}", id % 100);
            insert(store, &name, &[doc! {"_id": id as i64}]);
            if id % 100 == 99 {
                store.drop_collection(&ns(&name)).unwrap();
            }
        }
    }
}

/// Runs a command beside all actions, and prints how long these took: the median, the 99.9th percentile and the longest. Returns the
/// longest.
fn beside(
    store: &DocumentStore,
    what: &str,
    documents: u64,
    next: &AtomicU64,
    run: impl FnOnce(),
) -> Duration {
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let times: Vec<Vec<Duration>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..ACTIONS.len())
            .map(|action| {
                let stop = &stop;
                scope.spawn(move || {
                    let mut times = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let begun = Instant::now();
                        act(store, action, documents, next);
                        times.push(begun.elapsed());
                        thread::sleep(Duration::from_millis(1));
                    }
                    times
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(200));
        run();
        thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    println!("{what}: {:.1} s", started.elapsed().as_secs_f64() - 0.4);
    let longest = times.iter().flatten().max().copied();
    for (action, mut times) in ACTIONS.iter().zip(times) {
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "    {action:<18} {:>9} times, median {:>9.2?}, 99.9% {:>9.2?}, longest {:>9.2?}",
            times.len(),
            at(0.5),
            at(0.999),
            at(1.0)
        );
    }
    longest.unwrap_or_default()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let documents: u64 = arguments[0].parse().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let directory = arguments.get(1).map(std::path::Path::new);
    let directory = directory.unwrap_or(temporary.path());
    let cache_mib: usize = arguments.get(2).map_or(256, |mib| mib.parse().unwrap());
    let mut options = EngineOptions::new(directory);
    options.cache_bytes = cache_mib << 20;
    let store = DocumentStore::open_engine(options, StoreOptions::default()).unwrap();
    let text = "a text of some length, so that a document has about two hundred bytes, as they often have ".repeat(2);
    let document = |id: u64| {
        let a = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
        doc! {"_id": id as i64, "a": a, "b": &*text}
    };
    let batch = |from: u64| {
        let to = documents.min(from + 1000);
        (from..to).map(document).collect::<Vec<_>>()
    };
    let others: Vec<_> = (0..1000).map(|id| doc! {"_id": id, "a": id}).collect();
    insert(&store, "db.other", &others);
    let context = OpContext::new();
    let next = AtomicU64::new(documents);
    let c = ns("db.c");
    insert(&store, "db.c", &batch(0));
    beside(&store, "nothing", 1000, &next, || {
        thread::sleep(Duration::from_secs(3))
    });
    beside(&store, "insert", 1000, &next, || {
        (1..documents.div_ceil(1000))
            .for_each(|number| insert(&store, "db.c", &batch(number * 1000)));
    });
    beside(
        &store,
        "insert of 15 MiB documents",
        documents,
        &next,
        || {
            let large = "x".repeat(15 << 20);
            for id in 0..64 {
                insert(&store, "db.large", &[doc! {"_id": id, "x": &*large}]);
            }
        },
    );
    beside(
        &store,
        "insert of documents with 50,000 keys",
        documents,
        &next,
        || {
            store
                .create_indexes(&ns("db.keys"), &[&doc! {"key": {"x": 1}}])
                .unwrap();
            for id in 0..16 {
                let mut doc = doc! {"_id": id};
                doc.push_array("x", |list| (0..50_000).for_each(|x| list.push(x * 16 + id)));
                insert(&store, "db.keys", &[doc]);
            }
        },
    );
    let mut longest = Vec::new();
    let mut change_beside = |what: &'static str, run: &dyn Fn()| {
        longest.push((beside(&store, what, documents, &next, run), what));
    };
    let index = doc! {"key": {"a": 1}, "name": "a_1"};
    change_beside("createIndexes", &|| {
        store
            .create_indexes(&c, &[&index, &doc! {"key": {"b": 1, "a": -1}}])
            .unwrap();
    });
    let mut change = IndexChange {
        which: IndexSelector::Name("a_1".to_owned()),
        expire_after: None,
        hidden: None,
        prepare_unique: Some(true),
        unique: false,
        dry_run: false,
    };
    store.modify_index(&c, &change, &context).unwrap();
    (change.prepare_unique, change.unique) = (None, true);
    change_beside("collMod to unique", &|| {
        store.modify_index(&c, &change, &context).unwrap();
    });
    change_beside("collMod of the validator", &|| {
        let changes = doc! {"validator": {"gone": {"$exists": false}}};
        store.modify_collection(&c, &changes).unwrap();
    });
    change_beside("renameCollection, twice", &|| {
        let other = ns("db.renamed");
        store
            .rename_collection(&ns("db.large"), &other, false)
            .unwrap();
        store
            .rename_collection(&other, &ns("db.large"), false)
            .unwrap();
    });
    change_beside("reIndex", &|| {
        store.rebuild_indexes(&c, &context).unwrap();
    });
    change_beside("createIndexes, unique", &|| {
        let unique = doc! {"key": {"a": -1}, "unique": true};
        store.create_indexes(&c, &[&unique]).unwrap();
    });
    change_beside("dropIndexes", &|| {
        store.drop_indexes(&c, &IndexSelector::All).unwrap();
    });
    change_beside("convertToCapped", &|| {
        store.convert_to_capped(&c, 1 << 40, &context).unwrap();
    });
    change_beside("drop", &|| {
        store.drop_collection(&c).unwrap();
    });
    store.close().unwrap();
    let mut is_kept = true;
    for (took, what) in longest {
        let is_over = took > BOUND;
        is_kept &= !is_over;
        let verdict = if is_over {
            "over the bound"
        } else {
            "within it"
        };
        println!("longest beside {what}: {took:.2?}, {verdict} of {BOUND:?}");
    }
    if is_kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
