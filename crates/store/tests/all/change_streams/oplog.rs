//! `local.oplog.rs`: read as a collection, tailed, and never written.

use frond_bson::{Timestamp, Value, doc};
use frond_store::{CountRequest, FindRequest, Verbosity};

use super::*;
use crate::common::waiting::wait_until;

const NAME: &str = "local.oplog.rs";

fn find(fixture: &Fixture, filter: &Doc, sort: &Doc, limit: Option<u64>) -> Vec<DocBuf> {
    fixture.store.flush_log().unwrap();
    fixture.find(
        &ns(NAME),
        &FindRequest {
            filter: Some(filter),
            sort: Some(sort),
            limit,
            ..FindRequest::default()
        },
    )
}

fn time(entry: &Doc) -> Timestamp {
    match entry.get("ts") {
        Some(Value::Timestamp(time)) => time,
        other => panic!("{other:?}"),
    }
}

/// A store with some entries.
fn filled() -> Fixture {
    let fixture = Fixture::with_oplog();
    for id in 0..20 {
        insert(&fixture, "d.a", &[doc! {"_id": id, "n": id}]);
        insert(&fixture, "d.b", &[doc! {"_id": id}]);
    }
    update(&fixture, "d.a", &doc! {"_id": 3}, &doc! {"$set": {"n": 0}});
    delete(&fixture, "d.a", &doc! {"_id": 4});
    fixture.store.flush_log().unwrap();
    fixture
}

/// The number of entries that a query examined, and its result.
fn examined(store: &DocumentStore, request: &FindRequest<'_>) -> (u64, Vec<DocBuf>) {
    let mut cursor = store.find(&ns(NAME), request, &OpContext::new()).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = cursor.next().unwrap() {
        found.push(entry);
    }
    (cursor.stats().docs_examined, found)
}

#[test]
fn entries_are_documents() {
    let fixture = filled();
    let store = &fixture.store;
    let entries = find(&fixture, &doc! {}, &doc! {}, None);
    // The first one, two of creations, and those of the writes.
    assert_eq!(entries.len(), 45);
    assert_eq!(entries[0].get_str("op"), Some("n"));
    assert_eq!(
        entries[0].get_doc("o"),
        Some(&*doc! {"msg": "initiating set"})
    );
    assert!(
        entries
            .windows(2)
            .all(|pair| time(&pair[0]) < time(&pair[1]))
    );
    let last = &entries[44];
    assert_eq!(
        brief(&entries[44..], &["op", "ns", "o", "v"]),
        [doc! {"op": "d", "ns": "d.a", "o": {"_id": 4}, "v": 2_i64}]
    );
    assert!(last.contains_key("ui") && last.contains_key("t") && last.contains_key("wall"));
    let count = |filter: Option<&Doc>| {
        let request = CountRequest {
            filter,
            ..CountRequest::default()
        };
        store.count(&ns(NAME), &request, &OpContext::new()).unwrap()
    };
    assert_eq!(count(None), 45);
    assert_eq!(count(Some(&doc! {"ns": "d.a"})), 22);
    assert_eq!(count(Some(&doc! {"o.n": {"$gte": 10}})), 10);
    assert_eq!(
        count(Some(&doc! {"ns": "d.a", "o.n": {"$exists": true}})),
        20
    );
    let kinds = store.distinct(&ns(NAME), "op", None, None, None, &OpContext::new());
    let kinds: Vec<String> = kinds
        .unwrap()
        .values()
        .map(|kind| kind.as_str().unwrap().to_owned())
        .collect();
    let mut kinds = kinds;
    kinds.sort();
    assert_eq!(kinds, ["c", "d", "i", "n", "u"]);
    let mut pipeline = ArrayBuf::new();
    pipeline.push(&doc! {"$match": {"op": "i"}});
    pipeline.push(&doc! {"$group": {"_id": "$ns", "n": {"$sum": 1}}});
    pipeline.push(&doc! {"$sort": {"_id": 1}});
    let request = AggregateRequest {
        pipeline: &pipeline,
        hint: None,
        variables: None,
        durability: LOGGED,
        bypass_validation: false,
        allow_disk_use: None,
        collation: None,
    };
    let mut groups = store
        .aggregate("local", Some(&ns(NAME)), &request, &OpContext::new())
        .unwrap();
    let mut found = Vec::new();
    while let Some(group) = groups.next().unwrap() {
        found.push(group);
    }
    assert_eq!(
        found,
        [doc! {"_id": "d.a", "n": 20}, doc! {"_id": "d.b", "n": 20}]
    );
}

