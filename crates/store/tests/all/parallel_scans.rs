//! A scan that is divided between threads gives what a scan by one thread gives, in the same order: over leaves, memtables
//! and deleted ranges, in batches, beside writers, and until it is interrupted. The documents by a hint of `_id` are the reference: such
//! a plan is not divided.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Fixture, ns};
use frond_bson::{ArrayBuf, DocBuf, OwnedValue, Value, doc};
use frond_error::ErrorCode;
use frond_store::{
    AggregateRequest, CountRequest, DeleteRequest, Durability, FindRequest, Flow, OpContext,
    UpdateRequest,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Enough for several leaves.
const DOCUMENTS: i32 = 14_000;

fn document(random: &mut StdRng, id: i32) -> DocBuf {
    let mut out = doc! {"_id": id};
    let small: i32 = random.random_range(0..40);
    let key: OwnedValue = match random.random_range(0..9) {
        0 => OwnedValue::Double(f64::from(small)),
        1 => OwnedValue::Int64(small.into()),
        2 => ["x", "a long text as the key of a group", ""][small as usize % 3].into(),
        3 => OwnedValue::Null,
        4 => OwnedValue::Double(-0.0),
        _ => small.into(),
    };
    if random.random_range(0..20) > 0 {
        out.push("g", &key);
    }
    match random.random_range(0..8) {
        0 => {}
        1 => out.push("v", "no number"),
        2 => out.push("v", f64::from(small) + 0.25),
        3 => out.push("v", i64::from(id) << 30),
        4 if id % 100 == 0 => out.push("v", f64::NAN),
        _ => out.push("v", small),
    }
    out.push_array("l", |list| (0..small % 4).for_each(|x| list.push(x)));
    if id % 2000 == 77 {
        // Stored in parts.
        out.push_doc("parts", |parts| {
            for number in 0..3000 {
                parts.push(&format!("field{number}"), "x".repeat(20).as_str());
            }
        });
    }
    let text: String = (0..150)
        .map(|_| char::from(random.random_range(b' '..b'~')))
        .collect();
    out.push("text", text.repeat(12).as_str());
    out
}

/// A collection with leaves, newer messages above them, deleted ranges, and documents in the memtable only.
fn filled(random: &mut StdRng) -> Fixture {
    let fixture = Fixture::new();
    let c = ns("db.c");
    let mut insert = |ids: std::ops::Range<i32>| {
        let ids: Vec<i32> = ids.collect();
        for some in ids.chunks(500) {
            let docs: Vec<_> = some.iter().map(|id| document(random, *id)).collect();
            assert!(fixture.insert(&c, &docs).errors.is_empty());
        }
    };
    insert(0..DOCUMENTS / 2);
    insert(DOCUMENTS / 2 + 600..DOCUMENTS - 200);
    fixture.store.engine().files().unwrap().compact().unwrap();
    insert(DOCUMENTS / 2..DOCUMENTS / 2 + 600);
    insert(DOCUMENTS - 200..DOCUMENTS);
    let change = |filter: DocBuf, update: DocBuf| {
        let request = UpdateRequest {
            multi: true,
            ..UpdateRequest::new(&filter, Value::Document(&update))
        };
        fixture
            .store
            .update(&c, &request, Durability::Logged, &OpContext::new())
            .unwrap();
    };
    change(doc! {"_id": {"$mod": [7, 3]}}, doc! {"$inc": {"n": 1}});
    change(
        doc! {"_id": {"$gt": 9000, "$lt": 9500}},
        doc! {"$set": {"g": 5}},
    );
    for (from, to) in [(1000, 1400), (5000, 5001), (12_000, 12_900)] {
        let filter = doc! {"_id": {"$gte": from, "$lt": to}};
        let request = DeleteRequest {
            filter: &filter,
            limit_one: false,
            hint: None,
            variables: None,
            collation: None,
        };
        fixture
            .store
            .delete(&c, &request, Durability::Logged, &OpContext::new())
            .unwrap();
    }
    fixture
}

fn by_id() -> DocBuf {
    doc! {"_id": 1}
}

fn aggregate(fixture: &Fixture, stages: &[DocBuf], serial: bool) -> Vec<DocBuf> {
    let mut pipeline = ArrayBuf::new();
    stages.iter().for_each(|stage| pipeline.push(stage));
    let hint = by_id();
    let request = AggregateRequest {
        pipeline: &pipeline,
        hint: serial.then_some(Value::Document(&hint)),
        variables: None,
        durability: Durability::Logged,
        bypass_validation: false,
        allow_disk_use: None,
        collation: None,
    };
    let c = ns("db.c");
    let cursor = (fixture.store).aggregate("db", Some(&c), &request, &OpContext::new());
    let mut cursor = cursor.unwrap();
    let mut found = Vec::new();
    while let Some(doc) = cursor.next().unwrap() {
        found.push(doc);
    }
    found
}

#[test]
fn a_divided_scan_gives_what_one_thread_gives() {
    let mut random = StdRng::seed_from_u64(20);
    let fixture = filled(&mut random);
    let c = ns("db.c");
    let filters = [
        doc! {},
        doc! {"v": {"$lt": 3}},
        doc! {"v": 7, "g": {"$gte": 5}},
        doc! {"l": 2},
        doc! {"$or": [{"g": "x"}, {"text": {"$regex": "^a"}}]},
        doc! {"parts.field7": {"$exists": true}},
        doc! {"n": {"$exists": false}, "g": null},
        doc! {"nothing": 1},
    ];
    for filter in &filters {
        let hint = by_id();
        let serial = FindRequest {
            filter: Some(filter),
            hint: Some(Value::Document(&hint)),
            ..FindRequest::default()
        };
        let expected = fixture.find(&c, &serial);
        let request = FindRequest {
            hint: None,
            ..serial.clone()
        };
        // In batches of any size.
        for most in [usize::MAX, 7000, 1] {
            let mut cursor = fixture.store.find(&c, &request, &OpContext::new()).unwrap();
            let mut found = Vec::new();
            loop {
                let batch = random.random_range(1..=most.min(100_000));
                let until = found.len() + batch;
                let flow = cursor.for_each(&mut |doc| {
                    found.push(doc.to_owned());
                    if found.len() == until {
                        Flow::Pause
                    } else {
                        Flow::Continue
                    }
                });
                if flow.unwrap() == Flow::Continue {
                    break;
                }
            }
            assert!(found == expected, "{filter:?}: {} documents", found.len());
            assert_eq!(cursor.stats().docs_examined, cursor_examined(&fixture));
        }
        for (skip, limit) in [(0, None), (10, None), (0, Some(2000)), (900, Some(5000))] {
            let request = CountRequest {
                filter: Some(filter),
                skip,
                limit,
                ..CountRequest::default()
            };
            let counted = fixture.store.count(&c, &request, &OpContext::new());
            let all = (expected.len() as u64).saturating_sub(skip);
            assert_eq!(counted.unwrap(), all.min(limit.unwrap_or(u64::MAX)));
        }
    }
    // Examined documents are counted up to the last row that was taken, without those that helpers have read ahead.
    let request = FindRequest {
        limit: Some(11_000),
        ..FindRequest::default()
    };
    let mut cursor = fixture.store.find(&c, &request, &OpContext::new()).unwrap();
    cursor.for_each(&mut |_| Flow::Continue).unwrap();
    assert_eq!(cursor.stats().docs_examined, 11_000);
}

fn cursor_examined(fixture: &Fixture) -> u64 {
    let request = CountRequest::default();
    let counted = fixture
        .store
        .count(&ns("db.c"), &request, &OpContext::new());
    counted.unwrap()
}

#[test]
fn groups_of_a_divided_scan_are_those_of_one_thread() {
    let mut random = StdRng::seed_from_u64(21);
    let fixture = filled(&mut random);
    let all = doc! {
        "n": {"$sum": 1}, "sum": {"$sum": "$v"}, "avg": {"$avg": "$v"}, "min": {"$min": "$g"},
        "max": {"$max": "$v"}, "first": {"$first": "$_id"}, "last": {"$last": "$_id"},
        "c": {"$count": {}}, "firstMissing": {"$first": "$missing"},
    };
    let groups: Vec<DocBuf> = vec![
        doc! {"_id": "$g"},
        doc! {"_id": null},
        doc! {"_id": "$missing"},
        doc! {"_id": {"g": "$g", "l": {"$size": "$l"}}},
        doc! {"_id": "$l"},
        doc! {"_id": "$_id"},
        doc! {"_id": {"$mod": ["$_id", 3]}},
        doc! {"_id": "$parts.field1"},
    ];
    for mut spec in groups {
        all.iter().for_each(|(name, value)| spec.push(name, value));
        for stages in [
            vec![doc! {"$group": &spec}],
            vec![doc! {"$match": {"v": {"$lt": 20}}}, doc! {"$group": &spec}],
        ] {
            let (parallel, serial) = (
                aggregate(&fixture, &stages, false),
                aggregate(&fixture, &stages, true),
            );
            assert!(parallel == serial, "{stages:?}");
        }
    }
    // These need the documents in their order.
    let push = doc! {"$group": {"_id": "$g", "all": {"$push": "$_id"}, "d": {"$stdDevPop": "$v"}}};
    let stages = [push];
    assert!(aggregate(&fixture, &stages, false) == aggregate(&fixture, &stages, true));
}

#[test]
fn a_divided_scan_sees_one_moment_beside_writers() {
    let fixture = Fixture::new();
    let c = ns("db.c");
    let text = "some text ".repeat(100);
    for from in (0..20_000).step_by(1000) {
        let docs: Vec<_> = (from..from + 1000)
            .map(|id| doc! {"_id": id, "a": 0, "b": 0, "text": &*text})
            .collect();
        fixture.insert(&c, &docs);
    }
    fixture.store.engine().files().unwrap().compact().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = StdRng::seed_from_u64(22);
            while !stop.load(Ordering::Relaxed) {
                let id = random.random_range(0..20_000);
                let (filter, update) = (doc! {"_id": id}, doc! {"$inc": {"a": 1, "b": -1}});
                let request = UpdateRequest::new(&filter, Value::Document(&update));
                fixture
                    .store
                    .update(&c, &request, Durability::Logged, &OpContext::new())
                    .unwrap();
            }
        });
        let group = doc! {"$group": {
            "_id": null, "n": {"$sum": 1}, "a": {"$sum": "$a"}, "b": {"$sum": "$b"},
        }};
        let mut last = 0;
        for _ in 0..15 {
            let found = aggregate(&fixture, std::slice::from_ref(&group), false);
            let a = found[0].get_i64("a").unwrap();
            assert_eq!(found[0].get_i64("n"), Some(20_000));
            assert_eq!(found[0].get_i64("b"), Some(-a));
            assert!(a >= last);
            last = a;
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_divided_scan_can_be_interrupted() {
    let mut random = StdRng::seed_from_u64(23);
    let fixture = filled(&mut random);
    let c = ns("db.c");
    let filter = doc! {"nothing": 1};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    let context = OpContext::with_deadline(Some(Instant::now()));
    let mut cursor = fixture.store.find(&c, &request, &context).unwrap();
    let error = cursor.for_each(&mut |_| Flow::Continue).unwrap_err();
    assert_eq!(error.code(), ErrorCode::MaxTimeMSExpired, "{error}");
    let context = OpContext::new();
    let killed = context.killed.clone();
    let mut cursor = fixture.store.find(&c, &request, &context).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(2));
            killed.store(true, Ordering::Relaxed);
        });
        // It may have been faster.
        if let Err(error) = cursor.for_each(&mut |_| Flow::Continue) {
            assert_eq!(error.code(), ErrorCode::Interrupted, "{error}");
        }
    });
}
