//! Hand-written cases, each at every setting, compared with the model.

use std::sync::Arc;

use frond_bson::{ArrayBuf, DocBuf, MAX_DOCUMENT_BYTES, OwnedValue, doc};
use frond_store::{DocumentStore, Durability, EngineOptions, Namespace, OpContext};

use crate::common::disk::MemDisk;
use crate::common::ns;
use crate::large_documents::model::{Model, same_outcome};
use crate::large_documents::operations::{Done, Op, Outcome, UpdateOp, run};
use crate::large_documents::queries::{all, brief, check_all, check_sound, find, in_parts};
use crate::large_documents::setting::{SETTINGS, Setting, WHOLE};

/// A store and its model.
struct Case {
    setting: Setting,
    disk: MemDisk,
    store: DocumentStore,
    c: Namespace,
    model: Model,
}

fn open(setting: &Setting, disk: &MemDisk) -> DocumentStore {
    let mut options = EngineOptions::with_disk(Arc::new(disk.clone()));
    options.memtable_bytes = Some(256 << 10);
    setting.open(options).unwrap()
}

impl Case {
    fn new(setting: &Setting) -> Case {
        let disk = MemDisk::default();
        Case {
            setting: *setting,
            store: open(setting, &disk),
            disk,
            c: ns("db.c"),
            model: Model::default(),
        }
    }

    /// Applies it to both, and compares.
    fn run(&mut self, op: Op) -> Outcome {
        let what = format!("{}: {}", self.setting.name, brief(&op));
        let (wanted, _) = self.model.run(&op);
        let outcome = run(&self.store, &self.c, &op, Durability::Logged);
        assert!(
            same_outcome(&outcome, &wanted),
            "{what}: {} in place of {}",
            brief(&outcome),
            brief(&wanted)
        );
        check_all(&self.store, &self.c, &self.model.docs, &what);
        outcome
    }

    fn insert(&mut self, doc: DocBuf) {
        let outcome = self.run(Op::Insert(vec![doc]));
        assert_eq!(outcome, Ok(Done::Inserted(1, Vec::new())));
    }

    fn try_update(&mut self, filter: DocBuf, update: DocBuf) -> Outcome {
        self.run(Op::Update(UpdateOp {
            filter,
            update: update.into(),
            array_filters: Vec::new(),
            multi: false,
            upsert: false,
        }))
    }

    /// Updates document 1, which must change.
    fn update(&mut self, update: DocBuf) {
        let outcome = self.try_update(doc! {"_id": 1}, update);
        let done = Done::Updated {
            matched: 1,
            modified: 1,
            upserted: None,
        };
        assert_eq!(outcome, Ok(done));
    }

    /// The error of an update of document 1.
    fn refused(&mut self, update: DocBuf) -> i32 {
        self.try_update(doc! {"_id": 1}, update).unwrap_err().0
    }

    fn reopen(&mut self) {
        self.store.engine().close().unwrap();
        self.store = open(&self.setting, &self.disk);
        self.check();
    }

    fn check(&self) {
        check_all(&self.store, &self.c, &self.model.docs, self.setting.name);
        check_sound(&self.store, &self.c, self.setting.name);
    }
}

fn each(test: impl Fn(&mut Case)) {
    for setting in SETTINGS {
        let mut case = Case::new(setting);
        test(&mut case);
        case.check();
        case.reopen();
    }
}

/// The keys of the workload share a long prefix.
fn key(n: usize) -> String {
    format!("a_long_prefix_that_all_of_the_keys_share_{n:05}")
}

fn counters(count: usize) -> DocBuf {
    let mut out = DocBuf::new();
    for n in 0..count {
        out.push(&key(n), n as i64);
    }
    out
}

fn ints(count: usize) -> DocBuf {
    let mut out = DocBuf::new();
    for n in 0..count {
        out.push(&format!("k{n}"), n as i32);
    }
    out
}

