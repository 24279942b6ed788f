//! Numbers in keys: one order for int32, int64, double and decimal.
//!
//! A magnitude from 1 to below 2^63 is its whole part, shifted left to make room for a bit that says
//! whether a fraction follows, in as few bytes as hold it; the tag counts them. The fraction is that of the
//! greatest double not above the number, then a bit that says whether the number is greater than that
//! double; it then is a decimal, and the digits of its fraction follow. Other magnitudes are the greatest
//! double not above the number as 64 bits (the sign bit's place holds nothing, so the same last bit fits),
//! and for decimals greater than that their exponent and digits. Negative numbers have all bytes after the
//! tag inverted.

use super::tags;
use super::type_bits::{NumberType, TypeBits, TypeBitsReader};
use crate::decimal128::{
    COEFFICIENT_MAX, Class, EXPONENT_MAX, EXPONENT_MIN, Parts, digit_count, truncate_to_f64,
};
use crate::{Decimal128, Value};

const TWO_63: f64 = 9_223_372_036_854_775_808.0;
/// Bits of a double's mantissa, the implied one included.
const MANTISSA_BITS: u32 = 53;
/// Added to a decimal's exponent to make it positive.
const EXPONENT_BIAS: i32 = 0x4000;
/// A coefficient of 34 digits can be multiplied by this to make its count of digits even.
const DIGITS_BYTES: usize = 36;

/// Appends the encoding of a number.
pub(super) fn put_number(value: &Value<'_>, out: &mut Vec<u8>, lost: Option<&mut TypeBits>) {
    match *value {
        Value::Int32(i) => {
            put_int(i64::from(i), out);
            lose(lost, NumberType::Int32);
        }
        Value::Int64(i) => {
            put_int(i, out);
            lose(lost, NumberType::Int64);
        }
        Value::Double(d) => put_double(d, out, lost),
        Value::Decimal128(d) => put_decimal(d, out, lost),
        _ => debug_assert!(false, "not a number"),
    }
}

fn lose(lost: Option<&mut TypeBits>, kind: NumberType) {
    if let Some(lost) = lost {
        lost.bits(kind as u128, 2);
    }
}

fn put_int(i: i64, out: &mut Vec<u8>) {
    let magnitude = i.unsigned_abs();
    if magnitude == 0 {
        out.push(tags::ZERO);
    } else if magnitude < 1 << 63 {
        signed(i < 0, out, |out| whole_part(magnitude, false, i < 0, out));
    } else {
        put_large(true, TWO_63, false, out);
    }
}

fn put_double(d: f64, out: &mut Vec<u8>, lost: Option<&mut TypeBits>) {
    let magnitude = d.abs();
    if d.is_nan() {
        out.push(tags::NAN);
    } else if magnitude == 0.0 {
        out.push(tags::ZERO);
    } else if magnitude < 1.0 {
        put_small(d < 0.0, magnitude, false, out);
    } else if magnitude >= TWO_63 {
        put_large(d < 0.0, magnitude, false, out);
    } else {
        let whole = magnitude as u64;
        // The low bits of the mantissa; the implied bit is never among them.
        let fraction = magnitude.to_bits() & ((1 << fraction_bits(whole)) - 1);
        signed(d < 0.0, out, |out| {
            whole_part(whole, fraction != 0, d < 0.0, out);
            if fraction != 0 {
                put_fraction(whole, fraction, false, out);
            }
        });
    }
    if let Some(lost) = lost {
        lost.bits(NumberType::Double as u128, 2);
        if d.is_nan() {
            let unusual = d.to_bits() != f64::NAN.to_bits();
            lost.bit(unusual);
            if unusual {
                lost.bits(u128::from(d.to_bits()), 64);
            }
        } else if d == 0.0 {
            lost.bit(d.is_sign_negative());
        }
    }
}

fn put_decimal(d: Decimal128, out: &mut Vec<u8>, lost: Option<&mut TypeBits>) {
    let class = d.class();
    match class {
        Class::Nan => out.push(tags::NAN),
        Class::Infinity { negative } => put_large(negative, f64::INFINITY, false, out),
        Class::Finite(parts) if parts.coefficient == 0 => out.push(tags::ZERO),
        Class::Finite(parts) => put_finite_decimal(parts, out),
    }
    if let Some(lost) = lost {
        lost.bits(NumberType::Decimal as u128, 2);
        lose_decimal(d, class, lost);
    }
}

