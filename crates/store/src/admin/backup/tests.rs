#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use frond_bson::{Doc, DocBuf, doc};

use super::*;
use crate::own_files::OwnFiles;
use crate::store::{DocumentStore, StoreOptions};
use crate::{Durability, InsertOptions, Namespace, offline};
use frond_storage::context::OpContext;
use frond_storage::keyspace::{EngineOptions, ExtentId};

fn open(path: &Path) -> DocumentStore {
    DocumentStore::open_engine(EngineOptions::new(path), StoreOptions::default()).unwrap()
}

fn namespace() -> Namespace {
    Namespace::new("d", "c").unwrap()
}

fn insert(store: &DocumentStore, ids: std::ops::Range<i64>) {
    let docs: Vec<DocBuf> = ids
        .map(|id| doc! {"_id": id, "k": id * 7919 % 1000, "x": "y".repeat(200)})
        .collect();
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    let options = InsertOptions {
        ordered: true,
        durability: Durability::Logged,
        bypass_validation: true,
        keep_empty_timestamps: true,
    };
    for docs in docs.chunks(1000) {
        store.insert(&namespace(), docs, options).unwrap();
    }
}

fn documents(store: &DocumentStore) -> i64 {
    let catalog = store.catalog();
    catalog.existing(&namespace()).unwrap().counts().documents
}

/// All documents of a stream that does not follow.
fn all(store: &DocumentStore, request: BackupRequest) -> Vec<DocBuf> {
    let mut stream = store.backup_stream(request).unwrap();
    let mut found = Vec::new();
    loop {
        match stream.next(&OpContext::new()).unwrap() {
            Step::Document(document) => found.push(document),
            Step::Pause(time) => std::thread::sleep(time),
            Step::End => return found,
        }
    }
}

fn number(document: &Doc, name: &str) -> u64 {
    u64::try_from(document.get_i64(name).unwrap()).unwrap()
}

/// Restores streams: the last one is the newest.
fn restore(path: &Path, streams: &[&[DocBuf]], point: Option<RestorePoint>) -> Restored {
    let mut target = RestoreTarget::create(path).unwrap();
    let (mut head, mut mark) = (None, 0);
    for (at, stream) in streams.iter().enumerate() {
        let is_last = at + 1 == streams.len();
        for document in *stream {
            let bytes = document.get_binary("bytes").unwrap_or_default();
            match document.get_str("t").unwrap() {
                "data" => target.extent(number(document, "offset"), bytes).unwrap(),
                "head" => head = Some(bytes.to_vec()),
                "log" if is_last => {
                    let (from, to) = (number(document, "from"), number(document, "to"));
                    target.log(from, to, bytes).unwrap();
                }
                "mark" => mark = number(document, "position"),
                _ => {}
            }
        }
    }
    let point = point.unwrap_or(RestorePoint::Position(mark));
    target.finish(&head.unwrap(), point).unwrap()
}

fn known(stream: &[DocBuf]) -> BackupRequest {
    let of_kind = |kind| {
        let found = stream
            .iter()
            .filter(move |one| one.get_str("t") == Some(kind));
        found.map(|one| &**one)
    };
    let begin = of_kind("begin").next().unwrap();
    let mut extents = std::collections::HashSet::new();
    for list in of_kind("extents") {
        for packed in list.get_binary("ids").unwrap().chunks_exact(24) {
            let word = |at: usize| u64::from_le_bytes(packed[at..at + 8].try_into().unwrap());
            extents.insert(ExtentId {
                offset: word(0),
                len: word(8),
                birth: word(16),
            });
        }
    }
    let id = begin.get_binary("storeId").unwrap().try_into().unwrap();
    BackupRequest {
        known: Some((id, extents)),
        ..BackupRequest::default()
    }
}

fn data_bytes(stream: &[DocBuf]) -> usize {
    let data = stream.iter().filter(|one| one.get_str("t") == Some("data"));
    data.map(|one| one.get_binary("bytes").unwrap().len()).sum()
}

fn check(path: &Path, expected: i64) {
    let report = offline::verify(path, &mut |_| ()).unwrap();
    assert_eq!(report.problems(), 0, "{report:?}");
    let store = open(path);
    assert_eq!(documents(&store), expected);
    store.engine().close().unwrap();
}