#[test]
fn bounds_and_orders_read_few_entries() {
    let fixture = filled();
    let store = &fixture.store;
    let entries = find(&fixture, &doc! {}, &doc! {}, None);
    let at = |number: usize| time(&entries[number]);
    let run = |filter: DocBuf, sort: DocBuf, limit: Option<u64>| {
        let request = FindRequest {
            filter: Some(&filter),
            sort: Some(&sort),
            limit,
            ..FindRequest::default()
        };
        examined(store, &request)
    };
    for (filter, sort, limit, expected, reads) in [
        (doc! {}, doc! {"$natural": -1}, Some(1), vec![44], 1),
        (doc! {}, doc! {"$natural": 1}, Some(1), vec![0], 1),
        (doc! {}, doc! {"ts": -1}, Some(2), vec![44, 43], 2),
        (doc! {}, doc! {"ts": 1}, Some(2), vec![0, 1], 2),
        (doc! {"ts": at(7)}, doc! {}, None, vec![7], 1),
        (doc! {"ts": {"$gt": at(42)}}, doc! {}, None, vec![43, 44], 2),
        (
            doc! {"ts": {"$gte": at(42)}},
            doc! {},
            None,
            vec![42, 43, 44],
            3,
        ),
        (doc! {"ts": {"$lt": at(2)}}, doc! {}, None, vec![0, 1], 2),
        (
            doc! {"ts": {"$lte": at(2)}},
            doc! {"$natural": -1},
            None,
            vec![2, 1, 0],
            3,
        ),
        (
            doc! {"$and": [{"ts": {"$gt": at(1)}}, {"ts": {"$lt": at(5)}}, {"op": {"$ne": "n"}}]},
            doc! {"ts": -1},
            None,
            vec![4, 3, 2],
            3,
        ),
        (
            doc! {"ts": {"$gt": at(5), "$lt": at(4)}},
            doc! {},
            None,
            vec![],
            0,
        ),
        (doc! {"ts": {"$gt": at(44)}}, doc! {}, None, vec![], 0),
        (
            doc! {"ts": {"$gt": at(40)}, "ns": "d.b"},
            doc! {},
            None,
            vec![42],
            4,
        ),
    ] {
        let shown = format!("{filter:?} {sort:?}");
        let (examined, found) = run(filter, sort, limit);
        let wanted: Vec<DocBuf> = expected.into_iter().map(|at| entries[at].clone()).collect();
        assert_eq!(found, wanted, "{shown}");
        assert_eq!(examined, reads, "{shown}");
    }
    // Another order is sorted.
    let (_, found) = run(doc! {"op": "i", "ns": "d.a"}, doc! {"o.n": -1}, Some(1));
    assert_eq!(found[0].get_doc("o").unwrap().get_i64("n"), Some(19));
    let request = FindRequest {
        limit: Some(1),
        show_record_id: true,
        ..FindRequest::default()
    };
    let (_, found) = examined(store, &request);
    let record = i64::try_from(at(0).to_u64()).unwrap();
    assert_eq!(found[0].get_i64("$recordId"), Some(record));
}

#[test]
fn explain_shows_the_bounds() {
    let fixture = filled();
    let store = &fixture.store;
    let entries = find(&fixture, &doc! {}, &doc! {}, None);
    let filter = doc! {"ts": {"$gte": time(&entries[40]), "$lte": time(&entries[42])}, "ns": "d.b"};
    let sort = doc! {"$natural": -1};
    let request = FindRequest {
        filter: Some(&filter),
        sort: Some(&sort),
        ..FindRequest::default()
    };
    let verbosity = Verbosity::ExecutionStats;
    let plan = store
        .explain_find(&ns(NAME), &request, verbosity, &OpContext::new())
        .unwrap();
    let stage = plan
        .get_doc("executionStats")
        .unwrap()
        .get_doc("executionStages")
        .unwrap();
    assert_eq!(stage.get_str("stage"), Some("COLLSCAN"));
    assert_eq!(stage.get_str("direction"), Some("backward"));
    let record = |at: usize| time(&entries[at]).to_u64().cast_signed();
    assert_eq!(stage.get_i64("minRecord"), Some(record(40)));
    assert_eq!(stage.get_i64("maxRecord"), Some(record(42)));
    assert_eq!(stage.get_i64("docsExamined"), Some(3));
    assert!(stage.contains_key("filter"));
}

#[test]
fn a_read_finds_what_was_written_before() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    insert(&fixture, "d.a", &[doc! {"_id": 1}]);
    let last = store.oplog().last();
    let newest = || {
        let request = FindRequest {
            sort: Some(&doc! {"$natural": -1}),
            limit: Some(1),
            ..FindRequest::default()
        };
        time(&examined(store, &request).1[0])
    };
    assert_eq!(newest(), last);
    // Only durable entries are shown, so it was made durable.
    assert!(store.oplog().durable() >= last.to_u64());
    insert(&fixture, "d.a", &[doc! {"_id": 2}]);
    let mut cursor = tail(store, &doc! {"ts": {"$gt": last}});
    assert!(cursor.next().unwrap().is_some());
}

