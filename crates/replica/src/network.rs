//! The network of `openraft`, over the host's transport.
//!
//! # Invariants
//! 1. Every request names the member that it is for, and another one refuses it. So the answer of a wrong member never counts.
//! 2. Several requests with entries may be under way to one member; their answers are taken in the order of the requests. All but
//!    the first say that they follow others, so that the receiver lets one that has overtaken another wait for a moment. If it still lacks what is before, the leader
//!    sends all of it again: for `openraft` a conflict with an entry that was acknowledged is a log that has lost it.
//! 3. No request waits for ever: the time grows with the bytes that it has.
//! 4. Heartbeats and votes do not wait for entries that are under way: [`Lane::Control`].

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use openraft::OptionalSend;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};

use crate::Runtime;
use crate::host::{Lane, Transport};
use crate::ids::{Snapshot, Vote};
use crate::members::Peer;
use crate::message::{self, Resync};
use crate::shared::Shared;
use crate::types::Types;

/// The bytes that a slow network is expected to transport in a millisecond.
const BYTES_PER_MILLISECOND: usize = 4096;

/// The first time after which a member that did not answer is tried again. It doubles up to the election timeout.
const BACKOFF_MIN: Duration = Duration::from_millis(10);

pub(crate) struct Factory<R: Runtime> {
    shared: Arc<Shared<R>>,
    transport: Arc<dyn Transport>,
}

impl<R: Runtime> Factory<R> {
    pub fn new(shared: Arc<Shared<R>>, transport: Arc<dyn Transport>) -> Self {
        Factory { shared, transport }
    }
}

impl<R: Runtime> RaftNetworkFactory<Types<R>> for Factory<R> {
    type Network = Network<R>;

    async fn new_client(&mut self, target: u64, peer: &Peer) -> Network<R> {
        Network {
            shared: self.shared.clone(),
            transport: self.transport.clone(),
            target,
            peer: peer.clone(),
        }
    }
}

/// The way to one member.
pub(crate) struct Network<R: Runtime> {
    shared: Arc<Shared<R>>,
    transport: Arc<dyn Transport>,
    target: u64,
    peer: Peer,
}

impl<R: Runtime> Network<R> {
    /// Sends a request and reads the answer. All failures are `Unreachable`, after which the next attempt waits.
    async fn call<T>(
        &self,
        lane: Lane,
        request: Vec<u8>,
        limit: Duration,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<T, RPCError<Types<R>>> {
        let unreachable = |why: &str| {
            RPCError::Unreachable(Unreachable::from_string(format!("{}: {why}", self.target)))
        };
        let reply = self.transport.send(self.target, &self.peer, lane, request);
        match R::timeout(limit, reply).await {
            Ok(Ok(answer)) => read(&answer).map_err(|why| unreachable(&why)),
            Ok(Err(error)) => Err(unreachable(&error.to_string())),
            Err(_) => Err(unreachable("it does not answer")),
        }
    }

    async fn append(
        &self,
        append: AppendEntriesRequest<Types<R>>,
        follows: bool,
    ) -> Result<AppendEntriesResponse<Types<R>>, RPCError<Types<R>>> {
        let prev = append.prev_log_id;
        // Without entries, and after none that are under way, it is a heartbeat or a search for the last common entry.
        let lane = if append.entries.is_empty() && !follows {
            Lane::Control
        } else {
            Lane::Entries
        };
        let request = message::encode_append(self.target, &append, follows);
        drop(append);
        let limit = self.limit(request.len());
        let answer = self
            .call(lane, request, limit, message::read_append_answer)
            .await?;
        // There is no entry before the first that could be another one.
        if prev.is_none() && matches!(answer, AppendEntriesResponse::Conflict) {
            let why = format!("{} refuses the first entry", self.target);
            return Err(RPCError::Unreachable(Unreachable::from_string(why)));
        }
        Ok(answer)
    }

    fn limit(&self, bytes: usize) -> Duration {
        let millis = u64::try_from(bytes / BYTES_PER_MILLISECOND).unwrap_or(u64::MAX);
        self.shared.settings.election_timeout + Duration::from_millis(millis)
    }
}

impl<R: Runtime> RaftNetworkV2<Types<R>> for Network<R> {
    type SnapshotData = ();

