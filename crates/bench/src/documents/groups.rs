//! The documents of the workload on groups: small, with a field of few values.

use super::{Source, Template, object_id, put};
use crate::random::SplitMix64;

/// Different values of `k`.
pub const KEYS: u64 = 1000;
/// `v` is below this.
pub const VALUES: u64 = 1_000_000;

/// Totals over all groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    pub groups: u64,
    pub documents: i64,
    /// The sum of their sums.
    pub total: i64,
}

#[derive(Clone, Debug)]
pub struct Documents {
    seed: u64,
    template: Template,
    id_at: usize,
    k_at: usize,
    v_at: usize,
    date_at: usize,
    city_at: usize,
}

impl Documents {
    /// Documents `{_id, k, v, date, city}`: `k` and `v` are random integers, `city` is one of 26 by its last letter.
    pub fn new(seed: u64) -> Self {
        let mut template = Template::new();
        let id_at = template.field(0x07, "_id", &[0; 12]);
        let k_at = template.field(0x10, "k", &[0; 4]);
        let v_at = template.field(0x10, "v", &[0; 4]);
        let date_at = template.field(0x09, "date", &[0; 8]);
        let city_at = template.string("city", "Frankfurt A") + "Frankfurt ".len();
        Documents {
            seed,
            template: template.finish(),
            id_at,
            k_at,
            v_at,
            date_at,
            city_at,
        }
    }

    fn values(&self, number: u64) -> (i32, i32) {
        let mut random = SplitMix64::new(self.seed, number);
        (random.below(KEYS) as i32, random.below(VALUES) as i32)
    }

    /// The totals of the first `count` documents: of all of them, and of those with a `v` below `below`.
    pub fn expected(&self, count: u64, below: i32) -> [Groups; 2] {
        let mut expected = [Groups::default(); 2];
        let mut seen = [[false; KEYS as usize]; 2];
        for number in 0..count {
            let (k, v) = self.values(number);
            let which = if v < below { 0..2 } else { 0..1 };
            for (groups, seen) in expected.iter_mut().zip(&mut seen).take(which.end) {
                groups.groups += u64::from(!std::mem::replace(&mut seen[k as usize], true));
                groups.documents += 1;
                groups.total += i64::from(v);
            }
        }
        expected
    }

    /// The number of documents with this `k` among the first `count`.
    pub fn with_key(&self, count: u64, key: i32) -> u64 {
        (0..count)
            .filter(|&number| self.values(number).0 == key)
            .count() as u64
    }
}

impl Source for Documents {
    fn document_bytes(&self) -> usize {
        self.template.len()
    }

    fn append(&self, number: u64, out: &mut Vec<u8>) {
        let document = self.template.copy_to(out);
        let (k, v) = self.values(number);
        put(document, self.id_at, &object_id(self.seed, number));
        put(document, self.k_at, &k.to_le_bytes());
        put(document, self.v_at, &v.to_le_bytes());
        put(
            document,
            self.date_at,
            &(1_600_000_000_000 + number * 1000).to_le_bytes(),
        );
        put(document, self.city_at, &[b'A' + (number % 26) as u8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::tests::document;
    use std::collections::HashSet;

    #[test]
    fn expected_groups_are_those_of_the_documents() {
        let documents = Documents::new(7);
        let (count, below) = (5000, 250_000);
        let mut found = [Groups::default(); 2];
        let mut keys = [HashSet::new(), HashSet::new()];
        let mut with_key = 0;
        for number in 0..count {
            let doc = document(&documents, number);
            let (k, v) = (doc.get_i64("k").unwrap(), doc.get_i64("v").unwrap());
            assert!((0..1000).contains(&k) && (0..1_000_000).contains(&v));
            assert_eq!(doc.get_str("city").unwrap().len(), 11);
            with_key += u64::from(k == 3);
            for (which, groups) in found.iter_mut().enumerate() {
                if which == 0 || v < i64::from(below) {
                    keys[which].insert(k);
                    groups.documents += 1;
                    groups.total += v;
                    groups.groups = keys[which].len() as u64;
                }
            }
        }
        assert_eq!(documents.expected(count, below), found);
        assert_eq!(documents.with_key(count, 3), with_key);
        assert!(found[1].documents > 1000 && found[1].documents < 1500);
    }
}
