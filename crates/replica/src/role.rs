//! The part of a member in its set.

use std::collections::{BTreeMap, BTreeSet};

use frond_kv::EntryId;

use crate::ids::entry_id;
use crate::ids::{Membership, StoredMembership};
use crate::members::Peer;

/// The part of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Part {
    /// It follows and does not vote, or is in no set yet.
    #[default]
    Learner,
    /// It follows and votes.
    Follower,
    /// It stands for election.
    Candidate,
    /// It was elected. Whether it accepts commits is in [`Role::is_leading`].
    Leader,
    /// It has ended, because of an error or a call.
    Ended,
}

/// The members of a set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// The entry that has made them the members.
    pub since: Option<EntryId>,
    /// The sets of voters. While the voters change there are two, and a majority of each is needed.
    pub voters: Vec<BTreeSet<u64>>,
    /// All members, learners too.
    pub peers: BTreeMap<u64, Peer>,
}

impl Members {
    pub(crate) fn from_stored(stored: &StoredMembership) -> Members {
        let membership: &Membership = stored.membership();
        Members {
            since: stored.log_id().as_ref().map(entry_id),
            voters: membership.get_joint_config().clone(),
            peers: membership
                .nodes()
                .map(|(id, peer)| (*id, peer.clone()))
                .collect(),
        }
    }

    /// Whether `id` votes, in the old set of voters or the new one.
    #[must_use]
    pub fn is_voter(&self, id: u64) -> bool {
        self.voters.iter().any(|voters| voters.contains(&id))
    }

    /// Whether `members` contain a majority of the voters, or of both sets while they change.
    #[must_use]
    pub fn is_majority(&self, members: &BTreeSet<u64>) -> bool {
        !self.voters.is_empty()
            && self
                .voters
                .iter()
                .all(|voters| voters.intersection(members).count() > voters.len() / 2)
    }
}

/// The part of a member in its set, now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Role {
    pub part: Part,
    pub term: u64,
    /// The leader of this term, as far as this member knows, if it was heard within an election timeout.
    pub leader: Option<u64>,
    /// Whether the log accepts commits.
    pub is_leading: bool,
    pub members: Members,
    /// Whether `members` is committed.
    pub are_members_committed: bool,
    /// The number of the last entry of the log.
    pub last: Option<u64>,
    /// The last entry that this member knows to be committed.
    pub committed: Option<EntryId>,
    /// The last entry that this member has applied.
    pub applied: Option<EntryId>,
    /// The last entry that is not in the log any more.
    pub purged: Option<EntryId>,
}
