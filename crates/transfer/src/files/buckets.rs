//! Buckets of a dump, which become measurements.

use frond_bson::bucket::{self, Measurements, Packer, Series, Spans};
use frond_bson::{Doc, DocBuf};
use frond_client::Collection;

use super::dump::Metadata;
use super::sink::{NAMED, Sink};
use crate::error::{Error, Result};
use crate::schema::Refusal;

/// The fields of a time series that its buckets keep apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesFields {
    time: String,
    meta: Option<String>,
}

impl SeriesFields {
    /// The fields of a time series; other collections have none.
    pub fn from_metadata(metadata: &Metadata) -> Option<SeriesFields> {
        let options = metadata.options.get_doc("timeseries")?;
        Some(SeriesFields {
            time: options.get_str("timeField")?.to_owned(),
            meta: options.get_str("metaField").map(str::to_owned),
        })
    }
}

/// The spans that the options of a time series give its buckets.
fn spans_of(metadata: &Metadata) -> Spans {
    let options = (metadata.options.get_doc("timeseries")).unwrap_or(Doc::empty());
    let (span, rounding) = match options.get_str("granularity") {
        Some("minutes") => (86_400, 3_600),
        Some("hours") => (2_592_000, 86_400),
        _ => (3_600, 60),
    };
    Spans {
        max_seconds: options.get_i64("bucketMaxSpanSeconds").unwrap_or(span),
        rounding_seconds: options.get_i64("bucketRoundingSeconds").unwrap_or(rounding),
    }
}

/// Packs the measurements that `read` shows, and shows the buckets to `put`.
pub fn pack(
    collection: &Collection,
    metadata: &Metadata,
    read: impl FnOnce(&mut dyn FnMut(&Doc) -> Result<()>) -> Result<()>,
    put: &mut dyn FnMut(&Doc) -> Result<()>,
) -> Result<()> {
    let Some(fields) = SeriesFields::from_metadata(metadata) else {
        return read(put);
    };
    let series = Series {
        time_field: &fields.time,
        meta_field: fields.meta.as_deref(),
    };
    let mut packer = Packer::new(series, spans_of(metadata));
    let mut closed = Vec::new();
    read(&mut |measurement| {
        (packer.add(measurement, &mut closed))
            .map_err(|error| Error::Data(format!("{collection}: {error}")))?;
        closed.drain(..).try_for_each(|bucket| put(&bucket))
    })?;
    packer.finish(&mut closed);
    closed.iter().try_for_each(|bucket| put(bucket))
}

/// Unpacks buckets, and counts them.
#[derive(Debug, Default)]
pub struct Unpacker {
    /// Buckets whose measurements were sent to the server.
    pub unpacked: u64,
    /// Damaged buckets, of which nothing is imported. The first ones are named in `refused`.
    damaged: u64,
    refused: Vec<Refusal>,
    stops_on_error: bool,
}

impl Unpacker {
    pub fn new(stops_on_error: bool) -> Unpacker {
        Unpacker {
            stops_on_error,
            ..Unpacker::default()
        }
    }

    /// Sends a document of a time series to the server: a bucket as its measurements. Returns whether it is a bucket.
    pub fn put(
        &mut self,
        collection: &Collection,
        fields: &SeriesFields,
        document: &Doc,
        number: u64,
        sink: &mut Sink<'_>,
    ) -> Result<bool> {
        if !bucket::is_bucket(document) {
            sink.put(collection, document, number)?;
            return Ok(false);
        }
        let series = Series {
            time_field: &fields.time,
            meta_field: fields.meta.as_deref(),
        };
        // A bucket that is damaged at its end must not leave half of its measurements, so it is read twice.
        if let Err(error) = each(document, series, |_| Ok(())) {
            return self.refuse(collection, number, &error).map(|()| true);
        }
        each(document, series, |measurement| {
            sink.put(collection, measurement, number)
        })?;
        self.unpacked += 1;
        Ok(true)
    }

    fn refuse(&mut self, collection: &Collection, number: u64, error: &Error) -> Result<()> {
        let what = format!("document {number} of {collection}");
        if self.stops_on_error {
            return Err(Error::Refused(format!("{what}: {error}")));
        }
        self.damaged += 1;
        if self.damaged <= NAMED {
            let why = error.to_string();
            self.refused.push(Refusal { what, why });
        }
        Ok(())
    }

    /// All that could not be unpacked.
    pub fn refusals(self) -> Vec<Refusal> {
        let mut refused = self.refused;
        if let Some(more) = self.damaged.checked_sub(NAMED).filter(|more| *more > 0) {
            refused.push(Refusal {
                what: format!("{more} more buckets"),
                why: "they are damaged".to_owned(),
            });
        }
        refused
    }
}

/// Reads the measurements of a bucket to its end, or to the first error.
fn each(
    document: &Doc,
    series: Series<'_>,
    mut take: impl FnMut(&Doc) -> Result<()>,
) -> Result<()> {
    let damaged = |error: bucket::BucketError| Error::Data(error.to_string());
    let mut measurements = Measurements::new(document, series).map_err(damaged)?;
    let mut measurement = DocBuf::new();
    while measurements.next(&mut measurement).map_err(damaged)? {
        take(&measurement)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use frond_bson::doc;

    #[test]
    fn only_time_series_have_fields_of_their_own() {
        let fields = |options: DocBuf| {
            SeriesFields::from_metadata(&Metadata {
                options,
                ..Metadata::default()
            })
        };
        assert_eq!(fields(doc! {}), None);
        assert_eq!(fields(doc! {"timeseries": {}}), None);
        let found = fields(doc! {"timeseries": {"timeField": "t", "metaField": "m"}}).unwrap();
        assert_eq!(
            (found.time.as_str(), found.meta.as_deref()),
            ("t", Some("m"))
        );
    }
}
