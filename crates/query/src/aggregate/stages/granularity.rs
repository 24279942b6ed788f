//! Preferred numbers: the series to which `$bucketAuto` rounds boundaries.
//!
//! Renard series (ISO 3), E series (IEC 60063), 1-2-5, and powers of two.

use crate::decimal;
use crate::number::Number;
use frond_bson::{Decimal128, Rounding, Value};
use frond_error::{Error, Result};

const RENARD_5: &[u16] = &[10, 16, 25, 40, 63];
const RENARD_10: &[u16] = &[100, 125, 160, 200, 250, 315, 400, 500, 630, 800];
const RENARD_20: &[u16] = &[
    100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800,
    900,
];
const RENARD_40: &[u16] = &[
    100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212, 224, 236, 250, 265, 280,
    300, 315, 335, 355, 375, 400, 425, 450, 475, 500, 530, 560, 600, 630, 670, 710, 750, 800, 850,
    900, 950,
];
const RENARD_80: &[u16] = &[
    103, 109, 115, 122, 128, 136, 145, 155, 165, 175, 185, 195, 206, 218, 230, 243, 258, 272, 290,
    307, 325, 345, 365, 387, 412, 437, 462, 487, 515, 545, 575, 615, 650, 690, 730, 775, 825, 875,
    925, 975,
];
const SERIES_125: &[u16] = &[10, 20, 50];
const E6: &[u16] = &[10, 15, 22, 33, 47, 68];
const E12: &[u16] = &[10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82];
const E24: &[u16] = &[
    10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91,
];
const E48: &[u16] = &[
    100, 105, 110, 115, 121, 127, 133, 140, 147, 154, 162, 169, 178, 187, 196, 205, 215, 226, 237,
    249, 261, 274, 287, 301, 316, 332, 348, 365, 383, 402, 422, 442, 464, 487, 511, 536, 562, 590,
    619, 649, 681, 715, 750, 787, 825, 866, 909, 953,
];
const E96: &[u16] = &[
    100, 102, 105, 107, 110, 113, 115, 118, 121, 124, 127, 130, 133, 137, 140, 143, 147, 150, 154,
    158, 162, 165, 169, 174, 178, 182, 187, 191, 196, 200, 205, 210, 215, 221, 226, 232, 237, 243,
    249, 255, 261, 267, 274, 280, 287, 294, 301, 309, 316, 324, 332, 340, 348, 357, 365, 374, 383,
    392, 402, 412, 422, 432, 442, 453, 464, 475, 487, 499, 511, 523, 536, 549, 562, 576, 590, 604,
    619, 634, 649, 665, 681, 698, 715, 732, 750, 768, 787, 806, 825, 845, 866, 887, 909, 931, 953,
    976,
];
const E192: &[u16] = &[
    100, 101, 102, 104, 105, 106, 107, 109, 110, 111, 113, 114, 115, 117, 118, 120, 121, 123, 124,
    126, 127, 129, 130, 132, 133, 135, 137, 138, 140, 142, 143, 145, 147, 149, 150, 152, 154, 156,
    158, 160, 162, 164, 165, 167, 169, 172, 174, 176, 178, 180, 182, 184, 187, 189, 191, 193, 196,
    198, 200, 203, 205, 208, 210, 213, 215, 218, 221, 223, 226, 229, 232, 234, 237, 240, 243, 246,
    249, 252, 255, 258, 261, 264, 267, 271, 274, 277, 280, 284, 287, 291, 294, 298, 301, 305, 309,
    312, 316, 320, 324, 328, 332, 336, 340, 344, 348, 352, 357, 361, 365, 370, 374, 379, 383, 388,
    392, 397, 402, 407, 412, 417, 422, 427, 432, 437, 442, 448, 453, 459, 464, 470, 475, 481, 487,
    493, 499, 505, 511, 517, 523, 530, 536, 542, 549, 556, 562, 569, 576, 583, 590, 597, 604, 612,
    619, 626, 634, 642, 649, 657, 665, 673, 681, 690, 698, 706, 715, 723, 732, 741, 750, 759, 768,
    777, 787, 796, 806, 816, 825, 835, 845, 856, 866, 876, 887, 898, 909, 920, 931, 942, 953, 965,
    976, 988,
];

