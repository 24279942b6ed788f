//! The indexes and options by which documents expire, and the places where the keys of expired documents are found.

use std::ops::Bound;
use std::sync::Arc;

use frond_bson::{Collator, DocBuf, Value, doc, key};
use frond_query::matcher::Filter;

use super::{KEY_BYTES_MAX, KEYS_MAX, KEYS_MIN};
use crate::catalog::{Catalog, Collection, Uuid};
use crate::find::PlannedQuery;
use crate::plan::required_fields;
use crate::store::DocumentStore;
use crate::write::expire::{Keys, Pace};
use frond_storage::context::OpContext;
use frond_storage::environment::environment;
use frond_storage::error::Result;
use frond_storage::index::field::Holds;
use frond_storage::index::{Index, entry};
use frond_storage::keyspace::{Cursor, Direction, Snapshot, TreeId, after_prefix};
use frond_storage::namespace::Namespace;

/// Entries between two looks at the limits.
const ENTRIES_BETWEEN_CHECKS: u32 = 1024;

/// An index, or the option of a collection, by which documents expire, and how far a pass through it is.
#[derive(Clone, Debug)]
pub struct Expiring {
    ns: Namespace,
    uuid: Uuid,
    /// `None` if documents expire by the option of the collection.
    index: Option<TreeId>,
    name: String,
    /// The last key that the pass has dealt with.
    position: Option<Vec<u8>>,
    /// Keys to collect at a time: about as many as a batch deletes, because the others are collected again.
    keys_wanted: usize,
}

/// The place where expired documents are found at one moment.
pub(super) struct Source {
    place: Place,
    /// Matches documents that have expired.
    pub(super) filter: Arc<Filter>,
    pub(super) seconds: i64,
    until_ms: i64,
}

enum Place {
    /// The entries of an index whose first field is the date.
    Entries(Arc<Index>),
    /// The keys of a clustered collection, which are dates.
    Keys,
    /// All documents, whose dates have to be read.
    Documents,
    /// Whole partitions, by the date that divides the collection.
    Partitions,
}

/// Keys of documents that have expired, or had when their snapshot was taken.
pub(super) struct Found {
    pub(super) keys: Keys,
    /// The last key that was read.
    pub(super) position: Option<Vec<u8>>,
    /// Whether no further document has expired.
    pub(super) is_complete: bool,
}

/// A range of keys, and the direction in which dates ascend.
pub(super) struct DateRange {
    pub(super) tree: TreeId,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    pub(super) direction: Direction,
}

/// The filter of documents whose date is at most this one, in milliseconds since 1970.
fn expired_by(path: &str, until_ms: i64) -> DocBuf {
    let mut filter = DocBuf::new();
    filter.push(path, &doc! {"$lte": Value::DateTime(until_ms)});
    filter
}

impl DocumentStore {
    /// The indexes and the options by which documents expire.
    pub fn expiring(&self) -> Vec<Expiring> {
        let view = self.catalog().view();
        let mut all = Vec::new();
        for collection in view.iter() {
            let expiring = |index, name: &str| Expiring {
                ns: collection.ns.clone(),
                uuid: collection.uuid,
                index,
                name: name.to_owned(),
                position: None,
                keys_wanted: KEYS_MAX / 4,
            };
            if collection.settings.expire_after_seconds.is_some() {
                all.push(expiring(None, collection.id_index_name()));
            }
            for index in collection.ready_indexes() {
                if index.spec.expire_after.is_some() && index.spec.method.is_none() {
                    all.push(expiring(Some(index.tree), &index.spec.name));
                }
            }
        }
        all
    }
}

impl Expiring {
    pub fn ns(&self) -> &Namespace {
        &self.ns
    }

    /// The name of the index.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether documents expire by the same index or option, wherever the passes are.
    pub fn is_same(&self, other: &Expiring) -> bool {
        (self.uuid, self.index) == (other.uuid, other.index)
    }

    pub(super) fn uuid(&self) -> Uuid {
        self.uuid
    }

    pub(super) fn position(&self) -> Option<&[u8]> {
        self.position.as_deref()
    }

    pub(super) fn keys_wanted(&self) -> usize {
        self.keys_wanted
    }

    pub(super) fn want_keys(&mut self, keys: usize) {
        self.keys_wanted = keys.clamp(KEYS_MIN, KEYS_MAX);
    }

    pub(super) fn continue_behind(&mut self, position: Option<Vec<u8>>) {
        if position.is_some() {
            self.position = position;
        }
    }

