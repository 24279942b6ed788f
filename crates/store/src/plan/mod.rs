//! Planning: from a query to a description of how its documents are found, as plain data.
//!
//! [`choose`] picks an index for the conditions of the filter out of [`candidates`], [`query`] is its input, [`sorted`] finds the order that an index gives,
//! [`merge`] the order that several scans give together, [`partial`] whether a partial index has all matching documents,
//! [`partitions`] the partitions that a query reads, [`residual`] the conditions that the bounds do not decide, [`oplog`] the bounds of a scan of the oplog. [`key_range`] has
//! the keys that are read, [`required_fields`] the fields of the documents. [`cache`] identifies plans and shapes of queries,
//! [`summary`] names the scans of a plan.
//! Nothing here reads data: operators and trial runs are in `exec`.

pub mod cache;
mod candidates;
pub mod choose;
pub mod key_range;
pub mod merge;
pub mod near;
pub mod oplog;
mod order;
pub mod partial;
pub mod partitions;
pub mod query;
pub(crate) mod required_fields;
pub mod residual;
pub mod sorted;
pub mod summary;
mod text;

use std::sync::Arc;

use frond_bson::{Collator, DocBuf, Value, key};
use frond_error::ErrorCode;
use frond_query::paths::MultikeyPaths;

use frond_storage::error::{Result, command};

use frond_storage::index::Index;
use frond_storage::index::field::Holds;
use frond_storage::index::field::IndexField;
use frond_storage::index::route::ExpandedIndex;
use frond_storage::index::route::IndexBounds;
use frond_storage::intervals::Intervals;
use frond_storage::keyspace::{Direction, TreeId};
use frond_storage::record_layout::PartitionSpan;
pub use key_range::{KeyInterval, primary_range};
use key_range::{KeyRange, ScanField};

/// Which index a query must use.
#[derive(Clone, Debug)]
pub enum Hint {
    /// The index of this name.
    Name(String),
    /// The index with this key pattern.
    Key(DocBuf),
    /// No index; documents in the order of their storage, or the reverse.
    Natural(Direction),
    /// The index in this tree, hidden or not: the server's own choice.
    Tree(TreeId),
}

/// The `min` and `max` of a find: keys of the hinted index, with its fields in its order.
#[derive(Clone, Debug, Default)]
pub struct KeyLimits {
    /// The first key inside.
    pub min: Option<DocBuf>,
    /// The first key outside.
    pub max: Option<DocBuf>,
}

impl KeyLimits {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.min.is_none() && self.max.is_none()
    }

    /// The encoded keys, for an index with these fields and this collator.
    ///
    /// # Errors
    /// 51174 if the names of the fields are not those of the index, 51175 if `max` is not after
    /// `min`.
    pub fn encode(&self, fields: &[IndexField], collator: &Collator) -> Result<KeyInterval> {
        let encode = |key: &Option<DocBuf>| -> Result<Option<Vec<u8>>> {
            let Some(key) = key else { return Ok(None) };
            let mut encoded = Vec::new();
            let mut values = key.iter();
            for field in fields {
                match values.next() {
                    Some((name, value)) if name == field.path && field.holds == Holds::Value => {
                        collator.encode_directed(&value, field.direction, &mut encoded);
                    }
                    _ => return Err(incompatible()),
                }
            }
            match values.next() {
                Some(_) => Err(incompatible()),
                None => Ok(Some(encoded)),
            }
        };
        let interval = KeyInterval {
            low: encode(&self.min)?,
            high: encode(&self.max)?,
        };
        if let KeyInterval {
            low: Some(low),
            high: Some(high),
        } = &interval
            && low >= high
        {
            return Err(command(
                ErrorCode::Location(51175),
                "The value provided for min() must come before the value provided for max() in the \
                 hinted index",
            ));
        }
        Ok(interval)
    }
}

fn incompatible() -> frond_storage::error::Error {
    command(
        ErrorCode::Location(51174),
        "The index chosen is not compatible with min/max",
    )
}

