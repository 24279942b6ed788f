//! `writeConcern` and `readConcern`.

use std::time::Duration;

use frond_bson::{Doc, Timestamp, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_replset::{SetConfig, Wanted};
use frond_store::Durability;

use crate::arguments::{Arguments, whole};

/// The durability and the members that a write must reach before it is acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteConcern {
    /// Whether the journal must be durable. Commands commit with [`Durability::Logged`], and the dispatcher waits at their end.
    pub durability: Durability,
    /// False for `w: 0`.
    pub acknowledged: bool,
    /// The members of a replica set that must have the write.
    pub wanted: Wanted,
    /// The longest wait for them.
    pub timeout: Option<Duration>,
    /// Why the members of the set can never satisfy it. The write is done all the same.
    pub unsatisfiable: Option<Error>,
}

/// The fields of a write concern. The last three have no effect: drivers before 2015 sent a `getLastError` command as the
/// write concern, and members of a set sent the others.
const WRITE_CONCERN_FIELDS: [&str; 8] = [
    "w",
    "j",
    "wtimeout",
    "fsync",
    "provenance",
    "getLastError",
    "wOpTime",
    "wElectionId",
];

/// Where a concern may come from.
const PROVENANCES: [&str; 5] = [
    "clientSupplied",
    "implicitDefault",
    "customDefault",
    "getLastErrorDefaults",
    "internalWriteDefault",
];

/// Copies that a TiKV cluster keeps of everything, unless it is configured otherwise.
const CLUSTER_COPIES: usize = 3;

impl WriteConcern {
    /// The write is applied and logged; a crash may lose the last milliseconds.
    pub const DEFAULT: WriteConcern = WriteConcern {
        durability: Durability::Logged,
        acknowledged: true,
        wanted: Wanted::Members(1),
        timeout: None,
        unsatisfiable: None,
    };

    /// Whether the client asks for no result of the write. A write that waits for the journal gets a full reply.
    pub fn is_unacknowledged(&self) -> bool {
        !self.acknowledged && self.durability != Durability::Synced
    }

    /// Accepts up to [`CLUSTER_COPIES`] members, because the nodes of a cluster keep this number of copies.
    pub fn by_cluster(self) -> WriteConcern {
        let is_enough = matches!(self.wanted, Wanted::Members(copies) if copies <= CLUSTER_COPIES);
        WriteConcern {
            unsatisfiable: self.unsatisfiable.filter(|_| !is_enough),
            ..self
        }
    }

    /// Reads a write concern. `journal` says whether there is a journal, `set` is the configuration of the replica set.
    pub fn parse(doc: &Doc, journal: bool, set: Option<&SetConfig>) -> Result<WriteConcern> {
        let args = Arguments::new("writeConcern", doc);
        args.only(&WRITE_CONCERN_FIELDS)?;
        let mut concern = WriteConcern::DEFAULT;
        if let Some(w) = args.get("w") {
            concern.wanted = Wanted::parse(&w)?;
            check_standalone(&concern.wanted, &w, set)?;
        }
        concern.acknowledged = concern.wanted != Wanted::Members(0);
        concern.unsatisfiable = set.and_then(|set| concern.wanted.check(set).err());
        let (j, fsync) = (args.flag("j")?, args.flag("fsync")?.unwrap_or(false));
        // A value that is not a number is no limit, and neither is 0.
        let limit = args.get("wtimeout").filter(Value::is_number);
        let limit = limit.map_or(0, |limit| whole(&limit));
        if limit > i64::from(i32::MAX) {
            return Err(failed_to_parse("wtimeout must be a 32-bit integer".into()));
        }
        concern.timeout =
            (u64::try_from(limit).ok().filter(|ms| *ms > 0)).map(Duration::from_millis);
        check_provenance("writeConcern", args.str("provenance")?)?;
        if fsync && j == Some(true) {
            return Err(failed_to_parse(
                "fsync and j options cannot be used together".into(),
            ));
        }
        if j == Some(true) && !journal {
            return Err(Error::bad_value(
                "cannot use 'j' option when a host does not have journaling enabled",
            ));
        }
        let majority_syncs = set.is_none_or(|set| set.majority_is_journaled);
        let majority = concern.wanted == Wanted::Majority;
        if j.unwrap_or(((majority && majority_syncs) || fsync) && journal) {
            concern.durability = Durability::Synced;
        }
        Ok(concern)
    }
}

