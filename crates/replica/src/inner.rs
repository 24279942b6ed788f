//! A member of a replica set over a runtime. `Member` documents its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frond_kv::{EntryId, MemberLog};
use openraft::async_runtime::Instant;
use openraft::async_runtime::watch::{Watch, WatchReceiver, WatchSender};
use openraft::errors::{
    ChangeMembershipError, ClientWriteError, InitializeError, LinearizableReadError, RaftError,
};
use openraft::{ChangeMembers, Raft, ReadPolicy, ServerState};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::adapters::{Log, Machine};
use crate::driver::{self, Core, Metrics, Supervisor};
use crate::entry::Group;
use crate::host::{Event, Host, Lane, Transport};
use crate::ids::entry_id;
use crate::late;
use crate::members::{Follower, Peer, Seat};
use crate::message;
use crate::network::Factory;
use crate::role::{Members, Role};
use crate::shared::{Sender, Shared};
use crate::waiters::{Key, Test};
use crate::{Error, Result, Runtime, Settings};

/// A member over a runtime.
pub(crate) struct Inner<R: Runtime> {
    pub(crate) core: Core<R>,
    pub(crate) shared: Arc<Shared<R>>,
    transport: Arc<dyn Transport>,
    role: watch::Receiver<Role>,
    is_ending: Mutex<Sender<R, bool>>,
    /// Held by changes of the members and by transfers, of which there is one at a time.
    change: tokio::sync::Mutex<()>,
    /// Counts calls of `freeze`, so that only the last one ends it.
    freezes: Arc<AtomicU64>,
    /// The task that applies entries late, until it is waited for.
    late: tokio::sync::Mutex<Option<R::JoinHandle<()>>>,
}

impl<R: Runtime> Inner<R> {
    pub async fn start(
        settings: Settings,
        log: Arc<dyn MemberLog>,
        transport: Arc<dyn Transport>,
        host: Arc<dyn Host>,
    ) -> Result<Inner<R>> {
        let config = Arc::new(settings.config()?);
        let id = settings.id;
        let shared = R::blocking(move || Shared::new(settings, log, host))
            .await
            .and_then(|shared| shared)
            .map_err(|error| Error::Log(error.to_string()))?;
        let (shared, newest): (Shared<R>, _) = shared;
        let shared = Arc::new(shared);
        let network = Factory::new(shared.clone(), transport.clone());
        let core: Core<R> = Raft::build(
            id,
            config,
            network,
            Log::new(shared.clone()),
            Machine::new(shared.clone()),
        )
        .await
        .map_err(|error| Error::Log(error.to_string()))?;
        let (role_sender, role) = watch::channel(Role {
            // The core reports its members later.
            members: Members::from_stored(&newest),
            ..Role::default()
        });
        let (is_ending, ending) = R::Watch::channel(false);
        let supervisor = Supervisor::new(shared.clone(), &core, role_sender);
        core.run();
        let _task = R::spawn(driver::propose(
            core.clone(),
            shared.clone(),
            ending.clone(),
        ));
        let late = R::spawn(late::apply_late(
            core.clone(),
            shared.clone(),
            ending.clone(),
        ));
        let _task = R::spawn(supervisor.run(ending));
        Ok(Inner {
            core,
            shared,
            transport,
            role,
            is_ending: Mutex::new(is_ending),
            change: tokio::sync::Mutex::new(()),
            freezes: Arc::default(),
            late: tokio::sync::Mutex::new(Some(late)),
        })
    }

    pub async fn initialize(&self, peer: Peer) -> Result<()> {
        let members = BTreeMap::from([(self.shared.id(), peer)]);
        self.core
            .initialize(members)
            .await
            .map_err(|error| match error {
                RaftError::APIError(InitializeError::NotAllowed(_)) => {
                    Error::Invalid("this member belongs to a replica set already".to_owned())
                }
                RaftError::APIError(error) => Error::Invalid(error.to_string()),
                RaftError::Fatal(error) => Error::Ended(error.to_string()),
            })
    }

    pub fn role(&self) -> Role {
        self.role.borrow().clone()
    }

