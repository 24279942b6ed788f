//! `$rand`, `$binarySize`, `$bsonSize`.

use super::{Entry, Eval, Operator, custom, one};
use crate::expr::node::{Context, CustomOperator, Node};
use crate::expr::parse::Parser;
use crate::expr::value::Val;
use crate::random::Random;
use frond_bson::Value;
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[
    one("$binarySize", binary_size),
    one("$bsonSize", bson_size),
    custom("$rand", parse_rand, Eval::Never),
];

fn size<'a>(bytes: usize) -> Val<'a> {
    i32::try_from(bytes).unwrap_or(i32::MAX).into()
}

fn binary_size<'a>(value: Val<'a>) -> Result<Val<'a>> {
    match value.get() {
        None | Some(Value::Null | Value::Undefined) => Ok(Val::NULL),
        Some(Value::Binary { bytes, .. }) => Ok(size(bytes.len())),
        Some(text) if text.is_string() => Ok(size(text.string_bytes().map_or(0, <[u8]>::len))),
        Some(other) => Err(Error::location(
            51276,
            format!(
                "$binarySize requires a string or BinData argument, found: {}",
                other.type_name()
            ),
        )),
    }
}

fn bson_size<'a>(value: Val<'a>) -> Result<Val<'a>> {
    match value.get() {
        None | Some(Value::Null | Value::Undefined) => Ok(Val::NULL),
        Some(Value::Document(doc)) => Ok(size(doc.len_bytes())),
        Some(other) => Err(Error::location(
            31393,
            format!(
                "$bsonSize requires a document input, found: {}",
                other.type_name()
            ),
        )),
    }
}

#[derive(Debug)]
struct Rand(Random);

fn parse_rand(
    _parser: &mut Parser<'_>,
    _operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    match argument {
        Value::Document(doc) | Value::Array(doc) if doc.is_empty() => {
            Ok(Node::Custom(Box::new(Rand(Random::new()))))
        }
        _ => Err(Error::location(
            3040501,
            "$rand not currently accept arguments",
        )),
    }
}

impl CustomOperator for Rand {
    fn eval<'a>(&'a self, _context: &Context<'a>) -> Result<Val<'a>> {
        Ok(self.0.fraction().into())
    }

    fn visit(&self, _visit: &mut dyn FnMut(&Node)) {}
}
