//! The memory of cursors, and its way to the disk.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{DocBuf, Value, array, doc};
use frond_store::{
    AggregateRequest, DeleteRequest, Durability, EngineOptions, FindRequest, MemoryUse, Namespace,
    OpContext, QueryCursor, UpdateRequest,
};

/// A store with the smallest cache. No cursor is released while it is filled, so commits must not wait for that.
fn small() -> Fixture {
    Fixture::with(|directory| {
        let mut options = EngineOptions::new(directory);
        options.inline = true;
        options.cache_bytes = 8 << 20;
        options.memtable_bytes = Some(256 << 10);
        options
    })
}

fn fill(fixture: &Fixture, ns: &Namespace, from: i32, count: i32) {
    let text = "x".repeat(900);
    let docs: Vec<DocBuf> = (from..from + count)
        .map(|id| doc! {"_id": id, "a": id % 10, "tags": [id % 7, id % 3], "text": text.as_str()})
        .collect();
    let outcome = fixture.insert(ns, &docs);
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

fn read(cursor: &mut QueryCursor, most: usize) -> Vec<DocBuf> {
    let mut found = Vec::new();
    while found.len() < most
        && let Some(doc) = cursor.next().unwrap()
    {
        found.push(doc);
    }
    found
}

/// Queries by all kinds of plans.
fn queries() -> Vec<(DocBuf, DocBuf)> {
    vec![
        (doc! {}, doc! {}),
        (doc! {}, doc! {"$natural": -1}),
        (doc! {"_id": {"$gt": 5}}, doc! {"_id": -1}),
        (doc! {"a": {"$in": [2, 3, 7]}}, doc! {}),
        (doc! {"a": {"$gt": 3}}, doc! {"a": -1}),
        (doc! {"tags": {"$gte": 1}}, doc! {}),
        (doc! {"a": {"$in": [1, 4]}}, doc! {"_id": 1}),
        (doc! {"$or": [{"a": 5}, {"tags": 6}]}, doc! {}),
        (doc! {"text": {"$exists": true}}, doc! {"text": 1, "_id": 1}),
    ]
}

fn open(fixture: &Fixture, ns: &Namespace, number: usize) -> QueryCursor {
    let queries = queries();
    let (filter, sort) = &queries[number % queries.len()];
    let context = OpContext::new();
    if number % 3 == 2 {
        let sort = if sort.is_empty() || sort.get("$natural").is_some() {
            doc! {"_id": 1}
        } else {
            sort.clone()
        };
        let stages = array![
            {"$match": filter},
            {"$sort": &sort},
            {"$addFields": {"twice": {"$multiply": ["$a", 2]}}},
        ];
        let request = AggregateRequest {
            pipeline: &stages,
            hint: None,
            variables: None,
            durability: Durability::Logged,
            bypass_validation: false,
            allow_disk_use: None,
            collation: None,
        };
        return fixture
            .store
            .aggregate(ns.db(), Some(ns), &request, &context)
            .unwrap();
    }
    let request = FindRequest {
        filter: Some(filter),
        sort: Some(sort),
        ..FindRequest::default()
    };
    fixture.store.find(ns, &request, &context).unwrap()
}

/// Changes a bit of everything, so that old entries are deleted and new ones come.
fn change(fixture: &Fixture, ns: &Namespace, round: i32) {
    let filter = doc! {"a": round % 10};
    let update = doc! {"$set": {"a": (round + 1) % 10}, "$inc": {"n": 1}};
    let request = UpdateRequest {
        multi: true,
        ..UpdateRequest::new(&filter, Value::Document(&update))
    };
    fixture
        .store
        .update(ns, &request, Durability::Logged, &OpContext::new())
        .unwrap();
    let filter = doc! {"_id": {"$mod": [50, round % 50]}};
    let request = DeleteRequest {
        filter: &filter,
        limit_one: false,
        hint: None,
        variables: None,
        collation: None,
    };
    fixture
        .store
        .delete(ns, &request, Durability::Logged, &OpContext::new())
        .unwrap();
}

/// 100 idle cursors held 440 MiB beside a cache of 64 MiB: the memtables of the moments at which they were opened.
#[test]
fn idle_cursors_hold_no_memtables_when_memory_is_scarce() {
    let fixture = small();
    let c = ns("db.c");
    let indexes = [doc! {"key": {"a": 1}}, doc! {"key": {"tags": 1}}];
    let indexes: Vec<_> = indexes.iter().map(|spec| &**spec).collect();
    fixture.store.create_collection(&c, &doc! {}).unwrap();
    fixture.store.create_indexes(&c, &indexes).unwrap();
    fill(&fixture, &c, 0, 1000);
    let mut idle = Vec::new();
    // Their files on disk are bounded by four times the cache: 100 of them may exceed it while flushes are slow.
    for number in 0..60 {
        // One cursor is read to its end at once, the other one later.
        let expected = read(&mut open(&fixture, &c, number), usize::MAX);
        let mut cursor = open(&fixture, &c, number);
        let begun = read(&mut cursor, (number * 7) % 90);
        assert_eq!(begun, expected[..begun.len()]);
        idle.push((cursor, begun, expected));
        change(&fixture, &c, number as i32);
        fill(&fixture, &c, 1000 + number as i32 * 330, 330);
    }
    fixture.store.checkpoint().unwrap();
    let engine = fixture.store.engine().files().unwrap();
    assert!(
        engine.retained_bytes() > 16 << 20,
        "{}",
        engine.retained_bytes()
    );
    assert!(engine.retains_too_much());
    for (cursor, ..) in &mut idle {
        cursor.release_memory().unwrap();
        assert_eq!(cursor.retained_bytes(), 0);
    }
    assert_eq!(engine.retained_bytes(), 0);
    for (number, (mut cursor, mut found, expected)) in idle.into_iter().enumerate() {
        found.extend(read(&mut cursor, usize::MAX));
        assert_eq!(found.len(), expected.len(), "{number}");
        assert!(found == expected, "{number}");
    }
}

/// The same for a command that runs, in the middle of its scan.
#[test]
fn a_long_scan_lets_go_of_memtables_by_itself() {
    let fixture = small();
    let c = ns("db.c");
    fixture.store.create_collection(&c, &doc! {}).unwrap();
    let index = doc! {"key": {"a": 1}};
    fixture.store.create_indexes(&c, &[&index]).unwrap();
    fill(&fixture, &c, 0, 3000);
    let mut running = Vec::new();
    for number in 0..16 {
        let (filter, sort) = match number % 3 {
            0 => (doc! {}, doc! {}),
            1 => (doc! {"a": {"$gte": 0}}, doc! {"a": 1}),
            _ => (doc! {}, doc! {"text": -1, "_id": -1}),
        };
        let request = FindRequest {
            filter: Some(&filter),
            sort: Some(&sort),
            ..FindRequest::default()
        };
        let context = OpContext::new();
        let expected = fixture.find(&c, &request);
        let cursor = fixture.store.find(&c, &request, &context).unwrap();
        running.push((cursor, expected));
        change(&fixture, &c, number);
        fill(&fixture, &c, 3000 + number * 400, 400);
    }
    fixture.store.checkpoint().unwrap();
    let engine = fixture.store.engine().files().unwrap();
    assert!(engine.retains_too_much());
    for (cursor, expected) in &mut running {
        let found = read(cursor, 1500);
        assert!(found == expected[..1500]);
        assert!(cursor.retained_bytes() == 0 || !engine.retains_too_much());
    }
    assert!(!engine.retains_too_much(), "{}", engine.retained_bytes());
    for (cursor, expected) in &mut running {
        assert!(read(cursor, usize::MAX) == expected[1500..]);
    }
}

/// Each sort, group or set of seen documents could hold 100 MiB, however many there were.
#[test]
fn queries_beyond_the_memory_of_the_process_spill_or_fail() {
    let fixture = Fixture::with(|directory| {
        let mut options = EngineOptions::new(directory);
        options.cache_bytes = 16 << 20;
        options.client_bytes = Some(4 << 20);
        options
    });
    let c = ns("db.c");
    fixture.store.create_collection(&c, &doc! {}).unwrap();
    let index = doc! {"key": {"tags": 1}};
    fixture.store.create_indexes(&c, &[&index]).unwrap();
    let memory = fixture.store.memory();
    let text = "y".repeat(250);
    for start in (0..20_000).step_by(1000) {
        let docs: Vec<DocBuf> = (start..start + 1000)
            .map(|id| doc! {"_id": id, "tags": [id % 7, id % 3], "text": format!("{}{text}", id * 7919 % 20_011)})
            .collect();
        fixture.insert(&c, &docs);
    }
    let sort = doc! {"text": 1};
    let request = |allow_disk_use| FindRequest {
        sort: Some(&sort),
        allow_disk_use: Some(allow_disk_use),
        ..FindRequest::default()
    };
    let context = OpContext::new();
    // Several at a time, each of which needs more than there is.
    let mut cursors: Vec<QueryCursor> = (0..4)
        .map(|_| fixture.store.find(&c, &request(true), &context).unwrap())
        .collect();
    for round in 0..4 {
        for cursor in &mut cursors {
            let found = read(cursor, 5000);
            assert_eq!(found.len(), 5000);
            let texts = found.windows(2);
            assert!(
                texts
                    .into_iter()
                    .all(|pair| pair[0].get_str("text") <= pair[1].get_str("text"))
            );
            assert!(cursor.spilled().times() > 0);
            let used = memory.used(MemoryUse::Queries);
            assert!(used <= 12 << 20, "{round}: {used}");
        }
    }
    drop(cursors);
    assert_eq!(memory.used(MemoryUse::Queries), 0);

    let code = |cursor: Result<QueryCursor, frond_store::Error>| {
        let mut cursor = cursor.unwrap();
        loop {
            match cursor.next() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it has an end"),
                Err(error) => return error.code().code(),
            }
        }
    };
    assert_eq!(code(fixture.store.find(&c, &request(false), &context)), 146);
    let filter = doc! {"tags": {"$gte": 0}};
    let repeated = FindRequest {
        filter: Some(&filter),
        hint: Some(Value::String("tags_1")),
        ..FindRequest::default()
    };
    let others = memory.reserve(MemoryUse::Replies, memory.free() as usize);
    assert_eq!(code(fixture.store.find(&c, &repeated, &context)), 146);
    drop(others);
    assert_eq!(fixture.find(&c, &repeated).len(), 20_000);
    let group = |allow_disk_use| {
        let stages = array![{"$group": {"_id": "$text", "all": {"$push": "$$ROOT"}}}];
        let request = AggregateRequest {
            pipeline: &stages,
            hint: None,
            variables: None,
            durability: Durability::Logged,
            bypass_validation: false,
            allow_disk_use: Some(allow_disk_use),
            collation: None,
        };
        fixture.store.aggregate("db", Some(&c), &request, &context)
    };
    assert_eq!(code(group(false)), 146);
    assert_eq!(read(&mut group(true).unwrap(), usize::MAX).len(), 20_000);
    assert_eq!(memory.used(MemoryUse::Queries), 0);
}
