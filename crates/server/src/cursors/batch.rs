//! A batch of documents that is filled.

use frond_bson::{ArrayBuf, Doc, DocBuf};
use frond_error::{Error, Result};
use frond_store::Flow;

use super::{BATCH_BYTES, LARGE_BATCH_BYTES, REPLY_BYTES};
use crate::errors::reply_too_large;
use crate::limits::REPLY_BYTES_MAX;
use crate::memory_quota::Release;

/// The most bytes that a batch takes for documents that it does not have yet.
const START_BYTES: usize = 16 << 10;
/// Bytes of the fields around the documents of a reply.
const REPLY_FIELDS_BYTES: usize = 256;

/// The memory that a batch takes.
pub trait BatchQuota {
    /// Reserves `bytes` for a batch that needs this large document. Without room, the caller has to copy the document and wait; if
    /// copies take too much memory already, this call waits itself, and the document stays in its page.
    ///
    /// # Errors
    /// `ExceededMemoryLimit` (146); an interruption.
    fn begin(&mut self, bytes: usize, document: &Doc) -> Result<Room>;
    /// Reserves `bytes` for a larger batch. Without room, a batch that cannot end before this document waits as in `begin`.
    ///
    /// # Errors
    /// As [`BatchQuota::begin`].
    fn try_grow(&mut self, bytes: usize, document: &Doc) -> Result<Room>;
    /// Waits until `bytes` can be reserved. No operator of the cursor runs meanwhile, so `release` can free memory that the cursor holds.
    ///
    /// # Errors
    /// As [`BatchQuota::begin`].
    fn wait(&mut self, bytes: usize, release: &mut dyn FnMut(Release) -> Result<()>) -> Result<()>;
    /// Ends the batch, which has `bytes` bytes.
    fn complete(&mut self, bytes: usize);
}

/// Whether there is room for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Taken,
    /// There is none now.
    None,
    /// There is none now, and without it the batch is of no use: it has to wait, with a copy of its document.
    Awaited,
}

/// A batch that is filled.
pub struct Batch<'b> {
    pub reply: &'b mut dyn BatchQuota,
    /// Whether it has the room of a full one.
    pub is_whole: bool,
    /// Whether it has waited for the room of its first document.
    pub has_begun: bool,
    /// The room that it has to wait for, in bytes, before it takes the document that did not fit.
    pub awaited: Option<usize>,
    pub documents: ArrayBuf,
    /// Bytes of its elements.
    pub bytes: usize,
    /// The number of documents that can still be added.
    pub room: u64,
    /// A document that did not fit.
    pub pending: Option<DocBuf>,
    /// A document that fits into no reply.
    pub failure: Option<Error>,
}

impl Batch<'_> {
    /// Whether it may become a full one.
    fn may_be_large(&mut self, document: &Doc) -> bool {
        if !self.is_whole {
            let bytes = BATCH_BYTES + REPLY_BYTES;
            let room = self.reply.try_grow(bytes, document);
            self.is_whole = self.is_taken(room, bytes);
        }
        self.is_whole
    }

    /// Whether there is room for its first document, which makes it so large.
    fn may_begin(&mut self, document: &Doc) -> bool {
        if !self.has_begun {
            let bytes = self.bytes + REPLY_BYTES;
            let room = self.reply.begin(bytes, document);
            self.has_begun = self.is_taken(room, bytes);
        }
        self.has_begun
    }

    /// Whether room for `bytes` bytes is taken. If not, notes the failure, or that it has to wait.
    fn is_taken(&mut self, room: Result<Room>, bytes: usize) -> bool {
        match room {
            Ok(Room::Taken) => return true,
            Ok(Room::None) => {}
            Ok(Room::Awaited) => self.awaited = Some(bytes),
            Err(failure) => self.failure = Some(failure),
        }
        false
    }

    /// Waits for its room, and adds the document that did not fit.
    pub fn go_on(
        &mut self,
        awaited: usize,
        release: &mut dyn FnMut(Release) -> Result<()>,
    ) -> Result<Flow> {
        self.reply.wait(awaited, release)?;
        if self.documents.is_empty() {
            self.has_begun = true;
        } else {
            self.is_whole = true;
        }
        let document = self.pending.take();
        Ok(document.map_or(Flow::Continue, |document| self.push(&document)))
    }

    /// Adds a document; `Pause` if the batch takes no more.
    pub fn push(&mut self, document: &Doc) -> Flow {
        let size = document.len_bytes();
        if size + REPLY_BYTES > REPLY_BYTES_MAX && self.documents.is_empty() {
            self.failure = Some(reply_too_large(size));
            return Flow::Pause;
        }
        // An element also has a type byte, a number as its name and a zero byte.
        let was_large = self.bytes > LARGE_BATCH_BYTES;
        self.bytes += size + 12;
        let is_large = self.bytes > LARGE_BATCH_BYTES;
        // A reply has at least one document.
        let is_first = self.documents.is_empty();
        let fits = if is_first {
            !is_large || self.may_begin(document)
        } else {
            self.bytes <= BATCH_BYTES && (!is_large || self.may_be_large(document))
        };
        if !fits {
            self.bytes -= size + 12;
            self.pending = self.failure.is_none().then(|| document.to_owned());
            return Flow::Pause;
        }
        if is_large && !was_large && self.is_whole {
            // Memory that is not written to costs nothing, while growing step by step copies.
            (self.documents).reserve(BATCH_BYTES + REPLY_BYTES - LARGE_BATCH_BYTES);
        }
        if self.documents.is_empty() {
            // The others are probably of about the same size.
            let most = START_BYTES / (size + 12);
            let expected = usize::try_from(self.room).unwrap_or(most).min(most);
            self.documents
                .reserve(expected.max(1) * (size + 12) + REPLY_FIELDS_BYTES);
        }
        self.documents.push(document);
        self.room = self.room.saturating_sub(1);
        match self.room {
            0 => Flow::Pause,
            _ => Flow::Continue,
        }
    }
}