    /// The source at a time in milliseconds since 1970, with the current definition of the collection and a snapshot. `None`
    /// if nothing expires by it any more.
    pub(super) fn source(
        &self,
        catalog: &Catalog,
        now_ms: i64,
    ) -> Result<Option<(Source, Arc<Collection>, Snapshot)>> {
        let read = catalog.read(&self.ns)?;
        let Some((collection, snapshot)) = read.filter(|(now, _)| now.uuid == self.uuid) else {
            return Ok(None);
        };
        let made = match self.index {
            Some(tree) => of_index(&collection, tree, now_ms)?,
            None => of_collection(&collection, now_ms)?,
        };
        Ok(made.map(|source| (source, collection, snapshot)))
    }
}

fn of_index(collection: &Collection, tree: TreeId, now_ms: i64) -> Result<Option<Source>> {
    let index = collection
        .ready_indexes()
        .find(|index| index.tree == tree && index.spec.method.is_none());
    let Some((index, seconds)) = index.and_then(|index| Some((index, index.spec.expire_after?)))
    else {
        return Ok(None);
    };
    let seconds = i64::from(seconds);
    let path = index.spec.fields.first().map_or("_id", |field| &field.path);
    let until_ms = until(seconds, now_ms);
    let filter = expired_by(path, until_ms);
    let filter = match &index.spec.partial {
        None => filter,
        Some(partial) => doc! {"$and": [&filter, &partial.doc]},
    };
    // The filter of a partial index compares strings as the index does.
    // The entries of a partitioned collection are in the order of the dates only within each partition.
    let place = match index.spec.records.partitions() {
        None => Place::Entries(index.clone()),
        Some(_) => Place::Documents,
    };
    let source = Source::new(place, &filter, &index.spec.collator, seconds, until_ms);
    source.map(Some)
}

/// Measurements of a time series expire by their time, documents of a clustered collection by the date in their `_id`.
fn of_collection(collection: &Collection, now_ms: i64) -> Result<Option<Source>> {
    let Some(seconds) = collection.settings.expire_after_seconds else {
        return Ok(None);
    };
    let series = collection.settings.time_series.as_ref();
    let path = series.map_or("_id", |series| &series.time_field);
    let is_keyed_by_date = series.is_none() && !collection.is_by_record();
    let place = if collection.settings.partition_period().is_some() {
        Place::Partitions
    } else if is_keyed_by_date {
        Place::Keys
    } else {
        let mut indexes = collection.ready_indexes();
        let by_date = indexes.find(|index| {
            let spec = &index.spec;
            let mut fields = spec.fields.iter();
            fields
                .next()
                .is_some_and(|field| field.path == *path && field.holds == Holds::Value)
                && spec.method.is_none()
                && spec.partial.is_none()
        });
        by_date.map_or(Place::Documents, |index| Place::Entries(index.clone()))
    };
    let until_ms = until(seconds, now_ms);
    let filter = expired_by(path, until_ms);
    Source::new(place, &filter, Collator::BINARY, seconds, until_ms).map(Some)
}

fn until(seconds: i64, now_ms: i64) -> i64 {
    now_ms.saturating_sub(seconds.saturating_mul(1000))
}

impl Source {
    fn new(
        place: Place,
        filter: &DocBuf,
        collator: &Collator,
        seconds: i64,
        until_ms: i64,
    ) -> Result<Source> {
        let parsed = PlannedQuery::parse(Some(filter), None, None, &environment(None, collator))?;
        Ok(Source {
            place,
            filter: parsed.filter,
            seconds,
            until_ms,
        })
    }

    /// Whether whole partitions expire.
    pub(super) fn drops_partitions(&self) -> bool {
        matches!(self.place, Place::Partitions)
    }

    /// The last date that has expired, in milliseconds since 1970.
    pub(super) fn until_ms(&self) -> i64 {
        self.until_ms
    }

    /// The keys whose date is at most the last one that has expired. `None` if dates are found in documents only.
    pub(super) fn expired(&self, collection: &Collection) -> Option<DateRange> {
        self.range(collection, self.until_ms)
    }

    /// The keys of all dates.
    pub(super) fn dates(&self, collection: &Collection) -> Option<DateRange> {
        self.range(collection, i64::MAX)
    }

