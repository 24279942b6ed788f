//! The state that the tasks of a member share.
//!
//! # Invariants of leadership
//! 1. The log accepts commits ([`Leading::is_open`]) only while the vote saved last is this member's own, granted by a majority, in
//!    a term `T` ([`Leading::elected`]). A vote is saved with the lock of [`Leading`] held, and before a foreign one is saved the log
//!    is closed. `openraft` saves a leader's vote before it appends an entry of this leader. So no entry of another leader is
//!    appended while the log accepts commits.
//! 2. It is opened only after an entry of the term `T` is applied. The first one is the blank entry, which a leader appends before
//!    all others; it has the frames that were in no entry yet. So everything that was in the log at the election is in the trees.
//!    The log itself refuses to be opened while it has entries that are not applied; then this is tried again after the next apply.
//! 3. It is closed without a foreign vote while no majority answers, while the leadership is transferred, and when the core no
//!    longer leads because the member was removed from its set. It may be opened again in the same term, unless a transfer of the
//!    leadership has begun ([`Leading::given_up`]): after that the core accepts no proposals for the rest of the term.
//! 4. The driver alone opens, and it closes the waiters before it reports the loss. So a waiter never outlives the leadership it
//!    has begun in, and events come in pairs.
//! 5. A commit that was acknowledged as committed is in the trees of this store and in an entry that is committed. While a store is
//!    open nothing leaves its trees, so a position below [`MemberLog::committed_position`] is committed with the frames that were
//!    written there, whatever has happened to the leadership meanwhile.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use frond_kv::{EntryId, MemberLog};
use openraft::async_runtime::Instant;
use openraft::async_runtime::watch::{Watch, WatchSender};
use parking_lot::Mutex;

use crate::entry::{Entry, Group, Payload};
use crate::host::{Event, Host};
use crate::ids::{Membership, StoredMembership, Vote, entry_id, log_id};
use crate::members::Peer;
use crate::note;
use crate::waiters::{Key, Waiters};
use crate::{Runtime, Settings};

/// Entries whose identifiers and memberships are kept, for the state machine and for positions.
const RECENT_MAX: usize = 1 << 16;

pub(crate) type Sender<R, T> = <<R as openraft::AsyncRuntime>::Watch as Watch>::Sender<T>;
pub(crate) type Receiver<R, T> = <<R as openraft::AsyncRuntime>::Watch as Watch>::Receiver<T>;

pub(crate) struct Shared<R: Runtime> {
    pub settings: Settings,
    pub log: Arc<dyn MemberLog>,
    pub host: Arc<dyn Host>,
    leading: Mutex<Leading>,
    recent: Mutex<Recent>,
    applied: Mutex<Applied>,
    pub waiters: Mutex<Waiters>,
    vote: Mutex<Option<Vote>>,
    /// The last entry that consensus has given up. The log may have it still.
    purged: Mutex<Option<EntryId>>,
    fault: Mutex<Option<Fault>>,
    /// Changes whenever something here does that a task may wait for. A sender is not `Sync`.
    progress: Mutex<Sender<R, Progress>>,
    pub late: Mutex<Sender<R, Late>>,
    /// When the leader of this term was heard last, or this member was started.
    heard: Mutex<R::Instant>,
}

/// The progress of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The number of the last entry.
    pub last: Option<u64>,
    /// The number of entries that this member has made.
    pub sealed: u64,
    /// Counts changes elsewhere, so that a task sees each of them.
    pub changes: u64,
}

#[derive(Debug, Default)]
struct Leading {
    elected: Option<u64>,
    is_open: bool,
    /// The term in which this member gives its leadership away.
    given_up: Option<u64>,
    must_seal: bool,
}

/// The entries that wait to be applied, see `late.rs`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Late {
    /// This member, as the newest membership describes it.
    pub own: Option<Peer>,
    /// The last committed entry, if the trees lack it because it is too young.
    pub waiting: Option<EntryId>,
}

/// The progress of the state machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Applied {
    pub id: Option<EntryId>,
    pub membership: StoredMembership,
}

#[derive(Debug, Clone)]
pub(crate) enum Fault {
    MustReopen,
    Failed(String),
}

