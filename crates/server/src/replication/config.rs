//! The configuration of a replica set with one member: read, checked and completed as MongoDB does.

use frond_bson::{Doc, DocBuf, ObjectId, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_replset::with_port;

use crate::arguments::whole;

/// Added to the version by a forced change, so that it is above every version that another node may know.
const FORCED_STEP: i64 = 10_000;

/// Fields of a configuration.
const FIELDS: &[&str] = &[
    "_id",
    "version",
    "term",
    "members",
    "protocolVersion",
    "writeConcernMajorityJournalDefault",
    "settings",
    "configsvr",
];

/// Fields of a member.
const MEMBER_FIELDS: &[&str] = &[
    "_id",
    "host",
    "arbiterOnly",
    "buildIndexes",
    "hidden",
    "priority",
    "tags",
    "secondaryDelaySecs",
    "slaveDelay",
    "votes",
];

/// Settings that count in milliseconds or seconds: their names, their defaults and their smallest values.
const TIMES: &[(&str, i32, i64)] = &[
    ("heartbeatIntervalMillis", 2000, 1),
    ("heartbeatTimeoutSecs", 10, 1),
    ("electionTimeoutMillis", 10_000, 1),
    ("catchUpTimeoutMillis", -1, -1),
    ("catchUpTakeoverDelayMillis", 30_000, -1),
];

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The whole document, with all defaults.
    pub doc: DocBuf,
    /// The name of the set.
    pub name: String,
    /// Its version, which each change raises.
    pub version: i64,
    /// The number of the election that the member has won last.
    pub term: i64,
    /// The `_id` of the member.
    pub member_id: i32,
    /// Where clients reach the member.
    pub host: String,
    /// The tags of the member.
    pub tags: DocBuf,
    /// Write concerns with a name: tags to numbers of members.
    pub modes: DocBuf,
    /// Whether a write concern `majority` waits for the journal.
    pub majority_is_journaled: bool,
    pub replica_set_id: ObjectId,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidReplicaSetConfig, message)
}

fn incompatible(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::NewReplicaSetConfigurationIncompatible, message)
}

/// An optional boolean; MongoDB takes numbers, too.
fn flag(doc: &Doc, name: &str, default: bool) -> Result<bool> {
    match doc.get(name) {
        None => Ok(default),
        Some(Value::Bool(on)) => Ok(on),
        Some(number) if number.is_number() => Ok(number.truthy()),
        Some(other) => Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "Expected boolean or number type for field \"{name}\", found {}",
                other.type_name()
            ),
        )),
    }
}

/// An optional whole number.
fn integer(doc: &Doc, name: &str) -> Result<Option<i64>> {
    match doc.get(name) {
        None => Ok(None),
        Some(number) if number.is_number() => Ok(Some(whole(&number))),
        Some(other) => Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "Expected field \"{name}\" to have numeric type, but found {}",
                other.type_name()
            ),
        )),
    }
}

fn object<'a>(doc: &'a Doc, name: &str) -> Result<Option<&'a Doc>> {
    match doc.get(name) {
        None => Ok(None),
        Some(Value::Document(inner)) => Ok(Some(inner)),
        Some(other) => Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "Expected field \"{name}\" to be an object, but found {}",
                other.type_name()
            ),
        )),
    }
}

/// Refuses unknown and repeated fields.
fn only(doc: &Doc, known: &[&str], of: &str) -> Result<()> {
    for (at, (name, _)) in doc.iter().enumerate() {
        if !known.contains(&name) {
            return Err(invalid(format!(
                "Unexpected field {name} in {of}; this server knows {}",
                known.join(", ")
            )));
        }
        if doc.iter().take(at).any(|(other, _)| other == name) {
            return Err(invalid(format!("The field {name} is twice in {of}")));
        }
    }
    Ok(())
}

impl Config {
    /// The configuration of a set with default settings.
    pub fn of_one(name: &str, host: &str) -> DocBuf {
        doc! {"_id": name, "version": 1, "members": [{"_id": 0, "host": host}]}
    }

