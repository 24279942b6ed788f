//! Power failures at any moment while partitions are added and dropped: a store has all that was durable, then what followed, without gaps.
//!
//! `FROND_PARTITION_CRASHES` is the number of crashes, and `FROND_PARTITION_SEED` the seed of the first round.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::disk::MemDisk;
use common::{INSERT, ns, open_with};
use frond_bson::{Doc, DocBuf, OwnedValue, Value, doc};
use frond_store::{
    DeleteRequest, DocumentStore, Durability, EngineOptions, FindRequest, InsertOptions, Namespace,
    OpContext, PartitionSelector, UpdateRequest,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Crashes in a default test run.
const CRASHES: u64 = 400;
const STEPS: usize = 40;
const HOUR: i64 = 3_600_000;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

/// Documents by `_id`: the hour of the date or the number that divides them, and another field.
type Documents = BTreeMap<i32, (i64, i32)>;

/// A collection and its documents.
#[derive(Clone)]
struct Model {
    ns: Namespace,
    is_by_period: bool,
    documents: Documents,
    /// The greatest value of the dropped first partitions, and the bounds of the others. A collection by periods has neither.
    from: i64,
    bounds: Vec<(i32, i64)>,
    last: i32,
    next: i32,
}

impl Model {
    fn value(&self, at: i64) -> Value<'static> {
        if self.is_by_period {
            Value::DateTime(at * HOUR)
        } else {
            Value::Int64(at)
        }
    }

    fn document(&self, id: i32, (at, a): (i64, i32)) -> DocBuf {
        let mut out = doc! {"_id": id};
        out.push("ts", self.value(at));
        out.push("a", a);
        out
    }

    /// The documents that a store has.
    fn stored(&self, store: &DocumentStore) -> Documents {
        let hinted = FindRequest {
            hint: Some(Value::String("a")),
            ..FindRequest::default()
        };
        let read = |request: &FindRequest<'_>| -> Documents {
            let mut cursor = store.find(&self.ns, request, &OpContext::new()).unwrap();
            let mut found = Documents::new();
            while let Some(doc) = cursor.next().unwrap() {
                let at = match doc.get("ts").unwrap() {
                    Value::DateTime(date) => date / HOUR,
                    number => number.as_i64_lossless().unwrap(),
                };
                let id = doc.get_i32("_id").unwrap();
                found.insert(id, (at, doc.get_i32("a").unwrap()));
            }
            found
        };
        let found = read(&FindRequest::default());
        assert_eq!(read(&hinted), found, "by the index");
        found
    }
}

struct Round {
    store: DocumentStore,
    random: StdRng,
    models: [Model; 2],
    next_id: i32,
}

impl Round {
    fn new(disk: &MemDisk, seed: u64) -> Round {
        let store = open(disk);
        let model = |name: &str, is_by_period: bool| Model {
            ns: ns(name),
            is_by_period,
            documents: Documents::new(),
            from: -1,
            bounds: Vec::new(),
            last: 0,
            next: 1,
        };
        let models = [model("db.hours", true), model("db.listed", false)];
        let options = [
            doc! {"partitioned": {"by": "ts", "every": "1h"}},
            doc! {"primaryKey": {"ts": 1, "_id": 1}, "partitioned": true},
        ];
        for (model, options) in models.iter().zip(&options) {
            store.create_collection(&model.ns, options).unwrap();
            store
                .create_indexes(&model.ns, &[&doc! {"key": {"a": 1}, "name": "a"}])
                .unwrap();
        }
        store.engine().flush_log().unwrap();
        Round {
            store,
            random: StdRng::seed_from_u64(seed),
            models,
            next_id: 0,
        }
    }

    fn below(&mut self, end: i64) -> i64 {
        self.random.random_range(0..end)
    }

    /// Does something to a collection. Returns whether it is durable.
    fn step(&mut self) -> bool {
        let which = self.below(2) as usize;
        match self.below(12) {
            0..=4 => self.insert(which),
            5 | 6 => self.update(which),
            7 => self.delete(which),
            8 | 9 => self.divide_or_drop(which),
            10 => {
                self.store.checkpoint().unwrap();
                true
            }
            _ => {
                self.store.engine().flush_log().unwrap();
                true
            }
        }
    }

    fn insert(&mut self, which: usize) -> bool {
        let is_synced = self.below(3) == 0;
        let mut docs = Vec::new();
        for _ in 0..1 + self.below(30) {
            let from = self.models[which].from;
            let at = from + 1 + self.below(8);
            let fields = (at, self.below(5) as i32);
            self.next_id += 1;
            let id = self.next_id;
            let model = &mut self.models[which];
            model.documents.insert(id, fields);
            docs.push(model.document(id, fields));
        }
        let options = InsertOptions {
            durability: if is_synced {
                Durability::Synced
            } else {
                Durability::Logged
            },
            ..INSERT
        };
        let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
        let outcome = self
            .store
            .insert(&self.models[which].ns, &docs, options)
            .unwrap();
        assert_eq!(outcome.inserted, docs.len());
        is_synced
    }

