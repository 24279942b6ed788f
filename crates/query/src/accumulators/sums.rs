//! `$sum`, `$avg`, `$count`, `$stdDevPop`, `$stdDevSamp`.

use super::{Accumulator, Operator, Plan, Start, plain, same};
use crate::expr::{Context, Node, Val};
use crate::statistics::{Average, StdDev, Sum};
use frond_bson::{OwnedValue, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "$sum",
        parse: |p, _, v| plain(p, v, || Box::new(Sum::default())),
    },
    Operator {
        name: "$avg",
        parse: |p, _, v| plain(p, v, || Box::new(Average::default())),
    },
    Operator {
        name: "$stdDevPop",
        parse: |p, _, v| plain(p, v, || Box::new(Population(StdDev::default()))),
    },
    Operator {
        name: "$stdDevSamp",
        parse: |p, _, v| plain(p, v, || Box::new(Sample(StdDev::default()))),
    },
    Operator {
        name: "$count",
        parse: |_, _, argument| match argument {
            Value::Document(doc) if doc.is_empty() => Ok(Plan {
                input: Node::Constant(OwnedValue::Int32(1)),
                start: Start::Plain(|| Box::new(Sum::default())),
            }),
            _ => Err(Error::type_mismatch(
                "$count takes no arguments, i.e. $count:{}",
            )),
        },
    },
];

impl Accumulator for Sum {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        if let Some(value) = value.get() {
            Sum::add(self, &value);
        }
        Ok(0)
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        Ok(Some(Value::from(self.total()).to_owned()))
    }

    fn can_merge(&self) -> bool {
        true
    }

    fn merge(&mut self, other: Box<dyn Accumulator>) -> Result<usize> {
        Sum::merge(self, &same(other)?);
        Ok(0)
    }
}

impl Accumulator for Average {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        if let Some(value) = value.get() {
            Average::add(self, &value);
        }
        Ok(0)
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        let average = Average::result(self).map_or(Value::Null, Value::from);
        Ok(Some(average.to_owned()))
    }

    fn can_merge(&self) -> bool {
        true
    }

    fn merge(&mut self, other: Box<dyn Accumulator>) -> Result<usize> {
        Average::merge(self, &same(other)?);
        Ok(0)
    }
}

struct Population(StdDev);

impl Accumulator for Population {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        if let Some(value) = value.get() {
            self.0.add(&value);
        }
        Ok(0)
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        Ok(Some(Value::from(self.0.population()).to_owned()))
    }
}

struct Sample(StdDev);

impl Accumulator for Sample {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        if let Some(value) = value.get() {
            self.0.add(&value);
        }
        Ok(0)
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        Ok(Some(Value::from(self.0.sample()).to_owned()))
    }
}