#[test]
fn it_is_listed_and_measured() {
    let fixture = filled();
    let store = &fixture.store;
    let listed = store.list_collections("local").unwrap();
    let oplog = listed.iter().find(|one| one.name == "oplog.rs").unwrap();
    assert_eq!(oplog.options.get_bool("capped"), Some(true));
    assert_eq!(oplog.options.get_i64("size"), Some(64 << 20));
    assert!(oplog.id_index.is_none());
    let databases = store.list_databases().unwrap();
    assert!(
        databases
            .iter()
            .any(|one| one.name == "local" && !one.empty)
    );
    let stats = store.collection_stats(&ns(NAME)).unwrap();
    assert_eq!(stats.count, 45);
    assert!(stats.size > 45 * 20);
    assert_eq!(stats.capped.unwrap().bytes, 64 << 20);
    assert_eq!(stats.indexes, 0);
    assert_eq!(store.list_indexes(&ns(NAME)).unwrap(), Vec::<DocBuf>::new());
    let report = store.verify(&ns(NAME)).unwrap();
    assert_eq!((report.documents, report.errors.len()), (45, 0));
    store.turn_off_oplog().unwrap();
    assert!(!store.collection_exists(&ns(NAME)));
    assert!(store.list_collections("local").unwrap().is_empty());
}

#[test]
fn it_takes_no_writes() {
    let fixture = filled();
    let store = &fixture.store;
    let outcome = fixture.insert(&ns(NAME), &[doc! {"_id": 1}]);
    assert_eq!(outcome.errors[0].error.code().code(), 73);
    let filter = doc! {};
    let change = doc! {"$set": {"a": 1}};
    let updating = UpdateRequest::new(&filter, Value::Document(&change));
    let context = OpContext::new();
    assert_eq!(
        code(store.update(&ns(NAME), &updating, LOGGED, &context)),
        73
    );
    let deleting = DeleteRequest {
        filter: &filter,
        limit_one: false,
        hint: None,
        variables: None,
        collation: None,
    };
    assert_eq!(
        code(store.delete(&ns(NAME), &deleting, LOGGED, &context)),
        73
    );
    let index = doc! {"key": {"ns": 1}, "name": "ns_1"};
    assert_eq!(code(store.create_indexes(&ns(NAME), &[&index])), 73);
    let change = doc! {"validator": {"a": 1}};
    assert_eq!(code(store.modify_collection(&ns(NAME), &change)), 73);
    assert_eq!(code(store.drop_collection(&ns(NAME))), 5_255_000);
    assert_eq!(code(store.drop_database("local")), 20);
    assert_eq!(
        code(store.rename_collection(&ns(NAME), &ns("d.x"), false)),
        20
    );
    assert_eq!(
        code(store.rename_collection(&ns("d.a"), &ns(NAME), true)),
        20
    );
    assert_eq!(code(store.create_collection(&ns(NAME), &doc! {})), 48);
    let size = 1 << 20;
    let copy = ns("local.x");
    assert_eq!(code(store.clone_as_capped(&ns(NAME), &copy, size)), 20);
    assert_eq!(code(store.convert_to_capped(&ns(NAME), size, &context)), 20);
    assert_eq!(store.list_collections("local").unwrap().len(), 1);
    assert_eq!(find(&fixture, &doc! {}, &doc! {}, None).len(), 45);
}

fn tail(store: &DocumentStore, filter: &Doc) -> QueryCursor {
    let request = FindRequest {
        filter: Some(filter),
        tailable: true,
        ..FindRequest::default()
    };
    store.find(&ns(NAME), &request, &OpContext::new()).unwrap()
}

#[test]
fn tailing_from_a_time() {
    let fixture = filled();
    let store = &fixture.store;
    let last = store.oplog().last();
    let filter =
        doc! {"ts": {"$gt": last}, "ns": {"$regex": "^d\\."}, "op": {"$in": ["i", "u", "d"]}};
    let mut cursor = tail(store, &filter);
    assert!(cursor.next().unwrap().is_none() && cursor.is_tailable());
    insert(&fixture, "d.a", &[doc! {"_id": "x"}]);
    insert(&fixture, "e.a", &[doc! {"_id": "x"}]);
    store.flush_log().unwrap();
    let (signal, seen) = cursor.tail_signal().unwrap();
    wait_until("a reader that is told", || signal.insertions() > seen);
    let entry = cursor.next().unwrap().unwrap();
    assert_eq!(entry.get_doc("o"), Some(&*doc! {"_id": "x"}));
    assert!(cursor.next().unwrap().is_none());
    // Nothing before the time was read.
    assert!(cursor.stats().docs_examined <= 4, "{:?}", cursor.stats());
    let mut whole = tail(store, &doc! {});
    let mut count = 0;
    while whole.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 48);
}

#[test]
fn a_tail_that_falls_behind_is_lost() {
    let fixture = filled();
    let store = &fixture.store;
    let mut cursor = tail(store, &doc! {});
    assert!(cursor.next().unwrap().is_some());
    cursor.release_memory().unwrap();
    store
        .oplog()
        .resize(OplogSettings {
            bytes_max: 1 << 20,
            min_retention_hours: 0.0,
        })
        .unwrap();
    let text = "x".repeat(100_000);
    for id in 0..400 {
        insert(
            &fixture,
            "d.b",
            &[doc! {"_id": 1000 + id, "t": text.as_str()}],
        );
    }
    for _ in 0..100 {
        store.oplog().trim(i64::MAX / 2).unwrap();
    }
    store.flush_log().unwrap();
    let mut last = Ok(None);
    for _ in 0..3 {
        last = cursor.next();
        if last.is_err() {
            break;
        }
    }
    assert_eq!(code(last), 136);
}
