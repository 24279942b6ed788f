//! `$bucketAuto`: groups by ranges that are chosen so that they are about equally full.

use super::Stage;
use super::granularity::Granularity;
use super::group::{self, Group};
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{Deferred, DocSource, ExecContext, Fault, Source};
use crate::display;
use crate::expr::{Context, Node, Parser};
use crate::memory::{Fit, StageMemory, scarce};
use crate::meta::MetaFields;
use crate::number::Number;
use crate::spill::{Sorted, Sorter};
use frond_bson::{Doc, DocBuf, OwnedValue, Value, compare, doc};
use frond_error::{Error, ErrorCode, Result};
use std::sync::Arc;

/// `{$bucketAuto: {groupBy: .., buckets: .., output: {..}, granularity: ..}}`.
#[derive(Debug)]
pub(crate) struct BucketAuto {
    by: Node,
    buckets: u64,
    granularity: Option<Granularity>,
    /// The fields of a bucket; the `_id` is not that of the bucket.
    output: Group,
}

impl BucketAuto {
    /// The metadata that the stage asks for.
    pub(crate) fn meta(&self) -> MetaFields {
        self.by.meta() | self.output.meta()
    }

    /// Calls `found` with the paths that the stage reads.
    pub(crate) fn reads(&self, found: &mut dyn FnMut(String)) {
        self.by.fields(&mut |path| found(path.dotted()));
        self.output.reads(found);
    }
}

pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            40240,
            format!(
                "The argument to $bucketAuto must be an object, but found type: {}.",
                argument.type_name()
            ),
        ));
    };
    let (mut by, mut buckets, mut output, mut granularity) = (None, None, None, None);
    for (name, value) in spec.iter() {
        match (name, value) {
            ("groupBy", Value::String(path)) if path.starts_with('$') => by = Some(value),
            ("groupBy", Value::Document(spec))
                if spec.first().is_some_and(|(name, _)| name.starts_with('$')) =>
            {
                by = Some(value);
            }
            ("groupBy", _) => {
                return Err(Error::location(
                    40239,
                    format!(
                        "The $bucketAuto 'groupBy' field must be defined as a $-prefixed path or \
                         an expression object, but found: {}.",
                        display::value(&value)
                    ),
                ));
            }
            ("buckets", value) => buckets = Some(count(value)?),
            ("output", Value::Document(fields)) => output = Some(fields),
            ("output", other) => {
                return Err(Error::location(
                    40244,
                    format!(
                        "The $bucketAuto 'output' field must be an object, but found type: {}.",
                        other.type_name()
                    ),
                ));
            }
            ("granularity", Value::String(name)) => granularity = Some(Granularity::named(name)?),
            ("granularity", other) => {
                return Err(Error::location(
                    40261,
                    format!(
                        "The $bucketAuto 'granularity' field must be a string, but found type: {}.",
                        other.type_name()
                    ),
                ));
            }
            _ => {
                return Err(Error::location(
                    40245,
                    format!("Unrecognized option to $bucketAuto: {name}."),
                ));
            }
        }
    }
    let (Some(by), Some(buckets)) = (by, buckets) else {
        return Err(Error::location(
            40246,
            "$bucketAuto requires 'groupBy' and 'buckets' to be specified.",
        ));
    };
    let mut group = doc! {"_id": null};
    match output {
        Some(fields) => group.push_all(fields),
        None => group.push("count", &doc! {"$sum": 1}),
    }
    out.push(Stage::BucketAuto(Arc::new(BucketAuto {
        by: Parser::new(&context.environment).parse(by)?,
        buckets,
        granularity,
        output: group::parse_group(&group, context)?,
    })));
    Ok(())
}

fn count(value: Value<'_>) -> Result<u64> {
    if !value.is_number() {
        return Err(Error::location(
            40241,
            format!(
                "The $bucketAuto 'buckets' field must be a numeric value, but found type: {}.",
                value.type_name()
            ),
        ));
    }
    let whole = value
        .as_i64_lossless()
        .and_then(|number| i32::try_from(number).ok())
        .ok_or_else(|| {
            Error::location(
                40242,
                format!(
                    "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, \
                     but found {}.",
                    display::value(&value)
                ),
            )
        })?;
    match u64::try_from(whole) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(Error::location(
            40243,
            format!("The $bucketAuto 'buckets' field must be greater than 0, but found: {whole}."),
        )),
    }
}

