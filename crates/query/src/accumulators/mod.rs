//! The accumulators of `$group`: one file per family, and the table that names them.

mod extremes;
mod javascript;
mod lists;
mod merge;
mod order;
mod percentile;
mod sums;

use crate::expr::{Context, Node, Parser, Percentiles, Val};
use frond_bson::{Collator, Doc, OwnedValue, Value};
use frond_error::{Error, Result};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

pub(crate) struct Operator {
    pub(crate) name: &'static str,
    /// Reads `{<name>: <argument>}`.
    pub(crate) parse: fn(&mut Parser<'_>, &'static str, Value<'_>) -> Result<Plan>,
}

impl Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A parsed accumulator: its input expression, and its initial state.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) input: Node,
    pub(crate) start: Start,
}

/// Makes the state of one group.
#[derive(Debug)]
pub(crate) enum Start {
    /// The same for each group.
    Plain(fn() -> Box<dyn Accumulator>),
    /// With a number of values to keep, evaluated once per group.
    Counted(fn(usize) -> Box<dyn Accumulator>, Count),
    /// The same for each group, comparing strings by a collator.
    Collated(fn(Collator) -> Box<dyn Accumulator>, Collator),
    CountedCollated(fn(usize, Collator) -> Box<dyn Accumulator>, Count, Collator),
    /// With the requested percentiles.
    Percentiles(Arc<Percentiles>),
    /// By a sort order.
    Sorted(Box<order::Order>),
    /// By functions of JavaScript.
    Scripted(javascript::Scripted),
}

impl Start {
    /// `group` is the `_id` of the group if that is a document: what a number of values may depend
    /// on.
    pub(crate) fn begin(&self, group: &Doc, now_ms: i64) -> Result<Box<dyn Accumulator>> {
        Ok(match self {
            Start::Plain(make) => make(),
            Start::Counted(make, n) => make(n.get(group, now_ms)?),
            Start::Collated(make, collator) => make(collator.clone()),
            Start::CountedCollated(make, n, collator) => {
                make(n.get(group, now_ms)?, collator.clone())
            }
            Start::Percentiles(percentiles) => {
                Box::new(percentile::Numbers::new(percentiles.clone()))
            }
            Start::Sorted(order) => order.begin(group, now_ms)?,
            Start::Scripted(scripted) => scripted.begin(group, now_ms)?,
        })
    }
}

impl Start {
    /// Whether states of different documents can be merged.
    pub(crate) fn can_merge(&self) -> bool {
        match self {
            Start::Plain(make) => make().can_merge(),
            Start::Collated(make, collator) => make(collator.clone()).can_merge(),
            _ => false,
        }
    }
}

/// The other state of a merge, by its type.
fn same<T: Accumulator>(other: Box<dyn Accumulator>) -> Result<T> {
    let other: Box<dyn Any> = other;
    match other.downcast() {
        Ok(other) => Ok(*other),
        Err(_) => Err(Error::internal("a merge of different accumulators")),
    }
}

/// The number of values that an accumulator keeps.
#[derive(Debug)]
pub(crate) enum Count {
    Fixed(usize),
    /// An expression over the `_id` of the group, and the name of the operator.
    OfGroup(Node, &'static str),
}

impl Count {
    pub(crate) fn get(&self, group: &Doc, now_ms: i64) -> Result<usize> {
        match self {
            Count::Fixed(n) => Ok(*n),
            Count::OfGroup(node, operator) => {
                let value = node.evaluate(&Context::new(group, now_ms))?;
                crate::expr::operators::positive_n(operator, &value)
            }
        }
    }
}

/// The state of one accumulator in one group.
pub(crate) trait Accumulator: Any + Send {
    /// Takes the value of one document. Returns by how many bytes the state grew.
    fn add(&mut self, value: &Val<'_>, context: &Context<'_>) -> Result<usize>;

    /// The result; `None` leaves the field out.
    ///
    /// # Errors
    /// Those of functions of JavaScript.
    fn result(&self) -> Result<Option<OwnedValue>>;

    /// Whether [`Accumulator::merge`] can add another state.
    fn can_merge(&self) -> bool {
        false
    }

