//! Walking through partitions: documents are sorted, partitions are read one by one, and each window
//! moves along.

use super::bounds::{Bounds, End, shifted};
use super::function::{Function, Rank, sort_value};
use super::sliding::{Area, Covariance, Folded, Sliding, decimal, of_accumulator};
use super::{Output, SetWindowFields, partition_is_array};
use crate::accumulators::{Accumulator, Plan};
use crate::aggregate::exec::{Deferred, DocSource, ExecContext, Fault, Source};
use crate::expr::{Context, FieldPath, Frame, Node, Val};
use crate::memory::{Fit, StageMemory};
use crate::number::Number;
use crate::spill::{Budget, Sorted, Sorter, SpillBuffer};
use frond_bson::key::{Direction, skip};
use frond_bson::{Decimal128, Doc, DocBuf, OwnedValue, Value, compare};
use frond_error::{Error, Result};
use std::sync::Arc;

pub(crate) fn open<E: Fault>(
    stage: &Arc<SetWindowFields>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    let stage = stage.clone();
    let limits = context.limits;
    let sort_budget = context.budget("$sort", limits.sort);
    let budget = context.budget("$setWindowFields", limits.set_window_fields);
    let now_ms = context.now_ms;
    Box::new(Deferred::new(input, move |mut input: Source<E>| {
        let docs = if stage.partition.is_none() && stage.order.is_none() {
            Input::Unsorted(input)
        } else {
            let mut sorter = Sorter::new(sort_budget, None);
            while let Some(doc) = input.next()? {
                sorter.push(stage.key(&doc, now_ms)?, doc)?;
            }
            drop(input);
            Input::Sorted(sorter.finish()?)
        };
        let walk = Walk {
            buffer: SpillBuffer::new(budget.clone()),
            held: budget.held(),
            budget,
            now_ms,
            docs,
            next: None,
            position: 0,
            windows: Vec::new(),
            stage,
        };
        Ok(Box::new(walk) as Source<E>)
    }))
}

impl SetWindowFields {
    /// The key that documents are sorted by: their partition, then their order.
    fn key(&self, doc: &Doc, now_ms: i64) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        if let Some(node) = &self.partition {
            let value = node.evaluate(&Context::new(doc, now_ms))?;
            if value.as_array().is_some() {
                return Err(partition_is_array());
            }
            self.collator.encode(&value.or_null(), &mut key);
        }
        if let Some(order) = &self.order {
            key.extend(order.sort.key(doc)?);
        }
        Ok(key)
    }

    /// Length of the partition's part of a key.
    fn partition_bytes(&self, key: &[u8]) -> usize {
        match &self.partition {
            None => 0,
            Some(_) => skip(key, Direction::Ascending).unwrap_or(key.len()),
        }
    }
}

enum Input<E> {
    /// All documents are one partition.
    Unsorted(Source<E>),
    Sorted(Sorted<DocBuf>),
}

struct Walk<E> {
    stage: Arc<SetWindowFields>,
    budget: Budget,
    now_ms: i64,
    docs: Input<E>,
    /// The first document of the next partition.
    next: Option<(Vec<u8>, DocBuf)>,
    /// The documents of a partition.
    buffer: SpillBuffer,
    /// The document that comes next.
    position: usize,
    windows: Vec<Window>,
    /// Counts the bytes of the windows.
    held: StageMemory,
}

impl<E: Fault> DocSource<E> for Walk<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        if self.position >= self.buffer.len() {
            self.read_partition()?;
            if self.buffer.is_empty() {
                return Ok(None);
            }
        }
        let doc = self.step()?;
        self.position += 1;
        Ok(Some(doc))
    }
}

