//! Operations that wait for a change of the schema, and changes of the schema that wait for writers, end when they are killed and at
//! their deadline.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use frond_bson::{Value, doc};
use frond_error::ErrorCode;
use frond_store::keyspace::Interrupt;
use frond_store::{
    DeleteRequest, DocumentStore, Durability, IndexSelector, OpContext, Result, UpdateRequest,
    at_points,
};

use crate::common::waiting::{PATIENCE, wait_until};
use crate::common::{Fixture, INSERT, ns};

type Operation = fn(&DocumentStore) -> Result<()>;

/// Changes of the schema of `db.c`.
const CHANGES: [(&str, Operation); 5] = [
    ("collMod", |store| {
        let changes = doc! {"validator": {"x": {"$exists": false}}};
        store.modify_collection(&ns("db.c"), &changes)
    }),
    ("renameCollection", |store| {
        store.rename_collection(&ns("db.c"), &ns("db.d"), true)
    }),
    ("drop", |store| store.drop_collection(&ns("db.c")).map(drop)),
    ("dropIndexes", |store| {
        store
            .drop_indexes(&ns("db.c"), &IndexSelector::All)
            .map(drop)
    }),
    ("createIndexes", |store| {
        let index = doc! {"key": {"b": 1}};
        store.create_indexes(&ns("db.c"), &[&index]).map(drop)
    }),
];

/// Writes into `db.c`.
const WRITES: [(&str, Operation); 4] = [
    ("insert", |store| {
        let outcome = store.insert(&ns("db.c"), &[&doc! {"_id": 2}], INSERT)?;
        match outcome.errors.into_iter().next() {
            Some(failed) => Err(failed.error),
            None => Ok(()),
        }
    }),
    ("update", |store| {
        let (filter, change) = (doc! {"_id": 1}, doc! {"$set": {"a": 2}});
        let request = UpdateRequest::new(&filter, Value::Document(&change));
        let context = OpContext::new();
        let updated = store.update(&ns("db.c"), &request, Durability::Logged, &context);
        updated.map(drop)
    }),
    ("delete", |store| {
        let filter = doc! {"_id": 1};
        let request = DeleteRequest {
            filter: &filter,
            limit_one: true,
            hint: None,
            collation: None,
            variables: None,
        };
        let context = OpContext::new();
        store
            .delete(&ns("db.c"), &request, Durability::Logged, &context)
            .map(drop)
    }),
    ("a transaction", |store| {
        let transaction = store.begin();
        let inside = store.in_transaction(&transaction);
        inside.insert(&ns("db.c"), &[&doc! {"_id": 3}], INSERT)?;
        transaction.commit(Durability::Logged).map(drop)
    }),
];

fn fixture() -> Fixture {
    let f = Fixture::new();
    f.insert(&ns("db.c"), &[doc! {"_id": 1, "a": 1}]);
    f.insert(&ns("db.d"), &[doc! {"_id": 1}]);
    let index = doc! {"key": {"a": 1}};
    f.store.create_indexes(&ns("db.c"), &[&index]).unwrap();
    f
}

/// Runs an operation that stops at a point until the result is dropped.
fn stopped(
    store: &DocumentStore,
    at: &'static str,
    operation: Operation,
) -> (Sender<()>, thread::JoinHandle<Result<()>>) {
    let (store, (reached, reaches)) = (store.clone(), channel());
    let (go_on, told): (Sender<()>, Receiver<()>) = channel();
    let thread = thread::spawn(move || {
        let _acts = at_points(move |name| {
            if name == at {
                reached.send(()).unwrap();
                // It fails when the test goes on.
                let _ = told.recv();
            }
        });
        operation(&store)
    });
    reaches
        .recv_timeout(PATIENCE)
        .expect("it reaches the point");
    (go_on, thread)
}

