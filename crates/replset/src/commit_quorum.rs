//! The `commitQuorum` of `createIndexes`: the voters that must have built an index before it is ready.

use frond_bson::Value;
use frond_error::{Error, ErrorCode, Result};

use crate::config::{MEMBERS_MAX, SetConfig};
use crate::fields::whole;
use crate::member::Member;
use crate::write_concern::Wanted;

/// A commit quorum, as `createIndexes` and `setIndexCommitQuorum` take it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CommitQuorum {
    /// Every voter, the default.
    #[default]
    VotingMembers,
    /// A majority of the voters.
    Majority,
    /// This number of voters. With 0 the primary decides alone.
    Voters(usize),
    /// A mode of `getLastErrorModes`.
    Mode(String),
}

impl CommitQuorum {
    /// # Errors
    /// `FailedToParse` (9).
    pub fn parse(given: &Value<'_>) -> Result<CommitQuorum> {
        match given {
            Value::String("votingMembers") => Ok(CommitQuorum::VotingMembers),
            Value::String("majority") => Ok(CommitQuorum::Majority),
            Value::String(mode) => Ok(CommitQuorum::Mode((*mode).to_owned())),
            number if number.is_number() => {
                let count = whole(number);
                usize::try_from(count)
                    .ok()
                    .filter(|count| *count <= MEMBERS_MAX)
                    .map(CommitQuorum::Voters)
                    .ok_or_else(|| {
                        Error::failed_to_parse(format!(
                            "commitQuorum has to be a non-negative number and not greater than {MEMBERS_MAX}; found: {count}"
                        ))
                    })
            }
            other => Err(Error::failed_to_parse(format!(
                "commitQuorum has to be a number or a string; found: {}",
                other.type_name()
            ))),
        }
    }

    /// Whether the members for which `is_ready` holds are enough.
    ///
    /// # Errors
    /// `UnknownReplWriteConcern` (79).
    pub fn holds(&self, config: &SetConfig, is_ready: impl Fn(&Member) -> bool) -> Result<bool> {
        let ready = |member: &&Member| member.is_voter && is_ready(member);
        let count = config.members.iter().filter(ready).count();
        Ok(match self {
            CommitQuorum::VotingMembers => count == config.voters(),
            CommitQuorum::Majority => count >= config.majority(),
            CommitQuorum::Voters(wanted) => count >= *wanted,
            CommitQuorum::Mode(mode) => Wanted::Mode(mode.clone())
                .reached(config, |member| is_ready(member).then_some(()))?
                .is_some(),
        })
    }

    /// Checks whether all members together are enough.
    ///
    /// # Errors
    /// `UnsatisfiableCommitQuorum` (278), `UnknownReplWriteConcern` (79).
    pub fn check(&self, config: &SetConfig) -> Result<()> {
        if self.holds(config, |_| true)? {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::UnsatisfiableCommitQuorum,
            "Commit quorum cannot be satisfied with the current replica set configuration",
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::write_concern::tests::five;

    #[test]
    fn quorums_are_read() {
        for (given, expected) in [
            (Value::String("votingMembers"), CommitQuorum::VotingMembers),
            (Value::String("majority"), CommitQuorum::Majority),
            (Value::String("m"), CommitQuorum::Mode("m".to_owned())),
            (Value::Int32(0), CommitQuorum::Voters(0)),
            (Value::Double(2.5), CommitQuorum::Voters(2)),
        ] {
            assert_eq!(CommitQuorum::parse(&given).unwrap(), expected);
        }
        for wrong in [Value::Int32(-1), Value::Int32(51), Value::Bool(true)] {
            assert_eq!(CommitQuorum::parse(&wrong).unwrap_err().code().code(), 9);
        }
    }

    /// The voters of the set are 0, 1 and 2. See the manual on `createIndexes`.
    #[test]
    fn voters_that_are_ready_count() {
        let config = five();
        let mode = |name: &str| CommitQuorum::Mode(name.to_owned());
        for (quorum, ready, expected) in [
            (CommitQuorum::VotingMembers, &[0, 1, 2][..], true),
            (CommitQuorum::VotingMembers, &[0, 1, 3, 4], false),
            (CommitQuorum::Majority, &[0, 1], true),
            (CommitQuorum::Majority, &[0, 3, 4], false),
            (CommitQuorum::Voters(0), &[], true),
            (CommitQuorum::Voters(1), &[2], true),
            (CommitQuorum::Voters(1), &[3], false),
            (mode("two"), &[0, 2], true),
            (mode("two"), &[0, 1], false),
        ] {
            let holds = quorum.holds(&config, |member| ready.contains(&member.id));
            assert_eq!(holds, Ok(expected), "{quorum:?} {ready:?}");
        }
    }

    #[test]
    fn quorums_that_never_hold_are_refused() {
        for (quorum, code, message) in [
            (
                CommitQuorum::Voters(4),
                278,
                "Commit quorum cannot be satisfied with the current replica set configuration",
            ),
            (
                CommitQuorum::Mode("x".to_owned()),
                79,
                "No write concern mode named 'x' found in replica set configuration",
            ),
        ] {
            let error = quorum.check(&five()).unwrap_err();
            assert_eq!((error.code().code(), error.message()), (code, message));
        }
        for fine in [CommitQuorum::VotingMembers, CommitQuorum::Voters(3)] {
            assert_eq!(fine.check(&five()), Ok(()));
        }
    }
}
