//! Simple-8b as in compressed columns: words of 64 bits, each with integers of one width.
//!
//! The lowest four bits of a word select the width. Two of the selectors leave four bits unused, which select further
//! widths, in which each integer has a count of zero bits to append. One selector repeats the integer before it.
//! An integer whose bits are all set stands for a missing value.

use super::error::ColumnFault;

/// Bits of an integer by selector, from 1 on.
const WIDTHS: [u32; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 60];

/// Bits of an integer without its count of zero bits, by the second selector behind selector 7, from 1 on.
const AFTER_7: [u32; 9] = [2, 3, 4, 5, 7, 10, 14, 24, 52];

/// The bits of a value behind selector 8, in the order of `AFTER_7`. A count stands for groups of four zero bits.
const AFTER_8: [u32; 13] = [4, 5, 7, 10, 14, 24, 52, 4, 6, 9, 13, 23, 51];

/// The second selectors behind selector 8 whose counts have five bits instead of four.
const LONG_COUNTS_FROM: usize = 8;

const REPEAT: u8 = 15;

/// Repetitions are counted in units of this many.
const REPEAT_UNIT: u32 = 120;

/// An integer; missing values have none.
pub type Slot = Option<u128>;

/// The integers of the words behind one control byte.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    bytes: &'a [u8],
    /// Integers are of 128 bits, and not of 64.
    is_wide: bool,
    last: Slot,
    /// Integers of the current word that are left.
    left: u32,
    word: Word,
}

#[derive(Clone, Copy, Debug)]
enum Word {
    Repeat,
    Slots {
        rest: u64,
        width: u32,
        /// Bits of each integer that count zero bits.
        count_width: u32,
        /// Zero bits for each count.
        unit: u32,
    },
}

