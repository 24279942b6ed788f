//! The documents of the workload of everyday operations: small, with integers of several ranges.

use super::{Source, Template, put};
use crate::random::SplitMix64;

/// `k` is below this.
pub const KEYS: u64 = 1000;
/// `v` and `u` are below this.
pub const VALUES: u64 = 1_000_000;
/// `m` is below this.
pub const GROUPS: u64 = 100_000;
/// Different values of `city`.
pub const CITIES: u64 = 26;

/// The integers of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub k: i32,
    pub v: i32,
    pub u: i32,
    pub m: i32,
}

#[derive(Clone, Debug)]
pub struct Documents {
    seed: u64,
    template: Template,
    id_at: usize,
    numbers_at: [usize; 4],
    city_at: usize,
}

impl Documents {
    /// Documents `{_id, k, v, u, m, city, w}`: `_id` counts from 1 on, `k`, `v`, `u` and `m` are random integers, `city` is one
    /// of 26 by its last letter, and `w` is 0 until it is updated.
    pub fn new(seed: u64) -> Self {
        let mut template = Template::new();
        let id_at = template.field(0x10, "_id", &[0; 4]);
        let numbers_at = ["k", "v", "u", "m"].map(|name| template.field(0x10, name, &[0; 4]));
        let city_at = template.string("city", "Frankfurt A") + "Frankfurt ".len();
        template.field(0x10, "w", &[0; 4]);
        Documents {
            seed,
            template: template.finish(),
            id_at,
            numbers_at,
            city_at,
        }
    }

    /// The integers of document `number`.
    pub fn numbers(&self, number: u64) -> Numbers {
        let mut random = SplitMix64::new(self.seed, number);
        let mut below = |bound| random.below(bound) as i32;
        Numbers {
            k: below(KEYS),
            v: below(VALUES),
            u: below(VALUES),
            m: below(GROUPS),
        }
    }
}

/// The `_id` of document `number`.
pub fn id(number: u64) -> i32 {
    (number + 1) as i32
}

impl Source for Documents {
    fn document_bytes(&self) -> usize {
        self.template.len()
    }

    fn append(&self, number: u64, out: &mut Vec<u8>) {
        let document = self.template.copy_to(out);
        let Numbers { k, v, u, m } = self.numbers(number);
        put(document, self.id_at, &id(number).to_le_bytes());
        for (at, value) in self.numbers_at.into_iter().zip([k, v, u, m]) {
            put(document, at, &value.to_le_bytes());
        }
        put(document, self.city_at, &[b'A' + (number % CITIES) as u8]);
    }
}

/// The documents that `k` refers to: `{_id, name}`.
#[derive(Clone, Debug)]
pub struct Referenced {
    template: Template,
    id_at: usize,
    name_at: usize,
}

impl Referenced {
    /// One for each value of `k`.
    pub fn new() -> Self {
        let mut template = Template::new();
        let id_at = template.field(0x10, "_id", &[0; 4]);
        let name_at = template.string("name", "Number 0000") + "Number ".len();
        Referenced {
            template: template.finish(),
            id_at,
            name_at,
        }
    }
}

impl Source for Referenced {
    fn document_bytes(&self) -> usize {
        self.template.len()
    }

    fn append(&self, number: u64, out: &mut Vec<u8>) {
        let document = self.template.copy_to(out);
        put(document, self.id_at, &(number as i32).to_le_bytes());
        put(
            document,
            self.name_at,
            format!("{:04}", number % 10_000).as_bytes(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::tests::document;

    #[test]
    fn the_integers_are_those_of_the_documents() {
        let documents = Documents::new(7);
        for number in 0..1000 {
            let doc = document(&documents, number);
            let of = |name| doc.get_i32(name).unwrap();
            let Numbers { k, v, u, m } = documents.numbers(number);
            assert_eq!((of("_id"), of("w")), (id(number), 0));
            assert_eq!((of("k"), of("v"), of("u"), of("m")), (k, v, u, m));
            assert!((0..KEYS as i32).contains(&k) && (0..GROUPS as i32).contains(&m));
        }
        let doc = document(&Referenced::new(), 77);
        assert_eq!(doc.get_i32("_id"), Some(77));
        assert_eq!(doc.get_str("name"), Some("Number 0077"));
    }
}
