//! `$densify`: adds documents where a sequence of numbers or dates has gaps.

use super::Stage;
use super::sort::Sort;
use super::unwind::with_value;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{DocSource, ExecContext, Fault, Source};
use crate::expr::unit::Unit;
use crate::expr::zone::Zone;
use crate::expr::{FieldPath, field_path};
use crate::memory::StageMemory;
use crate::number::Number;
use crate::options::{Options, Type};
use crate::paths::check_field_path;
use frond_bson::{Doc, DocBuf, OwnedValue, Value, compare, key};
use frond_error::{Error, Result};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// `{$densify: {field: .., partitionByFields: [..], range: {step: .., bounds: .., unit: ..}}}`.
#[derive(Debug)]
pub(crate) struct Densify {
    field: FieldPath,
    partitions: Vec<FieldPath>,
    step: OwnedValue,
    unit: Option<Unit>,
    bounds: Bounds,
}

#[derive(Debug)]
enum Bounds {
    /// From the least value of all documents to the greatest.
    Full,
    /// From the least value of a partition to its greatest.
    Partition,
    /// From a value to before another one.
    Between(OwnedValue, OwnedValue),
}

pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::failed_to_parse(format!(
            "The $densify stage specification must be an object, found {}",
            argument.type_name()
        )));
    };
    let options = Options::new("$densify", spec);
    options.only(&["field", "partitionByFields", "range"])?;
    let field = options.required("field", Type::String)?;
    let field = field.as_str().unwrap_or_default();
    let range = options.required("range", Type::Object)?;
    let mut partitions = Vec::new();
    for path in options.strings("partitionByFields")? {
        check_field_path(path)?;
        if path == field || is_below(path, field) || is_below(field, path) {
            return Err(Error::location(
                8993000,
                format!("the field '{field}' of $densify cannot be one of partitionByFields"),
            ));
        }
        partitions.push(field_path(path, path)?);
    }
    check_field_path(field)?;
    let stage = parse_range(
        range.as_doc().unwrap_or(Doc::empty()),
        field_path(field, field)?,
        partitions,
    )?;
    let mut order = DocBuf::new();
    if !matches!(stage.bounds, Bounds::Full) {
        for path in &stage.partitions {
            order.push(&path.dotted(), 1);
        }
    }
    order.push(field, 1);
    out.push(Stage::Sort(Arc::new(Sort::new(
        order,
        context.environment.collator,
    )?)));
    out.push(Stage::Densify(Arc::new(stage)));
    Ok(())
}

fn is_below(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent)
        .is_some_and(|rest| rest.starts_with('.'))
}

fn parse_range(range: &Doc, field: FieldPath, partitions: Vec<FieldPath>) -> Result<Densify> {
    let options = Options::new("$densify.range", range);
    options.only(&["step", "bounds", "unit"])?;
    let step = options.required("step", Type::Any)?;
    let bounds = options.required("bounds", Type::Any)?;
    let unit = options.optional("unit", Type::String)?;
    if !step.is_number() || compare(&step, &Value::Int32(0)).is_le() || step.is_nan() {
        return Err(Error::location(
            5733401,
            "The step parameter in a range statement must be a strictly positive numeric value",
        ));
    }
    let unit = match unit.as_ref().and_then(Value::as_str) {
        None => None,
        Some(name) => {
            if step.as_i64_lossless().is_none() {
                return Err(Error::location(
                    6586400,
                    "The step parameter in a range statement must be a whole number when \
                     densifying a date range",
                ));
            }
            Some(Unit::named(name).ok_or_else(|| {
                Error::failed_to_parse(format!("unknown time unit value: {name}"))
            })?)
        }
    };
    let bounds = parse_bounds(bounds, &step, unit)?;
    if matches!(bounds, Bounds::Partition) && partitions.is_empty() {
        return Err(Error::location(
            5733408,
            "One cannot specify the bounds as 'partition' without specifying a non-empty array of \
             partitionByFields. You may have meant to specify 'full' bounds.",
        ));
    }
    Ok(Densify {
        field,
        partitions,
        step: step.to_owned(),
        unit,
        bounds,
    })
}

