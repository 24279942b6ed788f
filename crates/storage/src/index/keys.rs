//! The keys that a document has in an index.

use frond_bson::{Doc, Value, key};
use frond_error::{Error, ErrorCode, Result};
use frond_query::paths::{MultikeyPaths, ParallelArrays};

use super::field::Holds;
use super::slots::{Part, Slots};
use super::spec::{IndexMethod, IndexSpec};
use crate::keyspace::{KEY_BYTES_MAX, WRITE_SET_BYTES_MAX};

/// The most entries that one document may have in one index. The product of two arrays grows fast.
pub const ENTRIES_PER_DOCUMENT_MAX: usize = 100_000;

/// The most bytes that the keys of one document may have in one index: a long value in each combination with the elements of
/// an array would take any memory. A write set has room for twice as many.
const BYTES_PER_DOCUMENT_MAX: usize = WRITE_SET_BYTES_MAX / 2;

/// The keys of one document in one index. Reused from document to document: no allocation once the
/// buffers have grown.
#[derive(Debug, Default)]
pub struct IndexKeys {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    multikey: MultikeyPaths,
    lost: key::TypeBits,
    scratch: Vec<u8>,
}

/// Where one key lies in `IndexKeys::bytes`.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    /// End of the encoded fields and start of what their encoding lost.
    middle: usize,
    end: usize,
    /// Eight bytes of it, for the sort.
    head: u64,
}

impl IndexKeys {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.multikey = MultikeyPaths::default();
    }

    /// Fills in the keys of `doc`: distinct, in ascending order. A partial index has none for a
    /// document that its filter does not match, a sparse one for a document without its fields.
    /// `id_bytes` is the length of the encoded `_id`, which has to fit behind the fields.
    ///
    /// # Errors
    /// `CannotBuildIndexKeys` (201) if there are too many or they are too large together, 17280 if one is too long, 16746 if a
    /// number in a path means both an array index and a field.
    pub fn generate(&mut self, spec: &IndexSpec, doc: &Doc, id_bytes: usize) -> Result<()> {
        self.clear();
        // An interrupted filter must not leave out a key.
        if let Some(partial) = &spec.partial
            && !partial.filter.try_matches(doc)?
        {
            return Ok(());
        }
        let mut writer = Writer {
            id: doc.get("_id").filter(loses_type),
            id_bytes,
            spec,
            keys: self,
        };
        let multikey = match &spec.method {
            None => writer.ordinary(doc)?,
            Some(method) => writer.computed(method.as_ref(), doc)?,
        };
        self.multikey = multikey;
        sort_and_dedup(&self.bytes, &mut self.spans);
        Ok(())
    }

    /// The path components that were arrays in the document.
    pub fn multikey(&self) -> &MultikeyPaths {
        &self.multikey
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The keys, ascending: encoded fields, and the bits that the encoding lost.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.spans.iter().map(|span| {
            (
                slice(&self.bytes, span.start, span.middle),
                slice(&self.bytes, span.middle, span.end),
            )
        })
    }

    /// Whether a key has these encoded fields.
    pub fn contains(&self, fields: &[u8]) -> bool {
        let key = |span: &Span| slice(&self.bytes, span.start, span.middle);
        (self.spans.binary_search_by(|span| key(span).cmp(fields))).is_ok()
    }

    /// The keys that are in `self` and not, with the same lost bits, in `other`.
    pub fn missing_in<'a>(
        &'a self,
        other: &'a IndexKeys,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut others = other.iter().peekable();
        self.iter().filter(move |key| {
            while others.next_if(|other| other.0 < key.0).is_some() {}
            others.peek() != Some(key)
        })
    }
}

/// Writes the keys of one document.
struct Writer<'k, 'd> {
    keys: &'k mut IndexKeys,
    spec: &'k IndexSpec,
    /// The `_id`, if its encoding loses its type.
    id: Option<Value<'d>>,
    id_bytes: usize,
}

impl Writer<'_, '_> {
    /// The keys of an ordered index. Returns the components that were arrays.
    fn ordinary(&mut self, doc: &Doc) -> Result<MultikeyPaths> {
        let spec = self.spec;
        let product = ParallelArrays::Product;
        spec.paths.for_each(doc, product, |values| {
            if spec.sparse && values.iter().all(Option::is_none) {
                return Ok(());
            }
            let start = self.begin()?;
            for (value, field) in values.iter().zip(&spec.fields) {
                self.part(value.unwrap_or(Value::Null), field.direction);
            }
            self.end(start)
        })
    }

