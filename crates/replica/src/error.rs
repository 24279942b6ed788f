//! Errors of a member.

use std::fmt;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// This member does not lead. The leader is named if it is known.
    NotLeading { leader: Option<u64> },
    /// The member has lost its leadership while the operation waited. Whether it has an effect is not known.
    LeadershipLost,
    /// No majority has answered in time.
    NoMajority,
    /// The time that was given is over. The operation may go on.
    TimedOut,
    /// Another change of the members is not over yet.
    ChangeInProgress,
    /// The member cannot take part in consensus any more: it was ended, or has had an error.
    Ended(String),
    /// A request or a setting that cannot be followed, and the reason.
    Invalid(String),
    /// The log has had an error.
    Log(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotLeading { leader: Some(leader) } => {
                write!(f, "this member does not lead the replica set; member {leader} does")
            }
            Error::NotLeading { leader: None } => {
                f.write_str("this member does not lead the replica set, and no leader is known")
            }
            Error::LeadershipLost => f.write_str(
                "this member has lost the leadership of the replica set; whether the operation has an effect is not known",
            ),
            Error::NoMajority => f.write_str("no majority of the replica set has answered in time"),
            Error::TimedOut => f.write_str("the operation has not ended in the time that it was given"),
            Error::ChangeInProgress => {
                f.write_str("another change of the members of the replica set is not over yet")
            }
            Error::Ended(why) => write!(f, "this member takes no part in its replica set: {why}"),
            Error::Invalid(why) => f.write_str(why),
            Error::Log(why) => write!(f, "the log of this member has failed: {why}"),
        }
    }
}

impl std::error::Error for Error {}
