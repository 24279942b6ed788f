//! The documents of the insertion workload.
//!
//! Document `n` of a seed is always the same bytes, whoever makes it and in whichever order, so
//! runs can be repeated and compared. Making one copies a template and writes random letters over
//! it: a small part of a microsecond, so the client is not what is measured.

use crate::random::SplitMix64;

/// Names of the fields that may be indexed, in the order in which `--indexes` takes them.
pub const INDEXED_FIELDS: [&str; 4] = ["URI", "name", "origin", "creation"];

/// 2020-01-01T00:00:00Z, from which ids and dates count on.
const EPOCH_S: u32 = 1_577_836_800;

/// Dates of creation are spread over this time.
const CREATION_SPAN_MS: u64 = 5 * 365 * 24 * 3600 * 1000;

/// A document expires at least this long after its creation …
const EXPIRATION_MIN_MS: u64 = 24 * 3600 * 1000;
/// … and at most this much later than that.
const EXPIRATION_SPAN_MS: u64 = 90 * 24 * 3600 * 1000;

/// Documents that share the second in their `_id`, as if they came at this speed.
const DOCUMENTS_PER_SECOND: u64 = 10_000;

/// 32 characters, so that five random bits pick one. All may stand in a URL.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Marks a place for a random letter in the templates.
const ANY: u8 = b'?';

/// A string of an array of the multikey workload, of the length that the workload's authors show.
const ELEMENT: &[u8] = b"?????????";

const URI: &[u8] = b"https://??????????.example/??????????/???????????????????????";
const NAME: &[u8] = b"????????? ??????????????";
const ORIGIN: &[u8] = b"????????.??????.example";

/// Documents by number, all of the same length.
pub trait Source: Sync {
    /// Bytes of every document.
    fn document_bytes(&self) -> usize;

    /// Appends document `number` to `out`.
    fn append(&self, number: u64, out: &mut Vec<u8>);
}

/// Makes the documents of one seed.
#[derive(Clone, Debug)]
pub struct Generator {
    seed: u64,
    template: Vec<u8>,
    id_at: usize,
    creation_at: usize,
    expiration_at: usize,
    letters_at: Vec<usize>,
}

impl Generator {
    /// A generator of documents `{_id, URI, name, origin, creation, expiration}`. `URI` is a string
    /// if `elements` is 0, else an array of so many short strings.
    #[must_use]
    pub fn new(seed: u64, elements: usize) -> Self {
        let mut template = vec![0; 4];
        let mut letters_at = Vec::new();
        let id_at = field(&mut template, 0x07, "_id", &[0; 12]);
        if elements == 0 {
            string(&mut template, "URI", URI, &mut letters_at);
        } else {
            let array_at = field(&mut template, 0x04, "URI", &[0; 4]);
            for index in 0..elements {
                string(&mut template, &index.to_string(), ELEMENT, &mut letters_at);
            }
            template.push(0);
            let length = (template.len() - array_at) as u32;
            template[array_at..array_at + 4].copy_from_slice(&length.to_le_bytes());
        }
        string(&mut template, "name", NAME, &mut letters_at);
        string(&mut template, "origin", ORIGIN, &mut letters_at);
        let creation_at = field(&mut template, 0x09, "creation", &[0; 8]);
        let expiration_at = field(&mut template, 0x09, "expiration", &[0; 8]);
        template.push(0);
        let length = template.len() as u32;
        template[..4].copy_from_slice(&length.to_le_bytes());
        Generator {
            seed,
            template,
            id_at,
            creation_at,
            expiration_at,
            letters_at,
        }
    }

    /// An ObjectId as a driver would make it: seconds, five bytes of the process, a counter. Ids
    /// grow with the number (but for the second in which the counter wraps), and no two numbers
    /// below 2^32 * 10,000 share one.
    pub fn id(&self, number: u64) -> [u8; 12] {
        object_id(self.seed, number)
    }
}

/// The id of document `number` of a seed.
pub fn object_id(seed: u64, number: u64) -> [u8; 12] {
    let seconds = EPOCH_S.wrapping_add((number / DOCUMENTS_PER_SECOND) as u32);
    let process = SplitMix64::new(seed, u64::MAX).next().to_be_bytes();
    let counter = (number as u32).to_be_bytes();
    let mut id = [0; 12];
    id[..4].copy_from_slice(&seconds.to_be_bytes());
    id[4..9].copy_from_slice(&process[..5]);
    id[9..].copy_from_slice(&counter[1..]);
    id
}

impl Source for Generator {
    fn document_bytes(&self) -> usize {
        self.template.len()
    }

    fn append(&self, number: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.template);
        let Some(document) = out.get_mut(start..) else {
            return;
        };
        let mut random = SplitMix64::new(self.seed, number);

