//! Updates of one shape, one after the other: the same operators on the same paths with different operands. The result is
//! that of [`Update::apply`] with each of them in turn, but a long series is not applied one by one.
//!
//! Once a step has succeeded, `$set`, `$unset`, `$inc` and `$setOnInsert` of the same paths can fail in two ways only: an
//! int64 overflows, or the document grows beyond its limit. So the sums are computed first, with a check for overflow at
//! each step, and the document is written once. Series that come near the limit, and other operators, are applied step by step.

use super::operators::{self, Argument};
use super::{ApplyContext, ArrayFilters, OperatorsParser, Update, path};
use crate::number::Number;
use frond_bson::{Collator, Doc, DocBuf, MAX_DOCUMENT_BYTES, Value};
use frond_error::{Error, Result};
use std::borrow::Cow;

/// An operator and the path that it works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The name of the operator, for example `$inc`.
    pub operator: &'static str,
    pub path: &'a str,
}

/// One update of the series, and how many times it is executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<'a> {
    pub repeat: u64,
    /// The operand of each operation.
    pub operands: Vec<Value<'a>>,
}

#[derive(Clone, Debug)]
pub struct Series<'a> {
    pub operations: &'a [Operation<'a>],
    pub steps: &'a [Step<'a>],
    /// The `_id` that an upsert inserts; none if they are no upserts.
    pub inserts: Option<Value<'a>>,
}

/// The result of a series.
#[derive(Debug)]
pub struct SeriesOutcome<'d> {
    /// The document after it; none if there was none, and nothing was inserted.
    pub doc: Option<Cow<'d, Doc>>,
    /// Updates that failed: they left the document as it was.
    pub failed: u64,
    /// The error of the first one that failed.
    pub error: Option<Error>,
}

impl SeriesOutcome<'_> {
    fn fail(&mut self, times: u64, error: impl FnOnce() -> Error) {
        self.failed = self.failed.saturating_add(times);
        if self.error.is_none() {
            self.error = Some(error());
        }
    }
}

impl Update {
    /// An update of these operators, which compare strings by their bytes. Paths have no array filters.
    ///
    /// # Errors
    /// As [`Update::parse`].
    pub fn of_operations<'a>(
        operations: impl IntoIterator<Item = (Operation<'a>, Value<'a>)>,
    ) -> Result<Update> {
        let mut parser = OperatorsParser::new();
        for (Operation { operator, path }, value) in operations {
            let found = operators::find(operator);
            let found = found.ok_or_else(|| Error::failed_to_parse("an unknown operator"))?;
            let argument = Argument {
                path,
                value,
                collator: Collator::BINARY,
            };
            parser.add(found, &argument)?;
        }
        Ok(parser.finish(ArrayFilters::default()))
    }
}

impl<'s> Series<'s> {
    fn update(&self, step: &Step<'s>) -> Result<Update> {
        let operands = step.operands.iter().copied();
        Update::of_operations(self.operations.iter().copied().zip(operands))
    }