impl Case {
    /// This many keys need more than one segment, and a large document.
    fn many(&self) -> usize {
        (self.setting.threshold / 20).clamp(60, 2500)
    }
}

fn one(path: &str, value: impl Into<OwnedValue>) -> DocBuf {
    let mut out = DocBuf::new();
    out.push(path, &value.into());
    out
}

#[test]
fn a_document_of_20_000_keys_is_inserted_updated_and_read() {
    // Tiny segments of that many keys would take long and test nothing more.
    for setting in &SETTINGS[1..] {
        let mut case = Case::new(setting);
        case.insert(doc! {"_id": 1, "f": 0, "n": counters(20_000), "total": 0_i64});
        for round in 0..6 {
            let mut inc = doc! {"total": 5_i64};
            for n in 0..5 {
                inc.push(
                    &format!("n.{}", key((round * 7919 + n * 4001) % 20_000)),
                    1_i64,
                );
            }
            case.update(doc! {"$set": {"f": round as i32 + 1}, "$inc": inc});
        }
        let path = format!("n.{}", key(17));
        case.update(doc! {"$rename": one(&path, "n.renamed")});
        case.update(doc! {"$unset": one(&format!("n.{}", key(4)), "")});
        case.update(doc! {"$set": one(&path, "again")});
        case.update(doc! {"$push": {"n.list": 1}, "$mul": {"total": 2}});
        assert_eq!(case.refused(doc! {"$inc": one(&path, 1)}), 14);
        assert_eq!(
            case.refused(doc! {"$inc": one(&format!("{path}.x"), 1)}),
            28
        );
        assert_eq!(case.refused(doc! {"$set": {"n.a": 1, "n.a.b": 2}}), 40);
        assert_eq!(case.refused(doc! {"$set": {"n.a": 1, "_id": 2}}), 66);
        case.check();
        case.reopen();
    }
}

#[test]
fn the_first_of_repeated_names_is_used() {
    each(|case| {
        let mut n = ints(case.many());
        for value in 0..5 {
            n.push("twice", value);
            n.push(&format!("between{value}"), value);
            n.push("twice", 10_i64);
            n.push("", "");
        }
        case.insert(doc! {"_id": 1, "n": n});
        case.update(doc! {"$inc": {"n.twice": 100}});
        case.update(doc! {"$inc": {"n.twice": 1_i64}});
        case.update(doc! {"$set": {"n.twice": "text"}});
        case.update(doc! {"$unset": {"n.twice": ""}});
        case.update(doc! {"$inc": {"n.twice": 5}});
        case.update(doc! {"$rename": {"n.twice": "n.other"}});
        case.update(doc! {"$rename": {"n.k3": "n.twice"}});
        for _ in 0..12 {
            let _ = case.try_update(doc! {"_id": 1}, doc! {"$unset": {"n.twice": ""}});
        }
        case.update(doc! {"$set": {"n.twice": 1}});
    });
}

#[test]
fn fields_keep_their_order() {
    each(|case| {
        let many = case.many();
        case.insert(doc! {"_id": 1, "first": 1, "n": ints(many), "last": 2});
        for n in (0..many).step_by(7) {
            case.update(doc! {"$unset": one(&format!("n.k{n}"), "")});
        }
        for n in (0..many).step_by(14) {
            case.update(doc! {"$set": one(&format!("n.k{n}"), "back")});
            case.update(doc! {"$set": one(&format!("n.k{}", n + 1), "in place")});
        }
        // The same name moves to the end many times.
        for n in 0..40 {
            case.update(doc! {"$rename": {"n.k5": "n.moved"}});
            case.update(doc! {"$rename": {"n.moved": "n.k5"}, "$set": one(&format!("n.x{n}"), n)});
        }
        case.update(doc! {"$rename": {"n": "m"}});
        case.update(doc! {"$rename": {"first": "m.first"}});
        case.update(doc! {"$rename": {"m.k9": "k9"}});
        case.update(doc! {"$rename": {"m": "first.inner"}});
    });
}

