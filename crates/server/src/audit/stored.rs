//! The stored configuration: that of `setAuditConfig`, which all members of a replica set share.

use frond_bson::{Doc, DocBuf, Value};
use frond_error::Result;
use frond_store::DocumentStore;

use super::{Audit, AuditConfig};
use crate::internal_collections::{find_one, replace_one};

/// Where it is stored, as in MongoDB.
const COLLECTION: (&str, &str) = ("config", "settings");

const ID: &str = "audit";

impl AuditConfig {
    /// Stores it durably in `config.settings`.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn store(&self, store: &DocumentStore) -> Result<()> {
        let mut document = DocBuf::new();
        document.push("_id", ID);
        document.push_all(&self.to_doc());
        replace_one(store, COLLECTION, ID, &document)
    }

    /// The stored configuration; none if there is none that can be read.
    fn load(store: &DocumentStore) -> Result<Option<AuditConfig>> {
        let filter = frond_bson::doc! {"_id": ID};
        let Some(stored) = find_one(store, COLLECTION, filter)? else {
            return Ok(None);
        };
        let Some(Value::ObjectId(generation)) = stored.get("generation") else {
            return Ok(None);
        };
        let filter = stored.get_doc("filter").unwrap_or(Doc::empty());
        let success = stored
            .get_bool("auditAuthorizationSuccess")
            .unwrap_or(false);
        AuditConfig::new(Some(generation), filter, success).map(Some)
    }
}

impl Audit {
    /// Takes over the stored configuration, if it decides and is another one.
    ///
    /// # Errors
    /// Errors of the store, and of a stored filter that is no query.
    pub fn reload(&self, store: &DocumentStore) -> Result<()> {
        if !self.is_runtime {
            return Ok(());
        }
        if let Some(stored) = AuditConfig::load(store)?
            && stored.generation != self.config().generation
        {
            self.configure(stored);
        }
        Ok(())
    }
}