/// Refuses a write concern that only a replica set can have, on a server without one.
fn check_standalone(wanted: &Wanted, w: &Value<'_>, set: Option<&SetConfig>) -> Result<()> {
    match wanted {
        _ if set.is_some() => Ok(()),
        Wanted::Members(0 | 1) | Wanted::Majority => Ok(()),
        Wanted::Members(_) => Err(Error::bad_value(
            "cannot use 'w' > 1 when a host is not replicated",
        )),
        Wanted::Mode(_) | Wanted::Tags(_) => {
            let shown = match w {
                Value::Document(tags) => format!("{tags:?}"),
                _ => format!("\"{}\"", w.as_str().unwrap_or_default()),
            };
            Err(Error::bad_value(format!(
                "cannot use non-majority 'w' mode {shown} when a host is not a member of a replica set"
            )))
        }
    }
}

fn failed_to_parse(message: String) -> Error {
    Error::new(ErrorCode::FailedToParse, message)
}

/// Checks the `provenance` of a concern, which routers send to their servers.
fn check_provenance(owner: &str, provenance: Option<&str>) -> Result<()> {
    match provenance {
        Some(name) if !PROVENANCES.contains(&name) => Err(Error::bad_value(format!(
            "Enumeration value '{name}' for field '{owner}.provenance' is not a valid value."
        ))),
        _ => Ok(()),
    }
}

/// The isolation of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// `local` and `available`: what is committed. There are no other members that could take it back.
    Local,
    /// `majority`: the same, as this member is the majority.
    Majority,
    /// `snapshot`: what was committed at one time, for several reads.
    Snapshot,
    /// `linearizable`: as `majority`, and durable before the reply.
    Linearizable,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadConcern {
    /// None if the client leaves it to the server.
    pub level: Option<Level>,
    /// The read sees what was committed by this time.
    pub after: Option<Timestamp>,
    /// The read sees exactly what was committed by this time.
    pub at: Option<Timestamp>,
}

/// Where a read concern is used.
#[derive(Clone, Copy, Debug)]
pub struct ReadPlace<'a> {
    pub command: &'a str,
    /// Whether the server is a member of a replica set.
    pub replicated: bool,
    /// Whether the command is part of a transaction.
    pub in_transaction: bool,
}

fn invalid_options(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidOptions, message)
}

impl ReadConcern {
    /// Reads a read concern.
    pub fn parse(doc: &Doc, place: ReadPlace<'_>) -> Result<ReadConcern> {
        let mut concern = ReadConcern::default();
        for (name, value) in doc.iter() {
            match (name, value) {
                ("level", Value::String(level)) => {
                    concern.level = Some(place.level(level)?);
                }
                ("level", value) if !value.is_nullish() => {
                    return Err(wrong_type(name, &value, "string"));
                }
                ("level" | "provenance" | "allowTransactionTableSnapshot", _) => {}
                ("afterOpTime", _) => return Err(no_replica_set(name)),
                ("afterClusterTime" | "atClusterTime", _) if !place.replicated => {
                    return Err(no_replica_set(name));
                }
                ("afterClusterTime" | "atClusterTime", Value::Timestamp(time)) => {
                    if time == Timestamp::default() {
                        return Err(invalid_options(format!(
                            "readConcern.{name} cannot be a null timestamp"
                        )));
                    }
                    match name {
                        "atClusterTime" => concern.at = Some(time),
                        _ => concern.after = Some(time),
                    }
                }
                ("afterClusterTime" | "atClusterTime", value) => {
                    return Err(wrong_type(name, &value, "timestamp"));
                }
                _ => {
                    return Err(Error::new(
                        ErrorCode::IDLUnknownField,
                        format!("BSON field 'readConcern.{name}' is an unknown field."),
                    ));
                }
            }
        }
        concern.check()?;
        Ok(concern)
    }

    /// Checks the times against the level.
    fn check(&self) -> Result<()> {
        if self.after.is_some() && self.at.is_some() {
            return Err(invalid_options(
                "Specifying a timestamp for readConcern snapshot in a causally consistent session is not \
                 allowed: atClusterTime and afterClusterTime cannot be given together",
            ));
        }
        if self.at.is_some() && self.level != Some(Level::Snapshot) {
            return Err(invalid_options(
                "atClusterTime can only be specified with readConcern level snapshot",
            ));
        }
        if self.after.is_some() && self.level == Some(Level::Linearizable) {
            return Err(invalid_options(
                "The afterClusterTime field can be specified only with level 'majority', 'local', or \
                 'snapshot'",
            ));
        }
        Ok(())
    }
}

