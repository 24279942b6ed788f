//! When a secondary stands for election although there is a primary.

use crate::config::SetConfig;
use crate::election::{Candidate, Standing, obstacles};

/// A secondary this many seconds behind the primary is fresh enough to replace it.
const FRESH_SECONDS: u32 = 2;

/// A secondary waits up to this share of the election timeout longer, so that two do not stand at once.
const JITTER_SHARE: f64 = 0.15;

/// An election that a secondary calls while there is a primary, after a delay, if the reason then still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// It has a higher priority.
    Priority {
        /// Milliseconds until it stands.
        delay_ms: i64,
    },
    /// It has more than a new primary, which does not catch up in time.
    CatchUp {
        /// Milliseconds until it stands.
        delay_ms: i64,
    },
}

/// The number of members with a higher priority.
pub fn priority_rank(config: &SetConfig, priority: f64) -> usize {
    let higher = config.members.iter().filter(|m| m.priority > priority);
    higher.count()
}

/// Whether the candidate should take over from the primary. `catches_up` says whether that still waits for what others have;
/// then only a member with more takes over, and not one with a higher priority. `random` spreads the delays.
pub fn takeover(
    candidate: &Candidate<'_>,
    primary: Standing,
    others: &[Standing],
    catches_up: bool,
    random: u32,
) -> Option<Takeover> {
    let own = candidate.own_member()?;
    if own.id == primary.id || !obstacles(candidate, others).is_empty() {
        return None;
    }
    let settings = &candidate.config.settings;
    if catches_up {
        let is_ahead = candidate.applied > primary.applied;
        let is_first = others
            .iter()
            .filter(|other| other.is_up())
            .all(|other| other.applied <= candidate.applied);
        let delay_ms = i64::from(settings.catch_up_takeover_delay_ms);
        // A delay of -1 turns it off.
        return (is_ahead && is_first && delay_ms >= 0).then_some(Takeover::CatchUp { delay_ms });
    }
    let theirs = candidate.config.member(primary.id)?.priority;
    let behind = primary
        .applied
        .ts
        .time
        .saturating_sub(candidate.applied.ts.time);
    if own.priority <= theirs || behind > FRESH_SECONDS {
        return None;
    }
    let timeout = f64::from(settings.election_timeout_ms);
    let rank = priority_rank(candidate.config, own.priority);
    let jitter = timeout * JITTER_SHARE * (f64::from(random) / f64::from(u32::MAX));
    Some(Takeover::Priority {
        delay_ms: ((rank as f64 + 1.0) * timeout + jitter) as i64,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{Timestamp, doc};

    use super::*;
    use crate::position::OpTime;
    use crate::state::State;

    fn at(term: i64, time: u32) -> OpTime {
        OpTime {
            term,
            ts: Timestamp { time, increment: 1 },
        }
    }

    fn config(delay: i32) -> SetConfig {
        SetConfig::parse(&doc! {
            "_id": "rs0",
            "members": [
                {"_id": 0, "host": "a", "priority": 1},
                {"_id": 1, "host": "b", "priority": 2},
                {"_id": 2, "host": "c", "priority": 5},
                {"_id": 3, "host": "d", "priority": 0},
            ],
            "settings": {"catchUpTakeoverDelayMillis": delay},
        })
        .unwrap()
    }

    fn standing(id: i32, state: State, applied: OpTime) -> Standing {
        Standing { id, state, applied }
    }

    /// See the manual on the priorities of members and on `catchUpTakeoverDelayMillis`.
    #[test]
    fn a_secondary_takes_over() {
        let up = State::Secondary;
        let priority = |delay_ms| Some(Takeover::Priority { delay_ms });
        let cases = [
            // The member, its position, that of primary 0, whether that catches up, and the takeover.
            (1, at(1, 100), at(1, 100), false, priority(2000)),
            (2, at(1, 100), at(1, 100), false, priority(1000)),
            (2, at(1, 98), at(1, 100), false, priority(1000)),
            (2, at(1, 97), at(1, 100), false, None),
            (3, at(1, 100), at(1, 100), false, None),
            (0, at(1, 100), at(1, 100), false, None),
            (2, at(1, 100), at(1, 100), true, None),
            (
                1,
                at(1, 101),
                at(1, 100),
                true,
                Some(Takeover::CatchUp { delay_ms: 30_000 }),
            ),
            (3, at(1, 101), at(1, 100), true, None),
        ];
        let config = config(30_000);
        for (own, applied, primary, catches_up, expected) in cases {
            let candidate = Candidate {
                config: &config,
                own: Some(own),
                state: up,
                applied,
                frozen_until_ms: None,
                now_ms: 0,
            };
            let primary = standing(0, State::Primary, primary);
            let others = [
                primary,
                standing((own % 3) + 1, up, at(1, 100)),
                standing(3, up, at(1, 100)),
            ];
            let found = takeover(&candidate, primary, &others, catches_up, 0);
            assert_eq!(found, expected, "{own} {applied:?} {catches_up}");
        }
    }

    #[test]
    fn a_more_advanced_member_comes_first_and_a_delay_of_minus_one_is_for_ever() {
        for (delay, other, expected) in [(100, 50, true), (100, 102, false), (-1, 50, false)] {
            let config = config(delay);
            let candidate = Candidate {
                config: &config,
                own: Some(1),
                state: State::Secondary,
                applied: at(1, 101),
                frozen_until_ms: None,
                now_ms: 0,
            };
            let primary = standing(0, State::Primary, at(1, 100));
            let others = [primary, standing(2, State::Secondary, at(1, other))];
            let found = takeover(&candidate, primary, &others, true, 0);
            assert_eq!(found.is_some(), expected, "{delay} {other}");
        }
    }

    #[test]
    fn delays_are_spread() {
        let config = config(0);
        let candidate = Candidate {
            config: &config,
            own: Some(2),
            state: State::Secondary,
            applied: at(1, 1),
            frozen_until_ms: None,
            now_ms: 0,
        };
        let primary = standing(0, State::Primary, at(1, 1));
        let others = [primary, standing(1, State::Secondary, at(1, 1))];
        assert_eq!(
            takeover(&candidate, primary, &others, false, u32::MAX),
            Some(Takeover::Priority { delay_ms: 1150 })
        );
    }
}