    /// The keys of an index with computed fields: every combination of what its computed fields turn into, and of
    /// the values of the others. Returns the components that were arrays; of a computed field that may have several
    /// values, all of them.
    fn computed(&mut self, method: &dyn IndexMethod, doc: &Doc) -> Result<MultikeyPaths> {
        let spec = self.spec;
        let mut slots = Slots::for_fields(&spec.fields);
        method.parts(doc, &mut slots)?;
        let combinations = slots.combinations();
        let missing = spec.sparse && slots.all_missing();
        let product = ParallelArrays::Product;
        let arrays = spec.paths.for_each(doc, product, |values| {
            if missing && values.iter().all(Option::is_none) {
                return Ok(());
            }
            for combination in 0..combinations {
                let start = self.begin()?;
                let mut values = values.iter();
                // The computed field that is being written, and how many of its parts are written.
                let mut done = (usize::MAX, 0);
                for field in &spec.fields {
                    let Holds::Computed(slot) = field.holds else {
                        let value = values.next().copied().flatten();
                        self.part(value.unwrap_or(Value::Null), field.direction);
                        continue;
                    };
                    done = if done.0 == slot {
                        (slot, done.1 + 1)
                    } else {
                        (slot, 0)
                    };
                    let parts = slots.alternative(slot, combination);
                    match parts.get(done.1) {
                        Some(Part::Text(text)) => self.text(text, field.direction),
                        part => {
                            let value = part.map_or(Value::Null, Part::as_value);
                            self.part(value, field.direction);
                        }
                    }
                }
                self.end(start)?;
            }
            Ok(())
        })?;
        // The arrays are counted among the ordinary fields.
        let ordinary = spec.fields.iter().enumerate();
        let ordinary = ordinary.filter(|(_, field)| field.holds == Holds::Value);
        let mut multikey = slots.multikey().clone();
        for (number, (position, _)) in ordinary.enumerate() {
            multikey.insert_set(position, arrays.set(number));
        }
        Ok(multikey)
    }

    /// Begins a key. Returns where it begins.
    fn begin(&mut self) -> Result<usize> {
        let keys = &mut *self.keys;
        if keys.spans.len() >= ENTRIES_PER_DOCUMENT_MAX {
            // Repeated elements do not count.
            sort_and_dedup(&keys.bytes, &mut keys.spans);
            if keys.spans.len() >= ENTRIES_PER_DOCUMENT_MAX {
                return Err(too_many(self.spec, self.spec.fields.len()));
            }
        }
        keys.lost.clear();
        Ok(keys.bytes.len())
    }

    /// Adds a part to a key.
    #[inline]
    fn part(&mut self, value: Value<'_>, direction: key::Direction) {
        let IndexKeys { bytes, lost, .. } = &mut *self.keys;
        (self.spec.collator).encode_typed(&value, direction, bytes, lost);
    }

    /// Adds a part that is no text of a document: no collation has a say in it.
    fn text(&mut self, text: &str, direction: key::Direction) {
        let IndexKeys { bytes, lost, .. } = &mut *self.keys;
        key::encode_typed(&Value::String(text), direction, bytes, lost);
    }

    /// Ends the key that begins at `start`.
    fn end(&mut self, start: usize) -> Result<()> {
        let IndexKeys {
            bytes,
            spans,
            lost,
            scratch,
            ..
        } = &mut *self.keys;
        let middle = bytes.len();
        if let Some(id) = &self.id {
            scratch.clear();
            key::encode_typed(id, key::Direction::Ascending, scratch, lost);
        }
        let length = middle - start + self.id_bytes;
        if length > KEY_BYTES_MAX {
            return Err(too_long(self.spec, length));
        }
        bytes.extend_from_slice(lost.as_bytes());
        if bytes.len() > BYTES_PER_DOCUMENT_MAX {
            return Err(too_large_together(self.spec));
        }
        spans.push(Span {
            start,
            middle,
            end: bytes.len(),
            head: 0,
        });
        Ok(())
    }
}

fn slice(bytes: &[u8], start: usize, end: usize) -> &[u8] {
    bytes.get(start..end).unwrap_or_default()
}

