//! `writeConcern` and `readConcern`, for a server that is not a member of a replica set.

use frond_bson::{Doc, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_store::Durability;

use crate::arguments::whole;

/// What a write must reach before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteConcern {
    /// Whether the journal must be durable. Commands commit with [`Durability::Logged`], and the dispatcher waits at their end.
    pub durability: Durability,
    /// False for `w: 0`.
    pub acknowledged: bool,
}

impl WriteConcern {
    /// The write is applied and logged; a crash may lose the last milliseconds.
    pub const DEFAULT: WriteConcern = WriteConcern {
        durability: Durability::Logged,
        acknowledged: true,
    };

    /// Whether the client asks for no result of the write. A write that waits for the journal gets a full reply.
    pub fn is_unacknowledged(&self) -> bool {
        !self.acknowledged && self.durability != Durability::Synced
    }

    /// Reads a write concern. `journal` says whether there is a journal.
    pub fn parse(doc: &Doc, journal: bool) -> Result<WriteConcern> {
        let failed = |message: String| Error::new(ErrorCode::FailedToParse, message);
        let mut concern = WriteConcern::DEFAULT;
        let (mut majority, mut j, mut fsync) = (false, None, false);
        for (name, value) in doc.iter() {
            match name {
                "w" => match value {
                    Value::String("majority") => majority = true,
                    Value::String(tag) => {
                        return Err(Error::bad_value(format!(
                            "cannot use non-majority 'w' mode \"{tag}\" when a host is not a \
                             member of a replica set"
                        )));
                    }
                    number if number.is_number() => match whole(&number) {
                        0 => concern.acknowledged = false,
                        1 => {}
                        2..=50 => {
                            return Err(Error::bad_value(
                                "cannot use 'w' > 1 when a host is not replicated",
                            ));
                        }
                        n => {
                            return Err(failed(format!(
                                "w has to be a non-negative number and not greater than 50; \
                                 found: {n}"
                            )));
                        }
                    },
                    Value::Null | Value::Undefined => {}
                    other => {
                        return Err(failed(format!(
                            "w has to be a number, string, or object; found: {}",
                            other.type_name()
                        )));
                    }
                },
                "j" => match value {
                    Value::Bool(on) => j = Some(on),
                    Value::Null | Value::Undefined => {}
                    number if number.is_number() => j = Some(number.truthy()),
                    _ => return Err(failed("j must be numeric or boolean value".into())),
                },
                "fsync" => match value {
                    Value::Bool(_) | Value::Null | Value::Undefined => fsync = value.truthy(),
                    number if number.is_number() => fsync = number.truthy(),
                    _ => return Err(failed("fsync must be numeric or boolean value".into())),
                },
                // There are no replicas to wait for, so the limit has no effect.
                "wtimeout" if value.is_number() || value.is_nullish() => {}
                "wtimeout" => return Err(failed("wtimeout must be a number".into())),
                "provenance" => {}
                other => {
                    return Err(failed(format!("unrecognized write concern field: {other}")));
                }
            }
        }
        if fsync && j == Some(true) {
            return Err(failed("fsync and j options cannot be used together".into()));
        }
        if j == Some(true) && !journal {
            return Err(Error::bad_value(
                "cannot use 'j' option when a host does not have journaling enabled",
            ));
        }
        if j.unwrap_or((majority || fsync) && journal) {
            concern.durability = Durability::Synced;
        }
        Ok(concern)
    }
}

/// Checks a read concern. Every read sees a snapshot of committed data, so all levels that a server
/// without replicas supports are equivalent.
pub fn check_read_concern(doc: &Doc) -> Result<()> {
    for (name, value) in doc.iter() {
        match (name, value) {
            ("level", Value::String("local" | "available" | "majority")) => {}
            ("level", Value::String(level @ ("snapshot" | "linearizable"))) => {
                return Err(Error::new(
                    ErrorCode::NotAReplicaSet,
                    format!("node needs to be a replica set member to use read concern {level}"),
                ));
            }
            ("level", Value::String(other)) => {
                return Err(Error::bad_value(format!(
                    "Enumeration value '{other}' for field 'readConcern.level' is not a valid value."
                )));
            }
            ("level", value) if !value.is_nullish() => {
                return Err(Error::new(
                    ErrorCode::TypeMismatch,
                    format!(
                        "BSON field 'readConcern.level' is the wrong type '{}', expected type \
                         'string'",
                        value.type_name()
                    ),
                ));
            }
            ("level" | "provenance" | "allowTransactionTableSnapshot", _) => {}
            ("afterClusterTime" | "atClusterTime" | "afterOpTime", _) => {
                return Err(Error::new(
                    ErrorCode::IllegalOperation,
                    format!(
                        "Cannot specify '{name}' readConcern: this server is not a member of a \
                         replica set"
                    ),
                ));
            }
            _ => {
                return Err(Error::new(
                    ErrorCode::IDLUnknownField,
                    format!("BSON field 'readConcern.{name}' is an unknown field."),
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use super::*;

    #[test]
    fn write_concerns() {
        let logged = WriteConcern::DEFAULT;
        let synced = WriteConcern {
            durability: Durability::Synced,
            acknowledged: true,
        };
        let cases: Vec<(DocBuf, WriteConcern)> = vec![
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
            (
                doc! {"w": 0},
                WriteConcern {
                    acknowledged: false,
                    ..logged
                },
            ),
        ];
        for (given, expected) in cases {
            assert_eq!(
                WriteConcern::parse(&given, true).unwrap(),
                expected,
                "{given:?}"
            );
        }
        assert_eq!(
            WriteConcern::parse(&doc! {"w": "majority"}, false).unwrap(),
            logged
        );
        let wrong: Vec<(DocBuf, i32)> = vec![
            (doc! {"w": 2}, 2),
            (doc! {"w": 51}, 9),
            (doc! {"w": -1}, 9),
            (doc! {"w": "dc1"}, 2),
            (doc! {"w": true}, 9),
            (doc! {"j": "yes"}, 9),
            (doc! {"j": true, "fsync": true}, 9),
            (doc! {"wtimeout": "x"}, 9),
            (doc! {"x": 1}, 9),
        ];
        for (given, code) in wrong {
            assert_eq!(
                WriteConcern::parse(&given, true).unwrap_err().code().code(),
                code,
                "{given:?}"
            );
        }
        let failure = WriteConcern::parse(&doc! {"j": true}, false).unwrap_err();
        assert_eq!(failure.code(), ErrorCode::BadValue);
    }

    #[test]
    fn read_concerns() {
        let cases: Vec<(DocBuf, Option<i32>)> = vec![
            (doc! {}, None),
            (doc! {"level": "local"}, None),
            (doc! {"level": "majority"}, None),
            (doc! {"level": "snapshot"}, Some(123)),
            (doc! {"level": "linearizable"}, Some(123)),
            (doc! {"level": "strong"}, Some(2)),
            (doc! {"level": 1}, Some(14)),
            (doc! {"afterClusterTime": 1}, Some(20)),
            (doc! {"x": 1}, Some(40415)),
        ];
        for (given, expected) in cases {
            let code = check_read_concern(&given)
                .err()
                .map(|failure| failure.code().code());
            assert_eq!(code, expected, "{given:?}");
        }
    }
}