#[test]
fn a_stream_restores_what_was_committed_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("db"));
    insert(&store, 0..5000);
    store.checkpoint().unwrap();
    insert(&store, 5000..5500);
    let full = all(&store, BackupRequest::default());
    insert(&store, 5500..6000);
    let path = folder.path().join("full");
    let restored = restore(&path, &[&full], None);
    assert_eq!(restored.loading, []);
    check(&path, 5500);
    // The next copy needs only the extents that are new since then.
    store.checkpoint().unwrap();
    let more = all(&store, known(&full));
    let nothing = all(&store, known(&more));
    assert!(data_bytes(&nothing) < data_bytes(&more));
    let path = folder.path().join("incremental");
    restore(&path, &[&full, &more], None);
    check(&path, 6000);
    store.engine().close().unwrap();
}

#[test]
fn an_index_whose_build_is_replayed_is_built_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("db"));
    insert(&store, 0..3000);
    let full = all(&store, BackupRequest::default());
    let position = full
        .iter()
        .find(|one| one.get_str("t") == Some("mark"))
        .map(|mark| number(mark, "position"));
    // The log from before the build on, as an archive has it.
    let mut follow = store
        .backup_stream(BackupRequest {
            is_log_only: true,
            follows: true,
            from_position: position,
            ..BackupRequest::default()
        })
        .unwrap();
    let (plain, unique) = (
        doc! {"key": {"k": 1}, "name": "k_1"},
        doc! {"key": {"_id": 1, "k": 1}, "name": "u", "unique": true},
    );
    let context = OpContext::new();
    store
        .build_indexes(&namespace(), &[&*plain, &*unique], &context)
        .unwrap();
    insert(&store, 3000..3100);
    let end = OwnFiles::new(store.engine()).require().unwrap().log_end();
    let mut pieces = full.clone();
    loop {
        match follow.next(&context).unwrap() {
            Step::Document(document) => {
                let is_end =
                    document.get_str("t") == Some("mark") && number(&document, "position") >= end;
                if matches!(document.get_str("t"), Some("log" | "mark")) {
                    pieces.push(document);
                }
                if is_end {
                    break;
                }
            }
            Step::Pause(time) => std::thread::sleep(time),
            Step::End => panic!("it follows"),
        }
    }
    let path = folder.path().join("restored");
    let restored = restore(&path, &[&pieces], Some(RestorePoint::End));
    assert_eq!(restored.loading.len(), 2);
    let report = offline::verify(&path, &mut |_| ()).unwrap();
    assert_eq!(report.problems(), 0, "{report:?}");
    let copy = open(&path);
    let is_ready = |copy: &DocumentStore| {
        let collection = copy.catalog().existing(&namespace()).unwrap();
        let indexes = collection.indexes.iter();
        indexes
            .map(|index| (index.spec.name.clone(), index.ready))
            .collect::<HashMap<_, _>>()
    };
    // No query uses them before they are built.
    assert_eq!(is_ready(&copy).len(), 2);
    assert!(is_ready(&copy).values().all(|ready| !ready));
    for built in copy.resume_index_builds(&context) {
        built.outcome.unwrap();
    }
    assert!(is_ready(&copy).values().all(|ready| *ready));
    let report = copy.verify(&namespace()).unwrap();
    assert!(report.errors.is_empty(), "{report:?}");
    assert_eq!(documents(&copy), 3100);
    copy.engine().close().unwrap();
    drop(follow);
    store.engine().close().unwrap();
}

#[test]
fn a_target_refuses_a_gap_and_a_directory_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let store = open(&path);
    insert(&store, 0..10);
    assert!(RestoreTarget::create(&path).is_err());
    let full = all(&store, BackupRequest::default());
    let log = full.iter().find(|one| one.get_str("t") == Some("log"));
    let log = log.unwrap();
    let (from, to) = (number(log, "from"), number(log, "to"));
    let groups = log.get_binary("bytes").unwrap();
    let mut target = RestoreTarget::create(&folder.path().join("new")).unwrap();
    target.log(from, to, groups).unwrap();
    // The target skips groups of the log that it has.
    target.log(from, to, groups).unwrap();
    assert_eq!(target.log_end(), Some(to));
    assert!(target.log(to + 1, to + 2, groups).is_err());
    assert_eq!(after(groups, from), Some(groups));
    assert_eq!(after(groups, from + 1), None);
    assert_eq!(after(b"no groups", from), None);
    target.discard();
    store.engine().close().unwrap();
}

#[test]
fn a_copy_into_a_directory_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("db"));
    insert(&store, 0..100);
    let path = folder.path().join("copy");
    let rate = Arc::default();
    let context = OpContext::new();
    context
        .killed
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let stopped = store.backup_to(&path, Arc::clone(&rate)).unwrap();
    assert!(stopped.run(&context).is_err());
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    let copied = store.backup_to(&path, rate).unwrap();
    copied.run(&OpContext::new()).unwrap();
    check(&path, 100);
    store.engine().close().unwrap();
}
