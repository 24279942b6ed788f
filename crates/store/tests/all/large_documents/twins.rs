//! Stores that differ only in the setting give the same results: through indexes of every kind, in aggregations, and in
//! and after commands that change collections.

use std::fmt::Debug;
use std::sync::Arc;

use frond_bson::{ArrayBuf, Doc, DocBuf, OwnedValue, Value, doc};
use frond_store::{
    AggregateRequest, CountRequest, DocumentStore, Durability, EngineOptions, FindRequest,
    IndexSelector, Namespace, OpContext, Transaction,
};

use crate::common::disk::MemDisk;
use crate::common::ns;
use crate::large_documents::model::Docs;
use crate::large_documents::operations::{Op, failure, run};
use crate::large_documents::queries::{all, brief, find};
use crate::large_documents::setting::{SETTINGS, Setting, WHOLE, seeds};
use crate::large_documents::updates::Shape;
use crate::large_documents::values::{Random, key_of};

type Failure = (i32, String);

pub struct Twin {
    setting: Setting,
    disk: MemDisk,
    /// While a transaction is open, the handle of its requests.
    pub store: DocumentStore,
    /// The open transaction, and the handle outside of it.
    open: Option<(Transaction, DocumentStore)>,
}

impl Twin {
    pub fn new(setting: &Setting) -> Twin {
        let disk = MemDisk::default();
        Twin {
            setting: *setting,
            store: Twin::open(setting, &disk),
            open: None,
            disk,
        }
    }

    fn open(setting: &Setting, disk: &MemDisk) -> DocumentStore {
        let mut options = EngineOptions::with_disk(Arc::new(disk.clone()));
        options.memtable_bytes = Some(128 << 10);
        options.flush_threads = 1;
        let store = setting.open(options).unwrap();
        store.resume_index_builds(&OpContext::new());
        store
    }

    fn begin(&mut self) {
        self.commit();
        let transaction = self.store.begin();
        let inside = self.store.in_transaction(&transaction);
        let outside = std::mem::replace(&mut self.store, inside);
        self.open = Some((transaction, outside));
    }

    fn commit(&mut self) {
        if let Some((transaction, outside)) = self.open.take() {
            transaction.commit(Durability::Logged).unwrap();
            self.store = outside;
        }
    }

    fn reopen(&mut self) {
        self.commit();
        self.store.engine().close().unwrap();
        self.store = Twin::open(&self.setting, &self.disk);
    }
}

/// A store with whole documents, and one that must give the same results.
pub struct Twins {
    pub whole: Twin,
    pub other: Twin,
    pub what: String,
}

impl Twins {
    /// Runs it on both, which must return the same.
    pub fn both<T: PartialEq + Debug>(&self, what: &str, ask: impl Fn(&DocumentStore) -> T) -> T {
        let (wanted, found) = (ask(&self.whole.store), ask(&self.other.store));
        assert!(
            found == wanted,
            "{}: {what}: {} in place of {}",
            self.what,
            brief(&found),
            brief(&wanted)
        );
        wanted
    }

    /// As [`Twins::both`], whatever they answer.
    pub fn same<T: PartialEq + Debug>(&self, what: &str, ask: impl Fn(&DocumentStore) -> T) {
        drop(self.both(what, ask));
    }

    fn docs(&self, c: &Namespace) -> Docs {
        let docs = all(&self.whole.store, c).into_iter();
        docs.map(|doc| (key_of(&doc.get("_id").unwrap()), doc))
            .collect()
    }

    /// The collection is the same, sound, and of the same size.
    pub fn compare(&self, c: &Namespace) {
        self.same("the collection", |store| all(store, c));
        self.same("the indexes", |store| store.list_indexes(c).ok());
        let report = self.both("validate", |store| {
            let report = store.verify(c).map_err(|error| failure(&error))?;
            Ok::<_, Failure>((report.documents, report.indexes, report.errors))
        });
        if let Ok((_, _, errors)) = report {
            assert_eq!(errors, Vec::<String>::new(), "{}", self.what);
        }
        self.same("the count", |store| {
            store.collection_stats(c).ok().map(|stats| stats.count)
        });
        self.same("dbHash", |store| {
            let hash = store.hash_database("db", None, &OpContext::new()).unwrap();
            let hashes = hash.collections.into_iter();
            hashes.map(|one| (one.name, one.md5)).collect::<Vec<_>>()
        });
    }