    /// Reads a document and completes it.
    ///
    /// # Errors
    /// `InvalidReplicaSetConfig` (93) and `TypeMismatch` (14).
    pub fn parse(given: &Doc, term: i64, replica_set_id: ObjectId) -> Result<Config> {
        only(given, FIELDS, "the replica set configuration")?;
        let Some(Value::String(name)) = given.get("_id") else {
            return Err(invalid(
                "the replica set configuration needs the name of the set as its _id",
            ));
        };
        if name.is_empty() {
            return Err(invalid("Replica set configuration _id must not be empty"));
        }
        let version = integer(given, "version")?.unwrap_or(1);
        if !(1..=i64::from(i32::MAX)).contains(&version) {
            return Err(invalid(format!(
                "replica set version must be between 1 and {}, not {version}",
                i32::MAX
            )));
        }
        if flag(given, "configsvr", false)? {
            return Err(invalid(
                "this server is not sharded: a replica set of config servers is not supported",
            ));
        }
        match integer(given, "protocolVersion")?.unwrap_or(1) {
            1 => {}
            other => {
                return Err(invalid(format!(
                    "protocolVersion field value of {other} is not 1, the only value that is supported"
                )));
            }
        }
        let majority_is_journaled = flag(given, "writeConcernMajorityJournalDefault", true)?;
        let member = Member::parse(sole_member(given)?)?;
        let empty = Doc::empty();
        let settings = Settings::parse(
            object(given, "settings")?.unwrap_or(empty),
            replica_set_id,
            &member.tags,
        )?;

        let mut doc = doc! {"_id": name, "version": version as i32, "term": term as i32};
        doc.push_array("members", |list| list.push(&member.doc));
        doc.push("protocolVersion", 1i64);
        doc.push("writeConcernMajorityJournalDefault", majority_is_journaled);
        doc.push("settings", &settings.doc);
        Ok(Config {
            doc,
            name: name.to_owned(),
            version,
            term,
            member_id: member.id,
            host: member.host,
            tags: member.tags,
            modes: settings.modes,
            majority_is_journaled,
            replica_set_id: settings.replica_set_id,
        })
    }

    /// The first configuration of a set with this name.
    ///
    /// # Errors
    /// As [`Config::parse`]; `NewReplicaSetConfigurationIncompatible` (103) if the version is not 1.
    pub fn first(given: &Doc, name: &str) -> Result<Config> {
        let config = Config::parse(given, 1, ObjectId::new())?;
        if config.name != name {
            return Err(invalid(format!(
                "Attempting to initiate a replica set with name {}, but command line reports {name}; rejecting",
                config.name
            )));
        }
        if config.version != 1 {
            return Err(incompatible(format!(
                "Configuration used to initiate a replica set must have version 1, but found {}",
                config.version
            )));
        }
        if object(given, "settings")?.is_some_and(|settings| settings.contains_key("replicaSetId"))
        {
            return Err(invalid(
                "replica set configuration cannot contain 'replicaSetId' field when called from \
                 replSetInitiate",
            ));
        }
        Ok(config)
    }

    /// The configuration after this one.
    ///
    /// # Errors
    /// As [`Config::parse`]; `NewReplicaSetConfigurationIncompatible` (103) for what a running set cannot change.
    pub fn next(&self, given: &Doc, force: bool) -> Result<Config> {
        let mut next = given.to_owned();
        if force {
            let version = integer(given, "version")?.unwrap_or(0).max(self.version);
            let version = (version + FORCED_STEP).min(i64::from(i32::MAX));
            next = DocBuf::new();
            for (name, value) in given.iter().filter(|(name, _)| *name != "version") {
                next.push(name, value);
            }
            next.push("version", version as i32);
        }
        let next = Config::parse(&next, self.term, self.replica_set_id)?;
        if next.name != self.name {
            return Err(incompatible(format!(
                "New and old configurations differ in replica set name; old was {}, and new is {}",
                self.name, next.name
            )));
        }
        if next.replica_set_id != self.replica_set_id {
            return Err(incompatible(format!(
                "New and old configurations differ in replica set ID; old was {}, and new is {}",
                self.replica_set_id, next.replica_set_id
            )));
        }
        if next.version <= self.version {
            return Err(incompatible(format!(
                "New replica set configuration version must be greater than old, but {} is not greater \
                 than {} for replica set {}",
                next.version, self.version, self.name
            )));
        }
        if next.host == self.host && next.member_id != self.member_id {
            return Err(incompatible(format!(
                "New and old configurations both have members with host of {} but in the new configuration \
                 the _id field is {} and in the old configuration it is {}",
                self.host, next.member_id, self.member_id
            )));
        }
        Ok(next)
    }

    /// Whether the one member is enough for a write concern with this name: true for one that it satisfies.
    /// None if there is none with this name.
    pub fn satisfies_mode(&self, name: &str) -> Option<bool> {
        self.modes.get_doc(name).map(|tags| self.satisfies(tags))
    }

    /// Whether the one member satisfies tags with numbers of members.
    pub fn satisfies(&self, tags: &Doc) -> bool {
        tags.iter()
            .all(|(tag, count)| whole(&count) <= i64::from(self.tags.contains_key(tag)))
    }
}

