//! IEEE 754 128-bit decimal floating point, in the binary integer encoding that BSON uses.

mod arithmetic;
mod compare;
mod text;
mod wide;

pub use arithmetic::Rounding;
pub(crate) use compare::{compare_double, truncate_to_f64};
pub use text::ParseDecimalError;

/// The largest coefficient: 34 nines.
pub(crate) const COEFFICIENT_MAX: u128 = 10u128.pow(34) - 1;
/// Decimal digits of the largest coefficient.
pub(crate) const DIGITS_MAX: i32 = 34;
/// Least and greatest exponent of the coefficient as an integer.
pub(crate) const EXPONENT_MIN: i32 = -6176;
pub(crate) const EXPONENT_MAX: i32 = 6111;

const SIGN: u128 = 1 << 127;
const INFINITY: u128 = 0b11110 << 122;
const NAN: u128 = 0b11111 << 122;
const COEFFICIENT_BITS: u32 = 113;

/// A 128-bit decimal, kept as the sixteen bytes that BSON stores. `==` compares the bytes; for the numeric
/// order use [`Decimal128::compare`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal128([u8; 16]);

/// A finite number: `(-1)^negative * coefficient * 10^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub negative: bool,
    pub coefficient: u128,
    pub exponent: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Finite(Parts),
    Infinity { negative: bool },
    Nan,
}

impl Decimal128 {
    /// Zero with exponent 0.
    pub const ZERO: Decimal128 = Decimal128::from_bits((-EXPONENT_MIN as u128) << COEFFICIENT_BITS);
    pub const INFINITY: Decimal128 = Decimal128::from_bits(INFINITY);
    pub const NEG_INFINITY: Decimal128 = Decimal128::from_bits(INFINITY | SIGN);
    /// The usual quiet NaN.
    pub const NAN: Decimal128 = Decimal128::from_bits(NAN);

    /// From the bytes of a BSON document (little-endian).
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes of a BSON document (little-endian).
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    pub(crate) const fn from_bits(bits: u128) -> Self {
        Self(bits.to_le_bytes())
    }

    pub(crate) const fn bits(self) -> u128 {
        u128::from_le_bytes(self.0)
    }

    /// Packs a finite number. The coefficient and exponent must be in range.
    pub(crate) fn pack(parts: Parts) -> Self {
        debug_assert!(parts.coefficient <= COEFFICIENT_MAX);
        debug_assert!((EXPONENT_MIN..=EXPONENT_MAX).contains(&parts.exponent));
        let biased = (parts.exponent - EXPONENT_MIN) as u128;
        let sign = if parts.negative { SIGN } else { 0 };
        Self::from_bits(sign | (biased << COEFFICIENT_BITS) | parts.coefficient)
    }

    /// Unpacks. Coefficients that are too large stand for zero, as IEEE 754 says.
    pub(crate) fn class(self) -> Class {
        let bits = self.bits();
        let negative = bits & SIGN != 0;
        if bits & NAN == NAN {
            return Class::Nan;
        }
        if bits & INFINITY == INFINITY {
            return Class::Infinity { negative };
        }
        // When the two bits below the sign are set the exponent starts two bits lower and the
        // coefficient has implied high bits that put it above the maximum.
        let large = (bits >> 125) & 0b11 == 0b11;
        let (exponent_bits, mut coefficient) = if large {
            (bits >> (COEFFICIENT_BITS - 2), 0)
        } else {
            (
                bits >> COEFFICIENT_BITS,
                bits & ((1 << COEFFICIENT_BITS) - 1),
            )
        };
        if coefficient > COEFFICIENT_MAX {
            coefficient = 0;
        }
        let exponent = (exponent_bits & 0x3FFF) as i32 + EXPONENT_MIN;
        Class::Finite(Parts {
            negative,
            coefficient,
            exponent,
        })
    }

    /// Rounds `coefficient * 10^exponent` half to even to what the format can hold. `sticky` says that
    /// the true number is a little further from zero; the coefficient then needs 35 digits or more.
    /// Numbers too large become infinite.
    pub(crate) fn round(negative: bool, coefficient: u128, exponent: i64, sticky: bool) -> Self {
        let digits = i64::from(digit_count(coefficient));
        let excess = (digits - i64::from(DIGITS_MAX)).max(0);
        let drop = excess.max(i64::from(EXPONENT_MIN) - exponent);
        let (mut kept, mut exponent) = (coefficient, exponent);
        if drop > 0 {
            kept = drop_digits(coefficient, drop, sticky);
            exponent += drop;
            if kept > COEFFICIENT_MAX {
                kept /= 10;
                exponent += 1;
            }
        }
        let max = i64::from(EXPONENT_MAX);
        if kept == 0 {
            exponent = exponent.min(max);
        }
        while exponent > max {
            if kept > COEFFICIENT_MAX / 10 {
                return if negative {
                    Self::NEG_INFINITY
                } else {
                    Self::INFINITY
                };
            }
            kept *= 10;
            exponent -= 1;
        }
        Self::pack(Parts {
            negative,
            coefficient: kept,
            exponent: exponent as i32,
        })
    }

