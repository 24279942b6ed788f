//! Index builds over many documents with concurrent writers.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use common::disk::MemDisk;
use common::waiting::PATIENCE;
use common::{Fixture, INSERT, ns, open_with};
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_store::{
    DeleteRequest, DocumentStore, Durability, EngineOptions, InsertOptions, OpContext, Progress,
    UpdateRequest, at_points,
};
use rand::SeedableRng;
use rand::rngs::StdRng;

const DOCUMENTS: i32 = 20_000;

fn update(store: &DocumentStore, filter: &Doc, change: &Doc) {
    let request = UpdateRequest::new(filter, Value::Document(change));
    let context = OpContext::new();
    store
        .update(&ns("db.c"), &request, Durability::Logged, &context)
        .unwrap();
}

fn delete(store: &DocumentStore, filter: &Doc) {
    let request = DeleteRequest {
        collation: None,
        filter,
        limit_one: true,
        hint: None,
        variables: None,
    };
    let context = OpContext::new();
    store
        .delete(&ns("db.c"), &request, Durability::Logged, &context)
        .unwrap();
}

fn sound(store: &DocumentStore) {
    let report = store.verify(&ns("db.c")).unwrap();
    assert_eq!(report.errors, Vec::<String>::new());
}

fn names(store: &DocumentStore) -> Vec<String> {
    let indexes = store.list_indexes(&ns("db.c")).unwrap();
    let name = |index: &DocBuf| index.get_str("name").unwrap().to_owned();
    indexes.iter().map(name).collect()
}

fn document(id: i32) -> DocBuf {
    doc! {"_id": id, "u": id, "a": id % 7, "tags": [id % 3, id % 5]}
}

/// Stops the writers when it is dropped, also when the test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Documents with the ids from 0 up.
fn fill(store: &DocumentStore, count: i32) {
    let docs: Vec<DocBuf> = (0..count).map(document).collect();
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    store.insert(&ns("db.c"), &docs, INSERT).unwrap();
}

/// Limits of an operation that report its progress.
fn watched() -> (OpContext, Arc<Progress>) {
    let mut context = OpContext::new();
    let progress = context.progress.insert(Arc::default()).clone();
    (context, progress)
}

/// Waits until an operation has begun, and looks again as soon as it can: what comes next is to meet the operation.
fn until_begun(progress: &Progress) {
    let end = Instant::now() + PATIENCE;
    while progress.get().is_none() {
        assert!(Instant::now() < end, "it does not begin");
        thread::yield_now();
    }
}

#[test]
fn several_indexes_are_built_in_one_pass_while_others_write() {
    let f = Fixture::new();
    fill(&f.store, DOCUMENTS);
    let done = AtomicBool::new(false);
    let unique = doc! {"key": {"u": 1}, "name": "u", "unique": true};
    let specs = [
        doc! {"key": {"a": 1}, "name": "a"},
        unique.clone(),
        doc! {"key": {"tags": 1, "a": -1}, "name": "tags"},
        doc! {"key": {"late": 1}, "name": "late", "sparse": true, "unique": true},
        doc! {"key": {"a": -1}, "name": "part", "partialFilterExpression": {"a": {"$gt": 3}}},
    ];
    thread::scope(|scope| {
        for thread in 0..3_i32 {
            let (store, done) = (&f.store, &done);
            // Each thread has documents of its own, and moves unique values between them.
            scope.spawn(move || {
                let mut step = 0;
                while !done.load(Ordering::Relaxed) {
                    step += 1;
                    let id = (step * 37) % (DOCUMENTS / 3) * 3 + thread;
                    let other = (step * 91) % (DOCUMENTS / 3) * 3 + thread;
                    update(
                        store,
                        &doc! {"_id": id},
                        &doc! {"$inc": {"a": 1}, "$push": {"tags": step}, "$set": {"late": [id, -id - 1]}},
                    );
                    delete(store, &doc! {"_id": other});
                    let again = doc! {"_id": other, "u": other, "a": step};
                    let moved = doc! {"_id": other + 1_000_000, "u": other, "a": [step, 1]};
                    delete(store, &doc! {"_id": other + 1_000_000});
                    let next = if step % 2 == 0 { &again } else { &moved };
                    let options = InsertOptions { ordered: true, ..INSERT };
                    let outcome = store.insert(&ns("db.c"), &[next], options).unwrap();
                    assert_eq!(outcome.errors.len(), 0, "{:?}", outcome.errors);
                }
            });
        }
        let _done = Done(&done);
        for _ in 0..4 {
            let specs: Vec<&Doc> = specs.iter().map(|spec| &**spec).collect();
            let made = f.store.create_indexes(&ns("db.c"), &specs).unwrap();
            assert_eq!((made.before, made.after), (1, 6));
            let all = frond_store::IndexSelector::All;
            sound(&f.store);
            f.store.drop_indexes(&ns("db.c"), &all).unwrap();
        }
        f.store.create_indexes(&ns("db.c"), &[&unique]).unwrap();
    });
    sound(&f.store);
    let trees = common::trees(&f.store);
    assert_eq!(
        trees, 4,
        "the catalog, the documents, their segments, and the one index that is left"
    );
    let f = f.reopen();
    sound(&f.store);
    assert_eq!(names(&f.store), ["_id_", "u"]);
}

