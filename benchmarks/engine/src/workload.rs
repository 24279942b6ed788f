//! Keys and values generated from a document's number, and which documents a store
//! must hold after deletions and replacements, so that everything read can be checked.

/// Secondary tables; each document has one entry in each.
pub const SECONDARIES: usize = 3;
/// Tables of a store: the primary, then the secondaries.
pub const TABLES: usize = SECONDARIES + 1;
/// The table whose keys are the documents' numbers and whose values are the documents.
pub const PRIMARY: usize = 0;

pub const PRIMARY_KEY_BYTES: usize = 12;
/// Bytes of a secondary key: random ones, then the primary key.
pub const SECONDARY_KEY_BYTES: usize = RANDOM_BYTES + PRIMARY_KEY_BYTES;
const RANDOM_BYTES: usize = 32;
/// Bytes of a value, half of them random.
pub const VALUE_BYTES: usize = 200;
/// Bytes of keys and values in one document.
pub const DOCUMENT_BYTES: u64 =
    (PRIMARY_KEY_BYTES + VALUE_BYTES + SECONDARIES * SECONDARY_KEY_BYTES) as u64;

/// The text of the compressible half of each value.
const TEXT: &[u8; 100] = b"name: A. N. Other; origin: the far end of an orchard, \
colour: green, state: ripe, next harvest: soon";

/// A fast pseudorandom generator (splitmix64): equal seeds give equal numbers.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let next = self.next().to_le_bytes();
            part.copy_from_slice(&next[..part.len()]);
        }
    }
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// The sequence of one part of one generation of a document.
fn random_of(document: u64, generation: u32, part: u64) -> Random {
    Random(
        mix(document.wrapping_mul(8).wrapping_add(part))
            ^ u64::from(generation).wrapping_mul(0xD6E8_FEB8_6659_FD93),
    )
}