#[test]
fn documents_grow_and_shrink_over_the_threshold() {
    each(|case| {
        case.insert(doc! {"_id": 1, "n": {}, "list": []});
        let piece = "x".repeat(case.setting.threshold / 12);
        for round in 0..3 {
            for n in 0..16 {
                case.update(doc! {"$set": one(&format!("n.{round}x{n}"), piece.as_str())});
            }
            for n in 0..16 {
                case.update(doc! {"$unset": one(&format!("n.{round}x{n}"), "")});
            }
            for n in 0..16 {
                case.update(doc! {"$push": {"list": format!("{n}{piece}")}});
            }
            for _ in 0..16 {
                case.update(doc! {"$pop": {"list": -1}});
            }
            case.update(doc! {"$set": {"n": ints(case.many()), "list": []}});
            case.update(doc! {"$set": {"n": {}}});
        }
        case.update(doc! {"$unset": {"n": ""}});
        case.update(doc! {"$inc": {"n.k1": 1}});
    });
}

#[test]
fn a_sub_document_becomes_something_else() {
    each(|case| {
        let n = ints(case.many());
        case.insert(doc! {"_id": 1, "a": 1, "n": &n, "z": 1});
        let list: ArrayBuf = (0..case.many() as i32).collect();
        for value in [
            OwnedValue::Int32(5),
            OwnedValue::from(list),
            OwnedValue::from(DocBuf::new()),
            OwnedValue::from(ArrayBuf::new()),
            OwnedValue::Null,
            OwnedValue::from(doc! {"in": {"in": &n}, "n": &n}),
        ] {
            case.update(doc! {"$set": {"n": &value}});
            let _ = case.try_update(doc! {"_id": 1}, doc! {"$inc": {"n.k1": 1, "n.in.in.k2": 1}});
            let _ = case.try_update(doc! {"_id": 1}, doc! {"$set": {"n.3": 1, "n.k5": "new"}});
            case.update(doc! {"$set": {"n": &n}});
            case.update(doc! {"$inc": {"n.k1": 1}});
        }
        case.update(doc! {"$set": {"n.k2": &n}});
        case.update(doc! {"$inc": {"n.k2.k2": 7}});
        case.update(doc! {"$set": {"n.k2.k2": &n}});
        case.update(doc! {"$inc": {"n.k2.k2.k2": 7, "n.k3": 1}});
        case.update(doc! {"$unset": {"n.k2": ""}});
        case.run(Op::Delete {
            filter: doc! {"_id": 1},
            one: true,
        })
        .unwrap();
        case.check();
        case.insert(doc! {"_id": 1, "n": {"k1": 1}});
        case.update(doc! {"$set": {"n.k2": 1}});
    });
}

#[test]
fn sums_widen_and_overflow_as_in_whole_documents() {
    each(|case| {
        let mut n = ints(case.many());
        n.push("i32", i32::MAX - 3);
        n.push("low32", i32::MIN + 3);
        n.push("i64", i64::MAX - 3);
        n.push("low64", i64::MIN + 3);
        case.insert(doc! {"_id": 1, "n": n});
        for _ in 0..3 {
            case.update(doc! {"$inc": {"n.i32": 1, "n.low32": -1, "n.i64": 1, "n.low64": -1}});
        }
        case.update(doc! {"$inc": {"n.i32": 1, "n.low32": -1}});
        case.update(doc! {"$inc": {"n.i32": 1_i64, "n.low32": -1}});
        assert_eq!(case.refused(doc! {"$inc": {"n.i64": 1, "n.k1": 1}}), 2);
        assert_eq!(case.refused(doc! {"$inc": {"n.k1": 1, "n.low64": -1}}), 2);
        case.update(doc! {"$inc": {"n.i64": -10, "n.low64": 10_i64}});
        case.update(doc! {"$inc": {"n.k1": 1.5}});
        case.update(doc! {"$inc": {"n.k1": 1}});
        case.update(doc! {"$inc": {"n.i64": 0.5}});
        // Large sums of one key, the last of which is too large.
        case.update(doc! {"$set": {"small": ints(case.many())}});
        for _ in 0..2 {
            case.update(doc! {"$inc": {"small.k0": (1_i64 << 62) - 1}});
        }
        assert_eq!(case.refused(doc! {"$inc": {"small.k0": 2}}), 2);
        case.update(doc! {"$inc": {"small.k0": 1}});
        // Nothing changes, or only the type.
        for nothing in [doc! {"$inc": {"n.k2": 0}}, doc! {"$set": {"n.k2": 2}}] {
            let outcome = case.try_update(doc! {"_id": 1}, nothing);
            assert!(matches!(outcome, Ok(Done::Updated { modified: 0, .. })));
        }
        case.update(doc! {"$inc": {"n.k2": 0_i64}});
        for n in 0..300 {
            let by = [1, 1 << 30, -(1 << 30)][n % 3];
            case.update(doc! {"$inc": {"n.k3": by, "n.new": 1}});
            if n % 60 == 59 {
                case.store.checkpoint().unwrap();
            }
        }
    });
}

