//! Collation: orders of strings by the rules of a language.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::{Doc, Value};

/// An order of strings by the rules of a language.
///
/// `compare` must be a total preorder, and the bytes of `sort_key` must compare as `compare` does:
/// strings that are equal have equal keys. Strings that are not UTF-8 are passed with U+FFFD for each invalid sequence.
pub trait Collate: Send + Sync + fmt::Debug {
    /// The order of two strings.
    fn compare(&self, a: &str, b: &str) -> Ordering;

    /// Appends bytes that compare as the string does.
    fn sort_key(&self, text: &str, out: &mut Vec<u8>);

    /// The specification with all its options, as a client sees it. Two orders are the same if and
    /// only if their specifications are, byte for byte.
    fn spec(&self) -> &Doc;
}

/// Order of strings in values: by their bytes, which is the default and has no overhead, or by the rules of a language.
/// Cloning is cheap.
#[derive(Clone, Default)]
pub struct Collator(Option<Arc<dyn Collate>>);

impl Collator {
    /// The order of the bytes, MongoDB's `{locale: "simple"}`.
    pub const BINARY: &'static Collator = &Collator(None);

    /// The order by these rules.
    pub fn new(rules: Arc<dyn Collate>) -> Collator {
        Collator(Some(rules))
    }

    /// Whether strings compare by their bytes.
    pub fn is_binary(&self) -> bool {
        self.0.is_none()
    }

    /// The specification with all its options; `None` for the order of the bytes.
    pub fn spec(&self) -> Option<&Doc> {
        self.0.as_deref().map(Collate::spec)
    }

    /// The rules; `None` for the order of the bytes.
    #[inline]
    pub(crate) fn rules(&self) -> Option<&dyn Collate> {
        self.0.as_deref()
    }

    /// Appends bytes that compare as a string does.
    pub fn sort_key(&self, text: &str, out: &mut Vec<u8>) {
        match &self.0 {
            None => out.extend_from_slice(text.as_bytes()),
            Some(rules) => rules.sort_key(text, out),
        }
    }

    /// Whether the order of this value against others can differ from that by bytes: it is a string,
    /// or a document or an array, which may hold some, or a value with text that is not UTF-8.
    pub fn affects(&self, value: &Value<'_>) -> bool {
        !self.is_binary()
            && matches!(
                value,
                Value::String(_)
                    | Value::Symbol(_)
                    | Value::Document(_)
                    | Value::Array(_)
                    | Value::JavaScriptWithScope { .. }
                    | Value::NotUtf8(_)
            )
    }
}

impl PartialEq for Collator {
    fn eq(&self, other: &Collator) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a.spec() == b.spec(),
            _ => false,
        }
    }
}

impl Eq for Collator {}

impl fmt::Debug for Collator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.spec() {
            None => f.write_str("Collator(simple)"),
            Some(spec) => write!(f, "Collator({spec:?})"),
        }
    }
}

/// The order of strings as a type parameter of comparing and encoding, so that the order by bytes is inlined.
pub(crate) trait Rules {
    fn compare(&self, a: &str, b: &str) -> Ordering;

    /// As [`Rules::compare`], for text that need not be UTF-8.
    fn compare_bytes(&self, a: &[u8], b: &[u8]) -> Ordering;

    /// Calls `write` with the sort key of a text, which need not be UTF-8.
    fn with_key(&self, text: &[u8], write: impl FnOnce(&[u8]));
}

/// The rules of the bytes.
pub(crate) struct Bytes;

impl Rules for Bytes {
    #[inline]
    fn compare(&self, a: &str, b: &str) -> Ordering {
        a.as_bytes().cmp(b.as_bytes())
    }

    #[inline]
    fn compare_bytes(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    #[inline]
    fn with_key(&self, text: &[u8], write: impl FnOnce(&[u8])) {
        write(text);
    }
}

/// Rules by dynamic dispatch.
pub(crate) struct Foreign<'c>(pub(crate) &'c dyn Collate);