fn key_of_number(number: u64) -> [u8; PRIMARY_KEY_BYTES] {
    let mut key = [7; PRIMARY_KEY_BYTES];
    key[4..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The primary key: ascending with the document's number.
pub fn primary_key(document: u64) -> [u8; PRIMARY_KEY_BYTES] {
    key_of_number(document * 2)
}

/// A key between those of a document and of the next one, which no document has.
pub fn absent_primary_key(document: u64) -> [u8; PRIMARY_KEY_BYTES] {
    key_of_number(document * 2 + 1)
}

/// The document of a primary key, or of the end of a secondary key.
pub fn document_of(key: &[u8]) -> Option<u64> {
    let number = key.last_chunk::<8>()?;
    Some(u64::from_be_bytes(*number) / 2)
}

/// The key of a document in a secondary table (1 to [`SECONDARIES`]).
pub fn secondary_key(document: u64, generation: u32, table: usize) -> [u8; SECONDARY_KEY_BYTES] {
    let mut key = [0; SECONDARY_KEY_BYTES];
    random_of(document, generation, table as u64).fill(&mut key[..RANDOM_BYTES]);
    key[RANDOM_BYTES..].copy_from_slice(&primary_key(document));
    key
}

/// A secondary key that no document has.
pub fn absent_secondary_key(random: &mut Random, document: u64) -> [u8; SECONDARY_KEY_BYTES] {
    let mut key = [0; SECONDARY_KEY_BYTES];
    random.fill(&mut key[..RANDOM_BYTES]);
    key[RANDOM_BYTES..].copy_from_slice(&absent_primary_key(document));
    key
}

/// The value of a document: 100 random bytes, then 100 that are the same everywhere.
pub fn value(document: u64, generation: u32) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    random_of(document, generation, PRIMARY as u64).fill(&mut value[..100]);
    value[100..].copy_from_slice(TEXT);
    value
}

/// A random order of the numbers below a bound that can be asked in both directions: a Feistel
/// network over the next power of four, walked until the number is below the bound.
#[derive(Clone, Copy)]
pub struct Order {
    count: u64,
    half_bits: u32,
    seed: u64,
}

const ROUNDS: u64 = 4;

impl Order {
    /// An order of `count` numbers; another seed gives another one.
    pub fn new(count: u64, seed: u64) -> Order {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        let half_bits = bits.div_ceil(2).max(1);
        Order {
            count,
            half_bits,
            seed,
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    fn round(&self, round: u64, half: u64) -> u64 {
        mix(half ^ mix(self.seed.wrapping_mul(ROUNDS).wrapping_add(round)))
            & ((1 << self.half_bits) - 1)
    }

    pub fn at(&self, position: u64) -> u64 {
        let mut number = position;
        loop {
            let mask = (1 << self.half_bits) - 1;
            let (mut left, mut right) = (number >> self.half_bits, number & mask);
            for round in 0..ROUNDS {
                (left, right) = (right, left ^ self.round(round, right));
            }
            number = left << self.half_bits | right;
            if number < self.count {
                return number;
            }
        }
    }

    pub fn position(&self, number: u64) -> u64 {
        let mut position = number;
        loop {
            let mask = (1 << self.half_bits) - 1;
            let (mut left, mut right) = (position >> self.half_bits, position & mask);
            for round in (0..ROUNDS).rev() {
                (left, right) = (right ^ self.round(round, left), left);
            }
            position = left << self.half_bits | right;
            if position < self.count {
                return position;
            }
        }
    }
}

/// Part of a random order that was worked on.
#[derive(Clone, Copy)]
pub struct Done {
    order: Order,
    count: u64,
}

impl Done {
    /// The first `count` numbers of an order.
    pub fn new(order: Order, count: u64) -> Done {
        Done { order, count }
    }

    fn has(&self, document: u64) -> bool {
        self.order.position(document) < self.count
    }
}

/// The expected content of a store.
#[derive(Clone, Default)]
pub struct Content {
    /// Documents from 0 on were inserted.
    pub documents: u64,
    pub deleted: Option<Done>,
    /// Replacements, one element for each round.
    pub replaced: Vec<Done>,
    /// Entries of a secondary table below a key were deleted.
    pub cut: Option<(usize, [u8; SECONDARY_KEY_BYTES])>,
}

impl Content {
    pub fn has(&self, document: u64) -> bool {
        document < self.documents && !self.deleted.is_some_and(|done| done.has(document))
    }

    pub fn count(&self) -> u64 {
        self.documents - self.deleted.map_or(0, |done| done.count)
    }

    /// Bytes of the keys and values that are there, about, if part of a table was cut.
    pub fn logical_bytes(&self) -> u64 {
        let cut = self.cut.map_or(0, |(_, bound)| {
            self.count() * SECONDARY_KEY_BYTES as u64 * u64::from(bound[0]) / 256
        });
        self.count() * DOCUMENT_BYTES - cut
    }

    /// How often a document was replaced; its newest round counts.
    pub fn generation(&self, document: u64) -> u32 {
        let newest = self.replaced.iter().rposition(|done| done.has(document));
        newest.map_or(0, |round| round as u32 + 1)
    }

    /// The key of a document in a secondary table, if it is there.
    pub fn entry(&self, document: u64, table: usize) -> Option<[u8; SECONDARY_KEY_BYTES]> {
        if !self.has(document) {
            return None;
        }
        let key = secondary_key(document, self.generation(document), table);
        match &self.cut {
            Some((cut, bound)) if *cut == table && key < *bound => None,
            _ => Some(key),
        }
    }

    /// Number of entries of a secondary table, and the sum of their documents' numbers.
    pub fn entries(&self, table: usize) -> (u64, u64) {
        let plain = self.deleted.is_none() && self.cut.is_none_or(|(cut, _)| cut != table);
        (0..self.documents)
            .filter(|document| plain || self.entry(*document, table).is_some())
            .fold((0, 0), |(count, sum), document| (count + 1, sum + document))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_each_number_once_and_knows_where() {
        for (count, seed) in [(1, 0), (2, 1), (3, 5), (1000, 7), (1024, 1), (1025, 2)] {
            let order = Order::new(count, seed);
            let mut seen = vec![false; count as usize];
            for position in 0..count {
                let number = order.at(position);
                assert_eq!(order.position(number), position, "{count} {seed}");
                assert!(!std::mem::replace(&mut seen[number as usize], true));
            }
        }
        let moved = (0..1000).filter(|at| Order::new(1000, 1).at(*at) != *at);
        assert!(moved.count() > 950);
    }

    #[test]
    fn keys_and_values_are_those_of_their_document() {
        assert!(primary_key(255) < absent_primary_key(255));
        assert!(absent_primary_key(255) < primary_key(256));
        for document in [0, 1, 77, 1 << 40] {
            assert_eq!(document_of(&primary_key(document)), Some(document));
            let key = secondary_key(document, 3, 2);
            assert_eq!(document_of(&key), Some(document));
            for (generation, table) in [(2, 2), (3, 1), (3, 3)] {
                assert_ne!(key, secondary_key(document, generation, table));
            }
            assert_ne!(value(document, 0), value(document, 1));
            assert_ne!(value(document, 0), value(document + 1, 0));
        }
        assert_eq!(document_of(b"short"), None);
    }

    #[test]
    fn content_follows_deletions_replacements_and_the_cut() {
        let order = Order::new(1000, 1);
        let mut content = Content {
            documents: 1000,
            ..Content::default()
        };
        assert_eq!(content.entries(1), (1000, 999 * 500));
        content.replaced = vec![Done::new(order, 1000), Done::new(Order::new(1000, 2), 10)];
        let newest = Order::new(1000, 2).at(3);
        assert_eq!(content.generation(newest), 2);
        let generations: u32 = (0..1000).map(|document| content.generation(document)).sum();
        assert_eq!(generations, 1010);

        content.deleted = Some(Done::new(order, 500));
        assert!(!content.has(order.at(499)));
        assert!(content.has(order.at(500)));
        assert!(!content.has(1000));
        assert_eq!(content.count(), 500);
        assert_eq!(content.entries(2).0, 500);

        content.cut = Some((3, [128; SECONDARY_KEY_BYTES]));
        let (left, _) = content.entries(3);
        assert!((150..350).contains(&left), "{left}");
        assert_eq!(content.entries(2).0, 500);
    }
}
