//! Encoded elements with their offsets, and writing encoded bytes.

use frond_bson::{Doc, DocBuf, RawElement, Text, Value, tag};

/// An element and where its bytes are, counted from the start of its document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    raw: RawElement<'a>,
    /// Offset of the type byte.
    pub(crate) start: usize,
    /// Offset of the value.
    pub(crate) value_start: usize,
    /// Offset of what follows.
    pub(crate) end: usize,
}

impl<'a> Element<'a> {
    /// The BSON type byte.
    pub(crate) fn tag(&self) -> u8 {
        self.raw.tag()
    }

    pub(crate) fn name(&self) -> &'a str {
        self.raw.name()
    }

    pub(crate) fn name_bytes(&self) -> &'a [u8] {
        self.raw.name_bytes()
    }

    /// The value; null if the bytes are corrupt, which validation excludes.
    pub(crate) fn value(&self) -> Value<'a> {
        self.raw.value().unwrap_or(Value::Null)
    }
}

/// The elements of a document in order.
pub(crate) fn elements(doc: &Doc) -> impl Iterator<Item = Element<'_>> {
    let mut offset = 4;
    doc.iter_raw().map(move |raw| {
        let start = offset;
        offset += raw.as_bytes().len();
        Element {
            raw,
            start,
            value_start: offset - raw.value_bytes().len(),
            end: offset,
        }
    })
}

/// Nesting depth of documents and arrays inside a value: 0 for scalars, 1 for `{}`.
///
/// The recursion ends because validated documents nest at most 200 deep.
pub(crate) fn depth(value: &Value<'_>) -> usize {
    match value {
        Value::Document(doc) | Value::Array(doc) => {
            1 + doc.values().map(|v| depth(&v)).max().unwrap_or(0)
        }
        _ => match value.text() {
            Some(Text::Scoped { scope, .. }) => depth(&Value::Document(scope)),
            _ => 0,
        },
    }
}

/// Appends a whole element.
pub(crate) fn write_element(out: &mut Vec<u8>, name: &str, value: &Value<'_>) {
    out.push(value.type_code());
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    value.write_to(out);
}

/// Appends the beginning of an embedded document. Returns what [`end_document`] needs.
pub(crate) fn begin_document(out: &mut Vec<u8>, name: &str) -> usize {
    out.push(tag::DOCUMENT);
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    start
}

/// Ends a document: trailing zero and length.
pub(crate) fn end_document(out: &mut Vec<u8>, start: usize) {
    out.push(0);
    let length = (out.len() - start) as u32;
    if let Some(bytes) = out.get_mut(start..start + 4) {
        bytes.copy_from_slice(&length.to_le_bytes());
    }
}

/// The array with more values at its end.
pub(crate) fn extended<'a>(array: &Doc, values: impl Iterator<Item = Value<'a>>) -> DocBuf {
    let mut longer = DocBuf::with_capacity(array.len_bytes() + 64);
    longer.push_all(array);
    for (value, index) in values.zip(array.count()..) {
        longer.push_value(&index.to_string(), &value);
    }
    longer
}
