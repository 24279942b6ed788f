//! Documents as they were before a change.
//!
//! | key | value |
//! | --- | --- |
//! | timestamp of the entry, position of the operation in it (4 bytes, big-endian), UUID of the collection | time in milliseconds since 1970 (8 bytes), document |
//!
//! The position is 0 unless the entry is a transaction.

use std::ops::Bound;

use frond_bson::{Doc, DocBuf, Timestamp};

use super::{Oplog, timestamp_of_key};
use frond_storage::error::{Result, corrupt};
use frond_storage::keyspace::{Direction, Durability, TreeId, WriteSet};

/// The most pre-images that one step of expiry looks at.
const STEP_MAX: usize = 1000;

/// The key behind the timestamp.
fn suffix(position: u32, uuid: &[u8; 16]) -> [u8; 20] {
    let mut suffix = [0; 20];
    suffix[..4].copy_from_slice(&position.to_be_bytes());
    suffix[4..].copy_from_slice(uuid);
    suffix
}

/// A document before a change, for the commit of its entry.
pub struct PreImage<'a> {
    /// The number of the entry in its commit.
    pub offset: u32,
    /// The position of the operation in the entry.
    pub position: u32,
    pub uuid: &'a [u8; 16],
    /// The time in milliseconds since 1970.
    pub wall_ms: i64,
    pub doc: &'a Doc,
}

impl PreImage<'_> {
    /// Adds it to the commit. `buffer` is scratch space.
    pub fn put(&self, batch: &mut WriteSet, tree: TreeId, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(&self.wall_ms.to_le_bytes());
        buffer.extend_from_slice(self.doc.as_bytes());
        let suffix = suffix(self.position, self.uuid);
        batch.put_stamped(tree, self.offset, &suffix, buffer);
    }
}

fn split(value: &[u8]) -> Option<(i64, &Doc)> {
    let (wall_ms, doc) = value.split_first_chunk()?;
    Some((i64::from_le_bytes(*wall_ms), Doc::validate(doc).ok()?))
}

impl Oplog {
    /// The document before a change, which is described by the entry with the timestamp `ts` and by the operation at `position` in
    /// it: 0 unless the entry is a transaction. `None` if it was not stored or has expired.
    ///
    /// # Errors
    /// `DataCorruptionDetected` (301), errors of the engine.
    pub fn pre_image(&self, ts: u64, position: u32, uuid: &[u8; 16]) -> Result<Option<DocBuf>> {
        let Some(trees) = self.trees() else {
            return Ok(None);
        };
        let mut key = ts.to_be_bytes().to_vec();
        key.extend_from_slice(&suffix(position, uuid));
        let snapshot = self.engine.snapshot();
        if !snapshot.has_tree(trees.pre_images)? {
            return Ok(None);
        }
        let Some(value) = snapshot.get(trees.pre_images, &key)? else {
            return Ok(None);
        };
        let (_, doc) = split(&value).ok_or_else(|| corrupt("a pre-image"))?;
        Ok(Some(doc.to_owned()))
    }

    /// A step of removing pre-images, for a task in the background: those older than `expire_after_seconds`, or those whose
    /// entries are gone if there is no such limit. Returns how many were removed, and whether there may be more.
    ///
    /// # Errors
    /// As [`Oplog::pre_image`].
    pub fn expire_pre_images(
        &self,
        expire_after_seconds: Option<i64>,
        now_ms: i64,
    ) -> Result<(u64, bool)> {
        let _shared = self.maintenance.read();
        let Some(trees) = self.trees() else {
            return Ok((0, false));
        };
        let snapshot = self.engine.snapshot();
        let before_ms =
            expire_after_seconds.map(|seconds| now_ms.saturating_sub(seconds.saturating_mul(1000)));
        let first = self.first();
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = snapshot.cursor(trees.pre_images, low, high, Direction::Forward)?;
        let (mut removed, mut last) = (0, Vec::new());
        let mut more = false;
        while let Some((key, value)) = cursor.next()? {
            let wrong = || corrupt("a pre-image");
            let is_expired = match before_ms {
                Some(before_ms) => split(value).ok_or_else(wrong)?.0 <= before_ms,
                None => Timestamp::from_u64(timestamp_of_key(key).ok_or_else(wrong)?) < first,
            };
            if !is_expired {
                break;
            }
            if removed as usize >= STEP_MAX {
                more = true;
                break;
            }
            removed += 1;
            last.clear();
            last.extend_from_slice(key);
        }
        if removed > 0 {
            // The first key behind the last one.
            last.push(0);
            let mut batch = WriteSet::new();
            batch.set_frees_space();
            batch.delete_range(trees.pre_images, &[], Some(&last));
            self.engine.commit(batch, Durability::Logged)?;
        }
        Ok((removed, more))
    }
}
