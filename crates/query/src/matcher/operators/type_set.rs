//! `$type`.

use frond_bson::{Value, tag, type_code_of_name};

use super::super::parse::Field;
use super::super::{Expr, Op};
use crate::display;
use frond_error::{Error, Result};

/// A set of BSON types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeSet {
    /// Bit `n` stands for the type byte `n`; MinKey (0xFF) is bit 0.
    bits: u128,
}

const NUMBERS: [u8; 4] = [tag::DOUBLE, tag::INT32, tag::INT64, tag::DECIMAL128];

impl TypeSet {
    /// Whether values of this one's type are in the set.
    pub fn contains(self, value: &Value<'_>) -> bool {
        self.bits & bit(value.type_code()) != 0
    }

    /// Whether the type with this type byte is in the set.
    pub fn contains_code(self, type_byte: u8) -> bool {
        self.bits & bit(type_byte) != 0
    }

    /// Adds a type by its name, or all numbers.
    pub(crate) fn add_alias(&mut self, alias: &str) -> Result<()> {
        if alias == "number" {
            NUMBERS.iter().for_each(|code| self.bits |= bit(*code));
            return Ok(());
        }
        match type_code_of_name(alias) {
            Some(code) => {
                self.bits |= bit(code);
                Ok(())
            }
            None => Err(Error::bad_value(format!(
                "Unknown type name alias: {alias}"
            ))),
        }
    }
}

fn bit(type_byte: u8) -> u128 {
    1 << if type_byte == tag::MIN_KEY {
        0
    } else {
        type_byte & 0x7F
    }
}

fn add(set: &mut TypeSet, argument: &Value<'_>) -> Result<()> {
    match argument {
        Value::String(alias) => set.add_alias(alias)?,
        number if number.is_number() => {
            let code = number.as_i64_lossless();
            set.bits |= match code {
                Some(-1) => bit(tag::MIN_KEY),
                Some(127) => bit(tag::MAX_KEY),
                Some(code @ 1..=19) => 1 << code,
                Some(0) => {
                    return Err(Error::bad_value(
                        "Invalid numerical type code: 0. Instead use {$exists:false}.",
                    ));
                }
                _ => {
                    let shown = display::value(number);
                    return Err(Error::bad_value(format!(
                        "Invalid numerical type code: {shown}"
                    )));
                }
            };
        }
        _ => {
            return Err(Error::type_mismatch(
                "type must be represented as a number or a string",
            ));
        }
    }
    Ok(())
}

pub(crate) fn parse(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    let mut set = TypeSet::default();
    match argument {
        Value::Array(items) => {
            for item in items.values() {
                add(&mut set, &item)?;
            }
        }
        argument => add(&mut set, &argument)?,
    }
    if set.bits == 0 {
        return Err(Error::failed_to_parse(format!(
            "{} must match at least one type",
            field.path
        )));
    }
    Ok(Some(field.leaf(Op::Type(set))))
}
