//! Intervals of encoded values: the bounds of one index field.
//!
//! A field of an index key is a self-delimiting encoding: no encoding is a prefix of another. So a
//! range is a half-open interval of byte strings, and "exactly v" is the interval from `v`'s
//! encoding up to the first byte string that does not begin with it. Union, intersection and the
//! inversion for a descending field are then plain byte arithmetic.

pub mod conditions;

use std::cmp::Ordering;

use frond_bson::{Doc, OwnedValue, Value, key};

use crate::keyspace::after_prefix;

/// An end of an interval as `explain` shows it: the value, and whether it is inside.
#[derive(Clone, Debug)]
pub enum Label {
    /// A value of the filter.
    Value {
        value: OwnedValue,
        /// Whether the interval holds it.
        inclusive: bool,
    },
    /// The edge of a type class, as `MinKey`, `-inf.0` or `{}`.
    Edge {
        text: &'static str,
        /// Whether the interval holds it.
        inclusive: bool,
    },
}

impl Label {
    /// The lowest end of all.
    pub const MIN: Label = Label::Edge {
        text: "MinKey",
        inclusive: true,
    };
    /// The highest end of all.
    pub const MAX: Label = Label::Edge {
        text: "MaxKey",
        inclusive: true,
    };

    /// Whether the interval holds its end.
    pub fn inclusive(&self) -> bool {
        match self {
            Label::Value { inclusive, .. } | Label::Edge { inclusive, .. } => *inclusive,
        }
    }
}

/// A half-open interval of byte strings: `low <= x < high`; `high` is `None` at the upper end.
#[derive(Clone, Debug)]
pub struct Interval {
    /// First byte string inside.
    pub low: Vec<u8>,
    /// First byte string outside.
    pub high: Option<Vec<u8>>,
    /// The lower end as `explain` shows it.
    pub low_label: Label,
    /// The upper end as `explain` shows it.
    pub high_label: Label,
    /// Whether it holds one value only.
    pub point: bool,
}

/// Compares upper ends; `None` is above everything.
fn compare_high(a: Option<&[u8]>, b: Option<&[u8]>) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => a.cmp(b),
    }
}

/// Inverts every bit in place: the encoding of a descending field.
pub fn invert(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

impl Interval {
    pub fn all() -> Interval {
        Interval {
            low: Vec::new(),
            high: None,
            low_label: Label::MIN,
            high_label: Label::MAX,
            point: false,
        }
    }

    /// The value with this encoding, alone.
    pub fn point(encoded: Vec<u8>, value: OwnedValue) -> Interval {
        let label = Label::Value {
            value,
            inclusive: true,
        };
        Interval {
            high: after_prefix(&encoded),
            low: encoded,
            low_label: label.clone(),
            high_label: label,
            point: true,
        }
    }

    /// Whether `x` lies inside, below (`Less`) or above (`Greater`).
    pub fn locate(&self, x: &[u8]) -> Ordering {
        if x < self.low.as_slice() {
            Ordering::Less
        } else if self.high.as_deref().is_some_and(|high| x >= high) {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    }

    /// The value, if it holds no other.
    pub fn value(&self) -> Option<frond_bson::Value<'_>> {
        let labels = [&self.low_label, &self.high_label].into_iter();
        let mut values = labels.filter_map(|label| match label {
            Label::Value { value, .. } => Some(value.as_value()),
            Label::Edge { .. } => None,
        });
        values.next().filter(|_| self.point)
    }

    fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }

    /// Whether it holds every byte string.
    pub fn is_all(&self) -> bool {
        self.low.is_empty() && self.high.is_none()
    }

    /// The same values in a field stored descending.
    fn inverted(self) -> Interval {
        let inverted = |mut bytes: Vec<u8>| {
            invert(&mut bytes);
            after_prefix(&bytes)
        };
        Interval {
            low: self.high.and_then(inverted).unwrap_or_default(),
            high: inverted(self.low),
            low_label: self.high_label,
            high_label: self.low_label,
            point: self.point,
        }
    }
}

