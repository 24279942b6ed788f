//! Ranges of `_id`, by which collections are divided.
//!
//! A comparison such as `{$gte: 5}` finds values of the same class of types only. So a range lies within one
//! class, and the ranges of all classes together are the collection.

use frond_bson::{
    Doc, DocBuf, ObjectId, OwnedValue, Timestamp, Value, canonical_class, compare, doc,
};
use frond_client::{Client, Collection, CursorRequest};

use crate::error::{Error, Result};

/// Collections below this size are one range for each class.
const SPLIT_DOCUMENTS: u64 = 50_000;

/// Documents that a range has about.
const RANGE_DOCUMENTS: u64 = 100_000;

/// Ranges of one collection at most.
const RANGES_MAX: u64 = 256;

/// Sampled documents for each range.
const SAMPLES: u64 = 16;

/// A part of a collection.
#[derive(Clone, Debug, PartialEq)]
pub enum Range {
    /// All documents, in the order of insertion.
    All,
    /// From `low` on, and less than `high`, or all of `low`'s class from there on.
    Ids {
        /// The least `_id`.
        low: OwnedValue,
        /// The first `_id` behind it.
        high: Option<OwnedValue>,
    },
    /// Null, MinKey, MaxKey, NaN and code, which no comparison finds.
    Rest,
}

/// The least value of each class that has an order.
fn least_values() -> Vec<OwnedValue> {
    vec![
        OwnedValue::Double(f64::NEG_INFINITY),
        OwnedValue::String(String::new()),
        OwnedValue::Document(DocBuf::new()),
        OwnedValue::Binary {
            subtype: 0,
            bytes: Vec::new(),
        },
        OwnedValue::ObjectId(ObjectId([0; 12])),
        OwnedValue::Bool(false),
        OwnedValue::DateTime(i64::MIN),
        OwnedValue::Timestamp(Timestamp {
            time: 0,
            increment: 0,
        }),
    ]
}

impl Range {
    /// The documents of the range behind `last`, or all of them.
    pub fn filter(&self, last: Option<&Value<'_>>) -> DocBuf {
        self.between(last, None)
    }

    /// The documents behind `after` up to `to`, that one included.
    pub fn between(&self, after: Option<&Value<'_>>, to: Option<&Value<'_>>) -> DocBuf {
        let mut filter = DocBuf::new();
        match self {
            Range::All => {}
            Range::Ids { low, high } => filter.push_doc("_id", |bounds| {
                match after {
                    Some(after) => bounds.push_value("$gt", after),
                    None => bounds.push("$gte", low),
                }
                match (to, high) {
                    (Some(to), _) => bounds.push_value("$lte", to),
                    (None, Some(high)) => bounds.push("$lt", high),
                    (None, None) => {}
                }
            }),
            // By codes of types, as a server that has no such type may not even read a message with one.
            Range::Rest => filter.push_array("$or", |either| {
                // NaN, the double that is not even above -Infinity.
                either.push(&doc! { "_id": { "$type": 1, "$not": { "$gte": f64::NEG_INFINITY } } });
                for code in [10, -1, 127, 6, 11, 12, 13, 15] {
                    either.push(&doc! { "_id": { "$type": code } });
                }
            }),
        }
        filter
    }

    /// Whether the documents come in the order of their `_id`s, so that a part of the range can be recognized by the last one.
    pub fn is_by_id(&self) -> bool {
        matches!(self, Range::Ids { .. })
    }

    /// Its document in the state.
    pub fn to_doc(&self) -> DocBuf {
        match self {
            Range::All => doc! { "kind": "all" },
            Range::Rest => doc! { "kind": "rest" },
            Range::Ids { low, high } => {
                let mut range = doc! { "kind": "ids" };
                push_opaque(&mut range, "low", &low.as_value());
                if let Some(high) = high {
                    push_opaque(&mut range, "high", &high.as_value());
                }
                range
            }
        }
    }

    pub fn from_doc(stored: &Doc) -> Option<Range> {
        match stored.get_str("kind")? {
            "all" => Some(Range::All),
            "rest" => Some(Range::Rest),
            "ids" => Some(Range::Ids {
                low: opaque(stored, "low")?,
                high: opaque(stored, "high"),
            }),
            _ => None,
        }
    }
}

