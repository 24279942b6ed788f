//! The change of a document as its entry in the oplog describes it.

use frond_bson::{Doc, DocBuf};
use frond_oplog::diff::SetPaths;

/// The method by which an update made the new document of the old one.
#[derive(Clone, Copy)]
pub(super) enum How<'a> {
    Replaced,
    /// It was computed by a pipeline.
    Computed,
    /// By operators, which set these paths.
    Operators(&'a SetPaths),
}

/// The change of a document, for its entry.
pub(super) enum Written<'a> {
    Inserted(&'a Doc),
    /// It is changed by a difference.
    Changed {
        old: &'a Doc,
        diff: DocBuf,
    },
    /// Another one takes its place.
    Replaced {
        old: &'a Doc,
        new: &'a Doc,
    },
    Deleted(&'a Doc),
    /// It has no entry: there is no oplog, or a capped collection removes it.
    Unlogged,
}
