//! Roots, powers, logarithms and trigonometry of decimals, to all of their 34 digits.
//!
//! `dashu-float` computes them in base ten, correctly rounded. This module reads and makes decimals, and answers what needs no
//! computation: special numbers, results beyond the range of the format, and arguments so small that the result is known.

#[cfg(test)]
mod tests;

use dashu_float::round::Rounded;
use dashu_float::round::mode::HalfEven;
use dashu_float::{FBig, FpError, Repr};
use dashu_int::ops::DivRem;
use dashu_int::{IBig, Sign};
use frond_bson::Decimal128;
use std::cmp::Ordering;
use std::sync::LazyLock;

type Context = dashu_float::Context<HalfEven>;
type Float = FBig<HalfEven, 10>;
type Computed = Result<Rounded<Float>, FpError>;

/// The digits of a decimal.
const DIGITS: usize = 34;

/// Digits that are computed beyond those of the result. The library rounds some results near the middle of two decimals to the
/// wrong side; the root of a number of 34 digits differs from such a middle within its first 70 digits.
const FURTHER_DIGITS: usize = DIGITS + 8;
/// Digits of intermediate results, of which the last few may be wrong.
const GUARDED: usize = 60;
/// Exponents of the first digit: beyond these a number overflows, loses digits, or is zero.
const FIRST_DIGIT_MAX: i64 = 6144;
const FIRST_DIGIT_NORMAL_MIN: i64 = -6143;
const FIRST_DIGIT_MIN: i64 = -6177;
/// Arguments whose first digit is here or lower differ from their sine by less than the last digit.
const TINY: i64 = -20;
/// Arguments whose first digit is here or lower do not change 1 by adding them.
const NEGLIGIBLE: i64 = -36;

/// The decimal of a double, with the digits that it needs, at most 34.
pub(crate) fn of_double(double: f64) -> Decimal128 {
    let all = Decimal128::from_f64_all_digits(double);
    let Some((negative, mut coefficient, mut exponent)) = all.to_parts() else {
        return all;
    };
    while exponent < 0 && coefficient.is_multiple_of(10) {
        coefficient /= 10;
        exponent += 1;
    }
    Decimal128::from_parts(negative, coefficient, i64::from(exponent))
}

/// The class of a decimal, which decides how a function treats it.
enum Kind {
    Nan,
    Infinity { negative: bool },
    Zero,
    Number(Repr<10>),
}

fn kind(x: Decimal128) -> Kind {
    match x.to_parts() {
        None if x.is_nan() => Kind::Nan,
        None => Kind::Infinity {
            negative: x.is_negative(),
        },
        Some((_, 0, _)) => Kind::Zero,
        Some((negative, coefficient, exponent)) => {
            let significand = IBig::from(coefficient);
            let significand = if negative { -significand } else { significand };
            Kind::Number(Repr::new(significand, exponent as isize))
        }
    }
}

/// The exponent of the first digit of a number: 0 for 1 to 9.
fn first_digit(x: &Repr<10>) -> i64 {
    x.digits() as i64 - 1 + x.exponent() as i64
}

fn is_negative(x: &Repr<10>) -> bool {
    x.sign() == Sign::Negative
}

/// The decimal of digits; infinite if they overflow.
fn decimal(x: &Repr<10>) -> Decimal128 {
    if x.is_infinite() {
        return infinity(is_negative(x));
    }
    let negative = is_negative(x);
    match u128::try_from(unsigned(x.significand().clone())) {
        Ok(coefficient) => Decimal128::from_parts(negative, coefficient, x.exponent() as i64),
        Err(_) => Decimal128::NAN,
    }
}

fn infinity(negative: bool) -> Decimal128 {
    if negative {
        Decimal128::NEG_INFINITY
    } else {
        Decimal128::INFINITY
    }
}

fn zero(negative: bool) -> Decimal128 {
    if negative {
        -Decimal128::ZERO
    } else {
        Decimal128::ZERO
    }
}

