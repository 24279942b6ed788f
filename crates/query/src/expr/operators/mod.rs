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

use super::node::{Context, Eval, Node, Operator};
use super::parse::{Arguments, Entry, Named, ParseSpecial, Parser};
use super::value::Val;
use crate::environment::Environment;
use frond_bson::{Collator, Value};
use frond_error::Result;
use std::collections::HashMap;
use std::sync::LazyLock;

const fn one(name: &'static str, f: for<'a> fn(Val<'a>) -> Result<Val<'a>>) -> Entry {
    Entry {
        operator: Operator {
            name,
            eval: Eval::One(f),
        },
        arguments: Arguments::Count { min: 1, max: 1 },
    }
}

const fn two(name: &'static str, f: for<'a> fn(Val<'a>, Val<'a>) -> Result<Val<'a>>) -> Entry {
    Entry {
        operator: Operator {
            name,
            eval: Eval::Two(f),
        },
        arguments: Arguments::Count { min: 2, max: 2 },
    }
}

const fn many(
    name: &'static str,
    min: usize,
    max: usize,
    f: for<'a> fn(&[Val<'a>]) -> Result<Val<'a>>,
) -> Entry {
    Entry {
        operator: Operator {
            name,
            eval: Eval::Many(f),
        },
        arguments: Arguments::Count { min, max },
    }
}

/// An operator that compares values.
const fn collated(
    name: &'static str,
    min: usize,
    max: usize,
    f: for<'a> fn(&[Val<'a>], &Collator) -> Result<Val<'a>>,
) -> Entry {
    Entry {
        operator: Operator {
            name,
            eval: Eval::Collated(f),
        },
        arguments: Arguments::Count { min, max },
    }
}

const fn lazy(
    name: &'static str,
    arguments: Arguments,
    f: for<'a> fn(&'a [Node], &Context<'a>) -> Result<Val<'a>>,
) -> Entry {
    Entry {
        operator: Operator {
            name,
            eval: Eval::Lazy(f),
        },
        arguments,
    }
}

const fn named(
    name: &'static str,
    names: &'static [Named],
    f: for<'a> fn(&[Val<'a>]) -> Result<Val<'a>>,
) -> Entry {
    Entry {
        operator: Operator {
            name,
            eval: Eval::Many(f),
        },
        arguments: Arguments::Named(names),
    }
}

/// As `named`, for functions that distinguish arguments that were not given from missing ones.
const fn given(
    name: &'static str,
    names: &'static [Named],
    f: for<'a> fn(&[Val<'a>]) -> Result<Val<'a>>,
) -> Entry {
    Entry {
        operator: Operator {
            name,
            eval: Eval::Given(f),
        },
        arguments: Arguments::Named(names),
    }
}

/// As `collated`, with named arguments.
const fn named_collated(
    name: &'static str,
    names: &'static [Named],
    f: for<'a> fn(&[Val<'a>], &Collator) -> Result<Val<'a>>,
) -> Entry {
    Entry {
        operator: Operator {
            name,
            eval: Eval::Collated(f),
        },
        arguments: Arguments::Named(names),
    }
}

const fn custom(name: &'static str, parse: ParseSpecial, eval: Eval) -> Entry {
    Entry {
        operator: Operator { name, eval },
        arguments: Arguments::CustomOperator(parse),
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
pub(crate) const FAMILIES: &[&[Entry]] = &[
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
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    static BY_NAME: LazyLock<HashMap<&'static str, &'static Entry>> = LazyLock::new(|| {
        let all = FAMILIES.iter().flat_map(|family| family.iter());
        all.map(|entry| (entry.operator.name, entry)).collect()
    });
    BY_NAME.get(name).copied()
}

impl<'v> Parser<'v> {
    /// A parser with the variables of `let` and the collator.
    pub(crate) fn new(environment: &Environment<'v>) -> Parser<'v> {
        Parser::with_operators(find, environment)
    }
}

/// The names of the expression operators.
pub(crate) fn names() -> Vec<&'static str> {
    FAMILIES
        .iter()
        .flat_map(|family| family.iter())
        .map(|entry| entry.operator.name)
        .collect()
}
