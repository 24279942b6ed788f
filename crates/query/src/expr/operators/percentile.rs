//! `$median`, `$percentile` of the numbers in an array.

use super::{Eval, Operator, special};
use crate::aggregate::{Percentiles, percentile_number};
use crate::error::Result;
use crate::expr::node::{Context, Node, Special};
use crate::expr::parse::Parser;
use crate::expr::value::Val;
use frond_bson::Value;

pub(super) const OPERATORS: &[Operator] = &[
    special("$median", parse, Eval::Never),
    special("$percentile", parse, Eval::Never),
];

fn parse(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let (input, percentiles) = Percentiles::parse(parser, operator.name, 7436200, argument)?;
    Ok(Node::Special(Box::new(Percentile {
        input: parser.parse(input)?,
        percentiles,
    })))
}

#[derive(Debug)]
struct Percentile {
    input: Node,
    percentiles: Percentiles,
}

impl Special for Percentile {
    fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        let input = self.input.eval(context)?;
        let mut numbers: Vec<f64> = match input.as_array() {
            Some(array) => array
                .values()
                .filter_map(|value| percentile_number(&Val::Ref(value)))
                .collect(),
            None => percentile_number(&input).into_iter().collect(),
        };
        numbers.sort_by(f64::total_cmp);
        Ok(Val::Owned(self.percentiles.of_sorted(&numbers)))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.input);
    }
}
