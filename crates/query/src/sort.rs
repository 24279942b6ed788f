//! Sort specifications and sort keys: `{age: -1, name: 1}`.

use std::cmp::Ordering;

use frond_bson::key::Direction;
use frond_bson::{ArrayBuf, Collator, Doc, Value};

use crate::display;
use crate::meta::{MetaField, MetaFields, Metadata};
use crate::paths::{KeyPaths, ParallelArrays, Path, check_field_path};
use crate::required_fields::RequiredFields;
use frond_error::{Error, Result};

/// A parsed sort specification.
#[derive(Clone, Debug)]
pub struct SortSpec {
    paths: KeyPaths,
    directions: Box<[Direction]>,
    natural: Option<Direction>,
    collator: Collator,
    /// Metadata to sort by, greatest first, each with the number of the paths before it.
    meta: Box<[(usize, MetaField)]>,
}

impl SortSpec {
    /// Parses a specification such as `{age: -1, "address.city": 1}`. An empty one sorts nothing.
    ///
    /// Fails with code 15974 for a direction that is not a number, 15975 for another number than 1 and
    /// -1, 16410, 15998, 40352 and 40353 for a name that is not a path, 7472500 for a repeated name,
    /// 13103 for more than 32 fields, 2 for a misplaced `$natural`.
    pub fn parse(spec: &Doc) -> Result<SortSpec> {
        if let Some(value) = spec.get("$natural") {
            return Self::parse_natural(spec, &value);
        }
        let mut paths: Vec<Path> = Vec::new();
        let mut directions = Vec::new();
        let mut meta = Vec::new();
        for (name, value) in spec.iter() {
            check_field_path(name)?;
            if paths.iter().any(|path| path.as_str() == name) {
                return Err(Error::location(
                    7_472_500,
                    format!("$sort key must not contain duplicate keys (duplicate: '{name}')"),
                ));
            }
            if let Value::Document(expression) = value {
                meta.push((paths.len(), meta_field(expression)?));
                continue;
            }
            paths.push(Path::new(name));
            directions.push(direction(name, &value)?);
        }
        let paths = KeyPaths::new(paths)?;
        Ok(SortSpec {
            paths,
            directions: directions.into(),
            natural: None,
            collator: Collator::default(),
            meta: meta.into(),
        })
    }

    fn parse_natural(spec: &Doc, value: &Value<'_>) -> Result<SortSpec> {
        if spec.count() > 1 {
            return Err(Error::bad_value(
                "Cannot include '$natural' in compound sort specification",
            ));
        }
        let natural = match value.as_i64_lossless() {
            Some(1) => Direction::Ascending,
            Some(-1) => Direction::Descending,
            _ => {
                return Err(Error::bad_value(
                    "$natural sort cannot be set to a value other than -1 or 1.",
                ));
            }
        };
        Ok(SortSpec {
            paths: KeyPaths::new([])?,
            directions: Box::new([]),
            natural: Some(natural),
            collator: Collator::default(),
            meta: Box::new([]),
        })
    }

    /// The same order with strings compared by `collator`.
    pub fn collated(self, collator: &Collator) -> SortSpec {
        SortSpec {
            collator: collator.clone(),
            ..self
        }
    }

    pub fn collator(&self) -> &Collator {
        &self.collator
    }

    /// Whether the specification names no field: `{}` or `{$natural: …}`.
    pub fn is_empty(&self) -> bool {
        self.directions.is_empty() && self.meta.is_empty()
    }

    /// The metadata that is sorted by.
    pub fn meta(&self) -> MetaFields {
        let fields = self.meta.iter().map(|(_, field)| MetaFields::from(*field));
        fields.fold(MetaFields::default(), |all, one| all | one)
    }

    /// The direction of `{$natural: ±1}`: documents are wanted in the order of their storage, no
    /// index may be used.
    pub fn natural(&self) -> Option<Direction> {
        self.natural
    }

