//! Filling new indexes over existing documents, while writes go on.
//!
//! The indexes are registered first: from then on every writer keeps them up to date, and no query
//! uses them. Then the documents are read in the order of `_id`, some at a time, each part on a new
//! snapshot. The entries of a part are committed with its primary keys guarded: if a document of
//! the part was changed meanwhile, the commit fails and the part is read again. So a document that
//! a writer changes is never overtaken by entries of its old state. Documents inserted behind the
//! scan have their entries from their writers.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use frond_bson::Doc;
use frond_query::error::ErrorCode;

use super::keys::IndexKeys;
use super::{Index, entry};
use crate::catalog::{self, Catalog, Collection, CreateIndexesInfo, aborted};
use crate::error::{Error, Result};
use crate::index::spec::IndexSpec;
use crate::keyspace::{COMMIT_BYTES_MAX, COMMIT_DOCUMENTS_MAX, Direction, Durability, WriteSet};
use crate::namespace::Namespace;
use crate::write::staging::key_hash;
use crate::write::{Retry, duplicate};

/// Creates indexes.
///
/// # Errors
/// See [`crate::DocumentStore::create_indexes`].
pub fn create(
    catalog: &Catalog,
    ns: &Namespace,
    specs: Vec<IndexSpec>,
) -> Result<CreateIndexesInfo> {
    let created_collection = catalog.collection(ns).is_none();
    let uuid = catalog.ensure_collection(ns)?.uuid;
    let registered = catalog.register_indexes(ns, specs)?;
    if registered.indexes.is_empty() {
        return Ok(CreateIndexesInfo {
            before: registered.before,
            after: registered.before,
            created_collection,
        });
    }
    let filled = Build {
        catalog,
        ns: ns.clone(),
        uuid,
        indexes: &registered.indexes,
        keys: Vec::new(),
        end: None,
    }
    .run();
    match filled.and_then(|()| catalog.finish_indexes(&uuid, &registered.indexes)) {
        Ok(after) => Ok(CreateIndexesInfo {
            before: registered.before,
            after,
            created_collection,
        }),
        Err(error) => {
            catalog.abandon_indexes(&uuid, &registered.indexes)?;
            Err(match error {
                Error::Command(error) if error.code() != ErrorCode::IndexBuildAborted => {
                    let context = format!("Index build failed: {ns}");
                    let details = error.details().map(ToOwned::to_owned);
                    let error = error.context(context);
                    match details {
                        Some(details) => error.with_details(details),
                        None => error,
                    }
                    .into()
                }
                other => other,
            })
        }
    }
}

struct Build<'a> {
    catalog: &'a Catalog,
    /// The name at the start; it may change meanwhile.
    ns: Namespace,
    uuid: catalog::Uuid,
    indexes: &'a [Arc<Index>],
    /// The keys of one document in each index.
    keys: Vec<IndexKeys>,
    /// The last document that was there when the indexes were registered.
    end: Option<Vec<u8>>,
}

