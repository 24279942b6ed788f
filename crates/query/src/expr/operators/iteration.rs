//! `$filter`, `$map`, `$reduce`: expressions evaluated for each element of an array.

use super::array::integer;
use super::{Entry, Eval, Operator, custom};
use crate::bounds;
use crate::expr::node::{Context, CustomOperator, Frame, Node};
use crate::expr::parse::Parser;
use crate::expr::value::Val;
use crate::raw;
use frond_bson::{ArrayBuf, Doc, MAX_DEPTH, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[
    custom("$filter", parse_filter, Eval::Never),
    custom("$map", parse_map, Eval::Never),
    custom("$reduce", parse_reduce, Eval::Never),
];

fn argument_doc<'v>(name: &str, code: i32, argument: Value<'v>) -> Result<&'v Doc> {
    argument.as_doc().ok_or_else(|| {
        Error::location(
            code,
            format!(
                "{name} only supports an object as its argument, not {}",
                argument.type_name()
            ),
        )
    })
}

/// The value of `as`, `this` if it is left out.
fn variable_name<'v>(operator: &str, doc: &'v Doc) -> Result<&'v str> {
    match doc.get("as") {
        None => Ok("this"),
        Some(Value::String(name)) => Ok(name),
        Some(other) => Err(Error::failed_to_parse(format!(
            "{operator} requires 'as' to be a string, found: {}",
            other.type_name()
        ))),
    }
}

fn missing_parameter(operator: &str, name: &str, code: i32) -> Error {
    Error::location(code, format!("Missing '{name}' parameter to {operator}"))
}

fn check_names(operator: &str, doc: &Doc, known: &[&str], code: i32) -> Result<()> {
    match doc.iter().find(|(name, _)| !known.contains(name)) {
        Some((name, _)) => Err(Error::location(
            code,
            format!("Unrecognized parameter to {operator}: {name}"),
        )),
        None => Ok(()),
    }
}

fn parse_filter(
    parser: &mut Parser<'_>,
    _operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let doc = argument_doc("$filter", 28646, argument)?;
    check_names("$filter", doc, &["input", "as", "cond", "limit"], 28647)?;
    let input = (doc.get("input")).ok_or_else(|| missing_parameter("$filter", "input", 28648))?;
    let condition = (doc.get("cond")).ok_or_else(|| missing_parameter("$filter", "cond", 28650))?;
    let input = parser.parse(input)?;
    let limit = match doc.get("limit") {
        Some(limit) => parser.parse(limit)?,
        None => Node::Absent,
    };
    parser.binding(&[variable_name("$filter", doc)?], |parser, variable| {
        let condition = parser.parse(condition)?;
        Ok(Node::Custom(Box::new(Filter {
            input,
            variable,
            nodes: condition.count(),
            condition,
            limit,
        })))
    })
}

#[derive(Debug)]
struct Filter {
    input: Node,
    variable: u32,
    condition: Node,
    /// Nodes of the condition: the work of a round.
    nodes: usize,
    limit: Node,
}

impl CustomOperator for Filter {
    fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        let input = self.input.eval(context)?;
        if input.is_nullish() {
            return Ok(Val::NULL);
        }
        let Some(array) = input.as_array() else {
            return Err(Error::location(
                28651,
                format!(
                    "input to $filter must be an array not {}",
                    input.type_name()
                ),
            ));
        };
        let limit = match self.limit.eval(context)? {
            limit if limit.is_nullish() => usize::MAX,
            limit => match integer(&limit) {
                Some(limit) if limit > 0 => usize::try_from(limit).unwrap_or(usize::MAX),
                Some(limit) => {
                    return Err(Error::location(
                        327392,
                        format!("$filter: limit must be greater than 0: {limit}"),
                    ));
                }
                None => {
                    return Err(Error::location(
                        327391,
                        format!(
                            "$filter: limit must be represented as a 32-bit integral value: {}",
                            crate::display::computed(&limit.or_null())
                        ),
                    ));
                }
            },
        };
        let mark = bounds::mark();
        let mut kept = ArrayBuf::new();
        for value in array.values() {
            if kept.len() >= limit {
                break;
            }
            bounds::work(self.nodes)?;
            let values = [Val::Ref(value)];
            let is_kept = with(context, self.variable, &values, &self.condition, |v| {
                Ok(v.truthy())
            })?;
            bounds::settle(mark, kept.capacity());
            if is_kept {
                bounds::push(&mut kept, &value)?;
            }
        }
        Ok(Val::array(kept))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Node)) {
        [&self.input, &self.condition, &self.limit]
            .into_iter()
            .for_each(visit);
    }
}

