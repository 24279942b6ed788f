//! The documents of the workload on the cost of an index: 2,400 bytes with an indexed name.

use super::{Source, Template, object_id, put};
use crate::random::SplitMix64;

/// First names of seven letters, so that all documents have the same length.
const FIRST: [&str; 64] = [
    "Shekhar", "Abraham", "Adriana", "Alberto", "Alfredo", "Allison", "Annette", "Anthony",
    "Antonio", "Barbara", "Beatriz", "Belinda", "Bernard", "Bridget", "Camille", "Candace",
    "Charles", "Charlie", "Cynthia", "Deborah", "Dominic", "Dorothy", "Douglas", "Eduardo",
    "Ernesto", "Estelle", "Frances", "Gilbert", "Gregory", "Gustavo", "Harriet", "Heather",
    "Herbert", "Jasmine", "Jeffrey", "Jessica", "Kathryn", "Kenneth", "Krishna", "Lakshmi",
    "Leonard", "Lillian", "Lindsey", "Loretta", "Marlene", "Matilda", "Matthew", "Maurice",
    "Melanie", "Melissa", "Michael", "Natalie", "Orlando", "Patrick", "Phillip", "Raymond",
    "Rebecca", "Ricardo", "Richard", "Roberto", "Russell", "Suzanne", "Timothy", "William",
];

/// Last names of six letters.
const LAST: [&str; 64] = [
    "Gulati", "Arnold", "Austin", "Bailey", "Barker", "Barnes", "Becker", "Bishop", "Bowman",
    "Brooks", "Bryant", "Burton", "Butler", "Carter", "Cooper", "Curtis", "Duncan", "Fisher",
    "Flores", "Foster", "Fowler", "Garcia", "Greene", "Hansen", "Harper", "Harris", "Harvey",
    "Holmes", "Howard", "Hudson", "Hughes", "Hunter", "Jensen", "Jordan", "Kapoor", "Keller",
    "Lawson", "Little", "Martin", "Miller", "Mishra", "Morgan", "Morris", "Murphy", "Nelson",
    "Norris", "Oliver", "Palmer", "Parker", "Powell", "Rivera", "Rogers", "Sharma", "Taylor",
    "Thomas", "Torres", "Turner", "Wagner", "Walker", "Warren", "Watson", "Weaver", "Wilson",
    "Wright",
];

/// Names: each of the first with each of the last.
pub const NAMES: u64 = 4096;

/// The one that is looked for.
pub const WANTED: &str = "Shekhar Gulati";

/// The biography repeats this a hundred times.
const BIO: &str = "I am a Java Developer. ";

/// 1980-01-01T00:00:00Z.
const DATE_FROM_MS: u64 = 315_532_800_000;

/// Dates are spread over twenty years.
const DATE_SPAN_MS: u64 = 20 * 365 * 24 * 3600 * 1000;

#[derive(Clone, Debug)]
pub struct Documents {
    seed: u64,
    template: Template,
    id_at: usize,
    name_at: usize,
    some_id_at: usize,
    date_at: usize,
}

impl Documents {
    /// Documents `{_id, name, someId1, str1, date1, bio}`.
    pub fn new(seed: u64) -> Self {
        let mut template = Template::new();
        let id_at = template.field(0x07, "_id", &[0; 12]);
        let name_at = template.string("name", WANTED);
        let some_id_at = template.field(0x12, "someId1", &[0; 8]);
        template.string("str1", "U");
        let date_at = template.field(0x09, "date1", &[0; 8]);
        template.string("bio", &BIO.repeat(100));
        Documents {
            seed,
            template: template.finish(),
            id_at,
            name_at,
            some_id_at,
            date_at,
        }
    }

