//! The numeric order of decimals, among themselves and with doubles, exactly.

use std::cmp::Ordering;

use super::text::parse_f64;
use super::wide::Wide;
use super::{Class, DIGITS_MAX, Decimal128, Parts, digit_count};

impl Decimal128 {
    /// Compares by value: NaN equals NaN and comes first, zeros are equal, exponents of equal numbers do
    /// not count.
    pub fn compare(self, other: Decimal128) -> Ordering {
        let (a, b) = (self.class(), other.class());
        if let (Class::Finite(a), Class::Finite(b)) = (a, b) {
            return finite(a, b);
        }
        rank(a).cmp(&rank(b))
    }
}

/// NaN, minus infinity, finite, infinity.
fn rank(class: Class) -> u8 {
    match class {
        Class::Nan => 0,
        Class::Infinity { negative: true } => 1,
        Class::Finite(_) => 2,
        Class::Infinity { negative: false } => 3,
    }
}

/// -1, 0 or 1.
fn sign(p: Parts) -> i8 {
    match (p.coefficient, p.negative) {
        (0, _) => 0,
        (_, true) => -1,
        (_, false) => 1,
    }
}

fn finite(a: Parts, b: Parts) -> Ordering {
    let (s, t) = (sign(a), sign(b));
    if s != t || s == 0 {
        return s.cmp(&t);
    }
    let (ca, ea) = left_justified(a);
    let (cb, eb) = left_justified(b);
    let order = ea.cmp(&eb).then(ca.cmp(&cb));
    if s < 0 { order.reverse() } else { order }
}

/// The coefficient with 34 digits, and the exponent that goes with it. Not for zero.
fn left_justified(p: Parts) -> (u128, i32) {
    let shift = (DIGITS_MAX - digit_count(p.coefficient)).max(0);
    (
        p.coefficient * 10u128.pow(shift.unsigned_abs()),
        p.exponent - shift,
    )
}

/// Compares a decimal with a double by their exact values.
pub(crate) fn compare_double(decimal: Decimal128, double: f64) -> Ordering {
    let parts = match decimal.class() {
        Class::Finite(parts) if double.is_finite() => parts,
        class => {
            let other = if double.is_nan() {
                0
            } else if double.is_infinite() {
                rank(Class::Infinity {
                    negative: double < 0.0,
                })
            } else {
                2
            };
            return rank(class).cmp(&other);
        }
    };
    let double_sign = i8::from(double > 0.0) - i8::from(double < 0.0);
    let order = sign(parts).cmp(&double_sign);
    if order.is_ne() || double_sign == 0 {
        return order;
    }
    // Rounding to the nearest double is monotonic, so only a tie needs the exact comparison.
    let nearest = parse_f64(parts.coefficient, parts.exponent);
    let order = match nearest.partial_cmp(&double.abs()) {
        Some(Ordering::Equal) | None => exact(parts.coefficient, parts.exponent, double.abs()),
        Some(order) => order,
    };
    if double_sign < 0 {
        order.reverse()
    } else {
        order
    }
}

/// The greatest finite double that is not above `coefficient * 10^exponent`, and whether it is below it.
pub(crate) fn truncate_to_f64(coefficient: u128, exponent: i32) -> (f64, bool) {
    let nearest = parse_f64(coefficient, exponent);
    if nearest.is_infinite() {
        return (f64::MAX, true);
    }
    match exact(coefficient, exponent, nearest) {
        Ordering::Equal => (nearest, false),
        Ordering::Greater => (nearest, true),
        Ordering::Less => (f64::from_bits(nearest.to_bits() - 1), true),
    }
}

/// Compares `coefficient * 10^exponent` with a double, both not negative; the double must be the nearest.
fn exact(coefficient: u128, exponent: i32, double: f64) -> Ordering {
    if double == 0.0 || coefficient == 0 {
        return (coefficient != 0).cmp(&(double != 0.0));
    }
    let bits = double.to_bits();
    let stored_exponent = (bits >> 52) as i32; // The sign bit is clear.
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, power_of_two) = if stored_exponent == 0 {
        (fraction, -1074)
    } else {
        (fraction | (1 << 52), stored_exponent - 1075)
    };
    // Compare c * 5^e * 2^e with m * 2^k, with the powers on the side where they are not negative.
    let mut decimal = Wide::<LIMBS>::new(coefficient);
    let mut binary = Wide::<LIMBS>::new(u128::from(mantissa));
    let fives = if exponent >= 0 {
        &mut decimal
    } else {
        &mut binary
    };
    fives.multiply_by_power_of_five(exponent.unsigned_abs());
    let twos = exponent - power_of_two;
    let shifted = if twos >= 0 { &mut decimal } else { &mut binary };
    shifted.shift_left(twos.unsigned_abs() as usize);
    decimal.compare(&binary)
}

/// The two numbers that `exact` builds are about equal, the larger of their factors at most 5^358 (832 bits)
/// times 53 bits, or 113 bits shifted by 1074: 1,280 bits hold them.
const LIMBS: usize = 20;