#[test]
fn arrays_are_filled_up_and_numbers_name_fields() {
    each(|case| {
        let list: ArrayBuf = (0..case.many() as i32).collect();
        let mut numbered = DocBuf::new();
        for n in 0..case.many() {
            numbered.push(&n.to_string(), n as i32);
        }
        case.insert(doc! {"_id": 1, "list": list, "doc": numbered});
        case.update(doc! {"$set": {"list.5": "x", "doc.5": "x"}});
        case.update(doc! {"$inc": {"list.6": 1, "doc.6": 1, "doc.007": 1}});
        let beyond = case.many() + 40;
        case.update(doc! {"$set": one(&format!("list.{beyond}"), 1)});
        case.update(doc! {"$set": one(&format!("doc.{beyond}"), 1)});
        assert_eq!(case.refused(doc! {"$set": {"list.x": 1}}), 28);
        assert_eq!(case.refused(doc! {"$set": {"list.9999999": 1}}), 34);
        case.update(doc! {"$unset": {"list.0": "", "doc.0": ""}});
        case.update(doc! {"$set": {"list.$[]": 1, "doc.1": 1_i64}});
    });
}

#[test]
fn deep_documents_are_supported() {
    each(|case| {
        let many = case.many() / 12;
        let mut inner = ints(many);
        let mut path = String::new();
        for _ in 0..40 {
            let mut outer = ints(many);
            outer.push("in", &inner);
            outer.push("tail", 1);
            inner = outer;
            path.push_str("in.");
        }
        inner = {
            let mut with_id = doc! {"_id": 1};
            with_id.push_all(&inner);
            with_id
        };
        case.insert(inner);
        case.update(doc! {"$inc": one(&format!("{path}k1"), 1)});
        case.update(doc! {"$set": {"in.in.in.k2": "x", "in.in.in.in.in.tail": {"a": ints(many)}}});
        case.update(doc! {"$unset": {"in.in.in.in.in.in.in.in.in": ""}});
        case.update(doc! {"$rename": {"in.in.in.in": "in.moved"}});
        assert_eq!(
            case.refused(doc! {"$set": one(&format!("{path}{}x", "a.".repeat(190)), 1)}),
            15
        );
    });
}

