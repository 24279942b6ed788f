//! Entries as consensus sees them: an identifier, frames, and sometimes a new membership.

use std::fmt;
use std::sync::Arc;

use openraft::entry::{RaftEntry, RaftPayload};

use crate::ids::{Committed, LogId, Membership};
use crate::members::Peer;

/// The frames of an entry.
#[derive(Clone)]
pub(crate) enum Group {
    /// The first frames of this member's own log that are in no entry yet, or none. The log decides how many.
    Local,
    /// Frames that another member has sent, or that were read from the log to be sent.
    Frames {
        from: u64,
        to: u64,
        bytes: Arc<[u8]>,
    },
    /// The log has them. Consensus needs no frames to apply an entry or to find a membership.
    Omitted,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Group::Local => f.write_str("own"),
            Group::Frames { from, to, .. } => write!(f, "{from} to {to}"),
            Group::Omitted => f.write_str("omitted"),
        }
    }
}

/// The content of an entry. A new membership may come with frames.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    pub group: Group,
    pub membership: Option<Membership>,
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frames {}", self.group)?;
        match &self.membership {
            Some(membership) => write!(f, ", members {membership}"),
            None => Ok(()),
        }
    }
}

impl RaftPayload for Payload {
    type D = Group;
    type NodeId = u64;
    type Node = Peer;

    fn blank() -> Self {
        Payload {
            group: Group::Local,
            membership: None,
        }
    }

    fn with_normal(mut self, group: Group) -> Self {
        self.group = group;
        self
    }

    fn with_membership(mut self, membership: Membership) -> Self {
        self.membership = Some(membership);
        self
    }

    fn get_membership(&self) -> Option<Membership> {
        self.membership.clone()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub id: LogId,
    pub payload: Payload,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.payload)
    }
}

impl RaftEntry for Entry {
    type CommittedLeaderId = Committed;
    type Payload = Payload;

    fn new(id: LogId, payload: Payload) -> Self {
        Entry { id, payload }
    }

    fn log_id_parts(&self) -> (&Committed, u64) {
        (&self.id.leader_id, self.id.index)
    }

    fn set_log_id(&mut self, id: LogId) {
        self.id = id;
    }

    fn get_membership(&self) -> Option<Membership> {
        self.payload.membership.clone()
    }
}
