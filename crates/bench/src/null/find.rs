//! Finds by `_id`: as many of the one document as were asked for.

use std::io::Write;
use std::ops::Range;

use frond_bson::{Doc, MAX_DOCUMENT_BYTES, RawElement, Value, tag};

use super::documents::Shape;

/// Documents of a batch that are prepared; of a longer one the rest is made when it is asked for.
const PREPARED: u32 = 128;

/// Projections that a connection keeps batches for, at most.
const SHAPES_MAX: usize = 16;

/// Upper bound on the bytes around a batch in a reply.
const REPLY_ROOM: usize = 1024;

/// The documents that a filter asks for.
#[derive(Clone, Debug)]
pub enum Selection<'a> {
    /// Those of other filters than on `_id`: there are none.
    Nothing,
    /// The one with this `_id`.
    One(RawElement<'a>),
    /// Those with these `_id`s, integers of the type given.
    Range(u8, Range<i64>),
}

impl<'a> Selection<'a> {
    /// Reads a filter. A range that is open at one side is as long as the limit, if there is one.
    pub fn read(filter: &'a Doc, skip: u64, limit: Option<u64>) -> Selection<'a> {
        let mut elements = filter.iter_raw();
        let (Some(element), None) = (elements.next(), elements.next()) else {
            return Selection::Nothing;
        };
        if element.name_bytes() != b"_id" {
            return Selection::Nothing;
        }
        match element.value() {
            Some(Value::Document(operators)) if is_operator(operators) => {
                range(operators, skip, limit)
            }
            Some(_) if skip == 0 => Selection::One(element),
            _ => Selection::Nothing,
        }
    }
}

fn is_operator(document: &Doc) -> bool {
    let first = document.iter_raw().next();
    first.is_some_and(|first| first.name_bytes().starts_with(b"$"))
}

fn range<'a>(operators: &'a Doc, skip: u64, limit: Option<u64>) -> Selection<'a> {
    let (mut from, mut to) = (None, None);
    let mut id_tag = tag::INT32;
    for element in operators.iter_raw() {
        if element.name_bytes() == b"$eq" && skip == 0 {
            return Selection::One(element);
        }
        let value = element.value();
        let Some(n) = value.and_then(|value| value.as_i64_lossless()) else {
            return Selection::Nothing;
        };
        if element.tag() == tag::INT64 || i32::try_from(n).is_err() {
            id_tag = tag::INT64;
        }
        match element.name_bytes() {
            b"$gte" => from = Some(n),
            b"$gt" => from = Some(n.saturating_add(1)),
            b"$lt" => to = Some(n),
            b"$lte" => to = Some(n.saturating_add(1)),
            _ => return Selection::Nothing,
        }
    }
    let size = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let (from, to) = match (from, to, limit) {
        (Some(from), Some(to), _) => (from, to),
        (Some(from), None, Some(limit)) => (from, from.saturating_add(size(skip + limit))),
        (None, Some(to), Some(limit)) => (to.saturating_sub(size(skip + limit)), to),
        _ => return Selection::Nothing,
    };
    let from = from.saturating_add(size(skip));
    let to = limit.map_or(to, |limit| to.min(from.saturating_add(size(limit))));
    let fits = i32::try_from(from).is_ok() && i32::try_from(to).is_ok();
    Selection::Range(if fits { id_tag } else { tag::INT64 }, from..to)
}

/// The first documents of every range, as elements of an array; the `_id`s are put in.
struct Batch {
    projection: Vec<u8>,
    tag: u8,
    shape: Shape,
    bytes: Vec<u8>,
    /// Of each document where its `_id` is, and where it ends.
    places: Vec<(Option<usize>, usize)>,
}

/// An `_id` as bytes; the first ones are those of a 32-bit integer.
fn id_bytes(tag: u8, id: &[u8; 8]) -> &[u8] {
    if tag == tag::INT32 { &id[..4] } else { id }
}

fn push_index(out: &mut Vec<u8>, index: u32) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{index}\0");
}