impl<E: Fault> Walk<E> {
    /// Reads the next partition; the buffer is empty after the last.
    fn read_partition(&mut self) -> Result<(), E> {
        self.buffer.clear();
        self.position = 0;
        self.windows.clear();
        match &mut self.docs {
            Input::Unsorted(source) => {
                while let Some(doc) = source.next()? {
                    self.buffer.push(doc)?;
                }
            }
            Input::Sorted(sorted) => {
                let first = match self.next.take() {
                    Some(first) => Some(first),
                    None => sorted.next()?,
                };
                let Some((key, doc)) = first else {
                    return Ok(());
                };
                let length = self.stage.partition_bytes(&key);
                let partition = key.get(..length).unwrap_or_default();
                self.buffer.push(doc)?;
                while let Some((key, doc)) = sorted.next()? {
                    if !key.starts_with(partition) || self.stage.partition_bytes(&key) != length {
                        self.next = Some((key, doc));
                        break;
                    }
                    self.buffer.push(doc)?;
                }
            }
        }
        for output in &self.stage.outputs {
            self.windows.push(Window::begin(output, self.now_ms)?);
        }
        Ok(())
    }

    /// The next document with its fields.
    fn step(&mut self) -> Result<DocBuf> {
        let doc = self.buffer.get(self.position)?.clone();
        let order = self.stage.order.as_ref();
        let mut view = View {
            buffer: &mut self.buffer,
            order: order.and_then(|order| order.only.as_ref()),
            now_ms: self.now_ms,
        };
        let mut values = Vec::with_capacity(self.windows.len());
        let mut bytes = 0;
        for (window, output) in self.windows.iter_mut().zip(&self.stage.outputs) {
            let key = match (&output.function, order) {
                (Function::Rank(_), Some(order)) => Some(order.sort.key(&doc)?),
                _ => None,
            };
            let value = window.step(output, self.position, &doc, key, &mut view)?;
            values.push(value.map_or(Val::Missing, Val::Owned));
            bytes += window.bytes;
        }
        let fit = self.held.set(bytes);
        if fit == Fit::Scarce {
            return Err(self.budget.refused(fit));
        }
        if fit == Fit::OverLimit {
            return Err(Error::location(
                5414201,
                format!(
                    "Exceeded memory limit in $setWindowFields: its windows hold more than {} bytes",
                    self.budget.bytes_max
                ),
            ));
        }
        let frame = Frame {
            first: 0,
            values: &values,
            outer: None,
        };
        let context = Context {
            frame: Some(&frame),
            ..Context::new(&doc, self.now_ms)
        };
        self.stage.fields.apply(&doc, &context)
    }
}

/// The partition as windows see it.
struct View<'v> {
    buffer: &'v mut SpillBuffer,
    order: Option<&'v FieldPath>,
    now_ms: i64,
}

impl View<'_> {
    fn eval(&mut self, node: &Node, position: usize) -> Result<Option<OwnedValue>> {
        let now_ms = self.now_ms;
        let doc = self.buffer.get(position)?;
        Ok(node.evaluate(&Context::new(doc, now_ms))?.into_value())
    }

    /// The value that a document is sorted by.
    fn sort_value(&mut self, position: usize) -> Result<OwnedValue> {
        let Some(order) = self.order else {
            return Ok(OwnedValue::Null);
        };
        let doc = self.buffer.get(position)?;
        Ok(sort_value(order, doc).to_owned())
    }
}

/// The window of one field, and what is known of the documents in it.
struct Window {
    /// The first document inside and the first behind.
    low: usize,
    high: usize,
    state: State,
    bytes: usize,
}

enum State {
    Growing(Box<dyn Accumulator>),
    Sliding(Box<dyn Sliding>),
    Area(Area),
    /// The rank and the key of the document before.
    Rank(i64, Vec<u8>),
    Average(Option<Decimal128>, bool),
    /// The last value that was there, and where the next one is.
    Line {
        before: Option<(OwnedValue, OwnedValue)>,
        after: Option<usize>,
        last: Option<OwnedValue>,
    },
    Last(OwnedValue),
    None,
}

impl Window {
    fn begin(output: &Output, now_ms: i64) -> Result<Window> {
        let state = match &output.function {
            Function::Accumulator(name, plan) => {
                if output.bounds.only_grows() {
                    State::Growing(plan.start.begin(Doc::empty(), now_ms)?)
                } else {
                    State::Sliding(of_accumulator(name, plan, now_ms)?)
                }
            }
            Function::Covariance { sample: true, .. } => {
                State::Sliding(Box::new(Folded::<Covariance<true>>::default()))
            }
            Function::Covariance { .. } => {
                State::Sliding(Box::new(Folded::<Covariance<false>>::default()))
            }
            Function::Integral { unit_ms, .. } => State::Area(Area::new(*unit_ms)),
            Function::Rank(_) => State::Rank(0, Vec::new()),
            Function::ExpMovingAvg { .. } => State::Average(None, false),
            Function::LinearFill(_) => State::Line {
                before: None,
                after: None,
                last: None,
            },
            Function::Locf(_) => State::Last(OwnedValue::Null),
            Function::Shift { .. } | Function::Derivative { .. } => State::None,
        };
        Ok(Window {
            low: 0,
            high: 0,
            state,
            bytes: 0,
        })
    }

