//! The accumulators of `$group`: one file per family, and the table that names them.

mod extremes;
mod lists;
mod merge;
mod order;
mod sums;

use crate::error::{Error, Result};
use crate::expr::{Context, Node, Parser, Val};
use frond_bson::{Collator, Doc, OwnedValue, Value};
use std::fmt::Debug;

/// One accumulator operator.
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    /// Reads `{<name>: <argument>}`.
    pub(crate) parse: fn(&mut Parser<'_>, &str, Value<'_>) -> Result<Plan>,
}

impl Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A parsed accumulator: the expression it is fed with, and how its state begins.
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
    Counted(fn(usize) -> Box<dyn Accumulator>, usize),
    /// The same for each group, comparing strings by a collator.
    Collated(fn(Collator) -> Box<dyn Accumulator>, Collator),
    /// Both.
    CountedCollated(fn(usize, Collator) -> Box<dyn Accumulator>, usize, Collator),
    /// By a sort order.
    Sorted(Box<order::Order>),
}

impl Start {
    pub(crate) fn begin(&self) -> Box<dyn Accumulator> {
        match self {
            Start::Plain(make) => make(),
            Start::Counted(make, n) => make(*n),
            Start::Collated(make, collator) => make(collator.clone()),
            Start::CountedCollated(make, n, collator) => make(*n, collator.clone()),
            Start::Sorted(order) => order.begin(),
        }
    }
}

/// The state of one accumulator in one group.
pub(crate) trait Accumulator: Send {
    /// Takes the value of one document. Returns by how many bytes the state grew.
    fn add(&mut self, value: &Val<'_>, context: &Context<'_>) -> Result<usize>;

    /// The result; `None` leaves the field out.
    fn result(&self) -> Option<OwnedValue>;

    /// Whether further documents can change the result.
    fn wants_more(&self) -> bool {
        true
    }
}

/// Every accumulator, by family.
pub(crate) const FAMILIES: &[&[Operator]] = &[
    extremes::OPERATORS,
    lists::OPERATORS,
    merge::OPERATORS,
    order::OPERATORS,
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
    name: &str,
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
    name: &str,
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
    name: &str,
    argument: Value<'_>,
) -> Result<(Node, usize)> {
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

/// The constant `n`.
fn number(parser: &mut Parser<'_>, name: &str, doc: &Doc) -> Result<usize> {
    let n = doc
        .get("n")
        .ok_or_else(|| Error::location(5787906, format!("{name} requires an 'n' field")))?;
    let node = parser.parse(n)?;
    let mut constant = true;
    node.fields(&mut |_| constant = false);
    if !constant {
        return Err(Error::not_supported(format!(
            "an 'n' of {name} that depends on the group"
        )));
    }
    let value = node.eval(&Context::new(Doc::empty(), 0))?;
    crate::expr::operators::positive_n(name, &value)
}

/// The accumulators, for the page on compatibility.
pub(crate) fn reference() -> crate::reference::Family {
    crate::reference::Family {
        title: "Accumulators of `$group`",
        names: FAMILIES
            .iter()
            .flat_map(|family| family.iter())
            .map(|o| o.name)
            .collect(),
        lacking: Vec::new(),
    }
}
