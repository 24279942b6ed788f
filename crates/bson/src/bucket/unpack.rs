//! The measurements of a bucket.

use super::column::Column;
use super::error::{BucketError, Fault};
use super::state::Element;
use crate::{Doc, DocBuf, RawElement, RawIter, Value, extjson, tag};

/// Measurements of a bucket at most. MongoDB begins another bucket after 1,000, unless a parameter says otherwise.
pub const MEASUREMENTS_MAX: usize = 1 << 20;

/// Columns of a bucket at most, and fields of objects in all columns together.
const FIELDS_MAX: usize = 1 << 16;

/// Characters of the `_id` of a bucket in errors.
const ID_CHARS: usize = 100;

/// The subtype of a compressed column.
const COLUMN: u8 = 7;

/// The fields of a time series that buckets keep apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series<'a> {
    pub time_field: &'a str,
    pub meta_field: Option<&'a str>,
}

/// Whether a document is a bucket of measurements, as MongoDB stores them.
pub fn is_bucket(document: &Doc) -> bool {
    let control = document.get_doc("control").unwrap_or(Doc::empty());
    let has_version = control
        .get("version")
        .is_some_and(|version| version.is_number());
    let is_whole = ["min", "max"]
        .iter()
        .all(|name| control.get_doc(name).is_some());
    has_version && is_whole && matches!(document.get("data"), Some(Value::Document(_)))
}

/// The measurements of a bucket, in its order. Each begins with its time and its metadata, as MongoDB returns it.
pub struct Measurements<'a> {
    bucket: &'a Doc,
    series: Series<'a>,
    meta: Option<RawElement<'a>>,
    time: Source<'a>,
    columns: Vec<(&'a str, Source<'a>)>,
    /// Measurements that were read.
    number: usize,
    /// Measurements that the bucket says it has.
    count: Option<i64>,
}

/// Values of a column that are left.
enum Source<'a> {
    Plain {
        next: Option<RawElement<'a>>,
        rest: RawIter<'a>,
    },
    Compressed(Column<'a>),
}

impl<'a> Measurements<'a> {
    /// Looks at a bucket.
    ///
    /// # Errors
    /// If it has another shape than buckets of this time series have. Columns are read later.
    pub fn new(bucket: &'a Doc, series: Series<'a>) -> Result<Measurements<'a>, BucketError> {
        Measurements::open(bucket, series).map_err(|fault| named(bucket, fault))
    }

    fn open(bucket: &'a Doc, series: Series<'a>) -> Result<Measurements<'a>, Fault> {
        let control =
            (bucket.get_doc("control")).ok_or_else(|| must_be("control", "a document"))?;
        let version = control.get("version");
        let is_compressed = match version.and_then(|version| version.as_i64_lossless()) {
            Some(1) => false,
            Some(2 | 3) => true,
            _ => {
                let version = version.map(|version| format!("{version:?}"));
                return Err(Fault::Version(version.unwrap_or("missing".to_owned())));
            }
        };
        let data = (bucket.get_doc("data")).ok_or_else(|| must_be("data", "a document"))?;
        let meta = bucket.get_raw("meta");
        if meta.is_some() && series.meta_field.is_none() {
            return Err(Fault::Metadata);
        }
        let names = data.count();
        if names > FIELDS_MAX {
            return Err(Fault::TooLarge("columns"));
        }
        let mut time = None;
        let mut columns = Vec::new();
        for element in data.iter_raw() {
            let name = element.name();
            if Some(name) == series.meta_field {
                let text = "a column of its data has the name of the metaField";
                return Err(Fault::Shape(text.to_owned()));
            }
            let source = Source::new(&element, is_compressed, FIELDS_MAX / names)?;
            if name != series.time_field {
                columns.push((name, source));
            } else if time.replace(source).is_some() {
                return Err(Fault::Shape(
                    "two columns of its data have the times".to_owned(),
                ));
            }
        }
        let Some(time) = time else {
            return Err(must_be(&format!("data.{}", series.time_field), "there"));
        };
        Ok(Measurements {
            bucket,
            series,
            meta,
            time,
            columns,
            number: 0,
            count: control.get_i64("count"),
        })
    }

    /// The measurements that were read.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Makes `out` the next measurement. Returns whether there is one.
    ///
    /// # Errors
    /// If the bucket is damaged. It has no further measurements then.
    pub fn next(&mut self, out: &mut DocBuf) -> Result<bool, BucketError> {
        self.read(out).map_err(|fault| named(self.bucket, fault))
    }

    fn read(&mut self, out: &mut DocBuf) -> Result<bool, Fault> {
        out.clear();
        let time_field = self.series.time_field;
        let key = match &self.time {
            Source::Plain { next, .. } => next.as_ref().map(RawElement::name_bytes),
            Source::Compressed(_) => None,
        };
        let time = match self.time.take(key, time_field)? {
            Some(time) => time,
            None => {
                self.check_end()?;
                return Ok(false);
            }
        };
        match time {
            Some((tag::DATE_TIME, value)) => push(out, time_field, (tag::DATE_TIME, value)),
            _ => {
                let what = format!("{time_field} of measurement {}", self.number);
                return Err(must_be(&what, "a date"));
            }
        }
        if let (Some(meta), Some(name)) = (&self.meta, self.series.meta_field) {
            out.push_raw_as(name, meta);
        }
        for (name, source) in &mut self.columns {
            match source.take(key, name)? {
                Some(Some(element)) => push(out, name, element),
                Some(None) => {}
                None => {
                    return Err(Fault::Count {
                        column: (*name).to_owned(),
                        values: self.number,
                        measurements: self.number + 1,
                    });
                }
            }
        }
        self.number += 1;
        if self.count.is_some_and(|count| self.number as i64 > count) {
            return Err(self.wrong_count());
        }
        if self.number > MEASUREMENTS_MAX {
            return Err(Fault::TooLarge("measurements"));
        }
        if out.len_bytes() > crate::MAX_DOCUMENT_BYTES {
            return Err(Fault::TooLarge("bytes in a measurement"));
        }
        Doc::validate(out.as_bytes()).map_err(Fault::Measurement)?;
        Ok(true)
    }

    /// Checks that no column has values behind the last measurement.
    fn check_end(&mut self) -> Result<(), Fault> {
        for (name, source) in &mut self.columns {
            let has_more = match source {
                Source::Plain { next, .. } => next.is_some(),
                Source::Compressed(_) => source.take(None, name)?.is_some(),
            };
            if has_more {
                return Err(Fault::Count {
                    column: (*name).to_owned(),
                    values: self.number + 1,
                    measurements: self.number,
                });
            }
        }
        if self.count.is_some_and(|count| self.number as i64 != count) {
            return Err(self.wrong_count());
        }
        Ok(())
    }

    fn wrong_count(&self) -> Fault {
        let (count, number) = (self.count.unwrap_or_default(), self.number);
        let relation = if number as i64 > count {
            "or more "
        } else {
            ""
        };
        Fault::Shape(format!(
            "its control.count is {count}, and it has {number} {relation}measurements"
        ))
    }
}