fn lose_decimal(d: Decimal128, class: Class, lost: &mut TypeBits) {
    let usual = match class {
        Class::Nan => Decimal128::NAN,
        Class::Infinity { negative: false } => Decimal128::INFINITY,
        Class::Infinity { negative: true } => Decimal128::NEG_INFINITY,
        Class::Finite(parts) if parts.coefficient == 0 => Decimal128::pack(parts),
        Class::Finite(parts) => {
            let (_, zeros) = strip_zeros(parts.coefficient);
            return lost.bits(zeros as u128, 6);
        }
    };
    lost.bit(d != usual);
    if d != usual {
        lost.bits(d.bits(), 128);
    } else if let Class::Finite(zero) = class {
        lost.bit(zero.negative);
        lost.bits((zero.exponent - EXPONENT_MIN) as u128, 14);
    }
}

fn put_finite_decimal(parts: Parts, out: &mut Vec<u8>) {
    let negative = parts.negative;
    let (coefficient, zeros) = strip_zeros(parts.coefficient);
    let exponent = parts.exponent + zeros;
    let digits = digit_count(coefficient);
    // The number is 0.ddd * 10^point.
    let point = exponent + digits;
    let whole = if point <= 0 {
        None
    } else if exponent >= 0 {
        10u128
            .checked_pow(exponent.unsigned_abs())
            .and_then(|power| coefficient.checked_mul(power))
            .map(|whole| (whole, 0, 1))
    } else {
        let scale = 10u128.pow(exponent.unsigned_abs()); // At most 33 digits: point is positive.
        Some((coefficient / scale, coefficient % scale, scale))
    };
    if let Some((whole, rest, scale)) = whole
        && whole >> 63 == 0
    {
        let whole = whole as u64;
        signed(negative, out, |out| {
            whole_part(whole, rest != 0, negative, out);
            if rest != 0 {
                put_decimal_fraction(whole, rest, scale, exponent.unsigned_abs() as usize, out);
            }
        });
        return;
    }
    let (double, greater) = truncate_to_f64(coefficient, exponent);
    if point <= 0 {
        put_small(negative, double, greater, out);
    } else {
        put_large(negative, double, greater, out);
    }
    if greater {
        let start = out.len();
        out.extend_from_slice(&((point + EXPONENT_BIAS) as u16).to_be_bytes());
        put_digits(coefficient, digits as usize, out);
        if negative {
            invert_from(out, start);
        }
    }
}

/// Inverts all bytes from `start` on.
pub(super) fn invert_from(out: &mut [u8], start: usize) {
    for byte in out.get_mut(start..).unwrap_or_default() {
        *byte = !*byte;
    }
}

/// Divides out the factors of ten; returns how many.
fn strip_zeros(mut coefficient: u128) -> (u128, i32) {
    let mut zeros = 0;
    while coefficient != 0 && coefficient.is_multiple_of(10) {
        coefficient /= 10;
        zeros += 1;
    }
    (coefficient, zeros)
}

/// Runs `put` and inverts, if the number is negative, all that it appended after the tag.
fn signed(negative: bool, out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len() + 1;
    put(out);
    if negative {
        invert_from(out, start);
    }
}

fn put_small(negative: bool, double: f64, greater: bool, out: &mut Vec<u8>) {
    out.push(if negative {
        tags::NEGATIVE_SMALL
    } else {
        tags::POSITIVE_SMALL
    });
    put_double_bits(negative, double, greater, out);
}

fn put_large(negative: bool, double: f64, greater: bool, out: &mut Vec<u8>) {
    out.push(if negative {
        tags::NEGATIVE_LARGE
    } else {
        tags::POSITIVE_LARGE
    });
    put_double_bits(negative, double, greater, out);
}

fn put_double_bits(negative: bool, double: f64, greater: bool, out: &mut Vec<u8>) {
    let bits = (double.to_bits() << 1) | u64::from(greater);
    out.extend_from_slice(&(if negative { !bits } else { bits }).to_be_bytes());
}

