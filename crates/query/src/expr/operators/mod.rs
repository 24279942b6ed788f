//! The expression operators: one function each, one file per family, and the table of all.

mod arithmetic;
mod array;
mod binary;
mod boolean;
mod comparison;
mod conditional;
mod convert;
mod date;
mod date_math;
mod date_text;
mod fields;
mod hash;
mod iteration;
mod javascript;
mod meta;
mod misc;
mod object;
pub(crate) mod percentile;
mod powers;
mod regex;
mod set;
mod sort_array;
mod statistics;
mod string;
mod trigonometry;
mod types;
mod variables;
mod zip;

pub(crate) use array::positive_n;
pub(crate) use javascript::condition;
pub(crate) use object::{merge, merge_input};

use super::node::{Context, Node};
use super::parse::{Named, Parser};
use super::value::Val;
use frond_bson::{Collator, Value};
use frond_error::{Error, ErrorCode, Result};
use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

pub(crate) struct Operator {
    pub(crate) name: &'static str,
    pub(crate) arguments: Arguments,
    pub(crate) eval: Eval,
}

/// The form of an operator's argument.
pub(crate) enum Arguments {
    /// A list; one argument may be given without a list.
    Count {
        min: usize,
        max: usize,
    },
    /// A document of named arguments.
    Named(&'static [Named]),
    CustomOperator(ParseSpecial),
}

/// Parses an operator's argument in its custom form.
pub(crate) type ParseSpecial = fn(&mut Parser<'_>, &'static Operator, Value<'_>) -> Result<Node>;

impl Arguments {
    /// `max` of an operator that takes any number of arguments.
    pub(crate) const MANY: usize = usize::MAX;
}

#[derive(Clone, Copy)]
pub(crate) enum Eval {
    One(for<'a> fn(Val<'a>) -> Result<Val<'a>>),
    Two(for<'a> fn(Val<'a>, Val<'a>) -> Result<Val<'a>>),
    /// Any number; of a list, those that were given. Named ones that were not given are missing.
    Many(for<'a> fn(&[Val<'a>]) -> Result<Val<'a>>),
    /// As `Many`, but an argument that was given and is missing is null: only one that was not given
    /// is missing.
    Given(for<'a> fn(&[Val<'a>]) -> Result<Val<'a>>),
    /// Any number, as `Many`, of an operator that compares values: strings by the collator.
    Collated(for<'a> fn(&[Val<'a>], &Collator) -> Result<Val<'a>>),
    /// Evaluates its arguments itself, as far as it needs them.
    Lazy(for<'a> fn(&'a [Node], &Context<'a>) -> Result<Val<'a>>),
    /// Never called: parsing gives another node.
    Never,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const fn one(name: &'static str, f: for<'a> fn(Val<'a>) -> Result<Val<'a>>) -> Operator {
    Operator {
        name,
        arguments: Arguments::Count { min: 1, max: 1 },
        eval: Eval::One(f),
    }
}

const fn two(name: &'static str, f: for<'a> fn(Val<'a>, Val<'a>) -> Result<Val<'a>>) -> Operator {
    Operator {
        name,
        arguments: Arguments::Count { min: 2, max: 2 },
        eval: Eval::Two(f),
    }
}

const fn many(
    name: &'static str,
    min: usize,
    max: usize,
    f: for<'a> fn(&[Val<'a>]) -> Result<Val<'a>>,
) -> Operator {
    Operator {
        name,
        arguments: Arguments::Count { min, max },
        eval: Eval::Many(f),
    }
}

/// An operator that compares values.
const fn collated(
    name: &'static str,
    min: usize,
    max: usize,
    f: for<'a> fn(&[Val<'a>], &Collator) -> Result<Val<'a>>,
) -> Operator {
    Operator {
        name,
        arguments: Arguments::Count { min, max },
        eval: Eval::Collated(f),
    }
}

const fn lazy(
    name: &'static str,
    arguments: Arguments,
    f: for<'a> fn(&'a [Node], &Context<'a>) -> Result<Val<'a>>,
) -> Operator {
    Operator {
        name,
        arguments,
        eval: Eval::Lazy(f),
    }
}

const fn named(
    name: &'static str,
    names: &'static [Named],
    f: for<'a> fn(&[Val<'a>]) -> Result<Val<'a>>,
) -> Operator {
    Operator {
        name,
        arguments: Arguments::Named(names),
        eval: Eval::Many(f),
    }
}

/// As `named`, for functions that distinguish arguments that were not given from missing ones.
const fn given(
    name: &'static str,
    names: &'static [Named],
    f: for<'a> fn(&[Val<'a>]) -> Result<Val<'a>>,
) -> Operator {
    Operator {
        name,
        arguments: Arguments::Named(names),
        eval: Eval::Given(f),
    }
}

/// As `collated`, with named arguments.
const fn named_collated(
    name: &'static str,
    names: &'static [Named],
    f: for<'a> fn(&[Val<'a>], &Collator) -> Result<Val<'a>>,
) -> Operator {
    Operator {
        name,
        arguments: Arguments::Named(names),
        eval: Eval::Collated(f),
    }
}

const fn custom(name: &'static str, parse: ParseSpecial, eval: Eval) -> Operator {
    Operator {
        name,
        arguments: Arguments::CustomOperator(parse),
        eval,
    }
}

/// Visits the operands of an operator that is an accumulator, too: a single operand that is an array stands for its elements.
/// Missing ones are left out.
fn each_operand<'v>(operands: &'v [Val<'_>], mut visit: impl FnMut(Value<'v>)) {
    if let [only] = operands
        && let Some(Value::Array(array)) = only.get()
    {
        array.values().for_each(visit);
        return;
    }
    operands.iter().filter_map(Val::get).for_each(&mut visit);
}

/// Every expression operator, by family.
pub(crate) const FAMILIES: &[&[Operator]] = &[
    arithmetic::OPERATORS,
    array::OPERATORS,
    boolean::OPERATORS,
    comparison::OPERATORS,
    conditional::OPERATORS,
    convert::OPERATORS,
    date::OPERATORS,
    date_math::OPERATORS,
    date_text::OPERATORS,
    hash::OPERATORS,
    iteration::OPERATORS,
    javascript::OPERATORS,
    meta::OPERATORS,
    object::OPERATORS,
    percentile::OPERATORS,
    powers::OPERATORS,
    regex::OPERATORS,
    set::OPERATORS,
    sort_array::OPERATORS,
    misc::OPERATORS,
    statistics::OPERATORS,
    string::OPERATORS,
    trigonometry::OPERATORS,
    types::OPERATORS,
    variables::OPERATORS,
    zip::OPERATORS,
];

/// The operator with this name.
pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    static BY_NAME: LazyLock<HashMap<&'static str, &'static Operator>> = LazyLock::new(|| {
        let all = FAMILIES.iter().flat_map(|family| family.iter());
        all.map(|operator| (operator.name, operator)).collect()
    });
    BY_NAME.get(name).copied()
}

/// The error for a name that is not in the table.
pub(crate) fn unknown(name: &str) -> Error {
    Error::new(
        ErrorCode::InvalidPipelineOperator,
        format!("Unrecognized expression '{name}'"),
    )
}

/// The names of the expression operators.
pub(crate) fn names() -> Vec<&'static str> {
    FAMILIES
        .iter()
        .flat_map(|family| family.iter())
        .map(|o| o.name)
        .collect()
}
