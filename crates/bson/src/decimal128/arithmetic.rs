//! Arithmetic as IEEE 754 defines it, rounding half to even to 34 digits.
//!
//! An exact result keeps the exponent that the standard prefers (so 1.20 + 0.3 is 1.50); another has all 34
//! digits. The intermediate numbers fit 256 bits.

use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

use super::wide::Wide;
use super::{
    COEFFICIENT_MAX, Class, DIGITS_MAX, Decimal128, EXPONENT_MAX, Parts, SIGN, digit_count,
};

/// Rounding modes of IEEE 754.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest; ties to even.
    HalfEven,
    TowardZero,
    Floor,
    Ceiling,
}

type Wide256 = Wide<4>;

/// The larger coefficient of a sum is scaled up by at most this power of ten: 74 digits fit 256 bits.
const ALIGN_MAX: u32 = 40;

/// Rounds a wide coefficient; for `sticky` see [`Decimal128::round`].
fn round(
    negative: bool,
    mut coefficient: Wide256,
    mut exponent: i64,
    mut sticky: bool,
) -> Decimal128 {
    loop {
        if let Some(narrow) = coefficient.to_u128() {
            return Decimal128::round(negative, narrow, exponent, sticky);
        }
        // Above 2^128: 36 digits or more stay, which is enough to round by.
        sticky |= coefficient.divide(1000) != 0;
        exponent += 3;
    }
}

fn infinity(negative: bool) -> Decimal128 {
    if negative {
        Decimal128::NEG_INFINITY
    } else {
        Decimal128::INFINITY
    }
}

impl Add for Decimal128 {
    type Output = Decimal128;

    fn add(self, other: Decimal128) -> Decimal128 {
        match (self.class(), other.class()) {
            (Class::Nan, _) | (_, Class::Nan) => Decimal128::NAN,
            (Class::Infinity { negative: a }, Class::Infinity { negative: b }) if a != b => {
                Decimal128::NAN
            }
            (Class::Infinity { negative }, _) | (_, Class::Infinity { negative }) => {
                infinity(negative)
            }
            (Class::Finite(a), Class::Finite(b)) if a.exponent >= b.exponent => add_finite(a, b),
            (Class::Finite(a), Class::Finite(b)) => add_finite(b, a),
        }
    }
}

/// Adds two numbers of which the first has the greater or equal exponent.
fn add_finite(high: Parts, low: Parts) -> Decimal128 {
    let distance = (high.exponent - low.exponent).unsigned_abs();
    let mut sum = Wide256::new(high.coefficient);
    let mut addend = low.coefficient;
    let mut sticky = false;
    let mut exponent = i64::from(low.exponent);
    if high.coefficient == 0 || distance <= ALIGN_MAX {
        // Zero needs no scaling, whatever the distance.
        sum.multiply_by_power_of_ten(distance.min(ALIGN_MAX));
    } else {
        // Of the lesser number only a part, or not even a digit, is in reach.
        sum.multiply_by_power_of_ten(ALIGN_MAX);
        exponent = i64::from(high.exponent) - i64::from(ALIGN_MAX);
        let (kept, rest) = match 10u128.checked_pow(distance - ALIGN_MAX) {
            Some(power) => (addend / power, addend % power),
            None => (0, addend),
        };
        (addend, sticky) = (kept, rest != 0);
    }
    let addend = Wide256::new(addend);
    let mut negative = high.negative;
    if high.negative == low.negative {
        sum.add(&addend);
    } else if sum.compare(&addend).is_ge() {
        sum.subtract(&addend);
        if sticky {
            // The true result is below this one, by less than one unit: sticky from one unit lower.
            sum.subtract(&Wide256::new(1));
        }
    } else {
        let mut difference = addend;
        difference.subtract(&sum);
        sum = difference;
        negative = low.negative;
    }
    if sum.to_u128() == Some(0) && high.negative != low.negative {
        negative = false;
    }
    round(negative, sum, exponent, sticky)
}

impl Neg for Decimal128 {
    type Output = Decimal128;

    fn neg(self) -> Decimal128 {
        Decimal128::from_bits(self.bits() ^ SIGN)
    }
}

impl Sub for Decimal128 {
    type Output = Decimal128;