/// The tag and the bytes of the whole part with the bit for a fraction.
fn whole_part(whole: u64, fraction: bool, negative: bool, out: &mut Vec<u8>) {
    let bits = (whole << 1) | u64::from(fraction);
    let bytes = bits.to_be_bytes();
    let unused = (bits.leading_zeros() / 8) as u8; // Not 8: the whole part is not zero.
    out.push(if negative {
        tags::NEGATIVE_INT_8 + unused
    } else {
        tags::POSITIVE_INT_8 - unused
    });
    out.extend_from_slice(bytes.get(usize::from(unused)..).unwrap_or_default());
}

/// Bits of a double's fraction when `whole`, not zero, is before the point.
fn fraction_bits(whole: u64) -> u32 {
    MANTISSA_BITS.saturating_sub(64 - whole.leading_zeros())
}

/// The bits of a fraction and the bit for "greater", in as many bytes as they need for this whole part.
fn put_fraction(whole: u64, fraction: u64, greater: bool, out: &mut Vec<u8>) {
    let bytes = ((fraction << 1) | u64::from(greater)).to_be_bytes();
    let unused = 8 - fraction_bytes(whole);
    out.extend_from_slice(bytes.get(unused..).unwrap_or_default());
}

fn fraction_bytes(whole: u64) -> usize {
    (fraction_bits(whole) as usize + 1).div_ceil(8)
}

/// The fraction `rest / scale`, where `scale` is 10^places.
fn put_decimal_fraction(whole: u64, rest: u128, scale: u128, places: usize, out: &mut Vec<u8>) {
    let (mut remainder, mut fraction) = (rest, 0u64);
    for _ in 0..fraction_bits(whole) {
        remainder *= 2; // Below 2 * 10^33.
        fraction <<= 1;
        if remainder >= scale {
            remainder -= scale;
            fraction |= 1;
        }
    }
    put_fraction(whole, fraction, remainder != 0, out);
    if remainder != 0 {
        put_digits(rest, places, out);
    }
}

/// The `count` digits of `n`, with leading zeros, two to a byte: the pair doubled, plus one when another
/// pair follows. Zeros at the end are left out.
fn put_digits(n: u128, count: usize, out: &mut Vec<u8>) {
    const HALF: u128 = 10u128.pow(18);
    let mut digits = [0u8; DIGITS_BYTES];
    let n = if count.is_multiple_of(2) { n } else { n * 10 };
    let (mut high, mut low) = ((n / HALF) as u64, (n % HALF) as u64);
    for (i, digit) in digits.iter_mut().rev().enumerate() {
        let half = if i < 18 { &mut low } else { &mut high };
        *digit = (*half % 10) as u8;
        *half /= 10;
    }
    let first = DIGITS_BYTES - count.next_multiple_of(2).min(DIGITS_BYTES);
    let digits = digits.get(first..).unwrap_or_default();
    let used = digits
        .iter()
        .rposition(|&d| d != 0)
        .map_or(0, |last| last + 1);
    for (i, pair) in digits.chunks_exact(2).take(used.div_ceil(2)).enumerate() {
        let more = (i + 1) * 2 < used;
        let pair = pair.iter().fold(0, |n, &d| n * 10 + d);
        out.push(pair * 2 + u8::from(more));
    }
}

/// Bytes of one key, with a mask that reverts inversion.
pub(super) struct Bytes<'a> {
    pub rest: &'a [u8],
    pub mask: u8,
}

impl<'a> Bytes<'a> {
    pub(super) fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte ^ self.mask)
    }

    /// The next `count` bytes as one big-endian number; at most 8.
    pub(super) fn integer(&mut self, count: usize) -> Option<u64> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(
            bytes
                .iter()
                .fold(0, |n, &b| (n << 8) | u64::from(b ^ self.mask)),
        )
    }

    fn exponent_and_digits(&mut self) -> Option<Digits> {
        let point = self.integer(2)? as i32 - EXPONENT_BIAS;
        Some(Digits {
            point,
            ..self.digits()?
        })
    }

    fn digits(&mut self) -> Option<Digits> {
        let mut digits = Digits {
            coefficient: 0,
            count: 0,
            point: 0,
        };
        loop {
            let byte = self.next()?;
            let pair = u128::from(byte / 2);
            if pair > 99 || digits.count >= DIGITS_BYTES as i32 {
                return None;
            }
            digits.coefficient = digits.coefficient * 100 + pair;
            digits.count += 2;
            if byte % 2 == 0 {
                return Some(digits);
            }
        }
    }
}

