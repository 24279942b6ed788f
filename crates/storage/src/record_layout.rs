//! The keys of the documents of a collection: of which encoded values one consists, and in which partition it lies.
//!
//! A key is an encoded `_id`, a record id, or a primary key of several fields. Entries of indexes end with it, and in a partitioned
//! collection begin with the number of its partition. So the entries of a partition are one range of keys of each index, as its
//! documents are one range of keys of the collection, and a partition is dropped with a range delete for each tree.
//!
//! (Trees of its own for each partition would multiply trees by partitions. The range delete drops whole subtrees, too, and
//! writes nothing for a document.)

use std::sync::Arc;

use frond_bson::{Value, key};

use crate::keyspace::after_prefix;

/// The number of a partition. Those of later keys are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u64);

impl PartitionId {
    /// Its bytes at the beginning of a key, which compare as the numbers do.
    pub fn bytes(self) -> [u8; PARTITION_BYTES] {
        self.0.to_be_bytes()
    }

    /// The number at the beginning of a key.
    pub fn of_key(key: &[u8]) -> Option<PartitionId> {
        key.first_chunk()
            .map(|bytes| PartitionId(u64::from_be_bytes(*bytes)))
    }
}

/// The partitions from the first number to the second one, both included, whichever of them there are.
pub type PartitionSpan = (PartitionId, PartitionId);

/// The length of a partition's number in a key.
pub const PARTITION_BYTES: usize = size_of::<u64>();

/// The partitions of a collection. The first value of a key decides in which one it lies, so that keys which differ only in the
/// others share one: a unique index that begins with that value is unique in the whole collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Partitions {
    /// Each ends with its greatest value, encoded; the last one has no end. `bounds` ascend. Values up to `from` were in partitions
    /// that are gone.
    Listed {
        from: Option<Vec<u8>>,
        bounds: Vec<(Vec<u8>, PartitionId)>,
        last: PartitionId,
    },
    /// One for each period of this many milliseconds. The value is a date.
    Periods { millis: i64 },
}

/// A range of keys, from the first one inside to the first one outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRange {
    pub id: PartitionId,
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
}

/// The number of the period that contains the beginning of 1970: numbers are not negative.
const PERIOD_OF_1970: u64 = 1 << 63;

impl Partitions {
    /// The partition of a key.
    pub fn containing(&self, record: &[u8]) -> PartitionId {
        match self {
            Partitions::Listed { bounds, last, .. } => {
                let value = leading_value(record);
                let at = bounds.partition_point(|(max, _)| max.as_slice() < value);
                bounds.get(at).map_or(*last, |(_, id)| *id)
            }
            // Keys are checked before they are stored: each begins with a date.
            Partitions::Periods { millis } => {
                let date = key::leading_date(record).unwrap_or_default();
                period_of(date, *millis)
            }
        }
    }

    /// Whether the first value of a key is above a bound.
    pub fn is_above(&self, record: &[u8], bound: &[u8]) -> bool {
        leading_value(record) > bound
    }

    /// The keys of the partition of a key, or of a partition that is listed. `None` if there is none.
    pub fn range(&self, id: PartitionId) -> Option<PartitionRange> {
        let (low, high) = match self {
            Partitions::Listed { bounds, last, .. } => {
                let at = if *last == id {
                    bounds.len()
                } else {
                    bounds.iter().position(|(_, other)| *other == id)?
                };
                let before = at.checked_sub(1).and_then(|before| bounds.get(before));
                let low = before.map_or(Some(Vec::new()), |(max, _)| after_prefix(max))?;
                let high = match bounds.get(at) {
                    Some((max, _)) => Some(after_prefix(max)?),
                    None => None,
                };
                (low, high)
            }
            Partitions::Periods { millis } => {
                let start = start_of_period(id, *millis).unwrap_or(i64::MIN);
                let end = id.0.checked_add(1).map(PartitionId);
                let end = end.and_then(|end| start_of_period(end, *millis));
                let high = match end {
                    Some(end) => Some(encoded_date(end)),
                    // All later dates are in this period.
                    None => after_prefix(&encoded_date(i64::MAX)),
                };
                (encoded_date(start), high)
            }
        };
        Some(PartitionRange { id, low, high })
    }