    fn sub(self, other: Decimal128) -> Decimal128 {
        if other.is_nan() {
            Decimal128::NAN
        } else {
            self + -other
        }
    }
}

impl Mul for Decimal128 {
    type Output = Decimal128;

    fn mul(self, other: Decimal128) -> Decimal128 {
        let negative = self.is_negative() != other.is_negative();
        match (self.class(), other.class()) {
            (Class::Nan, _) | (_, Class::Nan) => Decimal128::NAN,
            (Class::Finite(a), Class::Finite(b)) => {
                // (high * 2^64 + low) * b
                let mut product = Wide256::new(b.coefficient);
                let mut low = product;
                product.multiply((a.coefficient >> 64) as u64);
                product.shift_left(64);
                low.multiply(a.coefficient as u64);
                product.add(&low);
                let exponent = i64::from(a.exponent) + i64::from(b.exponent);
                round(negative, product, exponent, false)
            }
            // Infinity times zero.
            (Class::Finite(p), _) | (_, Class::Finite(p)) if p.coefficient == 0 => Decimal128::NAN,
            _ => infinity(negative),
        }
    }
}

/// Division; by zero it gives an infinity, and 0 / 0 is NaN.
impl Div for Decimal128 {
    type Output = Decimal128;

    fn div(self, other: Decimal128) -> Decimal128 {
        let negative = self.is_negative() != other.is_negative();
        match (self.class(), other.class()) {
            (Class::Nan, _) | (_, Class::Nan) => Decimal128::NAN,
            (Class::Infinity { .. }, Class::Infinity { .. }) => Decimal128::NAN,
            (Class::Infinity { .. }, _) => infinity(negative),
            // As small as can be: the preferred exponent is minus infinity.
            (_, Class::Infinity { .. }) => Decimal128::round(negative, 0, i64::MIN / 4, false),
            (Class::Finite(a), Class::Finite(b)) => match (a.coefficient, b.coefficient) {
                (0, 0) => Decimal128::NAN,
                (_, 0) => infinity(negative),
                _ => divide_finite(negative, a, b),
            },
        }
    }
}

fn divide_finite(negative: bool, a: Parts, b: Parts) -> Decimal128 {
    let preferred = i64::from(a.exponent) - i64::from(b.exponent);
    // With these zeros the quotient has 36 or 37 digits; with up to 70 digits it fits.
    let zeros = (DIGITS_MAX + 2 + digit_count(b.coefficient) - digit_count(a.coefficient)).max(0);
    let mut quotient = Wide256::new(a.coefficient);
    quotient.multiply_by_power_of_ten(zeros.unsigned_abs());
    let sticky = quotient.divide_wide(b.coefficient) != 0;
    let mut exponent = preferred - i64::from(zeros);
    if !sticky {
        let mut coefficient = quotient.to_u128().unwrap_or(0);
        if coefficient == 0 {
            exponent = preferred;
        }
        while exponent < preferred && coefficient.is_multiple_of(10) {
            coefficient /= 10;
            exponent += 1;
        }
        return Decimal128::round(negative, coefficient, exponent, false);
    }
    round(negative, quotient, exponent, sticky)
}

/// The remainder of division toward zero, exact; it has the sign of the dividend.
impl Rem for Decimal128 {
    type Output = Decimal128;

    fn rem(self, other: Decimal128) -> Decimal128 {
        let (a, b) = match (self.class(), other.class()) {
            (Class::Finite(a), Class::Finite(b)) if b.coefficient != 0 => (a, b),
            (Class::Finite(_), Class::Infinity { .. }) => return self,
            _ => return Decimal128::NAN,
        };
        let exponent = a.exponent.min(b.exponent);
        let coefficient = if a.exponent >= b.exponent {
            // Multiply by the power of ten modulo the divisor, four digits at a time: 113 + 14 bits.
            let mut rest = a.coefficient % b.coefficient;
            let mut distance = (a.exponent - b.exponent).unsigned_abs();
            while distance > 0 {
                let step = distance.min(4);
                rest = rest * 10u128.pow(step) % b.coefficient;
                distance -= step;
            }
            rest
        } else {
            let distance = (b.exponent - a.exponent).unsigned_abs();
            let divisor = 10u128
                .checked_pow(distance)
                .and_then(|power| power.checked_mul(b.coefficient));
            // A divisor that does not even fit is greater than the dividend.
            divisor.map_or(a.coefficient, |divisor| a.coefficient % divisor)
        };
        Decimal128::pack(Parts {
            negative: a.negative,
            coefficient,
            exponent,
        })
    }
}