/// The decimal nearest to what `compute` computes to the digits of its context. It has all digits: the results of these
/// functions are exact for few arguments, which their callers know.
fn rounded(compute: impl Fn(&Context) -> Computed) -> Decimal128 {
    let at = |digits: usize| {
        let result = compute(&Context::new(digits + FURTHER_DIGITS)).map(Rounded::value)?;
        Ok(if result.repr().is_infinite() {
            result
        } else {
            result.with_precision(digits).value()
        })
    };
    let mut computed = at(DIGITS);
    if let Ok(result) = &computed
        && !result.repr().is_infinite()
    {
        let first = first_digit(result.repr());
        if (FIRST_DIGIT_MIN..FIRST_DIGIT_NORMAL_MIN).contains(&first) {
            // A subnormal result has fewer digits, and rounding twice could give another number.
            let digits = DIGITS as i64 - (FIRST_DIGIT_NORMAL_MIN - first);
            if let Ok(digits @ 1..) = usize::try_from(digits) {
                computed = at(digits);
            }
        }
    }
    let result = match computed {
        Ok(result) => decimal(result.repr()),
        Err(FpError::Overflow(sign)) => infinity(sign == Sign::Negative),
        Err(FpError::Underflow(sign)) => zero(sign == Sign::Negative),
        Err(_) => Decimal128::NAN,
    };
    result.with_all_digits()
}

pub(crate) fn sqrt(x: Decimal128) -> Decimal128 {
    let number = match kind(x) {
        Kind::Nan => return Decimal128::NAN,
        Kind::Infinity { negative: false } => return x,
        Kind::Infinity { negative: true } => return Decimal128::NAN,
        Kind::Zero => return half_exponent(x, zero(x.is_negative())),
        Kind::Number(number) if is_negative(&number) => return Decimal128::NAN,
        Kind::Number(number) => number,
    };
    match Context::new(DIGITS).sqrt(&number) {
        Ok(Rounded::Exact(root)) => half_exponent(x, decimal(root.repr())),
        _ => rounded(|context| context.sqrt(&number)),
    }
}

/// The exact root of `x` with half of its exponent, as far as the digits reach.
fn half_exponent(x: Decimal128, root: Decimal128) -> Decimal128 {
    let exponent = x.to_parts().map_or(0, |(_, _, exponent)| exponent);
    let zero = Decimal128::from_parts(root.is_negative(), 0, i64::from(exponent.div_euclid(2)));
    root + zero
}

pub(crate) fn exp(x: Decimal128) -> Decimal128 {
    match kind(x) {
        Kind::Nan => Decimal128::NAN,
        Kind::Infinity { negative: false } => x,
        Kind::Infinity { negative: true } => Decimal128::ZERO,
        Kind::Zero => Decimal128::from(1),
        Kind::Number(number) if first_digit(&number) <= NEGLIGIBLE => {
            Decimal128::from(1).with_all_digits()
        }
        Kind::Number(number) => exponential(&number),
    }
}

/// The exponential function without the results that are out of range.
fn exponential(x: &Repr<10>) -> Decimal128 {
    // ln(10^6145) is 14149.6, ln(10^-6177) is -14223.
    if first_digit(x) < 5 {
        rounded(|context| context.exp(x, None))
    } else if is_negative(x) {
        Decimal128::ZERO.with_all_digits()
    } else {
        Decimal128::INFINITY
    }
}

/// The natural logarithm of a number above zero.
pub(crate) fn ln(x: Decimal128) -> Decimal128 {
    match kind(x) {
        Kind::Nan => Decimal128::NAN,
        Kind::Infinity { .. } => x,
        Kind::Zero => Decimal128::NEG_INFINITY,
        Kind::Number(_) if is_one(x) => Decimal128::ZERO,
        Kind::Number(number) => rounded(|context| context.ln(&number, None)),
    }
}

/// The logarithm of a number above zero to base 10.
pub(crate) fn log10(x: Decimal128) -> Decimal128 {
    log(x, Decimal128::from(10))
}

fn is_one(x: Decimal128) -> bool {
    x.compare(Decimal128::from(1)).is_eq()
}

/// The logarithm of a number above zero to a base above zero other than 1.
pub(crate) fn log(x: Decimal128, base: Decimal128) -> Decimal128 {
    let (number, of_base) = match (kind(x), kind(base)) {
        (Kind::Number(number), Kind::Number(of_base)) => (number, of_base),
        // The quotient of logarithms of which one is infinite or no number.
        _ => return ln(x) / ln(base),
    };
    let context = Context::new(GUARDED);
    let logarithm = |x: &Repr<10>| context.ln(x, None).map(Rounded::value);
    let (Ok(number_ln), Ok(base_ln)) = (logarithm(&number), logarithm(&of_base)) else {
        return Decimal128::NAN;
    };
    let quotient = rounded(|context| context.div(number_ln.repr(), base_ln.repr()));
    // An integer may be the exact result.
    match quotient.to_i64_lossless() {
        Some(whole) if pow(base, whole.into()).compare(x).is_eq() => whole.into(),
        _ => quotient,
    }
}

