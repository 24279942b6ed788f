//! `partitioned`: a collection divided by the first field of its primary key. A partition is dropped at once, with all its documents
//! and their entries in indexes.
//!
//! | form | partitions |
//! | --- | --- |
//! | `true` | one without an end; `addPartition` ends it and begins the next one |
//! | `{partitions: [{_id, max, createTime}, …], from}` | those that were added so far: how such a collection is stored and shown |
//! | `{by, every}` | one for each period of a date |

use frond_bson::{Collator, Doc, DocBuf, Value, doc};

use super::read::{Given, missing};
use super::{PrimaryKey, invalid};
use crate::error::Result;
use crate::record_layout::{PartitionId, Partitions};

/// One of the partitions that were added.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedPartition {
    pub id: u32,
    /// A document of one field: the greatest value, or none of the last partition.
    pub max: Option<DocBuf>,
    /// When it was added, in milliseconds since 1970.
    pub created_ms: i64,
}

/// The rule by which a collection is divided.
#[derive(Clone, Debug, PartialEq)]
pub enum Division {
    /// Partitions that commands add.
    Listed {
        /// The last one has no end.
        partitions: Vec<ListedPartition>,
        /// The greatest value that was in the first partitions, which were dropped: documents must be greater.
        from: Option<DocBuf>,
    },
    /// A partition for each period of this many milliseconds.
    Periods { millis: i64, every: String },
}

impl Division {
    /// Periods of this many seconds.
    pub(super) fn seconds(seconds: i64) -> Division {
        Division::Periods {
            millis: seconds * 1000,
            every: format!("{seconds}s"),
        }
    }
}

/// The option `partitioned`.
#[derive(Clone, Debug, PartialEq)]
pub struct Partitioned {
    /// The path of the first field of the primary key.
    pub by: String,
    pub division: Division,
}

/// The most partitions that are added to a collection: each may cost a search of an index.
pub const PARTITIONS_MAX: usize = 10_000;

/// The option of a request, before it is checked against the primary key.
pub(super) enum GivenPartitions {
    Off,
    Division(Option<String>, Division),
}

/// Reads the option; `partitioned: false` is as good as none.
pub(super) fn parse(given: &Given<'_>) -> Result<GivenPartitions> {
    let first = |created_ms| Division::Listed {
        partitions: vec![ListedPartition {
            id: 0,
            max: None,
            created_ms,
        }],
        from: None,
    };
    let Value::Document(options) = given.value else {
        return Ok(if given.flag()? {
            GivenPartitions::Division(None, first(0))
        } else {
            GivenPartitions::Off
        });
    };
    let (mut by, mut every, mut listed, mut from) = (None, None, None, None);
    let known = ["by", "every", "partitions", "from"];
    for inner in Given::each("create.partitioned", options, &known)? {
        match inner.name {
            "by" => by = Some(inner.str()?.to_owned()),
            "every" => every = Some(inner.str()?.to_owned()),
            "partitions" => listed = Some(read_listed(inner.array()?)?),
            _ => from = Some(inner.doc()?.to_owned()),
        }
    }
    let division = match (every, listed) {
        (Some(_), Some(_)) => {
            return Err(invalid(
                "'partitioned' cannot have both 'every' and 'partitions'",
            ));
        }
        (Some(_), None) if from.is_some() => {
            return Err(invalid("'partitioned.from' requires 'partitions'"));
        }
        (Some(every), None) => Division::Periods {
            millis: period(&every)?,
            every,
        },
        (None, Some(partitions)) => Division::Listed { partitions, from },
        (None, None) => return Err(missing("create.partitioned", "every")),
    };
    if by.is_none() && matches!(division, Division::Periods { .. }) {
        return Err(missing("create.partitioned", "by"));
    }
    Ok(GivenPartitions::Division(by, division))
}

fn read_listed(list: &Doc) -> Result<Vec<ListedPartition>> {
    let mut partitions = Vec::new();
    for value in list.values() {
        let Value::Document(one) = value else {
            return Err(invalid(
                "'partitioned.partitions' must be an array of documents",
            ));
        };
        let (mut id, mut max, mut created_ms) = (None, None, 0);
        for inner in Given::each(
            "create.partitioned.partitions",
            one,
            &["_id", "max", "createTime"],
        )? {
            match (inner.name, inner.value) {
                ("_id", _) => id = Some(inner.integer_between(0, i64::from(i32::MAX))?),
                ("max", _) => max = Some(inner.doc()?.to_owned()),
                (_, Value::DateTime(date)) => created_ms = date,
                _ => return Err(invalid("'createTime' of a partition must be a date")),
            }
        }
        let id = id.ok_or_else(|| missing("create.partitioned.partitions", "_id"))?;
        partitions.push(ListedPartition {
            id: u32::try_from(id).unwrap_or_default(),
            max,
            created_ms,
        });
    }
    Ok(partitions)
}

