//! The value that differences in a column are taken from, and the differences.
//!
//! Dates, timestamps and ObjectIds have differences of differences, other values differences. A double is an integer for
//! this: its bits, or the double times a power of ten, which the control byte says. Texts, binary and decimals are
//! integers of 128 bits. Other types have no differences but zero, which repeats the value.

use super::error::ColumnFault;
use super::simple8b::{Words, signed, signed_wide};
use crate::tag;

/// A type byte, and the value as in a document.
pub type Element<'c> = (u8, &'c [u8]);

/// The scale of doubles that are taken as their bits, and of all other types.
const AS_BITS: u8 = 0x80;

/// The factors of doubles by the upper half of the control byte, from 0x90 on.
const FACTORS: [f64; 5] = [1.0, 10.0, 100.0, 10_000.0, 100_000_000.0];

/// Doubles above are not exact as integers.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Texts and binary that are longer have no differences.
const SHORT_MAX: usize = 16;

/// An ObjectId's bytes in the order of their weight, the lowest first. The five bytes of the process are not among them.
const OBJECT_ID_BYTES: [usize; 7] = [11, 3, 10, 2, 9, 1, 0];

/// The last value of a column, or of a field of its objects.
#[derive(Debug, Default)]
pub struct State<'a> {
    /// The type of the last value; 0 before the first one.
    tag: u8,
    value: Vec<u8>,
    /// Differences are added to it.
    integer: i128,
    /// The last difference, for types with differences of differences.
    difference: i64,
    /// The upper half of the control byte.
    scale: u8,
    words: Option<Words<'a>>,
}