/// Documents with long `_id`s are stored whole, because each part would repeat the key.
#[test]
fn ids_may_be_as_long_as_those_of_small_documents() {
    let lengths = (1_000..1_040).chain([100, 32_767, 32_768, 65_535, 70_000]);
    let ids: Vec<String> = lengths.map(|length| "i".repeat(length)).collect();
    let outcomes = |setting: &Setting| -> Vec<Outcome> {
        let case = Case::new(setting);
        let mut outcomes = Vec::new();
        for id in &ids {
            let n = ints(case.many());
            let insert = Op::Insert(vec![doc! {"_id": id.as_str(), "n": n}]);
            outcomes.push(run(&case.store, &case.c, &insert, Durability::Logged));
            let update = Op::Update(UpdateOp {
                filter: doc! {"_id": id.as_str()},
                update: doc! {"$inc": {"n.k1": 1}, "$set": {"n.x": 1}}.into(),
                array_filters: Vec::new(),
                multi: false,
                upsert: false,
            });
            outcomes.push(run(&case.store, &case.c, &update, Durability::Logged));
        }
        check_sound(&case.store, &case.c, setting.name);
        outcomes
    };
    let wanted = outcomes(&WHOLE);
    let inserted = |outcome: &&Outcome| matches!(outcome, Ok(Done::Inserted(1, _)));
    assert_eq!(wanted.iter().filter(inserted).count(), ids.len());
    for setting in SETTINGS {
        assert_eq!(outcomes(setting), wanted, "{}", setting.name);
    }
}

#[test]
fn growth_beyond_16_mib_is_refused() {
    // The setting matters little here, and tiny segments take long.
    let mut case = Case::new(&SETTINGS[2]);
    let text = "x".repeat(1 << 20);
    let mut n = ints(1000);
    for piece in 0..15 {
        n.push(&format!("piece{piece}"), text.as_str());
    }
    case.insert(doc! {"_id": 1, "n": n, "list": []});
    let size = case.model.docs.values().next().unwrap().len_bytes();
    let left = MAX_DOCUMENT_BYTES - size;
    // Type, name, zero byte, length and zero byte of a string.
    let fits = left - 1 - "fill".len() - 1 - 4 - 1;
    assert_eq!(
        case.refused(doc! {"$set": {"n.fill": "y".repeat(fits + 1)}}),
        17419
    );
    assert_eq!(
        case.refused(doc! {"$push": {"list": "y".repeat(left)}}),
        17419
    );
    let long = format!("n.{}", "k".repeat(left + 3));
    assert_eq!(case.refused(doc! {"$rename": {"n.k1": long}}), 17419);
    case.update(doc! {"$set": {"n.fill": "y".repeat(fits)}});
    let size = case.model.docs.values().next().unwrap().len_bytes();
    assert_eq!(size, MAX_DOCUMENT_BYTES);
    // The document is full: a new key, a wider number and a longer name do not fit; a sum does.
    assert_eq!(case.refused(doc! {"$inc": {"n.new": 1}}), 17419);
    assert_eq!(case.refused(doc! {"$inc": {"n.k5": 1_i64}}), 17419);
    assert_eq!(
        case.refused(doc! {"$inc": {"n.k5": i32::MAX, "n.k6": 1}}),
        17419
    );
    assert_eq!(case.refused(doc! {"$rename": {"n.k5": "n.k5000"}}), 17419);
    case.update(doc! {"$inc": {"n.k5": 1, "n.k6": 2}});
    case.update(doc! {"$unset": {"n.k5": ""}, "$set": {"n.k6": 1_i64}});
    case.update(doc! {"$unset": {"n.fill": ""}});
    case.update(doc! {"$inc": {"n.new": 1}});
    let too_large = doc! {"_id": 2, "text": "x".repeat(MAX_DOCUMENT_BYTES)};
    let options = crate::common::INSERT;
    let outcome = case.store.insert(&case.c, &[&too_large], options).unwrap();
    assert_eq!(outcome.errors[0].error.code().code(), 10334);
    case.reopen();
}

/// An update of a small document around a large one keeps the fields that it does not read.
#[test]
fn an_update_keeps_fields_that_it_does_not_read() {
    each(|case| {
        let n = ints(case.many());
        case.insert(doc! {"_id": 1, "m": {"n": &n}, "p": {"n": &n, "x": {"n": &n}}});
        case.update(doc! {"$set": {"m.k0": {}}});
        case.update(doc! {"$set": {"p.x.k0": 1, "p.y": 1}});
        case.update(doc! {"$unset": {"m.k0": "", "p.y": ""}});
        case.update(doc! {"$set": {"m.n.k5": {"in": &n}}});
        case.update(doc! {"$set": {"m.n.k5.a": 1, "m.n.k6": {"a": 1, "in": &n}}});
        case.update(doc! {"$inc": {"m.n.k6.a": 1}});
    });
}