impl<'a> Source<'a> {
    fn new(column: &RawElement<'a>, is_compressed: bool, fields: usize) -> Result<Self, Fault> {
        match column.value() {
            Some(Value::Document(values)) if !is_compressed => {
                let mut rest = values.iter_raw();
                let next = rest.next();
                Ok(Source::Plain { next, rest })
            }
            Some(Value::Binary {
                subtype: COLUMN,
                bytes,
            }) if is_compressed => Ok(Source::Compressed(Column::new(bytes, fields))),
            _ => {
                let name = format!("data.{}", column.name());
                let expected = if is_compressed {
                    "binary of subtype 7, as control.version says"
                } else {
                    "a document, as control.version says"
                };
                Err(must_be(&name, expected))
            }
        }
    }

    /// The value of the next measurement, whose key is given where values have keys; none at the end of the column.
    fn take(
        &mut self,
        key: Option<&[u8]>,
        name: &str,
    ) -> Result<Option<Option<Element<'_>>>, Fault> {
        match self {
            Source::Compressed(column) => {
                let cell = column.next();
                cell.map_err(|fault| Fault::Column(name.to_owned(), fault))
            }
            Source::Plain { next, rest } => {
                let Some(key) = key else {
                    return Ok(None);
                };
                let Some(element) = next.filter(|next| next.name_bytes() == key) else {
                    return Ok(Some(None));
                };
                *next = rest.next();
                Ok(Some(Some((element.tag(), element.value_bytes()))))
            }
        }
    }
}

fn push(out: &mut DocBuf, name: &str, (tag, value): Element<'_>) {
    out.push_written(name, tag, |bytes| bytes.extend_from_slice(value));
}

fn must_be(field: &str, what: &str) -> Fault {
    Fault::Shape(format!("its {field} must be {what}"))
}

fn named(bucket: &Doc, fault: Fault) -> BucketError {
    let mut text = match bucket.get("_id") {
        Some(Value::ObjectId(id)) => id.to_string(),
        Some(other) => {
            let mut id = DocBuf::new();
            id.push_value("_id", &other);
            extjson::to_relaxed(&id)
        }
        None => "without _id".to_owned(),
    };
    if let Some((end, _)) = text.char_indices().nth(ID_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    BucketError {
        bucket: text,
        fault,
    }
}