impl Rules for Foreign<'_> {
    fn compare(&self, a: &str, b: &str) -> Ordering {
        self.0.compare(a, b)
    }

    fn compare_bytes(&self, a: &[u8], b: &[u8]) -> Ordering {
        let (a, b) = (String::from_utf8_lossy(a), String::from_utf8_lossy(b));
        self.0.compare(&a, &b)
    }

    fn with_key(&self, text: &[u8], write: impl FnOnce(&[u8])) {
        let mut key = Vec::with_capacity(text.len() * 2 + 8);
        self.0.sort_key(&String::from_utf8_lossy(text), &mut key);
        write(&key);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::key::{Direction, TypeBits};
    use crate::{DocBuf, OwnedValue, array, doc, key};

    /// Strings compare without regard to ASCII case.
    #[derive(Debug)]
    struct NoCase(DocBuf);

    impl Collate for NoCase {
        fn compare(&self, a: &str, b: &str) -> Ordering {
            a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
        }

        fn sort_key(&self, text: &str, out: &mut Vec<u8>) {
            out.extend_from_slice(text.to_ascii_lowercase().as_bytes());
        }

        fn spec(&self) -> &Doc {
            &self.0
        }
    }

    fn no_case(locale: &str) -> Collator {
        Collator::new(Arc::new(NoCase(doc! {"locale": locale})))
    }

    #[test]
    fn strings_everywhere_in_values_are_collated_and_names_are_not() {
        let collator = no_case("x");
        let docs = [
            doc! {"v": "b"},
            doc! {"v": "A"},
            doc! {"v": "a\0B"},
            doc! {"v": {"n": "B"}},
            doc! {"v": {"n": "a"}},
            doc! {"v": {"N": "a"}},
            doc! {"v": array!["c", "B"]},
            doc! {"v": array!["C", {"x": "b"}]},
            doc! {"v": 5},
            doc! {"v": true},
        ];
        for a in &docs {
            for b in &docs {
                let (x, y) = (a.get("v").unwrap(), b.get("v").unwrap());
                for direction in [Direction::Ascending, Direction::Descending] {
                    let key = |value: &Value<'_>| {
                        let (mut key, mut bits) = (Vec::new(), TypeBits::default());
                        collator.encode_typed(value, direction, &mut key, &mut bits);
                        let mut plain = Vec::new();
                        collator.encode_directed(value, direction, &mut plain);
                        assert_eq!(key, plain);
                        assert_eq!(key::skip(&key, direction), Some(key.len()));
                        key
                    };
                    let order = match direction {
                        Direction::Ascending => key(&x).cmp(&key(&y)),
                        Direction::Descending => key(&y).cmp(&key(&x)),
                    };
                    assert_eq!(order, collator.compare(&x, &y), "{a:?} {b:?}");
                }
            }
        }
        let equal = |a: &DocBuf, b: &DocBuf| {
            (collator.compare(&Value::Document(a), &Value::Document(b))).is_eq()
        };
        assert!(equal(&doc! {"v": {"n": "B"}}, &doc! {"v": {"n": "b"}}));
        assert!(!equal(&doc! {"v": {"n": "B"}}, &doc! {"v": {"N": "b"}}));
        assert!(equal(&doc! {"v": ["x", 1]}, &doc! {"v": ["X", 1.0]}));
    }

    /// The rules see U+FFFD for each invalid sequence, so two strings with different bytes can be equal.
    #[test]
    fn rules_see_replacement_characters() {
        let collator = no_case("x");
        let strings: Vec<OwnedValue> =
            [&b"A\xFF"[..], b"a\xFE", "a\u{fffd}".as_bytes(), b"a", b"b"]
                .map(|text| OwnedValue::string(text.to_vec()))
                .into();
        let key = |value: &OwnedValue| {
            let mut key = Vec::new();
            collator.encode(&value.as_value(), &mut key);
            key
        };
        for a in &strings {
            for b in &strings {
                let order = collator.compare(&a.as_value(), &b.as_value());
                assert_eq!(key(a).cmp(&key(b)), order, "{a:?} {b:?}");
            }
        }
        assert_eq!(key(&strings[0]), key(&strings[1]));
        assert_eq!(key(&strings[0]), key(&strings[2]));
        assert!(key(&strings[0]) > key(&strings[3]) && key(&strings[0]) < key(&strings[4]));
    }

    #[test]
    fn collators_are_equal_by_their_specifications() {
        assert_eq!(no_case("x"), no_case("x"));
        assert_ne!(no_case("x"), no_case("y"));
        assert_ne!(no_case("x"), Collator::default());
        assert_eq!(*Collator::BINARY, Collator::default());
    }

    #[test]
    fn only_values_that_hold_strings_are_affected() {
        let collator = no_case("x");
        for (value, affected) in [
            (Value::String(""), true),
            (Value::Document(Doc::empty()), true),
            (Value::Array(Doc::empty()), true),
            (Value::Int32(1), false),
            (Value::Null, false),
            (Value::MaxKey, false),
        ] {
            assert_eq!(collator.affects(&value), affected, "{value:?}");
            assert!(!Collator::BINARY.affects(&value));
        }
    }
}