fn parse_bounds(bounds: Value<'_>, step: &Value<'_>, unit: Option<Unit>) -> Result<Bounds> {
    let both = "A bounding array must contain either both dates or both numeric types";
    match bounds {
        Value::String("full") => Ok(Bounds::Full),
        Value::String("partition") => Ok(Bounds::Partition),
        Value::String(_) => Err(Error::location(
            5946802,
            "Bounds string must either be 'full' or 'partition'",
        )),
        Value::Array(array) => {
            let values: Vec<Value<'_>> = array.values().collect();
            let [low, high] = *values else {
                return Err(Error::location(
                    5733403,
                    "A bounding array in a range statement must have exactly two elements",
                ));
            };
            if compare(&low, &high).is_gt() {
                return Err(Error::location(
                    5733402,
                    "A bounding array must be an ascending array of either two dates or two numbers",
                ));
            }
            match (low, high) {
                (Value::DateTime(_), Value::DateTime(_)) => {
                    if unit.is_none() {
                        return Err(Error::location(
                            5733410,
                            "A bounding array of dates must specify a unit",
                        ));
                    }
                }
                (Value::DateTime(_), _) => return Err(Error::location(5733405, both)),
                (low, _) if low.is_number() => {
                    if unit.is_some() {
                        return Err(Error::location(
                            5733409,
                            "Numeric bounds may not have unit parameter",
                        ));
                    }
                    if !high.is_number() {
                        return Err(Error::location(5733406, both));
                    }
                    let code = low.type_code();
                    if high.type_code() != code || step.type_code() != code {
                        return Err(Error::location(
                            5876900,
                            "Upper bound, lower bound, and step must all have the same type",
                        ));
                    }
                }
                _ => {
                    return Err(Error::location(
                        5946800,
                        "Explicit bounds must be numeric or dates",
                    ));
                }
            }
            Ok(Bounds::Between(low.to_owned(), high.to_owned()))
        }
        _ => Err(Error::location(
            5733404,
            "The bounds in a range statement must be the string 'full', 'partition', or an \
             ascending array of two numbers or two dates",
        )),
    }
}

pub(super) fn open<E: Fault>(
    stage: &Arc<Densify>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    Box::new(Filling {
        stage: stage.clone(),
        input: Some(input),
        made_max: context.limits.densify_documents,
        made: 0,
        least: None,
        greatest: None,
        partitions: Vec::new(),
        by_key: HashMap::new(),
        gaps: VecDeque::new(),
        held: context.held(),
    })
}

/// The progress of one partition.
struct Partition {
    /// The fields that its documents have in common.
    fields: DocBuf,
    /// The next value on a step.
    next: OwnedValue,
}

/// Values that are made in a partition up to one, which is left out unless it is `inclusive`.
struct Gap {
    partition: usize,
    end: OwnedValue,
    inclusive: bool,
    /// The document behind the gap and its value.
    then: Option<(OwnedValue, DocBuf)>,
}

struct Filling<E> {
    stage: Arc<Densify>,
    /// `None` after its end.
    input: Option<Source<E>>,
    made_max: u64,
    made: u64,
    /// The least and the greatest value of all documents.
    least: Option<OwnedValue>,
    greatest: Option<OwnedValue>,
    /// In the order of their first documents.
    partitions: Vec<Partition>,
    by_key: HashMap<Vec<u8>, usize>,
    /// The current gap, and those that follow.
    gaps: VecDeque<Gap>,
    /// The memory of the partitions.
    held: StageMemory,
}

impl<E: Fault> DocSource<E> for Filling<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        loop {
            if let Some(doc) = self.fill_gap()? {
                return Ok(Some(doc));
            }
            let Some(input) = &mut self.input else {
                return Ok(None);
            };
            let Some(doc) = input.next()? else {
                self.input = None;
                self.end()?;
                continue;
            };
            match self.stage.value(&doc)? {
                Some(value) => self.take(value, doc)?,
                // Documents without a value pass.
                None => return Ok(Some(doc)),
            }
        }
    }
}

impl<E> Filling<E> {
    /// The next document of the gaps.
    fn fill_gap(&mut self) -> Result<Option<DocBuf>> {
        while let Some(gap) = self.gaps.front() {
            let Some(partition) = self.partitions.get_mut(gap.partition) else {
                return Ok(None);
            };
            let order = compare(&partition.next.as_value(), &gap.end.as_value());
            if order.is_lt() || (gap.inclusive && order.is_eq()) {
                self.made += 1;
                if self.made > self.made_max {
                    return Err(too_many(self.made, self.made_max));
                }
                let after = self.stage.after(&partition.next)?;
                let value = std::mem::replace(&mut partition.next, after);
                return self.stage.make(&partition.fields, &value).map(Some);
            }
            let then = self.gaps.pop_front().and_then(|gap| gap.then);
            if let Some((value, doc)) = then {
                // A document on a step takes the place of the one that would be made.
                if compare(&partition.next.as_value(), &value.as_value()).is_eq() {
                    partition.next = self.stage.after(&partition.next)?;
                }
                return Ok(Some(doc));
            }
        }
        Ok(None)
    }

    /// Looks at a document; what is missing before it is made first.
    fn take(&mut self, value: OwnedValue, doc: DocBuf) -> Result<()> {
        let least = self.least.get_or_insert_with(|| value.clone()).clone();
        self.greatest = Some(value.clone());
        let (start, end) = match &self.stage.bounds {
            Bounds::Full => (least, value.clone()),
            Bounds::Partition => (value.clone(), value.clone()),
            Bounds::Between(low, high) => {
                let beyond = compare(&high.as_value(), &value.as_value()).is_lt();
                (low.clone(), if beyond { high } else { &value }.clone())
            }
        };
        let partition = self.partition(&doc, start)?;
        self.gaps.push_back(Gap {
            partition,
            end,
            inclusive: false,
            then: Some((value, doc)),
        });
        Ok(())
    }