#[test]
fn one_update_changes_many_documents() {
    each(|case| {
        for id in 1..12 {
            let n = if id % 3 == 0 { 3 } else { case.many() };
            case.insert(doc! {"_id": id, "g": id % 2, "n": ints(n)});
        }
        for update in [
            doc! {"$inc": {"n.k1": 1}},
            doc! {"$inc": {"n.k1": 5, "n.new": 1}, "$unset": {"n.k0": ""}},
            doc! {"$rename": {"n.k2": "k2"}},
            doc! {"$set": {"n": ints(case.many() / 2)}},
        ] {
            for filter in [doc! {}, doc! {"g": 1}, doc! {"n.k1": {"$gte": 7}}] {
                let op = UpdateOp {
                    filter,
                    update: update.clone().into(),
                    array_filters: Vec::new(),
                    multi: true,
                    upsert: false,
                };
                case.run(Op::Update(op)).unwrap();
            }
        }
        // Document 7 has a string there, which is an error: documents before it stay changed.
        case.try_update(doc! {"_id": 7}, doc! {"$set": {"n.k1": "text"}})
            .unwrap();
        let op = UpdateOp {
            filter: doc! {},
            update: doc! {"$inc": {"n.k1": 1}}.into(),
            array_filters: Vec::new(),
            multi: true,
            upsert: false,
        };
        assert_eq!(case.run(Op::Update(op)).unwrap_err().0, 14);
        let n = ints(case.many());
        let op = UpdateOp {
            filter: doc! {"_id": "new", "g": 9},
            update: doc! {"$setOnInsert": {"n": n}, "$inc": {"m.k1": 1}}.into(),
            array_filters: Vec::new(),
            multi: false,
            upsert: true,
        };
        case.run(Op::Update(op.clone())).unwrap();
        case.run(Op::Update(op)).unwrap();
    });
}

/// A store of the previous format has no tree of segments. Opening the store creates one.
#[test]
fn a_store_of_the_previous_format_is_upgraded() {
    use frond_store::keyspace::{CATALOG_TREE, WriteSet};
    let mut case = Case::new(&WHOLE);
    let n = ints(200);
    case.insert(doc! {"_id": 1, "n": &n});
    let collection = case.store.catalog().collection(&case.c).unwrap();
    let mut older = WriteSet::new();
    older.drop_tree(collection.segments.unwrap());
    older.put(CATALOG_TREE, &[1], doc! {"format": 1}.as_bytes());
    let key = b"\x02db\0c";
    let snapshot = case.store.engine().snapshot();
    let entry = snapshot.get(CATALOG_TREE, key).unwrap().unwrap();
    let mut kept = DocBuf::new();
    for element in frond_bson::Doc::from_trusted(&entry).iter_raw() {
        if element.name() != "segments" {
            kept.push_raw(&element);
        }
    }
    assert!(kept.len_bytes() < entry.len());
    older.put(CATALOG_TREE, key, kept.as_bytes());
    drop((snapshot, entry));
    case.store
        .engine()
        .commit(older, Durability::Synced)
        .unwrap();
    for setting in [&SETTINGS[0], &WHOLE, &SETTINGS[1]] {
        case.setting = *setting;
        case.reopen();
        case.insert(doc! {"_id": setting.name, "n": &n});
        case.update(doc! {"$inc": {"n.k1": 1, "n.new": 1}});
        case.check();
    }
    assert_eq!(in_parts(&case.store, &case.c), 2);
}

