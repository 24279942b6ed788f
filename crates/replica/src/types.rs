//! The types that consensus works with.

use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use frond_kv::EntryId;
use openraft::impls::{BoxedErrorSource, InlineBatch, ProgressResponder, leader_id_std};
use openraft::{OptionalSend, RaftTypeConfig};

use crate::Runtime;
use crate::entry::{Entry, Group, Payload};
use crate::members::Peer;

/// One leader for each term, so that an entry is identified by its term and its number.
pub(crate) type LeaderId = leader_id_std::LeaderId<u64, u64>;
pub(crate) type Committed = openraft::vote::leader_id_std::CommittedLeaderId<u64>;
pub(crate) type Vote = openraft::impls::Vote<LeaderId>;
pub(crate) type LogId = openraft::LogId<Committed>;
pub(crate) type Membership = openraft::Membership<u64, Peer>;
pub(crate) type StoredMembership = openraft::StoredMembership<Committed, u64, Peer>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<Committed, u64, Peer>;
pub(crate) type Snapshot = openraft::Snapshot<Committed, u64, Peer, ()>;

/// The configuration of `openraft`, over a runtime.
pub(crate) struct Types<R>(PhantomData<fn() -> R>);

impl<R: Runtime> RaftTypeConfig for Types<R> {
    type D = Group;
    type R = ();
    type NodeId = u64;
    type Node = Peer;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = Vote;
    type Payload = Payload;
    type Entry = Entry;
    type AsyncRuntime = R;
    type Responder<T>
        = ProgressResponder<Self, T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

// `derive` would require the same of the runtime.
impl<R> fmt::Debug for Types<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Types")
    }
}

impl<R> Clone for Types<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Types<R> {}

impl<R> Default for Types<R> {
    fn default() -> Self {
        Types(PhantomData)
    }
}

impl<R> PartialEq for Types<R> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<R> Eq for Types<R> {}

impl<R> PartialOrd for Types<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> Ord for Types<R> {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

pub(crate) fn log_id(id: EntryId) -> LogId {
    LogId {
        leader_id: Committed::new(id.term),
        index: id.index,
    }
}

pub(crate) fn entry_id(id: &LogId) -> EntryId {
    EntryId {
        term: id.leader_id.term,
        index: id.index,
    }
}