/// The last entries of the log.
#[derive(Default)]
struct Recent {
    entries: VecDeque<Known>,
    /// Ends of entries, both in the order of the log. Not all entries are here: the end of one that this member makes is known
    /// once it is read to be sent.
    ends: VecDeque<(u64, EntryId)>,
    /// The last entry that is durable.
    durable: Option<EntryId>,
    /// The last entry that changes the members, of those appended since the start.
    membership: Option<EntryId>,
}

struct Known {
    id: EntryId,
    /// Boxed, because few entries have one.
    membership: Option<Box<Membership>>,
}

/// The members of a note; none if there is no note, or no member in it.
fn membership_of(note: Option<&(EntryId, Arc<[u8]>)>) -> io::Result<StoredMembership> {
    let Some((id, bytes)) = note else {
        return Ok(StoredMembership::default());
    };
    let members = note::decode(bytes).map_err(io::Error::other)?;
    let stored = members.map(|members| StoredMembership::new(Some(log_id(*id)), members));
    Ok(stored.unwrap_or_default())
}

impl<R: Runtime> Shared<R> {
    /// The state of a log that was opened, and the members that the end of the log names.
    pub fn new(
        settings: Settings,
        log: Arc<dyn MemberLog>,
        host: Arc<dyn Host>,
    ) -> io::Result<(Shared<R>, StoredMembership)> {
        let state = log.state();
        let vote = log.vote().map_err(io::Error::other)?;
        let vote = vote.as_deref().map(note::decode_vote).transpose()?;
        let membership = membership_of(state.applied_note.as_ref())?;
        let newest = membership_of(state.last_note.as_ref())?;
        let (progress, _) = R::Watch::channel(Progress {
            last: state.last.map(|id| id.index),
            ..Progress::default()
        });
        let applied = Applied {
            id: state.applied,
            membership,
        };
        let (late, _) = R::Watch::channel(Late::default());
        let shared = Shared {
            settings,
            log,
            host,
            leading: Mutex::default(),
            recent: Mutex::new(Recent {
                durable: state.last,
                ..Recent::default()
            }),
            applied: Mutex::new(applied),
            waiters: Mutex::default(),
            vote: Mutex::new(vote),
            purged: Mutex::new(state.purged),
            fault: Mutex::default(),
            progress: Mutex::new(progress),
            late: Mutex::new(late),
            heard: Mutex::new(R::Instant::now()),
        };
        shared.note_members(newest.membership());
        Ok((shared, newest))
    }

    pub fn id(&self) -> u64 {
        self.settings.id
    }

    pub fn vote(&self) -> Option<Vote> {
        *self.vote.lock()
    }

    /// Saves a vote, and closes the log before if it is not this member's. It may block.
    pub fn save_vote(&self, vote: &Vote) -> frond_kv::Result<()> {
        let mut leading = self.leading.lock();
        let is_own = vote.committed && vote.leader_id.voted_for == self.id();
        let elected = is_own.then_some(vote.leader_id.term);
        if leading.is_open && leading.elected != elected {
            self.log.set_leading(false)?;
            leading.is_open = false;
        }
        leading.elected = None;
        leading.must_seal = false;
        self.log.save_vote(&note::encode_vote(vote))?;
        leading.elected = elected;
        *self.vote.lock() = Some(*vote);
        drop(leading);
        self.pulse();
        Ok(())
    }

    /// The term in which this member was elected, if the core has not saved another vote since.
    pub fn elected(&self) -> Option<u64> {
        self.leading.lock().elected
    }

    /// Whether the log accepts commits.
    pub fn is_open(&self) -> bool {
        self.leading.lock().is_open
    }

