//! The collection `system.profile` of a database, which only the server writes.

use frond_bson::{Doc, doc};
use frond_error::ErrorCode;

use crate::catalog::{Collection, SYSTEM_PROFILE};
use crate::store::DocumentStore;
use crate::write::insert::{InsertOptions, insert_into};
use frond_storage::error::{Result, command};
use frond_storage::keyspace::Durability;
use frond_storage::namespace::Namespace;

/// Bytes of the collection, unless a user has created it with another size.
const PROFILE_BYTES: i64 = 1 << 20;

impl DocumentStore {
    /// Creates the collection of a database, if there is none.
    ///
    /// # Errors
    /// `NamespaceExists` (48) if there is one that is not capped.
    pub fn create_profile(&self, db: &str) -> Result<()> {
        let ns = Namespace::new(db, SYSTEM_PROFILE)?;
        match self.catalog().collection(&ns) {
            Some(found) if found.settings.capped.is_none() => Err(command(
                ErrorCode::NamespaceExists,
                format!("{ns} exists but isn't capped"),
            )),
            Some(_) => Ok(()),
            None => {
                let options = doc! {"capped": true, "size": PROFILE_BYTES};
                self.catalog().create_collection(&ns, &options)?;
                Ok(())
            }
        }
    }

    /// The size of the collection of a database in bytes; `None` if there is none that is capped.
    pub fn profile_bytes(&self, db: &str) -> Option<u64> {
        let ns = Namespace::new(db, SYSTEM_PROFILE).ok()?;
        let found = self.catalog().collection(&ns)?;
        Some(found.settings.capped?.bytes)
    }

    /// Adds entries to the collection of a database, which is created if it is not there but the database is. Returns how
    /// many were added.
    ///
    /// # Errors
    /// As [`DocumentStore::create_profile`]; errors of the engine.
    pub fn insert_profile(&self, db: &str, entries: &[&Doc]) -> Result<usize> {
        let ns = Namespace::new(db, SYSTEM_PROFILE)?;
        if self.profile_bytes(db).is_none() {
            let is_of_db = |collection: &Collection| collection.ns.db() == db;
            if !self
                .catalog()
                .view()
                .iter()
                .any(|collection| is_of_db(collection))
            {
                return Ok(0);
            }
            self.create_profile(db)?;
        }
        let Some(collection) = self.catalog().collection(&ns) else {
            return Ok(0);
        };
        let options = InsertOptions {
            ordered: false,
            durability: Durability::Logged,
            bypass_validation: true,
            keep_empty_timestamps: true,
        };
        let uuid = &collection.uuid;
        let done = insert_into(self.catalog(), &ns, Some(uuid), None, entries, options)?;
        Ok(done.inserted)
    }
}
