//! Measurements as buckets of version 1, which every version of MongoDB with time series restores.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

use super::unpack::Series;
use crate::{Doc, DocBuf, ObjectId, RawElement, Value, canonical_class, compare};

/// Measurements of a bucket at most, as MongoDB has them.
const COUNT_MAX: usize = 1_000;

/// Bytes of a bucket about.
const BUCKET_BYTES: usize = 125_000;

/// Bytes of all open buckets about. When there are more, all are closed.
const OPEN_BYTES: usize = 32 << 20;

/// The times that one bucket may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spans {
    /// Seconds between the first and the last time at most.
    pub max_seconds: i64,
    /// Seconds to whose multiple the first time is rounded down.
    pub rounding_seconds: i64,
}

/// A measurement that no bucket can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackError {
    /// It has no date in the field with the time.
    Time,
    /// It has two fields of this name.
    Repeated(String),
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PackError::Time => f.write_str("a measurement has no date in the field with the time"),
            PackError::Repeated(name) => {
                write!(f, "a measurement has two fields with the name '{name}'")
            }
        }
    }
}

impl std::error::Error for PackError {}

/// Packs measurements into buckets, several at a time: one for each value of the metadata.
pub struct Packer<'a> {
    series: Series<'a>,
    spans: Spans,
    /// Open buckets by the bytes of their metadata.
    open: HashMap<Vec<u8>, Open>,
    open_bytes: usize,
}

struct Open {
    /// The element with the metadata, under the name that buckets have for it.
    meta: DocBuf,
    /// The first time, rounded down.
    start: i64,
    count: usize,
    bytes: usize,
    min: DocBuf,
    max: DocBuf,
    columns: Vec<(String, DocBuf)>,
}

impl<'a> Packer<'a> {
    pub fn new(series: Series<'a>, spans: Spans) -> Packer<'a> {
        Packer {
            series,
            spans,
            open: HashMap::new(),
            open_bytes: 0,
        }
    }

    /// Takes a measurement. Shows the buckets that it closes to `closed`.
    ///
    /// # Errors
    /// If no bucket can hold it.
    pub fn add(&mut self, measurement: &Doc, closed: &mut Vec<DocBuf>) -> Result<(), PackError> {
        if measurement.has_duplicate_names() {
            let mut names: Vec<&str> = measurement.iter_raw().map(|field| field.name()).collect();
            names.sort_unstable();
            let twice = names.windows(2).find_map(|pair| match pair {
                [a, b] if a == b => Some(*a),
                _ => None,
            });
            return Err(PackError::Repeated(twice.unwrap_or_default().to_owned()));
        }
        let Some(Value::DateTime(time)) = measurement.get(self.series.time_field) else {
            return Err(PackError::Time);
        };
        let meta = self
            .series
            .meta_field
            .and_then(|name| measurement.get_raw(name));
        let key = meta.map_or(Vec::new(), |meta| {
            [&[meta.tag()], meta.value_bytes()].concat()
        });
        let mut fields = DocBuf::with_capacity(measurement.len_bytes());
        for field in measurement.iter_raw() {
            if Some(field.name()) != self.series.meta_field {
                fields.push_raw(&field);
            }
        }
        let fits = (self.open.get(&key)).is_some_and(|open| open.fits(time, &fields, self.spans));
        if !fits && let Some(full) = self.open.remove(&key) {
            self.open_bytes -= full.bytes;
            closed.push(full.close(self.series.time_field));
        }
        if self.open_bytes > OPEN_BYTES {
            self.finish(closed);
        }
        let rounding = self.spans.rounding_seconds.max(1).saturating_mul(1_000);
        let open = self.open.entry(key).or_insert_with(|| Open {
            meta: named("meta", meta),
            start: time.saturating_sub(time.rem_euclid(rounding)),
            count: 0,
            bytes: 0,
            min: DocBuf::new(),
            max: DocBuf::new(),
            columns: Vec::new(),
        });
        open.add(&fields);
        self.open_bytes += fields.len_bytes();
        Ok(())
    }

    pub fn finish(&mut self, closed: &mut Vec<DocBuf>) {
        let time_field = self.series.time_field;
        closed.extend(self.open.drain().map(|(_, open)| open.close(time_field)));
        self.open_bytes = 0;
    }
}

fn named(name: &str, element: Option<RawElement<'_>>) -> DocBuf {
    let mut out = DocBuf::new();
    if let Some(element) = element {
        out.push_raw_as(name, &element);
    }
    out
}

impl Open {
    fn fits(&self, time: i64, fields: &Doc, spans: Spans) -> bool {
        let end = (self.start).saturating_add(spans.max_seconds.saturating_mul(1_000));
        self.count < COUNT_MAX
            && self.bytes + fields.len_bytes() <= BUCKET_BYTES
            && (self.start..end).contains(&time)
            && have_same_types(&self.min, fields)
    }

