//! The memory that the batch of a reply takes.

use std::time::Instant;

use frond_error::Result;
use frond_store::{OpContext, update_op_stats};

use crate::cursors::BatchQuota;
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
    fn wait(&mut self, bytes: usize) -> Result<()> {
        let quota = &self.server.execution.quotas.replies;
        let mut permit = quota.try_acquire(bytes);
        if permit.is_none() {
            // Others need the ticket more than a command that waits for clients to read.
            if let Some(held) = self.permits.ticket.take() {
                self.server.execution.executor.give_back(held);
            }
            let began = Instant::now();
            // The snapshot of a query that waits keeps the memtables of its moment.
            let reserved =
                quota.wait_here(bytes, self.limits, || self.server.store.retains_too_much());
            update_op_stats(|op_stats| op_stats.room_wait += began.elapsed());
            permit = Some(reserved?);
        }
        self.permits.reply = permit;
        Ok(())
    }

    fn try_grow(&mut self, bytes: usize) -> Result<bool> {
        if self.is_last {
            // Not with the room of a large first document: two commands could wait for each other.
            self.permits.reply = None;
            self.wait(bytes)?;
            return Ok(true);
        }
        let permit = self.server.execution.quotas.replies.try_acquire(bytes);
        let has_permit = permit.is_some();
        if has_permit {
            self.permits.reply = permit;
        }
        Ok(has_permit)
    }

    fn complete(&mut self, bytes: usize) {
        if let Some(permit) = &mut self.permits.reply {
            permit.shrink_to(bytes);
        }
    }
}
