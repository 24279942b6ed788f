//! The layout of a document in the keyspace: whole, or in parts if it is large, so that an update reads and writes little
//! of it. Above this module a reader gets a document ([`load`]) and a writer stages one ([`write`]); neither sees
//! the layout.
//!
//! A document of many fields is **shredded**. Its record becomes a [`header`]: some numbers, a table of containers,
//! and the **skeleton**, which is the document with its large sub-documents taken out. Each of these is a
//! **container**. The elements of a container lie in **segments** in a second tree of the collection, keyed by the
//! record's key, the container and a number computed from the field's name: some bits of its hash, or of the number
//! at its end. Each element has an **ordinal**, which restores the order of the fields. Other large values are taken
//! out too, each whole.
//!
//! | file | idea |
//! | --- | --- |
//! | [`header`] | what the record of a shredded document holds |
//! | [`shred`] | taking a document apart |
//! | [`segment`] | keys and contents of segments |
//! | [`load`] | reading the document, or the parts of it that the reader requires |
//! | [`field_set`] | which parts these are |
//! | [`diff`] | what an update changed, as paths |
//! | [`message`] | changes as messages that the engine keeps, combines and applies |
//! | [`write`] | staging documents, and their changes, in a write set |
//! | [`edit`] | changing a value at a path within bytes |
//! | [`fast_update`] | updates of whole documents as messages that read nothing |
//!
//! An update is applied to the parts that it, the filter and the indexes require. Its changes are sent as **path
//! messages** to the header and to the segments: the same bytes in the log and in the trees.
//!
//! Adding an integer to a field of a container that holds nothing but integers, none of them near its bounds,
//! cannot fail and always changes the document. Such an addition is **blind**: its segment is not read, so whether the
//! field was there before is unknown. The header counts the bytes that blind additions may have added as slack, until
//! the document is rewritten.
//!
//! (A directory of keys inside one large value would need the value to be read and written for each update. One key
//! for each field would make an insertion 20,000 messages long. Segments in the primary tree itself would have saved
//! a look-up for whole documents, and would have cost every scan of headers, and every other user of that tree.)

mod diff;
mod edit;
pub mod fast_update;
pub mod field_set;
mod header;
pub mod load;
pub(crate) mod message;
mod segment;
mod shred;
pub mod write;

use std::ops::Bound;

use crate::error::Result;
use crate::keyspace::{Direction, Snapshot, TreeId};
use header::Header;
pub use header::{counted_bytes, is_header as is_in_parts, may_have_bytes};

/// Which documents are shredded, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeDocuments {
    /// Documents of fewer bytes are stored whole. `usize::MAX` shreds none.
    pub threshold_bytes: usize,
    /// The target size of a segment when a document is shredded. Sub-documents and other values of at least four
    /// times this size are taken out.
    pub segment_bytes: usize,
}

impl LargeDocuments {
    /// No document is shredded.
    pub const NEVER: LargeDocuments = LargeDocuments {
        threshold_bytes: usize::MAX,
        segment_bytes: 4096,
    };

    /// Sub-documents and other values of at least this size are taken out.
    pub(crate) fn part_bytes(self) -> usize {
        self.segment_bytes.saturating_mul(4)
    }
}

impl Default for LargeDocuments {
    fn default() -> LargeDocuments {
        LargeDocuments {
            threshold_bytes: 32 * 1024,
            segment_bytes: 4096,
        }
    }
}

/// Counts the segments of a collection that belong to none of its documents.
///
/// # Errors
/// Errors of the engine.
pub fn orphan_segments(snapshot: &Snapshot, primary: TreeId, segments: TreeId) -> Result<u64> {
    let (low, high) = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = snapshot.cursor(segments, low, high, Direction::Forward)?;
    let mut orphans = 0;
    let mut record = Vec::new();
    let mut header: Option<Header> = None;
    while let Some((key, _)) = cursor.next()? {
        let (prefix, _) = key.split_at(key.len().saturating_sub(segment::PLACE_BYTES));
        if header.is_none() || prefix != record {
            record.clear();
            record.extend_from_slice(prefix);
            let stored = snapshot.get(primary, prefix)?;
            header = stored.and_then(|stored| Some(Header::read(&stored)?.0));
        }
        let owner = header.as_ref().and_then(|header| {
            let (container, number) = segment::split_key(&record, key)?;
            let container = header.container(container)?;
            (u32::from(number) < container.segments()).then_some(())
        });
        orphans += u64::from(owner.is_none());
    }
    Ok(orphans)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