/// Whether the encoding of an `_id` loses its type, so that the lost bits follow those of the fields.
fn loses_type(id: &Value<'_>) -> bool {
    !matches!(
        id,
        Value::ObjectId(_)
            | Value::Int32(_)
            | Value::String(_)
            | Value::Binary { .. }
            | Value::DateTime(_)
    )
}

fn sort_and_dedup(bytes: &[u8], spans: &mut Vec<Span>) {
    if spans.len() < 2 {
        return;
    }
    let fields = |span: &Span| slice(bytes, span.start, span.middle);
    // The elements of an array often begin with the same bytes, as addresses do. Most comparisons need only the eight bytes after
    // these.
    let first = spans.first().map_or(&[][..], fields);
    let shared = spans.iter().fold(first.len(), |shared, span| {
        let both = slice(first, 0, shared).iter().zip(fields(span));
        both.take_while(|(a, b)| a == b).count()
    });
    for span in &mut *spans {
        span.head = head_of(slice(bytes, span.start + shared, span.middle));
    }
    // Of equal keys the first element's type is kept.
    spans.sort_unstable_by(|a, b| {
        (a.head.cmp(&b.head))
            .then_with(|| fields(a).cmp(fields(b)))
            .then(a.start.cmp(&b.start))
    });
    spans.dedup_by(|a, b| a.head == b.head && fields(a) == fields(b));
}

/// The first eight bytes, padded with zeros: of two keys with different heads the one with the lower head is lower.
fn head_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            let padded = bytes.iter().chain(std::iter::repeat(&0)).take(8);
            padded.fold(0, |head, byte| head << 8 | u64::from(*byte))
        }
    }
}

#[cold]
fn too_many(spec: &IndexSpec, fields: usize) -> Error {
    Error::new(
        ErrorCode::CannotBuildIndexKeys,
        format!(
            "the document has more than {ENTRIES_PER_DOCUMENT_MAX} distinct keys in index '{}' of \
             {fields} field(s), which is the limit for one document",
            spec.name
        ),
    )
}

#[cold]
fn too_large_together(spec: &IndexSpec) -> Error {
    Error::new(
        ErrorCode::CannotBuildIndexKeys,
        format!(
            "the keys of the document in index '{}' have more than {BYTES_PER_DOCUMENT_MAX} bytes together, which is the \
             limit for one document",
            spec.name
        ),
    )
}