/// A series of numbers to round to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Granularity {
    /// These numbers, times all powers of ten.
    Series(&'static [u16]),
    PowersOfTwo,
}

impl Granularity {
    /// The series with this name. Error 40257 for none.
    pub(super) fn named(name: &str) -> Result<Granularity> {
        Ok(Granularity::Series(match name {
            "POWERSOF2" => return Ok(Granularity::PowersOfTwo),
            "R5" => RENARD_5,
            "R10" => RENARD_10,
            "R20" => RENARD_20,
            "R40" => RENARD_40,
            "R80" => RENARD_80,
            "1-2-5" => SERIES_125,
            "E6" => E6,
            "E12" => E12,
            "E24" => E24,
            "E48" => E48,
            "E96" => E96,
            "E192" => E192,
            _ => {
                return Err(Error::location(
                    40257,
                    format!("Unknown rounding granularity '{name}'"),
                ));
            }
        }))
    }

    /// Fails for a value that cannot be rounded: 40258, 40259, 40260.
    pub(super) fn check(value: &Value<'_>) -> Result<()> {
        if !value.is_number() {
            return Err(Error::location(
                40258,
                format!(
                    "$bucketAuto can specify a 'granularity' with numeric boundaries only, but \
                     found a value with type: {}",
                    value.type_name()
                ),
            ));
        }
        if value.is_nan() {
            return Err(Error::location(
                40259,
                "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a \
                 NaN",
            ));
        }
        let is_negative = match value {
            Value::Decimal128(number) => number.is_negative() && !number.is_zero(),
            number => number.as_f64().is_some_and(|number| number < 0.0),
        };
        if is_negative {
            return Err(Error::location(
                40260,
                "$bucketAuto can specify a 'granularity' with non-negative numbers only, but found \
                 a negative number",
            ));
        }
        Ok(())
    }