    pub fn create_index(&self, c: &Namespace, spec: &Doc) {
        self.same(&format!("index {spec:?}"), |store| {
            let created = store.create_indexes(c, &[spec]);
            created.map(|_| ()).map_err(|error| failure(&error))
        });
    }

    fn find(&self, c: &Namespace, random: &mut Random, docs: &Docs, shape: Shape) {
        let Some(doc) = random.some_doc(docs) else {
            return;
        };
        let mut filter = question(random, doc, docs, shape);
        if random.one_in(20) {
            filter.push("$text", &doc! {"$search": "red -fox"});
        }
        if random.one_in(20) {
            let field = format!("${}", path(random, doc));
            filter.push(
                "$expr",
                &doc! {"$gt": [field, {"$literal": random.scalar()}]},
            );
        }
        let projection = random.projection(doc);
        let sort = random.sort(Some(doc));
        let indexes = self.whole.store.list_indexes(c).unwrap_or_default();
        let mut hints: Vec<Option<DocBuf>> = vec![None, Some(doc! {"$natural": 1})];
        for index in indexes.iter().filter(|_| random.one_in(3)) {
            hints.push(index.get_doc("key").map(Doc::to_owned));
        }
        for hint in hints {
            let hint = hint.as_ref().map(|hint| Value::Document(hint));
            let request = FindRequest {
                filter: Some(&filter),
                projection: Some(&projection),
                sort: Some(&sort),
                hint,
                skip: random.below(7).saturating_sub(5) as u64,
                ..FindRequest::default()
            };
            let what = format!("find {filter:?} show {projection:?} sort {sort:?} hint {hint:?}");
            self.same(&what, |store| find(store, c, &request));
            let request = CountRequest {
                filter: Some(&filter),
                hint,
                ..CountRequest::default()
            };
            self.same(&format!("count {filter:?}"), |store| {
                let count = store.count(c, &request, &OpContext::new());
                count.map_err(|error| failure(&error))
            });
            let path = path(random, doc);
            self.same(&format!("distinct {path} {filter:?} {hint:?}"), |store| {
                let context = OpContext::new();
                let values = store.distinct(c, &path, Some(&filter), hint, None, &context);
                let values = values.map(|values| values.as_doc().to_owned());
                values.map_err(|error| failure(&error))
            });
        }
    }

    /// Whether the pipeline runs.
    pub fn aggregate(&self, c: &Namespace, pipeline: &Doc) -> bool {
        let request = AggregateRequest {
            pipeline,
            hint: None,
            variables: None,
            durability: Durability::Logged,
            bypass_validation: false,
            allow_disk_use: None,
            collation: None,
        };
        let answer = self.both(&format!("aggregate {pipeline:?}"), |store| {
            let read = || {
                let mut cursor = store.aggregate(c.db(), Some(c), &request, &OpContext::new())?;
                let mut found = Vec::new();
                while let Some(doc) = cursor.next()? {
                    found.push(doc);
                }
                Ok(found)
            };
            read().map_err(|error| {
                let (code, message) = failure(&error);
                // The documents have the fields that the pipeline requires.
                let message = message.split("Input document").next().unwrap().to_owned();
                (code, message)
            })
        });
        answer.is_ok()
    }