/// Disjoint intervals in ascending order.
#[derive(Clone, Debug)]
pub struct Intervals(Vec<Interval>);

impl Intervals {
    pub fn all() -> Intervals {
        Intervals(vec![Interval::all()])
    }

    pub fn none() -> Intervals {
        Intervals(Vec::new())
    }

    /// Whether some value inside is a string or may contain some, so that a collation matters.
    pub fn may_hold_text(&self) -> bool {
        let bracket = |value| key::bracket(&value, key::Direction::Ascending);
        let (strings, arrays) = (
            bracket(Value::String("")),
            bracket(Value::Array(Doc::empty())),
        );
        let code = bracket(Value::JavaScriptWithScope {
            code: "",
            scope: Doc::empty(),
        });
        self.0.iter().any(|interval| {
            [(strings.0, arrays.1), code].iter().any(|(low, high)| {
                interval.low.as_slice() < &[*high][..]
                    && (interval.high.as_deref()).is_none_or(|end| end > &[*low][..])
            })
        })
    }

    /// One interval, unless it is empty.
    pub fn one(interval: Interval) -> Intervals {
        Intervals::union_of(vec![interval])
    }

    /// The union of any intervals, in any order.
    pub fn union_of(mut parts: Vec<Interval>) -> Intervals {
        parts.retain(|part| !part.is_empty());
        parts.sort_by(|a, b| a.low.cmp(&b.low));
        let mut out: Vec<Interval> = Vec::with_capacity(parts.len());
        for part in parts {
            match out.last_mut() {
                // Neighbouring points stay apart: a list of points seeks, a range scans.
                Some(last) if overlaps(last, &part) => {
                    if compare_high(part.high.as_deref(), last.high.as_deref()).is_gt() {
                        last.high = part.high;
                        last.high_label = part.high_label;
                        last.point = false;
                    }
                }
                _ => out.push(part),
            }
        }
        Intervals(out)
    }

    /// The union with another set.
    pub fn union(mut self, other: Intervals) -> Intervals {
        self.0.extend(other.0);
        Intervals::union_of(self.0)
    }

    /// The intersection of both sets.
    pub fn intersection(&self, other: &Intervals) -> Intervals {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut out = Vec::new();
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            let (low, low_label) = if x.low >= y.low {
                (&x.low, &x.low_label)
            } else {
                (&y.low, &y.low_label)
            };
            let x_ends_first = compare_high(x.high.as_deref(), y.high.as_deref()).is_le();
            let end = if x_ends_first { x } else { y };
            let both = Interval {
                low: low.clone(),
                high: end.high.clone(),
                low_label: low_label.clone(),
                high_label: end.high_label.clone(),
                point: x.point || y.point,
            };
            if !both.is_empty() {
                out.push(both);
            }
            if x_ends_first {
                a.next();
            } else {
                b.next();
            }
        }
        Intervals(out)
    }

    pub fn complement(&self) -> Intervals {
        let mut out = Vec::with_capacity(self.0.len() + 1);
        let mut low = Vec::new();
        let mut low_label = Label::MIN;
        for hole in &self.0 {
            out.push(Interval {
                low: std::mem::take(&mut low),
                high: Some(hole.low.clone()),
                low_label: low_label.clone(),
                high_label: opposite(&hole.low_label),
                point: false,
            });
            match &hole.high {
                Some(high) => low = high.clone(),
                None => return Intervals::union_of(out),
            }
            low_label = opposite(&hole.high_label);
        }
        out.push(Interval {
            low,
            high: None,
            low_label,
            high_label: Label::MAX,
            point: false,
        });
        Intervals::union_of(out)
    }

    /// The same values in a field stored descending, in the order of that field's bytes.
    pub fn inverted(self) -> Intervals {
        Intervals(self.0.into_iter().rev().map(Interval::inverted).collect())
    }

    pub fn as_slice(&self) -> &[Interval] {
        &self.0
    }

    /// Whether nothing is inside.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether everything is inside.
    pub fn is_all(&self) -> bool {
        matches!(self.0.as_slice(), [one] if one.is_all())
    }

    /// Whether it is one single value.
    pub fn is_point(&self) -> bool {
        matches!(self.0.as_slice(), [one] if one.point)
    }

    /// Whether it is values only, no ranges.
    pub fn all_points(&self) -> bool {
        self.0.iter().all(|interval| interval.point)
    }

    /// Whether `x` is inside.
    pub fn contains(&self, x: &[u8]) -> bool {
        let at = self
            .0
            .partition_point(|interval| interval.locate(x).is_gt());
        self.0
            .get(at)
            .is_some_and(|interval| interval.locate(x).is_eq())
    }
}