    fn add(&mut self, fields: &Doc) {
        let key = self.count.to_string();
        for field in fields.iter_raw() {
            let name = field.name();
            let column = self.columns.iter_mut().find(|(known, _)| known == name);
            match column {
                Some((_, values)) => values.push_raw_as(&key, &field),
                None => {
                    let mut values = DocBuf::new();
                    values.push_raw_as(&key, &field);
                    self.columns.push((name.to_owned(), values));
                }
            }
        }
        self.min = extreme(&self.min, fields, Ordering::Less);
        self.max = extreme(&self.max, fields, Ordering::Greater);
        self.count += 1;
        self.bytes += fields.len_bytes();
    }

    fn close(self, time_field: &str) -> DocBuf {
        let mut id = ObjectId::new();
        for (to, from) in
            id.0.iter_mut()
                .zip(((self.start / 1_000) as u32).to_be_bytes())
        {
            *to = from;
        }
        let mut out = DocBuf::with_capacity(self.bytes * 2);
        out.push("_id", id);
        out.push_doc("control", |control| {
            control.push("version", 1);
            control.push_doc("min", |min| {
                for field in self.min.iter_raw() {
                    if field.name() == time_field {
                        min.push(time_field, Value::DateTime(self.start));
                    } else {
                        min.push_raw(&field);
                    }
                }
            });
            control.push("max", &self.max);
        });
        out.push_all(&self.meta);
        out.push_doc("data", |data| {
            for (name, values) in &self.columns {
                data.push(name, values);
            }
        });
        out
    }
}

/// Whether the values of the fields that both have are of the same classes. MongoDB takes the least and the greatest
/// value of a bucket for those of all types.
fn have_same_types(a: &Doc, b: &Doc) -> bool {
    b.iter_raw().all(|field| {
        let Some(known) = a.get_raw(field.name()) else {
            return true;
        };
        canonical_class(known.tag()) == canonical_class(field.tag())
            && match (known.value(), field.value()) {
                (
                    Some(Value::Document(a) | Value::Array(a)),
                    Some(Value::Document(b) | Value::Array(b)),
                ) => have_same_types(a, b),
                _ => true,
            }
    })
}

/// The least or the greatest values of all fields, of documents and arrays those of each of their fields.
fn extreme(known: &Doc, new: &Doc, wanted: Ordering) -> DocBuf {
    let mut out = DocBuf::with_capacity(known.len_bytes());
    for field in known.iter_raw() {
        let other = new.get_raw(field.name());
        let (Some(a), Some(b)) = (field.value(), other.and_then(|other| other.value())) else {
            out.push_raw(&field);
            continue;
        };
        match (a, b) {
            (Value::Document(a), Value::Document(b)) => {
                out.push(field.name(), &extreme(a, b, wanted));
            }
            (Value::Array(a), Value::Array(b)) => {
                out.push(field.name(), Value::Array(&extreme(a, b, wanted)));
            }
            _ if compare(&b, &a) == wanted => out.push_value(field.name(), &b),
            _ => out.push_raw(&field),
        }
    }
    for field in new.iter_raw() {
        if known.get_raw(field.name()).is_none() {
            out.push_raw(&field);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bucket::{Measurements, is_bucket};
    use crate::doc;

    const SERIES: Series<'_> = Series {
        time_field: "t",
        meta_field: Some("m"),
    };

    const SPANS: Spans = Spans {
        max_seconds: 3_600,
        rounding_seconds: 60,
    };

    fn pack(measurements: &[DocBuf]) -> Vec<DocBuf> {
        let mut packer = Packer::new(SERIES, SPANS);
        let mut buckets = Vec::new();
        for measurement in measurements {
            packer.add(measurement, &mut buckets).unwrap();
        }
        packer.finish(&mut buckets);
        buckets
    }

    fn unpack(buckets: &[DocBuf]) -> Vec<DocBuf> {
        let mut all = Vec::new();
        for bucket in buckets {
            assert!(is_bucket(bucket));
            let mut measurements = Measurements::new(bucket, SERIES).unwrap();
            let mut out = DocBuf::new();
            while measurements.next(&mut out).unwrap() {
                all.push(out.clone());
            }
        }
        all.sort_by_key(|one| one.get_i64("_id"));
        all
    }

    #[test]
    fn measurements_come_back_from_their_buckets() {
        let measurements: Vec<DocBuf> = (0..5_000_i64)
            .map(|n| {
                let time = Value::DateTime(1_700_000_000_000 + n * 10_000);
                let mut one = doc! {"t": time, "m": n % 3, "_id": n};
                if n % 2 == 0 {
                    one.push("v", n as f64);
                }
                if n % 7 == 0 {
                    one.push("v7", "seven");
                }
                one
            })
            .collect();
        let buckets = pack(&measurements);
        // An hour has 360 of them.
        assert!(buckets.len() >= 3 * 13, "{}", buckets.len());
        // The columns of a bucket are in the order in which its measurements had them first.
        let sorted = |all: &[DocBuf]| -> Vec<DocBuf> {
            let sort = |one: &DocBuf| {
                let mut fields: Vec<_> = one.iter_raw().collect();
                fields.sort_by_key(|field| field.name_bytes());
                let mut out = DocBuf::new();
                fields.iter().for_each(|field| out.push_raw(field));
                out
            };
            all.iter().map(sort).collect()
        };
        assert!(sorted(&unpack(&buckets)) == sorted(&measurements));
    }

    #[test]
    fn a_bucket_knows_its_least_and_greatest_values() {
        let time = |ms: i64| Value::DateTime(1_700_000_000_000 + ms);
        let buckets = pack(&[
            doc! {"t": time(5_000), "m": "x", "_id": 1, "o": {"a": 5, "b": [1, 9]}},
            doc! {"t": time(9_000), "m": "x", "_id": 2, "o": {"a": 3, "b": [4, 2], "c": "y"}},
        ]);
        let [bucket] = buckets.as_slice() else {
            panic!("{buckets:?}");
        };
        assert_eq!(bucket.get_str("meta"), Some("x"));
        let control = bucket.get_doc("control").unwrap();
        let start = 1_700_000_000_000_i64 - 1_700_000_000_000 % 60_000;
        let min =
            doc! {"t": Value::DateTime(start), "_id": 1, "o": {"a": 3, "b": [1, 2], "c": "y"}};
        let max = doc! {"t": time(9_000), "_id": 2, "o": {"a": 5, "b": [4, 9], "c": "y"}};
        assert_eq!(control.get_doc("min"), Some(&*min));
        assert_eq!(control.get_doc("max"), Some(&*max));
        let seconds = bucket.get_object_id("_id").unwrap().0;
        assert_eq!(
            seconds.first_chunk(),
            Some(&((start / 1_000) as u32).to_be_bytes())
        );
    }

    #[test]
    fn buckets_are_divided() {
        let at = |ms: i64| Value::DateTime(1_700_000_040_000 + ms);
        for (second, expected) in [
            (doc! {"t": at(1), "_id": 2, "v": 2.5}, 1),
            (doc! {"t": at(1), "_id": 2, "v": "x"}, 2),
            (doc! {"t": at(1), "_id": 2, "v": 1, "m": null}, 2),
            (doc! {"t": at(3_599_999), "_id": 2}, 1),
            (doc! {"t": at(3_600_000), "_id": 2}, 2),
            (doc! {"t": at(-1), "_id": 2}, 2),
        ] {
            let buckets = pack(&[doc! {"t": at(0), "_id": 1, "v": 1}, second.clone()]);
            assert_eq!(buckets.len(), expected, "{second:?}");
        }
        let text = "x".repeat(50_000);
        let large: Vec<DocBuf> = (0..4)
            .map(|n| doc! {"t": at(n), "v": text.as_str()})
            .collect();
        assert_eq!(pack(&large).len(), 2);
        let many: Vec<DocBuf> = (0..1_001).map(|n| doc! {"t": at(n)}).collect();
        assert_eq!(pack(&many).len(), 2);
    }

    #[test]
    fn what_no_bucket_holds_is_refused() {
        let mut packer = Packer::new(SERIES, SPANS);
        let time = Value::DateTime(0);
        for (measurement, expected) in [
            (doc! {"t": 5}, PackError::Time),
            (doc! {"_id": 1}, PackError::Time),
            (
                doc! {"t": time, "a": 1, "a": 2},
                PackError::Repeated("a".to_owned()),
            ),
        ] {
            assert_eq!(packer.add(&measurement, &mut Vec::new()), Err(expected));
        }
    }
}