    /// The number of a partition as it is shown: that of a period is its beginning.
    pub fn shown(&self, id: PartitionId) -> Value<'static> {
        match self {
            Partitions::Listed { .. } => Value::Int64(id.0.cast_signed()),
            Partitions::Periods { millis } => {
                Value::DateTime(start_of_period(id, *millis).unwrap_or(i64::MIN))
            }
        }
    }

    /// The partition with a number as it is shown. `None` if there can be none.
    pub fn named(&self, shown: &Value<'_>) -> Option<PartitionId> {
        match (self, shown) {
            (Partitions::Listed { .. }, number) => {
                let id = u64::try_from(number.as_i64_lossless()?).ok()?;
                self.range(PartitionId(id)).map(|range| range.id)
            }
            (Partitions::Periods { millis }, Value::DateTime(date)) => {
                Some(period_of(*date, *millis))
            }
            _ => None,
        }
    }

    /// The partitions that may have keys in a range, of which the bounds are encoded values or what is beside them. `None` if there
    /// are none. With a list of partitions each has a span of its own.
    pub fn spans(&self, low: &[u8], high: Option<&[u8]>) -> Vec<PartitionSpan> {
        match self {
            Partitions::Listed { .. } => {
                let overlaps = |range: &PartitionRange| {
                    high.is_none_or(|high| range.low.as_slice() < high)
                        && range.high.as_ref().is_none_or(|end| low < end.as_slice())
                };
                let ids = self.listed().unwrap_or_default().into_iter();
                let ranges = ids.filter_map(|id| self.range(id));
                ranges
                    .filter(overlaps)
                    .map(|range| (range.id, range.id))
                    .collect()
            }
            Partitions::Periods { millis } => {
                let Some(first) = period_from(low, *millis) else {
                    return Vec::new();
                };
                let last = high.map_or(Some(PartitionId(u64::MAX)), |high| {
                    let id = period_from(high, *millis).unwrap_or(PartitionId(u64::MAX));
                    // The bound itself is outside.
                    let is_beginning = self
                        .range(id)
                        .is_some_and(|range| high <= range.low.as_slice());
                    if is_beginning {
                        id.0.checked_sub(1).map(PartitionId)
                    } else {
                        Some(id)
                    }
                });
                last.filter(|last| first <= *last)
                    .map(|last| (first, last))
                    .into_iter()
                    .collect()
            }
        }
    }

    /// All partitions that are listed, in the order of their keys. `None` if the documents decide which ones there are.
    pub fn listed(&self) -> Option<Vec<PartitionId>> {
        match self {
            Partitions::Listed { bounds, last, .. } => {
                let ids = bounds.iter().map(|(_, id)| *id);
                Some(ids.chain([*last]).collect())
            }
            Partitions::Periods { .. } => None,
        }
    }
}

/// The partition of a date.
pub fn period_of(date: i64, millis: i64) -> PartitionId {
    PartitionId(PERIOD_OF_1970.wrapping_add_signed(date.div_euclid(millis.max(1))))
}

/// The first date of a partition, if dates reach so far.
pub fn start_of_period(id: PartitionId, millis: i64) -> Option<i64> {
    id.0.wrapping_sub(PERIOD_OF_1970)
        .cast_signed()
        .checked_mul(millis)
}

/// The first period with dates that are not below a bound. `None` if all dates are below.
fn period_from(bound: &[u8], millis: i64) -> Option<PartitionId> {
    let least = encoded_date(i64::MIN);
    let (Some(tag), Some(first)) = (least.first(), bound.first()) else {
        return Some(PartitionId(0));
    };
    if first != tag {
        return (first < tag).then_some(PartitionId(0));
    }
    // A bound may be shorter than a date, where the rest of it was all ones.
    let mut date = bound.get(..least.len()).unwrap_or(bound).to_vec();
    date.resize(least.len(), 0);
    Some(period_of(key::leading_date(&date)?, millis))
}

fn encoded_date(date: i64) -> Vec<u8> {
    let mut out = Vec::new();
    key::encode(&Value::DateTime(date), &mut out);
    out
}

fn leading_value(record: &[u8]) -> &[u8] {
    let end = key::skip(record, key::Direction::Ascending);
    end.and_then(|end| record.get(..end)).unwrap_or(record)
}

/// The composition of the keys of a collection's documents. The default is one ascending value: an `_id` or a record id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordLayout {
    /// The directions of the values, if there is more than one.
    directions: Option<Arc<[key::Direction]>>,
    partitions: Option<Arc<Partitions>>,
}

impl RecordLayout {
    /// Keys of these values.
    pub fn new(directions: Vec<key::Direction>, partitions: Option<Partitions>) -> RecordLayout {
        RecordLayout {
            directions: Some(directions.into()),
            partitions: partitions.map(Arc::new),
        }
    }

