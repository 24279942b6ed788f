//! Reading the value of one option, with the errors of MongoDB's command parser.

use frond_bson::{Doc, Value};
use frond_error::ErrorCode;

use crate::error::{Error, Result, command};

/// An option: its name with that of its command (`create.capped`), and its value.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    pub owner: &'a str,
    pub name: &'a str,
    pub value: Value<'a>,
}

impl<'a> Given<'a> {
    /// The options in `doc` that are not null, which stands for an option that is left out.
    ///
    /// # Errors
    /// 40415 for a name that is not one of `known`, 40413 for one that is given twice.
    pub fn each(owner: &'a str, doc: &'a Doc, known: &[&str]) -> Result<Vec<Given<'a>>> {
        let mut all = Vec::new();
        for (at, (name, value)) in doc.iter().enumerate() {
            let given = Given { owner, name, value };
            if !known.contains(&name) {
                return Err(given.unknown());
            }
            if doc.iter().take(at).any(|(other, _)| other == name) {
                return Err(given.duplicate());
            }
            if !value.is_nullish() {
                all.push(given);
            }
        }
        Ok(all)
    }

    pub fn wrong_type(&self, expected: &str) -> Error {
        command(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{}.{}' is the wrong type '{}', expected {expected}",
                self.owner,
                self.name,
                self.value.type_name()
            ),
        )
    }

    /// A boolean, or a number that stands for one.
    pub fn flag(&self) -> Result<bool> {
        match self.value {
            Value::Bool(on) => Ok(on),
            value if value.is_number() => Ok(value.truthy()),
            _ => Err(self.wrong_type("types '[bool, long, int, decimal, double]'")),
        }
    }

    /// A boolean, and nothing that stands for one.
    pub fn boolean(&self) -> Result<bool> {
        match self.value {
            Value::Bool(on) => Ok(on),
            _ => Err(self.wrong_type("type 'bool'")),
        }
    }

    pub fn str(&self) -> Result<&'a str> {
        match self.value {
            Value::String(text) => Ok(text),
            _ => Err(self.wrong_type("type 'string'")),
        }
    }

    pub fn doc(&self) -> Result<&'a Doc> {
        match self.value {
            Value::Document(doc) => Ok(doc),
            _ => Err(self.wrong_type("type 'object'")),
        }
    }

    pub fn array(&self) -> Result<&'a Doc> {
        match self.value {
            Value::Array(array) => Ok(array),
            _ => Err(self.wrong_type("type 'array'")),
        }
    }

    /// An integer; a fraction is truncated.
    pub fn integer(&self) -> Result<i64> {
        let value = self.value;
        if !value.is_number() {
            return Err(self.wrong_type("types '[long, int, decimal, double]'"));
        }
        // `as` saturates, and turns NaN into 0, as MongoDB does.
        Ok(value
            .as_i64_lossless()
            .unwrap_or_else(|| value.as_f64().unwrap_or(0.0) as i64))
    }

    /// An integer within a range.
    pub fn integer_between(&self, least: i64, most: i64) -> Result<i64> {
        let number = self.integer()?;
        let wrong = |relation, limit| {
            command(
                ErrorCode::Location(51024),
                format!(
                    "BSON field '{}' value must be {relation} {limit}, actual value '{number}'",
                    self.name
                ),
            )
        };
        match number {
            n if n < least => Err(wrong(">=", least)),
            n if n > most => Err(wrong("<=", most)),
            n => Ok(n),
        }
    }

    /// One of several names.
    pub fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Result<T> {
        let given = self.str()?;
        let found = words.iter().find(|(word, _)| *word == given);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            command(
                ErrorCode::BadValue,
                format!(
                    "Enumeration value '{given}' for field '{}.{}' is not a valid value.",
                    self.owner, self.name
                ),
            )
        })
    }

    /// A field that is given twice.
    pub fn duplicate(&self) -> Error {
        command(
            ErrorCode::IDLDuplicateField,
            format!(
                "BSON field '{}.{}' is a duplicate field",
                self.owner, self.name
            ),
        )
    }

    /// A field that the document at hand does not have.
    pub fn unknown(&self) -> Error {
        command(
            ErrorCode::IDLUnknownField,
            format!(
                "BSON field '{}.{}' is an unknown field.",
                self.owner, self.name
            ),
        )
    }
}

/// A required field is missing.
pub(crate) fn missing(owner: &str, name: &str) -> Error {
    command(
        ErrorCode::IDLFailedToParse,
        format!("BSON field '{owner}.{name}' is missing but a required field"),
    )
}
