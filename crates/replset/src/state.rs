//! States of a member.

/// The state of a member, with MongoDB's numbers and names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It has no configuration yet.
    Startup,
    /// It accepts writes, or will once it has caught up.
    Primary,
    /// It follows, and serves reads.
    Secondary,
    /// It has a configuration, and cannot serve reads yet or any more.
    Recovering,
    /// It copies the data of another member.
    Startup2,
    /// The member has not answered yet.
    Unknown,
    /// The member has stopped answering.
    Down,
    /// It removes writes that no majority has.
    Rollback,
    /// It is in no member's configuration any more.
    Removed,
}

impl State {
    /// The number, as in `myState`.
    pub const fn number(self) -> i32 {
        match self {
            State::Startup => 0,
            State::Primary => 1,
            State::Secondary => 2,
            State::Recovering => 3,
            State::Startup2 => 5,
            State::Unknown => 6,
            State::Down => 8,
            State::Rollback => 9,
            State::Removed => 10,
        }
    }

    /// The state with a number; unknown for one that no state has.
    pub fn of_number(number: i32) -> State {
        let all = [
            State::Startup,
            State::Primary,
            State::Secondary,
            State::Recovering,
            State::Startup2,
            State::Down,
            State::Rollback,
            State::Removed,
        ];
        let found = all.into_iter().find(|state| state.number() == number);
        found.unwrap_or(State::Unknown)
    }

    /// The name, as in `stateStr`.
    pub const fn name(self) -> &'static str {
        match self {
            State::Startup => "STARTUP",
            State::Primary => "PRIMARY",
            State::Secondary => "SECONDARY",
            State::Recovering => "RECOVERING",
            State::Startup2 => "STARTUP2",
            State::Unknown => "UNKNOWN",
            State::Down => "(not reachable/healthy)",
            State::Rollback => "ROLLBACK",
            State::Removed => "REMOVED",
        }
    }

    /// Whether a member in this state serves reads.
    pub const fn is_readable(self) -> bool {
        matches!(self, State::Primary | State::Secondary)
    }
}
