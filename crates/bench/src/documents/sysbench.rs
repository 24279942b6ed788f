//! The documents of Sysbench: `{_id, k, c, pad}`, where `c` and `pad` are groups of random digits.
//!
//! A document of a seed is the same bytes whoever makes it. Making one copies a template, and writes
//! two digits for each multiplication.

use super::{Source, Template, put};
use crate::random::SplitMix64;

/// Digits of a group.
const GROUP: usize = 11;

/// Characters of `c`: ten groups with hyphens between them.
pub const C_CHARACTERS: usize = 10 * (GROUP + 1) - 1;

/// Characters of `pad`: five groups.
pub const PAD_CHARACTERS: usize = 5 * (GROUP + 1) - 1;

/// `00` to `99`, one after the other.
const PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut n = 0;
    while n < 100 {
        pairs[2 * n] = b'0' + (n / 10) as u8;
        pairs[2 * n + 1] = b'0' + (n % 10) as u8;
        n += 1;
    }
    pairs
};

#[derive(Clone, Debug)]
pub struct Documents {
    seed: u64,
    documents: u32,
    template: Template,
    id_at: usize,
    k_at: usize,
    c_at: usize,
    pad_at: usize,
}

impl Documents {
    /// Those of collection `number` of a run, whose ids are 1 to `documents`.
    pub fn new(seed: u64, number: u32, documents: u32) -> Self {
        let mut template = Template::new();
        let id_at = template.field(0x10, "_id", &[0; 4]);
        let k_at = template.field(0x10, "k", &[0; 4]);
        let c_at = template.string("c", &"0".repeat(C_CHARACTERS));
        let pad_at = template.string("pad", &"0".repeat(PAD_CHARACTERS));
        Documents {
            // Collections of one run share nothing.
            seed: SplitMix64::new(seed, u64::MAX - u64::from(number)).next(),
            documents,
            template: template.finish(),
            id_at,
            k_at,
            c_at,
            pad_at,
        }
    }

    /// Appends a document with this `_id`, everything else of it random.
    pub fn append_random(&self, id: i32, random: &mut SplitMix64, out: &mut Vec<u8>) {
        let document = self.template.copy_to(out);
        let k = 1 + random.below(u64::from(self.documents)) as u32;
        put(document, self.id_at, &id.to_le_bytes());
        put(document, self.k_at, &k.to_le_bytes());
        fill(&mut document[self.c_at..self.c_at + C_CHARACTERS], random);
        fill(
            &mut document[self.pad_at..self.pad_at + PAD_CHARACTERS],
            random,
        );
    }
}

impl Source for Documents {
    fn document_bytes(&self) -> usize {
        self.template.len()
    }

    fn append(&self, number: u64, out: &mut Vec<u8>) {
        let mut random = SplitMix64::new(self.seed, number);
        self.append_random((number + 1) as i32, &mut random, out);
    }
}

/// A new value for `c`, written into a buffer that is kept.
pub fn random_c<'a>(random: &mut SplitMix64, buffer: &'a mut [u8; C_CHARACTERS]) -> &'a str {
    fill(buffer, random);
    // Digits and hyphens are UTF-8.
    std::str::from_utf8(buffer).unwrap_or_default()
}

/// Fills with groups of digits, a hyphen between two of them.
fn fill(text: &mut [u8], random: &mut SplitMix64) {
    for group in text.chunks_mut(GROUP + 1) {
        // A fraction from 0 to 1, of which each multiplication by 100 brings the next two digits
        // before the point. It has digits for nine pairs.
        let mut fraction = random.next();
        let digits = group.len().min(GROUP);
        for pair in group[..digits].chunks_mut(2) {
            let product = u128::from(fraction) * 100;
            fraction = product as u64;
            let at = 2 * (product >> 64) as usize;
            let width = pair.len();
            pair.copy_from_slice(&PAIRS[at..at + width]);
        }
        if let Some(hyphen) = group.get_mut(GROUP) {
            *hyphen = b'-';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::tests::document;
    use frond_bson::Value;

    fn check_groups(text: &str, groups: usize) {
        let parts: Vec<&str> = text.split('-').collect();
        assert_eq!(parts.len(), groups, "{text}");
        for part in parts {
            assert_eq!(part.len(), GROUP, "{text}");
            assert!(part.bytes().all(|byte| byte.is_ascii_digit()), "{text}");
        }
    }

    #[test]
    fn a_document_is_that_of_the_seed() {
        for number in [0, 1, 998, 999] {
            let doc = document(&Documents::new(5, 3, 1000), number);
            // Collections of one run share nothing.
            assert_ne!(doc, document(&Documents::new(5, 2, 1000), number));
            assert_eq!(doc.get("_id"), Some(Value::Int32(number as i32 + 1)));
            assert!(matches!(doc.get("k"), Some(Value::Int32(1..=1000))));
            let (c, pad) = (doc.get_str("c").unwrap(), doc.get_str("pad").unwrap());
            assert_eq!((c.len(), pad.len()), (119, 59));
            check_groups(c, 10);
            check_groups(pad, 5);
        }
    }

    #[test]
    fn digits_and_keys_are_spread_evenly() {
        let documents = Documents::new(1, 1, 10);
        let (mut digits, mut keys) = ([0_u32; 10], [0_u32; 11]);
        for number in 0..2000 {
            let doc = document(&documents, number);
            for byte in doc.get_str("c").unwrap().bytes().filter(|b| *b != b'-') {
                digits[usize::from(byte - b'0')] += 1;
            }
            keys[doc.get_i32("k").unwrap() as usize] += 1;
        }
        // 2,000 documents of 110 digits: 22,000 of each, with a deviation of about 140.
        assert!(
            digits.iter().all(|n| (21_200..22_800).contains(n)),
            "{digits:?}"
        );
        assert_eq!(keys[0], 0);
        assert!(keys[1..].iter().all(|n| (130..270).contains(n)), "{keys:?}");
    }

    #[test]
    fn a_new_c_differs_from_the_last_one() {
        let mut random = SplitMix64::new(1, 1);
        let (mut one, mut two) = ([0; C_CHARACTERS], [0; C_CHARACTERS]);
        let (one, two) = (
            random_c(&mut random, &mut one),
            random_c(&mut random, &mut two),
        );
        check_groups(one, 10);
        assert_ne!(one, two);
    }
}