impl<'a> Words<'a> {
    /// `last` is the integer before them, which may be repeated. The bytes are whole words.
    pub fn new(bytes: &'a [u8], is_wide: bool, last: Slot) -> Words<'a> {
        Words {
            bytes,
            is_wide,
            last,
            left: 0,
            word: Word::Repeat,
        }
    }

    /// The integer before those that are left.
    pub fn last(&self) -> Slot {
        self.last
    }

    pub fn is_at_end(&self) -> bool {
        self.left == 0 && self.bytes.is_empty()
    }

    pub fn next(&mut self) -> Result<Option<Slot>, ColumnFault> {
        if self.left == 0 {
            let Some((word, rest)) = self.bytes.split_first_chunk() else {
                return Ok(None);
            };
            self.bytes = rest;
            self.begin(u64::from_le_bytes(*word))?;
        }
        self.left -= 1;
        if let Word::Slots {
            rest,
            width,
            count_width,
            unit,
        } = &mut self.word
        {
            let slot = *rest & mask(*width);
            *rest = rest.checked_shr(*width).unwrap_or(0);
            self.last = (slot != mask(*width)).then(|| {
                let zeros = (slot & mask(*count_width)) as u32 * *unit;
                let value = slot >> *count_width;
                if self.is_wide {
                    u128::from(value) << (zeros % 128)
                } else {
                    u128::from(value << (zeros % 64))
                }
            });
        }
        Ok(Some(self.last))
    }

    fn begin(&mut self, word: u64) -> Result<(), ColumnFault> {
        let selector = (word & 15) as u8;
        let second = (word >> 4 & 15) as usize;
        let invalid = Err(ColumnFault::Selector((word & 0xff) as u8));
        if selector == REPEAT {
            self.word = Word::Repeat;
            self.left = (second as u32 + 1) * REPEAT_UNIT;
            return Ok(());
        }
        let extended: Option<(&[u32], u32)> = match selector {
            7 => Some((&AFTER_7, 1)),
            8 => Some((&AFTER_8, 4)),
            _ => None,
        };
        let (bits, rest) = if extended.is_some() {
            (56, word >> 8)
        } else {
            (60, word >> 4)
        };
        let (value_width, count_width, unit) = match extended {
            Some((widths, unit)) if second > 0 => {
                let Some(width) = widths.get(second - 1) else {
                    return invalid;
                };
                let is_long = selector == 8 && second >= LONG_COUNTS_FROM;
                (*width, if is_long { 5 } else { 4 }, unit)
            }
            _ => {
                let width = usize::from(selector).checked_sub(1);
                let Some(width) = width.and_then(|at| WIDTHS.get(at)) else {
                    return invalid;
                };
                (*width, 0, 0)
            }
        };
        let width = value_width + count_width;
        self.left = bits / width;
        self.word = Word::Slots {
            rest,
            width,
            count_width,
            unit,
        };
        Ok(())
    }
}

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// The signed integer of an unsigned one, whose lowest bit is the sign.
pub fn signed(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Decodes a zigzag number of 128 bits.
pub fn signed_wide(value: u128) -> i128 {
    (value >> 1) as i128 ^ -((value & 1) as i128)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn all(words: &[u64], is_wide: bool, last: Slot) -> Vec<Slot> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut words = Words::new(&bytes, is_wide, last);
        let mut found = Vec::new();
        while let Some(slot) = words.next().unwrap() {
            found.push(slot);
        }
        assert!(words.is_at_end());
        found
    }

    #[test]
    fn each_selector_has_its_width() {
        for (at, width) in WIDTHS.iter().enumerate() {
            let selector = at as u64 + 1;
            let (bits, head) = if matches!(selector, 7 | 8) {
                (56, 8)
            } else {
                (60, 4)
            };
            let count = bits / width;
            // The values 0, 1, 2 … and a missing one at the end.
            let values: Vec<u64> = (0..u64::from(count))
                .map(|n| n & (mask(*width) >> 1))
                .collect();
            let mut word = selector;
            for (at, value) in values.iter().enumerate() {
                let is_last = at + 1 == values.len();
                let slot = if is_last { mask(*width) } else { *value };
                word |= slot << (head + at as u32 * width);
            }
            let mut expected: Vec<Slot> = values.iter().map(|v| Some(u128::from(*v))).collect();
            *expected.last_mut().unwrap() = None;
            assert_eq!(all(&[word], false, None), expected, "{selector}");
        }
    }

    #[test]
    fn extended_selectors_append_zero_bits() {
        let tables: [(u64, &[u32], u32); 2] = [(7, &AFTER_7, 1), (8, &AFTER_8, 4)];
        for (selector, widths, unit) in tables {
            for (at, width) in widths.iter().enumerate() {
                let second = at as u64 + 1;
                let count_width = if selector == 8 && second >= 8 { 5 } else { 4 };
                let slots = 56 / (width + count_width);
                let mut word = selector | second << 4;
                let mut expected = Vec::new();
                for n in 0..slots {
                    // Values of at most two bits, so that each width has them.
                    let (value, zeros) = (u64::from(n % 3), u64::from(n + 3));
                    word |= (value << count_width | zeros) << (8 + n * (width + count_width));
                    expected.push(Some(u128::from(value) << (zeros as u32 * unit)));
                }
                assert_eq!(all(&[word], true, None), expected, "{selector} {second}");
            }
        }
    }

    #[test]
    fn integers_are_repeated() {
        let word = 14 | 77 << 4;
        let twice = 15 | 1 << 4;
        assert_eq!(all(&[word, twice], false, None), vec![Some(77); 241]);
        assert_eq!(all(&[15], false, Some(5)), vec![Some(5); 120]);
        let missing = 14 | mask(60) << 4;
        assert_eq!(all(&[missing, 15], true, None), vec![None; 121]);
    }

    #[test]
    fn other_selectors_are_refused() {
        for word in [0_u64, 7 | 10 << 4, 7 | 15 << 4, 8 | 14 << 4, 8 | 15 << 4] {
            let bytes = word.to_le_bytes();
            let found = Words::new(&bytes, false, None).next();
            assert_eq!(found, Err(ColumnFault::Selector(word as u8)));
        }
    }

    #[test]
    fn signs_are_in_the_lowest_bit() {
        for (value, expected) in [(0, 0), (1, -1), (2, 1), (u64::MAX, i64::MIN)] {
            assert_eq!(signed(value), expected);
        }
        assert_eq!(signed_wide(u128::MAX), i128::MIN);
        assert_eq!(signed_wide(6), 3);
    }
}