    /// The value of the field for the document at a position; `key` is what ranks compare.
    fn step(
        &mut self,
        output: &Output,
        position: usize,
        doc: &Doc,
        key: Option<Vec<u8>>,
        view: &mut View<'_>,
    ) -> Result<Option<OwnedValue>> {
        let here = Context::new(doc, view.now_ms);
        match (&output.function, &mut self.state) {
            (Function::Accumulator(_, plan), _) => {
                self.move_to(output, position, view, Some(&plan.input), Some(plan))?;
                Ok(match &self.state {
                    State::Growing(state) => state.result()?,
                    State::Sliding(state) => Some(state.result()),
                    _ => None,
                })
            }
            (Function::Covariance { input, .. } | Function::Integral { input, .. }, _) => {
                self.move_to(output, position, view, Some(input), None)?;
                Ok(match &self.state {
                    State::Sliding(state) => Some(state.result()),
                    State::Area(area) => Some(area.result()),
                    _ => None,
                })
            }
            (Function::Derivative { input, unit_ms }, _) => {
                self.move_to(output, position, view, None, None)?;
                if self.low >= self.high {
                    return Ok(Some(OwnedValue::Null));
                }
                derivative(input, *unit_ms, self.low, self.high - 1, view).map(Some)
            }
            (Function::Rank(rank), State::Rank(number, before)) => {
                let key = key.unwrap_or_default();
                let same = position > 0 && *before == key;
                *before = key;
                let place = i64::try_from(position)
                    .unwrap_or(i64::MAX)
                    .saturating_add(1);
                match rank {
                    Rank::Number => *number = place,
                    Rank::Sparse if !same => *number = place,
                    Rank::Dense if !same => *number += 1,
                    Rank::Sparse | Rank::Dense => {}
                }
                Ok(Some(OwnedValue::Int64(*number)))
            }
            (
                Function::Shift {
                    output,
                    by,
                    default,
                },
                _,
            ) => {
                let other = i64::try_from(position)
                    .ok()
                    .and_then(|at| at.checked_add(*by));
                match other.and_then(|at| usize::try_from(at).ok()) {
                    Some(at) if at < view.buffer.len() => {
                        Ok(Some(view.eval(output, at)?.unwrap_or(OwnedValue::Null)))
                    }
                    _ => Ok(Some(default.clone())),
                }
            }
            (Function::ExpMovingAvg { input, alpha }, State::Average(average, is_decimal)) => {
                let value = input.evaluate(&here)?;
                if let Some(value) = value.get().filter(|value| value.is_number()) {
                    *is_decimal |= matches!(value, Value::Decimal128(_));
                    let value = decimal(&value);
                    let rest = Decimal128::from(1) + -*alpha;
                    *average = Some(match *average {
                        None => value,
                        Some(before) => value * *alpha + before * rest,
                    });
                }
                Ok(Some(match *average {
                    None => OwnedValue::Null,
                    Some(average) if *is_decimal => OwnedValue::Decimal128(average),
                    Some(average) => OwnedValue::Double(average.to_f64()),
                }))
            }
            (Function::Locf(input), State::Last(last)) => {
                let value = input.evaluate(&here)?;
                if !value.is_nullish() {
                    *last = value.or_null().to_owned();
                }
                Ok(Some(last.clone()))
            }
            (Function::LinearFill(input), _) => self.fill(input, position, view).map(Some),
            _ => Err(Error::internal(
                "a window has the state of another function",
            )),
        }
    }