#[cold]
fn too_long(spec: &IndexSpec, bytes: usize) -> Error {
    Error::location(
        17280,
        format!(
            "the document has a key of {bytes} bytes in index '{}', the limit is {KEY_BYTES_MAX}",
            spec.name
        ),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::index::covered::fields_document;
    use frond_bson::{ArrayBuf, DocBuf, doc};

    fn spec(key: DocBuf, option: Option<&str>) -> IndexSpec {
        let mut spec = doc! {"key": &key};
        if let Some(option) = option {
            spec.push(option, true);
        }
        IndexSpec::parse(&spec).unwrap()
    }

    /// The keys as documents of the fields, and for each field the components that were arrays.
    fn keys(spec: &IndexSpec, doc: &Doc) -> (Vec<DocBuf>, Vec<u32>) {
        let mut keys = IndexKeys::default();
        keys.generate(spec, doc, 5).unwrap();
        let docs = keys
            .iter()
            .map(|(fields, lost)| fields_document(spec, fields, lost).unwrap());
        (docs.collect(), keys.multikey().sets().to_vec())
    }

    #[test]
    fn keys_of_documents() {
        let undefined = Value::Undefined;
        for (key, doc, expected, multikey) in [
            (doc! {"a": 1}, doc! {"a": 5}, vec![doc! {"a": 5}], vec![]),
            (
                doc! {"a": -1},
                doc! {"a": 5.0},
                vec![doc! {"a": 5.0}],
                vec![],
            ),
            (doc! {"a": 1}, doc! {"b": 5}, vec![doc! {"a": null}], vec![]),
            (
                doc! {"a": 1, "b": -1},
                doc! {"a": "x", "b": 7i64},
                vec![doc! {"a": "x", "b": 7i64}],
                vec![],
            ),
            (
                doc! {"a": 1},
                doc! {"a": [3, 1, 3.0]},
                vec![doc! {"a": 1}, doc! {"a": 3}],
                vec![1],
            ),
            (
                doc! {"a": 1},
                doc! {"a": []},
                vec![doc! {"a": undefined}],
                vec![1],
            ),
            (
                doc! {"b": 1, "a": -1},
                doc! {"a": [1, 2], "b": 0},
                vec![doc! {"b": 0, "a": 2}, doc! {"b": 0, "a": 1}],
                vec![0, 1],
            ),
            (
                doc! {"a.x": 1, "a.y": 1},
                doc! {"a": [{"x": 1, "y": 2}, {"x": 3}]},
                vec![doc! {"a.x": 1, "a.y": 2}, doc! {"a.x": 3, "a.y": null}],
                vec![1, 1],
            ),
            // Two arrays: every pair.
            (
                doc! {"a": 1, "b": 1},
                doc! {"a": [1, 2], "b": [3, 4]},
                vec![
                    doc! {"a": 1, "b": 3},
                    doc! {"a": 1, "b": 4},
                    doc! {"a": 2, "b": 3},
                    doc! {"a": 2, "b": 4},
                ],
                vec![1, 1],
            ),
        ] {
            let spec = spec(key, None);
            assert_eq!(
                keys(&spec, &doc),
                (expected, multikey),
                "{doc:?} in {}",
                spec.name
            );
        }
    }

    #[test]
    fn sparse_and_partial_indexes_leave_documents_out() {
        let sparse = spec(doc! {"a": 1, "b": 1}, Some("sparse"));
        assert_eq!(keys(&sparse, &doc! {"c": 1}).0.len(), 0);
        assert_eq!(keys(&sparse, &doc! {"b": null}).0.len(), 1);
        let partial = doc! {"key": {"a": 1}, "partialFilterExpression": {"b": {"$gt": 3}}};
        let partial = IndexSpec::parse(&partial).unwrap();
        assert_eq!(keys(&partial, &doc! {"a": 1, "b": 3}).0.len(), 0);
        assert_eq!(keys(&partial, &doc! {"a": 1, "b": 4}).0.len(), 1);
    }

    #[test]
    fn limits_name_the_index_the_count_and_the_limit() {
        let many = |count: i32| -> ArrayBuf { (0..count).collect() };
        let spec = spec(doc! {"a": 1, "b": 1}, None);
        let mut keys = IndexKeys::default();
        let error = keys
            .generate(&spec, &doc! {"a": many(400), "b": many(400)}, 5)
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::CannotBuildIndexKeys);
        assert!(error.message().contains("100000") && error.message().contains("a_1_b_1"));
        keys.generate(&spec, &doc! {"a": many(300), "b": many(300)}, 5)
            .unwrap();
        assert_eq!(keys.len(), 90_000);
        let long = "x".repeat(15_000_000);
        keys.generate(&spec, &doc! {"a": long.as_str()}, 5).unwrap();
        let error = keys
            .generate(
                &spec,
                &doc! {"a": long.as_str()},
                KEY_BYTES_MAX / 2 + 2_000_000,
            )
            .unwrap_err();
        assert_eq!(error.code().code(), 17280);
        assert!(error.message().contains("a_1_b_1"));
        // The long value is in the key of each element.
        let error = keys
            .generate(&spec, &doc! {"a": long.as_str(), "b": many(20)}, 5)
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::CannotBuildIndexKeys);
        assert!(error.message().contains("bytes together"));
    }

    #[test]
    fn differences_of_two_key_sets() {
        let spec = spec(doc! {"a": 1}, None);
        let (mut old, mut new) = (IndexKeys::default(), IndexKeys::default());
        old.generate(&spec, &doc! {"_id": 1, "a": [1, 2, 3]}, 5)
            .unwrap();
        new.generate(&spec, &doc! {"_id": 1, "a": [2, 3.0, 4]}, 5)
            .unwrap();
        let show = |keys: Vec<(&[u8], &[u8])>| -> Vec<DocBuf> {
            keys.into_iter()
                .map(|(fields, lost)| fields_document(&spec, fields, lost).unwrap())
                .collect()
        };
        // The type of 3 changed, so its entry is written again.
        assert_eq!(
            show(old.missing_in(&new).collect()),
            [doc! {"a": 1}, doc! {"a": 3}]
        );
        assert_eq!(
            show(new.missing_in(&old).collect()),
            [doc! {"a": 3.0}, doc! {"a": 4}]
        );
    }
}
