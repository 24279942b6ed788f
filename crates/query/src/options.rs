//! Reading the options of a stage with the errors of MongoDB's command parser.

use frond_bson::{Doc, Value};
use frond_error::{Error, ErrorCode, Result};

/// The type of an option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Type {
    Any,
    String,
    Object,
    Array,
}

impl Type {
    fn fits(self, value: &Value<'_>) -> bool {
        match self {
            Type::Any => true,
            Type::String => matches!(value, Value::String(_)),
            Type::Object => matches!(value, Value::Document(_)),
            Type::Array => matches!(value, Value::Array(_)),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Type::Any => "any",
            Type::String => "string",
            Type::Object => "object",
            Type::Array => "array",
        }
    }
}

/// The options of a stage, or of a part of one.
pub(crate) struct Options<'o> {
    name: &'static str,
    spec: &'o Doc,
}

impl<'o> Options<'o> {
    /// The options in `spec`; `name` is their name in errors.
    pub(crate) fn new(name: &'static str, spec: &'o Doc) -> Options<'o> {
        Options { name, spec }
    }

    /// Fails with 40415 for a name that is not one of these.
    pub(crate) fn only(&self, known: &[&str]) -> Result<()> {
        match self.spec.iter().find(|(name, _)| !known.contains(name)) {
            None => Ok(()),
            Some((name, _)) => Err(Error::new(
                ErrorCode::IDLUnknownField,
                format!("BSON field '{}.{name}' is an unknown field.", self.name),
            )),
        }
    }

    /// An option that may be left out; null is left out, unless any type is taken. Error 14 for a value of another type.
    pub(crate) fn optional(&self, name: &str, kind: Type) -> Result<Option<Value<'o>>> {
        let Some(value) = self.spec.get(name) else {
            return Ok(None);
        };
        if kind.fits(&value) {
            return Ok(Some(value));
        }
        if value.is_nullish() {
            return Ok(None);
        }
        Err(Error::type_mismatch(format!(
            "BSON field '{}.{name}' is the wrong type '{}', expected type '{}'",
            self.name,
            value.type_name(),
            kind.name()
        )))
    }

    /// An option that has to be there. Error 40414 if it is not.
    pub(crate) fn required(&self, name: &str, kind: Type) -> Result<Value<'o>> {
        self.optional(name, kind)?.ok_or_else(|| {
            Error::new(
                ErrorCode::IDLFailedToParse,
                format!(
                    "BSON field '{}.{name}' is missing but a required field",
                    self.name
                ),
            )
        })
    }

    /// A list of strings, empty if it is left out.
    pub(crate) fn strings(&self, name: &str) -> Result<Vec<&'o str>> {
        let list = self.optional(name, Type::Array)?;
        let Some(Value::Array(list)) = list else {
            return Ok(Vec::new());
        };
        list.iter()
            .map(|(at, value)| match value {
                Value::String(text) => Ok(text),
                other => Err(Error::type_mismatch(format!(
                    "BSON field '{}.{name}.{at}' is the wrong type '{}', expected type 'string'",
                    self.name,
                    other.type_name()
                ))),
            })
            .collect()
    }
}