    /// The fields in order of precedence.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&Path, Direction)> {
        self.paths
            .paths()
            .iter()
            .zip(self.directions.iter().copied())
    }

    /// The parts of a document that the key depends on.
    pub fn required_fields(&self) -> RequiredFields {
        self.paths.paths().iter().map(Path::as_str).collect()
    }

    /// The sort key of `doc`: documents sort like the bytes of their keys.
    ///
    /// A missing field counts as null. Of an array, the least element counts in an ascending field
    /// and the greatest in a descending one; an empty array counts as less than null. In a compound
    /// sort the values come from the same array element where fields share an array, and the first
    /// key in sort order counts.
    ///
    /// Fails with code 2 if two fields go through different arrays.
    pub fn key(&self, doc: &Doc) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        self.key_into(doc, &mut key)?;
        Ok(key)
    }

    /// [`SortSpec::key`] into a buffer that is reused; its content is replaced.
    pub fn key_into(&self, doc: &Doc, key: &mut Vec<u8>) -> Result<()> {
        self.key_with(doc, None, key)
    }

    /// [`SortSpec::key_into`] with the metadata of the document.
    pub fn key_with(&self, doc: &Doc, meta: Option<&Metadata>, key: &mut Vec<u8>) -> Result<()> {
        key.clear();
        if self.directions.is_empty() {
            self.encode_meta(0, meta, key);
            return Ok(());
        }
        let mut candidate = Vec::new();
        let mut is_first = true;
        self.paths.for_each(doc, ParallelArrays::Refuse, |values| {
            let buffer = if is_first { &mut *key } else { &mut candidate };
            buffer.clear();
            for (position, (value, direction)) in values.iter().zip(&self.directions).enumerate() {
                self.encode_meta(position, meta, buffer);
                let value = value.unwrap_or(Value::Null);
                (self.collator).encode_directed(&value, *direction, buffer);
            }
            self.encode_meta(self.directions.len(), meta, buffer);
            if !is_first && candidate < *key {
                std::mem::swap(key, &mut candidate);
            }
            is_first = false;
            Ok(())
        })?;
        Ok(())
    }

    /// The metadata before the path at a position, greatest first.
    fn encode_meta(&self, position: usize, meta: Option<&Metadata>, key: &mut Vec<u8>) {
        for (at, field) in &self.meta {
            if *at == position {
                let value = meta.and_then(|meta| meta.get(*field));
                let value = value.unwrap_or(Value::Null);
                (self.collator).encode_directed(&value, Direction::Descending, key);
            }
        }
    }

    /// The values that `doc` is sorted by, as an array in the order of the specification: what
    /// `$meta: "sortKey"` shows.
    pub fn values(&self, doc: &Doc, meta: Option<&Metadata>) -> Result<ArrayBuf> {
        let mut best: Option<(Vec<u8>, ArrayBuf)> = None;
        let mut take = |values: &[Option<Value<'_>>]| {
            let mut key = Vec::new();
            let mut shown = ArrayBuf::new();
            let show_meta = |position: usize, shown: &mut ArrayBuf| {
                for (at, field) in &self.meta {
                    if *at == position {
                        let value = meta.and_then(|meta| meta.get(*field));
                        shown.push_value(&value.unwrap_or(Value::Null));
                    }
                }
            };
            for (position, (value, direction)) in values.iter().zip(&self.directions).enumerate() {
                show_meta(position, &mut shown);
                let value = value.unwrap_or(Value::Null);
                (self.collator).encode_directed(&value, *direction, &mut key);
                shown.push_value(&value);
            }
            show_meta(self.directions.len(), &mut shown);
            if best.as_ref().is_none_or(|(least, _)| key < *least) {
                best = Some((key, shown));
            }
            Ok(())
        };
        if self.directions.is_empty() {
            take(&[])?;
        } else {
            self.paths
                .for_each(doc, ParallelArrays::Refuse, |values| take(values))?;
        }
        Ok(best.map(|(_, shown)| shown).unwrap_or_default())
    }

    /// Compares two documents. To sort many documents, compute their keys once instead.
    pub fn compare(&self, a: &Doc, b: &Doc) -> Result<Ordering> {
        Ok(self.key(a)?.cmp(&self.key(b)?))
    }
}

