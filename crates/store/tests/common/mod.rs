//! Shared by the integration tests: a store in a directory of its own.
#![allow(clippy::unwrap_used, dead_code)]

pub mod disk;
#[path = "../../../../tests/support/waiting.rs"]
pub mod waiting;

use std::ops::Bound;

use frond_bson::{Doc, DocBuf};
use frond_store::keyspace::{CATALOG_TREE, ClusterOptions, Direction, WriteSet};
use frond_store::{
    DocumentStore, Durability, EngineOptions, FindRequest, InsertOptions, InsertOutcome, Namespace,
    OpContext, OplogSettings, StoreOptions,
};

pub struct Fixture {
    pub store: DocumentStore,
    directory: tempfile::TempDir,
}

pub const INSERT: InsertOptions = InsertOptions {
    ordered: true,
    durability: Durability::Logged,
    bypass_validation: false,
    keep_empty_timestamps: false,
};

pub const OPLOG: OplogSettings = OplogSettings {
    bytes_max: 64 << 20,
    min_retention_hours: 0.0,
};

/// With `FROND_TEST_STORE_PD`: the TiKV cluster with this PD, and in it the prefix of a fixture's keys.
pub fn cluster(directory: &std::path::Path) -> Option<ClusterOptions> {
    let pd = std::env::var("FROND_TEST_STORE_PD").ok()?;
    Some(ClusterOptions {
        key_prefix: format!("test{}/", directory.display()).into_bytes(),
        client_bytes: 1 << 30,
        ..ClusterOptions::new(vec![pd])
    })
}

/// With `FROND_TEST_STORE_PD` the stores of all fixtures are in a TiKV cluster.
fn open(directory: &std::path::Path) -> DocumentStore {
    if let Some(cluster) = cluster(directory) {
        return DocumentStore::open_cluster(cluster, StoreOptions::default()).unwrap();
    }
    let mut options = EngineOptions::new(directory);
    // Only the limits of each operation matter.
    options.client_bytes = Some(1 << 30);
    open_with(options)
}

pub fn open_with(mut options: EngineOptions) -> DocumentStore {
    options.cache_bytes = 32 << 20;
    DocumentStore::open_engine(options, StoreOptions::default()).unwrap()
}

impl Fixture {
    pub fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        Fixture {
            store: open(directory.path()),
            directory,
        }
    }

    /// A store whose oplog is on.
    pub fn with_oplog() -> Fixture {
        let fixture = Fixture::new();
        fixture.store.turn_on_oplog(OPLOG).unwrap();
        fixture
    }

    /// A store with these settings of its engine, and a folder for temporary files.
    pub fn with(options: impl FnOnce(&std::path::Path) -> EngineOptions) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let temporary = directory.path().join("_tmp");
        let store = DocumentStore::open_engine(
            options(directory.path()),
            StoreOptions::with_temporary_files(temporary),
        );
        Fixture {
            store: store.unwrap(),
            directory,
        }
    }

    /// Closes the store and opens it again.
    pub fn reopen(self) -> Fixture {
        let Fixture { store, directory } = self;
        store.engine().close().unwrap();
        drop(store);
        Fixture {
            store: open(directory.path()),
            directory,
        }
    }

    pub fn insert(&self, ns: &Namespace, docs: &[DocBuf]) -> InsertOutcome {
        let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
        self.store.insert(ns, &docs, INSERT).unwrap()
    }

    pub fn find(&self, ns: &Namespace, request: &FindRequest<'_>) -> Vec<DocBuf> {
        let mut cursor = self.store.find(ns, request, &OpContext::new()).unwrap();
        let mut found = Vec::new();
        while let Some(doc) = cursor.next().unwrap() {
            found.push(doc);
        }
        found
    }

    pub fn find_all(&self, ns: &Namespace, filter: DocBuf) -> Vec<DocBuf> {
        self.find(
            ns,
            &FindRequest {
                filter: Some(&filter),
                ..FindRequest::default()
            },
        )
    }
}

pub fn ns(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

/// The number of trees.
pub fn trees(store: &DocumentStore) -> usize {
    store.engine().trees().unwrap().len()
}

/// Writes the multikey paths of all indexes as stores did before components were tracked: one bit for each field.
pub fn write_multikey_as_before_components(store: &DocumentStore) {
    change_multikey(store, |value| {
        let sets = value[1..].chunks(4).enumerate();
        let bits = sets.fold(0, |bits, (field, set)| {
            bits | u32::from(set != [0; 4]) << field
        });
        bits.to_le_bytes().to_vec()
    });
}

/// Replaces the stored multikey paths of all indexes.
pub fn overwrite_multikey(store: &DocumentStore, with: &[u8]) {
    change_multikey(store, |_| with.to_vec());
}

fn change_multikey(store: &DocumentStore, change: impl Fn(&[u8]) -> Vec<u8>) {
    const MULTIKEY: u8 = 5;
    let engine = store.engine();
    let mut batch = WriteSet::new();
    let (low, high) = (
        Bound::Included(&[MULTIKEY][..]),
        Bound::Excluded(&[MULTIKEY + 1][..]),
    );
    let snapshot = engine.snapshot();
    let mut entries = snapshot
        .cursor(CATALOG_TREE, low, high, Direction::Forward)
        .unwrap();
    while let Some((key, value)) = entries.next().unwrap() {
        batch.put(CATALOG_TREE, key, &change(value));
    }
    assert!(!batch.is_empty());
    engine.commit(batch, Durability::Synced).unwrap();
}

/// The stages, outermost first, as `SORT > FETCH > IXSCAN a_1` or `OR > [IXSCAN a_1, IXSCAN b_1]`.
pub fn outline(stage: &Doc) -> String {
    let mut out = stage.get_str("stage").unwrap().to_owned();
    if let Some(index) = stage.get_str("indexName") {
        out = format!("{out} {index}");
    }
    if let Some(inner) = stage.get_doc("inputStage") {
        out = format!("{out} > {}", outline(inner));
    }
    if let Some(branches) = stage.get_array("inputStages") {
        let all: Vec<String> = branches
            .values()
            .filter_map(|stage| stage.as_doc().map(outline))
            .collect();
        out = format!("{out} > [{}]", all.join(", "));
    }
    out
}
