//! Requests of other members.

use std::sync::Arc;
use std::time::Duration;

use frond_kv::EntryId;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};

use crate::entry::Group;
use crate::host::Event;
use crate::ids::{Vote, entry_id};
use crate::inner::Inner;
use crate::message::{self, Request, Resync};
use crate::types::Types;
use crate::{Runtime, Settings};

/// The time for which entries wait for the ones that they have overtaken.
fn overtaking_time(settings: &Settings) -> Duration {
    settings.heartbeat_interval / 2
}

impl<R: Runtime> Inner<R> {
    /// Answers a request. Any bytes may come.
    pub async fn handle(&self, from: u64, request: &[u8]) -> Vec<u8> {
        let answer = match message::decode(request, self.shared.id()) {
            Ok(request) => self.answer(from, request).await,
            Err(malformed) => Err(malformed.to_string()),
        };
        answer.unwrap_or_else(|why| message::refusal(&why))
    }

    async fn answer(&self, from: u64, request: Request<R>) -> Result<Vec<u8>, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        match request {
            Request::Append { append, follows } => {
                self.check_origin(from, &append)?;
                if follows {
                    self.await_overtaken(&append).await;
                }
                let answer = self.core.append_entries(append).await;
                let answer = answer.map_err(|error| text(&error))?;
                if !matches!(answer, AppendEntriesResponse::HigherVote(_)) {
                    self.shared.heard_leader();
                }
                Ok(message::append_answer(&answer))
            }
            Request::Vote(vote) => {
                if let Some(refused) = self.refused_vote(&vote) {
                    return Ok(message::vote_answer(&refused));
                }
                let answer = self.core.vote(vote).await;
                Ok(message::vote_answer(&answer.map_err(|error| text(&error))?))
            }
            Request::PreVote(vote) => {
                if let Some(refused) = self.refused_vote(&vote) {
                    return Ok(message::vote_answer(&refused));
                }
                let answer = self.core.pre_vote(vote).await;
                Ok(message::vote_answer(&answer.map_err(|error| text(&error))?))
            }
            Request::Transfer(transfer) => {
                if *transfer.to_node_id() == self.shared.id() {
                    self.shared.host.event(Event::TakesOver { from });
                }
                let answer = self.core.handle_transfer_leader(transfer).await;
                Ok(message::transfer_answer::<R>(
                    &answer.map_err(|error| text(&error))?,
                ))
            }
            Request::Resync(resync) => self.resync(from, &resync).await,
            Request::StepUp => {
                let limit = self.shared.settings.election_timeout;
                self.transfer(Some(from), limit, false)
                    .await
                    .map_err(|error| text(&error))?;
                Ok(message::step_up_answer())
            }
        }
    }

    /// A member without a log grants no vote. It is new, and then not a voter; or it has lost its disk, and then it might have
    /// acknowledged what the candidate lacks. As a copy of the leader's store it may vote again.
    fn refused_vote(&self, vote: &VoteRequest<Types<R>>) -> Option<VoteResponse<Types<R>>> {
        if self.shared.log.state().last.is_some() {
            return None;
        }
        let own = self.own_vote();
        // Never what was proposed, which would be a grant.
        let own = if own < vote.vote {
            own
        } else {
            Vote::new(0, self.shared.id())
        };
        Some(VoteResponse::new(own, None, false))
    }

    fn own_vote(&self) -> Vote {
        self.shared
            .vote()
            .unwrap_or_else(|| Vote::new(0, self.shared.id()))
    }

    /// A store that was not copied from a member can follow only if both have nothing but what the log contains: then the positions
    /// mean the same to both.
    fn check_origin(
        &self,
        from: u64,
        append: &AppendEntriesRequest<Types<R>>,
    ) -> Result<(), String> {
        let Some(first) = append.entries.first() else {
            return Ok(());
        };
        let Group::Frames { from: start, .. } = first.payload.group else {
            return Ok(());
        };
        let log = &self.shared.log;
        if first.id.index > 0 || log.state().last.is_some() || append.vote < self.own_vote() {
            return Ok(());
        }
        if start == 0 && log.end_position() == 0 {
            return Ok(());
        }
        self.shared
            .host
            .event(Event::MustResync { from, purged: None });
        Err("this member has to copy a store before it can follow".to_owned())
    }

    /// Waits until the log has the entry before these, for a moment.
    async fn await_overtaken(&self, append: &AppendEntriesRequest<Types<R>>) {
        let Some(prev) = append.prev_log_id else {
            return;
        };
        let mut progress = self.shared.watch_progress();
        let there = progress.wait_until(|progress| progress.last >= Some(prev.index));
        // If it does not come, the answer says that it is missing.
        let _ = R::timeout(overtaking_time(&self.shared.settings), there).await;
    }

    /// The leader has no more entries that this member lacks.
    ///
    /// The message counts only if the log does not contain the last entry that the leader has purged. Then this member was not counted
    /// when that entry was committed, and a majority has everything that is committed before it, so that nothing is lost with the
    /// store here. An old message has no effect, because a copied store contains the entry. A member that has it, because it has
    /// copied a store meanwhile, says so, and the leader goes on with the entries after it.
    async fn resync(&self, from: u64, resync: &Resync) -> Result<Vec<u8>, String> {
        let own = self.own_vote();
        if !resync.vote.committed || own > resync.vote {
            return Ok(message::resync_answer(&own, false));
        }
        let purged = entry_id(&resync.purged);
        let has_it = self.contains(purged).await?;
        if !has_it {
            let purged = Some(purged);
            self.shared.host.event(Event::MustResync { from, purged });
        }
        Ok(message::resync_answer(&own, has_it))
    }

    /// Whether the log has an entry, or has had it.
    async fn contains(&self, id: EntryId) -> Result<bool, String> {
        let state = self.shared.log.state();
        if state.purged >= Some(id) || state.applied >= Some(id) {
            return Ok(true);
        }
        if state.last.is_none_or(|last| last.index < id.index) {
            return Ok(false);
        }
        let log = Arc::clone(&self.shared.log);
        let entries = R::blocking(move || log.read(id.index, id.index + 1, 1))
            .await
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        Ok(entries.first().is_some_and(|entry| entry.id == id))
    }
}
