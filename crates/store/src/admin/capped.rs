//! Capped collections made from others: `convertToCapped` and `cloneCollectionAsCapped`.

use std::ops::Bound;

use frond_bson::{Doc, DocBuf, ObjectId, doc};
use frond_error::ErrorCode;

use crate::catalog::Collection;
use crate::error::{Result, command};
use crate::keyspace::{COMMIT_BYTES_MAX, COMMIT_DOCUMENTS_MAX, Direction, Durability};
use crate::namespace::Namespace;
use crate::store::DocumentStore;
use crate::write::insert::InsertOptions;

impl DocumentStore {
    /// Converts a collection to a capped one. The oldest documents beyond the size are removed, and so are its indexes,
    /// as in MongoDB.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `CommandNotSupportedOnView` (166), errors of the size.
    pub fn convert_to_capped(&self, ns: &Namespace, size: i64) -> Result<()> {
        self.catalog().existing(ns)?;
        let temporary = format!("tmp{}.convertToCapped.{}", ObjectId::new(), ns.coll());
        let temporary = Namespace::new(ns.db(), &temporary)?;
        self.create_collection(&temporary, &doc! {"capped": true, "size": size})?;
        let converted = self.catalog().replace_by(ns, &temporary, |collection| {
            self.copy_documents(collection, &temporary)
        });
        if converted.is_err() {
            // The first error is the one to report.
            let _ = self.drop_collection(&temporary);
        }
        converted
    }

    /// Copies the documents of a collection into a new capped one of the same database.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `NamespaceExists` (48), `CommandNotSupportedOnView` (166), errors of the size.
    pub fn clone_as_capped(&self, from: &Namespace, to: &Namespace, size: i64) -> Result<()> {
        let collection = self.catalog().existing(from)?;
        if self.collection_exists(to) || self.catalog().is_view(to) {
            return Err(command(
                ErrorCode::NamespaceExists,
                format!(
                    "cloneCollectionAsCapped failed - destination collection {to} already exists"
                ),
            ));
        }
        self.create_collection(to, &doc! {"capped": true, "size": size})?;
        self.copy_documents(&collection, to)
    }

    /// Copies all documents in their natural order.
    fn copy_documents(&self, from: &Collection, to: &Namespace) -> Result<()> {
        let snapshot = self.engine().snapshot();
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = snapshot.cursor(from.primary, low, high, Direction::Forward)?;
        let reader = from.document_reader(&snapshot);
        let options = InsertOptions {
            ordered: true,
            durability: Durability::Logged,
            bypass_validation: true,
            keep_empty_timestamps: true,
        };
        loop {
            let (mut docs, mut bytes): (Vec<DocBuf>, usize) = (Vec::new(), 0);
            while docs.len() < COMMIT_DOCUMENTS_MAX
                && bytes < COMMIT_BYTES_MAX
                && let Some((key, stored)) = cursor.next()?
            {
                let doc = reader.whole(key, stored)?.into_owned();
                bytes += doc.len_bytes();
                docs.push(doc);
            }
            if docs.is_empty() {
                return Ok(());
            }
            let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
            let outcome = self.insert(to, &docs, options)?;
            if let Some(failed) = outcome.errors.into_iter().next() {
                return Err(failed.error);
            }
        }
    }
}