/// An operation that waits ends with the errors of MongoDB, by its deadline and when it is killed.
fn assert_ends(store: &DocumentStore, what: &str, operation: Operation, only_schema: bool) {
    let interrupt = || Interrupt {
        only_schema,
        ..Interrupt::default()
    };
    let timed = Interrupt {
        deadline: Some(Instant::now() + Duration::from_millis(30)),
        ..interrupt()
    };
    let error = timed.run(|| operation(store)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::MaxTimeMSExpired, "{what}");
    let killed = interrupt();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| killed.clone().run(|| operation(store)));
        wait_until(what, || {
            assert!(!waiting.is_finished(), "{what} does not wait");
            killed.waits.get() == Some("the schema of a collection")
        });
        killed.killed.store(true, Ordering::SeqCst);
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::Interrupted, "{what}");
    });
    assert_eq!(killed.waits.get(), None, "{what}");
}

#[test]
fn a_write_that_waits_for_a_change_of_the_schema_can_be_interrupted() {
    let point = "a change of a collection is about to be committed";
    for (change, operation) in CHANGES {
        let f = fixture();
        let (go_on, changing) = stopped(&f.store, point, operation);
        for (what, write) in WRITES {
            assert_ends(&f.store, &format!("{what} beside {change}"), write, false);
        }
        drop(go_on);
        changing.join().unwrap().unwrap();
    }
}

#[test]
fn a_change_of_the_schema_that_waits_for_another_one_can_be_interrupted() {
    let point = "a change of a collection is about to be committed";
    let f = fixture();
    let (go_on, changing) = stopped(&f.store, point, |store| {
        let changes = doc! {"validator": {"y": {"$exists": false}}};
        store.modify_collection(&ns("db.d"), &changes)
    });
    for (what, change) in CHANGES {
        assert_ends(&f.store, what, change, true);
    }
    drop(go_on);
    changing.join().unwrap().unwrap();
    assert_unchanged(&f);
}

/// The commit of a transaction holds the gates of all its collections, for as long as it waits for memory or for the disk.
#[test]
fn a_change_of_the_schema_that_waits_for_a_writer_can_be_interrupted() {
    let f = fixture();
    let point = "a transaction is about to be committed";
    let (go_on, committing) = stopped(&f.store, point, |store| {
        let transaction = store.begin();
        let inside = store.in_transaction(&transaction);
        for name in ["db.c", "db.d"] {
            inside.insert(&ns(name), &[&doc! {"_id": 4}], INSERT)?;
        }
        transaction.commit(Durability::Logged).map(drop)
    });
    for (what, change) in CHANGES {
        assert_ends(&f.store, what, change, true);
        // Later writers do not wait for a change that has given up.
        let (_, insert) = WRITES[0];
        insert(&f.store).unwrap();
        let filter = doc! {"_id": 2};
        let delete = DeleteRequest {
            filter: &filter,
            limit_one: true,
            hint: None,
            collation: None,
            variables: None,
        };
        let context = OpContext::new();
        f.store
            .delete(&ns("db.c"), &delete, Durability::Logged, &context)
            .unwrap();
    }
    drop(go_on);
    committing.join().unwrap().unwrap();
    assert_unchanged(&f);
}

/// An interrupted change has left nothing behind, and can be repeated.
fn assert_unchanged(f: &Fixture) {
    let catalog = f.store.catalog();
    for name in ["db.c", "db.d"] {
        assert!(catalog.collection(&ns(name)).is_some(), "{name}");
    }
    let collection = catalog.collection(&ns("db.c")).unwrap();
    let names: Vec<_> = collection
        .indexes
        .iter()
        .map(|index| &*index.spec.name)
        .collect();
    assert_eq!(names, ["a_1"]);
    for (what, change) in CHANGES.iter().rev() {
        change(&f.store).unwrap_or_else(|error| panic!("{what}: {error}"));
        if matches!(*what, "drop" | "renameCollection") {
            f.insert(&ns("db.c"), &[doc! {"_id": 1}]);
        }
    }
}
