//! Settings of a configuration.

use frond_bson::{Doc, DocBuf, ObjectId, Value, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::fields::{flag, integer, invalid, object, only};
use crate::member::{Member, tag_count};

/// Names that write concerns and commit quorums have for themselves.
const RESERVED_MODES: &[&str] = &["majority", "votingMembers"];

/// A write concern with a name: for each tag, the number of values that must acknowledge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Given as `w`.
    pub name: String,
    /// Tags with numbers of their values.
    pub tags: Vec<(String, i64)>,
}

/// Settings, with MongoDB's names and defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Kept for clients that read it. Each member receives the log from the primary, so none is a link of a chain.
    pub chaining_allowed: bool,
    /// The pause between two heartbeats.
    pub heartbeat_interval_ms: i32,
    /// The time without an answer after which a member is down.
    pub heartbeat_timeout_secs: i32,
    /// The time without a primary after which a member stands for election.
    pub election_timeout_ms: i32,
    /// The longest time that a new primary waits for what others have; -1 is without a limit.
    pub catch_up_timeout_ms: i32,
    /// The time for which a more advanced member lets a new primary catch up; -1 is for ever.
    pub catch_up_takeover_delay_ms: i32,
    /// Write concerns with names.
    pub modes: Vec<Mode>,
    /// Set once, when the set is initiated.
    pub replica_set_id: Option<ObjectId>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            chaining_allowed: true,
            heartbeat_interval_ms: 2000,
            heartbeat_timeout_secs: 10,
            // MongoDB's is 10 seconds. The primary is missed soon, because a vote is refused while the others hear of it.
            election_timeout_ms: 1000,
            catch_up_timeout_ms: -1,
            catch_up_takeover_delay_ms: 30_000,
            modes: Vec::new(),
            replica_set_id: None,
        }
    }
}

/// An optional number that counts time.
fn time(given: &Doc, name: &str, default: i32, least: i32) -> Result<i32> {
    let value = integer(given, name)?.unwrap_or(i64::from(default));
    i32::try_from(value)
        .ok()
        .filter(|value| *value >= least)
        .ok_or_else(|| invalid(format!("{name} must be at least {least}, not {value}")))
}

impl Settings {
    pub(crate) fn parse(given: &Doc, members: &[Member]) -> Result<Settings> {
        let known = [
            "chainingAllowed",
            "heartbeatIntervalMillis",
            "heartbeatTimeoutSecs",
            "electionTimeoutMillis",
            "catchUpTimeoutMillis",
            "catchUpTakeoverDelayMillis",
            "getLastErrorModes",
            "getLastErrorDefaults",
            "replicaSetId",
        ];
        only(given, &known, "the settings of the replica set")?;
        let replica_set_id = match given.get("replicaSetId") {
            None => None,
            Some(Value::ObjectId(id)) => Some(id),
            Some(other) => {
                return Err(Error::type_mismatch(format!(
                    "replicaSetId must be an ObjectId, not a {}",
                    other.type_name()
                )));
            }
        };
        check_defaults(object(given, "getLastErrorDefaults")?)?;
        let default = Settings::default();
        Ok(Settings {
            chaining_allowed: flag(given, "chainingAllowed", default.chaining_allowed)?,
            heartbeat_interval_ms: time(
                given,
                "heartbeatIntervalMillis",
                default.heartbeat_interval_ms,
                1,
            )?,
            heartbeat_timeout_secs: time(
                given,
                "heartbeatTimeoutSecs",
                default.heartbeat_timeout_secs,
                1,
            )?,
            election_timeout_ms: time(
                given,
                "electionTimeoutMillis",
                default.election_timeout_ms,
                1,
            )?,
            catch_up_timeout_ms: time(
                given,
                "catchUpTimeoutMillis",
                default.catch_up_timeout_ms,
                -1,
            )?,
            catch_up_takeover_delay_ms: time(
                given,
                "catchUpTakeoverDelayMillis",
                default.catch_up_takeover_delay_ms,
                -1,
            )?,
            modes: modes(
                object(given, "getLastErrorModes")?.unwrap_or(Doc::empty()),
                members,
            )?,
            replica_set_id,
        })
    }

    /// The settings with all fields.
    pub fn to_doc(&self) -> DocBuf {
        let mut doc = doc! {
            "chainingAllowed": self.chaining_allowed,
            "heartbeatIntervalMillis": self.heartbeat_interval_ms,
            "heartbeatTimeoutSecs": self.heartbeat_timeout_secs,
            "electionTimeoutMillis": self.election_timeout_ms,
            "catchUpTimeoutMillis": self.catch_up_timeout_ms,
            "catchUpTakeoverDelayMillis": self.catch_up_takeover_delay_ms,
        };
        doc.push_doc("getLastErrorModes", |modes| {
            for mode in &self.modes {
                modes.push_doc(&mode.name, |tags| {
                    for (tag, count) in &mode.tags {
                        match i32::try_from(*count) {
                            Ok(count) => tags.push(tag, count),
                            Err(_) => tags.push(tag, *count),
                        }
                    }
                });
            }
        });
        doc.push("getLastErrorDefaults", &doc! {"w": 1, "wtimeout": 0});
        if let Some(id) = self.replica_set_id {
            doc.push("replicaSetId", id);
        }
        doc
    }
}

fn modes(given: &Doc, members: &[Member]) -> Result<Vec<Mode>> {
    let mut modes = Vec::new();
    for (name, constraints) in given.iter() {
        let Value::Document(constraints) = constraints else {
            return Err(Error::type_mismatch(format!(
                "Expected getLastErrorModes.{name} to be an Object"
            )));
        };
        if RESERVED_MODES.contains(&name) {
            return Err(invalid(format!(
                "getLastErrorModes.{name}: this name has a meaning of its own as a write concern; choose another"
            )));
        }
        let mut tags = Vec::new();
        for (tag, count) in constraints.iter() {
            let Some(count) = tag_count(&count) else {
                return Err(Error::bad_value(format!(
                    "Value for getLastErrorModes.{name}.{tag} must be a positive number"
                )));
            };
            if !members.iter().any(|member| member.tag(tag).is_some()) {
                return Err(Error::new(
                    ErrorCode::NoSuchKey,
                    format!(
                        "No such tag key '{tag}' among the members, but getLastErrorModes.{name} names it"
                    ),
                ));
            }
            tags.push((tag.to_owned(), count));
        }
        modes.push(Mode {
            name: name.to_owned(),
            tags,
        });
    }
    let mut names: Vec<&str> = modes.iter().map(|mode| &*mode.name).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(invalid(format!(
            "getLastErrorModes contains multiple fields named {}",
            pair[0]
        )));
    }
    Ok(modes)
}

/// MongoDB 5 and later permit only the values that mean no default.
fn check_defaults(given: Option<&Doc>) -> Result<()> {
    let is_default = given.is_none_or(|given| {
        given.iter().all(|(name, value)| match name {
            "w" => value.as_f64() == Some(1.0),
            "wtimeout" => value.as_f64() == Some(0.0),
            _ => false,
        })
    });
    if is_default {
        return Ok(());
    }
    Err(invalid(
        "Default write concern set using getLastErrorDefaults is not supported; use \
         setDefaultRWConcern instead",
    ))
}