    /// Opens the log to commits in a term, if nothing is against it. Returns whether it is open. It may block.
    pub fn open(&self, term: u64) -> frond_kv::Result<bool> {
        let mut leading = self.leading.lock();
        if leading.elected != Some(term) || leading.given_up == Some(term) {
            return Ok(false);
        }
        if !leading.is_open {
            match self.log.set_leading(true) {
                Ok(()) => leading.is_open = true,
                // Entries that were appended after the election are not applied yet, or the first one did not have all frames.
                Err(frond_kv::Error::Failed(_)) => {
                    leading.must_seal = true;
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        leading.must_seal = false;
        Ok(true)
    }

    /// Closes the log to commits. It may block.
    pub fn close(&self) -> frond_kv::Result<()> {
        let mut leading = self.leading.lock();
        if leading.is_open {
            self.log.set_leading(false)?;
            leading.is_open = false;
        }
        Ok(())
    }

    /// Keeps the log closed for the rest of a term, or until [`Self::take_back`]. It may block.
    pub fn give_up(&self, term: u64) -> frond_kv::Result<()> {
        self.leading.lock().given_up = Some(term);
        self.close()
    }

    pub fn take_back(&self) {
        self.leading.lock().given_up = None;
        self.pulse();
    }

    /// Wakes the tasks that wait for a change.
    pub fn pulse(&self) {
        self.progress.lock().send_if_modified(|progress| {
            progress.changes += 1;
            true
        });
    }

    /// Follows the progress of the log.
    pub fn watch_progress(&self) -> Receiver<R, Progress> {
        self.progress.lock().subscribe()
    }

    /// Notes an entry at the end of the log.
    pub fn appended(&self, id: EntryId, membership: Option<Membership>) {
        if let Some(membership) = &membership {
            self.note_members(membership);
        }
        let mut recent = self.recent.lock();
        if recent.entries.len() == RECENT_MAX {
            recent.entries.pop_front();
        }
        if membership.is_some() {
            recent.membership = Some(id);
        }
        let membership = membership.map(Box::new);
        recent.entries.push_back(Known { id, membership });
        drop(recent);
        self.progress.lock().send_if_modified(|progress| {
            progress.last = Some(id.index);
            true
        });
    }

    /// Notes that this member has made an entry of its own frames.
    pub fn sealed(&self) {
        self.progress.lock().send_if_modified(|progress| {
            progress.sealed += 1;
            true
        });
    }

    /// Notes the ends of entries that are read to be sent.
    pub fn note_ends(&self, ends: impl Iterator<Item = (EntryId, u64)>) {
        let mut recent = self.recent.lock();
        for (id, to) in ends {
            // Slow members get entries that others have got before.
            if recent.ends.back().is_some_and(|(_, last)| *last >= id) {
                continue;
            }
            if recent.ends.len() == RECENT_MAX {
                recent.ends.pop_front();
            }
            recent.ends.push_back((to, id));
        }
    }

    /// Notes a message of the leader of this term.
    pub fn heard_leader(&self) {
        *self.heard.lock() = R::Instant::now();
    }

    /// Whether the leader was heard within an election timeout.
    pub fn hears_leader(&self) -> bool {
        self.heard.lock().elapsed() < self.settings.election_timeout
    }

    /// Whether an entry that was appended since the start is still in the log, as far as is remembered.
    pub fn has(&self, id: EntryId) -> bool {
        let recent = self.recent.lock();
        match recent.entries.front() {
            Some(front) if front.id <= id => {
                let at = recent.entries.partition_point(|known| known.id < id);
                recent.entries.get(at).is_some_and(|known| known.id == id)
            }
            Some(_) => recent.entries.len() == RECENT_MAX,
            None => false,
        }
    }

    /// The number of entries that this member has made.
    pub fn seals(&self) -> u64 {
        self.progress.lock().borrow_watched().sealed
    }

    /// Whether frames wait for an entry, although the log reports none because it is closed.
    pub fn must_seal(&self) -> bool {
        self.leading.lock().must_seal
    }

    pub fn truncated(&self, last: Option<EntryId>) {
        let mut recent = self.recent.lock();
        while recent
            .entries
            .back()
            .is_some_and(|known| Some(known.id) > last)
        {
            recent.entries.pop_back();
        }
        while recent.ends.back().is_some_and(|(_, id)| Some(*id) > last) {
            recent.ends.pop_back();
        }
        recent.durable = recent.durable.min(last);
        drop(recent);
        self.progress.lock().send_if_modified(|progress| {
            progress.last = last.map(|id| id.index);
            true
        });
    }

    /// Notes that an entry and those before it are durable. Called by the log, so it must not wait for it.
    pub fn durable(&self, id: EntryId) {
        let mut recent = self.recent.lock();
        recent.durable = recent.durable.max(Some(id));
        let membership = recent.membership;
        drop(recent);
        if self.is_committed_alone(id, membership) && matches!(self.log.apply_own(id), Some(Ok(())))
        {
            self.waiters.lock().advance(self.log.committed_position());
        }
        if self.waiters.lock().has_spread() {
            self.pulse();
        }
    }

    /// Whether an entry that is durable here is committed by that: it is of this member's own leadership, of a set without other
    /// voters. The core of consensus finds the same a moment later; until then its state machine has not applied the entry.
    fn is_committed_alone(&self, id: EntryId, last_membership: Option<EntryId>) -> bool {
        // While it is held, a vote is saved: then the core decides.
        let elected = self.leading.try_lock().and_then(|leading| leading.elected);
        if elected != Some(id.term) {
            return false;
        }
        let applied = self.applied.lock();
        // Then everything that was in the log at the election is applied, with its changes of members.
        let is_ready = (applied.id).is_some_and(|applied| applied.term == id.term);
        // A later change counts once it is in the log.
        let is_last = last_membership <= applied.membership.log_id().as_ref().map(entry_id);
        let mut voters = applied.membership.membership().voter_ids();
        is_ready && is_last && voters.all(|id| id == self.id())
    }

    pub fn last_durable(&self) -> Option<EntryId> {
        self.recent.lock().durable
    }

    /// The entry that has everything before a position, or a later one.
    pub fn entry_of(&self, position: u64) -> Option<EntryId> {
        let recent = self.recent.lock();
        let at = recent.ends.partition_point(|(to, _)| *to < position);
        recent.ends.get(at).map(|(_, id)| *id)
    }

    /// The entries from `first` to before `end` without frames, if all of them are known.
    pub fn known(&self, first: u64, end: u64) -> Option<Vec<Entry>> {
        let recent = self.recent.lock();
        let front = recent.entries.front()?.id.index;
        let at = usize::try_from(first.checked_sub(front)?).ok()?;
        let count = usize::try_from(end.checked_sub(first)?).ok()?;
        if at + count > recent.entries.len() {
            return None;
        }
        let entry = |known: &Known| Entry {
            id: log_id(known.id),
            payload: Payload {
                group: Group::Omitted,
                membership: known.membership.as_deref().cloned(),
            },
        };
        Some(recent.entries.range(at..at + count).map(entry).collect())
    }

    /// Notes what the state machine has applied, or has left for later.
    pub fn note_applied(&self, id: EntryId, membership: Option<StoredMembership>) {
        let mut applied = self.applied.lock();
        applied.id = Some(id);
        if let Some(membership) = membership {
            applied.membership = membership;
        }
    }

    /// Notes what the state machine has applied, and answers those who have waited for it.
    pub fn applied_through(&self, id: EntryId, membership: Option<StoredMembership>) {
        self.note_applied(id, membership);
        // In a set of one no entry is read to be sent.
        let position = self.log.committed_position();
        self.note_ends(std::iter::once((id, position)));
        self.trees_advanced();
    }

    /// Answers those who have waited for what is in the trees now.
    pub fn trees_advanced(&self) {
        let position = self.log.committed_position();
        self.waiters.lock().advance(position);
        self.host.event(Event::Committed { position });
        self.pulse();
    }

    /// Notes that the entries up to and with one are given up. The core treats them as purged before it purges them.
    pub fn will_purge(&self, through: EntryId) {
        let mut purged = self.purged.lock();
        *purged = (*purged).max(Some(through));
    }

    pub fn purged(&self) -> Option<EntryId> {
        *self.purged.lock()
    }

    pub fn applied(&self) -> Applied {
        self.applied.lock().clone()
    }

    pub fn applied_id(&self) -> Option<EntryId> {
        self.applied.lock().id
    }

    /// Records that the log has failed, which ends the core.
    pub fn fail(&self, error: frond_kv::Error) -> io::Error {
        let mut fault = self.fault.lock();
        if fault.is_none() {
            *fault = Some(match error {
                frond_kv::Error::MustReopen => Fault::MustReopen,
                ref other => Fault::Failed(other.to_string()),
            });
        }
        io::Error::other(error)
    }

    pub fn fault(&self) -> Option<Fault> {
        self.fault.lock().clone()
    }

    pub fn remove_waiter(&self, key: Key) {
        self.waiters.lock().remove(key);
    }
}
