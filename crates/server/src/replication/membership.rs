//! The members that consensus should have, by the configuration.

use std::collections::{BTreeMap, BTreeSet};

use frond_replica::{Members, Seat};
use frond_replset::SetConfig;

use super::{member_id, peer};

/// The primary's knowledge of the stores of the other members.
pub struct KnownStores<'a> {
    /// The number of the primary's own store.
    pub own: u64,
    /// The members that consensus has now.
    pub members: &'a Members,
    /// The store that the member with an `_id` has, if it answers.
    pub answering: &'a dyn Fn(i32) -> Option<u64>,
    /// Whether a store has about all of the log, so that it may vote.
    pub is_caught_up: &'a dyn Fn(u64) -> bool,
}

/// The members of consensus for a configuration, as far as they are known. A member whose store is another one than before has lost
/// its disk: the old store leaves the set, and the new one follows without a vote until it has caught up.
pub fn seats(config: &SetConfig, own_id: i32, known: &KnownStores<'_>) -> BTreeMap<u64, Seat> {
    let mut seats = BTreeMap::new();
    for member in &config.members {
        let present = || {
            let mut peers = known.members.peers.iter();
            let found = peers.find(|(_, peer)| member_id(peer) == Some(member.id));
            found.map(|(store, _)| *store)
        };
        let store = match member.id {
            id if id == own_id => Some(known.own),
            id => (known.answering)(id).or_else(present),
        };
        let Some(store) = store.filter(|store| !seats.contains_key(store)) else {
            continue;
        };
        let may_vote =
            store == known.own || known.members.is_voter(store) || (known.is_caught_up)(store);
        seats.insert(
            store,
            Seat {
                peer: peer(member),
                votes: member.is_voter && may_vote,
            },
        );
    }
    seats
}

/// Whether consensus has just these members.
pub fn are_seated(seats: &BTreeMap<u64, Seat>, members: &Members) -> bool {
    let voters: BTreeSet<u64> = (seats.iter())
        .filter(|(_, seat)| seat.votes)
        .map(|(store, _)| *store)
        .collect();
    let peers = seats.iter().map(|(store, seat)| (store, &seat.peer));
    members.voters == [voters] && members.peers.iter().eq(peers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::super::consensus::delay_secs;
    use super::*;

    fn config() -> SetConfig {
        SetConfig::parse(&doc! {
            "_id": "rs0",
            "members": [
                {"_id": 0, "host": "a:1"},
                {"_id": 1, "host": "b:1"},
                {"_id": 2, "host": "c:1", "votes": 0, "priority": 0},
            ],
        })
        .unwrap()
    }

    fn configured(id: i32, host: &str) -> frond_replset::Member {
        let member = doc! {"_id": id, "host": host, "priority": 0, "votes": 0};
        let config = doc! {"_id": "rs0", "members": [{"_id": 255, "host": "z:1"}, &member]};
        SetConfig::parse(&config).unwrap().members.remove(1)
    }

    fn members(of: &[(u64, i32, &str)], voters: &[u64]) -> Members {
        Members {
            since: None,
            voters: vec![voters.iter().copied().collect()],
            peers: (of.iter())
                .map(|(store, id, host)| (*store, peer(&configured(*id, host))))
                .collect(),
        }
    }

    fn votes(seats: &BTreeMap<u64, Seat>) -> Vec<(u64, bool)> {
        seats
            .iter()
            .map(|(store, seat)| (*store, seat.votes))
            .collect()
    }

    #[test]
    fn members_join_when_they_answer_and_vote_when_they_have_caught_up() {
        let config = config();
        let first = members(&[(10, 0, "a:1")], &[10]);
        type Answering = fn(i32) -> Option<u64>;
        let none: Answering = |_| None;
        let all: Answering = |id| Some(10 + id as u64);
        type CaughtUp = fn(u64) -> bool;
        type Votes = Vec<(u64, bool)>;
        let cases: [(Answering, CaughtUp, Votes); 3] = [
            (none, |_| false, vec![(10, true)]),
            (all, |_| false, vec![(10, true), (11, false), (12, false)]),
            (all, |_| true, vec![(10, true), (11, true), (12, false)]),
        ];
        for (answering, is_caught_up, expected) in cases {
            let known = KnownStores {
                own: 10,
                members: &first,
                answering: &answering,
                is_caught_up: &is_caught_up,
            };
            assert_eq!(votes(&seats(&config, 0, &known)), expected);
        }
    }

    #[test]
    fn a_member_stays_while_it_does_not_answer_and_another_store_replaces_a_lost_one() {
        let config = config();
        let now = members(&[(10, 0, "a:1"), (11, 1, "b:1"), (12, 2, "c:1")], &[10, 11]);
        let with = |answering: &dyn Fn(i32) -> Option<u64>| {
            let known = KnownStores {
                own: 10,
                members: &now,
                answering,
                is_caught_up: &|_| false,
            };
            seats(&config, 0, &known)
        };
        let same = with(&|_| None);
        assert!(are_seated(&same, &now));
        let other = with(&|id| (id == 1).then_some(77));
        assert_eq!(votes(&other), [(10, true), (12, false), (77, false)]);
        assert!(!are_seated(&other, &now));
        let mut delayed = config.clone();
        delayed.members[2].priority = 0.0;
        delayed.members[2].delay_secs = 3600;
        let known = KnownStores {
            own: 10,
            members: &now,
            answering: &|_| None,
            is_caught_up: &|_| false,
        };
        let late = seats(&delayed, 0, &known);
        assert!(!are_seated(&late, &now), "the delay is known to consensus");
        assert_eq!(delay_secs(&late[&12].peer), Some(3600));
        assert_eq!(member_id(&late[&12].peer), Some(2));
        assert_eq!(delay_secs(&late[&11].peer), None);
        // A host that leads back to a server that is seated already is no member of its own.
        let twice = with(&|_| Some(10));
        assert_eq!(votes(&twice), [(10, true)]);
    }
}