/// `0.ddd * 10^point`, where `coefficient` has `count` digits, leading zeros included.
pub(super) struct Digits {
    coefficient: u128,
    count: i32,
    point: i32,
}

/// A number in a key, split into its parts.
pub(super) enum Magnitude {
    Nan,
    Zero,
    /// The whole part and the fraction's bits, of which there are `fraction_bits(whole)`.
    Whole {
        whole: u64,
        fraction: u64,
    },
    /// A double, below 1 or from 2^63 on.
    Double(f64),
    /// A decimal between two doubles.
    Between {
        whole: u64,
        digits: Digits,
    },
}

/// Splits the number that starts with `tag` into its parts. `None` when the bytes are not a key.
pub(super) fn split_number(tag: u8, bytes: &mut Bytes<'_>) -> Option<(bool, Magnitude)> {
    let negative = tag < tags::ZERO;
    let outer_mask = bytes.mask;
    if negative {
        bytes.mask = !bytes.mask;
    }
    let magnitude = match tag {
        tags::NAN => Magnitude::Nan,
        tags::ZERO => Magnitude::Zero,
        tags::NEGATIVE_SMALL
        | tags::POSITIVE_SMALL
        | tags::NEGATIVE_LARGE
        | tags::POSITIVE_LARGE => {
            let bits = bytes.integer(8)?;
            if bits & 1 == 0 {
                Magnitude::Double(f64::from_bits(bits >> 1))
            } else {
                Magnitude::Between {
                    whole: 0,
                    digits: bytes.exponent_and_digits()?,
                }
            }
        }
        tags::NEGATIVE_INT_8..=tags::NEGATIVE_INT_1 => {
            split_whole(usize::from(tags::NEGATIVE_SMALL - tag), bytes)?
        }
        tags::POSITIVE_INT_1..=tags::POSITIVE_INT_8 => {
            split_whole(usize::from(tag - tags::POSITIVE_SMALL), bytes)?
        }
        _ => return None,
    };
    bytes.mask = outer_mask;
    Some((negative, magnitude))
}

fn split_whole(count: usize, bytes: &mut Bytes<'_>) -> Option<Magnitude> {
    let bits = bytes.integer(count)?;
    let whole = bits >> 1;
    if whole == 0 {
        return None;
    }
    if bits & 1 == 0 {
        return Some(Magnitude::Whole { whole, fraction: 0 });
    }
    let bits = bytes.integer(fraction_bytes(whole))?;
    Some(if bits & 1 == 0 {
        Magnitude::Whole {
            whole,
            fraction: bits >> 1,
        }
    } else {
        Magnitude::Between {
            whole,
            digits: bytes.digits()?,
        }
    })
}

/// Rebuilds a number from its parts and type bits. `None` when they do not fit each other.
pub(super) fn build_number(
    negative: bool,
    magnitude: &Magnitude,
    bits: &mut TypeBitsReader<'_>,
) -> Option<Value<'static>> {
    let int32 = |i: i64| i32::try_from(i).ok().map(Value::Int32);
    if bits.is_unknown {
        return match build_int(negative, magnitude) {
            Some(i) => Some(int32(i).unwrap_or(Value::Int64(i))),
            None => build_double(negative, magnitude, bits)
                .map(Value::Double)
                .or_else(|| build_decimal(negative, magnitude, bits).map(Value::Decimal128)),
        };
    }
    match NumberType::read(bits) {
        NumberType::Int32 => int32(build_int(negative, magnitude)?),
        NumberType::Int64 => Some(Value::Int64(build_int(negative, magnitude)?)),
        NumberType::Double => Some(Value::Double(build_double(negative, magnitude, bits)?)),
        NumberType::Decimal => Some(Value::Decimal128(build_decimal(negative, magnitude, bits)?)),
    }
}

fn build_int(negative: bool, magnitude: &Magnitude) -> Option<i64> {
    match *magnitude {
        Magnitude::Zero => Some(0),
        Magnitude::Whole { whole, fraction: 0 } => {
            let i = i64::try_from(whole).ok()?;
            Some(if negative { -i } else { i })
        }
        Magnitude::Double(TWO_63) if negative => Some(i64::MIN),
        _ => None,
    }
}