    /// Moves some documents, one commit for all.
    fn update(&mut self, which: usize) -> bool {
        let (a, by) = (self.below(5) as i32, self.below(3));
        let model = &mut self.models[which];
        for (at, _) in model.documents.values_mut().filter(|fields| fields.1 == a) {
            *at += by;
        }
        let more = if model.is_by_period {
            doc! {"$add": ["$ts", by * HOUR]}
        } else {
            doc! {"$add": ["$ts", by]}
        };
        let stage = doc! {"$set": {"ts": &more}};
        let pipeline = frond_bson::array![&stage];
        let filter = doc! {"a": a};
        let request = UpdateRequest {
            multi: true,
            ..UpdateRequest::new(&filter, Value::Array(&pipeline))
        };
        let ns = model.ns.clone();
        self.store
            .update(&ns, &request, Durability::Logged, &OpContext::new())
            .unwrap();
        false
    }

    fn delete(&mut self, which: usize) -> bool {
        let a = self.below(5) as i32;
        let model = &mut self.models[which];
        model.documents.retain(|_, fields| fields.1 != a);
        let filter = doc! {"a": a};
        let request = DeleteRequest {
            collation: None,
            filter: &filter,
            limit_one: false,
            hint: None,
            variables: None,
        };
        self.store
            .delete(&model.ns, &request, Durability::Logged, &OpContext::new())
            .unwrap();
        false
    }

    fn divide_or_drop(&mut self, which: usize) -> bool {
        let (divides, pick) = (self.below(2) == 0, self.below(1000) as usize);
        let model = &mut self.models[which];
        if model.is_by_period {
            let mut hours: Vec<i64> = model.documents.values().map(|fields| fields.0).collect();
            hours.sort_unstable();
            hours.dedup();
            if let Some(hour) = hours.get(pick % hours.len().max(1)).copied() {
                model.documents.retain(|_, fields| fields.0 != hour);
                let id = PartitionSelector::Id(OwnedValue::DateTime(hour * HOUR));
                self.store.drop_partitions(&model.ns, &id).unwrap();
            }
            return false;
        }
        if divides || model.bounds.is_empty() {
            let floor = model.bounds.last().map_or(model.from, |bound| bound.1);
            let greatest = model
                .documents
                .values()
                .map(|fields| fields.0)
                .max()
                .unwrap_or(0);
            let max = greatest.max(floor + 1);
            self.store
                .add_partition(&model.ns, Some(&doc! {"ts": max}))
                .unwrap();
            model.bounds.push((model.last, max));
            model.last = model.next;
            model.next += 1;
        } else {
            let place = pick % model.bounds.len();
            let (id, max) = model.bounds.remove(place);
            let floor = match place.checked_sub(1) {
                Some(before) => model.bounds[before].1,
                None => model.from,
            };
            model
                .documents
                .retain(|_, fields| fields.0 <= floor || fields.0 > max);
            if place == 0 {
                model.from = max;
            }
            let selector = PartitionSelector::Id(OwnedValue::from(Value::Int32(id)));
            self.store.drop_partitions(&model.ns, &selector).unwrap();
        }
        false
    }
}

fn open(disk: &MemDisk) -> DocumentStore {
    open_with(EngineOptions::with_disk(Arc::new(disk.clone())))
}

/// One history with a crash after each step. Returns how many.
fn round(seed: u64) -> u64 {
    let disk = MemDisk::default();
    let mut round = Round::new(&disk, seed);
    // The states since the last durable one.
    let mut states = vec![round.models.clone()];
    for step in 0..STEPS {
        if round.step() {
            states.clear();
        }
        states.push(round.models.clone());
        let image = disk.image(&mut StdRng::seed_from_u64(seed * 1000 + step as u64));
        let store = open(&image);
        let found = round.models.each_ref().map(|model| model.stored(&store));
        let is_one = states.iter().any(|models| {
            models
                .iter()
                .zip(&found)
                .all(|(model, found)| model.documents == *found)
        });
        assert!(is_one, "seed {seed}, step {step}: no state has {found:?}");
        for model in &round.models {
            let report = store.verify(&model.ns).unwrap();
            assert_eq!(
                report.errors,
                Vec::<String>::new(),
                "seed {seed}, step {step}"
            );
        }
        store.engine().close().unwrap();
    }
    STEPS as u64
}

#[test]
fn a_crash_leaves_whole_partitions() {
    let wanted = setting("FROND_PARTITION_CRASHES", CRASHES);
    let first = setting("FROND_PARTITION_SEED", 1);
    let mut crashes = 0;
    let mut seed = first;
    while crashes < wanted {
        crashes += round(seed);
        seed += 1;
    }
    println!("{crashes} crashes, seeds {first} to {}", seed - 1);
}
