//! The members of a replica set.

use std::time::Duration;

use frond_kv::EntryId;

/// The address of a member and the server's data about it. The membership contains it, so the log replicates it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peer {
    /// The address at which the others reach it.
    pub host: String,
    /// Bytes of the server, such as the document that describes the member.
    pub data: Vec<u8>,
}

/// A member of a membership that is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    pub peer: Peer,
    /// Whether it votes. One that does not is a learner: it gets everything and is never counted.
    pub votes: bool,
}

/// The leader's knowledge of another member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follower {
    pub id: u64,
    /// The last entry that it has, durably.
    pub matched: Option<EntryId>,
    /// The time since the last message was sent that it has answered.
    pub last_contact: Option<Duration>,
}
