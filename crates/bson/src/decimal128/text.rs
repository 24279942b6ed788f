//! Decimals as text, after the decimal128 page of the BSON specification.

use std::fmt::{self, Write};
use std::str::FromStr;

use super::{Class, Decimal128, Parts};

/// A text that is not a decimal number, or one whose magnitude is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseDecimalError {
    overflow: bool,
}

impl ParseDecimalError {
    /// Whether the text is a number, but too large.
    pub fn is_overflow(&self) -> bool {
        self.overflow
    }
}

impl fmt::Display for ParseDecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.overflow {
            "number too large for a decimal128"
        } else {
            "not a decimal number"
        })
    }
}

impl std::error::Error for ParseDecimalError {}

/// Text of bounded length on the stack.
pub(crate) struct StackText {
    bytes: [u8; 64],
    len: usize,
}

impl StackText {
    pub(crate) fn new() -> Self {
        Self {
            bytes: [0; 64],
            len: 0,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.len).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl Write for StackText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let slot = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        slot.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// The double nearest to `coefficient * 10^exponent`, by the standard library's exact parser.
pub(crate) fn parse_f64(coefficient: u128, exponent: i32) -> f64 {
    let mut text = StackText::new();
    // 39 digits, "e" and at most 5 characters of exponent always fit.
    let _ = write!(text, "{coefficient}e{exponent}");
    text.as_str().parse().unwrap_or(f64::NAN)
}

impl fmt::Display for Decimal128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = match self.class() {
            Class::Nan => return f.write_str("NaN"),
            Class::Infinity { negative: true } => return f.write_str("-Infinity"),
            Class::Infinity { negative: false } => return f.write_str("Infinity"),
            Class::Finite(parts) => parts,
        };
        write_finite(f, parts)
    }
}

fn write_finite(f: &mut fmt::Formatter<'_>, parts: Parts) -> fmt::Result {
    let mut digits = StackText::new();
    write!(digits, "{}", parts.coefficient)?;
    let digits = digits.as_str();
    let count = digits.len() as i32;
    let adjusted = parts.exponent + count - 1;
    if parts.negative {
        f.write_char('-')?;
    }
    if parts.exponent > 0 || adjusted < -6 {
        let (first, rest) = digits.split_at(1);
        f.write_str(first)?;
        if !rest.is_empty() {
            write!(f, ".{rest}")?;
        }
        return write!(f, "E{adjusted:+}");
    }
    let point = count + parts.exponent;
    if parts.exponent == 0 {
        f.write_str(digits)
    } else if point > 0 {
        let (whole, fraction) = digits.split_at(point as usize);
        write!(f, "{whole}.{fraction}")
    } else {
        f.write_str("0.")?;
        for _ in point..0 {
            f.write_char('0')?;
        }
        f.write_str(digits)
    }
}

impl fmt::Debug for Decimal128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decimal128({self})")
    }
}

/// Digits kept for rounding; what follows only matters as "more than nothing".
const DIGITS_READ: u32 = 36;

/// Reads digits with an optional point and exponent, "NaN" or "Infinity". More than 34 digits are rounded
/// half to even, as MongoDB's server does.
impl FromStr for Decimal128 {
    type Err = ParseDecimalError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = ParseDecimalError { overflow: false };
        let (negative, body) = match text.as_bytes() {
            [b'-', ..] => (true, text.get(1..).unwrap_or_default()),
            [b'+', ..] => (false, text.get(1..).unwrap_or_default()),
            _ => (false, text),
        };
        if body.eq_ignore_ascii_case("nan") {
            return Ok(Self::NAN);
        }
        if body.eq_ignore_ascii_case("infinity") || body.eq_ignore_ascii_case("inf") {
            return Ok(if negative {
                Self::NEG_INFINITY
            } else {
                Self::INFINITY
            });
        }
        let (number, exponent) = match body.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, parse_exponent(exponent).ok_or(invalid)?),
            None => (body, 0),
        };
        let mut coefficient = 0u128;
        let (mut kept, mut scale) = (0u32, 0i64);
        let (mut sticky, mut any, mut point) = (false, false, false);
        for c in number.bytes() {
            if c == b'.' && !point {
                point = true;
                continue;
            }
            if !c.is_ascii_digit() {
                return Err(invalid);
            }
            any = true;
            let digit = u128::from(c - b'0');
            if kept < DIGITS_READ {
                coefficient = coefficient * 10 + digit;
                kept += u32::from(coefficient != 0);
                scale -= i64::from(point);
            } else {
                sticky |= digit != 0;
                scale += i64::from(!point);
            }
        }
        if !any {
            return Err(invalid);
        }
        let value = Self::round(
            negative,
            coefficient,
            exponent.saturating_add(scale),
            sticky,
        );
        if value.is_infinite() {
            return Err(ParseDecimalError { overflow: true });
        }
        Ok(value)
    }
}

