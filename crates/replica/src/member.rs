//! A member of a replica set.
//!
//! [`Member`] hides the runtime, so that the code of consensus is compiled once, in this crate, and not in each crate that uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use frond_kv::{EntryId, MemberLog};
use openraft_rt_tokio::TokioRuntime;
use tokio::sync::watch;

use crate::host::{Host, Transport};
use crate::inner::Inner;
use crate::members::{Follower, Peer, Seat};
use crate::role::Role;
use crate::waiters::Test;
use crate::{Result, Runtime, Settings};

/// The result of a call, once it is there.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The calls of a member, over any runtime.
trait Calls: Send + Sync {
    fn role(&self) -> Role;
    fn watch_role(&self) -> watch::Receiver<Role>;
    fn followers(&self) -> Vec<Follower>;
    fn freeze(&self, time: Duration);
    fn handle<'a>(&'a self, from: u64, request: &'a [u8]) -> Answer<'a, Vec<u8>>;
    fn initialize(&self, peer: Peer) -> Answer<'_, Result<()>>;
    fn wait_committed(&self, position: u64) -> Answer<'_, Result<()>>;
    fn acknowledged(&self, position: u64, test: Test) -> Answer<'_, Result<()>>;
    fn ensure_linearizable(&self) -> Answer<'_, Result<u64>>;
    fn reconfigure(&self, seats: BTreeMap<u64, Seat>, limit: Duration) -> Answer<'_, Result<()>>;
    fn transfer(&self, to: Option<u64>, catch_up: Duration, force: bool) -> Answer<'_, Result<()>>;
    fn step_up(&self) -> Answer<'_, Result<()>>;
    fn purge(&self, through: EntryId) -> Answer<'_, Result<()>>;
    fn shut_down(&self) -> Answer<'_, Result<()>>;
}

impl<R: Runtime> Calls for Inner<R> {
    fn role(&self) -> Role {
        self.role()
    }

    fn watch_role(&self) -> watch::Receiver<Role> {
        self.watch_role()
    }

    fn followers(&self) -> Vec<Follower> {
        self.followers()
    }

    fn freeze(&self, time: Duration) {
        self.freeze(time);
    }

    fn handle<'a>(&'a self, from: u64, request: &'a [u8]) -> Answer<'a, Vec<u8>> {
        Box::pin(self.handle(from, request))
    }

    fn initialize(&self, peer: Peer) -> Answer<'_, Result<()>> {
        Box::pin(self.initialize(peer))
    }

    fn wait_committed(&self, position: u64) -> Answer<'_, Result<()>> {
        Box::pin(self.wait_committed(position))
    }

    fn acknowledged(&self, position: u64, test: Test) -> Answer<'_, Result<()>> {
        Box::pin(self.acknowledged(position, test))
    }

    fn ensure_linearizable(&self) -> Answer<'_, Result<u64>> {
        Box::pin(self.ensure_linearizable())
    }

    fn reconfigure(&self, seats: BTreeMap<u64, Seat>, limit: Duration) -> Answer<'_, Result<()>> {
        Box::pin(self.reconfigure(seats, limit))
    }

    fn transfer(&self, to: Option<u64>, catch_up: Duration, force: bool) -> Answer<'_, Result<()>> {
        Box::pin(self.transfer(to, catch_up, force))
    }

    fn step_up(&self) -> Answer<'_, Result<()>> {
        Box::pin(self.step_up())
    }

    fn purge(&self, through: EntryId) -> Answer<'_, Result<()>> {
        Box::pin(self.purge(through))
    }

    fn shut_down(&self) -> Answer<'_, Result<()>> {
        Box::pin(self.shut_down())
    }
}

/// One store that takes part in a replica set, from its start until it was ended or has failed. Then the host starts another one
/// over the same store, opened again, or over a copy.
pub struct Member {
    inner: Arc<dyn Calls>,
}

