//! The memory that the batch of a reply takes.

use std::time::Instant;

use frond_bson::Doc;
use frond_error::Result;
use frond_store::{OpContext, update_op_stats};

use crate::cursors::{BatchQuota, Room};
use crate::held_documents::Held;
use crate::memory_quota::Release;
use crate::operation::Permits;
use crate::state::Server;

/// The memory of a client's next reply, held until the reply is sent.
pub struct ReplyQuota<'a> {
    server: &'a Server,
    limits: &'a OpContext,
    permits: &'a mut Permits,
    /// Whether the client cannot ask for the rest of a batch.
    is_last: bool,
    /// The document of a batch that waits.
    held: Option<Held>,
}

impl<'a> ReplyQuota<'a> {
    /// Memory for the next reply to a client.
    pub fn new(
        server: &'a Server,
        limits: &'a OpContext,
        permits: &'a mut Permits,
    ) -> ReplyQuota<'a> {
        ReplyQuota {
            server,
            limits,
            permits,
            is_last: false,
            held: None,
        }
    }

    /// Memory for a reply after which the cursor is closed.
    pub fn last(mut self) -> ReplyQuota<'a> {
        self.is_last = true;
        self
    }
}

impl ReplyQuota<'_> {
    fn wait_here(
        &mut self,
        bytes: usize,
        release: &mut dyn FnMut(Release) -> Result<()>,
    ) -> Result<()> {
        // Others need the ticket more than a command that waits for clients to read.
        if let Some(held) = self.permits.ticket.take() {
            self.server.execution.executor.give_back(held);
        }
        let began = Instant::now();
        let store = &self.server.store;
        let replies = &self.server.execution.quotas.replies;
        let is_scarce = || store.retains_too_much();
        let reserved = replies.wait_here(bytes, self.limits, is_scarce, release);
        update_op_stats(|op_stats| op_stats.room_wait += began.elapsed());
        self.permits.reply = Some(reserved?);
        Ok(())
    }
}

impl BatchQuota for ReplyQuota<'_> {
    fn begin(&mut self, bytes: usize, document: &Doc) -> Result<Room> {
        let replies = &self.server.execution.quotas.replies;
        self.permits.reply = replies.try_acquire(bytes);
        if self.permits.reply.is_some() {
            return Ok(Room::Taken);
        }
        let held = replies.held_documents();
        self.held = held.copy(document.len_bytes());
        if self.held.is_some() {
            return Ok(Room::Awaited);
        }
        let Some(_lent) = held.lend(document) else {
            return Err(replies.exceeded(bytes));
        };
        // The memtables of its snapshot stay in memory, too.
        let keep = &mut |what| match what {
            Release::Pages => Ok(()),
            Release::Memory => Err(replies.exceeded(bytes)),
        };
        self.wait_here(bytes, keep)?;
        Ok(Room::Taken)
    }

    fn try_grow(&mut self, bytes: usize, document: &Doc) -> Result<Room> {
        if self.is_last {
            // Not with the room of a large first document: two commands could wait for each other.
            self.permits.reply = None;
            return self.begin(bytes, document);
        }
        let permit = self.server.execution.quotas.replies.try_acquire(bytes);
        let room = permit.as_ref().map_or(Room::None, |_| Room::Taken);
        self.permits.reply = permit.or(self.permits.reply.take());
        Ok(room)
    }

    fn wait(&mut self, bytes: usize, release: &mut dyn FnMut(Release) -> Result<()>) -> Result<()> {
        self.wait_here(bytes, release)
    }

    fn complete(&mut self, bytes: usize) {
        if let Some(permit) = &mut self.permits.reply {
            permit.shrink_to(bytes);
        }
    }
}
