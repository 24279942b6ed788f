//! The tasks of a member: one proposes the frames that the log has gathered, one follows what the core of consensus reports.
//!
//! # Invariants
//! 1. A proposal has no frames: it may be repeated, be late or be lost. The log gives each entry the first frames that are in none.
//!    The frames that a lost proposal was for become a part of the next entry, or of the blank entry of this member's next
//!    leadership. A lost one is repeated while this member leads.
//! 2. After a loss of leadership the frames that are in no entry stay in the trees. An entry of another leader then ends this
//!    store (`MustReopen`). If none comes before this member is elected again, its blank entry has them.
//! 3. `MustReopen` is reported after the core has ended, so that nothing calls the log any more but [`Member::handle`]'s callers,
//!    which are refused.
//!
//! [`Member::handle`]: crate::Member::handle

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use frond_kv::EntryId;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::async_runtime::{Instant, Select2, Select3};
use openraft::{AsyncRuntime, Raft, RaftMetrics, ServerState};

use tokio::sync::watch;

use crate::Runtime;
use crate::adapters::Machine;
use crate::entry::Group;
use crate::host::Event;
use crate::ids::entry_id;
use crate::role::{Members, Part, Role};
use crate::shared::{Fault, Receiver, Shared};
use crate::types::Types;

pub(crate) type Core<R> = Raft<Types<R>, Machine<R>>;
pub(crate) type Metrics<R> = RaftMetrics<Types<R>>;

/// Proposes the groups of frames that the log reports, until `ended` is true.
pub(crate) async fn propose<R: Runtime>(
    core: Core<R>,
    shared: Arc<Shared<R>>,
    mut ended: Receiver<R, bool>,
) {
    let retry = shared.settings.heartbeat_interval;
    // The entries that were made when the last group was proposed. As long as there are no more, the proposal may be lost.
    let mut proposed = None;
    loop {
        let group = poll_fn(|context| shared.log.poll_group(context));
        match R::select3(ended.changed(), group, R::sleep(retry)).await {
            Select3::First(_) => return,
            Select3::Second(_) => {}
            Select3::Third(()) => {
                let is_lost = proposed == Some(shared.seals()) && shared.is_open();
                if !is_lost && !shared.must_seal() {
                    continue;
                }
            }
        }
        proposed = Some(shared.seals());
        if core.client_write_ff(Group::Local, None).await.is_err() {
            return;
        }
    }
}

/// Follows the core of consensus: opens and closes the log, publishes the role, reports events.
pub(crate) struct Supervisor<R: Runtime> {
    shared: Arc<Shared<R>>,
    metrics: Receiver<R, Metrics<R>>,
    progress: Receiver<R, crate::shared::Progress>,
    role: watch::Sender<Role>,
    /// The term whose leadership the host knows of.
    announced: Option<u64>,
}

/// The part of the core's metrics that the supervisor acts on.
struct View<R: Runtime> {
    ended: Option<String>,
    part: Part,
    term: u64,
    quorum_acked: Option<<R as AsyncRuntime>::Instant>,
    /// Filled only while operations wait for certain members.
    matched: BTreeMap<u64, Option<EntryId>>,
}

impl<R: Runtime> Supervisor<R> {
    pub fn new(shared: Arc<Shared<R>>, core: &Core<R>, role: watch::Sender<Role>) -> Self {
        Supervisor {
            metrics: core.metrics(),
            progress: shared.watch_progress(),
            shared,
            role,
            announced: None,
        }
    }

    /// Runs until the core has ended. Then `is_ending` says whether a call has ended it.
    pub async fn run(mut self, is_ending: Receiver<R, bool>) {
        let tick = self.shared.settings.heartbeat_interval;
        loop {
            self.progress.borrow_and_update();
            let view = self.view();
            if let Some(why) = view.ended {
                let is_ending = *is_ending.borrow_watched();
                return self.end(why, is_ending).await;
            }
            if let Err(error) = self.step(view).await {
                return self.end(error.to_string(), false).await;
            }
            let changed = R::select2(self.metrics.changed(), self.progress.changed());
            match R::select2(changed, R::sleep(tick)).await {
                Select2::First(Select2::First(Err(_))) => {
                    let is_ending = *is_ending.borrow_watched();
                    return self.end("it has ended".to_owned(), is_ending).await;
                }
                Select2::First(_) | Select2::Second(()) => {}
            }
        }
    }

    /// Publishes what the core reports, and returns what is to be done with it.
    fn view(&mut self) -> View<R> {
        let metrics = self.metrics.borrow_and_update();
        let part = match metrics.state {
            ServerState::Learner => Part::Learner,
            ServerState::Follower => Part::Follower,
            ServerState::Candidate => Part::Candidate,
            ServerState::Leader => Part::Leader,
            ServerState::Shutdown => Part::Ended,
        };
        let matched = if self.shared.waiters.lock().has_spread() {
            let matched = metrics.replication.iter().flatten();
            matched
                .map(|(id, matched)| (*id, matched.as_ref().map(entry_id)))
                .collect()
        } else {
            BTreeMap::new()
        };
        if metrics.membership_config.log_id().is_some() {
            self.shared
                .note_members(metrics.membership_config.membership());
        }
        let is_heard = part == Part::Leader || self.shared.hears_leader();
        let leader = metrics.current_leader.filter(|_| is_heard);
        self.role
            .send_if_modified(|role| publish::<R>(role, part, leader, &metrics));
        View {
            ended: metrics
                .running_state
                .as_ref()
                .err()
                .map(ToString::to_string),
            part,
            term: metrics.current_term,
            quorum_acked: metrics.last_quorum_acked.map(|acked| acked.into_inner()),
            matched,
        }
    }

