//! The entries of a commit's documents in the indexes.

use std::ops::Bound;

use frond_bson::Doc;

use super::{Buffers, Change, HashSet64, Staged, Staging};
use crate::catalog;
use crate::write::duplicate;
use frond_storage::error::Result;
use frond_storage::index::keys::IndexKeys;
use frond_storage::index::{Index, entry, side};
use frond_storage::keyspace::{Direction, Snapshot, WriteSet, after_prefix, key_hash};

impl Staging<'_> {
    /// Generates the keys of `new` in every index that can change, and checks the unique ones.
    pub(in crate::write) fn generate(
        &mut self,
        new: &Doc,
        id: &[u8],
        change: Option<Change<'_>>,
    ) -> Result<Staged> {
        let collection = self.collection;
        for (position, index) in collection.indexes.iter().enumerate() {
            let Buffers {
                new_keys,
                old_keys,
                key,
                ..
            } = &mut *self.buffers;
            let Some(keys) = new_keys.get_mut(position) else {
                continue;
            };
            if !is_affected(index, change) {
                keys.clear();
                continue;
            }
            keys.generate(&index.spec, new, id.len())?;
            // While a unique index is built, its set of keys is incomplete.
            let is_unique = if index.spec.unique {
                index.side().is_none()
            } else {
                index.spec.prepare_unique && index.ready
            };
            if !is_unique {
                continue;
            }
            old_keys.clear();
            if let Some(change) = change {
                generate_old(old_keys, index, change.old, id.len())?;
            }
            // One document's own keys are distinct, so they cannot collide with each other.
            let mut staged = Staged::Done;
            for (fields, lost) in keys.iter() {
                if old_keys.contains(fields) {
                    continue;
                }
                unique_key(index, fields, id, key);
                if self.uniques.contains(&key_hash(index.tree, key)) {
                    staged = Staged::NextCommit;
                } else if is_taken(&self.snapshot, index, key)? {
                    return Err(duplicate::of_index(collection, index, fields, Some(lost)));
                }
            }
            if staged == Staged::NextCommit {
                return Ok(staged);
            }
        }
        Ok(Staged::Done)
    }

    /// Puts the entries of one index that are new, deletes those that are gone.
    pub(in crate::write) fn put_entries(
        &mut self,
        position: usize,
        id: &[u8],
        new: &Doc,
        change: Option<Change<'_>>,
    ) {
        let Some(index) = self.collection.indexes.get(position) else {
            return;
        };
        let Buffers {
            new_keys,
            old_keys,
            key,
            value,
        } = &mut *self.buffers;
        let Some(new_keys) = new_keys.get(position) else {
            return;
        };
        if !is_affected(index, change) {
            return;
        }
        old_keys.clear();
        if let Some(change) = change {
            // The keys were generated when the document was stored, so this cannot fail.
            let generated = generate_old(old_keys, index, change.old, id.len());
            debug_assert!(generated.is_ok());
        }
        for (fields, _) in old_keys.missing_in(new_keys) {
            self.keys.deleted += 1;
            let buffers = (&mut *key, &mut *value);
            delete_entry(
                &mut self.batch,
                &mut self.uniques,
                index,
                buffers,
                fields,
                id,
            );
        }
        if index.spec.clustering {
            // The document is in every entry, so every entry is written again.
            old_keys.clear();
        }
        for (fields, lost) in new_keys.missing_in(old_keys) {
            self.keys.inserted += 1;
            if index.is_plain() {
                self.batch.put_joined(index.tree, [fields, id], lost);
                continue;
            }
            if let Some(side) = index.side() {
                side::write(&index.spec, fields, id, Some((lost, new)), key, value);
                self.batch.put(side, key, value);
                continue;
            }
            if index.spec.prepare_unique {
                // Another writer of the same fields writes another key. The engine detects their conflict at this key,
                // which holds nothing.
                unique_key(index, fields, id, key);
                self.uniques.insert(key_hash(index.tree, key));
                self.batch.delete_guarded(index.tree, key);
            }
            entry::write(&index.spec, fields, id, lost, new, key, value);
            if index.spec.unique {
                self.uniques.insert(key_hash(index.tree, key));
                self.batch.put_guarded(index.tree, key, value);
            } else {
                self.batch.put(index.tree, key, value);
            }
        }
        let paths = new_keys.multikey();
        if !index.is_multikey_stored(paths) {
            if self.announces {
                self.multikey.push((index.clone(), paths.clone()));
                return;
            }
            index.add_multikey(paths);
            catalog::add_multikey(&mut self.batch, &self.collection.uuid, index, paths);
            self.multikey.push((index.clone(), paths.clone()));
        }
    }

    /// Deletes all entries of a document.
    ///
    /// # Errors
    /// Errors of the index keys: none that the insert did not have.
    pub(super) fn remove_entries(&mut self, id: &[u8], old: &Doc) -> Result<()> {
        for index in &self.collection.indexes {
            let Buffers {
                old_keys,
                key,
                value,
                ..
            } = &mut *self.buffers;
            generate_old(old_keys, index, old, id.len())?;
            for (fields, _) in old_keys.iter() {
                self.keys.deleted += 1;
                let buffers = (&mut *key, &mut *value);
                delete_entry(
                    &mut self.batch,
                    &mut self.uniques,
                    index,
                    buffers,
                    fields,
                    id,
                );
            }
        }
        Ok(())
    }
}

/// The key at which documents with the same fields meet, in an index that is unique or prepares to be.
fn unique_key(index: &Index, fields: &[u8], id: &[u8], out: &mut Vec<u8>) {
    out.clear();
    index.spec.records.write_prefix(id, out);
    out.extend_from_slice(fields);
}

/// Whether a stored document has this [`unique_key`].
fn is_taken(snapshot: &Snapshot, index: &Index, key: &[u8]) -> Result<bool> {
    if index.spec.unique {
        return Ok(snapshot.contains(index.tree, key)?);
    }
    let end = after_prefix(key);
    let mut others = snapshot.cursor(
        index.tree,
        Bound::Included(key),
        end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        Direction::Forward,
    )?;
    Ok(others.next()?.is_some())
}

fn delete_entry(
    batch: &mut WriteSet,
    uniques: &mut HashSet64,
    index: &Index,
    (key, value): (&mut Vec<u8>, &mut Vec<u8>),
    fields: &[u8],
    id: &[u8],
) {
    if let Some(side) = index.side() {
        side::write(&index.spec, fields, id, None, key, value);
        batch.put(side, key, value);
        return;
    }
    entry::write_key(&index.spec, fields, id, key);
    if index.spec.unique {
        uniques.insert(key_hash(index.tree, key));
        batch.delete_guarded(index.tree, key);
    } else {
        batch.delete(index.tree, key);
    }
}

/// The keys of a stored document. A document that an index under construction has not reached may be invalid for
/// that index: then it has no entries.
fn generate_old(keys: &mut IndexKeys, index: &Index, old: &Doc, id_bytes: usize) -> Result<()> {
    match keys.generate(&index.spec, old, id_bytes) {
        Err(_) if !index.ready => {
            keys.clear();
            Ok(())
        }
        generated => Ok(generated?),
    }
}

/// Whether a change can alter a document's entries in an index. An insert does.
fn is_affected(index: &Index, change: Option<Change<'_>>) -> bool {
    match change {
        None => true,
        Some(change) => index.spec.is_affected(change.touches),
    }
}