    fn admin(&mut self, c: &Namespace, random: &mut Random) {
        match random.below(7) {
            0 => {
                self.whole.reopen();
                self.other.reopen();
            }
            1 => {
                let indexes = self.whole.store.list_indexes(c).unwrap_or_default();
                if indexes.len() > 2 {
                    let index = &indexes[1 + random.below(indexes.len() - 1)];
                    let name = index.get_str("name").unwrap();
                    self.same(&format!("drop {name}"), |store| {
                        let which = IndexSelector::Name(name.to_owned());
                        store
                            .drop_indexes(c, &which)
                            .map_err(|error| failure(&error))
                    });
                }
            }
            2 => {
                let away = ns("db.away");
                for (from, to) in [(c, &away), (&away, c)] {
                    self.same("rename", |store| {
                        let renamed = store.rename_collection(from, to, true);
                        renamed.map_err(|error| failure(&error))
                    });
                    self.compare(to);
                }
            }
            3 if random.one_in(3) => {
                self.same("drop", |store| store.drop_collection(c).is_ok());
            }
            4 => {
                self.same("reIndex", |store| {
                    let built = store.rebuild_indexes(c, &OpContext::new());
                    built.map_err(|error| failure(&error))
                });
            }
            5 => {
                self.same("TTL", |store| {
                    let pass = store.delete_expired(3500, &OpContext::new());
                    (pass.deleted, pass.failed.len())
                });
            }
            _ => {
                let schema = if random.one_in(2) {
                    doc! {}
                } else {
                    doc! {"$jsonSchema": {"properties": {"n": {"maxProperties": 40}}}}
                };
                self.same("collMod", |store| {
                    let changed = store.modify_collection(c, &doc! {"validator": &schema});
                    changed.map_err(|error| failure(&error))
                });
            }
        }
    }
}

/// Conditions, mostly without an `_id`.
fn question(random: &mut Random, doc: &Doc, docs: &Docs, shape: Shape) -> DocBuf {
    if random.one_in(4) {
        return random.filter(docs, shape);
    }
    let mut filter = DocBuf::new();
    for _ in 0..random.below(3) {
        random.condition(doc, &mut filter);
    }
    filter
}

fn path(random: &mut Random, doc: &Doc) -> String {
    match random.field(doc) {
        Some(field) if !field.path.is_empty() => field.path,
        _ => "n.k1".to_owned(),
    }
}

fn index(random: &mut Random, doc: &Doc) -> DocBuf {
    let one = if random.one_in(2) {
        path(random, doc)
    } else {
        ["n.k1", "m.k1", "n", "m", "tags", "p.in.k2", "a", "n.k2.k0"][random.below(8)].to_owned()
    };
    let other = path(random, doc);
    match random.below(14) {
        0 => doc! {"key": {one: 1, "b": -1}},
        1 => doc! {"key": {one: -1, other: 1}},
        2 => doc! {"key": {one: "hashed"}},
        3 => doc! {"key": {one: 1}, "sparse": true, "name": "sparse"},
        4 => {
            doc! {"key": {one: 1}, "partialFilterExpression": {other: {"$exists": true}}, "name": "partial"}
        }
        5 => doc! {"key": {one: 1}, "unique": true, "sparse": true, "name": "unique"},
        6 => doc! {"key": {"$**": 1}},
        7 => doc! {"key": {"n.$**": 1}},
        8 => doc! {"key": {"$**": 1}, "wildcardProjection": {"n": 0, "p.in": 0}, "name": "wild"},
        9 => doc! {"key": {"$**": "text"}, "name": "text"},
        10 => doc! {"key": {"s": "text", "m.k1": "text"}, "name": "text"},
        11 => doc! {"key": {"a": 1}, "expireAfterSeconds": 1, "name": "ttl"},
        12 => doc! {"key": {one: 1}, "clustering": true, "name": "clustering"},
        _ => doc! {"key": {one: 1}},
    }
}