    /// The number of a document's partition, whose values begin with `start` if it is new.
    fn partition(&mut self, doc: &Doc, start: OwnedValue) -> Result<usize> {
        let mut fields = DocBuf::new();
        for path in &self.stage.partitions {
            if let Some(value) = path.value_of(doc)?.get() {
                fields = with_value(&fields, &path.0, Some(value));
            }
        }
        let mut encoded = Vec::new();
        key::encode(&Value::Document(&fields), &mut encoded);
        if let Some(partition) = self.by_key.get(&encoded) {
            return Ok(*partition);
        }
        let own = size_of::<Partition>() + size_of::<(Vec<u8>, usize)>();
        let bytes = encoded.capacity() + fields.capacity() + 2 * own;
        (self.held).require(self.held.bytes() + bytes, "$densify")?;
        let partition = self.partitions.len();
        self.partitions.push(Partition {
            fields,
            next: start,
        });
        self.by_key.insert(encoded, partition);
        Ok(partition)
    }

    /// After the last document: what is missing at the ends of partitions.
    fn end(&mut self) -> Result<()> {
        let stage = self.stage.clone();
        let (end, inclusive) = match (&stage.bounds, &self.greatest) {
            (Bounds::Between(low, high), _) => {
                if stage.partitions.is_empty() {
                    self.partition(Doc::empty(), low.clone())?;
                }
                (high, false)
            }
            (Bounds::Full, Some(greatest)) if !stage.partitions.is_empty() => (greatest, true),
            _ => return Ok(()),
        };
        self.gaps = (0..self.partitions.len())
            .map(|partition| Gap {
                partition,
                end: end.clone(),
                inclusive,
                then: None,
            })
            .collect();
        Ok(())
    }
}

fn too_many(made: u64, most: u64) -> Error {
    Error::location(
        5897900,
        format!(
            "Generated {made} documents in $densify, which is over the limit of {most}. Increase \
             the 'internalQueryMaxAllowedDensifyDocs' parameter to allow more generated documents"
        ),
    )
}

impl Densify {
    /// The value of a document; `None` if it is null or missing.
    fn value(&self, doc: &Doc) -> Result<Option<OwnedValue>> {
        let value = self.field.value_of(doc)?;
        if value.is_nullish() {
            return Ok(None);
        }
        let value = value.or_null();
        match (&value, self.unit) {
            (Value::DateTime(_), Some(_)) => {}
            (Value::DateTime(_), None) => {
                return Err(Error::location(
                    6053600,
                    "Encountered date while densifying numbers: a unit is required for dates",
                ));
            }
            (number, None) if number.is_number() => {}
            (number, Some(_)) if number.is_number() => {
                return Err(Error::location(
                    6053600,
                    "Encountered numeric value in densify when step has a date unit.",
                ));
            }
            _ => {
                return Err(Error::location(
                    5733201,
                    format!(
                        "Densify field type must be numeric or a date, found {}",
                        value.type_name()
                    ),
                ));
            }
        }
        Ok(Some(value.to_owned()))
    }

    /// The value one step further.
    fn after(&self, value: &OwnedValue) -> Result<OwnedValue> {
        let step = self.step.as_value();
        match (value.as_value(), self.unit) {
            (Value::DateTime(ms), Some(unit)) => {
                let amount = step.as_i64_lossless().unwrap_or(1);
                let next = unit.add(ms, amount, &Zone::UTC)?;
                Ok(OwnedValue::DateTime(next))
            }
            (number, _) => match (Number::from_value(&number), Number::from_value(&step)) {
                (Some(number), Some(step)) => Ok(Value::from(number.add(step)).to_owned()),
                _ => Err(Error::internal("$densify steps over what is no number")),
            },
        }
    }

    /// A document of a partition with this value.
    fn make(&self, fields: &Doc, value: &OwnedValue) -> Result<DocBuf> {
        let mut here = fields;
        let names = &self.field.0;
        for (at, name) in names.iter().enumerate() {
            match here.get(name) {
                Some(Value::Document(inner)) => here = inner,
                Some(Value::Array(_)) => {
                    return Err(Error::location(
                        5733307,
                        "$densify cannot generate fields nested inside arrays",
                    ));
                }
                Some(_) if at + 1 < names.len() => {
                    return Err(Error::location(
                        5733308,
                        "$densify cannot overwrite non-object values with objects",
                    ));
                }
                _ => break,
            }
        }
        Ok(with_value(fields, names, Some(value.as_value())))
    }
}
