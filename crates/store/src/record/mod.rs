//! Large documents: stored in parts, so that an update reads and writes little of them.
//!
//! A document of many fields is **shredded**. Its record becomes a [`header`]: some numbers, a table of
//! containers, and the **skeleton**, which is the document with its large sub-documents taken out. Each of these is a
//! **container**. The elements of a container lie in **segments** in a second tree of the collection,
//! keyed by the record's key, the container and a number that the field's name tells: some bits of its hash, or of the
//! number at its end. Each element has an **ordinal**, which restores the order of the fields. Other large values are taken out too, each whole.
//!
//! | file | idea |
//! | --- | --- |
//! | [`header`] | what the record of a shredded document holds |
//! | [`shred`] | taking a document apart |
//! | [`segment`] | keys and contents of segments |
//! | [`load`] | putting together the document, or the parts of it that somebody looks at |
//! | [`field_set`] | which parts these are |
//! | [`diff`] | what an update changed, as paths |
//! | [`message`] | changes as messages that the engine keeps, combines and applies |
//! | [`edit`] | changing a value at a path within bytes |
//!
//! An update is applied to the parts that it, the filter and the indexes look at. What it changed is sent as **path
//! messages** to the header and to the segments: the same bytes in the log and in the trees.
//!
//! Adding an integer to a field of a container that holds nothing but integers, none of them near its bounds,
//! cannot fail and always changes the document. Such an addition is **blind**: its segment is not read. Whether the field was there before is not
//! known then. The header counts what blind additions may have added as slack, until the document is written anew.
//!
//! (A directory of keys inside one large value would need the value to be read and written for each update. One
//! key for each field would make an insertion 20,000 messages long. Segments in the primary tree itself would have saved a
//! look-up for whole documents, and would have cost every scan of headers, and every other user of that tree.)

pub(crate) mod diff;
pub(crate) mod edit;
pub(crate) mod field_set;
pub(crate) mod header;
pub(crate) mod load;
pub(crate) mod message;
pub(crate) mod segment;
pub(crate) mod shred;

/// Which documents are shredded, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeDocuments {
    /// Documents of fewer bytes are stored whole. `usize::MAX` shreds none.
    pub threshold_bytes: usize,
    /// What a segment is meant to hold at most, when the document is shredded. A sub-document is taken out
    /// of its surroundings if it has four times as many.
    pub segment_bytes: usize,
}

impl LargeDocuments {
    /// No document is shredded.
    pub const NEVER: LargeDocuments = LargeDocuments {
        threshold_bytes: usize::MAX,
        segment_bytes: 4096,
    };

    /// Sub-documents and other values from this size on are taken out.
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
