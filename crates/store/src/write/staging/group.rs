//! Several stagings, of different collections, that become one commit.

use parking_lot::MutexGuard;

use super::{Buffers, Staging};
use crate::catalog::{self, Catalog, Collection, Insertion};
use crate::oplog::Log;
use frond_storage::error::Result;
use frond_storage::keyspace::{Snapshot, WriteSet};
use frond_storage::merge::Counts;

/// The commit of documents of several collections. All stagings have the same snapshot.
pub(crate) struct Group<'a> {
    catalog: &'a Catalog,
    batch: Option<WriteSet>,
    frees_space: bool,
    staged: Vec<Staging<'a>>,
}

impl<'a> Staging<'a> {
    /// Begins a part of a group, for documents that were checked elsewhere. The caller holds the collection's gate, and is
    /// the only one that inserts into it.
    pub(crate) fn in_group(
        catalog: &'a Catalog,
        collection: &'a Collection,
        snapshot: Snapshot,
        buffers: &'a mut Buffers,
    ) -> Staging<'a> {
        let insertion: Option<MutexGuard<'a, Insertion>> = collection
            .settings
            .capped
            .map(|_| collection.lock_insertion());
        Staging {
            insertion,
            bypass_validation: true,
            ..Staging::new(catalog, collection, snapshot, buffers)
        }
    }
}

impl<'a> Group<'a> {
    pub fn new(catalog: &'a Catalog) -> Group<'a> {
        Group {
            catalog,
            batch: None,
            frees_space: true,
            staged: Vec::new(),
        }
    }

    /// Adds what was staged in a collection.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn add(&mut self, mut staging: Staging<'a>) -> Result<()> {
        if staging.documents == 0 {
            return Ok(());
        }
        staging.remove_oldest()?;
        if staging.counts != Counts::default() {
            let uuid = &staging.collection.uuid;
            catalog::change_counter(&mut staging.batch, uuid, staging.counts);
        }
        self.frees_space &= staging.removes_only && !staging.keeps_pre_images();
        let batch = std::mem::take(&mut staging.batch);
        match &mut self.batch {
            None => self.batch = Some(batch),
            Some(all) => all.append(&batch),
        }
        self.staged.push(staging);
        Ok(())
    }

    /// Commits everything with the entries of a log. Returns the number of documents.
    ///
    /// # Errors
    /// As [`Staging::commit`].
    pub fn commit(self, log: &Log) -> Result<usize> {
        let mut batch = self.batch.unwrap_or_default();
        if self.frees_space && !self.staged.is_empty() {
            batch.set_frees_space();
        }
        let committed = self.catalog.commit_logged(batch, Some(log));
        for staging in &self.staged {
            let collection = staging.collection;
            if collection.hooks().watches(&collection.ns) {
                collection.hooks().changed();
            }
        }
        committed?;
        let mut documents = 0;
        for staging in self.staged {
            documents += staging.documents;
            staging.collection.count(staging.counts);
            if let Some(mut insertion) = staging.insertion {
                if !staging.removed_to.is_empty() {
                    insertion.first = staging.removed_to;
                }
                staging.collection.tail().notify();
            }
            for (index, paths) in &staging.multikey {
                index.stored_multikey(paths);
            }
        }
        Ok(documents)
    }
}
