//! Inserts of MongoDB's buckets under the name that the buckets of a time series have, as `mongorestore` sends them.
//! Their measurements are stored.

use std::collections::BTreeMap;

use frond_bson::bucket::{Measurements, Series, is_bucket};
use frond_bson::{Doc, DocBuf};
use frond_error::{Error, Result};
use frond_store::Namespace;

use crate::context::Context;
use crate::reply::WriteErrors;

/// Bytes of the measurements of one command at most. Metadata is in each of them, and only once in a bucket.
const BYTES_MAX: usize = 128 << 20;

/// The documents that are stored for those of an insert.
#[derive(Default)]
pub struct Unpacked {
    pub documents: Vec<DocBuf>,
    /// The places of the documents of the insert that they come from.
    pub places: Vec<usize>,
    /// Buckets that are not stored, by place.
    damaged: BTreeMap<usize, Error>,
    /// Documents of the insert that are tried.
    tried: usize,
}

/// Unpacks buckets. None if there are none, or `namespace` is no name of the buckets of a time series.
pub fn unpack(
    cx: &Context<'_>,
    namespace: &Namespace,
    documents: &[&Doc],
    ordered: bool,
) -> Result<Option<Unpacked>> {
    let has_buckets = namespace.coll().starts_with("system.buckets.")
        && documents.iter().any(|document| is_bucket(document));
    if !has_buckets {
        return Ok(None);
    }
    let collection = cx.store().catalog().collection(namespace);
    let fields = collection
        .as_ref()
        .and_then(|collection| collection.settings.time_series.as_ref());
    let Some(fields) = fields else {
        return Ok(None);
    };
    let series = Series {
        time_field: &fields.time_field,
        meta_field: fields.meta_field.as_deref(),
    };
    let mut unpacked = Unpacked::default();
    let mut bytes = 0;
    for (place, document) in documents.iter().enumerate() {
        unpacked.tried = place + 1;
        let start = unpacked.documents.len();
        if let Err(error) = unpacked.add(document, series, &mut bytes) {
            unpacked.documents.truncate(start);
            unpacked.damaged.insert(place, error);
            if ordered {
                break;
            }
        }
        unpacked.places.resize(unpacked.documents.len(), place);
    }
    Ok(Some(unpacked))
}

impl Unpacked {
    /// Adds the measurements of a bucket, or a document that is none.
    fn add(&mut self, document: &Doc, series: Series<'_>, bytes: &mut usize) -> Result<()> {
        if !is_bucket(document) {
            self.documents.push(document.to_owned());
            return Ok(());
        }
        let damaged = |error: frond_bson::bucket::BucketError| Error::bad_value(error.to_string());
        let mut measurements = Measurements::new(document, series).map_err(damaged)?;
        let mut measurement = DocBuf::new();
        while measurements.next(&mut measurement).map_err(damaged)? {
            *bytes += measurement.len_bytes();
            if *bytes > BYTES_MAX {
                return Err(Error::bad_value(format!(
                    "the buckets of one insert have more than {BYTES_MAX} bytes of measurements: insert fewer at once"
                )));
            }
            self.documents.push(measurement.clone());
        }
        Ok(())
    }

    /// The numbers of the statements of the measurements. Only the last one of a bucket has the number of its bucket: a
    /// crash between two commits of a bucket must not let a retry take it for stored.
    pub fn numbers(&self, of_buckets: &[i32]) -> Vec<i32> {
        const NONE: i32 = -1;
        let mut following = self.places.iter().skip(1);
        let places = self.places.iter();
        places
            .map(|place| {
                if following.next() == Some(place) {
                    NONE
                } else {
                    of_buckets.get(*place).copied().unwrap_or(NONE)
                }
            })
            .collect()
    }

    /// The outcome of the insert, from that of the measurements: a bucket is stored if all of its measurements are.
    /// Returns how many are stored, and which failed.
    pub fn outcome(
        self,
        errors: impl IntoIterator<Item = (usize, Error)>,
        ordered: bool,
    ) -> (usize, WriteErrors) {
        let mut failed = BTreeMap::new();
        for (at, error) in errors {
            let place = self.places.get(at).copied().unwrap_or_default();
            failed.entry(place).or_insert(error);
        }
        // An ordered insert stops at the first error, so it does not report damaged buckets behind it.
        if !ordered || failed.is_empty() {
            failed.extend(self.damaged);
        }
        let stored = match (ordered, failed.first_key_value()) {
            (true, Some((place, _))) => *place,
            _ => self.tried - failed.len(),
        };
        let mut errors = WriteErrors::default();
        for (place, error) in failed {
            errors.push(place, error);
        }
        (stored, errors)
    }
}
