//! Conditions on the buckets of a time series, as `mongodump` with a query sends them. Measurements are not kept in buckets:
//! `meta` of a bucket is their field with the metadata, and no measurement has the rest.

use frond_bson::{Doc, DocBuf, Value};
use frond_error::ErrorCode;

use super::TimeSeries;
use crate::error::{Result, command};

/// The field of a bucket with the metadata.
const META: &str = "meta";

impl TimeSeries {
    /// The filter on measurements that a filter on their buckets stands for.
    ///
    /// # Errors
    /// `NotImplemented` (238) for conditions on what only buckets have, and for those whose fields are not seen.
    pub fn filter_of_measurements(&self, filter: &Doc) -> Result<DocBuf> {
        let mut out = DocBuf::with_capacity(filter.len_bytes());
        for (name, value) in filter.iter() {
            let (field, rest) = match name.split_once('.') {
                Some((field, _)) => (field, name.get(field.len()..).unwrap_or_default()),
                None => (name, ""),
            };
            match (field, value) {
                (META, value) => match &self.meta_field {
                    Some(meta) => out.push_value(&format!("{meta}{rest}"), &value),
                    None => return Err(refused("'meta', as the time series has no metaField")),
                },
                ("$and" | "$or" | "$nor", Value::Array(branches)) => {
                    out.push_array(name, |array| -> Result<()> {
                        for branch in branches.values() {
                            match branch {
                                Value::Document(branch) => {
                                    array.push(&self.filter_of_measurements(branch)?);
                                }
                                other => array.push_value(&other),
                            }
                        }
                        Ok(())
                    })?;
                }
                ("control" | "data", _) => return Err(refused(&format!("'{name}'"))),
                ("$expr" | "$where" | "$jsonSchema" | "$text", _) => {
                    return Err(refused(&format!("'{name}'")));
                }
                (_, value) => out.push_value(name, &value),
            }
        }
        Ok(out)
    }
}

fn refused(what: &str) -> crate::error::Error {
    command(
        ErrorCode::NotImplemented,
        format!(
            "A time series has no buckets in this server, so they cannot be found by {what}. Find its measurements by the name \
             without 'system.buckets.'"
        ),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use frond_bson::doc;

    fn series(meta: Option<&str>) -> TimeSeries {
        let mut options = doc! {"timeField": "at"};
        if let Some(meta) = meta {
            options.push("metaField", meta);
        }
        let whole = doc! {"timeseries": &options};
        crate::options::CollectionOptions::parse(&whole)
            .unwrap()
            .time_series
            .unwrap()
    }

    #[test]
    fn conditions_on_meta_find_the_metadata_of_measurements() {
        let with = series(Some("where"));
        for (filter, expected) in [
            (doc! {}, doc! {}),
            (doc! {"meta": 5}, doc! {"where": 5}),
            (
                doc! {"meta.a.b": {"$gt": 5}, "_id": 1},
                doc! {"where.a.b": {"$gt": 5}, "_id": 1},
            ),
            (doc! {"metal": 5}, doc! {"metal": 5}),
            (
                doc! {"$or": [{"meta": 1}, {"$and": [{"meta.x": 2}]}]},
                doc! {"$or": [{"where": 1}, {"$and": [{"where.x": 2}]}]},
            ),
            (doc! {"$or": 5}, doc! {"$or": 5}),
            (doc! {"$comment": "c"}, doc! {"$comment": "c"}),
        ] {
            assert_eq!(with.filter_of_measurements(&filter).unwrap(), expected);
        }
        for filter in [
            doc! {"control.min.at": {"$gt": 5}},
            doc! {"data": {"$exists": true}},
            doc! {"$nor": [{"control.count": 1}]},
            doc! {"$expr": {"$eq": ["$meta", 1]}},
        ] {
            let error = with.filter_of_measurements(&filter).unwrap_err();
            assert!(error.to_string().contains("no buckets"), "{filter:?}");
        }
        let without = series(None);
        assert!(without.filter_of_measurements(&doc! {"meta": 1}).is_err());
        assert!(without.filter_of_measurements(&doc! {"x": 1}).is_ok());
    }
}