impl Member {
    /// Starts a member over a log.
    ///
    /// # Errors
    /// [`Error::Invalid`] for settings that contradict each other; [`Error::Log`].
    // A function that is not inlined and makes the box: only then consensus over Tokio is compiled here.
    #[inline(never)]
    pub fn start(
        settings: Settings,
        log: Arc<dyn MemberLog>,
        transport: Arc<dyn Transport>,
        host: Arc<dyn Host>,
    ) -> Answer<'static, Result<Member>> {
        Member::start_on::<TokioRuntime>(settings, log, transport, host)
    }

    /// Starts a member over a log, on another runtime than Tokio.
    ///
    /// # Errors
    /// Those of [`Self::start`].
    pub fn start_on<R: Runtime>(
        settings: Settings,
        log: Arc<dyn MemberLog>,
        transport: Arc<dyn Transport>,
        host: Arc<dyn Host>,
    ) -> Answer<'static, Result<Member>> {
        Box::pin(async move {
            let inner = Inner::<R>::start(settings, log, transport, host).await?;
            Ok(Member {
                inner: Arc::new(inner),
            })
        })
    }

    /// Answers a request that the member `from` has sent with [`Transport::send`]. The host has made sure that it comes from that
    /// member. Any bytes may come.
    pub async fn handle(&self, from: u64, request: &[u8]) -> Vec<u8> {
        self.inner.handle(from, request).await
    }

    /// Makes a replica set with this member alone. Others are added by [`Self::reconfigure`]: an empty store may not vote, so a set
    /// begins with one voter whose log has everything.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the log has entries or has taken part in an election; [`Error::Ended`].
    pub async fn initialize(&self, peer: Peer) -> Result<()> {
        self.inner.initialize(peer).await
    }

    /// The part of this member now.
    pub fn role(&self) -> Role {
        self.inner.role()
    }

    /// Follows the part of this member.
    pub fn watch_role(&self) -> watch::Receiver<Role> {
        self.inner.watch_role()
    }

    /// Waits until everything before `position` is committed, which a commit on this member has reached.
    ///
    /// # Errors
    /// [`Error::LeadershipLost`], also if it was lost before.
    pub async fn wait_committed(&self, position: u64) -> Result<()> {
        self.inner.wait_committed(position).await
    }

    /// Waits until the members for which `test` returns true have everything before `position` durably. The set is that of all
    /// members that have it, this one too.
    ///
    /// # Errors
    /// [`Error::LeadershipLost`], also if it was lost before.
    pub async fn acknowledged(
        &self,
        position: u64,
        test: impl Fn(&BTreeSet<u64>) -> bool + Send + 'static,
    ) -> Result<()> {
        self.inner.acknowledged(position, Box::new(test)).await
    }

    /// Confirms with a majority that this member leads, and waits until it has applied what was committed before. Returns the
    /// position to read at: everything before it is committed, and all that was acknowledged before the call is in it.
    ///
    /// # Errors
    /// [`Error::NotLeading`]; [`Error::NoMajority`]; [`Error::Ended`].
    pub async fn ensure_linearizable(&self) -> Result<u64> {
        self.inner.ensure_linearizable().await
    }

    /// The other members, as this leader knows them. Empty on members that do not lead.
    pub fn followers(&self) -> Vec<Follower> {
        self.inner.followers()
    }

    /// Changes the members of the set to `seats`. New members and changed addresses are first entered as learners; once the new
    /// voters have caught up, all voters change in one step, which needs majorities of the old and the new ones; then members that
    /// have no seat are removed. Each step is committed before the next. After an error the steps before it remain, and the
    /// call can be repeated.
    ///
    /// # Errors
    /// [`Error::NotLeading`]; [`Error::ChangeInProgress`]; [`Error::TimedOut`] if a step, or a new voter that has to catch up, takes
    /// longer than `limit`; [`Error::Invalid`] for seats in which this leader does not vote.
    pub async fn reconfigure(&self, seats: BTreeMap<u64, Seat>, limit: Duration) -> Result<()> {
        self.inner.reconfigure(seats, limit).await
    }

    /// Gives the leadership to `to`, or to the voter that has most. Commits are refused from now on. If the other one has not
    /// caught up within `catch_up`, this member leads on, unless `force`. Then it may take an election timeout until there is a
    /// leader.
    ///
    /// # Errors
    /// [`Error::NotLeading`]; [`Error::ChangeInProgress`]; [`Error::TimedOut`]; [`Error::Invalid`] if `to` or all
    /// others do not vote.
    pub async fn transfer(&self, to: Option<u64>, catch_up: Duration, force: bool) -> Result<()> {
        self.inner.transfer(to, catch_up, force).await
    }

    /// Does not stand for election for a time. Zero ends it.
    pub fn freeze(&self, time: Duration) {
        self.inner.freeze(time);
    }

    /// Stands for election now. If there is a leader, it is asked to give its leadership to this member.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the reason of the leader; [`Error::TimedOut`]; [`Error::Ended`].
    pub async fn step_up(&self) -> Result<()> {
        self.inner.step_up().await
    }

    /// Allows the log to remove the entries up to and with one that is applied. Members that lack them have to copy a store.
    ///
    /// # Errors
    /// [`Error::Ended`]; [`Error::TimedOut`] if the core is too busy, in which case it can be repeated; [`Error::Invalid`] if the
    /// entry is not applied.
    pub async fn purge(&self, through: EntryId) -> Result<()> {
        self.inner.purge(through).await
    }

    /// Ends this member. The log refuses commits, and is not used any more on return.
    ///
    /// # Errors
    /// [`Error::Log`] if commits could not be refused.
    pub async fn shut_down(&self) -> Result<()> {
        self.inner.shut_down().await
    }
}
