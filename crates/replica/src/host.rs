//! The surroundings of a member: a network, and a server that is informed of events.

use std::future::Future;
use std::io;
use std::pin::Pin;

use frond_kv::EntryId;

use crate::members::Peer;

/// The answer to a message, once it is there.
pub type Reply = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send>>;

/// The urgency of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// A heartbeat or a vote: it is small, and a leader whose heartbeats are late loses its term. It may overtake entries.
    Control,
    /// Entries, which are as large as a commit.
    Entries,
}

/// Sends messages to other members.
pub trait Transport: Send + Sync + 'static {
    /// Sends `request` to the member `to`, where [`crate::Member::handle`] answers it. Messages may be lost, late, doubled and out of
    /// order. Those to one member in one lane should stay in order, because entries that overtake others wait for them. A message
    /// in [`Lane::Control`] should not wait for those in [`Lane::Entries`]. The future is dropped when its caller waits no more, and
    /// should then end the transport.
    fn send(&self, to: u64, peer: &Peer, lane: Lane, request: Vec<u8>) -> Reply;
}

/// Something that happened to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The log accepts commits from now on, as the log of the leader of a term.
    LeadershipGained { term: u64 },
    /// The log refuses commits, for a moment or until another election. All waits for commits have failed.
    LeadershipLost { term: u64 },
    /// This leader of a term is about to give its leadership to another member.
    HandsOver { term: u64 },
    /// The leader `from` gives its leadership to this member, which stands for election next.
    TakesOver { from: u64 },
    /// Everything up to a position is committed and in the trees.
    Committed { position: u64 },
    /// The trees have commits that the set has replaced. The member has ended. Its store has to be opened again, which leaves them
    /// out, and then a member started over it.
    MustReopen,
    /// The leader has purged entries that this member lacks, or the stores have nothing in common. The host ends this member,
    /// replaces its store by a copy of that of `from`, **saves the old store's vote in it**, and starts a member over it.
    MustResync { from: u64, purged: Option<EntryId> },
    /// The log or consensus has failed. The member has ended.
    Failed { why: String },
}

/// The server around a member.
pub trait Host: Send + Sync + 'static {
    /// Is called when something happened. It must be quick and must not call the member.
    fn event(&self, event: Event);

    /// The greatest stamp of commits that the member `peer` applies by now, if it applies them late. It must be quick.
    fn apply_limit(&self, _peer: &Peer) -> Option<u64> {
        None
    }
}
