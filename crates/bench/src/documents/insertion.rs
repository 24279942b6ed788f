//! The documents of the insertion workloads: a template with random letters written over it. One
//! takes a small part of a microsecond, so the client is not what is measured.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{EPOCH_S, Source, Template, object_id, put};
use crate::random::SplitMix64;

/// Names of the fields that may be indexed, in the order in which `--indexes` takes them.
pub const INDEXED_FIELDS: [&str; 4] = ["URI", "name", "origin", "creation"];

/// Dates of creation are spread over this time.
const CREATION_SPAN_MS: u64 = 5 * 365 * 24 * 3600 * 1000;

/// A document expires at least this long after its creation …
const EXPIRATION_MIN_MS: u64 = 24 * 3600 * 1000;
/// … and at most this much later than that.
const EXPIRATION_SPAN_MS: u64 = 90 * 24 * 3600 * 1000;

/// 32 characters, so that five random bits pick one. All may stand in a URL.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Marks a place for a random letter in the templates.
const ANY: char = '?';

/// A string of an array of the multikey workload, of the length that the workload's authors show.
const ELEMENT: &str = "?????????";

const URI: &str = "https://??????????.example/??????????/???????????????????????";
const NAME: &str = "????????? ??????????????";
const ORIGIN: &str = "????????.??????.example";

#[derive(Clone, Debug)]
pub struct Generator {
    seed: u64,
    template: Template,
    id_at: usize,
    creation_at: usize,
    expiration_at: usize,
    letters_at: Vec<usize>,
}

impl Generator {
    /// A generator of documents `{_id, URI, name, origin, creation, expiration}`. `URI` is a string
    /// if `elements` is 0, else an array of `elements` short strings.
    pub fn new(seed: u64, elements: usize) -> Self {
        let mut template = Template::new();
        let mut letters_at = Vec::new();
        let id_at = template.field(0x07, "_id", &[0; 12]);
        if elements == 0 {
            string(&mut template, "URI", URI, &mut letters_at);
        } else {
            let array = template.open(0x04, "URI");
            for index in 0..elements {
                string(&mut template, &index.to_string(), ELEMENT, &mut letters_at);
            }
            template.close(array);
        }
        string(&mut template, "name", NAME, &mut letters_at);
        string(&mut template, "origin", ORIGIN, &mut letters_at);
        let creation_at = template.field(0x09, "creation", &[0; 8]);
        let expiration_at = template.field(0x09, "expiration", &[0; 8]);
        let template = template.finish();
        Generator {
            seed,
            template,
            id_at,
            creation_at,
            expiration_at,
            letters_at,
        }
    }

    pub fn id(&self, number: u64) -> [u8; 12] {
        object_id(self.seed, number)
    }

    /// Appends a document with random values, and with this date of creation, in milliseconds since 1970.
    fn append_created(&self, number: u64, created_ms: Option<u64>, out: &mut Vec<u8>) {
        let document = self.template.copy_to(out);
        let mut random = SplitMix64::new(self.seed, number);

        for places in self.letters_at.chunks(12) {
            let mut bits = random.next();
            for at in places {
                document[*at] = LETTERS[(bits & 31) as usize];
                bits >>= 5;
            }
        }
        let random_date = || u64::from(EPOCH_S) * 1000 + random.below(CREATION_SPAN_MS);
        let created = created_ms.unwrap_or_else(random_date);
        let expires = created + EXPIRATION_MIN_MS + random.below(EXPIRATION_SPAN_MS);
        put(document, self.creation_at, &created.to_le_bytes());
        put(document, self.expiration_at, &expires.to_le_bytes());
        put(document, self.id_at, &self.id(number));
    }
}

/// Replaces the creation date of each document by the current time, because these documents expire by it.
pub struct CreatedNow<'a>(pub &'a Generator);

impl Source for CreatedNow<'_> {
    fn document_bytes(&self) -> usize {
        self.0.document_bytes()
    }

    fn append(&self, number: u64, out: &mut Vec<u8>) {
        self.0.append_created(number, Some(now_ms()), out);
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

impl Source for Generator {
    fn document_bytes(&self) -> usize {
        self.template.len()
    }

    fn append(&self, number: u64, out: &mut Vec<u8>) {
        self.append_created(number, None, out);
    }
}

/// Appends a string, and the offsets of its random letters to `letters_at`.
fn string(template: &mut Template, name: &str, text: &str, letters_at: &mut Vec<usize>) {
    let at = template.string(name, text);
    letters_at.extend(text.match_indices(ANY).map(|(index, _)| at + index));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::tests::document;
    use frond_bson::Value;
    use std::collections::HashSet;

    #[test]
    fn a_document_is_valid_bson_with_the_fields_of_the_workload() {
        let generator = Generator::new(7, 0);
        assert!((190..=220).contains(&generator.document_bytes()));
        for number in [0, 1, 9_999, 10_000, 16_777_216, u64::from(u32::MAX) + 5] {
            let doc = document(&generator, number);
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
    fn a_document_created_now_has_the_values_of_its_number_and_the_time() {
        let generator = Generator::new(7, 0);
        let before = now_ms() as i64;
        let (now, then) = (
            document(&CreatedNow(&generator), 5),
            document(&generator, 5),
        );
        for field in ["_id", "URI", "name", "origin"] {
            assert_eq!(now.get(field), then.get(field), "{field}");
        }
        let (Some(Value::DateTime(from)), Some(Value::DateTime(to))) =
            (now.get("creation"), now.get("expiration"))
        else {
            unreachable!("both are dates");
        };
        assert!((before..=now_ms() as i64).contains(&from) && to > from);
    }

    #[test]
    fn an_array_has_strings_that_do_not_repeat() {
        let generator = Generator::new(7, 100);
        let doc = document(&generator, 5);
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
    fn ids_are_unique_and_grow_and_strings_do_not_repeat() {
        let generator = Generator::new(3, 0);
        let mut last = [0; 12];
        let mut seen = HashSet::new();
        for number in 0..50_000 {
            let id = generator.id(number);
            assert!(id > last, "{number}");
            last = id;
            let doc = document(&generator, number);
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
