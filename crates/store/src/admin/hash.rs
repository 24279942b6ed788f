//! `dbHash`: one hash for each collection, by which two servers can be compared.

use std::ops::Bound;

use frond_bson::doc;
use frond_query::Md5;

use crate::catalog::Uuid;
use crate::find::FindRequest;
use crate::store::DocumentStore;
use frond_storage::context::OpContext;
use frond_storage::error::Result;
use frond_storage::keyspace::Direction;
use frond_storage::namespace::{Namespace, check_database_name};
use frond_storage::options::NaturalOrder;

/// The hashes of a database.
#[derive(Clone, Debug, Default)]
pub struct DatabaseHash {
    /// The hash of each collection, by name.
    pub collections: Vec<CollectionHash>,
    /// The hash of all of them.
    pub md5: String,
}

/// A collection and its hash.
#[derive(Clone, Debug)]
pub struct CollectionHash {
    /// Its name without the database.
    pub name: String,
    /// The MD5 of its documents, in hexadecimal digits. Documents are in the order of `_id`; those of a capped
    /// collection and a time series are in the order of insertion.
    pub md5: String,
    /// Whether it is capped.
    pub capped: bool,
    pub uuid: Uuid,
}

impl DocumentStore {
    /// Hashes the documents of a database's collections, or of those in `chosen`, if given. Views and system
    /// collections are left out.
    ///
    /// # Errors
    /// `InvalidNamespace` (73), the limits of the context, errors of the engine.
    pub fn hash_database(
        &self,
        db: &str,
        chosen: Option<&[&str]>,
        context: &OpContext,
    ) -> Result<DatabaseHash> {
        check_database_name(db)?;
        let collections = self.catalog().view().database(db);
        let mut hashes = DatabaseHash::default();
        let mut all = Md5::default();
        for collection in collections {
            let name = collection.ns.coll();
            let is_chosen = chosen.is_none_or(|chosen| chosen.contains(&name));
            if !is_chosen || (name.starts_with("system.") && name != "system.js") {
                continue;
            }
            let Some(md5) = self.hash_collection(&collection.ns, context)? else {
                continue;
            };
            for part in [name.as_bytes(), &[0], md5.as_bytes(), &[0]] {
                all.add(part);
            }
            hashes.collections.push(CollectionHash {
                name: name.to_owned(),
                md5,
                capped: collection.settings.capped.is_some(),
                uuid: collection.uuid,
            });
        }
        hashes.md5 = all.hex();
        Ok(hashes)
    }

    /// `None` if the collection is gone.
    fn hash_collection(&self, ns: &Namespace, context: &OpContext) -> Result<Option<String>> {
        let Some((collection, snapshot)) = self.catalog().read(ns)? else {
            return Ok(None);
        };
        let mut md5 = Md5::default();
        if collection.settings.natural_order == Some(NaturalOrder::Insertion) {
            // Two servers may have received the same documents in different orders.
            let by_id = doc! {"_id": 1};
            let request = FindRequest {
                sort: Some(&by_id),
                ..FindRequest::default()
            };
            let mut documents = self.find_in_collection(ns, &request, context)?;
            while let Some(doc) = documents.next()? {
                md5.add(doc.as_bytes());
            }
            return Ok(Some(md5.hex()));
        }
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = snapshot.cursor(collection.primary, low, high, Direction::Forward)?;
        let mut context = context.clone();
        let reader = collection.document_reader(&snapshot);
        while let Some((key, stored)) = cursor.next()? {
            context.step()?;
            md5.add(reader.whole(key, stored)?.as_bytes());
        }
        Ok(Some(md5.hex()))
    }
}
