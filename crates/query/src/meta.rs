//! Metadata of documents for `$meta`: values that a query computes besides the fields.

use std::ops::BitOr;

use frond_bson::{Doc, DocBuf, OwnedValue, Value};

use frond_error::{Error, Result};

/// One kind of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaField {
    /// Score of the document for `$text`.
    TextScore,
    /// A random number from 0 to 1.
    RandVal,
    /// Distance of the document from the point of a `$geoNear`.
    GeoNearDistance,
    /// The point of the document that is so near.
    GeoNearPoint,
    /// The fields of the index that led to the document.
    IndexKey,
    /// The number of the document in its collection.
    RecordId,
    /// The values that the document is sorted by.
    SortKey,
    /// Metadata of search stages, which no document has here.
    Search,
}

use MetaField::{
    GeoNearDistance, GeoNearPoint, IndexKey, RandVal, RecordId, Search, SortKey, TextScore,
};

impl MetaField {
    /// Reads the argument of `$meta`.
    ///
    /// # Errors
    /// 17307 if it is not a string, 17308 for an unknown name.
    pub fn parse(argument: &Value<'_>) -> Result<MetaField> {
        let Value::String(name) = argument else {
            return Err(Error::location(
                17307,
                "$meta only supports string arguments",
            ));
        };
        Ok(match *name {
            "textScore" => TextScore,
            "randVal" => RandVal,
            "geoNearDistance" => GeoNearDistance,
            "geoNearPoint" => GeoNearPoint,
            "indexKey" => IndexKey,
            "recordId" => RecordId,
            "sortKey" => SortKey,
            "searchScore"
            | "searchHighlights"
            | "searchScoreDetails"
            | "vectorSearchScore"
            | "searchSequenceToken" => Search,
            _ => {
                return Err(Error::location(
                    17308,
                    format!("Unsupported argument to $meta: {name}"),
                ));
            }
        })
    }
}

/// The names of the fields in [`Metadata::to_doc`].
const STORED: [(&str, MetaField); 7] = [
    ("t", TextScore),
    ("r", RandVal),
    ("d", GeoNearDistance),
    ("p", GeoNearPoint),
    ("i", IndexKey),
    ("n", RecordId),
    ("s", SortKey),
];

/// A set of kinds of metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaFields(u16);

impl MetaFields {
    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this kind is one of them.
    pub fn has(self, field: MetaField) -> bool {
        self.0 & (1 << field as u16) != 0
    }

    /// Fails for metadata that only certain queries have.
    ///
    /// # Errors
    /// 40218 if the score of `$text` or what `$geoNear` finds is wanted, and the query has none.
    pub fn check(self, has_text: bool, has_near: bool) -> Result<()> {
        for (field, is_there, what) in [
            (TextScore, has_text, "text score"),
            (GeoNearDistance, has_near, "$geoNear distance"),
            (GeoNearPoint, has_near, "$geoNear point"),
        ] {
            if self.has(field) && !is_there {
                return Err(Error::location(
                    40218,
                    format!("query requires {what} metadata, but it is not available"),
                ));
            }
        }
        Ok(())
    }
}

impl From<MetaField> for MetaFields {
    fn from(field: MetaField) -> MetaFields {
        MetaFields(1 << field as u16)
    }
}

impl BitOr for MetaFields {
    type Output = MetaFields;

    fn bitor(self, other: MetaFields) -> MetaFields {
        MetaFields(self.0 | other.0)
    }
}

/// The metadata of one document, as far as it was asked for.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Score of the document for `$text`.
    pub text_score: Option<f64>,
    /// A random number from 0 to 1.
    pub rand_val: Option<f64>,
    /// Its distance from the point of a `$geoNear`.
    pub geo_near_distance: Option<f64>,
    /// The point that is so near.
    pub geo_near_point: Option<OwnedValue>,
    /// The fields of the index that led to it.
    pub index_key: Option<DocBuf>,
    /// Its number in the collection.
    pub record_id: Option<OwnedValue>,
    /// The values that it is sorted by.
    pub sort_key: Option<OwnedValue>,
}

