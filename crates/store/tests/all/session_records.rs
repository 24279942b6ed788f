//! The records of retryable writes: with the commit of a statement, or not at all.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use frond_bson::{DocBuf, Value, doc};
use frond_store::{
    DeleteRequest, DocumentStore, Durability, InsertOptions, InsertRecording, Namespace, OpContext,
    Recording, SessionKey, StatementId, StoreOptions, UpdateOutcome, UpdateRequest,
    disk::{Disk, FsDisk},
};

const SESSION: SessionKey = [3; 16];

fn open(directory: &std::path::Path) -> DocumentStore {
    let disk: Arc<dyn Disk> = Arc::new(FsDisk::new(directory.to_owned(), false));
    DocumentStore::open_on_disk(disk, StoreOptions::default()).unwrap()
}

fn ns() -> Namespace {
    Namespace::new("test", "c").unwrap()
}

fn statement(session: SessionKey, number: i64, statement: i32, clears: bool) -> StatementId {
    StatementId {
        session,
        number,
        statement,
        clears,
    }
}

fn insert(store: &DocumentStore, of: StatementId, docs: &[DocBuf], ordered: bool) -> usize {
    let docs: Vec<_> = docs.iter().map(|doc| &**doc).collect();
    let numbers: Vec<i32> = (0..docs.len() as i32).collect();
    let result = doc! {"inserted": true};
    let recording = InsertRecording {
        of,
        numbers: &numbers,
        result: &result,
    };
    let options = InsertOptions {
        ordered,
        durability: Durability::Logged,
        bypass_validation: false,
        keep_empty_timestamps: false,
    };
    let done = store.insert_recorded(&ns(), &docs, options, recording);
    done.unwrap().inserted
}

fn places(store: &DocumentStore) -> Vec<(i32, u32)> {
    let executed = store.session_history(&SESSION).unwrap().executed;
    executed
        .iter()
        .map(|done| (done.first, done.count))
        .collect()
}

#[test]
fn a_store_without_retryable_writes_has_no_tree_for_them() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let before = store.engine().trees().unwrap().len();
    assert_eq!(store.session_history(&SESSION).unwrap(), Default::default());
    store.forget_sessions(&[SESSION]).unwrap();
    assert_eq!(
        store.idle_sessions(None, i64::MAX, 10).unwrap(),
        (vec![], None)
    );
    assert_eq!(store.engine().trees().unwrap().len(), before);
}

#[test]
fn documents_that_fail_have_no_record() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let docs = [
        doc! {"_id": 0},
        doc! {"_id": 1},
        doc! {"_id": 1},
        doc! {"_id": 3},
        doc! {"_id": 4},
        doc! {"_id": 3},
    ];
    assert_eq!(
        insert(&store, statement(SESSION, 1, 0, false), &docs, false),
        4
    );
    assert_eq!(places(&store), [(0, 2), (3, 2)]);
    // Nothing is inserted, so nothing is recorded: the records of the number before are still the newest.
    let again = [doc! {"_id": 0}];
    assert_eq!(
        insert(&store, statement(SESSION, 2, 0, true), &again, true),
        0
    );
    assert_eq!(store.session_history(&SESSION).unwrap().number, Some(1));
    // The next one clears them.
    let new = [doc! {"_id": 9}];
    assert_eq!(
        insert(&store, statement(SESSION, 3, 0, true), &new, true),
        1
    );
    let history = store.session_history(&SESSION).unwrap();
    assert_eq!((history.number, history.has_more), (Some(3), false));
    assert_eq!(places(&store), [(0, 1)]);
}

#[test]
fn large_inserts_have_a_record_for_each_commit() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let docs: Vec<_> = (0..2500).map(|n| doc! {"_id": n}).collect();
    assert_eq!(
        insert(&store, statement(SESSION, 1, 0, false), &docs, true),
        2500
    );
    let places = places(&store);
    assert!((3..10).contains(&places.len()), "{places:?}");
    let total: u32 = places.iter().map(|(_, count)| count).sum();
    assert_eq!((places[0].0, total), (0, 2500));
}

#[test]
fn a_record_survives_with_its_write_and_is_found_by_its_age() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let context = OpContext::new();
    insert(
        &store,
        statement([1; 16], 5, 0, false),
        &[doc! {"_id": 1, "n": 0}],
        true,
    );
    let (filter, update) = (doc! {"_id": 1}, doc! {"$inc": {"n": 1}});
    let request = UpdateRequest::new(&filter, Value::Document(&update));
    let result = |done: &UpdateOutcome| doc! {"modified": done.modified as i64};
    let recording = Recording {
        of: statement([2; 16], 7, 4, false),
        result: &result,
    };
    store
        .update_recorded(&ns(), &request, recording, &context)
        .unwrap();
    let none = DeleteRequest {
        filter: &doc! {"_id": 77},
        limit_one: true,
        hint: None,
        variables: None,
        collation: None,
    };
    let result = |n: &u64| doc! {"deleted": *n as i64};
    let recording = Recording {
        of: statement([3; 16], 1, 0, false),
        result: &result,
    };
    assert_eq!(
        store
            .delete_recorded(&ns(), &none, recording, &context)
            .unwrap(),
        0
    );
    // Without a checkpoint, as after a crash of the process.
    drop(store);
    let store = open(directory.path());
    let history = store.session_history(&[2; 16]).unwrap();
    assert_eq!((history.number, history.has_more), (Some(7), true));
    assert_eq!(history.executed[0].first, 4);
    assert_eq!(history.executed[0].result, doc! {"modified": 1i64});
    assert_eq!(store.session_history(&[3; 16]).unwrap().number, None);

    let idle = |after, before| store.idle_sessions(after, before, 1).unwrap();
    assert_eq!(idle(None, 0), (vec![], Some([1; 16])));
    assert_eq!(idle(None, i64::MAX), (vec![[1; 16]], Some([1; 16])));
    assert_eq!(idle(Some([1; 16]), i64::MAX), (vec![[2; 16]], None));
    store.forget_sessions(&[[1; 16], [2; 16]]).unwrap();
    assert_eq!(idle(None, i64::MAX), (vec![], None));
}

#[test]
fn a_committed_transaction_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.catalog().ensure_collection(&ns()).unwrap();
    insert(
        &store,
        statement(SESSION, 1, 0, false),
        &[doc! {}, doc! {}],
        true,
    );
    let commit = |number: i64, writes: bool| {
        let transaction = store.begin();
        if writes {
            let inside = store.in_transaction(&transaction);
            let options = InsertOptions {
                ordered: true,
                durability: Durability::Logged,
                bypass_validation: false,
                keep_empty_timestamps: false,
            };
            inside
                .insert(&ns(), &[&doc! {"t": number}], options)
                .unwrap();
        }
        let of = statement(SESSION, number, 0, true);
        assert_eq!(
            transaction.commit_recorded(Durability::Logged, of).unwrap(),
            writes
        );
    };
    commit(2, true);
    let history = store.session_history(&SESSION).unwrap();
    assert_eq!((history.number, history.is_committed), (Some(2), true));
    // The record of the next commit replaces it: no range is deleted for that.
    assert!(history.executed.is_empty() && !history.has_more);
    // One that wrote nothing leaves no trace.
    commit(3, false);
    assert_eq!(store.session_history(&SESSION).unwrap().number, Some(2));
    // It remains behind a newer retryable write, and says nothing there.
    insert(&store, statement(SESSION, 4, 0, false), &[doc! {}], true);
    let history = store.session_history(&SESSION).unwrap();
    assert_eq!(
        (history.number, history.is_committed, history.has_more),
        (Some(4), false, false)
    );
}
