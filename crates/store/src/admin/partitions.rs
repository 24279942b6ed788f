//! Partitions as commands change and show them.

use frond_bson::{Doc, DocBuf};

use crate::catalog::PartitionSelector;
use crate::store::DocumentStore;
use frond_storage::error::Result;
use frond_storage::namespace::Namespace;

impl DocumentStore {
    /// The partitions of a collection, in the order of their keys.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `IllegalOperation` (20) if there are no partitions.
    pub fn partitions(&self, ns: &Namespace) -> Result<Vec<DocBuf>> {
        self.catalog().partition_info(ns)
    }

    /// Ends the last partition with `max`, or with the greatest value that it contains, and begins the next one. Returns the number
    /// of the new one.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26); `IllegalOperation` (20) if partitions are not added by commands, or the last one is empty;
    /// `BadValue` (2) if `max` is not above the other bounds, or below a document.
    pub fn add_partition(&self, ns: &Namespace, max: Option<&Doc>) -> Result<i64> {
        self.catalog().add_partition(ns, max)
    }

    /// Drops partitions with their documents. Returns the number of partitions and of documents.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26); `IllegalOperation` (20) if there are no partitions; `BadValue` (2) if the selector names none;
    /// `IndexBuildAlreadyInProgress` (285) while an index is built.
    pub fn drop_partitions(
        &self,
        ns: &Namespace,
        which: &PartitionSelector,
    ) -> Result<(usize, i64)> {
        let dropped = self.catalog().drop_partitions(ns, which)?;
        let documents = dropped.iter().map(|(_, counts)| counts.documents).sum();
        Ok((dropped.len(), documents))
    }
}