/// A power, with the results for special numbers that C defines. All have all digits, as in MongoDB.
pub(crate) fn pow(x: Decimal128, y: Decimal128) -> Decimal128 {
    power(x, y).with_all_digits()
}

fn power(x: Decimal128, y: Decimal128) -> Decimal128 {
    let one = Decimal128::from(1);
    if is_one(x) {
        return one;
    }
    let (is_whole, is_odd) = parity(y);
    let negative = x.is_negative() && is_odd;
    match (kind(x), kind(y)) {
        (_, Kind::Zero) => one,
        (Kind::Nan, _) | (_, Kind::Nan) => Decimal128::NAN,
        (_, Kind::Infinity { negative: falls }) => match x.abs().compare(one) {
            Ordering::Equal => one,
            Ordering::Less if falls => Decimal128::INFINITY,
            Ordering::Greater if !falls => Decimal128::INFINITY,
            _ => Decimal128::ZERO,
        },
        (Kind::Zero, _) if y.is_negative() => infinity(negative),
        (Kind::Zero, _) => zero(negative),
        (Kind::Infinity { .. }, _) if y.is_negative() => zero(negative),
        (Kind::Infinity { .. }, _) => infinity(negative),
        (Kind::Number(_), Kind::Number(_)) if x.is_negative() && !is_whole => Decimal128::NAN,
        (Kind::Number(base), Kind::Number(exponent)) => {
            let base = if is_negative(&base) { -base } else { base };
            let magnitude = finite_power(&base, &exponent);
            if negative { -magnitude } else { magnitude }
        }
    }
}

/// Whether a number is an integer, and an odd one.
fn parity(y: Decimal128) -> (bool, bool) {
    match y.to_parts() {
        Some((_, coefficient, 0)) => (true, coefficient % 2 == 1),
        Some((_, _, 1..)) => (true, false),
        Some((_, coefficient, exponent)) => match 10u128.checked_pow(exponent.unsigned_abs()) {
            Some(unit) if coefficient.is_multiple_of(unit) => (true, coefficient / unit % 2 == 1),
            _ => (coefficient == 0, false),
        },
        None => (false, false),
    }
}

/// The power of a positive base.
fn finite_power(base: &Repr<10>, exponent: &Repr<10>) -> Decimal128 {
    // Results out of range are recognized by their logarithm: some could not be computed at all.
    let rough = Context::new(10);
    let log = rough.log10(base, None).map(Rounded::value);
    let log = log.and_then(|log| rough.mul(log.repr(), exponent).map(Rounded::value));
    let Ok(log) = log else {
        return Decimal128::NAN;
    };
    let is_below = is_negative(log.repr());
    let log = log.to_f64().value();
    if first_digit_is_beyond(log) {
        return if is_below {
            Decimal128::ZERO
        } else {
            Decimal128::INFINITY
        };
    }
    rounded(|context| context.powf(base, exponent, None))
}

/// Whether a number with this decimal logarithm is certainly out of range.
fn first_digit_is_beyond(log: f64) -> bool {
    !(((FIRST_DIGIT_MIN - 2) as f64)..=((FIRST_DIGIT_MAX + 2) as f64)).contains(&log)
}

/// The sine of a finite number.
pub(crate) fn sin(x: Decimal128) -> Decimal128 {
    odd(x, |x| match Quarter::new(&x) {
        None => rounded(|context| context.sin(&x, None)),
        Some(quarter) => {
            let sine = quarter.sine_from(0);
            if is_negative(&x) { -sine } else { sine }
        }
    })
}

/// The cosine of a finite number.
pub(crate) fn cos(x: Decimal128) -> Decimal128 {
    even(x, |x| match Quarter::new(&x) {
        None => rounded(|context| context.cos(&x, None)),
        // The cosine is the sine a quarter later.
        Some(quarter) => quarter.sine_from(1),
    })
}

/// The tangent of a finite number.
pub(crate) fn tan(x: Decimal128) -> Decimal128 {
    odd(x, |x| match Quarter::new(&x) {
        None => rounded(|context| context.tan(&x, None)),
        Some(quarter) => {
            let tangent = quarter.tangent();
            if is_negative(&x) { -tangent } else { tangent }
        }
    })
}

/// The angle of a large number after its reduction by pi, without its sign.
struct Quarter {
    /// The quarters before it, of which the last two bits matter.
    number: u8,
    /// The angle from the beginning of its quarter.
    angle: Repr<10>,
}

/// Digits behind the point of an angle. The decimals nearest to multiples of pi / 2 leave some 40 of them zero.
const ANGLE_DIGITS: usize = 120;