/// The member of a configuration that has one.
fn sole_member(config: &Doc) -> Result<&Doc> {
    let Some(Value::Array(members)) = config.get("members") else {
        return Err(invalid(
            "the replica set configuration needs a list of members",
        ));
    };
    let mut members = members.values();
    let first = members
        .next()
        .ok_or_else(|| invalid("Replica set configuration must contain at least one member"))?;
    if members.next().is_some() {
        return Err(invalid(
            "this server does not replicate: a replica set has exactly one member, this server",
        ));
    }
    match first {
        Value::Document(member) => Ok(member),
        other => Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "Expected type of members.0 to be an object, but found {}",
                other.type_name()
            ),
        )),
    }
}

struct Member {
    doc: DocBuf,
    id: i32,
    host: String,
    tags: DocBuf,
}

impl Member {
    fn parse(given: &Doc) -> Result<Member> {
        only(given, MEMBER_FIELDS, "a member of the replica set")?;
        let id = integer(given, "_id")?.ok_or_else(|| invalid("a member needs an _id"))?;
        let id = i32::try_from(id)
            .ok()
            .filter(|id| (0..=255).contains(id))
            .ok_or_else(|| {
                invalid(format!(
                    "_id field value of {id} is out of range: it must be from 0 to 255"
                ))
            })?;
        let Some(Value::String(host)) = given.get("host") else {
            return Err(invalid("a member needs a host"));
        };
        let host = with_port(host)?;
        for (name, what) in [("arbiterOnly", "an arbiter"), ("hidden", "hidden")] {
            if flag(given, name, false)? {
                return Err(invalid(format!(
                    "Found no electable member: the only member of a set cannot be {what}"
                )));
            }
        }
        if !flag(given, "buildIndexes", true)? {
            return Err(invalid(
                "priority must be 0 when buildIndexes=false, and the only member of a set needs a priority",
            ));
        }
        for name in ["secondaryDelaySecs", "slaveDelay"] {
            if integer(given, name)?.unwrap_or(0) != 0 {
                return Err(invalid(format!(
                    "priority must be 0 when {name} is used, and the only member of a set needs a priority"
                )));
            }
        }
        let priority = match given.get("priority") {
            None => 1.0,
            Some(value) => value
                .as_f64()
                .ok_or_else(|| invalid("priority must be a number"))?,
        };
        if !(0.0..=1000.0).contains(&priority) {
            return Err(invalid(format!(
                "priority field value of {priority} is out of range"
            )));
        }
        if priority == 0.0 {
            return Err(invalid(
                "Found no electable member: the only member of a set needs a priority above 0",
            ));
        }
        if integer(given, "votes")?.unwrap_or(1) != 1 {
            return Err(invalid(
                "Replica set configuration must contain at least one voting member: votes must be 1",
            ));
        }
        let tags = object(given, "tags")?.unwrap_or(Doc::empty()).to_owned();
        if let Some((tag, value)) = tags.iter().find(|(_, value)| value.as_str().is_none()) {
            return Err(Error::new(
                ErrorCode::TypeMismatch,
                format!(
                    "tags.{tag} field has non-string value of type {}",
                    value.type_name()
                ),
            ));
        }
        let mut doc = doc! {
            "_id": id, "host": &host, "arbiterOnly": false, "buildIndexes": true, "hidden": false,
        };
        if priority.fract() == 0.0 {
            doc.push("priority", priority as i32);
        } else {
            doc.push("priority", priority);
        }
        doc.push("tags", &tags);
        doc.push("secondaryDelaySecs", 0i64);
        doc.push("votes", 1);
        Ok(Member {
            doc,
            id,
            host,
            tags,
        })
    }
}

struct Settings {
    doc: DocBuf,
    modes: DocBuf,
    replica_set_id: ObjectId,
}

