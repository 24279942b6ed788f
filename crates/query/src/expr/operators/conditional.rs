//! `$cond`, `$ifNull`, `$switch`.

use super::{Arguments, Entry, Eval, Operator, custom, lazy};
use crate::expr::node::{Context, Node};
use crate::expr::parse::{Parser, required};
use crate::expr::value::Val;
use frond_bson::Value;
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[
    custom("$cond", parse_cond, Eval::Lazy(cond)),
    lazy(
        "$ifNull",
        Arguments::Count {
            min: 2,
            max: Arguments::MANY,
        },
        if_null,
    ),
    custom("$switch", parse_switch, Eval::Lazy(switch)),
];

fn parse_cond(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(doc) = argument else {
        return parser.positional(operator, 3, 3, argument);
    };
    if doc.first().is_some_and(|(name, _)| name.starts_with('$')) {
        return parser.positional(operator, 3, 3, argument);
    }
    const NAMES: &[crate::expr::parse::Named] =
        &[required("if"), required("then"), required("else")];
    for (name, _) in doc.iter() {
        if !NAMES.iter().any(|known| known.name == name) {
            return Err(Error::location(
                17083,
                format!("Unrecognized parameter to $cond: {name}"),
            ));
        }
    }
    for (known, code) in NAMES.iter().zip([17080, 17081, 17082]) {
        if !doc.contains_key(known.name) {
            return Err(Error::location(
                code,
                format!("Missing '{}' parameter to $cond", known.name),
            ));
        }
    }
    parser.named(operator, NAMES, argument)
}

fn cond<'a>(nodes: &'a [Node], context: &Context<'a>) -> Result<Val<'a>> {
    match nodes {
        [condition, then, _] if condition.eval(context)?.truthy() => then.eval(context),
        [_, _, otherwise] => otherwise.eval(context),
        _ => Ok(Val::Missing),
    }
}

fn if_null<'a>(nodes: &'a [Node], context: &Context<'a>) -> Result<Val<'a>> {
    let mut last = Val::Missing;
    for node in nodes {
        last = node.eval(context)?;
        if !last.is_nullish() {
            break;
        }
    }
    Ok(last)
}

/// Arguments become condition, result, condition, result, .., and the default, which may be absent.
fn parse_switch(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(doc) = argument else {
        return Err(Error::location(
            40060,
            format!(
                "$switch requires an object as an argument, found: {}",
                argument.type_name()
            ),
        ));
    };
    let mut nodes = Vec::new();
    let mut default = Node::Absent;
    for (name, value) in doc.iter() {
        match (name, value) {
            ("branches", Value::Array(branches)) => {
                for branch in branches.values() {
                    parse_branch(parser, branch, &mut nodes)?;
                }
            }
            ("branches", other) => {
                return Err(Error::location(
                    40061,
                    format!(
                        "$switch expected an array for 'branches', found: {}",
                        other.type_name()
                    ),
                ));
            }
            ("default", value) => default = parser.parse(value)?,
            _ => {
                return Err(Error::location(
                    40067,
                    format!("$switch found an unknown argument: {name}"),
                ));
            }
        }
    }
    if nodes.is_empty() {
        return Err(Error::location(
            40068,
            "$switch requires at least one branch.",
        ));
    }
    nodes.push(default);
    Ok(Node::Call(operator, nodes))
}

fn parse_branch(parser: &mut Parser<'_>, branch: Value<'_>, nodes: &mut Vec<Node>) -> Result<()> {
    let Value::Document(branch) = branch else {
        return Err(Error::location(
            40062,
            format!(
                "$switch expected each branch to be an object, found: {}",
                branch.type_name()
            ),
        ));
    };
    for (name, _) in branch.iter() {
        if !matches!(name, "case" | "then") {
            return Err(Error::location(
                40063,
                format!("$switch found an unknown argument to a branch: {name}"),
            ));
        }
    }
    for (name, code) in [("case", 40064), ("then", 40065)] {
        let Some(value) = branch.get(name) else {
            return Err(Error::location(
                code,
                format!("$switch requires each branch have a '{name}' expression"),
            ));
        };
        nodes.push(parser.parse(value)?);
    }
    Ok(())
}

fn switch<'a>(nodes: &'a [Node], context: &Context<'a>) -> Result<Val<'a>> {
    let Some((default, branches)) = nodes.split_last() else {
        return Ok(Val::Missing);
    };
    for branch in branches.chunks_exact(2) {
        if let [case, then] = branch
            && case.eval(context)?.truthy()
        {
            return then.eval(context);
        }
    }
    if default.is_absent() {
        return Err(Error::location(
            40066,
            "$switch could not find a matching branch for an input, and no default was specified.",
        ));
    }
    default.eval(context)
}