fn pipeline(random: &mut Random, doc: &Doc, docs: &Docs, shape: Shape) -> ArrayBuf {
    let mut stages = ArrayBuf::new();
    let sort = doc! {"$sort": {"_id": 1}};
    let (one, other) = (path(random, doc), path(random, doc));
    let (field, other_field) = (format!("${one}"), format!("${other}"));
    if random.one_in(2) {
        stages.push(&doc! {"$match": question(random, doc, docs, shape)});
    }
    stages.push(&sort);
    match random.below(12) {
        0 => {
            stages.push(&doc! {"$group": {
                "_id": &field, "count": {"$sum": 1}, "all": {"$push": &other_field}, "max": {"$max": "$$ROOT"}
            }});
            stages.push(&sort);
        }
        1 => stages.push(&doc! {"$project": {"list": {"$objectToArray": "$n"}}}),
        2 => stages
            .push(&doc! {"$project": {"size": {"$bsonSize": "$$ROOT"}, "type": {"$type": &field}}}),
        3 => {
            stages.push(&doc! {"$project": {"list": {"$objectToArray": "$m"}}});
            stages.push(&doc! {"$unwind": "$list"});
            stages.push(&doc! {"$group": {"_id": "$list.k", "values": {"$push": "$list.v"}}});
            stages.push(&sort);
        }
        4 => stages.push(&doc! {"$replaceRoot": {"newRoot": {"$ifNull": ["$p", {"none": 1}]}}}),
        5 => stages.push(&doc! {"$set": {one: {"$ifNull": [&other_field, "none"]}}}),
        6 => stages.push(&doc! {"$unset": [one]}),
        7 => {
            stages.push(&doc! {"$lookup": {
                "from": "c", "localField": &one, "foreignField": &other, "as": "others"
            }});
            stages.push(&doc! {"$set": {"others": {"$size": "$others"}}});
        }
        8 => {
            stages.push(&doc! {"$facet": {
                "counts": [{"$count": "n"}], "shown": [{"$project": {one: 1}}], "ids": [{"$project": {"_id": 1}}]
            }});
        }
        9 => stages.push(&doc! {"$out": "out"}),
        10 => {
            let how = ["merge", "replace", "keepExisting"][random.below(3)];
            stages.push(&doc! {"$set": {"merged.k1": 1, "n.k1": &other_field}});
            stages.push(&doc! {"$merge": {"into": "merged", "whenMatched": how}});
        }
        _ => {
            // Into the collection itself.
            stages.push(&doc! {"$project": {"n.k1": {"$literal": 5}, "new": {"k1": 1}}});
            stages.push(&doc! {"$merge": {"into": "c", "whenMatched": "merge", "whenNotMatched": "discard"}});
        }
    }
    stages
}

fn work(seed: u64, setting: &Setting) -> u64 {
    work_in(seed, setting, false)
}

/// The same, with the operations of the other store in transactions.
fn work_in_transactions(seed: u64, setting: &Setting) -> u64 {
    work_in(seed, setting, true)
}

fn work_in(seed: u64, setting: &Setting, transactions: bool) -> u64 {
    let mut random = Random::new(seed);
    let mut twins = Twins {
        whole: Twin::new(&WHOLE),
        other: Twin::new(setting),
        what: format!("{} {seed}", setting.name),
    };
    let c = ns("db.c");
    let shape = Shape {
        ids: if setting.threshold < 10_000 { 20 } else { 6 },
        bytes: setting.threshold.min(64 << 10),
        hot: random.one_in(4),
    };
    let options = match random.below(6) {
        0 => doc! {"collation": {"locale": "en", "strength": 2}},
        1 => doc! {"capped": true, "size": 4_000_000},
        2 => doc! {"clusteredIndex": {"key": {"_id": 1}, "unique": true}},
        _ => doc! {},
    };
    let create = |twins: &Twins| {
        twins.same("create", |store| {
            let created = store.create_collection(&c, &options);
            created.map_err(|error| failure(&error))
        })
    };
    create(&twins);
    let steps = if setting.threshold < 10_000 { 120 } else { 30 };
    let first: Vec<DocBuf> = (0..shape.ids)
        .map(|n| {
            let bytes = random.size_around(shape.bytes);
            random.document(&crate::large_documents::values::id_of(n), bytes)
        })
        .collect();
    let insert = Op::Insert(first);
    twins.same("insert", |store| {
        run(store, &c, &insert, Durability::Logged)
    });
    // Capped collections take no writes in transactions.
    let transactions = transactions && !options.contains_key("capped");
    for step in 0..steps {
        let docs = twins.docs(&c);
        let op = random.operation(&docs, shape);
        let what = format!("step {step}: {}", brief(&op));
        if transactions && random.one_in(8) {
            twins.other.begin();
        }
        if matches!(&op, Op::Insert(docs) if docs.len() > 1) {
            // In a transaction the first document that is refused ends it.
            twins.other.commit();
        }
        twins.same(&what, |store| run(store, &c, &op, Durability::Logged));
        if transactions && random.one_in(4) {
            twins.same("the collection, now", |store| all(store, &c));
            twins.same("validate, now", |store| {
                store.verify(&c).map(|report| report.errors).ok()
            });
        }
        let target = random.some_doc(&docs).cloned().unwrap_or_default();
        if random.one_in(12) {
            twins.other.commit();
            twins.create_index(&c, &index(&mut random, &target));
        }
        if random.one_in(4) {
            twins.find(&c, &mut random, &twins.docs(&c), shape);
        }
        if random.one_in(8) {
            twins.other.commit();
            let docs = twins.docs(&c);
            let pipeline = pipeline(&mut random, &target, &docs, shape);
            twins.aggregate(&c, pipeline.as_doc());
            for written in ["db.out", "db.merged"] {
                twins.compare(&ns(written));
            }
        }
        if random.one_in(25) {
            twins.other.commit();
            twins.admin(&c, &mut random);
            create(&twins);
        }
        if random.one_in(20) {
            twins.other.commit();
            twins.compare(&c);
        }
    }
    twins.other.commit();
    twins.compare(&c);
    twins.whole.reopen();
    twins.other.reopen();
    twins.compare(&c);
    steps
}