impl Settings {
    fn parse(given: &Doc, replica_set_id: ObjectId, tags: &Doc) -> Result<Settings> {
        let mut known = vec![
            "chainingAllowed",
            "getLastErrorModes",
            "getLastErrorDefaults",
            "replicaSetId",
        ];
        known.extend(TIMES.iter().map(|(name, _, _)| *name));
        only(given, &known, "the settings of the replica set")?;
        let replica_set_id = match given.get("replicaSetId") {
            None => replica_set_id,
            Some(Value::ObjectId(id)) => id,
            Some(other) => {
                return Err(Error::new(
                    ErrorCode::TypeMismatch,
                    format!(
                        "replicaSetId must be an ObjectId, not a {}",
                        other.type_name()
                    ),
                ));
            }
        };
        let mut doc = doc! {"chainingAllowed": flag(given, "chainingAllowed", true)?};
        for (name, default, least) in TIMES {
            let value = integer(given, name)?.unwrap_or(i64::from(*default));
            let value = i32::try_from(value)
                .ok()
                .filter(|value| i64::from(*value) >= *least)
                .ok_or_else(|| invalid(format!("{name} must be at least {least}, not {value}")))?;
            doc.push(name, value);
        }
        let modes = object(given, "getLastErrorModes")?.unwrap_or(Doc::empty());
        check_modes(modes, tags)?;
        doc.push("getLastErrorModes", modes);
        let defaults = object(given, "getLastErrorDefaults")?;
        let is_default = defaults.is_none_or(|defaults| {
            defaults.iter().all(|(name, value)| match name {
                "w" => value.as_f64() == Some(1.0),
                "wtimeout" => value.as_f64() == Some(0.0),
                _ => false,
            })
        });
        if !is_default {
            return Err(invalid(
                "Default write concern set using getLastErrorDefaults is not supported; use \
                 setDefaultRWConcern instead",
            ));
        }
        doc.push("getLastErrorDefaults", &doc! {"w": 1, "wtimeout": 0});
        doc.push("replicaSetId", replica_set_id);
        Ok(Settings {
            doc,
            modes: modes.to_owned(),
            replica_set_id,
        })
    }
}