impl Build<'_> {
    fn run(&mut self) -> Result<()> {
        self.keys
            .resize_with(self.indexes.len(), IndexKeys::default);
        self.end = self.with_collection(|build, collection| build.last_key(collection))?;
        let mut from: Bound<Vec<u8>> = Bound::Unbounded;
        let mut retry = Retry::default();
        loop {
            // After conflicts the parts get smaller, so that each meets fewer writers.
            let documents = (COMMIT_DOCUMENTS_MAX >> retry.conflicts().min(10)).max(1);
            let part =
                self.with_collection(|build, collection| build.part(collection, &from, documents));
            match part {
                Ok(Some(last)) => {
                    from = Bound::Excluded(last);
                    retry = Retry::default();
                }
                Ok(None) => return Ok(()),
                Err(error) => retry.after(error)?,
            }
        }
    }

    /// Runs one part while the collection cannot be dropped.
    fn with_collection<R>(
        &mut self,
        mut part: impl FnMut(&mut Self, &Collection) -> Result<R>,
    ) -> Result<R> {
        loop {
            let ns = self.ns.clone();
            let done = self.catalog.write(&ns, |collection| {
                (collection.uuid == self.uuid).then(|| part(self, collection))
            });
            match done {
                Some(Some(result)) => return result,
                // Renamed or dropped: look for it by its identity.
                _ => self.ns = self.catalog.name_of(&self.uuid).ok_or_else(aborted)?,
            }
        }
    }

    fn last_key(&self, collection: &Collection) -> Result<Option<Vec<u8>>> {
        let snapshot = self.catalog.engine().snapshot();
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = snapshot.cursor(collection.primary, low, high, Direction::Backward)?;
        Ok(cursor.next()?.map(|(key, _)| key.to_vec()))
    }

    /// Fills in some documents behind `from`. Returns the last primary key, `None` at the end.
    fn part(
        &mut self,
        collection: &Collection,
        from: &Bound<Vec<u8>>,
        documents: usize,
    ) -> Result<Option<Vec<u8>>> {
        let is_there =
            |index: &Arc<Index>| collection.indexes.iter().any(|one| one.tree == index.tree);
        if !self.indexes.iter().all(is_there) {
            return Err(aborted());
        }
        let Some(end) = &self.end else {
            return Ok(None);
        };
        let engine = self.catalog.engine();
        let snapshot = engine.snapshot();
        let lower = match from {
            Bound::Excluded(key) => Bound::Excluded(key.as_slice()),
            _ => Bound::Unbounded,
        };
        let upper = Bound::Included(end.as_slice());
        let mut cursor = snapshot.cursor(collection.primary, lower, upper, Direction::Forward)?;
        let mut batch = WriteSet::with_snapshot(&snapshot);
        let mut multikey = vec![0; self.indexes.len()];
        let mut uniques = HashSet::new();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut last = None;
        let mut count = 0;
        'documents: while count < documents && batch.bytes() < COMMIT_BYTES_MAX {
            let Some((id, doc)) = cursor.next()? else {
                break;
            };
            for (index, keys) in self.indexes.iter().zip(&mut self.keys) {
                keys.generate(&index.spec, Doc::from_trusted(doc), id.len())?;
                if !index.spec.unique {
                    continue;
                }
                for (fields, lost) in keys.iter() {
                    if uniques.contains(&key_hash(index.tree, fields)) {
                        // Perhaps a duplicate inside of this part. The next part will see.
                        break 'documents;
                    }
                    entry::write(&index.spec, fields, id, lost, &mut key, &mut value);
                    let taken = snapshot.get(index.tree, &key)?;
                    if taken.is_some_and(|taken| !taken.starts_with(id)) {
                        return Err(duplicate::of_index(collection, index, fields));
                    }
                }
            }
            batch.guard(collection.primary, id);
            for ((index, keys), multikey) in self.indexes.iter().zip(&self.keys).zip(&mut multikey)
            {
                *multikey |= keys.multikey();
                for (fields, lost) in keys.iter() {
                    entry::write(&index.spec, fields, id, lost, &mut key, &mut value);
                    if index.spec.unique {
                        uniques.insert(key_hash(index.tree, fields));
                        batch.put_guarded(index.tree, &key, &value);
                    } else {
                        batch.put(index.tree, &key, &value);
                    }
                }
            }
            last = Some(id.to_vec());
            count += 1;
        }
        if last.is_none() {
            return Ok(None);
        }
        for (index, bits) in self.indexes.iter().zip(&multikey) {
            if !index.is_multikey_stored(*bits) {
                index.add_multikey(*bits);
                catalog::add_multikey(&mut batch, &self.uuid, index, *bits);
            }
        }
        engine.commit(batch, Durability::Logged)?;
        for (index, bits) in self.indexes.iter().zip(multikey) {
            index.stored_multikey(bits);
        }
        Ok(last)
    }
}
