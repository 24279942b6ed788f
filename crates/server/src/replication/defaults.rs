//! The read and write concern of commands that have none, as `setDefaultRWConcern` stores them.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::DocumentStore;
use parking_lot::{RwLock, RwLockUpgradableReadGuard};

use crate::host::clock::now_ms;
use crate::internal_collections::{find_one, replace_one};

/// Where they are stored.
const COLLECTION: (&str, &str) = ("config", "settings");
const ID: &str = "ReadWriteConcernDefaults";

/// The defaults. A set of one has `majority` until another write concern is set, as in MongoDB.
pub struct Defaults {
    /// The stored document; empty if none was ever set.
    stored: RwLock<DocBuf>,
    /// When it was read or written.
    updated_ms: RwLock<i64>,
}

impl Defaults {
    /// Those of a store.
    pub(super) fn load(store: &DocumentStore) -> Result<Defaults> {
        let stored = find_one(store, COLLECTION, doc! {"_id": ID})?;
        Ok(Defaults {
            stored: RwLock::new(stored.unwrap_or_default()),
            updated_ms: RwLock::new(now_ms()),
        })
    }

    /// Reads them again: the entries of a primary may have changed them.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn reload(&self, store: &DocumentStore) -> Result<()> {
        // Held from here on, so that what `set` stores meanwhile is not replaced by what was there before.
        let known = self.stored.upgradable_read();
        let stored = find_one(store, COLLECTION, doc! {"_id": ID})?.unwrap_or_default();
        if *known != stored {
            *RwLockUpgradableReadGuard::upgrade(known) = stored;
            *self.updated_ms.write() = now_ms();
        }
        Ok(())
    }

    /// Calls `parse` with the default write concern.
    pub fn with_write_concern<T>(&self, parse: impl FnOnce(&Doc) -> T) -> T {
        let stored = self.stored.read();
        match stored.get_doc("defaultWriteConcern") {
            Some(concern) => parse(concern),
            None => parse(&implicit_write_concern()),
        }
    }

    /// The default write concern, as errors show it.
    pub fn shown_write_concern(&self) -> DocBuf {
        let stored = self.stored.read();
        let custom = stored.get_doc("defaultWriteConcern");
        let mut shown = custom.map_or_else(implicit_write_concern, Doc::to_owned);
        let provenance = if custom.is_some() {
            "customDefault"
        } else {
            "implicitDefault"
        };
        shown.push("provenance", provenance);
        shown
    }

    /// The reply of both commands.
    pub fn describe(&self) -> DocBuf {
        let stored = self.stored.read();
        let (read, write) = (
            stored.get_doc("defaultReadConcern"),
            stored.get_doc("defaultWriteConcern"),
        );
        let source = |set: bool| if set { "global" } else { "implicit" };
        let mut reply = DocBuf::new();
        match read {
            Some(read) => reply.push("defaultReadConcern", read),
            None => reply.push("defaultReadConcern", &doc! {"level": "local"}),
        }
        match write {
            Some(write) => reply.push("defaultWriteConcern", write),
            None => reply.push("defaultWriteConcern", &implicit_write_concern()),
        }
        for name in ["updateOpTime", "updateWallClockTime"] {
            if let Some(value) = stored.get(name) {
                reply.push(name, value);
            }
        }
        reply.push("defaultWriteConcernSource", source(write.is_some()));
        reply.push("defaultReadConcernSource", source(read.is_some()));
        reply.push(
            "localUpdateWallClockTime",
            Value::DateTime(*self.updated_ms.read()),
        );
        reply
    }

    /// Sets one or both. An empty read concern removes the one that was set.
    ///
    /// # Errors
    /// `IllegalOperation` (20) for an empty write concern after one was set, as in MongoDB; errors of the store.
    pub fn set(
        &self,
        store: &DocumentStore,
        read: Option<&Doc>,
        write: Option<&Doc>,
    ) -> Result<()> {
        let mut stored = self.stored.write();
        if write.is_some_and(Doc::is_empty) && stored.contains_key("defaultWriteConcern") {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                "The global default write concern cannot be unset once it is set.",
            ));
        }
        let mut next = doc! {"_id": ID};
        for (name, given) in [("defaultReadConcern", read), ("defaultWriteConcern", write)] {
            let concern = given.or_else(|| stored.get_doc(name));
            if let Some(concern) = concern.filter(|concern| !concern.is_empty()) {
                next.push(name, concern);
            }
        }
        next.push("updateOpTime", store.cluster_time().tick()?);
        let now = now_ms();
        next.push("updateWallClockTime", Value::DateTime(now));
        replace_one(store, COLLECTION, ID, &next)?;
        *stored = next;
        *self.updated_ms.write() = now;
        Ok(())
    }
}

fn implicit_write_concern() -> DocBuf {
    doc! {"w": "majority", "wtimeout": 0}
}