#[test]
fn stores_with_and_without_large_documents_answer_alike() {
    assert!(SETTINGS.iter().all(|one| one.threshold < WHOLE.threshold));
    seeds(1500, work);
}

#[test]
fn transactions_over_large_documents_answer_like_single_operations() {
    seeds(1500, work_in_transactions);
}

/// The values of a sub-document's index are those of whole documents, whatever the order of the updates.
#[test]
fn an_index_of_a_sub_document_follows_each_update() {
    for setting in SETTINGS {
        let twins = Twins {
            whole: Twin::new(&WHOLE),
            other: Twin::new(setting),
            what: setting.name.to_owned(),
        };
        let c = ns("db.c");
        for spec in [
            doc! {"key": {"n": 1}},
            doc! {"key": {"n.k1": 1, "n.k2": -1}},
            doc! {"key": {"n.$**": 1}},
            doc! {"key": {"n.k3": "hashed"}},
            doc! {"key": {"n.u": 1}, "unique": true, "sparse": true},
        ] {
            twins.create_index(&c, &spec);
        }
        let mut n = DocBuf::new();
        for k in 0..(setting.threshold / 20).clamp(60, 1000) {
            n.push(&format!("k{k}"), k as i32);
        }
        let docs = (0..4).map(|id| doc! {"_id": id, "n": &n}).collect();
        let insert = Op::Insert(docs);
        twins
            .both("insert", |store| {
                run(store, &c, &insert, Durability::Logged)
            })
            .unwrap();
        for (id, update) in [
            (0, doc! {"$inc": {"n.k1": 1}}),
            (1, doc! {"$inc": {"n.k2": 5_i64, "n.k7": 1}}),
            (2, doc! {"$set": {"n.k3": "text"}}),
            (0, doc! {"$set": {"n.u": 5}}),
            (1, doc! {"$inc": {"n.u": 5}}),
            (1, doc! {"$set": {"n.u": 5, "n.k1": 9}}),
            (2, doc! {"$rename": {"n.k4": "n.u"}}),
            (3, doc! {"$unset": {"n.k1": "", "n.k3": ""}}),
            (3, doc! {"$set": {"n.k1": [1, 2, 3]}}),
            (3, doc! {"$push": {"n.k1": 7}}),
            (3, doc! {"$set": {"n.k9": {"a": 1}}}),
            (0, doc! {"$unset": {"n.u": ""}}),
            (1, doc! {"$set": {"n.u": 5}}),
            (2, doc! {"$set": {"n": 5}}),
        ] {
            let op = Op::Update(crate::large_documents::operations::UpdateOp {
                filter: doc! {"_id": id},
                update: OwnedValue::from(update),
                array_filters: Vec::new(),
                multi: false,
                upsert: false,
            });
            let what = format!("{op:?}");
            twins.same(&what, |store| run(store, &c, &op, Durability::Logged));
            twins.compare(&c);
        }
    }
}