    /// Which name a document has. Of any 4,096 documents from a multiple of 4,096 on, each has
    /// another one, in an order of their own.
    fn name(&self, number: u64) -> u64 {
        let mut random = SplitMix64::new(self.seed, !(number / NAMES));
        // A product with an odd number visits all numbers below a power of two.
        let (factor, first) = (random.next() | 1, random.next());
        let mixed = (number % NAMES).wrapping_mul(factor).wrapping_add(first) % NAMES;
        // Without this the step from one name to the next would always be the same.
        let mixed = mixed ^ (mixed >> 6);
        (mixed.wrapping_mul(factor) ^ (first >> 20)) % NAMES
    }

    /// Documents among the first `count` whose name is the one that is looked for.
    pub fn wanted(&self, count: u64) -> u64 {
        let whole = count / NAMES;
        let rest = (whole * NAMES..count).any(|number| self.name(number) == 0);
        whole + u64::from(rest)
    }
}

impl Source for Documents {
    fn document_bytes(&self) -> usize {
        self.template.len()
    }

    fn append(&self, number: u64, out: &mut Vec<u8>) {
        let document = self.template.copy_to(out);
        let name = self.name(number);
        let (first, last) = (FIRST[(name / 64) as usize], LAST[(name % 64) as usize]);
        let date = DATE_FROM_MS + SplitMix64::new(self.seed, number).below(DATE_SPAN_MS);
        put(document, self.id_at, &object_id(self.seed, number));
        put(document, self.name_at, first.as_bytes());
        put(document, self.name_at + first.len() + 1, last.as_bytes());
        put(
            document,
            self.some_id_at,
            &(1_000_000 + number).to_le_bytes(),
        );
        put(document, self.date_at, &date.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::tests::document;
    use frond_bson::Value;
    use std::collections::HashSet;

    fn name_of(seed: u64, number: u64) -> String {
        let doc = document(&Documents::new(seed), number);
        doc.get_str("name").unwrap().to_owned()
    }

    #[test]
    fn all_names_have_one_length_and_differ() {
        for (names, length) in [(FIRST, 7), (LAST, 6)] {
            assert!(names.iter().all(|name| name.len() == length), "{names:?}");
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), 64);
        }
        assert_eq!(format!("{} {}", FIRST[0], LAST[0]), WANTED);
    }

    #[test]
    fn a_document_is_that_of_the_seed() {
        let doc = document(&Documents::new(1), 6);
        assert_eq!(doc.len_bytes(), 2401);
        assert!(matches!(doc.get("_id"), Some(Value::ObjectId(_))));
        assert_eq!(doc.get("someId1"), Some(Value::Int64(1_000_006)));
        assert_eq!(doc.get_str("str1"), Some("U"));
        assert!(matches!(doc.get("date1"), Some(Value::DateTime(ms)) if ms > 315_532_800_000));
        let bio = doc.get_str("bio").unwrap();
        assert_eq!((bio.len(), bio.matches(BIO).count()), (2300, 100));
    }

    #[test]
    fn each_block_has_each_name_once_in_an_order_of_its_own() {
        for block in [0, 1, 77] {
            let documents = Documents::new(9);
            let names: Vec<u64> = (0..NAMES)
                .map(|n| documents.name(block * NAMES + n))
                .collect();
            assert_eq!(names.iter().collect::<HashSet<_>>().len() as u64, NAMES);
            let steps: HashSet<u64> = names.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
            assert!(steps.len() > 16, "{} different steps", steps.len());
        }
        assert_ne!(name_of(9, 0), name_of(10, 0));
        assert_eq!(name_of(9, 5), name_of(9, 5));
    }

    #[test]
    fn the_wanted_name_is_found_a_stated_number_of_times() {
        for seed in [1, 2] {
            let documents = Documents::new(seed);
            let mut found = 0;
            let mut at = None;
            for number in 0..2 * NAMES {
                if name_of(seed, number) == WANTED {
                    found += 1;
                    at.get_or_insert(number);
                }
            }
            assert_eq!((found, documents.wanted(2 * NAMES)), (2, 2));
            let at = at.unwrap();
            assert_eq!((documents.wanted(at), documents.wanted(at + 1)), (0, 1));
            assert!((14_648..=14_649).contains(&documents.wanted(60_000_000)));
        }
    }
}