fn build_double(
    negative: bool,
    magnitude: &Magnitude,
    bits: &mut TypeBitsReader<'_>,
) -> Option<f64> {
    let double = match *magnitude {
        Magnitude::Nan => {
            let unusual = bits.bit();
            return Some(if unusual {
                f64::from_bits(bits.bits(64) as u64)
            } else {
                f64::NAN
            });
        }
        Magnitude::Zero => return Some(if bits.bit() { -0.0 } else { 0.0 }),
        Magnitude::Double(double) => double,
        // Both terms and their sum are exact.
        Magnitude::Whole { whole, fraction } => whole as f64 + fraction_value(whole, fraction),
        Magnitude::Between { .. } => return None,
    };
    Some(if negative { -double } else { double })
}

fn fraction_value(whole: u64, fraction: u64) -> f64 {
    fraction as f64 / (1u64 << fraction_bits(whole)) as f64
}

fn build_decimal(
    negative: bool,
    magnitude: &Magnitude,
    bits: &mut TypeBitsReader<'_>,
) -> Option<Decimal128> {
    let infinite = matches!(magnitude, Magnitude::Double(d) if d.is_infinite());
    if infinite || matches!(magnitude, Magnitude::Nan | Magnitude::Zero) {
        let unusual = bits.bit();
        return Some(match magnitude {
            _ if unusual => Decimal128::from_bits(bits.bits(128)),
            Magnitude::Zero => {
                let negative = bits.bit();
                let exponent = bits.bits(14) as i32 + EXPONENT_MIN;
                if exponent > EXPONENT_MAX {
                    return None;
                }
                Decimal128::pack(Parts {
                    negative,
                    coefficient: 0,
                    exponent,
                })
            }
            Magnitude::Nan => Decimal128::NAN,
            _ if negative => Decimal128::NEG_INFINITY,
            _ => Decimal128::INFINITY,
        });
    }
    let (coefficient, exponent) = decimal_digits(magnitude)?;
    let (coefficient, zeros) = strip_zeros(coefficient);
    let added = bits.bits(6) as u32;
    let coefficient = coefficient.checked_mul(10u128.checked_pow(added)?)?;
    let exponent = exponent + zeros - added as i32;
    let fits = coefficient <= COEFFICIENT_MAX && (EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent);
    fits.then(|| {
        Decimal128::pack(Parts {
            negative,
            coefficient,
            exponent,
        })
    })
}

/// The digits and the exponent of a number that is a finite decimal and not zero.
fn decimal_digits(magnitude: &Magnitude) -> Option<(u128, i32)> {
    match *magnitude {
        Magnitude::Whole { whole, fraction } => {
            let bits = fraction_bits(whole);
            let (mut coefficient, mut exponent, mut rest) = (u128::from(whole), 0, fraction);
            while rest != 0 {
                if coefficient > COEFFICIENT_MAX / 10 {
                    return None;
                }
                rest *= 10; // Below 10 * 2^52.
                coefficient = coefficient * 10 + u128::from(rest >> bits);
                rest &= (1 << bits) - 1;
                exponent -= 1;
            }
            Some((coefficient, exponent))
        }
        Magnitude::Double(double) => {
            // As many digits as a decimal has; formatting rounds correctly, and is exact where exact digits
            // are this few.
            let text = format!("{double:.33e}");
            let (digits, exponent) = text.split_once('e')?;
            let mut coefficient = 0u128;
            for c in digits.bytes().filter(u8::is_ascii_digit) {
                coefficient = coefficient
                    .checked_mul(10)?
                    .checked_add(u128::from(c - b'0'))?;
            }
            Some((coefficient, exponent.parse::<i32>().ok()? - 33))
        }
        Magnitude::Between {
            whole: 0,
            ref digits,
        } => Some((digits.coefficient, digits.point - digits.count)),
        Magnitude::Between { whole, ref digits } => {
            // Zeros at the end, to make the count even, could overflow before they are cut.
            let (rest, zeros) = strip_zeros(digits.coefficient);
            let places = digits.count - zeros;
            let scale = 10u128.checked_pow(places.unsigned_abs())?;
            Some((
                u128::from(whole).checked_mul(scale)?.checked_add(rest)?,
                -places,
            ))
        }
        Magnitude::Nan | Magnitude::Zero => None,
    }
}
