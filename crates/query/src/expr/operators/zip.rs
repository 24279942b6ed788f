//! `$zip`.

use super::{Entry, Eval, Operator, custom};
use crate::bounds;
use crate::expr::node::{Context, CustomOperator, Node};
use crate::expr::parse::{Named, Parser, optional, required};
use crate::expr::value::Val;
use frond_bson::{ArrayBuf, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[custom("$zip", parse, Eval::Never)];

const NAMES: &[Named] = &[
    required("inputs"),
    optional("defaults"),
    optional("useLongestLength"),
];

/// An empty array as an element of an array, at most.
const EMPTY_ROW_BYTES: usize = 24;

#[derive(Debug)]
struct Zip {
    inputs: Vec<Node>,
    /// None, or one for each input.
    defaults: Vec<Node>,
    longest: bool,
}

fn parse(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            34460,
            format!(
                "$zip only supports an object as an argument, found {}",
                argument.type_name()
            ),
        ));
    };
    parser.check_named(operator.name, NAMES, spec)?;
    let mut list = |name: &str, code: i32| -> Result<Vec<Node>> {
        match spec.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items.values().map(|v| parser.parse(v)).collect(),
            Some(other) => Err(Error::location(
                code,
                format!(
                    "{name} must be an array of expressions, found {}",
                    other.type_name()
                ),
            )),
        }
    };
    let (inputs, defaults) = (list("inputs", 34461)?, list("defaults", 34462)?);
    let longest = match spec.get("useLongestLength") {
        None => false,
        Some(Value::Bool(longest)) => longest,
        Some(other) => {
            return Err(Error::location(
                34463,
                format!(
                    "useLongestLength must be a bool, found {}",
                    other.type_name()
                ),
            ));
        }
    };
    if inputs.is_empty() {
        return Err(Error::location(
            34465,
            "$zip requires at least one input array",
        ));
    }
    if !defaults.is_empty() && !longest {
        return Err(Error::location(
            34466,
            "cannot specify defaults unless useLongestLength is true",
        ));
    }
    if !defaults.is_empty() && defaults.len() != inputs.len() {
        return Err(Error::location(
            34467,
            "defaults and inputs must have the same length",
        ));
    }
    Ok(Node::Custom(Box::new(Zip {
        inputs,
        defaults,
        longest,
    })))
}

impl CustomOperator for Zip {
    fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for node in &self.inputs {
            let input = node.eval(context)?;
            if input.is_nullish() {
                return Ok(Val::NULL);
            }
            if input.as_array().is_none() {
                return Err(Error::location(
                    34468,
                    format!(
                        "$zip found a non-array expression in input: {}",
                        crate::display::computed(&input.or_null())
                    ),
                ));
            }
            inputs.push(input);
        }
        let columns: Vec<Vec<Value<'_>>> = (inputs.iter().filter_map(Val::as_array))
            .map(bounds::elements_of)
            .collect::<Result<_>>()?;
        let lengths = columns.iter().map(Vec::len);
        let (least, most) = (lengths.clone().min(), lengths.max());
        let mut defaults = Vec::new();
        // They are evaluated only where they are needed.
        if self.longest && least != most {
            for node in &self.defaults {
                defaults.push(node.eval(context)?);
            }
        }
        let rows = if self.longest { most } else { least };
        let mut zipped = ArrayBuf::new();
        for row in 0..rows.unwrap_or(0) {
            bounds::make_room(&mut zipped, EMPTY_ROW_BYTES)?;
            zipped.push_array(|array| {
                for (at, column) in columns.iter().enumerate() {
                    let value = match (column.get(row), defaults.get(at)) {
                        (Some(value), _) => *value,
                        (None, Some(default)) => default.or_null(),
                        (None, None) => Value::Null,
                    };
                    bounds::work(1)?;
                    bounds::push(array, &value)?;
                }
                Ok::<(), Error>(())
            })?;
        }
        Ok(Val::array(zipped))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Node)) {
        (self.inputs.iter().chain(&self.defaults)).for_each(visit);
    }
}
