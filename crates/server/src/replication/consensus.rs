//! The member of a replica set that this server runs: consensus over the log of its store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::elections::{Cause, Elections};
use crate::host::clock::now_ms;
use frond_bson::Timestamp;
use frond_error::{Error, ErrorCode, Result};
use frond_replica::{EntryId, Event, Follower, Host, Part, Peer, Role, Seat, Transport};
use frond_replset::{Member as Configured, SetConfig, Wanted, interrupted, stepped_down};
use frond_store::{DocumentStore, MemberLog};
use parking_lot::Mutex;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// Threads of the member. It never blocks them: what waits for the disk has threads of its own.
const THREADS: usize = 2;

/// The interval of checks of a server that was the primary whether what it has is committed.
const SETTLED_CHECK: Duration = Duration::from_millis(5);

/// The longest wait of a set of one for itself.
const LEAD_WAIT: Duration = Duration::from_secs(30);

/// A member, its threads and its log.
pub struct Consensus {
    id: u64,
    member: Arc<frond_replica::Member>,
    log: Arc<dyn MemberLog>,
    elections: Arc<Elections>,
    events: Mutex<Option<UnboundedReceiver<Event>>>,
    has_led: AtomicBool,
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
}

/// Queues the events of a member for the server.
struct Queue {
    events: UnboundedSender<Event>,
    elections: Arc<Elections>,
}

impl Host for Queue {
    fn event(&self, event: Event) {
        match event {
            // Before the member stands, so that the reason is known then.
            Event::TakesOver { .. } => self.elections.intend(Cause::HandedOver),
            Event::HandsOver { term } => self.elections.hands_over(term),
            _ => {}
        }
        // There is one for each entry of the log, and the waits for commits are served without them.
        if !matches!(event, Event::Committed { .. }) {
            // The server may be gone.
            let _ = self.events.send(event);
        }
    }

    /// Times of the oplog are stamps.
    fn apply_limit(&self, peer: &Peer) -> Option<u64> {
        let delay = i64::from(delay_secs(peer)?);
        let time = (now_ms() / 1000).saturating_sub(delay);
        let limit = Timestamp {
            time: u32::try_from(time).unwrap_or(0),
            increment: u32::MAX,
        };
        Some(limit.to_u64())
    }
}

impl Consensus {
    /// Starts the member of a store that was opened as one.
    ///
    /// # Errors
    /// Settings that contradict each other, errors of the log, and a system that gives no threads.
    pub fn start<T: Transport>(
        store: &DocumentStore,
        settings: frond_replica::Settings,
        transport: impl FnOnce(Handle) -> Arc<T>,
    ) -> Result<Consensus> {
        let log = store
            .member_log()
            .ok_or_else(|| Error::internal("the store was not opened as that of a member"))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("frond-member")
            .enable_all()
            .build()
            .map_err(|error| Error::internal(format!("threads of the member: {error}")))?;
        let (sender, events) = unbounded_channel();
        let id = settings.id;
        let transport = transport(runtime.handle().clone());
        let elections = Arc::new(Elections::default());
        let queue = Queue {
            events: sender,
            elections: elections.clone(),
        };
        let start = frond_replica::Member::start(settings, log.clone(), transport, Arc::new(queue));
        let member = wait_on(runtime.handle(), start)?.map_err(|error| refusal(&error))?;
        Ok(Consensus {
            id,
            member: Arc::new(member),
            log,
            elections,
            events: Mutex::new(Some(events)),
            has_led: AtomicBool::new(false),
            runtime: Some(runtime),
        })
    }

    /// The number of this member's store, see [`super::identity`].
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn member(&self) -> &Arc<frond_replica::Member> {
        &self.member
    }

    /// The elections that this member stood for.
    pub fn elections(&self) -> &Elections {
        &self.elections
    }