    pub fn watch_role(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    pub async fn wait_committed(&self, position: u64) -> Result<()> {
        let (key, answer) = {
            let mut waiters = self.shared.waiters.lock();
            // A committed position stays committed while the store is open, also after another member became the leader.
            if self.shared.log.committed_position() >= position {
                return Ok(());
            }
            waiters.add_committed(position)?
        };
        self.shared.log.request(position);
        let _waiting = Waiting(&self.shared, key);
        answer.await.unwrap_or(Err(Error::LeadershipLost))
    }

    pub async fn acknowledged(&self, position: u64, test: Test) -> Result<()> {
        let (key, answer) = self.shared.waiters.lock().add_spread(position, test)?;
        let _waiting = Waiting(&self.shared, key);
        self.shared.log.request(position);
        self.shared.pulse();
        answer.await.unwrap_or(Err(Error::LeadershipLost))
    }

    pub async fn ensure_linearizable(&self) -> Result<u64> {
        match self.core.ensure_linearizable(ReadPolicy::ReadIndex).await {
            Ok(_) => Ok(self.shared.log.committed_position()),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                Err(Error::NotLeading {
                    leader: forward.leader_id,
                })
            }
            Err(RaftError::APIError(_)) => Err(Error::NoMajority),
            Err(RaftError::Fatal(error)) => Err(Error::Ended(error.to_string())),
        }
    }

    pub fn followers(&self) -> Vec<Follower> {
        let metrics = self.core.metrics();
        let metrics = metrics.borrow_watched();
        let contacts = metrics.heartbeat.clone().unwrap_or_default();
        let matched = metrics.replication.iter().flatten();
        matched
            .filter(|(id, _)| **id != self.shared.id())
            .map(|(id, matched)| Follower {
                id: *id,
                matched: matched.as_ref().map(entry_id),
                last_contact: contacts
                    .get(id)
                    .and_then(Option::as_ref)
                    .map(|at| at.into_inner().elapsed()),
            })
            .collect()
    }

    pub async fn reconfigure(&self, seats: BTreeMap<u64, Seat>, limit: Duration) -> Result<()> {
        let _change = self
            .change
            .try_lock()
            .map_err(|_| Error::ChangeInProgress)?;
        let voters: BTreeSet<u64> = seats
            .iter()
            .filter(|(_, seat)| seat.votes)
            .map(|(id, _)| *id)
            .collect();
        if !voters.contains(&self.shared.id()) {
            return Err(Error::Invalid(
                "the leader has to vote in the new replica set; give the leadership away before"
                    .to_owned(),
            ));
        }
        let now = self.role().members;
        let seated: BTreeSet<u64> = seats.keys().copied().collect();
        let changed: BTreeMap<u64, Peer> = seats
            .into_iter()
            .filter(|(id, seat)| now.peers.get(id) != Some(&seat.peer))
            .map(|(id, seat)| (id, seat.peer))
            .collect();
        if !changed.is_empty() {
            self.change(ChangeMembers::SetNodes(changed), limit).await?;
        }
        if now.voters != [voters.clone()] {
            self.await_caught_up(&voters, limit).await?;
            self.change(ChangeMembers::ReplaceAllVoters(voters), limit)
                .await?;
        }
        let gone: BTreeSet<u64> = now
            .peers
            .into_keys()
            .filter(|id| !seated.contains(id))
            .collect();
        if !gone.is_empty() {
            self.change(ChangeMembers::RemoveNodes(gone), limit).await?;
        }
        Ok(())
    }