/// Evaluates `body` with variables bound.
fn with<T>(
    context: &Context<'_>,
    first: u32,
    values: &[Val<'_>],
    body: &Node,
    result: impl FnOnce(Val<'_>) -> Result<T>,
) -> Result<T> {
    let frame = Frame {
        first,
        values,
        outer: context.frame,
    };
    let inner = Context {
        frame: Some(&frame),
        ..*context
    };
    result(body.eval(&inner)?)
}

fn parse_map(
    parser: &mut Parser<'_>,
    _operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let doc = argument_doc("$map", 16878, argument)?;
    check_names("$map", doc, &["input", "as", "in"], 16879)?;
    let input = (doc.get("input")).ok_or_else(|| missing_parameter("$map", "input", 16880))?;
    let body = (doc.get("in")).ok_or_else(|| missing_parameter("$map", "in", 16882))?;
    let input = parser.parse(input)?;
    parser.binding(&[variable_name("$map", doc)?], |parser, variable| {
        let body = parser.parse(body)?;
        Ok(Node::Custom(Box::new(Map {
            input,
            variable,
            nodes: body.count(),
            body,
        })))
    })
}

#[derive(Debug)]
struct Map {
    input: Node,
    variable: u32,
    body: Node,
    /// Nodes of the body: the work of a round.
    nodes: usize,
}

impl CustomOperator for Map {
    fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        let input = self.input.eval(context)?;
        if input.is_nullish() {
            return Ok(Val::NULL);
        }
        let Some(array) = input.as_array() else {
            return Err(Error::location(
                16883,
                format!("input to $map must be an array not {}", input.type_name()),
            ));
        };
        let mark = bounds::mark();
        let mut mapped = ArrayBuf::new();
        for value in array.values() {
            bounds::work(self.nodes)?;
            let values = [Val::Ref(value)];
            with(context, self.variable, &values, &self.body, |v| {
                bounds::push(&mut mapped, &v.or_null())
            })?;
            bounds::settle(mark, mapped.capacity());
        }
        Ok(Val::array(mapped))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Node)) {
        [&self.input, &self.body].into_iter().for_each(visit);
    }
}

fn parse_reduce(
    parser: &mut Parser<'_>,
    _operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let doc = argument_doc("$reduce", 40075, argument)?;
    check_names("$reduce", doc, &["input", "initialValue", "in"], 40076)?;
    let part = |name, code| (doc.get(name)).ok_or_else(|| missing_parameter("$reduce", name, code));
    let body = part("in", 40079)?;
    let input = parser.parse(part("input", 40077)?)?;
    let initial = parser.parse(part("initialValue", 40078)?)?;
    parser.binding(&["value", "this"], |parser, first| {
        let body = parser.parse(body)?;
        Ok(Node::Custom(Box::new(Reduce {
            input,
            initial,
            first,
            nodes: body.count(),
            body,
        })))
    })
}

#[derive(Debug)]
struct Reduce {
    input: Node,
    initial: Node,
    /// `$$value`; `$$this` is the next.
    first: u32,
    body: Node,
    /// Nodes of the body: the work of a round.
    nodes: usize,
}

impl CustomOperator for Reduce {
    fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        let input = self.input.eval(context)?;
        if input.is_nullish() {
            return Ok(Val::NULL);
        }
        let Some(array) = input.as_array() else {
            return Err(Error::location(
                40080,
                format!(
                    "$reduce requires that 'input' be an array, found: {}",
                    crate::display::computed(&input.or_null())
                ),
            ));
        };
        let mark = bounds::mark();
        let mut accumulated = self.initial.eval(context)?.into_owned()?;
        for value in array.values() {
            bounds::work(self.nodes)?;
            bounds::settle(mark, accumulated.heap_bytes());
            let values = [accumulated, Val::Ref(value)];
            accumulated = with(context, self.first, &values, &self.body, |value| {
                value.into_owned()
            })?;
            // Each round may wrap the last result once more.
            let nested = accumulated.get().map_or(0, |v| raw::depth(&v));
            if nested > MAX_DEPTH {
                return Err(Error::overflow(format!(
                    "$reduce built a value that is nested deeper than the limit of {MAX_DEPTH}"
                )));
            }
        }
        Ok(accumulated)
    }

    fn visit(&self, visit: &mut dyn FnMut(&Node)) {
        [&self.input, &self.initial, &self.body]
            .into_iter()
            .for_each(visit);
    }
}