    /// Whether this is a NaN of any kind.
    pub fn is_nan(self) -> bool {
        self.class() == Class::Nan
    }

    /// Whether this is an infinity.
    pub fn is_infinite(self) -> bool {
        matches!(self.class(), Class::Infinity { .. })
    }

    /// Whether this is neither infinite nor NaN.
    pub fn is_finite(self) -> bool {
        matches!(self.class(), Class::Finite(_))
    }

    /// Whether this is zero, of any sign and exponent.
    pub fn is_zero(self) -> bool {
        matches!(self.class(), Class::Finite(p) if p.coefficient == 0)
    }

    /// Whether the sign bit is set.
    pub fn is_negative(self) -> bool {
        self.bits() & SIGN != 0
    }

    /// The number `±coefficient * 10^exponent`, rounded half to even to what the format can hold. Numbers too large become
    /// infinite.
    pub fn from_parts(negative: bool, coefficient: u128, exponent: i64) -> Decimal128 {
        Self::round(negative, coefficient, exponent, false)
    }

    /// The sign (true below zero), the coefficient and the exponent of a finite number.
    pub fn to_parts(self) -> Option<(bool, u128, i32)> {
        match self.class() {
            Class::Finite(p) => Some((p.negative, p.coefficient, p.exponent)),
            Class::Infinity { .. } | Class::Nan => None,
        }
    }

    /// Pads the coefficient to all 34 digits: 1.5 becomes 1.500000000000000000000000000000000.
    pub fn with_all_digits(self) -> Decimal128 {
        // A sum has the least exponent of its terms, as far as the digits reach.
        self + Self::pack(Parts {
            negative: self.is_negative(),
            coefficient: 0,
            exponent: EXPONENT_MIN,
        })
    }

    /// The integer when the number is integral and fits.
    pub fn to_i64_lossless(self) -> Option<i64> {
        let Class::Finite(p) = self.class() else {
            return None;
        };
        if p.coefficient == 0 {
            return Some(0);
        }
        let power = 10u128.checked_pow(p.exponent.unsigned_abs())?;
        let magnitude = if p.exponent >= 0 {
            p.coefficient.checked_mul(power)?
        } else if p.coefficient.is_multiple_of(power) {
            p.coefficient / power
        } else {
            return None;
        };
        let magnitude = i128::try_from(magnitude).ok()?;
        i64::try_from(if p.negative { -magnitude } else { magnitude }).ok()
    }

    /// The nearest double, ties to even.
    pub fn to_f64(self) -> f64 {
        match self.class() {
            Class::Nan => f64::NAN,
            Class::Infinity { negative: false } => f64::INFINITY,
            Class::Infinity { negative: true } => f64::NEG_INFINITY,
            Class::Finite(p) => {
                let magnitude = text::parse_f64(p.coefficient, p.exponent);
                if p.negative { -magnitude } else { magnitude }
            }
        }
    }
}

impl From<i64> for Decimal128 {
    fn from(value: i64) -> Self {
        Self::pack(Parts {
            negative: value < 0,
            coefficient: u128::from(value.unsigned_abs()),
            exponent: 0,
        })
    }
}

impl From<i32> for Decimal128 {
    fn from(value: i32) -> Self {
        Self::from(i64::from(value))
    }
}

/// The decimal digits of `n`; 1 for zero.
pub(crate) fn digit_count(n: u128) -> i32 {
    n.checked_ilog10().map_or(1, |log| log as i32 + 1)
}

/// Divides by `10^drop`, half to even.
fn drop_digits(n: u128, drop: i64, sticky: bool) -> u128 {
    let Some(power) = u32::try_from(drop).ok().and_then(|d| 10u128.checked_pow(d)) else {
        return 0; // Below 10^38 / 10^39: less than a half.
    };
    let (quotient, rest) = (n / power, n % power);
    let half = power / 2;
    let up = rest > half || (rest == half && (sticky || quotient % 2 == 1));
    quotient + u128::from(up)
}
