//! Random operations: the entries of the oplog lead to what is stored, byte by byte, also after restarts.
//!
//! `FROND_OPLOG_SEEDS` sets how many seeds are run, `FROND_OPLOG_SEED` the first one.

use frond_bson::doc;
use frond_store::{IndexSelector, LargeDocuments, StoreOptions};

use super::*;
use crate::common::disk::MemDisk;
use crate::common::ns;
use crate::large_documents::model::Docs;
use crate::large_documents::operations::run;
use crate::large_documents::updates::Shape;
use crate::large_documents::values::{Random, key_of};

/// Sizes from which documents are stored in parts, and of the parts.
const SIZES: [(usize, usize); 3] = [(256, 24), (2048, 128), (usize::MAX, 4096)];

pub fn open(disk: &MemDisk, sizes: (usize, usize)) -> DocumentStore {
    let mut engine = frond_store::EngineOptions::with_disk(std::sync::Arc::new(disk.clone()));
    engine.cache_bytes = 32 << 20;
    let options = StoreOptions::default().with_large_documents(LargeDocuments {
        threshold_bytes: sizes.0,
        segment_bytes: sizes.1,
    });
    DocumentStore::open_engine(engine, options).unwrap()
}

const NAMES: [&str; 4] = ["db.a", "db.b", "other.a", "other.c"];

fn name(random: &mut Random) -> Namespace {
    ns(NAMES[random.below(NAMES.len())])
}

/// The documents of a collection.
fn docs_of(store: &DocumentStore, c: &Namespace) -> Docs {
    let mut docs = Docs::new();
    let mut cursor = store
        .find(c, &Default::default(), &OpContext::new())
        .unwrap();
    // Another thread may drop the collection meanwhile.
    while let Ok(Some(doc)) = cursor.next() {
        docs.insert(key_of(&doc.get("_id").unwrap()), doc);
    }
    docs
}

fn change_documents(store: &DocumentStore, random: &mut Random, shape: Shape) {
    let c = name(random);
    // Some of the time the same few fields change, also by additions to integers that are not read without an oplog.
    let shape = Shape {
        hot: random.one_in(3),
        ..shape
    };
    let docs = docs_of(store, &c);
    let op = random.operation(&docs, shape);
    let _ = run(store, &c, &op, LOGGED);
}

fn in_transaction(store: &DocumentStore, random: &mut Random, shape: Shape) {
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    for _ in 0..random.below(6) {
        let c = name(random);
        let docs = docs_of(&inside, &c);
        let op = random.operation(&docs, shape);
        if run(&inside, &c, &op, LOGGED).is_err() {
            transaction.abort();
            return;
        }
    }
    if random.one_in(4) {
        transaction.abort();
    } else {
        // Another thread may have been faster.
        let _ = transaction.commit(LOGGED);
    }
}

fn change_catalog(store: &DocumentStore, random: &mut Random) {
    let c = name(random);
    match random.below(12) {
        0 => {
            let _ = store.drop_collection(&c);
        }
        1 | 2 => {
            let to = name(random);
            let _ = store.rename_collection(&c, &to, random.one_in(2));
        }
        3..6 => {
            let mut key = DocBuf::new();
            key.push(&random.name(4), 1);
            let _ = store.create_indexes(&c, &[&doc! {"key": &key}]);
        }
        6 => {
            let _ = store.drop_indexes(&c, &IndexSelector::All);
        }
        7 => {
            let _ = store.drop_database(c.db());
        }
        8 | 9 => {
            let enabled = random.one_in(2);
            let options = doc! {"changeStreamPreAndPostImages": {"enabled": enabled}};
            let _ = store.modify_collection(&c, &options);
        }
        10 => {
            let options = doc! {"naturalOrder": "insertion"};
            let _ = store.create_collection(&c, &options);
        }
        _ => {
            store.oplog().append_noop(&doc! {"msg": "x"}).unwrap();
        }
    }
}

pub fn step(store: &DocumentStore, random: &mut Random, shape: Shape) {
    match random.below(20) {
        0 => change_catalog(store, random),
        1..4 => in_transaction(store, random, shape),
        _ => change_documents(store, random, shape),
    }
}

pub fn shape(sizes: (usize, usize)) -> Shape {
    Shape {
        ids: 12,
        bytes: sizes.0.min(1024) * 2,
        hot: false,
    }
}

#[test]
fn the_entries_lead_to_what_is_stored() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse().expect("a number"))
    };
    let first: u64 = number("FROND_OPLOG_SEED").unwrap_or(100);
    let seeds: u64 = number("FROND_OPLOG_SEEDS").unwrap_or(3);
    let mut kinds = std::collections::BTreeSet::new();
    for seed in first..first + seeds {
        println!("seed {seed}");
        let sizes = SIZES[seed as usize % SIZES.len()];
        let mut random = Random::new(seed);
        let disk = MemDisk::default();
        let mut store = open(&disk, sizes);
        store.turn_on_oplog(OPLOG).unwrap();
        for number in 0..600 {
            step(&store, &mut random, shape(sizes));
            if number % 50 == 0 {
                replay::check(&store);
            }
            if random.one_in(100) {
                store.engine().close().unwrap();
                store = open(&disk, sizes);
                replay::check(&store);
            }
        }
        replay::check(&store);
        kinds.extend(documents(&store).iter().map(|entry| {
            let o = entry.get_doc("o").unwrap();
            let op = entry.get_str("op").unwrap();
            match op {
                "c" => o.first().unwrap().0.to_owned(),
                "u" if o.contains_key("diff") => "diff".to_owned(),
                _ => op.to_owned(),
            }
        }));
    }
    for kind in [
        "i",
        "u",
        "d",
        "diff",
        "applyOps",
        "create",
        "drop",
        "renameCollection",
    ] {
        assert!(kinds.contains(kind), "{kind} of {kinds:?}");
    }
}

#[test]
fn entries_are_in_the_order_of_what_threads_have_done() {
    let sizes = SIZES[0];
    let disk = MemDisk::default();
    let store = open(&disk, sizes);
    store.turn_on_oplog(OPLOG).unwrap();
    for round in 0..3 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    let mut random = Random::new(round * 10 + thread);
                    for _ in 0..150 {
                        step(store, &mut random, shape(sizes));
                    }
                });
            }
        });
        replay::check(&store);
    }
    let transactions = documents(&store);
    let transactions =
        (transactions.iter()).filter(|entry| entry.get_doc("o").unwrap().contains_key("applyOps"));
    assert!(transactions.count() > 20);
}