impl ReadPlace<'_> {
    fn level(&self, name: &str) -> Result<Level> {
        let level = match name {
            "local" | "available" => Level::Local,
            "majority" => Level::Majority,
            "snapshot" => Level::Snapshot,
            "linearizable" => Level::Linearizable,
            other => {
                return Err(Error::bad_value(format!(
                    "Enumeration value '{other}' for field 'readConcern.level' is not a valid value."
                )));
            }
        };
        if self.in_transaction {
            return match name {
                "linearizable" | "available" => Err(invalid_options(
                    "The readConcern level must be either 'local' (default), 'majority' or 'snapshot' in order to run in a transaction",
                )),
                _ => Ok(level),
            };
        }
        if matches!(level, Level::Snapshot | Level::Linearizable) && !self.replicated {
            return Err(Error::new(
                ErrorCode::NotAReplicaSet,
                format!("node needs to be a replica set member to use read concern {name}"),
            ));
        }
        let known: &[&str] = match level {
            Level::Local if name == "local" => return Ok(level),
            Level::Local | Level::Majority => {
                &["find", "aggregate", "distinct", "count", "explain"]
            }
            Level::Snapshot => &["find", "aggregate", "distinct"],
            Level::Linearizable => &["find", "aggregate", "distinct", "count"],
        };
        if known.contains(&self.command) {
            Ok(level)
        } else {
            Err(invalid_options(format!(
                "Command {} does not support {{ readConcern: {{ level: \"{name}\" }} }} outside of a transaction; \
                 use it with {}",
                self.command,
                known.join(", ")
            )))
        }
    }
}

fn wrong_type(name: &str, value: &Value<'_>, expected: &str) -> Error {
    Error::new(
        ErrorCode::TypeMismatch,
        format!(
            "BSON field 'readConcern.{name}' is the wrong type '{}', expected type '{expected}'",
            value.type_name()
        ),
    )
}