    async fn append_entries(
        &mut self,
        append: AppendEntriesRequest<Types<R>>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types<R>>, RPCError<Types<R>>> {
        self.append(append, false).await
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<
            BoxStream<'s, Result<StreamAppendResult<Types<R>>, RPCError<Types<R>>>>,
            RPCError<Types<R>>,
        >,
    >
    where
        S: Stream<Item = AppendEntriesRequest<Types<R>>> + OptionalSend + Unpin + 'static,
    {
        let network: &'s Network<R> = self;
        let under_way = Arc::new(AtomicUsize::new(0));
        let sent = input.map(move |append| {
            let under_way = under_way.clone();
            let follows = under_way.fetch_add(1, Ordering::Relaxed) > 0;
            let prev = append.prev_log_id;
            let last = append.entries.last().map(|entry| entry.id).or(prev);
            async move {
                let answer = network.append(append, follows).await;
                under_way.fetch_sub(1, Ordering::Relaxed);
                if follows && matches!(answer, Ok(AppendEntriesResponse::Conflict)) {
                    // The entries before these were accepted, or the stream would have ended. So these have overtaken them.
                    let why = format!("{} got entries before the ones before them", network.target);
                    return Err(RPCError::Network(NetworkError::from_string(why)));
                }
                answer.map(|answer| {
                    let is_whole = matches!(&answer, AppendEntriesResponse::Success)
                        || matches!(&answer, AppendEntriesResponse::PartialSuccess(id) if *id == last);
                    (answer.into_stream_result(prev, last), is_whole)
                })
            }
        });
        let answers = sent.buffered(self_limit(network));
        // The stream ends with the first answer that is not a whole success.
        let answers = stream::unfold(Some(answers), |answers| async move {
            let mut answers = answers?;
            match answers.next().await? {
                Ok((result, is_whole)) => Some((Ok(result), is_whole.then_some(answers))),
                Err(error) => Some((Err(error), None)),
            }
        });
        let answers: BoxStream<'s, _> = Box::pin(answers);
        Box::pin(std::future::ready(Ok(answers)))
    }

    async fn vote(
        &mut self,
        vote: VoteRequest<Types<R>>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types<R>>, RPCError<Types<R>>> {
        let request = message::encode_vote(self.target, &vote, false);
        self.call(
            Lane::Control,
            request,
            self.limit(0),
            message::read_vote_answer,
        )
        .await
    }

    async fn pre_vote(
        &mut self,
        vote: VoteRequest<Types<R>>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types<R>>, RPCError<Types<R>>> {
        let request = message::encode_vote(self.target, &vote, true);
        self.call(
            Lane::Control,
            request,
            self.limit(0),
            message::read_vote_answer,
        )
        .await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types<R>>, StreamingError<Types<R>>> {
        let Some(purged) = snapshot.meta.last_log_id else {
            let why = "nothing was purged".to_owned();
            return Err(StreamingError::Unreachable(Unreachable::from_string(why)));
        };
        let request = message::encode_resync(self.target, &Resync { vote, purged });
        let (theirs, has_it) = self
            .call(
                Lane::Control,
                request,
                self.limit(0),
                message::read_resync_answer,
            )
            .await?;
        if has_it || theirs > vote {
            return Ok(SnapshotResponse::new(theirs));
        }
        // Until the member has a copy of a store it has nothing that could be counted.
        let why = format!("{} has to copy a store before it can follow", self.target);
        Err(StreamingError::Unreachable(Unreachable::from_string(why)))
    }

    async fn transfer_leader(
        &mut self,
        transfer: TransferLeaderRequest<Types<R>>,
        _option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types<R>>, RPCError<Types<R>>> {
        let request = message::encode_transfer(self.target, &transfer);
        self.call(
            Lane::Control,
            request,
            self.limit(0),
            message::read_transfer_answer,
        )
        .await
    }

    fn backoff(&self) -> Option<Backoff> {
        let most = self.shared.settings.election_timeout;
        let times =
            std::iter::successors(Some(BACKOFF_MIN), move |time| Some((*time * 2).min(most)));
        Some(Backoff::new(times))
    }
}

fn self_limit<R: Runtime>(network: &Network<R>) -> usize {
    network.shared.settings.batches_in_flight
}