    /// Stands for election now. If there is a primary, it gets a request to hand over.
    ///
    /// # Errors
    /// Errors of the member.
    pub async fn step_up(&self, cause: Cause) -> frond_replica::Result<()> {
        self.elections.intend(cause);
        let stood = self.member.step_up().await;
        if stood.is_err() {
            self.elections.forget_intention();
        }
        stood
    }

    /// As [`Self::step_up`], on a thread that may wait.
    ///
    /// # Errors
    /// The member panicked.
    pub fn stand(&self, cause: Cause) -> Result<frond_replica::Result<()>> {
        self.elections.intend(cause);
        let member = self.member.clone();
        let stood = self.wait_for(async move { member.step_up().await })?;
        if stood.is_err() {
            self.elections.forget_intention();
        }
        Ok(stood)
    }

    /// The threads of the member.
    pub fn handle(&self) -> Handle {
        let runtime = self.runtime.as_ref();
        runtime
            .expect("the runtime lives as long as the value")
            .handle()
            .clone()
    }

    /// The events of the member, for the first caller.
    pub fn take_events(&self) -> Option<UnboundedReceiver<Event>> {
        self.events.lock().take()
    }

    /// Runs `work` on the threads of the member, and waits for it without regard to the runtime of the caller.
    ///
    /// # Errors
    /// The work panicked.
    pub fn wait_for<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        wait_on(&self.handle(), work)
    }

    pub fn role(&self) -> Role {
        self.member.role()
    }

    /// The time after which this member applies writes, if it applies them late.
    pub fn delay_secs(&self) -> Option<u32> {
        let role = self.member.watch_role();
        let role = role.borrow();
        role.members.peers.get(&self.id).and_then(delay_secs)
    }

    pub fn watch_role(&self) -> watch::Receiver<Role> {
        self.member.watch_role()
    }

    pub fn followers(&self) -> Vec<Follower> {
        self.member.followers()
    }

    /// Whether the log accepts commits.
    pub fn is_leading(&self) -> bool {
        self.member.watch_role().borrow().is_leading
    }

    /// Whether this member belongs to a set, according to consensus.
    pub fn has_begun(&self) -> bool {
        super::has_entries(&*self.log)
    }

    /// The last entry of the log, which this member may have acknowledged.
    pub fn last_entry(&self) -> Option<EntryId> {
        self.log.state().last
    }

    /// The position after all commits until now.
    pub fn end_position(&self) -> u64 {
        self.log.end_position()
    }

    /// Begins a set with this member alone, and waits until it leads. Repeated after a crash in between, it only waits.
    ///
    /// # Errors
    /// `AlreadyInitialized` (23) if the store belongs to a set of several members, `ExceededTimeLimit` (262).
    pub fn begin(&self, peer: Peer) -> Result<()> {
        let alone = BTreeSet::from([self.id]);
        let voters = self.role().members.voters;
        if voters.is_empty() {
            self.elections.intend(Cause::OnlyVoter);
            let member = self.member.clone();
            let begun = self.wait_for(async move { member.initialize(peer).await })?;
            begun.map_err(|error| refusal(&error))?;
        } else if voters != [alone] {
            return Err(Error::new(
                ErrorCode::AlreadyInitialized,
                "this server is a member of a replica set whose configuration it has not received yet",
            ));
        }
        self.await_leadership(LEAD_WAIT)
    }

    /// Stands for election at once, and waits until it leads: for the only voter of a set.
    ///
    /// # Errors
    /// `ExceededTimeLimit` (262), errors of the member.
    pub fn lead_alone(&self) -> Result<()> {
        if !self.is_leading() {
            self.elections.intend(Cause::OnlyVoter);
            let member = self.member.clone();
            let stood = self.wait_for(async move { member.step_up().await })?;
            stood.map_err(|error| refusal(&error))?;
        }
        self.await_leadership(LEAD_WAIT)
    }

    fn await_leadership(&self, limit: Duration) -> Result<()> {
        let mut role = self.watch_role();
        let led = self.wait_for(async move {
            let led = role.wait_for(|role| role.is_leading);
            tokio::time::timeout(limit, led).await.is_ok()
        })?;
        if led {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::ExceededTimeLimit,
            format!("this member was not elected within {} s", limit.as_secs()),
        ))
    }

    /// Waits until all commits until now are committed, at most for a time.
    ///
    /// # Errors
    /// A task has ended early.
    pub fn await_committed(&self, limit: Duration) -> Result<()> {
        let (member, position) = (self.member.clone(), self.end_position());
        // Whether it is committed in the end is for the set to say.
        self.wait_for(async move {
            let committed = member.wait_committed(position);
            let _ = tokio::time::timeout(limit, committed).await;
        })
    }

    /// Changes the members that consensus knows.
    ///
    /// # Errors
    /// Errors of the member.
    pub async fn reconfigure(
        &self,
        seats: BTreeMap<u64, Seat>,
        limit: Duration,
    ) -> frond_replica::Result<()> {
        self.member.reconfigure(seats, limit).await
    }

    /// Waits until everything before a position is committed.
    ///
    /// # Errors
    /// `PrimarySteppedDown` (189).
    pub async fn committed(&self, position: u64) -> Result<()> {
        let committed = self.member.wait_committed(position).await;
        committed.map_err(|_| stepped_down())
    }

    /// Waits until enough members have everything before a position, durably.
    ///
    /// # Errors
    /// `PrimarySteppedDown` (189).
    pub async fn acknowledged(
        &self,
        position: u64,
        wanted: Wanted,
        config: Arc<SetConfig>,
    ) -> Result<()> {
        let is_enough = move |ids: &BTreeSet<i32>| {
            let outcome = wanted.outcome(&config, |member| ids.contains(&member.id));
            outcome != frond_replset::Outcome::Waits
        };
        self.held_by(position, is_enough).await
    }

    /// Waits until the members for whose `_id`s a test is true have everything before a position, durably.
    ///
    /// # Errors
    /// `PrimarySteppedDown` (189).
    pub fn held_by(
        &self,
        position: u64,
        is_enough: impl Fn(&BTreeSet<i32>) -> bool + Send + 'static,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let role = self.watch_role();
        let test = move |stores: &BTreeSet<u64>| {
            let role = role.borrow();
            let ids: BTreeSet<i32> = stores
                .iter()
                .filter_map(|store| role.members.peers.get(store).and_then(member_id))
                .collect();
            is_enough(&ids)
        };
        let member = self.member.clone();
        async move {
            let acknowledged = member.acknowledged(position, test).await;
            acknowledged.map_err(|_| stepped_down())
        }
    }

    /// Waits until everything before a position is committed, as the new primary reports it. A server whose commits are replaced starts
    /// again instead, which ends the wait.
    ///
    /// # Errors
    /// `InterruptedDueToReplStateChange` (11602).
    pub async fn settled(&self, position: u64) -> Result<()> {
        while self.log.committed_position() < position {
            if self.member.watch_role().borrow().part == Part::Ended {
                return Err(interrupted());
            }
            tokio::time::sleep(SETTLED_CHECK).await;
        }
        Ok(())
    }

    /// Whether the trees may have commits that no majority has, although this server does not lead: it led since its start.
    pub fn may_be_ahead(&self) -> bool {
        self.has_led.load(Ordering::SeqCst) && !self.is_leading()
    }

    /// Notes that this server leads.
    pub fn note_leadership(&self) {
        self.has_led.store(true, Ordering::SeqCst);
    }

    /// Confirms with a majority that this member still leads, and waits until everything before a position is committed.
    ///
    /// # Errors
    /// `InterruptedDueToReplStateChange` (11602).
    pub async fn confirmed(&self, position: u64) -> Result<()> {
        let confirmed = self.member.ensure_linearizable().await;
        confirmed.map_err(|_| interrupted())?;
        let committed = self.member.wait_committed(position).await;
        committed.map_err(|_| interrupted())
    }

    /// Sends commits that no client waits for to the other members, without the wait for the interval of the journal.
    pub fn send_rest(&self) {
        let end = self.log.end_position();
        if self.log.committed_position() < end {
            self.log.request(end);
        }
    }

    /// Bytes of the log from its first entry on.
    pub fn log_bytes(&self) -> u64 {
        let first = self.first_entry().map_or(0, |(_, from)| from);
        self.log.end_position().saturating_sub(first)
    }

    /// The first entry that the log has, and its position.
    fn first_entry(&self) -> Option<(EntryId, u64)> {
        let state = self.log.state();
        let first = state.purged.map_or(0, |purged| purged.index + 1);
        self.entry_at(first)
    }

    fn entry_at(&self, index: u64) -> Option<(EntryId, u64)> {
        let entry = self
            .log
            .read(index, index + 1, 0)
            .ok()?
            .into_iter()
            .next()?;
        Some((entry.id, entry.from))
    }

    /// The last applied entry before the newest `bytes` of the log, if there is one to be removed.
    pub fn applied_beyond(&self, bytes: u64) -> Option<EntryId> {
        let state = self.log.state();
        let applied = state.applied?;
        let limit = self.log.end_position().saturating_sub(bytes);
        let first = state.purged.map_or(0, |purged| purged.index + 1);
        if bytes == 0 {
            return Some(applied).filter(|applied| applied.index >= first);
        }
        if self.entry_at(first)?.1 >= limit {
            return None;
        }
        // The entries are in the order of their positions.
        let (mut low, mut high) = (first, applied.index);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.entry_at(middle)?.1 < limit {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        self.entry_at(low).map(|(id, _)| id)
    }

    /// Ends the member. The log refuses commits from here on.
    pub fn stop(&self) {
        let member = self.member.clone();
        // The store is closed next, whatever has happened.
        let _ = self.wait_for(async move { member.shut_down().await });
    }
}

