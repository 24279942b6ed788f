//! The types of parameters, and reading their values from text.

use crate::settings::{Secret, SettingValue};

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A boolean. On the command line its presence means this value.
    Switch(bool),
    /// Any text; the string is the placeholder in the help.
    Text(&'static str),
    /// A password; the string is the placeholder in the help. No output contains the value.
    Secret(&'static str),
    /// Several texts; the string is the placeholder in the help. On the command line and in a parameter they are
    /// separated by commas.
    List(&'static str),
    /// A whole number in an inclusive range.
    Integer(i64, i64),
    /// A number in an inclusive range.
    Number(f64, f64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Only on the command line: its presence means this word.
    Word(&'static str),
    /// A BSON document, which only `setParameter` takes.
    Document,
    /// The server computes the value.
    ReadOnly,
}

impl Kind {
    /// Reads a value from text.
    pub fn parse(self, text: &str) -> Result<SettingValue, String> {
        match self {
            Kind::Switch(_) => match text {
                "true" | "1" => Ok(SettingValue::Switch(true)),
                "false" | "0" => Ok(SettingValue::Switch(false)),
                _ => Err(format!("must be true or false, not '{text}'")),
            },
            Kind::Text(_) | Kind::Word(_) => Ok(SettingValue::Text(text.to_string())),
            Kind::Secret(_) => Ok(SettingValue::Secret(Secret::new(text))),
            Kind::List(_) => {
                let parts = text.split(',').map(|part| part.trim().to_owned());
                Ok(SettingValue::List(parts.collect()))
            }
            Kind::Integer(low, high) => match text.parse::<i64>() {
                Ok(n) if (low..=high).contains(&n) => Ok(SettingValue::Integer(n)),
                _ => Err(format!(
                    "must be a whole number from {low} to {high}, not '{text}'"
                )),
            },
            Kind::Number(low, high) => match text.parse::<f64>() {
                Ok(n) if (low..=high).contains(&n) => Ok(SettingValue::Number(n)),
                _ => Err(format!(
                    "must be a number from {low} to {high}, not '{text}'"
                )),
            },
            Kind::Choice(words) if words.contains(&text) => {
                Ok(SettingValue::Text(text.to_string()))
            }
            Kind::Choice(words) => {
                Err(format!("must be one of {}, not '{text}'", words.join(", ")))
            }
            Kind::Document | Kind::ReadOnly => Err("cannot be set at the start".to_owned()),
        }
    }

    /// The values that it takes, for the pages.
    pub fn values(self) -> String {
        match self {
            Kind::Switch(_) => "true or false".to_owned(),
            Kind::Text(_) | Kind::Secret(_) => "text".to_owned(),
            Kind::List(_) => "a list of texts".to_owned(),
            Kind::Integer(1, i64::MAX) => "1 or more".to_owned(),
            Kind::Integer(low, high) => format!("{low} to {high}"),
            Kind::Number(low, high) => format!("{low} to {high}"),
            Kind::Choice(words) => words.join(", "),
            Kind::Word(word) => format!("its presence means {word}"),
            Kind::Document => "a document".to_owned(),
            Kind::ReadOnly => "read only".to_owned(),
        }
    }
}
