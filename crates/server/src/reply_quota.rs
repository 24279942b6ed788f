//! The memory that the batch of a reply takes.

use std::time::Instant;

use frond_error::Result;
use frond_store::{OpContext, update_op_stats};

use crate::cursors::{BatchQuota, Room};
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
        }
    }

    /// Memory for a reply after which the cursor is closed.
    pub fn last(mut self) -> ReplyQuota<'a> {
        self.is_last = true;
        self
    }
}

impl BatchQuota for ReplyQuota<'_> {
    fn begin(&mut self, bytes: usize) -> Room {
        self.permits.reply = self.server.execution.quotas.replies.try_acquire(bytes);
        match self.permits.reply {
            Some(_) => Room::Taken,
            None => Room::Awaited,
        }
    }

    fn try_grow(&mut self, bytes: usize) -> Room {
        if self.is_last {
            // Not with the room of a large first document: two commands could wait for each other.
            self.permits.reply = None;
            return self.begin(bytes);
        }
        match self.server.execution.quotas.replies.try_acquire(bytes) {
            Some(permit) => {
                self.permits.reply = Some(permit);
                Room::Taken
            }
            None => Room::None,
        }
    }

    fn wait(
        &mut self,
        bytes: usize,
        held: usize,
        release: &mut dyn FnMut(Release) -> Result<()>,
    ) -> Result<()> {
        // Others need the ticket more than a command that waits for clients to read.
        if let Some(held) = self.permits.ticket.take() {
            self.server.execution.executor.give_back(held);
        }
        let began = Instant::now();
        let store = &self.server.store;
        let reserved = self.server.execution.quotas.replies.wait_here(
            bytes,
            held,
            self.limits,
            || store.retains_too_much(),
            release,
        );
        update_op_stats(|op_stats| op_stats.room_wait += began.elapsed());
        self.permits.reply = Some(reserved?);
        Ok(())
    }

    fn complete(&mut self, bytes: usize) {
        if let Some(permit) = &mut self.permits.reply {
            permit.shrink_to(bytes);
        }
    }
}