    /// Moves the window along to the document at `position`.
    fn move_to(
        &mut self,
        output: &Output,
        position: usize,
        view: &mut View<'_>,
        input: Option<&Node>,
        plan: Option<&Plan>,
    ) -> Result<()> {
        let (low, high) = self.ends(&output.bounds, position, view)?;
        let needs_sort_value = matches!(self.state, State::Area(_));
        while self.high < high {
            if let Some(input) = input {
                let sort = if needs_sort_value {
                    view.sort_value(self.high)?
                } else {
                    OwnedValue::Null
                };
                let now_ms = view.now_ms;
                let doc = view.buffer.get(self.high)?;
                let context = Context::new(doc, now_ms);
                self.bytes += match &mut self.state {
                    State::Growing(state) if !state.wants_more() => 0,
                    State::Growing(state) => {
                        let node = plan.map_or(input, |plan| &plan.input);
                        state.add(&node.evaluate(&context)?, &context)?
                    }
                    State::Sliding(state) => state.push(&input.evaluate(&context)?, &context)?,
                    State::Area(area) => {
                        area.push_point(&sort.as_value(), &input.evaluate(&context)?)?
                    }
                    _ => 0,
                };
            }
            self.high += 1;
        }
        let held = self.high - self.low;
        while self.low < low {
            match &mut self.state {
                State::Sliding(state) => state.pop(),
                State::Area(area) => area.pop(),
                _ => {}
            }
            self.low += 1;
        }
        // A document that leaves the window releases its share of the memory.
        if held > 0 && !matches!(self.state, State::Growing(_)) {
            self.bytes = self.bytes / held * (self.high - self.low);
        }
        Ok(())
    }

    /// The first document inside and the first behind.
    fn ends(
        &self,
        bounds: &Bounds,
        position: usize,
        view: &mut View<'_>,
    ) -> Result<(usize, usize)> {
        let len = view.buffer.len();
        match bounds {
            Bounds::Documents { lower, upper } => {
                let at = |end: &End<i64>, unbounded: usize, behind: i64| match end {
                    End::Unbounded => unbounded,
                    End::At(by) => {
                        let at = i64::try_from(position).unwrap_or(i64::MAX);
                        let at = at.saturating_add(*by).saturating_add(behind).max(0);
                        usize::try_from(at).unwrap_or(len).min(len)
                    }
                };
                let low = at(lower, 0, 0);
                Ok((low, at(upper, len, 1).max(low)))
            }
            Bounds::Range { lower, upper, unit } => {
                let here = view.sort_value(position)?;
                let here = here.as_value();
                // Also where nothing is bounded the value has to be of the right type.
                let unmoved = shifted(&here, &OwnedValue::Int32(0), *unit)?;
                let end = |end: &End<OwnedValue>| match end {
                    End::Unbounded => Ok(None),
                    End::At(by) => shifted(&here, by, *unit).map(Some),
                };
                let (lower, upper) = (end(lower)?, end(upper)?);
                drop(unmoved);
                let mut high = self.high;
                match &upper {
                    None => high = len,
                    Some(upper) => {
                        while high < len
                            && compare(&view.sort_value(high)?.as_value(), &upper.as_value())
                                .is_le()
                        {
                            high += 1;
                        }
                    }
                }
                let mut low = self.low;
                if let Some(lower) = &lower {
                    while low < high
                        && compare(&view.sort_value(low)?.as_value(), &lower.as_value()).is_lt()
                    {
                        low += 1;
                    }
                }
                Ok((low, high))
            }
        }
    }

