//! States of sliding windows: documents enter at one end and leave at the other.

use crate::accumulators::{Plan, Start};
use crate::expr::{Context, Percentiles, Val, percentile_number};
use crate::number::Number;
use crate::statistics::{Average, StdDev, Sum};
use frond_bson::{ArrayBuf, Collator, Decimal128, Doc, OwnedValue, Value};
use frond_error::{Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The state of one function over a window.
pub(super) trait Sliding: Send {
    /// Adds the value of a document that enters. Returns the approximate number of bytes held for it.
    fn push(&mut self, value: &Val<'_>, context: &Context<'_>) -> Result<usize>;

    /// Removes the oldest document.
    fn pop(&mut self);

    fn result(&self) -> OwnedValue;
}

/// The state for an accumulator.
pub(super) fn of_accumulator(name: &str, plan: &Plan, now_ms: i64) -> Result<Box<dyn Sliding>> {
    let count = || match &plan.start {
        Start::Counted(_, n) | Start::CountedCollated(_, n, _) => n.get(Doc::empty(), now_ms),
        _ => Ok(1),
    };
    let collator = match &plan.start {
        Start::Collated(_, collator) | Start::CountedCollated(_, _, collator) => collator.clone(),
        _ => Collator::BINARY.clone(),
    };
    Ok(match name {
        "$sum" | "$count" => Box::new(Folded::<Sum>::default()),
        "$avg" => Box::new(Folded::<Average>::default()),
        "$stdDevPop" => Box::new(Folded::<Population>::default()),
        "$stdDevSamp" => Box::new(Folded::<Sample>::default()),
        "$min" => Box::new(Ranked::new(None, false, false, collator)),
        "$max" => Box::new(Ranked::new(None, true, false, collator)),
        "$push" => Box::new(Listed::new(Part::All)),
        "$first" => Box::new(Listed::new(Part::First)),
        "$last" => Box::new(Listed::new(Part::Last)),
        "$firstN" => Box::new(Listed::new(Part::FirstN(count()?))),
        "$lastN" => Box::new(Listed::new(Part::LastN(count()?))),
        "$addToSet" => Box::new(Distinct::new(collator)),
        "$minN" => Box::new(Ranked::new(Some(count()?), false, false, collator)),
        "$maxN" => Box::new(Ranked::new(Some(count()?), true, false, collator)),
        "$top" | "$bottom" | "$topN" | "$bottomN" => {
            let Start::Sorted(order) = &plan.start else {
                return Err(Error::internal(format!(
                    "{name} was parsed without an order"
                )));
            };
            let n = order.n.as_ref().map(|n| n.get(Doc::empty(), now_ms));
            let ranked = Ranked::new(n.transpose()?, order.bottom, true, collator);
            Box::new(Ordered {
                sort: order.sort.clone(),
                ranked,
            })
        }
        "$median" | "$percentile" => {
            let Start::Percentiles(percentiles) = &plan.start else {
                return Err(Error::internal(format!("{name} was parsed without shares")));
            };
            Box::new(Numbers {
                percentiles: percentiles.clone(),
                sorted: Vec::new(),
                entered: VecDeque::new(),
            })
        }
        other => {
            return Err(Error::location(
                5461500,
                format!("Window function {other} is not supported with a removable window"),
            ));
        }
    })
}

/// A result of several documents that is made of the results of its parts.
pub(super) trait Fold: Clone + Default + Send {
    /// The result of one document.
    fn from_value(value: &Val<'_>) -> Self;

    /// Puts what comes behind to it.
    fn merge(&mut self, behind: &Self);

    fn result(&self) -> OwnedValue;
}

/// A queue whose documents are folded, without taking anything out of a sum again: it is made of two
/// stacks, each with the folds of all its ends.
pub(super) struct Folded<F> {
    /// The front; each with all that are behind it there, the first of the queue last.
    front: Vec<F>,
    /// The back, in order.
    back: Vec<F>,
    /// All of the back.
    fold: F,
}

impl<F: Fold> Default for Folded<F> {
    fn default() -> Folded<F> {
        Folded {
            front: Vec::new(),
            back: Vec::new(),
            fold: F::default(),
        }
    }
}

impl<F: Fold> Folded<F> {
    pub(super) fn push_fold(&mut self, fold: F) {
        self.fold.merge(&fold);
        self.back.push(fold);
    }
}

impl<F: Fold> Sliding for Folded<F> {
    fn push(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        self.push_fold(F::from_value(value));
        Ok(size_of::<F>())
    }

    fn pop(&mut self) {
        if self.front.is_empty() {
            let mut all = F::default();
            for mut fold in self.back.drain(..).rev() {
                fold.merge(&all);
                all = fold.clone();
                self.front.push(fold);
            }
            self.fold = F::default();
        }
        self.front.pop();
    }

    fn result(&self) -> OwnedValue {
        match self.front.last() {
            None => self.fold.result(),
            Some(front) => {
                let mut all = front.clone();
                all.merge(&self.fold);
                all.result()
            }
        }
    }
}

impl Fold for Sum {
    fn from_value(value: &Val<'_>) -> Sum {
        let mut sum = Sum::default();
        if let Some(value) = value.get() {
            sum.add(&value);
        }
        sum
    }

    fn merge(&mut self, behind: &Sum) {
        Sum::merge(self, behind);
    }

    fn result(&self) -> OwnedValue {
        Value::from(self.total()).to_owned()
    }
}

impl Fold for Average {
    fn from_value(value: &Val<'_>) -> Average {
        let mut average = Average::default();
        if let Some(value) = value.get() {
            average.add(&value);
        }
        average
    }

    fn merge(&mut self, behind: &Average) {
        Average::merge(self, behind);
    }

    fn result(&self) -> OwnedValue {
        Average::result(self).map_or(OwnedValue::Null, |number| Value::from(number).to_owned())
    }
}

#[derive(Clone, Default)]
struct Population(StdDev);
#[derive(Clone, Default)]
struct Sample(StdDev);

fn deviation(value: &Val<'_>) -> StdDev {
    let mut deviation = StdDev::default();
    if let Some(value) = value.get() {
        deviation.add(&value);
    }
    deviation
}

fn double(number: Option<f64>) -> OwnedValue {
    number.map_or(OwnedValue::Null, OwnedValue::Double)
}

impl Fold for Population {
    fn from_value(value: &Val<'_>) -> Population {
        Population(deviation(value))
    }

    fn merge(&mut self, behind: &Population) {
        self.0.merge(&behind.0);
    }

    fn result(&self) -> OwnedValue {
        double(self.0.population())
    }
}

impl Fold for Sample {
    fn from_value(value: &Val<'_>) -> Sample {
        Sample(deviation(value))
    }

    fn merge(&mut self, behind: &Sample) {
        self.0.merge(&behind.0);
    }

    fn result(&self) -> OwnedValue {
        double(self.0.sample())
    }
}

/// The value that takes part in an extreme.
fn comparable(value: &Val<'_>) -> Option<OwnedValue> {
    let value = value.get().filter(|value| !value.is_nullish());
    value.map(|value| value.to_owned())
}

/// Covariance by Welford's method, in decimals once one of the numbers is a decimal.
#[derive(Clone)]
pub(super) struct Covariance<const SAMPLE: bool> {
    count: i64,
    mean_x: Number,
    mean_y: Number,
    products: Number,
    is_decimal: bool,
}

impl<const SAMPLE: bool> Default for Covariance<SAMPLE> {
    fn default() -> Self {
        Covariance {
            count: 0,
            mean_x: Number::Double(0.0),
            mean_y: Number::Double(0.0),
            products: Number::Double(0.0),
            is_decimal: false,
        }
    }
}

/// A number that is a decimal or a double.
fn real(value: &Value<'_>) -> Option<Number> {
    Some(match Number::from_value(value)? {
        Number::Decimal(v) => Number::Decimal(v),
        other => Number::Double(other.to_f64()),
    })
}

/// The quotient by a count, which is never zero.
fn divided(number: Number, count: i64) -> Number {
    (number.div(Number::Int64(count))).unwrap_or(Number::Double(f64::NAN))
}

impl<const SAMPLE: bool> Fold for Covariance<SAMPLE> {
    fn from_value(value: &Val<'_>) -> Covariance<SAMPLE> {
        let mut pair = value.as_array().into_iter().flat_map(Doc::values);
        let (Some(x), Some(y), None) = (pair.next(), pair.next(), pair.next()) else {
            return Covariance::default();
        };
        let (Some(mean_x), Some(mean_y)) = (real(&x), real(&y)) else {
            return Covariance::default();
        };
        let is_decimal = |number: &Number| matches!(number, Number::Decimal(_));
        Covariance {
            count: 1,
            mean_x,
            mean_y,
            products: Number::Double(0.0),
            is_decimal: is_decimal(&mean_x) || is_decimal(&mean_y),
        }
    }

    fn merge(&mut self, behind: &Self) {
        if behind.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = behind.clone();
            return;
        }
        let (own, its) = (Number::Int64(self.count), Number::Int64(behind.count));
        let count = self.count + behind.count;
        let dx = behind.mean_x.sub(self.mean_x);
        let dy = behind.mean_y.sub(self.mean_y);
        let product = divided(dx.mul(dy).mul(own).mul(its), count);
        self.products = self.products.add(behind.products.add(product));
        self.mean_x = self.mean_x.add(divided(dx.mul(its), count));
        self.mean_y = self.mean_y.add(divided(dy.mul(its), count));
        self.count = count;
        self.is_decimal |= behind.is_decimal;
    }

    fn result(&self) -> OwnedValue {
        let divisor = if SAMPLE { self.count - 1 } else { self.count };
        if divisor <= 0 {
            return OwnedValue::Null;
        }
        let result = divided(self.products, divisor);
        let result = if self.is_decimal {
            Number::Decimal(result.to_decimal())
        } else {
            result
        };
        Value::from(result).to_owned()
    }
}

/// A part of the values of a window.
enum Part {
    All,
    First,
    Last,
    FirstN(usize),
    LastN(usize),
}

/// The values themselves, `None` where they are missing.
struct Listed {
    part: Part,
    values: VecDeque<Option<OwnedValue>>,
}

impl Listed {
    fn new(part: Part) -> Listed {
        Listed {
            part,
            values: VecDeque::new(),
        }
    }
}

impl Sliding for Listed {
    fn push(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        let value = value.get().map(|value| value.to_owned());
        let bytes = value.as_ref().map_or(0, |v| v.as_value().len_bytes());
        self.values.push_back(value);
        Ok(bytes + size_of::<OwnedValue>())
    }

    fn pop(&mut self) {
        self.values.pop_front();
    }

    fn result(&self) -> OwnedValue {
        let or_null = |value: &Option<OwnedValue>| value.clone().unwrap_or(OwnedValue::Null);
        let some = |from: usize, to: usize| {
            let mut array = ArrayBuf::new();
            for value in self.values.range(from..to) {
                array.push(&or_null(value));
            }
            array.into()
        };
        let len = self.values.len();
        match self.part {
            Part::All => {
                let there = self.values.iter().flatten();
                there.collect::<ArrayBuf>().into()
            }
            Part::First => self.values.front().map_or(OwnedValue::Null, or_null),
            Part::Last => self.values.back().map_or(OwnedValue::Null, or_null),
            Part::FirstN(n) => some(0, n.min(len)),
            Part::LastN(n) => some(len.saturating_sub(n), len),
        }
    }
}

/// Distinct values with how often they are there.
struct Distinct {
    collator: Collator,
    values: BTreeMap<Vec<u8>, (usize, OwnedValue)>,
    entered: VecDeque<Option<Vec<u8>>>,
}

impl Distinct {
    fn new(collator: Collator) -> Distinct {
        Distinct {
            collator,
            values: BTreeMap::new(),
            entered: VecDeque::new(),
        }
    }
}

impl Sliding for Distinct {
    fn push(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        let Some(value) = value.get() else {
            self.entered.push_back(None);
            return Ok(0);
        };
        let mut encoded = Vec::new();
        self.collator.encode(&value, &mut encoded);
        let bytes = 2 * encoded.len() + value.len_bytes();
        let entry = self.values.entry(encoded.clone());
        entry.or_insert_with(|| (0, value.to_owned())).0 += 1;
        self.entered.push_back(Some(encoded));
        Ok(bytes)
    }

    fn pop(&mut self) {
        let Some(Some(gone)) = self.entered.pop_front() else {
            return;
        };
        if let Some((count, _)) = self.values.get_mut(&gone) {
            *count -= 1;
            if *count == 0 {
                self.values.remove(&gone);
            }
        }
    }

    fn result(&self) -> OwnedValue {
        let values = self.values.values().map(|(_, value)| value);
        values.collect::<ArrayBuf>().into()
    }
}

/// Values by their rank: the lowest or the highest few.
struct Ranked {
    /// Number of results to keep; without it the result is a single value instead of an array.
    n: Option<usize>,
    highest: bool,
    /// In order of rank in the result, whichever end it is.
    upwards: bool,
    collator: Collator,
    values: BTreeMap<(Vec<u8>, u64), OwnedValue>,
    entered: VecDeque<Option<(Vec<u8>, u64)>>,
    number: u64,
}

impl Ranked {
    fn new(n: Option<usize>, highest: bool, upwards: bool, collator: Collator) -> Ranked {
        Ranked {
            n,
            highest,
            upwards,
            collator,
            values: BTreeMap::new(),
            entered: VecDeque::new(),
            number: 0,
        }
    }

    fn insert(&mut self, rank: Vec<u8>, value: OwnedValue) -> usize {
        let bytes = 2 * rank.len() + value.as_value().len_bytes() + 64;
        let place = (rank, self.number);
        self.number += 1;
        self.values.insert(place.clone(), value);
        self.entered.push_back(Some(place));
        bytes
    }
}

impl Sliding for Ranked {
    fn push(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        let Some(value) = comparable(value) else {
            self.entered.push_back(None);
            return Ok(0);
        };
        let mut rank = Vec::new();
        self.collator.encode(&value.as_value(), &mut rank);
        Ok(self.insert(rank, value))
    }

    fn pop(&mut self) {
        if let Some(Some(gone)) = self.entered.pop_front() {
            self.values.remove(&gone);
        }
    }

    fn result(&self) -> OwnedValue {
        let Some(n) = self.n else {
            let only = if self.highest {
                self.values.values().next_back()
            } else {
                self.values.values().next()
            };
            return only.cloned().unwrap_or(OwnedValue::Null);
        };
        let array: ArrayBuf = if !self.highest {
            self.values.values().take(n).collect()
        } else if self.upwards {
            let from = self.values.len().saturating_sub(n);
            self.values.values().skip(from).collect()
        } else {
            self.values.values().rev().take(n).collect()
        };
        array.into()
    }
}

/// Outputs by a sort order of their own.
struct Ordered {
    sort: Arc<crate::sort::SortSpec>,
    ranked: Ranked,
}

impl Sliding for Ordered {
    fn push(&mut self, value: &Val<'_>, context: &Context<'_>) -> Result<usize> {
        let rank = self.sort.key(context.root)?;
        Ok(self.ranked.insert(rank, value.or_null().to_owned()))
    }

    fn pop(&mut self) {
        self.ranked.pop();
    }

    fn result(&self) -> OwnedValue {
        self.ranked.result()
    }
}

struct Numbers {
    percentiles: Arc<Percentiles>,
    sorted: Vec<f64>,
    entered: VecDeque<Option<f64>>,
}

impl Sliding for Numbers {
    fn push(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        let number = percentile_number(value);
        if let Some(number) = number {
            let at = self
                .sorted
                .partition_point(|other| other.total_cmp(&number).is_lt());
            self.sorted.insert(at, number);
        }
        self.entered.push_back(number);
        Ok(3 * size_of::<f64>())
    }

    fn pop(&mut self) {
        let Some(Some(gone)) = self.entered.pop_front() else {
            return;
        };
        if let Ok(at) = self.sorted.binary_search_by(|other| other.total_cmp(&gone)) {
            self.sorted.remove(at);
        }
    }

    fn result(&self) -> OwnedValue {
        self.percentiles.of_sorted(&self.sorted)
    }
}

/// The area below points, by trapezoids between neighbours.
pub(super) struct Area {
    unit_ms: Option<i64>,
    points: usize,
    last: Option<(Number, Number)>,
    areas: Folded<Sum>,
}

impl Area {
    pub(super) fn new(unit_ms: Option<i64>) -> Area {
        Area {
            unit_ms,
            points: 0,
            last: None,
            areas: Folded::default(),
        }
    }

    /// A point enters. Errors 5423900 to 5423902 for values of wrong types.
    pub(super) fn push_point(&mut self, x: &Value<'_>, y: &Val<'_>) -> Result<usize> {
        let y = y.get().and_then(|y| Number::from_value(&y));
        let x = match x {
            Value::DateTime(ms) => {
                if self.unit_ms.is_none() {
                    return Err(Error::location(
                        5423902,
                        "$integral (with no 'unit') expects the sortBy field to be numeric",
                    ));
                }
                Some(Number::Int64(*ms))
            }
            number if number.is_number() && self.unit_ms.is_some() => {
                return Err(Error::location(
                    5423901,
                    "$integral with 'unit' expects the sortBy field to be a Date",
                ));
            }
            number => Number::from_value(number),
        };
        let (Some(x), Some(y)) = (x, y) else {
            return Err(Error::location(
                5423900,
                "The input value of $integral window function must be a vector of 2 value, the \
                 first value must be numeric or date type and the second must be numeric.",
            ));
        };
        if let Some((before_x, before_y)) = self.last.filter(|_| self.points > 0) {
            let area = x.sub(before_x).mul(y.add(before_y));
            self.areas
                .push_fold(Sum::from_value(&divided(area, 2).into()));
        }
        self.last = Some((x, y));
        self.points += 1;
        Ok(size_of::<Sum>())
    }

    pub(super) fn pop(&mut self) {
        self.points = self.points.saturating_sub(1);
        if self.points > 0 {
            self.areas.pop();
        }
    }

    pub(super) fn result(&self) -> OwnedValue {
        if self.points == 0 {
            return OwnedValue::Null;
        }
        let area = Sliding::result(&self.areas);
        match (self.unit_ms, Number::from_value(&area.as_value())) {
            (Some(unit), Some(area)) => Value::from(divided(area, unit)).to_owned(),
            _ => area,
        }
    }
}

/// A number as a decimal.
pub(super) fn decimal(value: &Value<'_>) -> Decimal128 {
    match Number::from_value(value) {
        Some(Number::Int32(v)) => v.into(),
        Some(Number::Int64(v)) => v.into(),
        Some(Number::Double(v)) => Decimal128::from_f64(v),
        Some(Number::Decimal(v)) => v,
        None => Decimal128::NAN,
    }
}