/// Divides by `10^drop`, with the given rounding.
fn drop_digits(n: u128, drop: u32, negative: bool, rounding: Rounding) -> u128 {
    let (quotient, rest, half) = match 10u128.checked_pow(drop) {
        Some(power) => (n / power, n % power, power / 2),
        None => (0, n, u128::MAX), // Less than a half: the power has 39 digits or more.
    };
    let up = match rounding {
        Rounding::HalfEven => rest > half || (rest == half && !quotient.is_multiple_of(2)),
        Rounding::TowardZero => false,
        Rounding::Floor => negative && rest != 0,
        Rounding::Ceiling => !negative && rest != 0,
    };
    quotient + u128::from(up)
}

impl Decimal128 {
    pub fn abs(self) -> Decimal128 {
        Decimal128::from_bits(self.bits() & !SIGN)
    }

    /// The number with exactly this exponent, its last digits rounded away or zeros appended, as IEEE 754's
    /// *quantize*: for two digits after the point the exponent is -2. NaN when more than 34 digits would be
    /// needed.
    pub fn quantize(self, exponent: i32, rounding: Rounding) -> Decimal128 {
        let Class::Finite(p) = self.class() else {
            return self;
        };
        if !(super::EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent) {
            return Decimal128::NAN;
        }
        let coefficient = if exponent > p.exponent {
            drop_digits(
                p.coefficient,
                (exponent - p.exponent).unsigned_abs(),
                p.negative,
                rounding,
            )
        } else if p.coefficient == 0 {
            0
        } else {
            let power = 10u128.checked_pow((p.exponent - exponent).unsigned_abs());
            match power.and_then(|power| p.coefficient.checked_mul(power)) {
                Some(scaled) if scaled <= COEFFICIENT_MAX => scaled,
                _ => return Decimal128::NAN,
            }
        };
        Decimal128::pack(Parts {
            coefficient,
            exponent,
            ..p
        })
    }

    /// The nearest whole number in the given direction; one that has no fraction stays as it is.
    pub fn round_to_integral(self, rounding: Rounding) -> Decimal128 {
        match self.class() {
            Class::Finite(p) if p.exponent < 0 => self.quantize(0, rounding),
            _ => self,
        }
    }

    /// The integer left after cutting the fraction off, when it fits.
    pub fn to_i64_truncated(self) -> Option<i64> {
        self.round_to_integral(Rounding::TowardZero)
            .to_i64_lossless()
    }

    /// The decimal of a double as MongoDB converts it where types mix: rounded to 15 significant digits, so
    /// that 0.1 becomes 0.100000000000000.
    pub fn from_f64(double: f64) -> Decimal128 {
        Self::from_f64_digits(double, 15)
    }

    /// The decimal of a double with as many digits as a decimal has, for `$toDecimal`-like exactness.
    pub fn from_f64_all_digits(double: f64) -> Decimal128 {
        Self::from_f64_digits(double, DIGITS_MAX as usize)
    }