    /// `$linearFill`.
    fn fill(&mut self, input: &Node, position: usize, view: &mut View<'_>) -> Result<OwnedValue> {
        let x = view.sort_value(position)?;
        let y = view.eval(input, position)?.unwrap_or(OwnedValue::Null);
        let State::Line {
            before,
            after,
            last,
        } = &mut self.state
        else {
            return Ok(OwnedValue::Null);
        };
        let is_place =
            |x: &OwnedValue| matches!(x, OwnedValue::DateTime(_)) || x.as_value().is_number();
        if !is_place(&x) {
            return Err(Error::type_mismatch(
                "Sort field must be numeric or a date for $linearFill",
            ));
        }
        if let Some(last) = last {
            let same_kind =
                matches!(last, OwnedValue::DateTime(_)) == matches!(x, OwnedValue::DateTime(_));
            if !same_kind {
                return Err(Error::type_mismatch(
                    "Conflicting sort value types, previous and current types don't match",
                ));
            }
            if compare(&last.as_value(), &x.as_value()).is_eq() {
                return Err(Error::location(
                    6050106,
                    "There can be no repeated values in the sort field",
                ));
            }
        }
        *last = Some(x.clone());
        if !y.as_value().is_nullish() {
            if !y.as_value().is_number() {
                return Err(Error::type_mismatch(
                    "Value to be filled must be numeric or nullish",
                ));
            }
            *before = Some((x, y.clone()));
            return Ok(y);
        }
        let Some((x1, y1)) = before else {
            return Ok(OwnedValue::Null);
        };
        let mut at = after.unwrap_or(0).max(position + 1);
        let found = loop {
            if at >= view.buffer.len() {
                break None;
            }
            let value = view.eval(input, at)?.unwrap_or(OwnedValue::Null);
            if !value.as_value().is_nullish() {
                break Some(value);
            }
            at += 1;
        };
        *after = Some(at);
        let Some(y2) = found else {
            return Ok(OwnedValue::Null);
        };
        let x2 = view.sort_value(at)?;
        Ok(on_line((x1, y1), (&x2, &y2), &x))
    }
}

/// A number or the milliseconds of a date.
fn coordinate(value: &OwnedValue) -> Option<Number> {
    match value {
        OwnedValue::DateTime(ms) => Some(Number::Int64(*ms)),
        other => Number::from_value(&other.as_value()),
    }
}

/// The value at `x` of the line through two points.
fn on_line(
    (x1, y1): (&OwnedValue, &OwnedValue),
    (x2, y2): (&OwnedValue, &OwnedValue),
    x: &OwnedValue,
) -> OwnedValue {
    let line = || {
        let [x1, y1, x2, y2, x] = [x1, y1, x2, y2, x].map(coordinate);
        let (x1, y1, x2, y2, x) = (x1?, y1?, x2?, y2?, x?);
        let rise = x.sub(x1).mul(y2.sub(y1)).div(x2.sub(x1))?;
        Some(y1.add(rise))
    };
    line().map_or(OwnedValue::Null, |number| Value::from(number).to_owned())
}

/// `$derivative` between two documents.
fn derivative(
    input: &Node,
    unit_ms: Option<i64>,
    first: usize,
    last: usize,
    view: &mut View<'_>,
) -> Result<OwnedValue> {
    let (x1, x2) = (view.sort_value(first)?, view.sort_value(last)?);
    let dates = [&x1, &x2].map(|x| matches!(x, OwnedValue::DateTime(_)));
    if unit_ms.is_some() {
        if dates != [true, true] {
            return Err(Error::location(
                5624900,
                "$derivative with 'unit' expects the sortBy field to be a Date",
            ));
        }
    } else {
        if dates != [false, false] {
            return Err(Error::location(
                5624901,
                "$derivative where the sortBy is a Date requires an 'unit'",
            ));
        }
        if !(x1.as_value().is_number() && x2.as_value().is_number()) {
            return Err(Error::location(
                5624902,
                "$derivative (with no 'unit') expects the sortBy field to be numeric",
            ));
        }
    }
    let (y1, y2) = (view.eval(input, first)?, view.eval(input, last)?);
    let value = |y: Option<OwnedValue>| match y {
        Some(y) if !y.as_value().is_nullish() => match coordinate(&y) {
            Some(number) => Ok(number),
            None => Err(Error::type_mismatch(format!(
                "can't $subtract {} in $derivative",
                y.as_value().type_name()
            ))),
        },
        _ => Err(Error::location(
            5624903,
            "$derivative input must not be null or missing",
        )),
    };
    let (y1, y2) = (value(y1)?, value(y2)?);
    let run = coordinate(&x2).zip(coordinate(&x1)).map(|(b, a)| b.sub(a));
    // In a window of one document there is no time between.
    let slope = run.and_then(|run| y2.sub(y1).div(run));
    let scaled = slope.map(|slope| match unit_ms {
        Some(unit) => slope.mul(Number::Int64(unit)),
        None => slope,
    });
    Ok(scaled.map_or(OwnedValue::Null, |number| Value::from(number).to_owned()))
}
