//! `$let` and `$literal`.

use super::{Entry, Eval, Operator, custom};
use crate::expr::node::{Context, CustomOperator, Frame, Node, reserve_values};
use crate::expr::parse::Parser;
use crate::expr::value::Val;
use frond_bson::Value;
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[
    custom("$let", parse_let, Eval::Never),
    custom(
        "$literal",
        |_, _, value| Ok(Node::Constant(value.into())),
        Eval::Never,
    ),
    custom(
        "$const",
        |_, _, value| Ok(Node::Constant(value.into())),
        Eval::Never,
    ),
];

fn parse_let(
    parser: &mut Parser<'_>,
    _operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(doc) = argument else {
        return Err(Error::location(
            16874,
            "$let only supports an object as its argument",
        ));
    };
    let (mut vars, mut body) = (None, None);
    for (name, value) in doc.iter() {
        match name {
            "vars" => vars = Some(value),
            "in" => body = Some(value),
            _ => {
                return Err(Error::location(
                    16875,
                    format!("Unrecognized parameter to $let: {name}"),
                ));
            }
        }
    }
    let vars = vars
        .ok_or_else(|| Error::location(16876, "Missing 'vars' parameter to $let"))?
        .as_doc()
        .ok_or_else(|| Error::location(10065, "invalid parameter: expected an object (vars)"))?;
    let body = body.ok_or_else(|| Error::location(16877, "Missing 'in' parameter to $let"))?;
    let mut names = Vec::new();
    let mut values = Vec::new();
    for (name, value) in vars.iter() {
        names.push(name);
        // The variables do not see one another.
        values.push(parser.parse(value)?);
    }
    parser.binding(&names, |parser, first| {
        Ok(Node::Custom(Box::new(Let {
            first,
            values,
            body: parser.parse(body)?,
        })))
    })
}

#[derive(Debug)]
struct Let {
    first: u32,
    values: Vec<Node>,
    body: Node,
}

impl CustomOperator for Let {
    fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        reserve_values(self.values.len())?;
        let mut values = Vec::with_capacity(self.values.len());
        for node in &self.values {
            values.push(node.eval(context)?);
        }
        let frame = Frame {
            first: self.first,
            values: &values,
            outer: context.frame,
        };
        let inner = Context {
            frame: Some(&frame),
            ..*context
        };
        self.body.eval(&inner)?.into_owned()
    }

    fn visit(&self, visit: &mut dyn FnMut(&Node)) {
        self.values.iter().for_each(&mut *visit);
        visit(&self.body);
    }
}
