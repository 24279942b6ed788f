//! The room that the batch of a reply takes.

use std::time::Instant;

use frond_error::Result;
use frond_store::{OpContext, note};

use crate::cursors::BatchRoom;
use crate::operation::Permits;
use crate::state::Server;

/// The room of a client's next reply, which it keeps until the reply is sent.
pub struct ReplyRoom<'a> {
    server: &'a Server,
    /// End a wait.
    limits: &'a OpContext,
    permits: &'a mut Permits,
    /// Whether the client cannot ask for the rest of a batch.
    is_last: bool,
}

impl<'a> ReplyRoom<'a> {
    /// Room for the next reply to a client.
    pub fn new(
        server: &'a Server,
        limits: &'a OpContext,
        permits: &'a mut Permits,
    ) -> ReplyRoom<'a> {
        ReplyRoom {
            server,
            limits,
            permits,
            is_last: false,
        }
    }

    /// Room for a reply after which the cursor is closed.
    pub fn last(mut self) -> ReplyRoom<'a> {
        self.is_last = true;
        self
    }
}

impl BatchRoom for ReplyRoom<'_> {
    fn wait(&mut self, bytes: usize) -> Result<()> {
        let room = &self.server.rooms.replies;
        let mut grant = room.try_grant(bytes);
        if grant.is_none() {
            // Others need the ticket more than a command that waits for clients to read.
            if let Some(held) = self.permits.ticket.take() {
                self.server.executor.give_back(held);
            }
            let began = Instant::now();
            let granted = room.wait_here(bytes, self.limits);
            note(|figures| figures.room_wait += began.elapsed());
            grant = Some(granted?);
        }
        self.permits.reply = grant;
        Ok(())
    }

    fn try_grow(&mut self, bytes: usize) -> Result<bool> {
        if self.is_last {
            // Not with the room of a large first document: two commands could wait for each other.
            self.permits.reply = None;
            self.wait(bytes)?;
            return Ok(true);
        }
        let grant = self.server.rooms.replies.try_grant(bytes);
        let is_granted = grant.is_some();
        if is_granted {
            self.permits.reply = grant;
        }
        Ok(is_granted)
    }

    fn complete(&mut self, bytes: usize) {
        if let Some(grant) = &mut self.permits.reply {
            grant.shrink_to(bytes);
        }
    }
}
