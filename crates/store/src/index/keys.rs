//! The keys that a document has in an index.

use frond_bson::{Doc, Value, key};
use frond_query::error::{Error, ErrorCode, Result};
use frond_query::paths::ParallelArrays;

use super::spec::IndexSpec;
use crate::keyspace::KEY_BYTES_MAX;

/// The most entries that one document may have in one index. The product of two arrays grows fast.
pub const ENTRIES_PER_DOCUMENT_MAX: usize = 100_000;

/// Room that a key must leave for the `_id` behind it, in bytes.
const ID_RESERVE_BYTES: usize = 1024;

/// The keys of one document in one index. Reused from document to document: no allocation once the
/// buffers have grown.
#[derive(Debug, Default)]
pub struct IndexKeys {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    multikey: u32,
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
}

impl IndexKeys {
    /// Removes all keys.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.multikey = 0;
    }

    /// Fills in the keys of `doc`: distinct, in ascending order. A partial index has none for a
    /// document that its filter does not match, a sparse one for a document without its fields.
    ///
    /// # Errors
    /// `CannotBuildIndexKeys` (201) if there are too many, 17280 if one is too long, 16746 if a
    /// number in a path means both an array index and a field.
    pub fn generate(&mut self, spec: &IndexSpec, doc: &Doc) -> Result<()> {
        self.clear();
        if spec
            .partial
            .as_ref()
            .is_some_and(|partial| !partial.filter.matches(doc))
        {
            return Ok(());
        }
        let IndexKeys {
            bytes,
            spans,
            lost,
            scratch,
            ..
        } = self;
        let id = doc.get("_id").filter(loses_type);
        let arrays = spec
            .paths
            .for_each(doc, ParallelArrays::Product, |values| {
                if spec.sparse && values.iter().all(Option::is_none) {
                    return Ok(());
                }
                if spans.len() >= ENTRIES_PER_DOCUMENT_MAX {
                    // Repeated elements do not count.
                    sort_and_dedup(bytes, spans);
                    if spans.len() >= ENTRIES_PER_DOCUMENT_MAX {
                        return Err(too_many(spec, values.len()));
                    }
                }
                let start = bytes.len();
                lost.clear();
                for (value, field) in values.iter().zip(&spec.fields) {
                    let value = value.unwrap_or(Value::Null);
                    key::encode_typed(&value, field.direction, bytes, lost);
                }
                let middle = bytes.len();
                if let Some(id) = &id {
                    scratch.clear();
                    key::encode_typed(id, key::Direction::Ascending, scratch, lost);
                }
                if middle - start > KEY_BYTES_MAX - ID_RESERVE_BYTES {
                    return Err(too_long(spec, middle - start));
                }
                bytes.extend_from_slice(lost.as_bytes());
                spans.push(Span {
                    start,
                    middle,
                    end: bytes.len(),
                });
                Ok(())
            })?;
        self.multikey = arrays.bits();
        sort_and_dedup(&self.bytes, &mut self.spans);
        Ok(())
    }

    /// The fields that met an array, one bit each.
    pub fn multikey(&self) -> u32 {
        self.multikey
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
    // Stable, so that of equal keys the first element's type is kept.
    spans.sort_by(|a, b| fields(a).cmp(fields(b)));
    spans.dedup_by(|a, b| fields(a) == fields(b));
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
fn too_long(spec: &IndexSpec, bytes: usize) -> Error {
    Error::location(
        17280,
        format!(
            "the document has a key of {bytes} bytes in index '{}', the limit is {}",
            spec.name,
            KEY_BYTES_MAX - ID_RESERVE_BYTES
        ),
    )
}