impl<'a> State<'a> {
    /// The state behind a row of objects, of which only repetitions can follow.
    pub fn repeating(tag: u8, value: &[u8]) -> State<'a> {
        State {
            tag,
            value: value.to_vec(),
            ..State::default()
        }
    }

    pub fn load(&mut self, tag: u8, value: &[u8]) -> Result<(), ColumnFault> {
        self.tag = tag;
        self.value.clear();
        self.value.extend_from_slice(value);
        self.words = None;
        self.difference = 0;
        self.integer = self.to_integer().ok_or(ColumnFault::Truncated)?;
        Ok(())
    }

    pub fn value(&self) -> Option<Element<'_>> {
        (self.tag != 0).then_some((self.tag, self.value.as_slice()))
    }

    /// Whether words have integers that are not read yet.
    pub fn has_deltas(&self) -> bool {
        self.words.as_ref().is_some_and(|words| !words.is_at_end())
    }

    /// Begins the words behind a control byte.
    pub fn begin_deltas(&mut self, control: u8, bytes: &'a [u8]) -> Result<(), ColumnFault> {
        let scale = control & 0xF0;
        let invalid = Err(ColumnFault::Control(control));
        if self.tag == tag::DOUBLE {
            self.scale = scale;
            self.integer = match (scale, self.factor()) {
                (AS_BITS, _) => i128::from(self.word()),
                (_, Some(factor)) => i128::from(
                    scaled(f64::from_bits(self.word() as u64), factor).ok_or(ColumnFault::Scale)?,
                ),
                _ => return invalid,
            };
        } else if scale != AS_BITS {
            return invalid;
        }
        let last = self.words.as_ref().map_or(Some(0), Words::last);
        self.words = Some(Words::new(bytes, is_wide(self.tag), last));
        Ok(())
    }

    /// The value of the next difference; none if it is missing.
    pub fn delta(&mut self) -> Result<Option<Element<'_>>, ColumnFault> {
        let slot = match &mut self.words {
            Some(words) => words.next()?.ok_or(ColumnFault::Truncated)?,
            None => return Err(ColumnFault::Truncated),
        };
        let Some(slot) = slot.filter(|_| self.tag != 0) else {
            return Ok(None);
        };
        let has_second_order = matches!(self.tag, tag::OBJECT_ID | tag::DATE_TIME | tag::TIMESTAMP);
        if has_second_order {
            self.difference = self.difference.wrapping_add(signed(slot as u64));
            let integer = (self.integer as i64).wrapping_add(self.difference);
            self.integer = i128::from(integer);
        } else if slot == 0 {
            return Ok(self.value());
        } else if is_wide(self.tag) {
            self.integer = self.integer.wrapping_add(signed_wide(slot));
        } else {
            let integer = (self.integer as i64).wrapping_add(signed(slot as u64));
            self.integer = i128::from(integer);
        }
        self.write_integer()?;
        Ok(self.value())
    }

    fn factor(&self) -> Option<f64> {
        let at = usize::from(self.scale >> 4).checked_sub(9)?;
        FACTORS.get(at).copied()
    }

    /// The value's first eight bytes.
    fn word(&self) -> i64 {
        let mut word = [0; 8];
        let known = self.value.get(..8).unwrap_or(&self.value);
        for (to, from) in word.iter_mut().zip(known) {
            *to = *from;
        }
        i64::from_le_bytes(word)
    }

    /// The integer that differences are added to; 0 for values that have none. `None` if the value is cut off.
    fn to_integer(&self) -> Option<i128> {
        let value = &self.value;
        Some(match self.tag {
            tag::INT32 => i128::from(i32::from_le_bytes(*value.first_chunk()?)),
            tag::BOOL => i128::from(*value.first()?),
            tag::INT64 | tag::DATE_TIME | tag::TIMESTAMP => {
                i128::from(i64::from_le_bytes(*value.first_chunk()?))
            }
            tag::OBJECT_ID => {
                let mut integer = 0_i128;
                for (weight, at) in OBJECT_ID_BYTES.iter().enumerate() {
                    integer |= i128::from(*value.get(*at)?) << (8 * weight);
                }
                integer
            }
            tag::DECIMAL128 => i128::from_le_bytes(*value.first_chunk()?),
            tag::STRING | tag::JAVASCRIPT => {
                let text = value.get(4..value.len().checked_sub(1)?)?;
                let is_short = text.len() <= SHORT_MAX && text.first() != Some(&0);
                let digits = text.iter().filter(|_| is_short);
                digits.fold(0, |integer, byte| integer << 8 | i128::from(*byte))
            }
            tag::BINARY => {
                let bytes = value.get(5..)?;
                let is_short = bytes.len() <= SHORT_MAX;
                let digits = bytes.iter().rev().filter(|_| is_short);
                digits.fold(0, |integer, byte| integer << 8 | i128::from(*byte))
            }
            _ => 0,
        })
    }

    /// Makes the value that of the integer.
    fn write_integer(&mut self) -> Result<(), ColumnFault> {
        let integer = self.integer as i64;
        let fault = Err(ColumnFault::Delta(self.tag));
        match self.tag {
            tag::DOUBLE => {
                let double = match self.factor() {
                    Some(factor) => integer as f64 / factor,
                    None => f64::from_bits(integer as u64),
                };
                self.set(0, &double.to_le_bytes());
            }
            tag::INT64 | tag::DATE_TIME | tag::TIMESTAMP => self.set(0, &integer.to_le_bytes()),
            tag::INT32 => self.set(0, &(integer as i32).to_le_bytes()),
            tag::BOOL => self.set(0, &[u8::from(integer != 0)]),
            tag::OBJECT_ID => {
                for (at, byte) in OBJECT_ID_BYTES.iter().zip(integer.to_le_bytes()) {
                    self.set(*at, &[byte]);
                }
            }
            tag::DECIMAL128 => self.set(0, &self.integer.to_le_bytes()),
            tag::BINARY if self.value.len() <= 5 + SHORT_MAX => {
                let bytes = self.integer.to_le_bytes();
                let len = self.value.len().saturating_sub(5);
                self.set(5, bytes.get(..len).unwrap_or_default());
            }
            tag::STRING | tag::JAVASCRIPT => {
                let bytes = self.integer.to_be_bytes();
                let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                let text = bytes.get(zeros..).unwrap_or_default();
                self.value.clear();
                crate::raw::write_text(&mut self.value, text);
            }
            _ => return fault,
        }
        Ok(())
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.value.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

/// Whether differences of this type are of 128 bits.
pub fn is_wide(tag: u8) -> bool {
    matches!(
        tag,
        tag::STRING | tag::JAVASCRIPT | tag::BINARY | tag::DECIMAL128
    )
}

/// The double times the factor, if it is an integer from which the double comes back.
fn scaled(double: f64, factor: f64) -> Option<i64> {
    let product = double * factor;
    if !(-EXACT_MAX..=EXACT_MAX).contains(&product) {
        return None;
    }
    let integer = product.round() as i64;
    (integer as f64 / factor == double).then_some(integer)
}
