//! What the integration tests share: a store in a directory of its own.
#![allow(clippy::unwrap_used, dead_code)]

pub mod disk;

use frond_bson::{Doc, DocBuf};
use frond_store::{
    DocumentStore, Durability, EngineOptions, FindRequest, InsertOptions, InsertOutcome, Namespace,
    OpContext, StoreOptions,
};

pub struct Fixture {
    pub store: DocumentStore,
    directory: tempfile::TempDir,
}

pub const INSERT: InsertOptions = InsertOptions {
    ordered: true,
    durability: Durability::Logged,
    bypass_validation: false,
};

fn open(directory: &std::path::Path) -> DocumentStore {
    open_with(EngineOptions::new(directory))
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