    /// Adds a state of the same accumulator, whose documents come behind those of this one. Returns by how many bytes the
    /// state grew.
    fn merge(&mut self, _other: Box<dyn Accumulator>) -> Result<usize> {
        Err(Error::internal("these accumulators cannot be merged"))
    }

    /// Whether further documents can change the result.
    fn wants_more(&self) -> bool {
        true
    }
}

/// Every accumulator, by family.
pub(crate) const FAMILIES: &[&[Operator]] = &[
    extremes::OPERATORS,
    javascript::OPERATORS,
    lists::OPERATORS,
    merge::OPERATORS,
    order::OPERATORS,
    percentile::OPERATORS,
    sums::OPERATORS,
];

/// The accumulator with this name.
pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    FAMILIES
        .iter()
        .flat_map(|family| family.iter())
        .find(|operator| operator.name == name)
}

/// An accumulator of any expression.
fn plain(
    parser: &mut Parser<'_>,
    argument: Value<'_>,
    start: fn() -> Box<dyn Accumulator>,
) -> Result<Plan> {
    Ok(Plan {
        input: parser.parse(argument)?,
        start: Start::Plain(start),
    })
}

/// An accumulator of any expression that compares values.
fn collated(
    parser: &mut Parser<'_>,
    argument: Value<'_>,
    start: fn(Collator) -> Box<dyn Accumulator>,
) -> Result<Plan> {
    Ok(Plan {
        input: parser.parse(argument)?,
        start: Start::Collated(start, parser.collator().clone()),
    })
}

/// As [`counted`], of an accumulator that compares values.
fn counted_collated(
    parser: &mut Parser<'_>,
    name: &'static str,
    argument: Value<'_>,
    start: fn(usize, Collator) -> Box<dyn Accumulator>,
) -> Result<Plan> {
    let (input, n) = counted_parts(parser, name, argument)?;
    Ok(Plan {
        input,
        start: Start::CountedCollated(start, n, parser.collator().clone()),
    })
}

/// An accumulator that keeps several values.
fn counted(
    parser: &mut Parser<'_>,
    name: &'static str,
    argument: Value<'_>,
    start: fn(usize) -> Box<dyn Accumulator>,
) -> Result<Plan> {
    let (input, n) = counted_parts(parser, name, argument)?;
    Ok(Plan {
        input,
        start: Start::Counted(start, n),
    })
}

/// The parts `n` and `input` of accumulators that keep several values.
fn counted_parts(
    parser: &mut Parser<'_>,
    name: &'static str,
    argument: Value<'_>,
) -> Result<(Node, Count)> {
    let Value::Document(doc) = argument else {
        return Err(Error::location(
            5787900,
            format!(
                "specification must be an object; found {name}: {}",
                crate::display::value(&argument)
            ),
        ));
    };
    check_names(name, doc, &["n", "input"], 5787901)?;
    let input = doc
        .get("input")
        .ok_or_else(|| Error::location(5787907, format!("{name} requires an 'input' field")))?;
    Ok((parser.parse(input)?, number(parser, name, doc)?))
}

fn check_names(operator: &str, doc: &Doc, known: &[&str], code: i32) -> Result<()> {
    match doc.iter().find(|(name, _)| !known.contains(name)) {
        Some((name, _)) => Err(Error::location(
            code,
            format!("Unknown argument to {operator} '{name}'"),
        )),
        None => Ok(()),
    }
}

/// The part `n`.
fn number(parser: &mut Parser<'_>, name: &'static str, doc: &Doc) -> Result<Count> {
    let n = doc
        .get("n")
        .ok_or_else(|| Error::location(5787906, format!("{name} requires an 'n' field")))?;
    let node = parser.parse(n)?;
    let mut constant = true;
    node.fields(&mut |_| constant = false);
    if !constant {
        return Ok(Count::OfGroup(node, name));
    }
    let value = node.evaluate(&Context::new(Doc::empty(), 0))?;
    Ok(Count::Fixed(crate::expr::operators::positive_n(
        name, &value,
    )?))
}

/// The names of the accumulators.
pub(crate) fn names() -> Vec<&'static str> {
    FAMILIES
        .iter()
        .flat_map(|family| family.iter())
        .map(|o| o.name)
        .filter(|name| !name.starts_with("$_"))
        .collect()
}