/// `{$meta: "textScore"}`.
fn meta_field(expression: &Doc) -> Result<MetaField> {
    let Some(argument) = expression.get("$meta") else {
        return Err(Error::location(
            17312,
            "$meta is the only expression supported by $sort right now",
        ));
    };
    if expression.count() > 1 {
        return Err(Error::failed_to_parse(
            "Cannot have additional keys in a $meta sort specification",
        ));
    }
    match MetaField::parse(&argument)? {
        field @ (MetaField::TextScore
        | MetaField::RandVal
        | MetaField::GeoNearDistance
        | MetaField::Search) => Ok(field),
        _ => Err(Error::location(
            31138,
            format!(
                "Illegal $meta sort: {}",
                display::element("$meta", &argument)
            ),
        )),
    }
}

fn direction(name: &str, value: &Value<'_>) -> Result<Direction> {
    if !value.is_number() {
        return Err(Error::location(
            15974,
            format!(
                "Illegal key in $sort specification: {}",
                display::element(name, value)
            ),
        ));
    }
    // Like MongoDB, read the number as an integer first: 1.5 is ascending.
    match value.as_f64().map(f64::trunc) {
        Some(1.0) => Ok(Direction::Ascending),
        Some(-1.0) => Ok(Direction::Descending),
        _ => Err(Error::location(
            15975,
            "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::json;

    fn sorted(spec: &str, documents: &[&str]) -> Vec<String> {
        let spec = SortSpec::parse(&json(spec)).unwrap();
        let mut documents: Vec<_> = documents
            .iter()
            .map(|text| (text.to_string(), json(text)))
            .collect();
        documents.sort_by(|a, b| spec.compare(&a.1, &b.1).unwrap());
        documents.into_iter().map(|(text, _)| text).collect()
    }

    #[test]
    fn documents_sort_by_type_and_value() {
        let ascending = [
            "{a: MinKey}",
            "{a: []}",
            "{a: null}",
            "{a: NaN}",
            "{a: -5}",
            "{a: 1.5}",
            "{a: NumberLong(2)}",
            "{a: 'a'}",
            "{a: 'b'}",
            "{a: {b: 1}}",
            "{a: BinData(0, '00')}",
            "{a: false}",
            "{a: true}",
            "{a: Date(1)}",
            "{a: MaxKey}",
        ];
        let mut shuffled = ascending;
        shuffled.rotate_left(6);
        assert_eq!(sorted("{a: 1}", &shuffled), ascending);
        let mut descending = ascending;
        descending.reverse();
        assert_eq!(sorted("{a: -1}", &shuffled), descending);
    }

    #[test]
    fn arrays_sort_by_their_extremes() {
        for (spec, documents) in [
            ("{a: 1}", &["{a: [9, 1]}", "{a: 2}", "{a: [3, 4]}"][..]),
            ("{a: -1}", &["{a: [9, 1]}", "{a: [3, 4]}", "{a: 2}"]),
            ("{a: 1}", &["{a: []}", "{}", "{a: [5]}"]),
            ("{a: 1}", &["{a: []}", "{a: [null, 3]}", "{a: 0}"]),
            (
                "{'a.b': 1}",
                &["{a: [{b: 7}, {b: 1}]}", "{a: {b: 2}}", "{a: [{b: 3}]}"],
            ),
            ("{'a.b': 1}", &["{a: 5}", "{a: {b: 0}}"]),
            ("{'a.1': 1}", &["{a: [9, 1]}", "{a: [0, 2]}"]),
            // an empty array at a position as undefined, before null
            (
                "{'a.0': 1}",
                &["{a: [[]]}", "{a: [null]}", "{a: [1]}", "{a: [[0]]}"],
            ),
            (
                "{'a.0': -1}",
                &["{a: [[0]]}", "{a: [1]}", "{a: [null]}", "{a: [[]]}"],
            ),
            // arrays of arrays compare as arrays
            ("{a: 1}", &["{a: 5}", "{a: [[1]]}", "{a: [[2]]}"]),
        ] {
            let mut reversed = documents.to_vec();
            reversed.reverse();
            assert_eq!(sorted(spec, &reversed), documents, "{spec}");
        }
    }

    #[test]
    fn compound_sorts() {
        for (spec, documents) in [
            (
                "{a: 1, b: -1}",
                &["{a: 1, b: 2}", "{a: 1, b: 1}", "{a: 1}", "{a: 2, b: 9}"][..],
            ),
            // the values come from the same element: (1, 9) sorts before (2, 0)
            (
                "{'a.b': 1, 'a.c': 1}",
                &["{a: [{b: 1, c: 9}, {b: 2, c: 0}]}", "{a: [{b: 2, c: -1}]}"],
            ),
            (
                "{'a.b': 1, 'a.c': -1}",
                &["{a: [{b: 1, c: 3}, {b: 1, c: 7}]}", "{a: [{b: 1, c: 5}]}"],
            ),
        ] {
            let mut reversed = documents.to_vec();
            reversed.reverse();
            assert_eq!(sorted(spec, &reversed), documents, "{spec}");
        }
        let spec = SortSpec::parse(&json("{a: 1, b: 1}")).unwrap();
        let error = spec.key(&json("{a: [1, 2], b: [3, 4]}")).unwrap_err();
        assert_eq!(
            (error.code().code(), error.message()),
            (2, "cannot sort with keys that are parallel arrays")
        );
    }

    #[test]
    fn equal_values_have_equal_keys() {
        let spec = SortSpec::parse(&json("{a: 1, b: -1}")).unwrap();
        let key = |text: &str| spec.key(&json(text)).unwrap();
        assert_eq!(key("{a: 1}"), key("{a: NumberDecimal('1.0'), b: null}"));
        assert_ne!(key("{a: 1}"), key("{a: '1'}"));
        let mut buffer = vec![1, 2, 3];
        spec.key_into(&json("{a: [5, 1]}"), &mut buffer).unwrap();
        assert_eq!(buffer, key("{a: 1}"));
    }

    #[test]
    fn specifications() {
        let spec = SortSpec::parse(&json("{a: 1.0, 'b.c': NumberLong(-1)}")).unwrap();
        let fields: Vec<_> = spec
            .fields()
            .map(|(path, direction)| (path.as_str(), direction))
            .collect();
        assert_eq!(
            fields,
            [("a", Direction::Ascending), ("b.c", Direction::Descending)]
        );
        assert!(SortSpec::parse(&json("{}")).unwrap().is_empty());
        let natural = SortSpec::parse(&json("{$natural: -1}")).unwrap();
        assert_eq!(natural.natural(), Some(Direction::Descending));
        assert!(natural.is_empty());
    }

    #[test]
    fn bad_specifications() {
        for (spec, code, message) in [
            (
                "{a: 'asc'}",
                15974,
                "Illegal key in $sort specification: a: \"asc\"",
            ),
            (
                "{a: true}",
                15974,
                "Illegal key in $sort specification: a: true",
            ),
            (
                "{a: 0}",
                15975,
                "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
            ),
            (
                "{a: 2}",
                15975,
                "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
            ),
            (
                "{'': 1}",
                40352,
                "FieldPath cannot be constructed with empty string",
            ),
            ("{'a.': 1}", 40353, "FieldPath must not end with a '.'."),
            (
                "{'a..b': 1}",
                15998,
                "FieldPath field names may not be empty strings.",
            ),
            (
                "{'a.$b': 1}",
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or \
                 $setField.",
            ),
            (
                "{a: 1, a: -1}",
                7472500,
                "$sort key must not contain duplicate keys (duplicate: 'a')",
            ),
            (
                "{$natural: 1, a: 1}",
                2,
                "Cannot include '$natural' in compound sort specification",
            ),
            (
                "{$natural: 2}",
                2,
                "$natural sort cannot be set to a value other than -1 or 1.",
            ),
        ] {
            let error = SortSpec::parse(&json(spec)).unwrap_err();
            assert_eq!(
                (error.code().code(), error.message()),
                (code, message),
                "{spec}"
            );
        }
    }
}