    /// The next number of the series above a value.
    pub(super) fn up(self, value: &Value<'_>) -> Value<'static> {
        self.round(value, true)
    }

    /// The next number of the series below a value.
    pub(super) fn down(self, value: &Value<'_>) -> Value<'static> {
        self.round(value, false)
    }

    fn round(self, value: &Value<'_>, up: bool) -> Value<'static> {
        if let Some(Number::Decimal(number)) = Number::from_value(value) {
            return Value::Decimal128(self.round_decimal(number, up));
        }
        let number = value.as_f64().unwrap_or(0.0);
        match value {
            Value::Int32(0) => return Value::Int32(0),
            Value::Int64(0) => return Value::Int64(0),
            _ => {}
        }
        let rounded = if number == 0.0 || number.is_infinite() {
            number
        } else {
            match self {
                Granularity::PowersOfTwo => power_of_two(number, up),
                Granularity::Series(series) => in_series(number, series, up),
            }
        };
        Value::Double(rounded)
    }

    fn round_decimal(self, number: Decimal128, up: bool) -> Decimal128 {
        let Some((_, 1.., exponent)) = number.to_parts() else {
            return number;
        };
        let series = match self {
            Granularity::PowersOfTwo => return decimal_power_of_two(number, up),
            Granularity::Series(series) => series,
        };
        // A coefficient has at most 34 digits, a number of a series at most 4.
        let candidates = (-4i64..=34).flat_map(|digits| {
            let decade = i64::from(exponent) + digits;
            (series.iter()).map(move |n| Decimal128::from_parts(false, u128::from(*n), decade))
        });
        let greatest = Decimal128::INFINITY;
        if up {
            candidates
                .filter(|candidate| candidate.compare(number).is_gt())
                .fold(greatest, |a, b| if b.compare(a).is_lt() { b } else { a })
        } else {
            candidates
                .filter(|candidate| candidate.compare(number).is_lt())
                .fold(
                    Decimal128::ZERO,
                    |a, b| if b.compare(a).is_gt() { b } else { a },
                )
        }
    }
}

/// As [`power_of_two`].
fn decimal_power_of_two(number: Decimal128, up: bool) -> Decimal128 {
    let two = Decimal128::from(2);
    let log = decimal::log(number, two).round_to_integral(Rounding::Floor);
    let power = decimal::pow(two, log);
    if up {
        return decimal::pow(two, log + Decimal128::from(1));
    }
    if power.compare(number).is_lt() {
        power
    } else {
        decimal::pow(two, log - Decimal128::from(1))
    }
}

/// The nearest power of two on one side, never the number itself.
fn power_of_two(number: f64, up: bool) -> f64 {
    let below = number.log2().floor() as i32;
    if up {
        return 2f64.powi(below + 1);
    }
    let power = 2f64.powi(below);
    if power < number { power } else { power / 2.0 }
}

/// The nearest number of a series on one side, never the number itself.
fn in_series(number: f64, series: &[u16], up: bool) -> f64 {
    let first = f64::from(series.first().copied().unwrap_or(1));
    // The decade that the number is in or next to; its neighbours are tried too.
    let decade = (number / first).log10().floor() as i32;
    let candidates =
        (decade - 1..=decade + 1).flat_map(|decade| series.iter().map(move |n| scaled(*n, decade)));
    if up {
        candidates
            .filter(|candidate| *candidate > number)
            .fold(f64::INFINITY, f64::min)
    } else {
        candidates
            .filter(|candidate| *candidate < number)
            .fold(0.0, f64::max)
    }
}

/// `n` times a power of ten, exact where a double can be.
fn scaled(n: u16, decade: i32) -> f64 {
    if decade < 0 {
        f64::from(n) / 10f64.powi(-decade)
    } else {
        f64::from(n) * 10f64.powi(decade)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_to_their_neighbours() {
        for (name, number, down, up) in [
            ("R5", 10.0, 6.3, 16.0),
            ("R5", 11.0, 10.0, 16.0),
            ("R5", 64.0, 63.0, 100.0),
            ("R10", 0.1, 0.08, 0.125),
            ("R80", 100.0, 97.5, 103.0),
            ("R80", 10.1, 9.75, 10.3),
            ("1-2-5", 3.0, 2.0, 5.0),
            ("1-2-5", 5000.0, 2000.0, 10_000.0),
            ("E6", 7.0, 6.8, 10.0),
            ("E192", 99.0, 98.8, 100.0),
            ("POWERSOF2", 8.0, 4.0, 16.0),
            ("POWERSOF2", 9.0, 8.0, 16.0),
            ("POWERSOF2", 0.3, 0.25, 0.5),
            ("E24", 0.0, 0.0, 0.0),
        ] {
            let series = Granularity::named(name).unwrap();
            let value = Value::Double(number);
            let rounded = (series.down(&value), series.up(&value));
            assert_eq!(
                rounded,
                (Value::Double(down), Value::Double(up)),
                "{name} {number}"
            );
        }
        assert_eq!(Granularity::named("R6").unwrap_err().code().code(), 40257);
        for (name, number, down, up) in [
            ("1-2-5", "3", "2", "5"),
            ("1-2-5", "1E-6000", "5E-6001", "2E-6000"),
            ("R5", "6.3E+6100", "4E+6100", "1E+6101"),
            (
                "E192",
                "9880000000000000000000000000000001E-31",
                "988",
                "1000",
            ),
            ("POWERSOF2", "8", "4", "16"),
            ("POWERSOF2", "9.5", "8", "16"),
            ("POWERSOF2", "0", "0", "0"),
        ] {
            let series = Granularity::named(name).unwrap();
            let value = Value::Decimal128(number.parse().unwrap());
            for (rounded, expected) in [(series.down(&value), down), (series.up(&value), up)] {
                let Value::Decimal128(rounded) = rounded else {
                    panic!("{name} {number}: {rounded:?}");
                };
                let expected = expected.parse().unwrap();
                assert!(
                    rounded.compare(expected).is_eq(),
                    "{name} {number}: {rounded}"
                );
            }
        }
    }

    #[test]
    fn series_ascend_within_a_decade() {
        for name in [
            "R5", "R10", "R20", "R40", "R80", "1-2-5", "E6", "E12", "E24", "E48", "E96", "E192",
        ] {
            let Granularity::Series(series) = Granularity::named(name).unwrap() else {
                panic!("{name}");
            };
            assert!(series.is_sorted_by(|a, b| a < b), "{name}");
            assert!(series.last().unwrap() < &(series.first().unwrap() * 10));
        }
        assert_eq!((E48.len(), E96.len(), E192.len()), (48, 96, 192));
    }
}