/// An exponent with optional sign; clamped to what no text of digits can bring back into range.
fn parse_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let limit = i64::MAX / 4;
    let magnitude = digits.parse::<i64>().unwrap_or(limit).min(limit);
    Some(if text.starts_with('-') {
        -magnitude
    } else {
        magnitude
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn text_round_trips_and_rounds() {
        // (input, printed)
        let cases = [
            ("0", "0"),
            ("-0", "-0"),
            ("0.00", "0.00"),
            ("0E+3", "0E+3"),
            ("1", "1"),
            ("-1.50", "-1.50"),
            ("12E3", "1.2E+4"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1E-7"),
            (".5", "0.5"),
            ("5.", "5"),
            ("+7", "7"),
            ("inf", "Infinity"),
            ("-Infinity", "-Infinity"),
            ("nAn", "NaN"),
            (
                "9999999999999999999999999999999999",
                "9999999999999999999999999999999999",
            ),
            (
                "99999999999999999999999999999999999",
                "1.000000000000000000000000000000000E+35",
            ),
            (
                "12345678901234567890123456789012345",
                "1.234567890123456789012345678901234E+34",
            ),
            (
                "12345678901234567890123456789012355",
                "1.234567890123456789012345678901236E+34",
            ),
            (
                "123456789012345678901234567890123450000001",
                "1.234567890123456789012345678901235E+41",
            ),
            ("1E6112", "1.0E+6112"),
            (
                "9.999999999999999999999999999999999E+6144",
                "9.999999999999999999999999999999999E+6144",
            ),
            ("1E-6176", "1E-6176"),
            ("1E-6177", "0E-6176"),
            ("6E-6177", "1E-6176"),
            ("0E-99999", "0E-6176"),
            ("0E+99999999999999999999", "0E+6111"),
            ("1E-99999999999999999999", "0E-6176"),
            (
                "0000000000000000000000000000000000000000000000000001.0",
                "1.0",
            ),
        ];
        for (input, printed) in cases {
            let d: Decimal128 = input.parse().unwrap();
            assert_eq!(d.to_string(), printed, "{input}");
            assert_eq!(printed.parse::<Decimal128>().unwrap(), d, "{input}");
        }
    }

    #[test]
    fn refuses_what_is_no_number() {
        for text in [
            "", "-", ".", "e5", "1e", "1e+", "1.2.3", "abc", "0x1", " 1", "1 ", "--1", "1e1.5",
        ] {
            assert!(
                !text.parse::<Decimal128>().unwrap_err().is_overflow(),
                "{text}"
            );
        }
        for text in [
            "1E6145",
            "-1E999999",
            "10000000000000000000000000000000000E6111",
        ] {
            assert!(
                text.parse::<Decimal128>().unwrap_err().is_overflow(),
                "{text}"
            );
        }
    }

    #[test]
    fn unpacks_and_converts() {
        let cases = [
            ("0", Some(0), 0.0),
            ("1.50", None, 1.5),
            ("1.00", Some(1), 1.0),
            ("-12E3", Some(-12000), -12000.0),
            ("9223372036854775807", Some(i64::MAX), 9223372036854775807.0),
            (
                "-9223372036854775808",
                Some(i64::MIN),
                -9223372036854775808.0,
            ),
            ("9223372036854775808", None, 9223372036854775808.0),
            ("0.1", None, 0.1),
            ("1E400", None, f64::INFINITY),
            ("1E-400", None, 0.0),
            ("0E400", Some(0), 0.0),
        ];
        for (text, integer, double) in cases {
            let d: Decimal128 = text.parse().unwrap();
            assert_eq!(d.to_i64_lossless(), integer, "{text}");
            assert_eq!(d.to_f64(), double, "{text}");
        }
        assert!(Decimal128::NAN.to_f64().is_nan());
        // Bits of the BSON specification's corpus: 1 and a coefficient that is too large.
        assert_eq!(
            Decimal128::from(1).bits(),
            0x3040_0000_0000_0000_0000_0000_0000_0001
        );
        assert!(Decimal128::from_bits(0x6C10_u128 << 112).is_zero());
        assert_eq!(Decimal128::from_bits(NON_CANONICAL).to_string(), "0E+3");
    }

    /// Exponent 3 in the form for large coefficients.
    const NON_CANONICAL: u128 = (0b11 << 125) | ((6176 + 3) << 111) | 7;
}