impl Batch {
    fn new(projection: &Doc, tag: u8) -> Batch {
        let mut batch = Batch {
            projection: projection.as_bytes().to_vec(),
            tag,
            shape: Shape::new(projection),
            bytes: Vec::new(),
            places: Vec::new(),
        };
        let mut bytes = Vec::new();
        for index in 0..PREPARED {
            let place = batch.push(index, 0, &mut bytes);
            batch.places.push((place, bytes.len()));
        }
        batch.bytes = bytes;
        batch
    }

    fn push(&self, index: u32, id: i64, out: &mut Vec<u8>) -> Option<usize> {
        out.push(tag::DOCUMENT);
        push_index(out, index);
        let id = id.to_le_bytes();
        self.shape.append((self.tag, id_bytes(self.tag, &id)), out)
    }

    /// Appends the documents of a range, as many as a reply has room for.
    fn append(&self, range: Range<i64>, out: &mut Vec<u8>) {
        // An index has at most as many digits as 2^24.
        let each = self.shape.document_bytes(8) + 10;
        let most = (MAX_DOCUMENT_BYTES - REPLY_ROOM) / each;
        let count = range.end.saturating_sub(range.start).clamp(0, most as i64) as u32;
        let start = out.len();
        let Some(last) = count.min(PREPARED).checked_sub(1) else {
            return;
        };
        let end = self.places.get(last as usize).map_or(0, |place| place.1);
        out.extend_from_slice(self.bytes.get(..end).unwrap_or_default());
        for ((place, _), id) in self.places.iter().zip(range.start..).take(count as usize) {
            let id: [u8; 8] = id.to_le_bytes();
            let id = id_bytes(self.tag, &id);
            if let Some(place) = place.and_then(|at| out.get_mut(start + at..start + at + id.len()))
            {
                place.copy_from_slice(id);
            }
        }
        for index in PREPARED..count {
            self.push(index, range.start.saturating_add(i64::from(index)), out);
        }
    }
}

impl Batch {
    fn is_for(&self, projection: &Doc, tag: u8) -> bool {
        self.tag == tag && self.projection == projection.as_bytes()
    }
}

#[derive(Default)]
pub struct Finds {
    recent: Vec<Batch>,
}

impl Finds {
    fn batch(&mut self, projection: &Doc, tag: u8) -> &Batch {
        let mut recent = self.recent.iter();
        let at = recent
            .position(|batch| batch.is_for(projection, tag))
            .unwrap_or_else(|| {
                if self.recent.len() == SHAPES_MAX {
                    self.recent.clear();
                }
                self.recent.push(Batch::new(projection, tag));
                self.recent.len() - 1
            });
        &self.recent[at]
    }

