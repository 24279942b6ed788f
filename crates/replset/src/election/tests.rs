#![allow(clippy::unwrap_used)]

use frond_bson::{Timestamp, doc};

use super::*;

fn at(time: u32) -> OpTime {
    OpTime {
        term: 1,
        ts: Timestamp { time, increment: 1 },
    }
}

/// Voters 0 to 2 of rising priority, hidden voter 3, voter 4 as 1, learner 5.
fn config() -> SetConfig {
    SetConfig::parse(&doc! {
        "_id": "rs0",
        "members": [
            {"_id": 0, "host": "a", "priority": 1},
            {"_id": 1, "host": "b", "priority": 2},
            {"_id": 2, "host": "c", "priority": 3},
            {"_id": 3, "host": "d", "priority": 0, "hidden": true},
            {"_id": 4, "host": "e", "priority": 2},
            {"_id": 5, "host": "f", "priority": 0, "votes": 0},
        ],
    })
    .unwrap()
}

/// Members at positions; with 0 they are down.
fn standings(list: &[(i32, u32)]) -> Vec<Standing> {
    let standing = |(id, time): &(i32, u32)| Standing {
        id: *id,
        state: if *time == 0 {
            State::Down
        } else {
            State::Secondary
        },
        applied: at(*time),
    };
    list.iter().map(standing).collect()
}

#[test]
fn a_member_may_stand_or_not() {
    let config = config();
    let no_priority = Obstacle::NoPriority;
    let few = Obstacle::NoMajority { seen: 2, needed: 3 };
    let all = standings(&[(0, 5), (1, 5), (2, 5), (3, 5), (4, 5)]);
    for (own, state, frozen, others, expected) in [
        (Some(0), State::Secondary, None, &*all, vec![]),
        (Some(0), State::Secondary, Some(100), &*all, vec![]),
        (
            Some(0),
            State::Secondary,
            Some(101),
            &*all,
            vec![Obstacle::Frozen(101)],
        ),
        (Some(3), State::Secondary, None, &*all, vec![no_priority]),
        (Some(5), State::Secondary, None, &*all, vec![no_priority]),
        (
            Some(0),
            State::Recovering,
            None,
            &*all,
            vec![Obstacle::NotSecondary(State::Recovering)],
        ),
        (
            Some(0),
            State::Secondary,
            None,
            &standings(&[(1, 5), (2, 0), (5, 5)]),
            vec![few],
        ),
        (
            Some(0),
            State::Secondary,
            None,
            &standings(&[(1, 5), (3, 5)]),
            vec![],
        ),
        (None, State::Removed, None, &*all, vec![Obstacle::NoMember]),
    ] {
        let candidate = Candidate {
            config: &config,
            own,
            state,
            applied: at(5),
            frozen_until_ms: frozen,
            now_ms: 100,
        };
        assert_eq!(obstacles(&candidate, others), expected, "{own:?} {state:?}");
    }
}

#[test]
fn obstacles_have_texts() {
    for (obstacle, text) in [
        (Obstacle::NoMember, "member is not in the configuration"),
        (Obstacle::NoPriority, "member has zero priority"),
        (
            Obstacle::NotSecondary(State::Startup2),
            "member is not currently a secondary: it is STARTUP2",
        ),
        (
            Obstacle::Frozen(7),
            "stepdown or freeze period is active until 7 ms",
        ),
        (
            Obstacle::NoMajority { seen: 1, needed: 2 },
            "member sees 1 voting members and needs 2 for a majority",
        ),
    ] {
        assert_eq!(obstacle.to_string(), text);
    }
}

/// See the manual on `replSetStepDown`. The primary is member 0 at position 9.
#[test]
fn a_primary_finds_a_successor() {
    for (others, majority, expected) in [
        (&[(1, 9), (2, 9), (3, 9), (4, 9)][..], true, Some(2)),
        (&[(1, 9), (2, 8), (3, 9), (4, 9)], true, Some(1)),
        (&[(1, 0), (2, 8), (3, 9), (4, 9)], true, Some(4)),
        (&[(1, 8), (2, 8), (3, 9), (4, 8)], false, None),
        (&[(1, 9), (2, 8), (3, 8), (4, 8)], false, None),
        (&[(1, 9), (5, 9)], false, None),
        (&[], false, None),
    ] {
        let others = standings(others);
        let config = config();
        assert_eq!(caught_up_majority(&config, 0, at(9), &others), majority);
        assert_eq!(
            successor(&config, 0, at(9), &others),
            expected,
            "{others:?}"
        );
    }
}
