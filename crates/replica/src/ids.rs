//! Identifiers, votes and memberships, as `openraft` has them.

use frond_kv::EntryId;
use openraft::impls::leader_id_std;

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
