//! `timeseries`: measurements over time. They are stored as ordinary documents, not in buckets; the
//! options are checked and shown as in MongoDB.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::ErrorCode;

use super::read::{Given, missing};
use crate::error::{Result, command};

/// The options of a time series.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeSeries {
    /// The field with the time: a date in every document.
    pub time_field: String,
    /// The field with the metadata that identifies a series.
    pub meta_field: Option<String>,
    granularity: Option<Granularity>,
    bucket_max_span: i64,
    bucket_rounding: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Granularity {
    Seconds,
    Minutes,
    Hours,
}

const GRANULARITIES: &[(&str, Granularity)] = &[
    ("seconds", Granularity::Seconds),
    ("minutes", Granularity::Minutes),
    ("hours", Granularity::Hours),
];

/// The longest span of a bucket: a year.
const SPAN_MAX: i64 = 31_536_000;

impl Granularity {
    fn max_span(self) -> i64 {
        match self {
            Granularity::Seconds => 3600,
            Granularity::Minutes => 86_400,
            Granularity::Hours => 2_592_000,
        }
    }
}

pub(super) fn invalid(message: &str) -> crate::error::Error {
    command(ErrorCode::InvalidOptions, message)
}

fn field_name(given: &Given<'_>) -> Result<String> {
    let name = given.str()?;
    if name.is_empty() || name.contains(['.', '\0']) || name.starts_with('$') {
        return Err(command(
            ErrorCode::BadValue,
            format!(
                "The '{}' must be the name of a field of the top level",
                given.name
            ),
        ));
    }
    Ok(name.to_owned())
}

/// The options of a time series; `collMod` changes those from the third on.
const OPTIONS: [&str; 5] = [
    "timeField",
    "metaField",
    "granularity",
    "bucketMaxSpanSeconds",
    "bucketRoundingSeconds",
];

impl TimeSeries {
    /// Reads the option of `create`.
    pub(super) fn parse(given: &Given<'_>) -> Result<TimeSeries> {
        let (mut time_field, mut meta_field) = (None, None);
        let (mut granularity, mut span, mut rounding) = (None, None, None);
        for inner in Given::each("create.timeseries", given.doc()?, &OPTIONS)? {
            match inner.name {
                "timeField" => time_field = Some(field_name(&inner)?),
                "metaField" => meta_field = Some(field_name(&inner)?),
                "granularity" => granularity = Some(inner.choice(GRANULARITIES)?),
                "bucketMaxSpanSeconds" => span = Some(inner.integer_between(1, SPAN_MAX)?),
                _ => rounding = Some(inner.integer_between(1, SPAN_MAX)?),
            }
        }
        let time_field = time_field.ok_or_else(|| missing("create.timeseries", "timeField"))?;
        if time_field == "_id" {
            return Err(invalid("'timeField' can not be '_id'"));
        }
        match meta_field.as_deref() {
            Some("_id") => return Err(invalid("'metaField' can not be '_id'")),
            Some(meta) if meta == time_field => {
                return Err(invalid("'metaField' can not be the same as 'timeField'"));
            }
            _ => {}
        }
        if rounding.is_some() && span != rounding {
            return Err(invalid(
                "Timeseries 'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' need to be set to \
                 the same value",
            ));
        }
        let default_span = granularity.unwrap_or(Granularity::Seconds).max_span();
        match (granularity, span, rounding) {
            (Some(_), Some(given), _) if given != default_span => Err(invalid(
                "Timeseries 'bucketMaxSpanSeconds' is not configurable to a value other than the \
                 default of its granularity",
            )),
            (None, Some(_), None) => Err(invalid(
                "Timeseries 'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' need to be set \
                 alongside each other",
            )),
            _ => Ok(TimeSeries {
                time_field,
                meta_field,
                granularity: match (granularity, span) {
                    (None, Some(_)) => None,
                    _ => Some(granularity.unwrap_or(Granularity::Seconds)),
                },
                bucket_max_span: span.unwrap_or(default_span),
                bucket_rounding: rounding,
            }),
        }
    }

    /// The longest span of a bucket, in seconds.
    pub fn bucket_span(&self) -> i64 {
        self.bucket_max_span
    }

    /// Applies the `timeseries` of `collMod`: the granularity may only increase.
    pub fn modify(&mut self, changes: &Doc) -> Result<()> {
        for inner in Given::each("collMod.timeseries", changes, &OPTIONS[2..])? {
            match inner.name {
                "granularity" => {
                    let wanted = inner.choice(GRANULARITIES)?;
                    if self.granularity.is_some_and(|now| wanted < now) {
                        return Err(invalid(
                            "Invalid transition for timeseries.granularity. Can only transition \
                             from 'seconds' to 'minutes' or 'minutes' to 'hours'.",
                        ));
                    }
                    self.granularity = Some(wanted);
                    self.bucket_max_span = wanted.max_span();
                    self.bucket_rounding = None;
                }
                "bucketMaxSpanSeconds" => {
                    let span = inner.integer_between(self.bucket_max_span, SPAN_MAX)?;
                    self.bucket_max_span = span;
                }
                _ => self.bucket_rounding = Some(inner.integer_between(1, SPAN_MAX)?),
            }
        }
        Ok(())
    }

    /// The option as it is shown.
    pub(super) fn to_doc(&self) -> DocBuf {
        let mut out = doc! {"timeField": &self.time_field};
        if let Some(meta) = &self.meta_field {
            out.push("metaField", meta);
        }
        if let Some(granularity) = &self.granularity {
            out.push(
                "granularity",
                super::validator::word(GRANULARITIES, granularity),
            );
        }
        out.push("bucketMaxSpanSeconds", self.bucket_max_span as i32);
        if let Some(rounding) = self.bucket_rounding {
            out.push("bucketRoundingSeconds", rounding as i32);
        }
        out
    }

    /// Checks a document that is about to be inserted.
    ///
    /// # Errors
    /// `BadValue` (2) if its time is not a date.
    pub fn check(&self, doc: &Doc) -> Result<()> {
        match doc.get(&self.time_field) {
            Some(Value::DateTime(_)) => Ok(()),
            _ => Err(command(
                ErrorCode::BadValue,
                format!(
                    "'{}' must be present and contain a valid BSON UTC datetime value",
                    self.time_field
                ),
            )),
        }
    }
}