pub(super) fn open<E: Fault>(
    stage: &Arc<BucketAuto>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    let stage = stage.clone();
    let budget = context.budget("$bucketAuto", context.limits.bucket_auto);
    let now_ms = context.now_ms;
    Box::new(Deferred::new(input, move |mut input: Source<E>| {
        let mut sorter = Sorter::new(budget.clone(), None);
        while let Some(doc) = input.next()? {
            let value = stage.by.evaluate(&Context::new(&doc, now_ms))?;
            let value = value.or_null();
            if stage.granularity.is_some() {
                Granularity::check(&value)?;
            }
            let mut encoded = Vec::new();
            stage.output.collator.encode(&value, &mut encoded);
            sorter.push(encoded, doc)?;
        }
        drop(input);
        let documents = sorter.pushed() as f64;
        let mut buckets = Buckets {
            size: ((documents / stage.buckets as f64).round() as u64).max(1),
            left: stage.buckets,
            sorted: sorter.finish()?,
            next: None,
            held: budget.held(),
            lower: None,
            now_ms,
            stage,
        };
        buckets.advance()?;
        Ok(Box::new(buckets) as Source<E>)
    }))
}

struct Buckets {
    stage: Arc<BucketAuto>,
    now_ms: i64,
    /// Documents that a bucket should have.
    size: u64,
    /// Buckets that may still be made.
    left: u64,
    sorted: Sorted<DocBuf>,
    /// The next document and its value.
    next: Option<(OwnedValue, DocBuf)>,
    /// Counts the bytes of the bucket's accumulators.
    held: StageMemory,
    /// The rounded end of the bucket before.
    lower: Option<OwnedValue>,
}

impl Buckets {
    fn advance(&mut self) -> Result<()> {
        self.next = match self.sorted.next()? {
            None => None,
            Some((_, doc)) => {
                let value = self.stage.by.evaluate(&Context::new(&doc, self.now_ms))?;
                Some((value.into_value().unwrap_or_default(), doc))
            }
        };
        Ok(())
    }

    fn next_bucket(&mut self) -> Result<Option<DocBuf>> {
        let Some((first, _)) = &self.next else {
            return Ok(None);
        };
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let stage = self.stage.clone();
        let first = first.clone();
        let mut state = stage
            .output
            .begin(&Value::Document(Doc::empty()), self.now_ms)?;
        let mut last = first.clone();
        let mut taken = 0;
        self.held.clear();
        // The last bucket takes what is left; others end where the value changes.
        while let Some((value, doc)) = self.next.take() {
            let full = taken >= self.size && self.left > 0;
            if full && !self.belongs(&value, &last) {
                self.next = Some((value, doc));
                break;
            }
            let bytes = state.add(&stage.output, &Context::new(&doc, self.now_ms))?;
            match self.held.add(bytes) {
                Fit::Fits => {}
                Fit::Scarce => return Err(scarce("a bucket of $bucketAuto")),
                Fit::OverLimit => {
                    return Err(Error::new(
                        ErrorCode::ExceededMemoryLimit,
                        "a bucket of $bucketAuto used too much memory: what its accumulators gather cannot spill to disk",
                    ));
                }
            }
            taken += 1;
            last = value;
            self.advance()?;
        }
        let (min, max) = self.bounds(first, last);
        let id = doc! {"min": &min, "max": &max};
        Ok(Some(state.with_id(id.into()).finish(&stage.output)?))
    }

    /// Whether a value goes into a bucket that is full and ends with `last`.
    fn belongs(&self, value: &OwnedValue, last: &OwnedValue) -> bool {
        let last = last.as_value();
        match self.stage.granularity {
            None => {
                let collator = &self.stage.output.collator;
                collator.compare(&value.as_value(), &last).is_eq()
            }
            Some(granularity) => compare(&value.as_value(), &granularity.up(&last)).is_lt(),
        }
    }

    /// The `_id` of a bucket: its bounds as they are shown.
    fn bounds(&mut self, first: OwnedValue, last: OwnedValue) -> (OwnedValue, OwnedValue) {
        let next = self.next.as_ref().map(|(value, _)| value);
        let Some(granularity) = self.stage.granularity else {
            // The upper end is the start of the next bucket, and of the last its greatest value.
            return (first, next.cloned().unwrap_or(last));
        };
        let min = match self.lower.take() {
            Some(lower) => lower,
            None => granularity.down(&first.as_value()).to_owned(),
        };
        let is_zero = Number::from_value(&last.as_value()).is_some_and(Number::is_zero);
        let max = match next {
            // Nothing rounds zero up.
            Some(next) if is_zero => granularity.down(&next.as_value()).to_owned(),
            _ => granularity.up(&last.as_value()).to_owned(),
        };
        self.lower = Some(max.clone());
        (min, max)
    }
}

impl<E: Fault> DocSource<E> for Buckets {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        Ok(self.next_bucket()?)
    }
}
