//! Which member may stand for election, and for which one a primary steps down.

use std::fmt;

use crate::config::SetConfig;
use crate::member::Member;
use crate::position::OpTime;
use crate::state::State;

#[cfg(test)]
mod tests;

/// A member as another one knows it, from its last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub id: i32,
    /// Its state; down if it does not answer.
    pub state: State,
    /// The last operation that it applied.
    pub applied: OpTime,
}

impl Standing {
    /// Whether it answers, so that its vote can be asked for.
    pub(crate) fn is_up(self) -> bool {
        !matches!(
            self.state,
            State::Down | State::Unknown | State::Removed | State::Startup
        )
    }
}

/// The member that considers an election.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The configuration that it has.
    pub config: &'a SetConfig,
    /// Its `_id`. None if the configuration does not list it.
    pub own: Option<i32>,
    /// Its state; only a secondary may stand.
    pub state: State,
    /// The last operation that it applied.
    pub applied: OpTime,
    /// `replSetFreeze` or a step-down forbids elections until then, in milliseconds since 1970.
    pub frozen_until_ms: Option<i64>,
    /// The time now, in the same unit.
    pub now_ms: i64,
}

/// A reason why a member may not stand for election. Its text is for the log and for `replSetStepUp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The configuration does not list the member.
    NoMember,
    /// It has `priority: 0`, as hidden members, delayed ones and those without a vote have.
    NoPriority,
    /// It does not follow a primary now.
    NotSecondary(State),
    /// It may not until the time, in milliseconds since 1970.
    Frozen(i64),
    /// It sees fewer voters than a majority.
    NoMajority {
        /// The voters that it sees, itself included.
        seen: usize,
        /// The voters of a majority.
        needed: usize,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::NoMember => f.write_str("member is not in the configuration"),
            Obstacle::NoPriority => f.write_str("member has zero priority"),
            Obstacle::NotSecondary(state) => {
                write!(
                    f,
                    "member is not currently a secondary: it is {}",
                    state.name()
                )
            }
            Obstacle::Frozen(until) => {
                write!(f, "stepdown or freeze period is active until {until} ms")
            }
            Obstacle::NoMajority { seen, needed } => write!(
                f,
                "member sees {seen} voting members and needs {needed} for a majority"
            ),
        }
    }
}

impl<'a> Candidate<'a> {
    pub(crate) fn own_member(&self) -> Option<&'a Member> {
        self.own.and_then(|id| self.config.member(id))
    }
}

/// All reasons why the candidate may not stand for election; none if it may. Whether its log is long enough is for the
/// voters to say.
pub fn obstacles(candidate: &Candidate<'_>, others: &[Standing]) -> Vec<Obstacle> {
    let Some(own) = candidate.own_member() else {
        return vec![Obstacle::NoMember];
    };
    let mut found = Vec::new();
    if !own.is_electable() {
        found.push(Obstacle::NoPriority);
    }
    if candidate.state != State::Secondary {
        found.push(Obstacle::NotSecondary(candidate.state));
    }
    let frozen = candidate.frozen_until_ms;
    if let Some(until) = frozen.filter(|until| *until > candidate.now_ms) {
        found.push(Obstacle::Frozen(until));
    }
    let is_seen = |member: &&Member| {
        let answers = |other: &Standing| other.id == member.id && other.is_up();
        member.is_voter && (member.id == own.id || others.iter().any(answers))
    };
    let seen = candidate.config.members.iter().filter(is_seen).count();
    let needed = candidate.config.majority();
    if seen < needed {
        found.push(Obstacle::NoMajority { seen, needed });
    }
    found
}

/// Whether a majority of the voters, the primary included, has what the primary applied. A primary that steps down without
/// `force` waits for it.
pub fn caught_up_majority(
    config: &SetConfig,
    own: i32,
    applied: OpTime,
    others: &[Standing],
) -> bool {
    let has = |member: &&Member| {
        let caught_up =
            |other: &Standing| other.id == member.id && other.is_up() && other.applied >= applied;
        member.is_voter && (member.id == own || others.iter().any(caught_up))
    };
    config.members.iter().filter(has).count() >= config.majority()
}

/// The secondary that a primary hands over to: electable and caught up, of these the one with the highest priority, and of
/// equal ones the first of the configuration. None if there is none, or no majority is caught up.
pub fn successor(
    config: &SetConfig,
    own: i32,
    applied: OpTime,
    others: &[Standing],
) -> Option<i32> {
    if !caught_up_majority(config, own, applied, others) {
        return None;
    }
    let is_fit = |member: &&Member| {
        let follows = |other: &Standing| {
            other.id == member.id && other.state == State::Secondary && other.applied >= applied
        };
        member.id != own && member.is_electable() && others.iter().any(follows)
    };
    let fit = config.members.iter().filter(is_fit);
    // The first of equal ones: `max_by` would take the last.
    let best = fit.reduce(|best, next| {
        if next.priority > best.priority {
            next
        } else {
            best
        }
    });
    best.map(|member| member.id)
}