    fn range(&self, collection: &Collection, until_ms: i64) -> Option<DateRange> {
        let (tree, order) = match &self.place {
            Place::Entries(index) => (index.tree, index.spec.fields.first()?.direction),
            Place::Keys => (collection.primary, key::Direction::Ascending),
            Place::Documents | Place::Partitions => return None,
        };
        let encoded = |date| {
            let mut bytes = Vec::new();
            key::encode_directed(&Value::DateTime(date), order, &mut bytes);
            bytes
        };
        let (first, last, direction) = match order {
            key::Direction::Ascending => (i64::MIN, until_ms, Direction::Forward),
            key::Direction::Descending => (until_ms, i64::MIN, Direction::Backward),
        };
        let upper = after_prefix(&encoded(last));
        Some(DateRange {
            tree,
            lower: Bound::Included(encoded(first)),
            upper: upper.map_or(Bound::Unbounded, Bound::Excluded),
            direction,
        })
    }

    /// Whether documents are found in the order of their keys.
    pub(super) fn is_in_key_order(&self) -> bool {
        !matches!(self.place, Place::Entries(_))
    }

    /// The key of the document of an entry.
    fn document_key<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Result<&'a [u8]> {
        match &self.place {
            Place::Entries(index) => Ok(entry::split(&index.spec, key, value)?.id),
            Place::Keys | Place::Documents | Place::Partitions => Ok(key),
        }
    }

    /// The date in the key of an entry, in milliseconds since 1970.
    pub(super) fn date(&self, key: &[u8]) -> Option<i64> {
        let order = match &self.place {
            Place::Entries(index) => index.spec.fields.first()?.direction,
            Place::Keys => key::Direction::Ascending,
            Place::Documents | Place::Partitions => return None,
        };
        let (value, _) = key::decode(key, order, &mut key::TypeBitsReader::unknown()).ok()?;
        match value.as_value() {
            Value::DateTime(date) => Some(date),
            _ => None,
        }
    }

    /// Collects the keys of up to `most` documents that have expired, from the oldest date behind `position` on.
    pub(super) fn collect(
        &self,
        collection: &Collection,
        snapshot: &Snapshot,
        position: Option<&[u8]>,
        most: usize,
        pace: &Pace,
        context: &OpContext,
    ) -> Result<Found> {
        let range = self.expired(collection).unwrap_or(DateRange {
            tree: collection.primary,
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
            direction: Direction::Forward,
        });
        let mut cursor = range.cursor(snapshot, position)?;
        let reader = collection.document_reader(snapshot);
        let asked = match self.place {
            Place::Documents => Some(required_fields::of_query(&self.filter, None, [])),
            _ => None,
        };
        let mut keys = Keys::default();
        let mut last: Option<Vec<u8>> = None;
        let mut entries: u32 = 0;
        let mut is_complete = true;
        while let Some((key, value)) = cursor.next()? {
            entries += 1;
            let document = self.document_key(key, value)?;
            let has_expired = match &asked {
                None => true,
                Some(asked) => {
                    let doc = reader.parts(document, value, asked)?;
                    self.filter.try_matches(&doc)?
                }
            };
            if has_expired {
                keys.push(document);
            }
            let is_full = keys.len() >= most || keys.bytes() >= KEY_BYTES_MAX;
            let is_due = entries.is_multiple_of(ENTRIES_BETWEEN_CHECKS);
            if is_full || is_due {
                let position = last.get_or_insert_default();
                position.clear();
                position.extend_from_slice(key);
            }
            if is_due {
                context.check()?;
            }
            if is_full || (is_due && pace.is_over()) {
                is_complete = false;
                break;
            }
        }
        Ok(Found {
            keys,
            position: last,
            is_complete,
        })
    }
}

impl DateRange {
    /// A cursor from the oldest date behind `position` on.
    pub(super) fn cursor(&self, snapshot: &Snapshot, position: Option<&[u8]>) -> Result<Cursor> {
        let (mut lower, mut upper) = (
            self.lower.as_ref().map(Vec::as_slice),
            self.upper.as_ref().map(Vec::as_slice),
        );
        if let Some(position) = position {
            match self.direction {
                Direction::Forward => lower = Bound::Excluded(position),
                Direction::Backward => upper = Bound::Excluded(position),
            }
        }
        Ok(snapshot.cursor(self.tree, lower, upper, self.direction)?)
    }

    /// The bounds of the keys behind `position`.
    pub(super) fn keys(&self, position: Option<&[u8]>) -> (Vec<u8>, Option<Vec<u8>>) {
        let bytes = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
            Bound::Unbounded => None,
        };
        let (lower, upper) = (bytes(&self.lower).unwrap_or_default(), bytes(&self.upper));
        match (position, self.direction) {
            (None, _) => (lower, upper),
            (Some(position), Direction::Forward) => (position.to_vec(), upper),
            (Some(position), Direction::Backward) => (lower, Some(position.to_vec())),
        }
    }
}
