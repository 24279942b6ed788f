//! `$sortArray`.

use super::{Entry, Eval, Operator, custom};
use crate::bounds;
use crate::element_order::{ElementOrder, OrderFault};
use crate::expr::node::{Context, CustomOperator, Node};
use crate::expr::parse::Parser;
use crate::expr::value::Val;
use frond_bson::{Collator, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[custom("$sortArray", parse, Eval::Never)];

#[derive(Debug)]
struct SortArray {
    input: Node,
    order: ElementOrder,
    collator: Collator,
}

fn parse(
    parser: &mut Parser<'_>,
    _operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            2_942_500,
            format!(
                "$sortArray requires an object as an argument, found: {}",
                argument.type_name()
            ),
        ));
    };
    let known = |name: &str| matches!(name, "input" | "sortBy");
    if let Some((name, _)) = spec.iter().find(|(name, _)| !known(name)) {
        return Err(Error::location(
            2_942_501,
            format!("$sortArray found an unknown argument: {name}"),
        ));
    }
    let input = spec
        .get("input")
        .ok_or_else(|| Error::location(2_942_502, "$sortArray requires 'input' to be specified"))?;
    let order = spec.get("sortBy").ok_or_else(|| {
        Error::location(2_942_503, "$sortArray requires 'sortBy' to be specified")
    })?;
    Ok(Node::Custom(Box::new(SortArray {
        input: parser.parse(input)?,
        // It is not an expression: its names are paths and may begin with a dollar.
        order: ElementOrder::parse(order).map_err(refused)?,
        collator: parser.collator().clone(),
    })))
}

fn refused(fault: OrderFault) -> Error {
    match fault {
        OrderFault::Fields(message) => Error::location(2_942_505, format!("BadValue: {message}")),
        OrderFault::Direction => Error::location(2_942_506, fault.message()),
        OrderFault::Type => Error::location(2_942_507, fault.message()),
    }
}

impl CustomOperator for SortArray {
    fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        let input = self.input.eval(context)?;
        if input.is_nullish() {
            return Ok(Val::NULL);
        }
        let Some(array) = input.as_array() else {
            return Err(Error::location(
                2_942_504,
                format!(
                    "The input argument to $sortArray must be an array, but was of type: {}",
                    input.type_name()
                ),
            ));
        };
        let mut elements = bounds::elements_of(array)?;
        self.order.sort(&mut elements, &self.collator)?;
        Ok(Val::array(bounds::array_of(elements)?))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.input);
    }
}
