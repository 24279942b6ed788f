//! Functions of decimals against results of another library, and for all kinds of arguments.

#![allow(clippy::unwrap_used)]

use super::*;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;

fn d(text: &str) -> Decimal128 {
    text.parse().unwrap()
}

type Unary = (&'static str, fn(Decimal128) -> Decimal128);
type Binary = (&'static str, fn(Decimal128, Decimal128) -> Decimal128);

const UNARY: &[Unary] = &[
    ("sqrt", sqrt),
    ("exp", exp),
    ("ln", ln),
    ("log10", log10),
    ("sin", sin),
    ("cos", cos),
    ("tan", tan),
    ("asin", asin),
    ("acos", acos),
    ("atan", atan),
    ("sinh", sinh),
    ("cosh", cosh),
    ("tanh", tanh),
    ("asinh", asinh),
    ("acosh", acosh),
    ("atanh", atanh),
];
const BINARY: &[Binary] = &[("pow", pow), ("log", log), ("atan2", atan2)];

/// See tests/data/decimal_functions.py, which makes them.
#[test]
fn results_have_34_correct_digits() {
    let mut counts = BTreeMap::new();
    let lines = include_str!("../../tests/data/decimal_functions.csv").lines();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let (name, result, expected) = match fields[..] {
            [name, x, expected] => {
                let (_, function) = UNARY.iter().find(|(known, _)| *known == name).unwrap();
                (name, function(d(x)), expected)
            }
            [name, x, y, expected] => {
                let (_, function) = BINARY.iter().find(|(known, _)| *known == name).unwrap();
                (name, function(d(x), d(y)), expected)
            }
            _ => panic!("{line}"),
        };
        assert_eq!(result.to_string(), expected, "{line}");
        *counts.entry(name).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), UNARY.len() + BINARY.len());
    assert!(counts.values().all(|count| *count >= 40), "{counts:?}");
}

#[test]
fn special_numbers() {
    for (result, expected) in [
        (exp(d("-Infinity")), "0"),
        (exp(d("Infinity")), "Infinity"),
        (exp(d("1E-6176")), "1.000000000000000000000000000000000"),
        (ln(d("0")), "-Infinity"),
        (log10(d("1E+6144")), "6144"),
        (log(d("Infinity"), d("2")), "Infinity"),
        (log(d("2"), d("Infinity")), "0E-6176"),
        (sqrt(d("-0.00")), "-0.0"),
        (sqrt(d("-1")), "NaN"),
        (sqrt(d("Infinity")), "Infinity"),
        (sqrt(d("1E-6176")), "1E-3088"),
        (sin(d("-0.00")), "-0.00"),
        (sin(d("1E-6176")), "1E-6176"),
        (tan(d("-1E-30")), "-1.000000000000000000000000000000000E-30"),
        (cos(d("1E-6176")), "1.000000000000000000000000000000000"),
        (atan(d("-Infinity")), "-1.570796326794896619231321691639751"),
        (acos(d("0")), "1.570796326794896619231321691639751"),
        (sinh(d("-1E+6144")), "-Infinity"),
        (cosh(d("-1E+6144")), "Infinity"),
        (tanh(d("-1E+6144")), "-1.000000000000000000000000000000000"),
        (tanh(d("Infinity")), "1"),
        (asinh(d("-Infinity")), "-Infinity"),
        (acosh(d("Infinity")), "Infinity"),
        (atanh(d("1.0")), "Infinity"),
        (atan2(d("0"), d("0")), "0"),
        (
            atan2(d("0"), d("-0")),
            "3.141592653589793238462643383279503",
        ),
        (
            atan2(d("Infinity"), d("-Infinity")),
            "2.356194490192344928846982537459627",
        ),
        (
            atan2(d("-1"), d("0")),
            "-1.570796326794896619231321691639751",
        ),
        (atan2(d("-1"), d("Infinity")), "-0"),
        (power(d("0"), d("0")), "1"),
        (power(d("-0"), d("3")), "-0"),
        (power(d("-0"), d("2")), "0"),
        (power(d("0"), d("-1")), "Infinity"),
        (power(d("-1"), d("Infinity")), "1"),
        (power(d("0.5"), d("Infinity")), "0"),
        (power(d("0.5"), d("-Infinity")), "Infinity"),
        (power(d("2"), d("-Infinity")), "0"),
        (power(d("-Infinity"), d("3")), "-Infinity"),
        (power(d("-Infinity"), d("-3")), "-0"),
        (power(d("Infinity"), d("0.5")), "Infinity"),
        (power(d("1"), d("NaN")), "1"),
        (power(d("NaN"), d("1")), "NaN"),
        (pow(d("-2"), d("3")), "-8.000000000000000000000000000000000"),
        (
            pow(d("-2"), d("3E+1")),
            "1073741824.000000000000000000000000",
        ),
        (pow(d("2"), d("9E+6144")), "Infinity"),
        (pow(d("2"), d("-9E+6144")), "0E-6176"),
        (pow(d("10"), d("-6176")), "1E-6176"),
        (pow(d("10"), d("-6177")), "0E-6176"),
        (of_double(0.1), "0.1000000000000000055511151231257827"),
        (of_double(-2.5), "-2.5"),
        (of_double(3.0), "3"),
        (of_double(f64::INFINITY), "Infinity"),
    ] {
        assert_eq!(result.to_string(), expected);
    }
}

/// No bytes make a function fail or run for long.
#[test]
fn all_decimals_have_results() {
    let mut random = rand::rngs::SmallRng::seed_from_u64(12);
    let mut any = || {
        let bytes: [u8; 16] = random.random();
        match random.random_range(0..4) {
            0 => Decimal128::from_bytes(bytes),
            1 => Decimal128::from_parts(
                bytes[0] & 1 == 1,
                u128::from_le_bytes(bytes) % 1000,
                random.random_range(-40..40),
            ),
            _ => Decimal128::from_parts(
                bytes[0] & 1 == 1,
                u128::from_le_bytes(bytes) >> (bytes[1] % 128),
                random.random_range(-80..10),
            ),
        }
    };
    for _ in 0..400 {
        let (x, y) = (any(), any());
        for (_, function) in UNARY {
            function(x);
        }
        for (_, function) in BINARY {
            function(x, y);
        }
    }
}

#[test]
fn functions_undo_one_another() {
    let mut random = rand::rngs::SmallRng::seed_from_u64(34);
    let tolerance = d("1E-31");
    let near = |a: Decimal128, b: Decimal128| (a - b).abs().compare(b.abs() * tolerance).is_le();
    let one = Decimal128::from(1);
    for _ in 0..100 {
        let coefficient = random.random_range(1..10u128.pow(34));
        let x = Decimal128::from_parts(false, coefficient, random.random_range(-40..-30));
        // The exponential of a number below 1 has lost digits.
        assert!(near(ln(exp(x)), x) || x.compare(one).is_lt(), "{x}");
        assert!(near(pow(sqrt(x), d("2")), x), "{x}");
        assert!(near(pow(pow(x, d("0.125")), d("8")), x), "{x}");
        assert!(near(sin(x) * sin(x) + cos(x) * cos(x), one), "{x}");
        assert!(near(sin(x) / cos(x), tan(x)), "{x}");
        assert!(near(sinh(x) / cosh(x), tanh(x)), "{x}");
    }
}
