//! `$bit`.

use super::{Argument, Change, Modifier, Operator, Placed, Target};
use crate::display;
use frond_bson::Value;
use frond_error::{Error, Result};

/// `{$bit: {<path>: {and | or | xor: <integer>, ..}}}`.
pub(super) const BIT: Operator = Operator {
    name: "$bit",
    parse,
};

fn parse<'a>(argument: &Argument<'a>) -> Result<Placed<'a>> {
    let Value::Document(spec) = argument.value else {
        return Err(Error::bad_value(format!(
            "The $bit modifier is not compatible with a {}. You must pass in an embedded \
             document: {{$bit: {{field: {{and/or/xor: #}}}}",
            argument.value.type_name()
        )));
    };
    let mut steps = Vec::new();
    for (name, operand) in spec.iter() {
        let apply: BitOperation = match name {
            "and" => |a, b| a & b,
            "or" => |a, b| a | b,
            "xor" => |a, b| a ^ b,
            _ => {
                return Err(Error::bad_value(format!(
                    "The $bit modifier only supports 'and', 'or', and 'xor', not '{name}' which \
                     is an unknown operator: {{{}}}",
                    display::element(name, &operand)
                )));
            }
        };
        match operand {
            Value::Int32(v) => steps.push((apply, i64::from(v), false)),
            Value::Int64(v) => steps.push((apply, v, true)),
            _ => {
                return Err(Error::bad_value(format!(
                    "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not \
                     supported here: {{{}}}",
                    operand.type_name(),
                    display::element(name, &operand)
                )));
            }
        }
    }
    if steps.is_empty() {
        return Err(Error::bad_value(
            "You must pass in at least one bitwise operation. The format is: {$bit: {field: \
             {and/or/xor: #}}",
        ));
    }
    argument.here(Bit { steps })
}

/// One of the bitwise operations on 64 bits.
type BitOperation = fn(i64, i64) -> i64;

#[derive(Debug)]
struct Bit {
    /// The operation, its operand, and whether that is 64 bits wide.
    steps: Vec<(BitOperation, i64, bool)>,
}

impl Modifier for Bit {
    fn modify<'a>(&'a self, target: &Target<'a>) -> Result<Change<'a>> {
        let (mut value, mut wide) = match target.value {
            None => (0, false),
            Some(Value::Int32(v)) => (i64::from(v), false),
            Some(Value::Int64(v)) => (v, true),
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "Cannot apply $bit to a value of non-integral type.{} has the field {} of \
                     non-integer type {}",
                    display::id(target.scope.root),
                    target.name,
                    other.type_name()
                )));
            }
        };
        for (apply, operand, operand_wide) in &self.steps {
            // Sign extension commutes with the three operations.
            value = apply(value, *operand);
            wide |= operand_wide;
        }
        Ok(Change::Value(match i32::try_from(value) {
            Ok(narrow) if !wide => Value::Int32(narrow),
            _ => Value::Int64(value),
        }))
    }
}