    fn from_f64_digits(double: f64, digits: usize) -> Decimal128 {
        if double.is_nan() {
            return Decimal128::NAN;
        }
        if double.is_infinite() {
            return infinity(double < 0.0);
        }
        if double == 0.0 {
            return if double.is_sign_negative() {
                -Decimal128::ZERO
            } else {
                Decimal128::ZERO
            };
        }
        // The formatter rounds the exact value correctly.
        let text = format!("{double:.*e}", digits - 1);
        text.parse().unwrap_or(Decimal128::NAN)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn d(text: &str) -> Decimal128 {
        text.parse().unwrap()
    }

    #[test]
    fn special_numbers() {
        let (inf, neg, nan) = (
            Decimal128::INFINITY,
            Decimal128::NEG_INFINITY,
            Decimal128::NAN,
        );
        let cases = [
            (inf + neg, "NaN"),
            (inf - inf, "NaN"),
            (inf + d("1"), "Infinity"),
            (d("1") - inf, "-Infinity"),
            (nan + inf, "NaN"),
            (d("1") - nan, "NaN"),
            (inf * d("-2"), "-Infinity"),
            (inf * d("0"), "NaN"),
            (neg * neg, "Infinity"),
            (d("1") / d("0"), "Infinity"),
            (d("1") / d("-0"), "-Infinity"),
            (d("0") / d("0"), "NaN"),
            (inf / inf, "NaN"),
            (neg / d("-2"), "Infinity"),
            (d("-1") / inf, "-0E-6176"),
            (d("1") % inf, "1"),
            (inf % d("1"), "NaN"),
            (d("1") % d("0"), "NaN"),
            (d("9E6144") + d("9E6144"), "Infinity"),
            (d("-9E6144") * d("9"), "-Infinity"),
            (d("1E-6176") / d("10"), "0E-6176"),
            (-d("0.0"), "-0.0"),
            (d("-5").abs(), "5"),
        ];
        for (i, (got, expected)) in cases.into_iter().enumerate() {
            assert_eq!(got.to_string(), expected, "case {i}");
        }
    }

    #[test]
    fn doubles_become_decimals_as_in_mongodb() {
        let cases = [
            (
                0.1,
                "0.100000000000000",
                "0.1000000000000000055511151231257827",
            ),
            (
                1.0,
                "1.00000000000000",
                "1.000000000000000000000000000000000",
            ),
            (-0.0, "-0", "-0"),
            (
                123_456_789.123_456_79,
                "123456789.123457",
                "123456789.1234567910432815551757812",
            ),
            (
                1e300,
                "1.00000000000000E+300",
                "1.000000000000000052504760255204420E+300",
            ),
            (
                5e-324,
                "4.94065645841247E-324",
                "4.940656458412465441765687928682214E-324",
            ),
            (
                999999999999999.9,
                "1.00000000000000E+15",
                "999999999999999.8750000000000000000",
            ),
            (f64::NEG_INFINITY, "-Infinity", "-Infinity"),
        ];
        for (double, short, long) in cases {
            assert_eq!(Decimal128::from_f64(double).to_string(), short, "{double}");
            assert_eq!(
                Decimal128::from_f64_all_digits(double).to_string(),
                long,
                "{double}"
            );
        }
    }

    #[test]
    fn quantizes() {
        use Rounding::*;
        let cases = [
            ("1.5", 0, HalfEven, "2"),
            ("2.5", 0, HalfEven, "2"),
            ("-2.5", 0, HalfEven, "-2"),
            ("2.51", 0, HalfEven, "3"),
            ("-2.5", 0, TowardZero, "-2"),
            ("-2.5", 0, Floor, "-3"),
            ("2.5", 0, Floor, "2"),
            ("2.1", 0, Ceiling, "3"),
            ("-2.9", 0, Ceiling, "-2"),
            ("1.5", -3, HalfEven, "1.500"),
            ("155", 1, HalfEven, "1.6E+2"),
            ("0", -2, HalfEven, "0.00"),
            ("4E-40", 0, HalfEven, "0"),
            ("4E-40", 0, Ceiling, "1"),
            ("1E33", 0, HalfEven, "1000000000000000000000000000000000"),
            ("1E34", 0, HalfEven, "NaN"),
            ("Infinity", 0, HalfEven, "Infinity"),
        ];
        for (text, exponent, rounding, expected) in cases {
            assert_eq!(
                d(text).quantize(exponent, rounding).to_string(),
                expected,
                "{text} {rounding:?}"
            );
        }
        assert_eq!(d("1E40").round_to_integral(Floor).to_string(), "1E+40");
        assert_eq!(d("-1.5").round_to_integral(Floor).to_string(), "-2");
        assert_eq!(d("-1.9").to_i64_truncated(), Some(-1));
        assert_eq!(
            d("9223372036854775807.9").to_i64_truncated(),
            Some(i64::MAX)
        );
        assert_eq!(d("9223372036854775808").to_i64_truncated(), None);
    }
}