#[test]
fn a_duplicate_fails_the_build_and_nothing_is_left() {
    let f = Fixture::new();
    let c = ns("db.c");
    let specs = [
        doc! {"key": {"a": 1}, "name": "other"},
        doc! {"key": {"u": 1}, "name": "u", "unique": true},
    ];
    for count in [500, DOCUMENTS] {
        f.store.drop_collection(&c).ok();
        fill(&f.store, count);
        update(&f.store, &doc! {"_id": 7}, &doc! {"$set": {"u": count - 1}});
        let error = f
            .store
            .create_indexes(&c, &[&specs[0], &specs[1]])
            .unwrap_err();
        assert_eq!(error.code().code(), 11000);
        assert_eq!(
            error.message(),
            format!(
                "Index build failed: db.c :: caused by :: E11000 duplicate key error collection: \
                 db.c index: u dup key: {{ u: {} }}",
                count - 1
            )
        );
        assert_eq!(
            error.details().unwrap(),
            &*doc! {"keyPattern": {"u": 1}, "keyValue": {"u": count - 1}}
        );
        assert_eq!(names(&f.store), ["_id_"]);
        assert_eq!(common::trees(&f.store), 3);
        update(&f.store, &doc! {"_id": 7}, &doc! {"$set": {"u": 7}});
        f.store.create_indexes(&c, &[&specs[0], &specs[1]]).unwrap();
        sound(&f.store);
    }
    let ambiguous = doc! {"_id": 7, "x": [{"0": 1}]};
    update(&f.store, &doc! {"_id": 7}, &ambiguous);
    let error = f.store.create_indexes(&c, &[&doc! {"key": {"x.0": 1}}]);
    assert_eq!(error.unwrap_err().code().code(), 16746);
    assert_eq!(names(&f.store), ["_id_", "other", "u"]);
}

#[test]
fn a_duplicate_inserted_during_the_build_is_found() {
    let unique = doc! {"key": {"u": 1}, "name": "u", "unique": true};
    // Writes during the build: two new documents, a new one equal to an old one, an old one that becomes equal.
    for case in 0..3 {
        let f = Fixture::new();
        let c = ns("db.c");
        fill(&f.store, DOCUMENTS);
        let (context, progress) = watched();
        thread::scope(|scope| {
            let build = scope.spawn(|| f.store.build_indexes(&c, &[&unique], &context));
            until_begun(&progress);
            let refused = match case {
                0 => {
                    let twins = [doc! {"u": -1}, doc! {"u": -1}];
                    f.insert(&c, &twins).errors.len()
                }
                1 => f.insert(&c, &[doc! {"u": 5}]).errors.len(),
                _ => {
                    let (filter, change) = (doc! {"_id": 3}, doc! {"$set": {"u": 5}});
                    let request = UpdateRequest::new(&filter, Value::Document(&change));
                    let limits = OpContext::new();
                    let updated = f.store.update(&c, &request, Durability::Logged, &limits);
                    usize::from(updated.is_err())
                }
            };
            // If the write came too late for the build, the index refused it.
            let built = build.join().unwrap();
            match &built {
                Ok(_) => assert_eq!(refused, 1),
                Err(error) => {
                    assert_eq!(error.code().code(), 11000);
                    assert_eq!(refused, 0);
                }
            }
            assert_eq!(names(&f.store).len(), 1 + usize::from(built.is_ok()));
        });
        sound(&f.store);
    }
}

#[test]
fn a_value_may_move_to_another_document_during_the_build() {
    let f = Fixture::new();
    let c = ns("db.c");
    fill(&f.store, DOCUMENTS);
    let (context, progress) = watched();
    let unique = doc! {"key": {"u": 1}, "name": "u", "unique": true};
    thread::scope(|scope| {
        let build = scope.spawn(|| f.store.build_indexes(&c, &[&unique], &context));
        until_begun(&progress);
        for id in 0..2000 {
            update(&f.store, &doc! {"_id": id}, &doc! {"$set": {"u": -1 - id}});
            f.insert(&c, &[doc! {"u": id}]);
        }
        build.join().unwrap().unwrap();
    });
    sound(&f.store);
    assert_eq!(
        f.find_all(&c, doc! {"u": {"$gte": 0, "$lt": 2000}}).len(),
        2000
    );
}

