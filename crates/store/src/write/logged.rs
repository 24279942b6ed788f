//! The entries of documents in the oplog.

use frond_bson::{Doc, MAX_DOCUMENT_BYTES};

use super::id_document;
use super::staging::Staging;
use super::written::{How, Written};
use crate::catalog::name_in_oplog;
use crate::oplog::Change;
use frond_oplog::diff::{self, IsWhole};
use frond_oplog::entry::{Kind, Session};

impl Staging<'_> {
    /// Whether changes have entries in the oplog.
    pub(super) fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// Whether documents are kept as they were before their changes, so that they have to be read whole.
    pub(super) fn keeps_pre_images(&self) -> bool {
        self.is_logged() && self.collection.settings.keeps_pre_images()
    }

    /// From here on what is staged is the effect of a statement of a retryable write, or of none.
    pub(super) fn set_session(&mut self, session: Option<Session>) {
        if let Some(log) = &mut self.log {
            log.set_session(session);
        }
    }

    /// The difference that an update makes, for its entry. Of a large document `old` and `new` may be parts; `is_whole` returns which values
    /// are there whole. `None` if that takes the whole document.
    pub(super) fn updated<'d>(
        &self,
        old: &'d Doc,
        new: &'d Doc,
        how: How<'_>,
        is_whole: Option<IsWhole<'_>>,
    ) -> Option<Written<'d>> {
        if !self.is_logged() {
            return Some(Written::Unlogged);
        }
        let diff = match (how, is_whole) {
            (How::Replaced, _) => None,
            (How::Computed, None) => diff::diff(old, new),
            (How::Computed, Some(is_whole)) => diff::diff_of_parts(old, new, is_whole),
            (How::Operators(set), _) => diff::diff_of_operators(old, new, set, is_whole),
        };
        // One that is larger than any document, as of all elements of a long array, would not fit in an entry.
        match diff.filter(|diff| diff.len_bytes() <= MAX_DOCUMENT_BYTES) {
            Some(diff) => Some(Written::Changed { old, diff }),
            None if is_whole.is_some() => None,
            None => Some(Written::Replaced { old, new }),
        }
    }

    /// Adds the entry of a document.
    pub(super) fn log(&mut self, written: &Written<'_>) {
        let keeps_before = self.keeps_pre_images();
        let Some(log) = &mut self.log else {
            return;
        };
        let id;
        let (kind, o, o2, before) = match written {
            Written::Inserted(new) => (Kind::Insert, *new, None, None),
            Written::Changed { old, diff } => {
                id = id_document(old);
                (Kind::Update, &**diff, Some(&*id), Some(*old))
            }
            Written::Replaced { old, new } => (Kind::Replace, *new, None, Some(*old)),
            Written::Deleted(old) => {
                id = id_document(old);
                (Kind::Delete, &*id, None, Some(*old))
            }
            Written::Unlogged => return,
        };
        let change = Change {
            kind,
            ns: &name_in_oplog(self.collection),
            uuid: Some(&self.collection.uuid),
            o,
            o2,
            before: before.filter(|_| keeps_before),
        };
        log.add(&mut self.batch, &change);
    }
}
