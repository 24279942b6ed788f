//! The positions that a read waits for on a member.

use frond_bson::Timestamp;
use frond_error::{Error, ErrorCode, Result};

use crate::state::State;

/// The level of a read concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadLevel {
    /// `local` and `available`.
    Local,
    Majority,
    Snapshot,
    Linearizable,
}

/// A read concern, already checked for fields that exclude each other.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest {
    /// The level; `local` where the request names none.
    pub level: ReadLevel,
    /// `afterClusterTime`.
    pub after: Option<Timestamp>,
    /// `atClusterTime`.
    pub at: Option<Timestamp>,
}

/// A member that is asked to serve a read.
#[derive(Clone, Copy, Debug)]
pub struct Serving {
    /// Its state at the start of the read.
    pub state: State,
    /// Whether it takes writes.
    pub takes_writes: bool,
    /// The largest cluster time that it knows, which the request may have raised.
    pub cluster_time: Timestamp,
}

/// Conditions that must hold before the member reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// It has applied what was written by this time.
    pub applied: Option<Timestamp>,
    /// A majority has what was written by this time.
    pub majority: Option<Timestamp>,
    /// A majority confirmed, after the read began, that it is still the primary.
    pub leadership: bool,
}

impl Waits {
    /// Whether a member at these positions reads at once.
    pub fn are_over(&self, applied: Timestamp, majority: Timestamp) -> bool {
        !self.leadership
            && self.applied.is_none_or(|time| applied >= time)
            && self.majority.is_none_or(|time| majority >= time)
    }
}

impl ReadRequest {
    /// Conditions that must hold before the member reads.
    ///
    /// # Errors
    /// `NotWritablePrimary` (10107) for `linearizable` on another member than the primary, `InvalidOptions` (72) for a time
    /// that the cluster has not reached.
    pub fn waits(&self, member: &Serving) -> Result<Waits> {
        let is_primary = member.state == State::Primary && member.takes_writes;
        if self.level == ReadLevel::Linearizable && !is_primary {
            return Err(Error::new(
                ErrorCode::NotWritablePrimary,
                "cannot satisfy linearizable read concern on non-primary node",
            ));
        }
        for (name, time) in [("afterClusterTime", self.after), ("atClusterTime", self.at)] {
            if let Some(time) = time.filter(|time| *time > member.cluster_time) {
                return Err(Error::new(
                    ErrorCode::InvalidOptions,
                    format!(
                        "readConcern {name} value must not be greater than the current clusterTime. Requested \
                         clusterTime: {}; current clusterTime: {}",
                        shown(time),
                        shown(member.cluster_time)
                    ),
                ));
            }
        }
        let time = self.after.max(self.at);
        Ok(match self.level {
            ReadLevel::Local => Waits {
                applied: time,
                ..Waits::default()
            },
            ReadLevel::Majority | ReadLevel::Snapshot => Waits {
                majority: time,
                ..Waits::default()
            },
            ReadLevel::Linearizable => Waits {
                leadership: true,
                ..Waits::default()
            },
        })
    }
}

fn shown(time: Timestamp) -> String {
    format!("Timestamp({}, {})", time.time, time.increment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(time: u32) -> Timestamp {
        Timestamp { time, increment: 1 }
    }

    /// See the manual on read concerns and causal consistency.
    #[test]
    fn a_read_waits_for_its_time() {
        let none = Waits::default();
        let applied = Waits {
            applied: Some(time(5)),
            ..none
        };
        let majority = Waits {
            majority: Some(time(5)),
            ..none
        };
        let leadership = Waits {
            leadership: true,
            ..none
        };
        let five = Some(time(5));
        for (level, after, at, state, expected) in [
            (ReadLevel::Local, None, None, State::Secondary, Ok(none)),
            (ReadLevel::Local, five, None, State::Secondary, Ok(applied)),
            (ReadLevel::Local, five, None, State::Primary, Ok(applied)),
            (ReadLevel::Majority, None, None, State::Secondary, Ok(none)),
            (
                ReadLevel::Majority,
                five,
                None,
                State::Secondary,
                Ok(majority),
            ),
            (
                ReadLevel::Snapshot,
                None,
                five,
                State::Secondary,
                Ok(majority),
            ),
            (
                ReadLevel::Linearizable,
                None,
                None,
                State::Primary,
                Ok(leadership),
            ),
            (
                ReadLevel::Linearizable,
                None,
                None,
                State::Secondary,
                Err((
                    10107,
                    "cannot satisfy linearizable read concern on non-primary node",
                )),
            ),
            (
                ReadLevel::Local,
                Some(time(11)),
                None,
                State::Secondary,
                Err((
                    72,
                    "readConcern afterClusterTime value must not be greater than the current clusterTime. Requested \
                     clusterTime: Timestamp(11, 1); current clusterTime: Timestamp(10, 1)",
                )),
            ),
            (
                ReadLevel::Snapshot,
                None,
                Some(time(11)),
                State::Secondary,
                Err((
                    72,
                    "readConcern atClusterTime value must not be greater than the current clusterTime. Requested \
                     clusterTime: Timestamp(11, 1); current clusterTime: Timestamp(10, 1)",
                )),
            ),
        ] {
            let member = Serving {
                state,
                takes_writes: state == State::Primary,
                cluster_time: time(10),
            };
            let waits = ReadRequest { level, after, at }.waits(&member);
            let shown = waits.as_ref().map(|waits| *waits);
            let shown = shown.map_err(|e| (e.code().code(), e.message()));
            assert_eq!(shown, expected, "{level:?} {after:?} {at:?} {state:?}");
        }
    }

    #[test]
    fn waits_end() {
        let waits = Waits {
            applied: Some(time(5)),
            majority: Some(time(4)),
            leadership: false,
        };
        for (applied, majority, expected) in [(5, 4, true), (4, 4, false), (5, 3, false)] {
            assert_eq!(waits.are_over(time(applied), time(majority)), expected);
        }
        let leadership = Waits {
            leadership: true,
            ..Waits::default()
        };
        assert!(
            !leadership.are_over(time(9), time(9)) && Waits::default().are_over(time(0), time(0))
        );
    }
}