/// Applications that begin at the same time ask for the same indexes.
#[test]
fn a_second_build_of_an_index_waits_for_the_first_one() {
    let f = Fixture::new();
    let c = ns("db.c");
    fill(&f.store, DOCUMENTS);
    let spec = doc! {"key": {"a": 1}, "name": "a"};
    let (context, progress) = watched();
    thread::scope(|scope| {
        let first = scope.spawn(|| f.store.build_indexes(&c, &[&spec], &context));
        until_begun(&progress);
        let second = scope.spawn(|| f.store.build_indexes(&c, &[&spec], &OpContext::new()));
        assert_eq!(first.join().unwrap().unwrap().after, 2);
        let second = second.join().unwrap().unwrap();
        assert_eq!((second.before, second.after), (2, 2));
    });
}

#[test]
fn a_build_ends_when_it_is_killed_or_times_out_or_the_collection_is_dropped() {
    let f = Fixture::new();
    let c = ns("db.c");
    fill(&f.store, DOCUMENTS);
    let spec = doc! {"key": {"a": 1}, "name": "a"};
    let late = OpContext::with_deadline(Some(Instant::now()));
    let error = f.store.build_indexes(&c, &[&spec], &late).unwrap_err();
    assert_eq!(error.code().code(), 50);
    for case in 0..2 {
        let (context, progress) = watched();
        thread::scope(|scope| {
            let build = scope.spawn(|| f.store.build_indexes(&c, &[&spec], &context));
            until_begun(&progress);
            let again = f.store.create_indexes(&c, &[&spec]);
            assert!(again.is_ok() || again.is_err_and(|error| error.code().code() == 285));
            match case {
                0 => context.killed.store(true, Ordering::Relaxed),
                _ => drop(f.store.drop_collection(&c).unwrap()),
            }
            let built = build.join().unwrap().map_err(|error| error.code().code());
            assert!(matches!(
                (built, case),
                (Ok(_), _) | (Err(11601), 0) | (Err(276), 1)
            ));
        });
        if case == 0 {
            f.store.create_indexes(&c, &[&spec]).unwrap();
            sound(&f.store);
            f.store
                .drop_indexes(&c, &frond_store::IndexSelector::All)
                .unwrap();
        }
    }
    assert_eq!(common::trees(&f.store), 1);
}

#[test]
fn a_build_interrupted_by_a_crash_is_repeated_after_the_next_start() {
    let disk = MemDisk::default();
    let open = |disk: &MemDisk| open_with(EngineOptions::with_disk(Arc::new(disk.clone())));
    let store = open(&disk);
    let c = ns("db.c");
    fill(&store, DOCUMENTS);
    let specs = [
        doc! {"key": {"u": 1}, "name": "u", "unique": true},
        doc! {"key": {"tags": 1}, "name": "tags"},
    ];
    let mut images = Vec::new();
    let ((reached, is_reached), (go_on, goes_on)) = (channel(), channel());
    thread::scope(|scope| {
        let build = scope.spawn(|| {
            let mut stop = Some((reached, goes_on));
            let _act = at_points(move |name| {
                if name == "the entries of an index are loaded"
                    && let Some((reached, goes_on)) = stop.take()
                {
                    reached.send(()).unwrap();
                    goes_on.recv_timeout(PATIENCE).unwrap();
                }
            });
            let specs: Vec<&Doc> = specs.iter().map(|spec| &**spec).collect();
            store.build_indexes(&c, &specs, &OpContext::new())
        });
        is_reached.recv_timeout(PATIENCE).unwrap();
        for seed in 0..6 {
            // The first half of the images is of a build that cannot end yet.
            if seed == 3 {
                go_on.send(()).unwrap();
            }
            delete(&store, &doc! {"_id": seed});
            store.engine().flush_log().unwrap();
            images.push(disk.image(&mut StdRng::seed_from_u64(seed as u64)));
        }
        build.join().unwrap().unwrap();
    });
    let mut unfinished = 0;
    for image in images {
        let store = open(&image);
        if names(&store).len() == 1 {
            unfinished += 1;
            let error = store.create_indexes(&c, &[&specs[0]]).unwrap_err();
            assert_eq!(error.code().code(), 285);
            delete(&store, &doc! {"_id": 100});
            let mut resumed = store.resume_index_builds(&OpContext::new());
            let build = resumed.pop().unwrap();
            assert_eq!(build.indexes, ["u", "tags"]);
            build.outcome.unwrap();
        }
        assert!(store.resume_index_builds(&OpContext::new()).is_empty());
        assert_eq!(names(&store), ["_id_", "u", "tags"]);
        assert_eq!(store.engine_stats().trees, 5);
        sound(&store);
        store.engine().close().unwrap();
    }
    assert!(unfinished >= 3);
}
