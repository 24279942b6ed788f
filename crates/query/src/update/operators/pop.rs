//! `$pop`.

use super::{Argument, Change, Modifier, Operator, Placed, Scope, Target};
use crate::display;
use frond_bson::{ArrayBuf, Value};
use frond_error::{Error, Result};

/// `{$pop: {<path>: 1 | -1}}`: removes the last or the first element.
pub(super) const POP: Operator = Operator {
    name: "$pop",
    parse,
};

fn parse<'a>(argument: &Argument<'a>) -> Result<Placed<'a>> {
    let element = || display::element(argument.path, &argument.value);
    let Some(number) = argument.value.as_f64() else {
        return Err(Error::failed_to_parse(format!(
            "Expected a number in: {}",
            element()
        )));
    };
    if number != 1.0 && number != -1.0 {
        let shown = if number.fract() == 0.0 && number.abs() < 9e15 {
            (number as i64).to_string()
        } else {
            return Err(Error::failed_to_parse(format!(
                "Expected an integer: {}",
                element()
            )));
        };
        return Err(Error::failed_to_parse(format!(
            "$pop expects 1 or -1, found: {shown}"
        )));
    }
    argument.here(Pop {
        first: number < 0.0,
    })
}

#[derive(Debug)]
struct Pop {
    first: bool,
}

impl Modifier for Pop {
    fn modify<'a>(&'a self, target: &Target<'a>) -> Result<Change<'a>> {
        let array = match target.value {
            None => return Ok(Change::Keep),
            Some(Value::Array(array)) => array,
            Some(other) => {
                return Err(Error::type_mismatch(format!(
                    "Path '{}' contains an element of non-array type '{}'",
                    target.path,
                    other.type_name()
                )));
            }
        };
        let length = array.count();
        if length == 0 {
            return Ok(Change::Keep);
        }
        let dropped = if self.first { 0 } else { length - 1 };
        let mut kept = ArrayBuf::new();
        for (index, element) in array.iter_raw().enumerate() {
            if index != dropped {
                kept.push_raw(&element);
            }
        }
        Ok(Change::Array(kept.into_docbuf()))
    }

    fn creates(&self, _scope: &Scope<'_>) -> bool {
        false
    }

    fn needs_way(&self) -> bool {
        true
    }
}