/// Appends a value in the binary form of a document: not every server stores every value.
pub fn push_opaque(out: &mut DocBuf, name: &str, value: &Value<'_>) {
    let mut wrapped = DocBuf::new();
    wrapped.push_value("v", value);
    out.push_value(
        name,
        &Value::Binary {
            subtype: 0,
            bytes: wrapped.as_bytes(),
        },
    );
}

pub fn opaque(stored: &Doc, name: &str) -> Option<OwnedValue> {
    let wrapped = Doc::validate(stored.get_binary(name)?).ok()?;
    Some(wrapped.get("v")?.to_owned())
}

/// The first or last `_id` of a collection.
fn outermost(
    client: &mut Client,
    collection: &Collection,
    direction: i32,
) -> Result<Option<OwnedValue>> {
    let mut found = None;
    let request = CursorRequest {
        collection,
        filter: Doc::empty(),
        projection: Some(&doc! { "_id": 1 }),
        sort: Some(&doc! { "_id": direction }),
        limit: 1,
        batch: 0,
        tailable: false,
    };
    let cursor = client.open_find(&request, &mut |document| {
        found = document.get("_id").map(|id| id.to_owned());
        Ok(())
    })?;
    client.close(cursor)?;
    Ok(found)
}

/// Some `_id`s of a collection at random, in their order; none where the server cannot sample.
fn sampled(client: &mut Client, collection: &Collection, count: u64) -> Result<Vec<OwnedValue>> {
    let mut found = Vec::new();
    let command = doc! {
        "aggregate": collection.name.as_str(),
        "pipeline": [
            { "$sample": { "size": i64::try_from(count).unwrap_or(i64::MAX) } },
            { "$project": { "_id": 1 } },
        ],
        "allowDiskUse": true,
        "cursor": {},
    };
    let mut each = |document: &Doc| {
        found.extend(document.get("_id").map(|id| id.to_owned()));
        Ok(())
    };
    let opened = client.open_command(&collection.database, &command, 0, &mut each);
    let mut cursor = match opened.map_err(Error::from) {
        Ok(cursor) => cursor,
        Err(error) if error.is_refusal() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    while cursor.is_open() {
        client.more(&mut cursor, None, &mut each)?;
    }
    found.sort_by(|a, b| compare(&a.as_value(), &b.as_value()));
    Ok(found)
}

/// Divides a collection of about `documents` documents.
pub fn divide(
    client: &mut Client,
    collection: &Collection,
    documents: u64,
    is_ordered: bool,
) -> Result<Vec<Range>> {
    if is_ordered {
        return Ok(vec![Range::All]);
    }
    let Some(first) = outermost(client, collection, 1)? else {
        let mut ranges = all_classes(None);
        keep_known(client, collection, &mut ranges)?;
        return Ok(ranges);
    };
    let last = outermost(client, collection, -1)?.unwrap_or_else(|| first.clone());
    let within = (class(&first), class(&last));
    let mut ranges = all_classes(Some(within));
    if documents >= SPLIT_DOCUMENTS {
        let wanted = (documents / RANGE_DOCUMENTS + 1).clamp(8, RANGES_MAX);
        let samples = sampled(client, collection, wanted * SAMPLES)?;
        let cuts: Vec<OwnedValue> = samples
            .into_iter()
            .step_by(usize::try_from(SAMPLES).unwrap_or(1))
            .skip(1)
            .collect();
        ranges = cut(ranges, &cuts);
    }
    keep_known(client, collection, &mut ranges)?;
    Ok(ranges)
}

/// Leaves out the rest where the server knows no such types, and so has no documents in it.
pub fn keep_known(
    client: &mut Client,
    collection: &Collection,
    ranges: &mut Vec<Range>,
) -> Result<()> {
    if !ranges.contains(&Range::Rest) {
        return Ok(());
    }
    let request = CursorRequest {
        collection,
        filter: &Range::Rest.filter(None),
        projection: Some(&doc! { "_id": 1 }),
        sort: None,
        limit: 1,
        batch: 0,
        tailable: false,
    };
    match client
        .open_find(&request, &mut |_| Ok(()))
        .map_err(Error::from)
    {
        Ok(cursor) => Ok(client.close(cursor)?),
        Err(error) if error.is_refusal() => {
            ranges.retain(|range| *range != Range::Rest);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn class(value: &OwnedValue) -> u8 {
    canonical_class(value.as_value().type_code())
}

/// One range for each class. With the classes of the first and the last `_id` those that cannot be there are left out.
/// Documents that are inserted later are not there now; who follows the source hears of them.
fn all_classes(within: Option<(u8, u8)>) -> Vec<Range> {
    let mut ranges: Vec<Range> = least_values()
        .into_iter()
        .filter(|low| within.is_none_or(|(first, last)| (first..=last).contains(&class(low))))
        .map(|low| Range::Ids { low, high: None })
        .collect();
    let only_one = within.is_some_and(|(first, last)| first == last) && ranges.len() == 1;
    let numbers = class(&OwnedValue::Int32(0));
    if !only_one || within.is_some_and(|(first, _)| first == numbers) {
        ranges.push(Range::Rest);
    }
    ranges
}

/// Adds the ranges of the classes that are left out.
pub fn complete(ranges: &mut Vec<Range>) {
    for other in all_classes(None) {
        let known = ranges.iter().any(|range| match (range, &other) {
            (Range::Ids { low, .. }, Range::Ids { low: least, .. }) => class(low) == class(least),
            _ => *range == other,
        });
        if !known {
            ranges.push(other);
        }
    }
}

/// Cuts ranges at values, which are in order.
fn cut(ranges: Vec<Range>, cuts: &[OwnedValue]) -> Vec<Range> {
    let mut out = Vec::new();
    for range in ranges {
        let Range::Ids { mut low, high } = range else {
            out.push(range);
            continue;
        };
        for value in cuts {
            let is_nan = value.as_value().is_nan();
            if class(value) == class(&low)
                && !is_nan
                && compare(&value.as_value(), &low.as_value()).is_gt()
            {
                let at = value.clone();
                out.push(Range::Ids {
                    low,
                    high: Some(at.clone()),
                });
                low = at;
            }
        }
        out.push(Range::Ids { low, high });
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranges_are_cut_within_their_class() {
        let ranges = all_classes(Some((
            class(&OwnedValue::Int32(1)),
            class(&OwnedValue::from("x")),
        )));
        assert_eq!(ranges.len(), 3);
        let cuts = [
            OwnedValue::Int32(5),
            OwnedValue::Int32(5),
            OwnedValue::from("m"),
        ];
        let cut = cut(ranges, &cuts);
        let shown: Vec<DocBuf> = cut.iter().map(|range| range.filter(None)).collect();
        assert_eq!(
            shown.get(..4).unwrap(),
            [
                doc! { "_id": { "$gte": f64::NEG_INFINITY, "$lt": 5 } },
                doc! { "_id": { "$gte": 5 } },
                doc! { "_id": { "$gte": "", "$lt": "m" } },
                doc! { "_id": { "$gte": "m" } },
            ]
        );
        assert_eq!(cut.len(), 5);
        for range in &cut {
            assert_eq!(Range::from_doc(&range.to_doc()).as_ref(), Some(range));
        }
    }

    #[test]
    fn a_range_goes_on_behind_the_last() {
        let range = Range::Ids {
            low: OwnedValue::Int32(1),
            high: Some(OwnedValue::Int32(9)),
        };
        assert_eq!(
            range.filter(Some(&Value::Int32(4))),
            doc! { "_id": { "$gt": 4, "$lt": 9 } }
        );
        assert_eq!(
            range.between(None, Some(&Value::Int32(4))),
            doc! { "_id": { "$gte": 1, "$lte": 4 } }
        );
    }

    #[test]
    fn one_class_needs_no_rest() {
        let id = class(&OwnedValue::ObjectId(ObjectId([0; 12])));
        assert_eq!(all_classes(Some((id, id))).len(), 1);
        let number = class(&OwnedValue::Int32(0));
        assert_eq!(all_classes(Some((number, number))).len(), 2);
        assert_eq!(all_classes(None).len(), 9);
    }
}