/// Whether `b`, which begins no lower than `a`, begins inside `a`.
fn overlaps(a: &Interval, b: &Interval) -> bool {
    a.high.as_ref().is_none_or(|high| b.low < *high)
}

/// The label of the other side of a cut.
fn opposite(label: &Label) -> Label {
    match label.clone() {
        Label::Value { value, inclusive } => Label::Value {
            value,
            inclusive: !inclusive,
        },
        Label::Edge { text, inclusive } => Label::Edge {
            text,
            inclusive: !inclusive,
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn interval(low: &[u8], high: Option<&[u8]>) -> Interval {
        Interval {
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
            ..Interval::all()
        }
    }

    fn set(parts: &[(u8, u8)]) -> Intervals {
        Intervals::union_of(
            parts
                .iter()
                .map(|&(low, high)| interval(&[low], Some(&[high])))
                .collect(),
        )
    }

    /// The one-byte strings inside.
    fn bytes(set: &Intervals) -> Vec<u8> {
        (0..=255).filter(|&byte| set.contains(&[byte])).collect()
    }

    #[test]
    fn set_operations_agree_with_sets_of_bytes() {
        let sets = [
            set(&[]),
            set(&[(3, 9)]),
            set(&[(9, 12), (1, 4)]),
            set(&[(0, 255)]),
            set(&[(5, 6), (6, 7), (200, 250)]),
            Intervals::all(),
        ];
        for a in &sets {
            let complement: Vec<u8> = (0..=255).filter(|b| !bytes(a).contains(b)).collect();
            assert_eq!(bytes(&a.complement()), complement);
            for b in &sets {
                let both: Vec<u8> = bytes(a)
                    .into_iter()
                    .filter(|x| bytes(b).contains(x))
                    .collect();
                assert_eq!(bytes(&a.intersection(b)), both);
                let any: Vec<u8> = (0..=255)
                    .filter(|x| bytes(a).contains(x) || bytes(b).contains(x))
                    .collect();
                assert_eq!(bytes(&a.clone().union(b.clone())), any);
            }
        }
    }

    #[test]
    fn inverting_keeps_the_values_and_turns_the_order() {
        // Two-byte strings stand for self-delimiting encodings.
        for (low, high) in [
            (vec![3, 7], Some(vec![9, 0])),
            (vec![], Some(vec![4])),
            (vec![0xff, 2], None),
        ] {
            let ascending = Intervals::one(interval(&low, high.as_deref()));
            let descending = ascending.clone().inverted();
            for first in 0..=255 {
                for second in [0, 1, 6, 7, 8, 254, 255] {
                    let mut x = [first, second];
                    let inside = ascending.contains(&x);
                    invert(&mut x);
                    assert_eq!(descending.contains(&x), inside, "{first} {second}");
                }
            }
        }
    }

    #[test]
    fn points_that_touch_stay_points() {
        let point =
            |byte: u8| Interval::point(vec![byte], OwnedValue::from(frond_bson::Value::Null));
        let set = Intervals::union_of(vec![point(4), point(3), point(3)]);
        assert_eq!(set.as_slice().len(), 2);
        assert!(set.all_points());
    }
}