    /// Applies all updates to a document, or to none.
    pub fn apply<'d>(&self, base: Option<&'d Doc>) -> SeriesOutcome<'d> {
        let mut outcome = SeriesOutcome {
            doc: base.map(Cow::Borrowed),
            failed: 0,
            error: None,
        };
        let existing = ApplyContext::at(0);
        for (at, step) in self.steps.iter().enumerate() {
            let update = match self.update(step) {
                Ok(update) => update,
                Err(error) => {
                    outcome.fail(step.repeat, || error);
                    continue;
                }
            };
            let mut left = step.repeat;
            while left > 0 {
                let applied = match (&outcome.doc, &self.inserts) {
                    (Some(doc), _) => update.apply(doc, &existing).map(|applied| {
                        let modified = applied.modified;
                        (applied.doc, modified)
                    }),
                    (None, Some(id)) => {
                        let mut new = DocBuf::new();
                        new.push_value("_id", id);
                        let inserting = ApplyContext {
                            is_upsert_insert: true,
                            ..existing.clone()
                        };
                        update
                            .apply(&new, &inserting)
                            .map(|applied| (applied.doc, true))
                    }
                    (None, None) => return outcome,
                };
                match applied {
                    // The document is as it was, so they all fail.
                    Err(error) => {
                        outcome.fail(left, || error);
                        left = 0;
                    }
                    // Nor would the next one change it.
                    Ok((_, false)) => left = 0,
                    Ok((doc, true)) => {
                        outcome.doc = Some(Cow::Owned(doc));
                        left -= 1;
                        let rest = self.steps.get(at + 1..).unwrap_or_default();
                        if (left > 0 || !rest.is_empty())
                            && self.apply_at_once(&mut outcome, (step, left), rest)
                        {
                            return outcome;
                        }
                    }
                }
            }
        }
        outcome
    }

    /// Applies a step another `left` times, and the rest of the steps, to a document in which a step has succeeded. False if that
    /// has to be done one by one; then nothing is changed.
    fn apply_at_once(
        &self,
        outcome: &mut SeriesOutcome<'_>,
        (step, left): (&Step<'s>, u64),
        rest: &[Step<'s>],
    ) -> bool {
        let Some(doc) = &outcome.doc else {
            return false;
        };
        // Half of the limit is for the path, see below.
        let is_deep = |operation: &Operation<'_>| operation.path.len() >= path::MAX_DEPTH;
        if self.operations.iter().any(is_deep) {
            return false;
        }
        // A number takes up to 16 bytes.
        let grown = std::iter::once(step).chain(rest).map(|step| {
            let operands = step.operands.iter().map(|operand| operand.len_bytes() + 16);
            operands.sum::<usize>()
        });
        if doc.len_bytes() + grown.max().unwrap_or(0) > MAX_DOCUMENT_BYTES {
            return false;
        }
        // The sums of the operations, of those that add.
        let mut sums: Vec<Option<Number>> = Vec::with_capacity(self.operations.len());
        for operation in self.operations {
            sums.push(match operation.operator {
                "$inc" => match number_at(doc, operation.path) {
                    Some(number) => Some(number),
                    None => return false,
                },
                "$set" | "$unset" | "$setOnInsert" => None,
                _ => return false,
            });
        }
        let mut last = step;
        let (mut failed, mut overflow) = (0_u64, None);
        for (step, repeat) in std::iter::once((step, left))
            .chain(rest.iter().map(|step| (step, step.repeat)))
            .filter(|(_, repeat)| *repeat > 0)
        {
            let pairs = || sums.iter().zip(&step.operands).enumerate();
            let mut times = repeat;
            for (at, (sum, operand)) in pairs() {
                let Some(sum) = sum else {
                    // It might be nested too deeply.
                    match operand {
                        Value::Document(doc) | Value::Array(doc)
                            if doc.len_bytes() >= SHALLOW_BYTES =>
                        {
                            return false;
                        }
                        _ => continue,
                    }
                };
                let Some(by) = Number::from_value(operand) else {
                    return false;
                };
                let possible = possible_additions(*sum, by, repeat);
                if possible < times {
                    (times, overflow) = (possible, overflow.or(Some((at, *sum))));
                }
            }
            failed = failed.saturating_add(repeat - times);
            if times == 0 {
                continue;
            }
            last = step;
            for (sum, operand) in sums.iter_mut().zip(&step.operands) {
                if let (Some(sum), Some(by)) = (sum, Number::from_value(operand)) {
                    *sum = added(*sum, by, times);
                }
            }
        }
        let results = (self.operations.iter().zip(&sums)).zip(&last.operands);
        let results = results.filter_map(|((operation, sum), operand)| {
            let value = match (operation.operator, sum) {
                (_, Some(sum)) => (*sum).into(),
                ("$set", None) => *operand,
                _ => return None,
            };
            let set = Operation {
                operator: "$set",
                ..*operation
            };
            Some((set, value))
        });
        let written = Update::of_operations(results)
            .and_then(|update| Ok(update.apply(doc, &ApplyContext::at(0))?.doc));
        let Ok(written) = written else {
            return false;
        };
        if failed > 0 {
            let (at, sum) = overflow.unwrap_or((0, Number::Int32(0)));
            let path = self.operations.get(at).map_or("", |one| one.path);
            outcome.fail(failed, || {
                Error::bad_value(format!(
                    "Failed to apply $inc operations to current value ({}) of the field '{path}'",
                    sum.shell()
                ))
            });
        }
        outcome.doc = Some(Cow::Owned(written));
        true
    }
}

/// A document of fewer bytes is nested less deeply than the limit allows, also at the end of a path: a level takes 8 bytes.
const SHALLOW_BYTES: usize = 4 * path::MAX_DEPTH;

/// The number at a path through documents whose names are unique on the way. `None` leaves it to the update itself.
fn number_at(doc: &Doc, path: &str) -> Option<Number> {
    let (name, rest) = match path.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (path, None),
    };
    let mut found = doc.iter_raw().filter(|element| element.name() == name);
    let element = found.next()?;
    if found.next().is_some() {
        return None;
    }
    match (element.value()?, rest) {
        (Value::Document(inner), Some(rest)) => number_at(inner, rest),
        (value, None) => Number::from_value(&value),
        _ => None,
    }
}

/// Returns the number of additions of `by` before the sum overflows, at most `times`.
fn possible_additions(sum: Number, by: Number, times: u64) -> u64 {
    let (Some(from), Some(step)) = (integer(sum), integer(by)) else {
        return times;
    };
    // The result of two int32 is an int64 if need be, so only that is a bound.
    let room = if step < 0 {
        i128::from(from) - i128::from(i64::MIN)
    } else {
        i128::from(i64::MAX) - i128::from(from)
    };
    match i128::from(step).abs() {
        0 => times,
        step => u64::try_from(room / step).map_or(times, |most| most.min(times)),
    }
}

