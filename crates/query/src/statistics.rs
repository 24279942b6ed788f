//! Running sums, averages and deviations, for accumulators and for expressions over arrays.

use crate::decimal;
use crate::number::Number;
use frond_bson::{Decimal128, Value};

/// A sum of numbers of any type; other values are ignored.
///
/// Integers are added exactly and doubles with the error of each addition carried along (Neumaier's
/// variant of Kahan summation), so the result does not depend on the order of small and large terms.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    integers: i128,
    double: f64,
    /// The rounding errors of the additions to `double`.
    lost: f64,
    decimal: Option<Decimal128>,
    has_long: bool,
    has_double: bool,
}

impl Sum {
    /// Adds a value. False if it is not a number.
    pub(crate) fn add(&mut self, value: &Value<'_>) -> bool {
        let Some(number) = Number::from_value(value) else {
            return false;
        };
        match number {
            Number::Int32(v) => self.integers += i128::from(v),
            Number::Int64(v) => {
                self.integers += i128::from(v);
                self.has_long = true;
            }
            Number::Double(v) => {
                self.has_double = true;
                let sum = self.double + v;
                // Infinities would turn the lost part into NaN.
                if sum.is_finite() {
                    self.lost += if self.double.abs() >= v.abs() {
                        (self.double - sum) + v
                    } else {
                        (v - sum) + self.double
                    };
                }
                self.double = sum;
            }
            Number::Decimal(v) => self.decimal = Some(self.decimal.map_or(v, |sum| sum + v)),
        }
        true
    }

    /// Adds the terms of another sum.
    pub(crate) fn merge(&mut self, other: &Sum) {
        self.integers += other.integers;
        self.has_long |= other.has_long;
        if other.has_double {
            self.add(&Value::Double(other.double));
            self.lost += other.lost;
        }
        if let Some(decimal) = other.decimal {
            self.add(&Value::Decimal128(decimal));
        }
    }

    /// The sum as the widest type of its terms: int, long where an int overflows, double where a
    /// long overflows, decimal.
    pub(crate) fn total(&self) -> Number {
        if let Some(decimal) = self.decimal {
            let mut total = decimal;
            if self.integers != 0 {
                total = total + self.integers_as_decimal();
            }
            if self.has_double {
                // With all of their digits, unlike where an expression mixes the types.
                total = total + (decimal::of_double(self.double) + decimal::of_double(self.lost));
            }
            return Number::Decimal(total);
        }
        if self.has_double {
            return Number::Double(self.doubles() + self.integers as f64);
        }
        match (i32::try_from(self.integers), i64::try_from(self.integers)) {
            (Ok(narrow), _) if !self.has_long => Number::Int32(narrow),
            (_, Ok(wide)) => Number::Int64(wide),
            _ => Number::Double(self.integers as f64),
        }
    }

    fn doubles(&self) -> f64 {
        self.double + self.lost
    }

    fn integers_as_decimal(&self) -> Decimal128 {
        match i64::try_from(self.integers) {
            Ok(fits) => fits.into(),
            Err(_) => self.integers.to_string().parse().unwrap_or(Decimal128::NAN),
        }
    }
}

/// The average of the numbers among values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Average {
    sum: Sum,
    count: i64,
}

impl Average {
    /// Adds a value; values other than numbers are ignored.
    pub(crate) fn add(&mut self, value: &Value<'_>) {
        if self.sum.add(value) {
            self.count += 1;
        }
    }

    /// Adds the numbers of another average.
    pub(crate) fn merge(&mut self, other: &Average) {
        self.sum.merge(&other.sum);
        self.count += other.count;
    }

    /// The average, `None` without numbers.
    pub(crate) fn result(&self) -> Option<Number> {
        if self.count == 0 {
            return None;
        }
        Some(match self.sum.total() {
            Number::Decimal(total) => Number::Decimal(total / Decimal128::from(self.count)),
            total => Number::Double(total.to_f64() / self.count as f64),
        })
    }
}

/// The standard deviation of the numbers among values, by Welford's method.
#[derive(Clone, Debug, Default)]
pub(crate) struct StdDev {
    count: u64,
    mean: f64,
    squares: f64,
}

impl StdDev {
    /// Adds a value; values other than numbers are ignored.
    pub(crate) fn add(&mut self, value: &Value<'_>) {
        let Some(number) = value.as_f64() else {
            return;
        };
        self.count += 1;
        let delta = number - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (number - self.mean);
    }

    /// Adds the numbers of another deviation, by the method of Chan, Golub and LeVeque.
    pub(crate) fn merge(&mut self, other: &StdDev) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other.clone();
            return;
        }
        let (own, its) = (self.count as f64, other.count as f64);
        let delta = other.mean - self.mean;
        self.mean += delta * its / (own + its);
        self.squares += other.squares + delta * delta * own * its / (own + its);
        self.count += other.count;
    }

    /// The deviation of a whole population, `None` without numbers.
    pub(crate) fn population(&self) -> Option<f64> {
        (self.count > 0).then(|| (self.squares / self.count as f64).sqrt())
    }

    /// The deviation estimated from a sample, `None` below two numbers.
    pub(crate) fn sample(&self) -> Option<f64> {
        (self.count > 1).then(|| (self.squares / (self.count - 1) as f64).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(values: &[Value<'_>]) -> Value<'static> {
        let mut sum = Sum::default();
        values.iter().for_each(|v| {
            sum.add(v);
        });
        sum.total().into()
    }

    #[test]
    fn sums_widen_only_as_needed() {
        use Value::{Double, Int32, Int64, Null};
        assert_eq!(total(&[]), Int32(0));
        assert_eq!(total(&[Int32(1), Null, Int32(2)]), Int32(3));
        assert_eq!(total(&[Int32(i32::MAX), Int32(1)]), Int64(2_147_483_648));
        assert_eq!(total(&[Int32(1), Int64(1)]), Int64(2));
        assert_eq!(
            total(&[Int64(i64::MAX), Int64(1)]),
            Double(9_223_372_036_854_775_808.0)
        );
        // Intermediate overflows do not matter.
        assert_eq!(
            total(&[Int64(i64::MAX), Int64(1), Int64(-1)]),
            Int64(i64::MAX)
        );
        assert_eq!(total(&[Int32(1), Double(0.5)]), Double(1.5));
        assert_eq!(
            total(&[Double(1e100), Double(1.0), Double(-1e100)]),
            Double(1.0)
        );
        assert_eq!(
            total(&[Double(f64::INFINITY), Double(1.0)]),
            Double(f64::INFINITY)
        );
        let tenth = "0.1".parse().unwrap_or(Decimal128::NAN);
        let sum = total(&[Value::Decimal128(tenth), Int32(1)]);
        assert_eq!(
            frond_bson::compare(&sum, &Value::Decimal128("1.1".parse().unwrap_or(tenth))),
            std::cmp::Ordering::Equal
        );
    }

    #[test]
    fn averages_and_deviations() {
        let mut average = Average::default();
        let mut deviation = StdDev::default();
        assert!(average.result().is_none());
        assert_eq!((deviation.population(), deviation.sample()), (None, None));
        for v in [2, 4, 4, 4, 5, 5, 7, 9] {
            average.add(&Value::Int32(v));
            deviation.add(&Value::Int32(v));
        }
        average.add(&Value::String("x"));
        assert_eq!(average.result().map(Value::from), Some(Value::Double(5.0)));
        assert_eq!(deviation.population(), Some(2.0));
        assert!(
            deviation
                .sample()
                .is_some_and(|d| (d - 2.138_089_935).abs() < 1e-9)
        );
    }
}
