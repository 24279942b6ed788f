//! `local.oplog.rs`: the oplog as a collection that is read and never written.
//!
//! It is not in a view of the catalog. Whoever asks for it by its name gets a definition whose tree is that of the oplog; the
//! plans of its queries are made and run by modules of their own (`plan/oplog.rs`, `exec/oplog_scan.rs`).

use std::sync::Arc;

use frond_bson::doc;
use frond_error::ErrorCode;

use super::{Catalog, CatalogState, Collection, PlanCache, Shared, Uuid};
use crate::oplog::Oplog;
use frond_storage::error::{Result, command};
use frond_storage::namespace::Namespace;
use frond_storage::options::CollectionOptions;

/// The name of the collection.
const OPLOG: &str = "local.oplog.rs";

/// Its UUID, the same in every store.
const UUID: Uuid = *b"\xf2\x0b\xd0\x10\x0b\x1e\x4f\x0c\x9a\x57oplog\x01";

impl CatalogState {
    /// The definition of the oplog's collection, if this is its name and it is on.
    pub(super) fn oplog_collection(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        if ns.as_str() != OPLOG {
            return None;
        }
        let primary = self.oplog.tree()?;
        let bytes_max = self.oplog.settings().bytes_max;
        let size = i64::try_from(bytes_max).unwrap_or(i64::MAX);
        let known = self.oplog_collection.load_full();
        let is_current = |known: &Arc<Collection>| {
            known.primary == primary && known.options.get_i64("size") == Some(size)
        };
        if let Some(known) = known.filter(is_current) {
            return Some(known);
        }
        let mut options = doc! {"capped": true, "size": size};
        let settings = CollectionOptions::parse(&options).ok()?;
        // As MongoDB shows it; not an option that can be given.
        options.push("autoIndexId", false);
        let collection = Arc::new(Collection {
            ns: ns.clone(),
            uuid: UUID,
            options,
            settings: Arc::new(settings),
            primary,
            primary_key: None,
            segments: None,
            indexes: Vec::new(),
            changes: None,
            plans: PlanCache::default(),
            version: 0,
            shared: Arc::new(Shared {
                hooks: self.hooks.clone(),
                ..Shared::default()
            }),
            oplog: Some(self.oplog.clone()),
        });
        self.oplog_collection.store(Some(collection.clone()));
        Some(collection)
    }
}

impl Collection {
    /// The oplog, if this is its collection. What lies in the tree are not documents then.
    pub(crate) fn oplog(&self) -> Option<&Arc<Oplog>> {
        self.oplog.as_ref()
    }
}

impl Catalog {
    /// The oplog's collection, while it is on.
    pub(crate) fn oplog_collection(&self) -> Option<Arc<Collection>> {
        let ns = Namespace::parse(OPLOG).ok()?;
        self.state.oplog_collection(&ns)
    }

    /// The time up to which entries of the oplog are durable. A snapshot that is taken later has them.
    pub(crate) fn oplog_durable(&self) -> u64 {
        self.state.oplog.durable()
    }

    /// Refuses writes of documents to the oplog, and its name for new collections and indexes.
    ///
    /// # Errors
    /// `InvalidNamespace` (73).
    pub(super) fn check_no_oplog(&self, ns: &Namespace) -> Result<()> {
        match self.state.oplog_collection(ns) {
            None => Ok(()),
            Some(_) => Err(command(
                ErrorCode::InvalidNamespace,
                format!("cannot write to {ns}"),
            )),
        }
    }

    /// Refuses to drop the oplog.
    ///
    /// # Errors
    /// 5255000.
    pub(super) fn check_oplog_stays(&self, ns: &Namespace) -> Result<()> {
        match self.state.oplog_collection(ns) {
            None => Ok(()),
            Some(_) => Err(command(
                ErrorCode::Location(5_255_000),
                "can't drop live oplog while replicating",
            )),
        }
    }
}