impl Metadata {
    /// The value that `$meta` gives; `None` if there is none.
    pub fn get(&self, field: MetaField) -> Option<Value<'_>> {
        match field {
            TextScore => self.text_score.map(Value::Double),
            RandVal => self.rand_val.map(Value::Double),
            GeoNearDistance => self.geo_near_distance.map(Value::Double),
            GeoNearPoint => self.geo_near_point.as_ref().map(OwnedValue::as_value),
            IndexKey => self.index_key.as_ref().map(|doc| Value::Document(doc)),
            RecordId => self.record_id.as_ref().map(OwnedValue::as_value),
            SortKey => self.sort_key.as_ref().map(OwnedValue::as_value),
            Search => None,
        }
    }

    /// The metadata as a document, to be kept outside of memory.
    pub fn to_doc(&self) -> DocBuf {
        let mut doc = DocBuf::new();
        for (name, field) in STORED {
            if let Some(value) = self.get(field) {
                doc.push_value(name, &value);
            }
        }
        doc
    }

    /// The inverse of [`Metadata::to_doc`].
    pub fn from_doc(doc: &Doc) -> Metadata {
        Metadata {
            text_score: doc.get_f64("t"),
            rand_val: doc.get_f64("r"),
            geo_near_distance: doc.get_f64("d"),
            geo_near_point: doc.get("p").map(OwnedValue::from),
            index_key: doc.get_doc("i").map(DocBuf::from),
            record_id: doc.get("n").map(OwnedValue::from),
            sort_key: doc.get("s").map(OwnedValue::from),
        }
    }

    /// The approximate size in bytes.
    pub fn len_bytes(&self) -> usize {
        let values = [&self.geo_near_point, &self.record_id, &self.sort_key];
        let values = values.into_iter().flatten();
        size_of::<Metadata>()
            + self.index_key.as_ref().map_or(0, |doc| doc.len_bytes())
            + values
                .map(|value| value.as_value().len_bytes())
                .sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::environment::Environment;
    use crate::projection::Projection;
    use crate::sort::SortSpec;
    use crate::testing::json;

    fn scored(score: f64) -> Metadata {
        Metadata {
            text_score: Some(score),
            ..Metadata::default()
        }
    }

    #[test]
    fn projections_show_metadata() {
        for (spec, expected) in [
            ("{s: {$meta: 'textScore'}}", "{_id: 1, a: 2, b: 3, s: 1.5}"),
            ("{a: 1, s: {$meta: 'textScore'}}", "{_id: 1, a: 2, s: 1.5}"),
            ("{a: 0, s: {$meta: 'textScore'}}", "{_id: 1, b: 3, s: 1.5}"),
            ("{_id: 0, b: {$meta: 'textScore'}}", "{a: 2, b: 1.5}"),
            ("{s: {$meta: 'recordId'}}", "{_id: 1, a: 2, b: 3}"),
            ("{a: {$add: [1, {$meta: 'textScore'}]}}", "{_id: 1, a: 2.5}"),
        ] {
            let projection = Projection::parse_with(&json(spec), &Environment::default()).unwrap();
            assert!(!projection.meta().is_empty(), "{spec}");
            let doc = json("{_id: 1, a: 2, b: 3}");
            let meta = scored(1.5);
            let found = projection.apply_with(&doc, Some(&meta)).unwrap();
            assert_eq!(found, json(expected), "{spec}");
        }
        let meta = Metadata {
            geo_near_point: Some(OwnedValue::Array(json("{'0': 1}"))),
            index_key: Some(json("{a: 1}")),
            ..scored(1.5)
        };
        let again = Metadata::from_doc(&meta.to_doc());
        assert_eq!(again.to_doc(), meta.to_doc());
        for (spec, code) in [("{s: {$meta: 1}}", 17307), ("{s: {$meta: 'foo'}}", 17308)] {
            let error = Projection::parse_with(&json(spec), &Environment::default()).unwrap_err();
            assert_eq!(error.code().code(), code, "{spec}");
        }
        let wanted = MetaFields::from(MetaField::TextScore);
        assert!(wanted.check(true, false).is_ok());
        let error = wanted.check(false, true).unwrap_err();
        assert_eq!(
            (error.code().code(), error.message()),
            (
                40218,
                "query requires text score metadata, but it is not available"
            )
        );
    }

    #[test]
    fn documents_sort_by_metadata() {
        let docs = [
            (json("{a: 1}"), 1.0),
            (json("{a: 2}"), 2.0),
            (json("{a: 0}"), 2.0),
        ];
        for (spec, expected) in [
            ("{s: {$meta: 'textScore'}}", [2, 0, 1]),
            ("{s: {$meta: 'textScore'}, a: 1}", [0, 2, 1]),
            ("{a: -1, s: {$meta: 'textScore'}}", [2, 1, 0]),
        ] {
            let order = SortSpec::parse(&json(spec)).unwrap();
            assert!(!order.is_empty() && order.meta().has(MetaField::TextScore));
            let mut sorted: Vec<(Vec<u8>, i64)> = docs
                .iter()
                .map(|(doc, score)| {
                    let mut key = Vec::new();
                    let meta = scored(*score);
                    order.key_with(doc, Some(&meta), &mut key).unwrap();
                    (key, doc.get_i64("a").unwrap())
                })
                .collect();
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            let found: Vec<i64> = sorted.into_iter().map(|(_, a)| a).collect();
            assert_eq!(found, expected, "{spec}");
        }
        let order = SortSpec::parse(&json("{a: 1, s: {$meta: 'textScore'}}")).unwrap();
        let meta = scored(1.5);
        let values = order.values(&json("{a: [3, 2]}"), Some(&meta)).unwrap();
        let expected = json("{k: [2, 1.5]}");
        assert_eq!(values.as_doc(), expected.get_array("k").unwrap());
        for (spec, code) in [
            ("{s: {a: 1}}", 17312),
            ("{s: {$meta: 'textScore', b: 1}}", 9),
            ("{s: {$meta: 'foo'}}", 17308),
            ("{s: {$meta: 'indexKey'}}", 31138),
        ] {
            let error = SortSpec::parse(&json(spec)).unwrap_err();
            assert_eq!(error.code().code(), code, "{spec}");
        }
    }
}