/// A number and a unit: `30m`.
fn period(every: &str) -> Result<i64> {
    let wrong = || {
        invalid(format!(
            "'partitioned.every' must be a number and a unit (s, m, h, d or w) such as '1h', and at most a year; it is '{every}'"
        ))
    };
    let digits = every.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: i64 = match every.get(digits.len()..) {
        Some("s") => 1,
        Some("m") => 60,
        Some("h") => 3600,
        Some("d") => 86_400,
        Some("w") => 604_800,
        _ => return Err(wrong()),
    };
    let number: i64 = digits.parse().map_err(|_| wrong())?;
    let seconds = number
        .checked_mul(unit)
        .filter(|seconds| (1..=31_622_400).contains(seconds));
    Ok(seconds.ok_or_else(wrong)? * 1000)
}

impl Partitioned {
    /// Checks the option against the primary key of the collection.
    ///
    /// # Errors
    /// `InvalidOptions` (72).
    pub(super) fn new(
        by: Option<String>,
        division: Division,
        primary_key: Option<&PrimaryKey>,
        collator: &Collator,
    ) -> Result<Partitioned> {
        let first = primary_key.and_then(|primary_key| primary_key.spec.fields.first());
        let path = first.map_or("_id", |field| &field.path);
        if first.is_some_and(|field| field.direction != frond_bson::key::Direction::Ascending) {
            return Err(invalid(
                "the first field of the primary key of a partitioned collection must be 1",
            ));
        }
        if by.is_some_and(|by| by != path) {
            return Err(invalid(format!(
                "'partitioned.by' must be the first field of 'primaryKey', '{path}'"
            )));
        }
        let partitioned = Partitioned {
            by: path.to_owned(),
            division,
        };
        partitioned.check(collator)?;
        Ok(partitioned)
    }

    /// Refuses partitions that overlap.
    fn check(&self, collator: &Collator) -> Result<()> {
        let Division::Listed { partitions, from } = &self.division else {
            return Ok(());
        };
        if partitions.len() > PARTITIONS_MAX {
            return Err(invalid(format!(
                "a collection has at most {PARTITIONS_MAX} partitions"
            )));
        }
        let Some((last, others)) = partitions.split_last() else {
            return Err(invalid("'partitioned.partitions' must have a partition"));
        };
        if last.max.is_some() {
            return Err(invalid(
                "the last of 'partitioned.partitions' must not have a 'max'",
            ));
        }
        let mut before: Option<Vec<u8>> = match from {
            Some(from) => Some(self.encode(from, collator)?),
            None => None,
        };
        for partition in others {
            let Some(max) = &partition.max else {
                return Err(invalid(
                    "only the last of 'partitioned.partitions' has no 'max'",
                ));
            };
            let max = self.encode(max, collator)?;
            if before.is_some_and(|before| before >= max) {
                return Err(invalid(format!(
                    "the partitions overlap: {} does not come after the one before",
                    crate::text::document(partition.max.as_deref().unwrap_or(Doc::empty()))
                )));
            }
            before = Some(max);
        }
        let mut ids: Vec<u32> = partitions.iter().map(|one| one.id).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() != partitions.len() {
            return Err(invalid("two of 'partitioned.partitions' have the same _id"));
        }
        Ok(())
    }

    /// The encoded value of a bound.
    ///
    /// # Errors
    /// `InvalidOptions` (72) if it is not a document with the first field of the primary key. Others may follow as `MaxKey` only.
    pub fn encode(&self, bound: &Doc, collator: &Collator) -> Result<Vec<u8>> {
        let mut fields = bound.iter();
        let value = match fields.next() {
            Some((name, value))
                if name == self.by && fields.all(|(_, rest)| rest == Value::MaxKey) =>
            {
                value
            }
            _ => {
                return Err(invalid(format!(
                    "a bound of partitions must be a document {{{}: <value>}}; it is {}",
                    self.by,
                    crate::text::document(bound)
                )));
            }
        };
        if matches!(value, Value::Array(_) | Value::MaxKey | Value::MinKey) {
            return Err(invalid(
                "a bound of partitions cannot be an array, MinKey or MaxKey",
            ));
        }
        let mut out = Vec::new();
        collator.encode(&value, &mut out);
        Ok(out)
    }

    /// The partitions by encoded values.
    ///
    /// # Errors
    /// As [`Partitioned::encode`].
    pub fn partitions(&self, collator: &Collator) -> Result<Partitions> {
        Ok(match &self.division {
            Division::Periods { millis, .. } => Partitions::Periods { millis: *millis },
            Division::Listed { partitions, from } => {
                let from = match from {
                    Some(from) => Some(self.encode(from, collator)?),
                    None => None,
                };
                let mut bounds = Vec::new();
                let mut last = PartitionId(0);
                for one in partitions {
                    let id = PartitionId(u64::from(one.id));
                    match &one.max {
                        Some(max) => bounds.push((self.encode(max, collator)?, id)),
                        None => last = id,
                    }
                }
                Partitions::Listed { from, bounds, last }
            }
        })
    }