        for places in self.letters_at.chunks(12) {
            let mut bits = random.next();
            for at in places {
                document[*at] = LETTERS[(bits & 31) as usize];
                bits >>= 5;
            }
        }
        let created = u64::from(EPOCH_S) * 1000 + random.below(CREATION_SPAN_MS);
        let expires = created + EXPIRATION_MIN_MS + random.below(EXPIRATION_SPAN_MS);
        document[self.creation_at..self.creation_at + 8].copy_from_slice(&created.to_le_bytes());
        document[self.expiration_at..self.expiration_at + 8]
            .copy_from_slice(&expires.to_le_bytes());
        document[self.id_at..self.id_at + 12].copy_from_slice(&self.id(number));
    }
}

/// Appends a string, and the places of its random letters to `letters_at`.
fn string(out: &mut Vec<u8>, name: &str, text: &[u8], letters_at: &mut Vec<usize>) {
    let mut value = Vec::with_capacity(text.len() + 5);
    value.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
    value.extend_from_slice(text);
    value.push(0);
    let at = field(out, 0x02, name, &value) + 4;
    let places = text.iter().enumerate().filter(|(_, byte)| **byte == ANY);
    letters_at.extend(places.map(|(index, _)| at + index));
}

/// Appends a BSON element and returns where its value starts.
pub fn field(out: &mut Vec<u8>, tag: u8, name: &str, value: &[u8]) -> usize {
    out.push(tag);
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    let at = out.len();
    out.extend_from_slice(value);
    at
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use frond_bson::{Doc, Value};
    use std::collections::HashSet;

    fn make(seed: u64, number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        Generator::new(seed, 0).append(number, &mut out);
        out
    }

    #[test]
    fn a_document_is_valid_bson_with_the_fields_of_the_workload() {
        let generator = Generator::new(7, 0);
        assert!((190..=220).contains(&generator.document_bytes()));
        for number in [0, 1, 9_999, 10_000, 16_777_216, u64::from(u32::MAX) + 5] {
            let bytes = make(7, number);
            assert_eq!(bytes.len(), generator.document_bytes());
            let doc = Doc::validate(&bytes).unwrap();
            let names: Vec<&str> = doc.iter().map(|(name, _)| name).collect();
            assert_eq!(
                names,
                ["_id", "URI", "name", "origin", "creation", "expiration"]
            );
            assert!(matches!(doc.get("_id"), Some(Value::ObjectId(_))));
            assert!(doc.get_str("URI").unwrap().starts_with("https://"));
            for name in ["URI", "name", "origin"] {
                assert!(!doc.get_str(name).unwrap().contains('?'), "{name}");
            }
            let (Some(Value::DateTime(from)), Some(Value::DateTime(to))) =
                (doc.get("creation"), doc.get("expiration"))
            else {
                unreachable!("both are dates");
            };
            assert!(from >= i64::from(EPOCH_S) * 1000 && to > from);
        }
    }

    #[test]
    fn an_array_has_strings_that_do_not_repeat() {
        let generator = Generator::new(7, 100);
        let mut bytes = Vec::new();
        generator.append(5, &mut bytes);
        let doc = Doc::validate(&bytes).unwrap();
        let array = doc.get_array("URI").unwrap();
        let strings: HashSet<&str> = array.values().filter_map(|value| value.as_str()).collect();
        assert_eq!(strings.len(), 100);
        assert!(
            strings
                .iter()
                .all(|text| text.len() == ELEMENT.len() && !text.contains('?'))
        );
        assert_eq!(array.iter().last().unwrap().0, "99");
        assert!(doc.get_str("name").is_some());
    }

    #[test]
    fn documents_depend_on_seed_and_number_only() {
        assert_eq!(make(1, 5), make(1, 5));
        assert_ne!(make(1, 5), make(2, 5));
        assert_ne!(make(1, 5), make(1, 6));
        let generator = Generator::new(1, 0);
        let mut batch = Vec::new();
        for number in 0..10 {
            generator.append(number, &mut batch);
        }
        let at = generator.document_bytes() * 5;
        assert_eq!(&batch[at..at + generator.document_bytes()], make(1, 5));
    }

    #[test]
    fn ids_are_unique_and_grow_and_strings_do_not_repeat() {
        let generator = Generator::new(3, 0);
        let mut last = [0; 12];
        let mut seen = HashSet::new();
        for number in 0..50_000 {
            let id = generator.id(number);
            assert!(id > last, "{number}");
            last = id;
            let mut bytes = Vec::new();
            generator.append(number, &mut bytes);
            let doc = Doc::validate(&bytes).unwrap();
            for field in ["URI", "name", "origin"] {
                assert!(
                    seen.insert(doc.get_str(field).unwrap().to_owned()),
                    "{number}"
                );
            }
        }
        // The counter wraps at 2^24; the seconds keep the ids apart.
        assert_ne!(generator.id(5), generator.id(5 + (1 << 24)));
        assert_ne!(Generator::new(4, 0).id(5), generator.id(5));
    }
}