    async fn step(
        &mut self,
        view: View<R>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let term = view.term;
        let leads = view.part == Part::Leader && self.shared.elected() == Some(term);
        let is_ready = self
            .shared
            .applied_id()
            .is_some_and(|applied| applied.term == term);
        let may_lead = leads && is_ready && !self.shared.is_late();
        let should_lead = may_lead && self.has_majority(&view);
        let is_open = self.shared.is_open();
        if self.announced.is_some() && (!should_lead || !is_open || self.announced != Some(term)) {
            self.lose().await?;
        }
        if should_lead && self.announced.is_none() {
            // Before the log is opened, so that the first commit can wait.
            self.shared.waiters.lock().open();
            let shared = self.shared.clone();
            if R::blocking(move || shared.open(term)).await?? {
                self.announced = Some(term);
                self.shared.host.event(Event::LeadershipGained { term });
            } else {
                self.shared.waiters.lock().close();
            }
        }
        self.check_spread(&view.matched);
        let is_leading = self.announced.is_some();
        self.role
            .send_if_modified(|role| set(&mut role.is_leading, is_leading));
        Ok(())
    }

    /// Closes the log and fails those who wait.
    async fn lose(&mut self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let shared = self.shared.clone();
        R::blocking(move || shared.close()).await??;
        self.shared.waiters.lock().close();
        if let Some(term) = self.announced.take() {
            self.shared.host.event(Event::LeadershipLost { term });
        }
        Ok(())
    }

    /// Whether a majority has answered this leader within the election timeout.
    fn has_majority(&self, view: &View<R>) -> bool {
        let alone = BTreeSet::from([self.shared.id()]);
        let timeout = self.shared.settings.election_timeout;
        self.role.borrow().members.is_majority(&alone)
            || view
                .quorum_acked
                .is_some_and(|acked| acked.elapsed() < timeout)
    }

    fn check_spread(&self, matched: &BTreeMap<u64, Option<EntryId>>) {
        let mut waiters = self.shared.waiters.lock();
        if !waiters.has_spread() {
            return;
        }
        let own = self.shared.last_durable();
        waiters.check_spread(|position| {
            let Some(entry) = self.shared.entry_of(position) else {
                return BTreeSet::new();
            };
            let others = matched
                .iter()
                .filter(|(_, matched)| **matched >= Some(entry))
                .map(|(id, _)| *id)
                .filter(|id| *id != self.shared.id());
            let own = (own >= Some(entry)).then(|| self.shared.id());
            others.chain(own).collect()
        });
    }

    async fn end(mut self, why: String, is_ending: bool) {
        // The core has ended, so nothing is to be done about an error here.
        let _ = self.lose().await;
        self.shared.waiters.lock().close();
        self.role.send_if_modified(|role| {
            role.part = Part::Ended;
            role.is_leading = false;
            role.leader = None;
            true
        });
        match self.shared.fault() {
            Some(Fault::MustReopen) => self.shared.host.event(Event::MustReopen),
            Some(Fault::Failed(why)) => self.shared.host.event(Event::Failed { why }),
            None if is_ending => {}
            None => self.shared.host.event(Event::Failed { why }),
        }
    }
}

/// Sets a value and returns whether it was another one.
fn set<T: PartialEq>(value: &mut T, to: T) -> bool {
    let is_other = *value != to;
    *value = to;
    is_other
}

/// Updates a role in its place, because there is an update for each entry and the members seldom change. Returns whether it is
/// another one.
fn publish<R: Runtime>(
    role: &mut Role,
    part: Part,
    leader: Option<u64>,
    metrics: &Metrics<R>,
) -> bool {
    let stored = &metrics.membership_config;
    let since = stored.log_id().as_ref().map(entry_id);
    // Metrics from before the start of the core have no members.
    let has_other_members =
        since.is_some() && (role.members.since != since || role.members.voters.is_empty());
    let mut is_other = has_other_members && set(&mut role.members, Members::from_stored(stored));
    let are_committed = metrics.committed_membership_config.log_id() == stored.log_id();
    is_other |= set(&mut role.part, part);
    is_other |= set(&mut role.term, metrics.current_term);
    is_other |= set(&mut role.leader, leader);
    is_other |= set(&mut role.are_members_committed, are_committed);
    is_other |= set(&mut role.last, metrics.last_log_index);
    is_other |= set(
        &mut role.committed,
        metrics.local_committed.as_ref().map(entry_id),
    );
    is_other |= set(
        &mut role.applied,
        metrics.last_applied.as_ref().map(entry_id),
    );
    is_other |= set(&mut role.purged, metrics.purged.as_ref().map(entry_id));
    is_other
}

/// Sleeps until `deadline` has come or `done` returns a value for the metrics of the core.
pub(crate) async fn wait_for<R: Runtime, T: Send>(
    mut metrics: Receiver<R, Metrics<R>>,
    limit: Duration,
    mut done: impl FnMut(&Metrics<R>) -> Option<T> + Send,
) -> Option<T> {
    let wait = async move {
        loop {
            if let Some(value) = done(&metrics.borrow_and_update()) {
                return Some(value);
            }
            if metrics.changed().await.is_err() {
                return None;
            }
        }
    };
    R::timeout(limit, wait).await.ok().flatten()
}