/// The number `pi / 2` as an integer, scaled by a power of ten, for the largest decimals.
static HALF_PI: LazyLock<(IBig, isize)> = LazyLock::new(|| {
    let digits = FIRST_DIGIT_MAX.unsigned_abs() as usize + ANGLE_DIGITS + DIGITS;
    let pi = Context::new(digits).pi::<10>(None).value();
    let (significand, exponent) = pi.repr().clone().into_parts();
    // Half of it, as five times a tenth.
    (significand * IBig::from(5), exponent - 1)
});

impl Quarter {
    /// `None` of a number that is small enough to leave this to the library, which would compute pi for each large one.
    fn new(x: &Repr<10>) -> Option<Quarter> {
        let first = usize::try_from(first_digit(x)).ok()?;
        if first < 3 {
            return None;
        }
        let digits = first + ANGLE_DIGITS;
        let power = |exponent: usize| IBig::from(10).pow(exponent);
        let (half_pi, exponent) = &*HALF_PI;
        let excess = exponent.unsigned_abs().checked_sub(digits)?;
        let half_pi = half_pi / power(excess);
        let (significand, exponent) = x.clone().into_parts();
        let scale = usize::try_from(exponent + digits as isize).ok()?;
        let (quarters, angle) = (unsigned(significand) * power(scale)).div_rem(half_pi);
        Some(Quarter {
            number: u8::try_from(quarters % IBig::from(4)).ok()?,
            angle: Repr::new(angle, -(digits as isize)),
        })
    }

    /// The sine of the angle after adding a number of quarter turns.
    fn sine_from(&self, quarters: u8) -> Decimal128 {
        let number = self.number + quarters;
        let value = match number % 2 {
            0 => rounded(|context| context.sin(&self.angle, None)),
            _ => rounded(|context| context.cos(&self.angle, None)),
        };
        if number % 4 >= 2 { -value } else { value }
    }

    fn tangent(&self) -> Decimal128 {
        if self.number.is_multiple_of(2) {
            return rounded(|context| context.tan(&self.angle, None));
        }
        let Ok(tangent) = Context::new(GUARDED).tan(&self.angle, None) else {
            return Decimal128::NAN;
        };
        let minus_one = Repr::new(IBig::from(-1), 0);
        rounded(|context| context.div(&minus_one, tangent.value_ref().repr()))
    }
}

fn unsigned(number: IBig) -> IBig {
    if number < IBig::ZERO { -number } else { number }
}

/// The arc sine of a number from -1 to 1.
pub(crate) fn asin(x: Decimal128) -> Decimal128 {
    odd(x, |x| rounded(|context| context.asin(&x, None)))
}

/// The arc cosine of a number from -1 to 1.
pub(crate) fn acos(x: Decimal128) -> Decimal128 {
    match kind(x) {
        Kind::Nan | Kind::Infinity { .. } => Decimal128::NAN,
        Kind::Zero => fraction_of_pi(2),
        Kind::Number(number) if first_digit(&number) <= NEGLIGIBLE => fraction_of_pi(2),
        Kind::Number(_) if is_one(x) => Decimal128::ZERO,
        Kind::Number(number) => rounded(|context| context.acos(&number, None)),
    }
}

/// The number pi divided by an integer.
fn fraction_of_pi(divisor: i32) -> Decimal128 {
    let pi = Context::new(GUARDED).pi::<10>(None).value();
    let divisor = Repr::new(IBig::from(divisor), 0);
    rounded(|context| context.div(pi.repr(), &divisor))
}

pub(crate) fn atan(x: Decimal128) -> Decimal128 {
    match kind(x) {
        Kind::Infinity { negative: true } => -fraction_of_pi(2),
        Kind::Infinity { negative: false } => fraction_of_pi(2),
        _ => odd(x, |x| rounded(|context| context.atan(&x, None))),
    }
}