    async fn change(&self, change: ChangeMembers<u64, Peer>, limit: Duration) -> Result<()> {
        // Voters that are removed stay as learners; the last step removes them if they have no seat.
        let changed = self.core.change_membership(change, true);
        match R::timeout(limit, changed).await {
            Err(_) => Err(Error::TimedOut),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(RaftError::Fatal(error))) => Err(Error::Ended(error.to_string())),
            Ok(Err(RaftError::APIError(error))) => Err(match error {
                ClientWriteError::ForwardToLeader(forward) => Error::NotLeading {
                    leader: forward.leader_id,
                },
                ClientWriteError::LogEntryDiscarded(_) => Error::LeadershipLost,
                ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_)) => {
                    Error::ChangeInProgress
                }
                ClientWriteError::ChangeMembershipError(error) => Error::Invalid(error.to_string()),
                error => Error::Invalid(error.to_string()),
            }),
        }
    }

    /// Waits until all voters-to-be have what the log has now. Those that vote already are not waited for.
    async fn await_caught_up(&self, voters: &BTreeSet<u64>, limit: Duration) -> Result<()> {
        let old = self.role().members;
        let new: Vec<u64> = voters
            .iter()
            .filter(|id| !old.is_voter(**id) && **id != self.shared.id())
            .copied()
            .collect();
        let goal = self.shared.log.state().last;
        let caught_up = driver::wait_for::<R, _>(self.core.metrics(), limit, |metrics| {
            let Some(replication) = &metrics.replication else {
                return Some(Err(Error::NotLeading {
                    leader: metrics.current_leader,
                }));
            };
            let has_all = |id: &u64| {
                let matched = replication.get(id).and_then(Option::as_ref);
                matched.map(entry_id) >= goal
            };
            new.iter().all(has_all).then_some(Ok(()))
        });
        caught_up.await.unwrap_or(Err(Error::TimedOut))
    }

    pub async fn transfer(&self, to: Option<u64>, catch_up: Duration, force: bool) -> Result<()> {
        let _change = self
            .change
            .try_lock()
            .map_err(|_| Error::ChangeInProgress)?;
        let role = self.role();
        let Some(term) = self.shared.elected().filter(|term| *term == role.term) else {
            return Err(Error::NotLeading {
                leader: role.leader,
            });
        };
        let others = || {
            let ids = role.members.peers.keys().copied();
            let is_late = |id: &u64| {
                let peer = role.members.peers.get(id);
                peer.is_some_and(|peer| self.shared.host.apply_limit(peer).is_some())
            };
            ids.filter(|id| *id != self.shared.id() && role.members.is_voter(*id))
                .filter(move |id| !is_late(id))
        };
        let candidates: BTreeSet<u64> = others()
            .filter(|id| to.is_none_or(|to| to == *id))
            .collect();
        if candidates.is_empty() {
            return Err(Error::Invalid(
                "no other voter can take the leadership".to_owned(),
            ));
        }
        self.shared.host.event(Event::HandsOver { term });
        let shared = self.shared.clone();
        let log_error = |error: String| Error::Log(error);
        let held = Held(&self.shared);
        R::blocking(move || shared.give_up(term))
            .await
            .map_err(|error| log_error(error.to_string()))?
            .map_err(|error| log_error(error.to_string()))?;
        let target = match self.await_candidate(&candidates, catch_up).await {
            Ok(target) => target,
            Err(Error::TimedOut) if force => self.best_of(&candidates).ok_or(Error::TimedOut)?,
            Err(error) => return Err(error),
        };
        self.core
            .trigger()
            .transfer_leader(target)
            .await
            .map_err(|error| Error::Ended(error.to_string()))?;
        // From now on the core takes no proposals in this term.
        std::mem::forget(held);
        let limit = self.shared.settings.election_timeout * 3;
        driver::wait_for::<R, _>(self.core.metrics(), limit, |metrics| {
            let leads = metrics.state == ServerState::Leader && metrics.current_term == term;
            (!leads).then_some(())
        })
        .await
        .ok_or(Error::TimedOut)
    }

    /// Waits until one of `candidates` has all of the log, and returns the first that has.
    async fn await_candidate(&self, candidates: &BTreeSet<u64>, limit: Duration) -> Result<u64> {
        let end = self.shared.log.end_position();
        let committed = async {
            let mut progress = self.shared.watch_progress();
            // A closed log reports no groups, so this proposes entries itself. The log decides how many frames each entry gets. A member
            // that applies late has made no frames, and its log does not know yet what is committed.
            while !self.shared.is_late() && self.shared.log.committed_position() < end {
                self.core
                    .client_write_ff(Group::Local, None)
                    .await
                    .map_err(|error| Error::Ended(error.to_string()))?;
                let interval = self.shared.settings.heartbeat_interval;
                let position = || self.shared.log.committed_position();
                let changed = progress.wait_until(|_| position() >= end);
                let _ = R::timeout(interval, changed).await;
            }
            Ok(())
        };
        R::timeout(limit, committed)
            .await
            .map_err(|_| Error::TimedOut)??;
        let caught_up = driver::wait_for::<R, _>(self.core.metrics(), limit, |metrics| {
            let Some(replication) = &metrics.replication else {
                return Some(Err(Error::NotLeading {
                    leader: metrics.current_leader,
                }));
            };
            let has_all = |id: &u64| {
                let matched = replication.get(id).and_then(Option::as_ref);
                matched.map(|matched| matched.index) >= metrics.last_log_index
            };
            candidates.iter().copied().find(has_all).map(Ok)
        });
        caught_up.await.unwrap_or(Err(Error::TimedOut))
    }

    fn best_of(&self, candidates: &BTreeSet<u64>) -> Option<u64> {
        let followers = self.followers().into_iter();
        followers
            .filter(|follower| candidates.contains(&follower.id))
            .max_by_key(|follower| follower.matched)
            .map(|follower| follower.id)
    }

    pub fn freeze(&self, time: Duration) {
        let this = self.freezes.fetch_add(1, Ordering::Relaxed) + 1;
        self.core.runtime_config().elect(time.is_zero());
        if time.is_zero() {
            return;
        }
        let (core, freezes) = (self.core.clone(), self.freezes.clone());
        let _task = R::spawn(async move {
            R::sleep(time).await;
            if freezes.load(Ordering::Relaxed) == this {
                core.runtime_config().elect(true);
            }
        });
    }

    pub async fn step_up(&self) -> Result<()> {
        let role = self.role();
        if role.leader == Some(self.shared.id()) {
            // Another election would only take the office from it.
            return Ok(());
        }
        let leader = role.leader;
        if let Some((leader, peer)) = leader.and_then(|id| Some((id, role.members.peers.get(&id)?)))
        {
            let request = message::encode_step_up(leader);
            let reply = self.transport.send(leader, peer, Lane::Control, request);
            let limit = self.shared.settings.election_timeout * 5;
            return match R::timeout(limit, reply).await {
                Ok(Ok(answer)) => message::read_step_up_answer(&answer).map_err(Error::Invalid),
                Ok(Err(error)) => Err(Error::Invalid(format!(
                    "the leader cannot be reached: {error}"
                ))),
                Err(_) => Err(Error::TimedOut),
            };
        }
        self.core
            .trigger()
            .elect(self.shared.settings.pre_vote)
            .await
            .map_err(|error| Error::Ended(error.to_string()))
    }

    pub async fn purge(&self, through: EntryId) -> Result<()> {
        if self.shared.applied_id() < Some(through) {
            return Err(Error::Invalid(
                "only applied entries can be removed".to_owned(),
            ));
        }
        let ended = |error: &dyn std::fmt::Display| Error::Ended(error.to_string());
        self.core
            .trigger()
            .snapshot()
            .await
            .map_err(|error| ended(&error))?;
        let limit = self.shared.settings.election_timeout;
        let has_stated = |metrics: &Metrics<R>| {
            let snapshot = metrics.snapshot.as_ref().map(|id| id.index);
            (snapshot >= Some(through.index)).then_some(())
        };
        driver::wait_for::<R, _>(self.core.metrics(), limit, has_stated)
            .await
            .ok_or(Error::TimedOut)?;
        self.shared.will_purge(through);
        self.core
            .trigger()
            .purge_log(through.index)
            .await
            .map_err(|error| ended(&error))
    }

    pub async fn shut_down(&self) -> Result<()> {
        self.is_ending.lock().send_if_different(true);
        // An error means that the core has ended before.
        let _ = self.core.shutdown().await;
        if let Some(late) = self.late.lock().await.take() {
            // It uses the log. A panic is reported elsewhere.
            let _ = late.await;
        }
        let shared = self.shared.clone();
        R::blocking(move || shared.close())
            .await
            .map_err(|error| Error::Log(error.to_string()))?
            .map_err(|error| Error::Log(error.to_string()))?;
        self.shared.waiters.lock().close();
        Ok(())
    }
}

/// Removes a waiter, whether it was answered or has given up.
struct Waiting<'a, R: Runtime>(&'a Shared<R>, Key);

impl<R: Runtime> Drop for Waiting<'_, R> {
    fn drop(&mut self) {
        self.0.remove_waiter(self.1);
    }
}

/// Opens the log again when a transfer has failed or its caller has gone.
struct Held<'a, R: Runtime>(&'a Shared<R>);

impl<R: Runtime> Drop for Held<'_, R> {
    fn drop(&mut self) {
        self.0.take_back();
    }
}