fn check_modes(modes: &Doc, tags: &Doc) -> Result<()> {
    for (mode, constraints) in modes.iter() {
        let Value::Document(constraints) = constraints else {
            return Err(Error::new(
                ErrorCode::TypeMismatch,
                format!("Expected getLastErrorModes.{mode} to be an Object"),
            ));
        };
        for (tag, count) in constraints.iter() {
            if !count.is_number() || whole(&count) < 1 {
                return Err(Error::bad_value(format!(
                    "Value for getLastErrorModes.{mode}.{tag} must be a positive number"
                )));
            }
            if !tags.contains_key(tag) {
                return Err(Error::new(
                    ErrorCode::NoSuchKey,
                    format!(
                        "No such tag key '{tag}' among the members, but getLastErrorModes.{mode} names it"
                    ),
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn config(given: &Doc) -> Result<Config> {
        Config::first(given, "rs0")
    }

    fn code(given: &Doc) -> i32 {
        config(given).unwrap_err().code().code()
    }

    #[test]
    fn a_configuration_is_completed() {
        let config = config(&Config::of_one("rs0", "localhost:1234")).unwrap();
        let expected = doc! {
            "_id": "rs0", "version": 1, "term": 1,
            "members": [{
                "_id": 0, "host": "localhost:1234", "arbiterOnly": false, "buildIndexes": true,
                "hidden": false, "priority": 1, "tags": {}, "secondaryDelaySecs": 0i64, "votes": 1,
            }],
            "protocolVersion": 1i64,
            "writeConcernMajorityJournalDefault": true,
            "settings": {
                "chainingAllowed": true, "heartbeatIntervalMillis": 2000, "heartbeatTimeoutSecs": 10,
                "electionTimeoutMillis": 10000, "catchUpTimeoutMillis": -1,
                "catchUpTakeoverDelayMillis": 30000, "getLastErrorModes": {},
                "getLastErrorDefaults": {"w": 1, "wtimeout": 0},
                "replicaSetId": config.replica_set_id,
            },
        };
        assert_eq!(config.doc, expected);
        // The stored configuration is read again.
        let again = Config::parse(&config.doc, config.term, ObjectId::new()).unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn a_configuration_without_a_version_is_the_first() {
        let given = doc! {"_id": "rs0", "members": [{"_id": 0, "host": "localhost:1234"}]};
        assert_eq!(config(&given).unwrap().version, 1);
    }

    #[test]
    fn what_one_member_cannot_be_is_refused() {
        let member = |member: DocBuf| doc! {"_id": "rs0", "version": 1, "members": [member]};
        let cases = [
            (doc! {}, 93),
            (doc! {"_id": "rs0", "version": 1}, 93),
            (doc! {"_id": "rs0", "version": 1, "members": []}, 93),
            (
                doc! {"_id": "other", "version": 1, "members": [{"_id": 0, "host": "a:1"}]},
                93,
            ),
            (
                doc! {"_id": "rs0", "version": 2, "members": [{"_id": 0, "host": "a:1"}]},
                103,
            ),
            (
                doc! {"_id": "rs0", "version": 0, "members": [{"_id": 0, "host": "a:1"}]},
                93,
            ),
            (
                doc! {"_id": "rs0", "version": 1, "members": [{"_id": 0, "host": "a:1"}, {"_id": 1, "host": "b:1"}]},
                93,
            ),
            (
                doc! {"_id": "rs0", "version": 1, "configsvr": true, "members": [{"_id": 0, "host": "a:1"}]},
                93,
            ),
            (
                doc! {"_id": "rs0", "version": 1, "x": 1, "members": [{"_id": 0, "host": "a:1"}]},
                93,
            ),
            (member(doc! {"_id": 0}), 93),
            (member(doc! {"host": "a:1"}), 93),
            (member(doc! {"_id": 256, "host": "a:1"}), 93),
            (member(doc! {"_id": 0, "host": "a:x"}), 93),
            (member(doc! {"_id": 0, "host": "a b:1"}), 93),
            (member(doc! {"_id": 0, "host": "a:1", "priority": 0}), 93),
            (
                member(doc! {"_id": 0, "host": "a:1", "arbiterOnly": true}),
                93,
            ),
            (member(doc! {"_id": 0, "host": "a:1", "hidden": true}), 93),
            (member(doc! {"_id": 0, "host": "a:1", "votes": 0}), 93),
            (
                member(doc! {"_id": 0, "host": "a:1", "secondaryDelaySecs": 5}),
                93,
            ),
            (
                member(doc! {"_id": 0, "host": "a:1", "tags": {"dc": 1}}),
                14,
            ),
            (member(doc! {"_id": 0, "host": "a:1", "horizons": {}}), 93),
        ];
        for (given, expected) in cases {
            assert_eq!(code(&given), expected, "{given:?}");
        }
        let settings = |settings: DocBuf| {
            doc! {"_id": "rs0", "version": 1, "members": [{"_id": 0, "host": "a:1"}], "settings": settings}
        };
        for (given, expected) in [
            (doc! {"electionTimeoutMillis": 0}, 93),
            (doc! {"getLastErrorDefaults": {"w": 2}}, 93),
            (doc! {"getLastErrorModes": {"m": {"dc": 1}}}, 4),
            (doc! {"replicaSetId": ObjectId::new()}, 93),
            (doc! {"x": 1}, 93),
        ] {
            assert_eq!(code(&settings(given.clone())), expected, "{given:?}");
        }
    }

    #[test]
    fn hosts_get_a_port() {
        for (given, expected) in [
            ("a", "a:27017"),
            ("a.b:1", "a.b:1"),
            ("[::1]:5", "[::1]:5"),
            ("[::1]", "[::1]:27017"),
        ] {
            assert_eq!(with_port(given).unwrap(), expected);
        }
        for wrong in ["", ":1", "a:", "a:0", "a:70000", "::1", "a,b"] {
            assert!(with_port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_change_raises_the_version() {
        let old = config(&Config::of_one("rs0", "a:1")).unwrap();
        let given = doc! {
            "_id": "rs0", "version": 2, "members": [{"_id": 0, "host": "b:1", "tags": {"dc": "x"}}],
            "settings": {"getLastErrorModes": {"one": {"dc": 1}, "two": {"dc": 2}}},
        };
        let new = old.next(&given, false).unwrap();
        assert_eq!((new.version, &*new.host, new.term), (2, "b:1", 1));
        assert_eq!(new.replica_set_id, old.replica_set_id);
        assert_eq!(new.satisfies_mode("one"), Some(true));
        assert_eq!(new.satisfies_mode("two"), Some(false));
        assert_eq!(new.satisfies_mode("three"), None);
        assert!(new.satisfies(&doc! {"dc": 1}) && !new.satisfies(&doc! {"rack": 1}));
        let same = doc! {"_id": "rs0", "version": 1, "members": [{"_id": 0, "host": "a:1"}]};
        assert_eq!(old.next(&same, false).unwrap_err().code().code(), 103);
        assert!(old.next(&same, true).unwrap().version > 10_000);
        for wrong in [
            doc! {"_id": "x", "version": 2, "members": [{"_id": 0, "host": "a:1"}]},
            doc! {"_id": "rs0", "version": 2, "members": [{"_id": 1, "host": "a:1"}]},
            doc! {
                "_id": "rs0", "version": 2, "members": [{"_id": 0, "host": "a:1"}],
                "settings": {"replicaSetId": ObjectId::new()},
            },
        ] {
            assert_eq!(old.next(&wrong, false).unwrap_err().code().code(), 103);
        }
    }
}