/// The angle of the point (x, y), with the results for special numbers that C defines.
pub(crate) fn atan2(y: Decimal128, x: Decimal128) -> Decimal128 {
    let signed = |angle: Decimal128| if y.is_negative() { -angle } else { angle };
    let pi = || fraction_of_pi(1);
    match (kind(y), kind(x)) {
        (Kind::Nan, _) | (_, Kind::Nan) => Decimal128::NAN,
        (Kind::Infinity { .. }, Kind::Infinity { negative: true }) => {
            let quarters = Decimal128::from(3) * fraction_of_pi(4);
            signed(quarters)
        }
        (Kind::Infinity { .. }, Kind::Infinity { negative: false }) => signed(fraction_of_pi(4)),
        (Kind::Infinity { .. }, _) | (Kind::Number(_), Kind::Zero) => signed(fraction_of_pi(2)),
        (_, Kind::Infinity { negative: true }) => signed(pi()),
        (_, Kind::Infinity { negative: false }) => zero(y.is_negative()),
        (Kind::Zero, _) if x.is_negative() => signed(pi()),
        (Kind::Zero, _) => y,
        (Kind::Number(above), Kind::Number(beside)) => {
            // A point almost on an axis: the angle is that of the axis, or the quotient.
            let distance = first_digit(&above) - first_digit(&beside);
            let limit = -NEGLIGIBLE + 1;
            match (distance, x.is_negative()) {
                (distance, _) if distance > limit => signed(fraction_of_pi(2)),
                (distance, true) if distance < -limit => signed(pi()),
                (distance, false) if distance < -limit => {
                    rounded(|context| context.div(&above, &beside)).with_all_digits()
                }
                _ => rounded(|context| context.atan2(&above, &beside, None)),
            }
        }
    }
}

pub(crate) fn sinh(x: Decimal128) -> Decimal128 {
    match kind(x) {
        Kind::Infinity { .. } => x,
        Kind::Number(number) if first_digit(&number) >= 5 => infinity(is_negative(&number)),
        _ => odd(x, |x| rounded(|context| context.sinh(&x, None))),
    }
}

pub(crate) fn cosh(x: Decimal128) -> Decimal128 {
    match kind(x) {
        Kind::Infinity { .. } => Decimal128::INFINITY,
        Kind::Number(number) if first_digit(&number) >= 5 => Decimal128::INFINITY,
        _ => even(x, |x| rounded(|context| context.cosh(&x, None))),
    }
}

pub(crate) fn tanh(x: Decimal128) -> Decimal128 {
    let one = |negative: bool| Decimal128::from(if negative { -1 } else { 1 });
    match kind(x) {
        Kind::Infinity { negative } => one(negative),
        // From 100 on the difference to 1 has 86 zeros.
        Kind::Number(number) if first_digit(&number) >= 2 => {
            one(is_negative(&number)).with_all_digits()
        }
        _ => odd(x, |x| rounded(|context| context.tanh(&x, None))),
    }
}

pub(crate) fn asinh(x: Decimal128) -> Decimal128 {
    match kind(x) {
        Kind::Infinity { .. } => x,
        _ => odd(x, |x| rounded(|context| context.asinh(&x, None))),
    }
}

/// The inverse of [`cosh`], of a number from 1 on.
pub(crate) fn acosh(x: Decimal128) -> Decimal128 {
    match kind(x) {
        Kind::Infinity { negative: false } => x,
        Kind::Number(_) if is_one(x) => Decimal128::ZERO,
        Kind::Number(number) => rounded(|context| context.acosh(&number, None)),
        _ => Decimal128::NAN,
    }
}

/// The inverse of [`tanh`], of a number from -1 to 1, where it is infinite.
pub(crate) fn atanh(x: Decimal128) -> Decimal128 {
    match x.abs().compare(Decimal128::from(1)) {
        Ordering::Equal => infinity(x.is_negative()),
        _ => odd(x, |x| rounded(|context| context.atanh(&x, None))),
    }
}

/// A function that is nearly its argument near zero.
fn odd(x: Decimal128, compute: impl FnOnce(Repr<10>) -> Decimal128) -> Decimal128 {
    match kind(x) {
        Kind::Nan | Kind::Infinity { .. } => Decimal128::NAN,
        Kind::Zero => x,
        Kind::Number(number) if first_digit(&number) <= TINY => x.with_all_digits(),
        Kind::Number(number) => compute(number),
    }
}

/// A function that is nearly 1 near zero.
fn even(x: Decimal128, compute: impl FnOnce(Repr<10>) -> Decimal128) -> Decimal128 {
    match kind(x) {
        Kind::Nan | Kind::Infinity { .. } => Decimal128::NAN,
        Kind::Zero => Decimal128::from(1),
        // The square does not change 1.
        Kind::Number(number) if first_digit(&number) <= TINY => {
            Decimal128::from(1).with_all_digits()
        }
        Kind::Number(number) => compute(number),
    }
}

/// Degrees from radians, in MongoDB's steps: its constants have 34 digits.
pub(crate) fn to_degrees(x: Decimal128) -> Decimal128 {
    x * (Decimal128::from(180) / fraction_of_pi(1))
}

/// Radians from degrees, in the same way.
pub(crate) fn to_radians(x: Decimal128) -> Decimal128 {
    x * (fraction_of_pi(1) / Decimal128::from(180))
}