/// The sum after `times` additions, none of which overflows.
fn added(sum: Number, by: Number, times: u64) -> Number {
    if let (Some(from), Some(step)) = (integer(sum), integer(by)) {
        let end = i128::from(from) + i128::from(step) * i128::from(times);
        let Ok(end) = i64::try_from(end) else {
            return sum;
        };
        // All additions go one way: if the end fits 32 bits, so does everything between.
        return match (sum, by, i32::try_from(end)) {
            (Number::Int32(_), Number::Int32(_), Ok(narrow)) => Number::Int32(narrow),
            _ => Number::Int64(end),
        };
    }
    // Each addition rounds.
    let mut now = sum;
    for _ in 0..times {
        let Some(next) = now.checked_add(by) else {
            break;
        };
        let is_same = match (now, next) {
            (Number::Double(a), Number::Double(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        };
        now = next;
        if is_same {
            break;
        }
    }
    now
}

fn integer(number: Number) -> Option<i64> {
    match number {
        Number::Int32(value) => Some(i64::from(value)),
        Number::Int64(value) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::json;

    /// Applies the updates one after the other.
    fn one_by_one(series: &Series<'_>, base: Option<&Doc>) -> (Option<DocBuf>, u64) {
        let mut doc = base.map(Doc::to_owned);
        let mut failed = 0;
        for step in series.steps {
            let update = series.update(step).unwrap();
            for _ in 0..step.repeat {
                let applied = match (&doc, &series.inserts) {
                    (Some(doc), _) => update.apply(doc, &ApplyContext::at(0)),
                    (None, Some(id)) => {
                        let mut new = DocBuf::new();
                        new.push_value("_id", id);
                        let context = ApplyContext {
                            is_upsert_insert: true,
                            ..ApplyContext::at(0)
                        };
                        update.apply(&new, &context)
                    }
                    (None, None) => continue,
                };
                match applied {
                    Ok(applied) => doc = Some(applied.doc),
                    Err(_) => failed += 1,
                }
            }
        }
        (doc, failed)
    }

    #[test]
    fn a_series_equals_its_updates_in_turn() {
        use Value::{Double, Int32, Int64};
        let op = |operator, path| Operation { operator, path };
        let numbers = [
            Int32(1),
            Int32(-3),
            Int32(i32::MAX),
            Int64(2),
            Int64(i64::MAX),
            Int64(i64::MIN),
            Double(0.1),
            Double(1e300),
        ];
        let shapes: [&[Operation<'static>]; 7] = [
            &[op("$inc", "n")],
            &[op("$inc", "n"), op("$inc", "d.n")],
            &[op("$inc", "n"), op("$set", "s"), op("$unset", "u")],
            &[op("$set", "s"), op("$setOnInsert", "n")],
            &[op("$inc", "a.1")],
            &[op("$max", "n"), op("$inc", "d.n")],
            &[op("$mul", "n"), op("$set", "d.x")],
        ];
        let bases = [
            None,
            Some("{_id: 1}"),
            Some("{_id: 1, n: 5, d: {n: 1}, u: 2, a: [1, 2]}"),
            Some("{_id: 1, n: 'x'}"),
            Some("{_id: 1, d: 7, s: {}}"),
            Some("{_id: 1, n: 9223372036854775806, n: 3}"),
            Some("{_id: 1, d: {n: 2147483646}, n: {$numberLong: '9223372036854775804'}}"),
        ];
        // A generator of small numbers that needs no seed.
        let mut state = 7_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for base in bases {
            let base = base.map(json);
            for shape in shapes {
                for _ in 0..200 {
                    let steps: Vec<Step<'_>> = (0..next(5) + 1)
                        .map(|_| Step {
                            repeat: [1, 1, 2, 5][next(4)],
                            operands: shape.iter().map(|_| numbers[next(8)]).collect(),
                        })
                        .collect();
                    for inserts in [None, Some(Int32(1))] {
                        let series = Series {
                            operations: shape,
                            steps: &steps,
                            inserts,
                        };
                        let outcome = series.apply(base.as_deref());
                        let (doc, failed) = one_by_one(&series, base.as_deref());
                        let shown = format!("{base:?} {series:?}");
                        assert_eq!(outcome.doc.as_deref(), doc.as_deref(), "{shown}");
                        assert_eq!(outcome.failed, failed, "{shown}");
                        assert_eq!(outcome.error.is_some(), failed > 0);
                    }
                }
            }
        }
    }

    #[test]
    fn long_series_of_increments_are_summed() {
        let operations = [Operation {
            operator: "$inc",
            path: "n",
        }];
        let steps = [Step {
            repeat: u64::MAX / 2,
            operands: vec![Value::Int32(3)],
        }];
        let series = Series {
            operations: &operations,
            steps: &steps,
            inserts: Some(Value::Int32(1)),
        };
        let outcome = series.apply(None);
        let fits = i64::MAX / 3;
        let doc = outcome.doc.unwrap();
        assert_eq!(doc.get_i64("n"), Some(fits * 3));
        assert_eq!(outcome.failed, u64::MAX / 2 - fits as u64);
    }
}