    /// Returns the length of the key at the beginning of these bytes.
    pub fn skip(&self, bytes: &[u8]) -> Option<usize> {
        let Some(directions) = &self.directions else {
            return key::skip(bytes, key::Direction::Ascending);
        };
        directions.iter().try_fold(0, |end, direction| {
            Some(end + key::skip(bytes.get(end..)?, *direction)?)
        })
    }

    /// The partitions, if the collection has some.
    pub fn partitions(&self) -> Option<&Partitions> {
        self.partitions.as_deref()
    }

    /// The length of what precedes the fields of an entry of an index.
    pub fn prefix_bytes(&self) -> usize {
        if self.partitions.is_some() {
            PARTITION_BYTES
        } else {
            0
        }
    }

    /// Appends what precedes the fields of an entry for the document under this key.
    pub fn write_prefix(&self, record: &[u8], out: &mut Vec<u8>) {
        if let Some(partitions) = &self.partitions {
            out.extend_from_slice(&partitions.containing(record).bytes());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn encoded(values: &[Value<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        for value in values {
            key::encode(value, &mut out);
        }
        out
    }

    #[test]
    fn a_key_ends_after_its_values() {
        let record = encoded(&[Value::DateTime(5), Value::String("x")]);
        let two = RecordLayout::new(vec![key::Direction::Ascending; 2], None);
        let longer = [record.as_slice(), b"rest"].concat();
        assert_eq!(two.skip(&longer), Some(record.len()));
        let one = RecordLayout::default();
        assert_eq!(
            one.skip(&longer),
            Some(encoded(&[Value::DateTime(5)]).len())
        );
        assert_eq!(two.skip(b"\xff"), None);
    }

    #[test]
    fn periods_are_numbered_in_the_order_of_dates() {
        let hour = 3_600_000;
        let partitions = Partitions::Periods { millis: hour };
        let of = |date| partitions.containing(&encoded(&[Value::DateTime(date), Value::Int32(1)]));
        assert_eq!(of(0), of(hour - 1));
        assert!(of(-1) < of(0) && of(hour - 1) < of(hour));
        for date in [i64::MIN, -hour, -1, 0, 1, hour, 1 << 50, i64::MAX] {
            let id = of(date);
            if let Some(start) = start_of_period(id, hour) {
                assert!(start <= date && date - start < hour, "{date}");
            }
            let range = partitions.range(id).unwrap();
            let record = encoded(&[Value::DateTime(date), Value::Int32(1)]);
            assert!(
                range.low <= record && range.high.is_none_or(|high| record < high),
                "{date}"
            );
        }
        let date = |date| encoded(&[Value::DateTime(date)]);
        let (first, second) = (of(0), of(hour));
        for (low, high, span) in [
            (
                Vec::new(),
                None,
                Some((PartitionId(0), PartitionId(u64::MAX))),
            ),
            (date(5), Some(date(hour)), Some((first, first))),
            (date(5), Some(date(hour + 1)), Some((first, second))),
            (
                date(hour - 1),
                after_prefix(&date(hour - 1)),
                Some((first, first)),
            ),
            (
                date(hour),
                after_prefix(&date(hour)),
                Some((second, second)),
            ),
            (encoded(&[Value::MaxKey]), None, None),
            (Vec::new(), Some(encoded(&[Value::Int32(1)])), None),
        ] {
            let found = partitions.spans(&low, high.as_deref());
            let found = found.first().copied();
            let is_below = found == Some((PartitionId(0), PartitionId(0)));
            assert!(
                found == span || (span.is_none() && is_below),
                "{low:?} {high:?} {found:?}"
            );
        }
        assert_eq!(key::leading_date(&encoded(&[Value::Int32(1)])), None);
        assert_eq!(key::leading_date(b""), None);
    }

    #[test]
    fn listed_partitions_contain_their_greatest_key() {
        let bound = |value| encoded(&[Value::Int32(value)]);
        let partitions = Partitions::Listed {
            from: None,
            bounds: vec![(bound(10), PartitionId(0)), (bound(20), PartitionId(3))],
            last: PartitionId(4),
        };
        for (value, id) in [(-5, 0), (10, 0), (11, 3), (20, 3), (21, 4), (1000, 4)] {
            let record = [bound(value), bound(7)].concat();
            assert_eq!(partitions.containing(&record), PartitionId(id), "{value}");
            let range = partitions.range(PartitionId(id)).unwrap();
            assert!(range.low <= record && range.high.is_none_or(|high| record < high));
        }
        assert_eq!(partitions.range(PartitionId(1)), None);
    }
}