#[test]
fn a_collection_of_large_documents_is_capped_and_copied() {
    each(|case| {
        let many = case.many();
        for id in 0..5 {
            case.insert(doc! {"_id": id, "n": ints(many)});
        }
        case.update(doc! {"$inc": {"n.k1": 1, "n.new": 1}});
        let wanted: Vec<DocBuf> = case.model.docs.values().cloned().collect();
        let copy = ns("db.copy");
        case.store.clone_as_capped(&case.c, &copy, 4 << 20).unwrap();
        assert_eq!(all(&case.store, &copy), wanted);
        assert_eq!(in_parts(&case.store, &copy), 0);
        let other = ns("db.other");
        case.store
            .rename_collection(&case.c, &other, false)
            .unwrap();
        case.store
            .convert_to_capped(&other, 4 << 20, &OpContext::new())
            .unwrap();
        assert_eq!(all(&case.store, &other), wanted);
        check_sound(&case.store, &other, case.setting.name);
        case.model.docs.clear();
        case.insert(doc! {"_id": 1, "n": ints(many)});
    });
}

/// Missing parts of a document are an error, not a panic.
#[test]
fn lost_parts_are_found() {
    use frond_store::keyspace::{Direction, WriteSet};
    use std::ops::Bound::Unbounded;
    each(|case| {
        let many = case.many() * 2;
        for id in 1..4 {
            case.insert(doc! {"_id": id, "a": {"n": ints(many)}, "n": ints(many)});
        }
        let collection = case.store.catalog().collection(&case.c).unwrap();
        let segments = collection.segments.unwrap();
        let snapshot = case.store.engine().snapshot();
        let mut cursor = snapshot
            .cursor(segments, Unbounded, Unbounded, Direction::Forward)
            .unwrap();
        let (key, value) = cursor.next().unwrap().unwrap();
        let (key, value) = (key.to_vec(), value.to_vec());
        let damage = |case: &Case, key: &[u8], value: Option<&[u8]>| {
            let mut set = WriteSet::new();
            match value {
                Some(value) => set.put(segments, key, value),
                None => set.delete(segments, key),
            }
            case.store.engine().commit(set, Durability::Logged).unwrap();
            let report = case.store.verify(&case.c).unwrap();
            let request = frond_store::FindRequest::default();
            let _ = find(&case.store, &case.c, &request);
            let filter = doc! {"a.n.k1": 1, "n.k2": 2};
            let request = frond_store::FindRequest {
                filter: Some(&filter),
                ..request
            };
            let _ = find(&case.store, &case.c, &request);
            report.errors
        };
        assert!(!damage(case, &key, None).is_empty());
        assert!(!damage(case, &key, Some(&value[..value.len() / 2])).is_empty());
        assert!(!damage(case, &key, Some(b"nonsense, and some more of it")).is_empty());
        assert!(damage(case, &key, Some(&value)).is_empty());
        let mut orphan = key.clone();
        *orphan.last_mut().unwrap() = 0xFF;
        orphan.push(7);
        assert!(!damage(case, &orphan, Some(&value)).is_empty());
        assert!(damage(case, &orphan, None).is_empty());
    });
}

/// Many changes of one field are combined before they reach the segment. The result is that of single changes.
#[test]
fn pending_changes_are_combined() {
    each(|case| {
        for id in [1, 2] {
            case.insert(doc! {"_id": id, "n": ints(case.many() * 2), "m": ints(case.many() * 2)});
        }
        for round in 0..2 {
            // Writes from here on are not yet merged with the stored segment.
            case.store.checkpoint().unwrap();
            for n in 0..24 {
                let by = [i32::MAX, -i32::MAX][n % 2];
                case.update(doc! {"$inc": {"n.k1": by, "n.k2": 7, "n.new": 1_i64}});
                case.update(doc! {"$unset": {"m.k3": ""}, "$set": {"m.k4": n as i32}});
                case.update(doc! {"$set": {"m.k3": n as i32}, "$unset": {"m.k4": ""}});
                case.update(doc! {"$rename": {"m.k5": "m.k6"}});
                case.update(doc! {"$set": {"m.k5": round}});
            }
            case.check();
        }
    });
}