    /// Appends the selected documents as the elements of an array.
    pub fn append(&mut self, wanted: Selection<'_>, projection: &Doc, out: &mut Vec<u8>) {
        match wanted {
            Selection::Nothing => {}
            Selection::One(id) => {
                out.extend_from_slice(&[tag::DOCUMENT, b'0', 0]);
                let batch = self.batch(projection, tag::INT32);
                batch.shape.append((id.tag(), id.value_bytes()), out);
            }
            Selection::Range(tag, range) => {
                self.batch(projection, tag).append(range, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frond_bson::{DocBuf, doc, extjson};

    /// The documents that a filter finds, as an array.
    fn find(filter: &Doc, projection: &Doc, skip: u64, limit: Option<u64>) -> Vec<DocBuf> {
        let wanted = Selection::read(filter, skip, limit);
        let mut bytes = vec![0; 4];
        Finds::default().append(wanted, projection, &mut bytes);
        bytes.push(0);
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        let array = Doc::validate(&bytes).unwrap();
        for (index, (name, _)) in array.iter().enumerate() {
            assert_eq!(name, index.to_string());
        }
        array
            .values()
            .map(|value| value.as_doc().unwrap().to_owned())
            .collect()
    }

    /// Filters, what is skipped, the limit, and the `_id`s that are found.
    const FOUND: &str = r#"
{"_id": {"$gte": 5, "$lte": 8}} | 0 | null | [5, 6, 7, 8]
{"_id": {"$gt": {"$numberLong": "5"}, "$lt": 8}} | 0 | null | [6, 7]
{"_id": {"$gte": 5, "$lt": 8.0}} | 1 | null | [6, 7]
{"_id": {"$gte": 5, "$lt": 100}} | 2 | 2 | [7, 8]
{"_id": {"$gte": 5}} | 1 | 3 | [6, 7, 8]
{"_id": {"$lte": 5}} | 0 | 2 | [4, 5]
{"_id": {"$gte": 5}} | 0 | null | []
{"_id": {"$gte": 8, "$lt": 5}} | 0 | 4 | []
{"_id": {"$gte": 8, "$lt": 9}} | 7 | null | []
{"_id": {"$gte": 1099511627776, "$lt": 1099511627777}} | 0 | null | [1099511627776]
{"_id": {"$gte": 9223372036854775806}} | 0 | 9 | [9223372036854775806]
{"_id": {"$gte": "a", "$lt": "b"}} | 0 | null | []
{"_id": {"$gte": 1, "$ne": 2}} | 0 | 5 | []
{"_id": 5} | 0 | 1 | [5]
{"_id": 5} | 1 | null | []
{"_id": {"$oid": "070707070707070707070707"}} | 0 | 1 | [{"$oid": "070707070707070707070707"}]
{"_id": {"$eq": "x"}} | 0 | 1 | ["x"]
{"_id": {"$in": [1, 2]}} | 0 | 1 | []
{"name": "x"} | 0 | 1 | []
{"_id": 5, "name": "x"} | 0 | 1 | []
{} | 0 | 1 | []
"#;

    #[test]
    fn ids_and_ranges_of_them_find_as_many_as_they_say() {
        for line in FOUND.trim().lines() {
            let [filter, skip, limit, ids] = line.split(" | ").collect::<Vec<_>>()[..] else {
                unreachable!("{line}");
            };
            let filter = extjson::parse(filter).unwrap();
            let found = find(
                &filter,
                Doc::empty(),
                skip.parse().unwrap(),
                limit.parse().ok(),
            );
            let expected = extjson::parse(&format!("{{\"ids\": {ids}}}")).unwrap();
            let expected = expected.get_array("ids").unwrap();
            assert_eq!(found.len(), expected.count(), "{line}");
            for (document, id) in found.iter().zip(expected.values()) {
                let found = document.get("_id").unwrap();
                // An integer may be of either type.
                let number = found.as_i64_lossless().is_some();
                assert!(
                    found == id || (number && found.as_i64_lossless() == id.as_i64_lossless()),
                    "{line}"
                );
            }
        }
        let long = find(
            &doc! {"_id": {"$gte": (-5), "$lt": 995}},
            Doc::empty(),
            0,
            None,
        );
        let ids = long.iter().map(|document| document.get_i64("_id").unwrap());
        assert!(ids.eq(-5..995));
    }

    #[test]
    fn ids_keep_the_type_that_they_were_asked_by() {
        for (filter, tag) in [
            (doc! {"_id": {"$gte": 1, "$lt": 3}}, tag::INT32),
            (doc! {"_id": {"$gte": 1_i64, "$lt": 3_i64}}, tag::INT64),
            (
                doc! {"_id": {"$gte": i32::MAX, "$lte": i32::MAX}},
                tag::INT64,
            ),
        ] {
            let found = find(&filter, Doc::empty(), 0, None);
            assert_eq!(found[0].get_raw("_id").unwrap().tag(), tag, "{filter:?}");
        }
    }

    #[test]
    fn a_range_without_end_fits_into_a_reply() {
        let filter = doc! {"_id": {"$gte": 0_i64, "$lt": i64::MAX}};
        for projection in [doc! {}, doc! {"_id": 0, "none": 1}] {
            let mut out = Vec::new();
            let wanted = Selection::read(&filter, 0, None);
            Finds::default().append(wanted, &projection, &mut out);
            assert!(out.len() + REPLY_ROOM <= MAX_DOCUMENT_BYTES);
            assert!(out.len() > MAX_DOCUMENT_BYTES / 2, "{}", out.len());
        }
    }
}