impl Hint {
    /// Reads the `hint` of a request.
    ///
    /// # Errors
    /// `FailedToParse` (9), `BadValue` (2).
    pub fn parse(hint: Option<Value<'_>>) -> Result<Option<Hint>> {
        match hint {
            None => Ok(None),
            Some(Value::String(name)) => Ok(Some(Hint::Name(name.to_owned()))),
            Some(Value::Document(doc)) if doc.is_empty() => Ok(None),
            Some(Value::Document(doc)) => match doc.get("$natural") {
                None => Ok(Some(Hint::Key(doc.to_owned()))),
                Some(direction) => match direction.as_i64_lossless() {
                    Some(1) => Ok(Some(Hint::Natural(Direction::Forward))),
                    Some(-1) => Ok(Some(Hint::Natural(Direction::Backward))),
                    _ => Err(command(
                        ErrorCode::BadValue,
                        "$natural hint cannot be set to a value other than -1 or 1.",
                    )),
                },
            },
            Some(_) => Err(command(
                ErrorCode::FailedToParse,
                "Hint must be a string or an object",
            )),
        }
    }
}

/// The access path to documents.
#[derive(Clone, Debug)]
pub enum Access {
    Eof,
    /// Every document of the collection.
    CollScan(Direction),
    /// Documents chosen at random: at least this many, if the collection has them.
    Random(u64),
    /// Entries of the oplog.
    Oplog(oplog::OplogAccess),
    /// The document whose `_id` has this encoding.
    Id(Vec<u8>),
    /// Documents whose `_id` is in these ranges.
    IdRange {
        ranges: Intervals,
        direction: Direction,
        /// Whether every document in the ranges passes the filter.
        exact: bool,
    },
    /// Through a secondary index.
    Index(IndexAccess),
    /// Around a point, nearest first, through a geospatial index.
    Near(Box<near::NearAccess>),
    /// One after the other; a document that two of them find is returned once.
    Or(Vec<Access>),
    /// Several scans, each in the order of the sort, merged.
    Merge(Box<merge::MergeAccess>),
    /// One entry for each value of a field of an index.
    Distinct {
        /// The index and its bounds.
        scan: IndexAccess,
        /// The position of the field among those of the index.
        position: usize,
    },
}

/// Reading through a secondary index.
#[derive(Clone, Debug)]
pub struct IndexAccess {
    pub index: Arc<Index>,
    /// Its multikey paths at the time of the snapshot.
    pub multikey: MultikeyPaths,
    /// Ranges of its fields.
    pub bounds: IndexBounds,
    /// Further bounds: `min` and `max`.
    pub interval: KeyInterval,
    pub direction: Direction,
    /// Whether entries hold all fields that the query needs, so that documents are not read.
    pub covered: bool,
    /// Whether every document in the bounds passes the filter.
    pub exact: bool,
    /// Whether one document can have several entries inside the bounds.
    pub may_repeat: bool,
    /// In a partitioned collection, the partitions whose entries are read, ascending.
    pub partitions: Option<Arc<[PartitionSpan]>>,
    /// The index as this plan uses it, if that is not its specification.
    pub expanded: Option<Arc<ExpandedIndex>>,
}

/// The plan of a query.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The access path to its documents.
    pub access: Access,
    /// Whether they come in the order of the sort.
    pub sorted: bool,
    /// The other candidates, for `explain`.
    pub rejected: Vec<query::Candidate>,
}

impl IndexAccess {
    /// The keys to read.
    pub fn key_range(&self) -> KeyRange {
        let fields = self.index.spec.fields.iter().zip(&self.bounds.fields);
        let last_bounded = self
            .bounds
            .fields
            .iter()
            .rposition(|ranges| !ranges.is_all())
            .map_or(0, |last| last + 1);
        // All fields of an entry have to be found to find the `_id` behind them; in a unique index
        // it is in the value.
        let wanted = if self.index.spec.unique {
            last_bounded
        } else {
            usize::MAX
        };
        KeyRange {
            tree: self.index.tree,
            fields: fields
                .take(wanted)
                .map(|(field, ranges)| ScanField {
                    ranges: match field.direction {
                        key::Direction::Ascending => ranges.clone(),
                        key::Direction::Descending => ranges.clone().inverted(),
                    },
                    direction: field.direction,
                })
                .collect(),
            interval: self.interval.clone(),
            direction: self.direction,
            partitions: self.partitions.clone(),
        }
    }
}
