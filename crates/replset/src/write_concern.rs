//! Arithmetic of write concerns: which position enough members have.

use frond_bson::{Doc, Value};
use frond_error::{Error, ErrorCode, Result};

use crate::config::{MEMBERS_MAX, SetConfig};
use crate::fields::whole;
use crate::member::Member;

#[cfg(test)]
pub(crate) mod tests;

/// The `w` of a write concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This number of members. For 0 and 1 the primary is enough.
    Members(usize),
    /// A majority of the voters.
    Majority,
    /// A mode of `getLastErrorModes`.
    Mode(String),
    /// For each tag, the number of different values that members with the write must have.
    Tags(Vec<(String, i64)>),
}

/// The members that acknowledged, for a caller that has them as a list.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged<'a>(pub &'a [i32]);

impl Acknowledged<'_> {
    /// Whether the member is one of them.
    pub fn has(&self, member: &Member) -> bool {
        self.0.contains(&member.id)
    }
}

/// A write concern after some acknowledgments.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Enough members have the write.
    Holds,
    /// More members must acknowledge.
    Waits,
    /// The configuration has not enough members or no such mode; the error is that of `writeConcernError`.
    Never(Error),
}

impl Wanted {
    /// Reads a `w`.
    ///
    /// # Errors
    /// `FailedToParse` (9).
    pub fn parse(w: &Value<'_>) -> Result<Wanted> {
        match w {
            Value::String("majority") => Ok(Wanted::Majority),
            Value::String(mode) => Ok(Wanted::Mode((*mode).to_owned())),
            Value::Document(tags) => Wanted::parse_tags(tags),
            number if number.is_number() => {
                if number.as_f64().is_some_and(f64::is_nan) {
                    return Err(Error::failed_to_parse("w cannot be NaN"));
                }
                let count = whole(number);
                usize::try_from(count)
                    .ok()
                    .filter(|count| *count <= MEMBERS_MAX)
                    .map(Wanted::Members)
                    .ok_or_else(|| {
                        Error::failed_to_parse(format!(
                            "w has to be a non-negative number and not greater than {MEMBERS_MAX}; found: {count}"
                        ))
                    })
            }
            other => Err(Error::failed_to_parse(format!(
                "w has to be a number, string, or object; found: {}",
                other.type_name()
            ))),
        }
    }

    fn parse_tags(tags: &Doc) -> Result<Wanted> {
        if tags.is_empty() {
            return Err(Error::failed_to_parse("tagged write concern requires tags"));
        }
        let count = |(tag, count): (&str, Value<'_>)| {
            if !count.is_number() {
                return Err(Error::failed_to_parse(format!(
                    "tags must be a single level document with only number values; found: {tag} of type {}",
                    count.type_name()
                )));
            }
            Ok((tag.to_owned(), whole(&count)))
        };
        let counts: Result<Vec<_>> = tags.iter().map(count).collect();
        counts.map(Wanted::Tags)
    }

    /// The last position that enough members have. `position` is that of a member, none of one that is not known.
    /// None if not enough have any. A write at or before it is acknowledged.
    ///
    /// # Errors
    /// `UnknownReplWriteConcern` (79).
    pub fn reached<P: Ord + Copy>(
        &self,
        config: &SetConfig,
        position: impl Fn(&Member) -> Option<P>,
    ) -> Result<Option<P>> {
        let tags = match self {
            Wanted::Members(count) => {
                let positions = config.members.iter().filter_map(position).collect();
                return Ok(largest(positions, (*count).max(1)));
            }
            Wanted::Majority => {
                let voters = config.members.iter().filter(|member| member.is_voter);
                return Ok(largest(
                    voters.filter_map(position).collect(),
                    config.majority(),
                ));
            }
            Wanted::Mode(name) => {
                let found = config.settings.modes.iter().find(|mode| mode.name == *name);
                &found.ok_or_else(|| unknown_mode(name))?.tags
            }
            Wanted::Tags(tags) => tags,
        };
        // The primary is at the last position of all, and a mode without tags waits for no other member.
        let mut reached = config.members.iter().filter_map(&position).max();
        for (tag, count) in tags {
            reached = reached.min(of_tag(config, tag, *count, &position, reached));
        }
        Ok(reached)
    }

    /// Whether the members for which `acknowledged` holds are enough.
    pub fn outcome(&self, config: &SetConfig, acknowledged: impl Fn(&Member) -> bool) -> Outcome {
        if let Err(error) = self.check(config) {
            return Outcome::Never(error);
        }
        match self.reached(config, |member| acknowledged(member).then_some(())) {
            Ok(Some(())) => Outcome::Holds,
            Ok(None) => Outcome::Waits,
            Err(error) => Outcome::Never(error),
        }
    }

    /// Checks whether all members together are enough.
    ///
    /// # Errors
    /// `UnsatisfiableWriteConcern` (100) if they are not, `UnknownReplWriteConcern` (79) for a mode that is not in the
    /// configuration.
    pub fn check(&self, config: &SetConfig) -> Result<()> {
        match self.reached(config, |_| Some(()))? {
            Some(()) => Ok(()),
            None => Err(Error::new(
                ErrorCode::UnsatisfiableWriteConcern,
                "Not enough data-bearing nodes",
            )),
        }
    }
}

pub(crate) fn unknown_mode(name: &str) -> Error {
    Error::new(
        ErrorCode::UnknownReplWriteConcern,
        format!("No write concern mode named '{name}' found in replica set configuration"),
    )
}

/// The position that `count` of them have.
fn largest<P: Ord + Copy>(mut positions: Vec<P>, count: usize) -> Option<P> {
    positions.sort_unstable_by(|a, b| b.cmp(a));
    positions.get(count.checked_sub(1)?).copied()
}

/// The position that members with `count` values of a tag have; `any` if that needs no member.
fn of_tag<P: Ord + Copy>(
    config: &SetConfig,
    tag: &str,
    count: i64,
    position: impl Fn(&Member) -> Option<P>,
    any: Option<P>,
) -> Option<P> {
    if count < 1 {
        return any;
    }
    // For each value, the most advanced member.
    let mut values: Vec<(&str, P)> = Vec::new();
    for member in &config.members {
        let (Some(value), Some(at)) = (member.tag(tag), position(member)) else {
            continue;
        };
        match values.iter_mut().find(|(known, _)| *known == value) {
            Some((_, best)) => *best = at.max(*best),
            None => values.push((value, at)),
        }
    }
    let positions = values.into_iter().map(|(_, at)| at).collect();
    largest(positions, usize::try_from(count).unwrap_or(usize::MAX))
}