fn no_replica_set(name: &str) -> Error {
    Error::new(
        ErrorCode::IllegalOperation,
        format!(
            "Cannot specify '{name}' readConcern: this server is not a member of a replica set"
        ),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use super::*;

    #[test]
    fn write_concerns() {
        let (logged, synced) = ((Durability::Logged, true), (Durability::Synced, true));
        let cases: Vec<(DocBuf, (Durability, bool))> = vec![
            (doc! {}, logged),
            (doc! {"w": 1}, logged),
            (
                doc! {"w": 1.0, "wtimeout": 100, "provenance": "clientSupplied"},
                logged,
            ),
            (doc! {"w": 1, "j": true}, synced),
            (doc! {"j": 1}, synced),
            (doc! {"w": "majority"}, synced),
            (doc! {"w": "majority", "j": false}, logged),
            (doc! {"fsync": true}, synced),
            // mgo.
            (doc! {"getLastError": 1, "w": 1}, logged),
            (
                doc! {"getLastError": 1, "w": "majority", "wtimeout": 5, "j": true},
                synced,
            ),
            (
                doc! {"getLastError": "x", "wOpTime": {"t": 1}, "wElectionId": null},
                logged,
            ),
            // A value that is not a number is no limit.
            (doc! {"w": 1, "wtimeout": "x"}, logged),
            (doc! {"w": 1, "wtimeout": {"a": 1}}, logged),
            (doc! {"w": 1, "wtimeout": -1}, logged),
            // Null is absent.
            (
                doc! {"w": null, "j": null, "fsync": null, "wtimeout": null, "provenance": null},
                logged,
            ),
            (doc! {"w": 0}, (Durability::Logged, false)),
        ];
        for (given, expected) in cases {
            let parsed = WriteConcern::parse(&given, true, None).unwrap();
            assert_eq!(
                (parsed.durability, parsed.acknowledged),
                expected,
                "{given:?}"
            );
        }
        let parsed = WriteConcern::parse(&doc! {"w": "majority"}, false, None).unwrap();
        assert_eq!(parsed.durability, Durability::Logged);
        let limit = |given: DocBuf| WriteConcern::parse(&given, true, None).unwrap().timeout;
        assert_eq!(limit(doc! {"wtimeout": 7}), Some(Duration::from_millis(7)));
        assert_eq!(limit(doc! {"wtimeout": 0}), None);
        let wrong: Vec<(DocBuf, i32)> = vec![
            (doc! {"w": 2}, 2),
            (doc! {"w": 51}, 9),
            (doc! {"w": -1}, 9),
            (doc! {"w": "dc1"}, 2),
            (doc! {"w": true}, 9),
            (doc! {"w": f64::NAN}, 9),
            (doc! {"w": {}}, 9),
            (doc! {"w": {"dc": "x"}}, 9),
            (doc! {"w": {"dc": 1}}, 2),
            (doc! {"j": "yes"}, 14),
            (doc! {"fsync": {}}, 14),
            (doc! {"j": true, "fsync": true}, 9),
            (doc! {"wtimeout": 1i64 << 31}, 9),
            (doc! {"provenance": 1}, 14),
            (doc! {"provenance": "mars"}, 2),
            (doc! {"x": 1}, 40415),
        ];
        for (given, code) in wrong {
            assert_eq!(
                WriteConcern::parse(&given, true, None)
                    .unwrap_err()
                    .code()
                    .code(),
                code,
                "{given:?}"
            );
        }
        let failure = WriteConcern::parse(&doc! {"j": true}, false, None).unwrap_err();
        assert_eq!(failure.code(), ErrorCode::BadValue);
    }

    #[test]
    fn write_concerns_of_a_set() {
        let given = doc! {
            "_id": "rs", "version": 1, "members": [{"_id": 0, "host": "a:1", "tags": {"dc": "x"}}],
            "settings": {"getLastErrorModes": {"one": {"dc": 1}, "two": {"dc": 2}}},
        };
        let set = SetConfig::parse(&given).unwrap();
        let cases: Vec<(DocBuf, i32)> = vec![
            (doc! {"w": 1}, 0),
            (doc! {"w": 0}, 0),
            (doc! {"w": "majority"}, 0),
            (doc! {"w": 2}, 100),
            (doc! {"w": 50}, 100),
            (doc! {"w": "one"}, 0),
            (doc! {"w": "two"}, 100),
            (doc! {"w": "three"}, 79),
            (doc! {"w": {"dc": 1}}, 0),
            (doc! {"w": {"rack": 1}}, 100),
        ];
        for (given, code) in cases {
            let concern = WriteConcern::parse(&given, true, Some(&set)).unwrap();
            let error = concern.unsatisfiable.map_or(0, |error| error.code().code());
            assert_eq!(error, code, "{given:?}");
        }
        assert!(WriteConcern::parse(&doc! {"w": 51}, true, Some(&set)).is_err());
        let majority = doc! {"w": "majority"};
        let lax = doc! {
            "_id": "rs", "version": 1, "members": [{"_id": 0, "host": "a:1"}],
            "writeConcernMajorityJournalDefault": false,
        };
        let lax = SetConfig::parse(&lax).unwrap();
        for (set, durability) in [(&set, Durability::Synced), (&lax, Durability::Logged)] {
            let concern = WriteConcern::parse(&majority, true, Some(set)).unwrap();
            assert_eq!(concern.durability, durability);
        }
    }

    #[test]
    fn read_concerns() {
        let at = Timestamp {
            time: 5,
            increment: 1,
        };
        // The codes on a standalone server, as a member of a set, and in a transaction of a set.
        let cases: Vec<(DocBuf, [i32; 3])> = vec![
            (doc! {}, [0, 0, 0]),
            (doc! {"level": "local"}, [0, 0, 0]),
            (doc! {"level": "available"}, [0, 0, 72]),
            (doc! {"level": "majority"}, [0, 0, 0]),
            (doc! {"level": "snapshot"}, [123, 0, 0]),
            (doc! {"level": "linearizable"}, [123, 0, 72]),
            (doc! {"level": "strong"}, [2, 2, 2]),
            (doc! {"level": 1}, [14, 14, 14]),
            (doc! {"afterClusterTime": 1}, [20, 14, 14]),
            (doc! {"afterClusterTime": at}, [20, 0, 0]),
            (
                doc! {"afterClusterTime": Timestamp::default()},
                [20, 72, 72],
            ),
            (doc! {"atClusterTime": at}, [20, 72, 72]),
            (doc! {"level": "snapshot", "atClusterTime": at}, [123, 0, 0]),
            (
                doc! {"level": "snapshot", "afterClusterTime": at},
                [123, 0, 0],
            ),
            (
                doc! {"level": "linearizable", "afterClusterTime": at},
                [123, 72, 72],
            ),
            (
                doc! {"level": "snapshot", "atClusterTime": at, "afterClusterTime": at},
                [123, 72, 72],
            ),
            (doc! {"afterOpTime": {}}, [20, 20, 20]),
            (doc! {"x": 1}, [40415, 40415, 40415]),
        ];
        let places = [(false, false), (true, false), (true, true)];
        for (given, expected) in cases {
            let codes = places.map(|(replicated, in_transaction)| {
                let place = ReadPlace {
                    command: "find",
                    replicated,
                    in_transaction,
                };
                let parsed = ReadConcern::parse(&given, place);
                parsed.err().map_or(0, |failure| failure.code().code())
            });
            assert_eq!(codes, expected, "{given:?}");
        }
        let count = ReadPlace {
            command: "count",
            replicated: true,
            in_transaction: false,
        };
        let snapshot = ReadConcern::parse(&doc! {"level": "snapshot"}, count);
        assert_eq!(snapshot.unwrap_err().code(), ErrorCode::InvalidOptions);
        // A command that does not read accepts only the default.
        for command in ["insert", "ping"] {
            for (level, code) in [
                ("local", 0),
                ("available", 72),
                ("majority", 72),
                ("snapshot", 72),
            ] {
                let place = ReadPlace { command, ..count };
                let parsed = ReadConcern::parse(&doc! {"level": level}, place);
                let found = parsed.err().map_or(0, |failure| failure.code().code());
                assert_eq!(found, code, "{command} {level}");
            }
        }
    }
}