impl Drop for Consensus {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A runtime must not be waited for on a thread of another one.
            runtime.shutdown_background();
        }
    }
}

/// The `_id` in the configuration of a member that consensus knows.
pub fn member_id(peer: &Peer) -> Option<i32> {
    let bytes = peer.data.first_chunk::<4>()?;
    Some(i32::from_le_bytes(*bytes))
}

/// The delay of a member that consensus knows, if it has one.
pub fn delay_secs(peer: &Peer) -> Option<u32> {
    let bytes = peer.data.get(4..)?.try_into().ok()?;
    Some(u32::from_le_bytes(bytes)).filter(|delay| *delay > 0)
}

/// A member, as consensus knows it: its `_id`, and its delay if it has one.
pub fn peer(member: &Configured) -> Peer {
    let mut data = member.id.to_le_bytes().to_vec();
    if let Ok(delay @ 1..) = u32::try_from(member.delay_secs) {
        data.extend(delay.to_le_bytes());
    }
    Peer {
        host: member.host.clone(),
        data,
    }
}

fn wait_on<T: Send + 'static>(
    handle: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::channel();
    handle.spawn(async move {
        // The caller waits.
        let _ = sender.send(work.await);
    });
    let ended = |_| Error::internal("a task of the member of the replica set has ended early");
    receiver.recv().map_err(ended)
}

/// The error of a command for one of consensus.
pub fn refusal(error: &frond_replica::Error) -> Error {
    use frond_replica::Error as Cause;
    let code = match error {
        Cause::NotLeading { .. } => ErrorCode::NotWritablePrimary,
        Cause::LeadershipLost => ErrorCode::InterruptedDueToReplStateChange,
        Cause::NoMajority | Cause::TimedOut => ErrorCode::ExceededTimeLimit,
        Cause::ChangeInProgress => ErrorCode::ConfigurationInProgress,
        Cause::Invalid(_) => ErrorCode::CommandFailed,
        Cause::Ended(_) | Cause::Log(_) => ErrorCode::InternalError,
    };
    Error::new(code, error.to_string())
}
