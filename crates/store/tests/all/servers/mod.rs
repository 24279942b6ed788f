//! Several servers over one keyspace, as two stores over one engine: the embedded one, or with `FROND_TEST_STORE_PD` the TiKV
//! cluster with this PD, where each store has a connection of its own.
#![allow(clippy::unwrap_used)]

use crate::common;

mod builds;
mod changes;
mod leases;
mod shared_state;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use frond_bson::{Doc, DocBuf, Value};
use frond_store::{
    DeleteRequest, DocumentStore, Durability, Engine, EngineOptions, FindRequest, InsertOptions,
    Namespace, OpContext, SharedOptions, StoreOptions, UpdateRequest, merge_operator,
};

pub(crate) use common::{INSERT, ns};

/// Servers over one engine.
pub(crate) struct Servers {
    /// `None` if they are in a cluster.
    engine: Option<Engine>,
    stores: Vec<DocumentStore>,
    directory: Arc<tempfile::TempDir>,
}

impl Servers {
    fn new(count: usize) -> Servers {
        Servers::with_lease(count, Duration::from_secs(10))
    }

    fn with_lease(count: usize, lease: Duration) -> Servers {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let engine = common::cluster(directory.path()).is_none().then(|| {
            let mut options = EngineOptions::new(directory.path());
            options.cache_bytes = 32 << 20;
            options.merge = merge_operator();
            Engine::open(options).unwrap()
        });
        let mut servers = Servers {
            engine,
            stores: Vec::new(),
            directory,
        };
        for number in 1..=count {
            servers.add(&format!("127.0.0.1:{}", 28250 + number), lease);
        }
        servers
    }

    fn add(&mut self, address: &str, lease: Duration) -> &DocumentStore {
        let shared = SharedOptions {
            address: address.to_owned(),
            lease,
            ..SharedOptions::default()
        };
        let options = StoreOptions::default().sharing(shared);
        let store = match &self.engine {
            Some(engine) => DocumentStore::open(engine.clone(), options).unwrap(),
            None => {
                let cluster = common::cluster(self.directory.path()).unwrap();
                DocumentStore::open_cluster(cluster, options).unwrap()
            }
        };
        self.stores.push(store);
        self.stores.last().unwrap()
    }

    fn are_in_a_cluster(&self) -> bool {
        self.engine.is_none()
    }

    fn one(&self) -> &DocumentStore {
        &self.stores[0]
    }

    fn two(&self) -> &DocumentStore {
        &self.stores[1]
    }
}

pub(crate) fn insert(store: &DocumentStore, ns: &Namespace, docs: &[DocBuf]) -> usize {
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    let options = InsertOptions {
        ordered: false,
        ..INSERT
    };
    store.insert(ns, &docs, options).unwrap().inserted
}

pub(crate) fn update(store: &DocumentStore, ns: &Namespace, filter: &Doc, change: &Doc) -> bool {
    let request = UpdateRequest::new(filter, Value::Document(change));
    store
        .update(ns, &request, Durability::Logged, &OpContext::new())
        .is_ok()
}

/// Deletes documents; a collection that is not there has none.
pub(crate) fn delete(store: &DocumentStore, ns: &Namespace, filter: &Doc) {
    let request = DeleteRequest {
        collation: None,
        filter,
        limit_one: false,
        hint: None,
        variables: None,
    };
    store
        .delete(ns, &request, Durability::Logged, &OpContext::new())
        .unwrap();
}

pub(crate) fn find(store: &DocumentStore, ns: &Namespace, filter: &Doc) -> Vec<DocBuf> {
    let request = FindRequest {
        filter: Some(filter),
        ..FindRequest::default()
    };
    let mut cursor = store.find(ns, &request, &OpContext::new()).unwrap();
    let mut found = Vec::new();
    while let Some(doc) = cursor.next().unwrap() {
        found.push(doc);
    }
    found
}

/// Checks every entry of every index against the documents.
pub(crate) fn check(store: &DocumentStore, ns: &Namespace) -> u64 {
    let report = store.verify(ns).unwrap();
    assert_eq!(report.errors, Vec::<String>::new(), "{ns}");
    report.documents
}