    /// Whether its periods are given in seconds.
    pub(super) fn is_in_seconds(&self) -> bool {
        matches!(&self.division, Division::Periods { every, .. } if every.ends_with('s'))
    }

    /// The length of a period; `None` if partitions are added by commands.
    pub fn period_millis(&self) -> Option<i64> {
        match &self.division {
            Division::Periods { millis, .. } => Some(*millis),
            Division::Listed { .. } => None,
        }
    }

    /// The option as it is stored and shown.
    pub(super) fn stored(&self, out: &mut DocBuf) {
        match &self.division {
            Division::Periods { every, .. } => {
                out.push(
                    "partitioned",
                    &doc! {"by": self.by.as_str(), "every": every.as_str()},
                );
            }
            Division::Listed { partitions, from } => {
                let is_new = partitions.len() == 1
                    && from.is_none()
                    && partitions
                        .iter()
                        .all(|one| one.id == 0 && one.created_ms == 0);
                if is_new {
                    out.push("partitioned", true);
                    return;
                }
                out.push_doc("partitioned", |option| {
                    option.push_array("partitions", |list| {
                        for one in partitions {
                            list.push(&one.to_doc());
                        }
                    });
                    if let Some(from) = from {
                        option.push("from", from);
                    }
                });
            }
        }
    }
}

impl ListedPartition {
    fn to_doc(&self) -> DocBuf {
        let mut out = doc! {"_id": i64::from(self.id)};
        if let Some(max) = &self.max {
            out.push("max", max);
        }
        out.push("createTime", Value::DateTime(self.created_ms));
        out
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::options::CollectionOptions;

    #[test]
    fn periods_are_numbers_with_a_unit() {
        for (text, millis) in [
            ("1s", Some(1000)),
            ("30m", Some(1_800_000)),
            ("1h", Some(3_600_000)),
            ("7d", Some(604_800_000)),
            ("52w", Some(31_449_600_000)),
            ("0h", None),
            ("-1h", None),
            ("h", None),
            ("1", None),
            ("1 h", None),
            ("1month", None),
            ("99999999999999999999h", None),
            ("53w", None),
        ] {
            assert_eq!(period(text).ok(), millis, "{text}");
        }
    }

    #[test]
    fn partitions_are_checked_and_stored() {
        let key = doc! {"ts": 1, "_id": 1};
        let of = |partitioned: Value<'_>, key: &Doc| {
            let mut options = DocBuf::new();
            options.push("partitioned", partitioned);
            options.push("primaryKey", key);
            CollectionOptions::parse(&options).map(|parsed| parsed.stored(&options))
        };
        let hourly = doc! {"by": "ts", "every": "1h"};
        let listed = |list: &[DocBuf]| {
            let mut out = DocBuf::new();
            out.push_array("partitions", |array| {
                list.iter().for_each(|one| array.push(one))
            });
            out
        };
        let one = |id: i32, max: i32| doc! {"_id": id, "max": {"ts": max}};
        let last = |id: i32| doc! {"_id": id};
        for (option, is_good) in [
            (hourly.clone(), true),
            (doc! {"by": "_id", "every": "1h"}, false),
            (doc! {"every": "1h"}, false),
            (doc! {"by": "ts"}, false),
            (listed(&[one(0, 5), one(1, 7), last(2)]), true),
            (listed(&[one(0, 5), one(1, 5), last(2)]), false),
            (listed(&[one(0, 5), one(0, 7), last(2)]), false),
            (listed(&[one(0, 5), last(0)]), false),
            (listed(&[one(0, 5)]), false),
            (listed(&[last(0), last(1)]), false),
            (listed(&[doc! {"_id": 0, "max": {"x": 1}}, last(1)]), false),
            (listed(&[]), false),
        ] {
            let stored = of(Value::Document(&option), &key);
            assert_eq!(stored.is_ok(), is_good, "{option:?}");
            if let Ok(stored) = stored {
                let again = CollectionOptions::parse(&stored).unwrap();
                assert_eq!(again.stored(&stored), stored);
            }
        }
        assert!(
            of(Value::Bool(true), &key)
                .unwrap()
                .get_bool("partitioned")
                .unwrap()
        );
        assert!(of(Value::Bool(true), &doc! {"ts": -1, "_id": 1}).is_err());
        assert!(of(Value::Document(&hourly), &doc! {"_id": 1}).is_err());
        let plain = doc! {"partitioned": true};
        let parsed = CollectionOptions::parse(&plain).unwrap();
        assert!(parsed.records().partitions().is_some() && !parsed.is_by_record());
        // The period begins the primary key, if there is no other one.
        let short = doc! {"partitioned": {"by": "ts", "every": "1h"}};
        let parsed = CollectionOptions::parse(&short).unwrap();
        assert_eq!(parsed.primary_key.unwrap().doc, key);
    }
}
