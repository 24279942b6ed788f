//! `$inc` and `$mul`.

use super::{Argument, Change, Modifier, Operator, Placed, Target};
use crate::display;
use crate::number::Number;
use frond_error::{Error, Result};

/// `{$inc: {<path>: <number>}}`.
pub(super) const INC: Operator = Operator {
    name: "$inc",
    parse: |argument| parse(argument, &INC_RULE),
};

/// `{$mul: {<path>: <number>}}`.
pub(super) const MUL: Operator = Operator {
    name: "$mul",
    parse: |argument| parse(argument, &MUL_RULE),
};

/// The differences between `$inc` and `$mul`.
#[derive(Debug)]
struct Rule {
    name: &'static str,
    verb: &'static str,
    /// `None` if an int64 overflows.
    apply: fn(Number, Number) -> Option<Number>,
    /// The value of a field that was missing.
    missing: fn(Number) -> Number,
}

const INC_RULE: Rule = Rule {
    name: "$inc",
    verb: "increment",
    apply: Number::checked_add,
    missing: |operand| operand,
};

const MUL_RULE: Rule = Rule {
    name: "$mul",
    verb: "multiply",
    apply: Number::checked_mul,
    // Zero of the operand's type, with its sign; NaN stays NaN.
    missing: |operand| operand.mul(Number::Int32(0)),
};

fn parse<'a>(argument: &Argument<'a>, rule: &'static Rule) -> Result<Placed<'a>> {
    let Some(operand) = Number::from_value(&argument.value) else {
        return Err(Error::type_mismatch(format!(
            "Cannot {} with non-numeric argument: {{{}}}",
            rule.verb,
            display::element(argument.path, &argument.value)
        )));
    };
    argument.here(Arithmetic { rule, operand })
}

#[derive(Debug)]
struct Arithmetic {
    rule: &'static Rule,
    operand: Number,
}

impl Modifier for Arithmetic {
    fn modify<'a>(&'a self, target: &Target<'a>) -> Result<Change<'a>> {
        let Some(value) = target.value else {
            return Ok(Change::Value((self.rule.missing)(self.operand).into()));
        };
        let Some(current) = Number::from_value(&value) else {
            return Err(Error::type_mismatch(format!(
                "Cannot apply {} to a value of non-numeric type. {} has the field '{}' of \
                 non-numeric type {}",
                self.rule.name,
                display::id(target.scope.root),
                target.name,
                value.type_name()
            )));
        };
        match (self.rule.apply)(current, self.operand) {
            Some(result) => Ok(Change::Value(result.into())),
            None => Err(Error::bad_value(format!(
                "Failed to apply {} operations to current value ({}) for document {}",
                self.rule.name,
                current.shell(),
                display::id(target.scope.root)
            ))),
        }
    }

    fn increment(&self) -> Option<Number> {
        (self.rule.name == INC_RULE.name).then_some(self.operand)
    }
}
