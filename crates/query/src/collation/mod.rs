//! Collations: `{locale: "de", strength: 2}`.
//!
//! [`parse`] reads a specification into a [`Collator`], which compares strings by the rules of a
//! language. The locales are those of MongoDB; the rules are ICU4X's. Text is always normalized, as
//! MongoDB does it with `normalization: true`.

mod icu;
mod locales;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use frond_bson::{Collator, Doc, DocBuf, Value};

use crate::display;
use frond_error::{Error, ErrorCode, Result};
use icu::Icu;
use locales::{Defaults, Locale};

/// The version that MongoDB 7 and 8 give their collations.
const VERSION: &str = "57.1";

/// The locale of the order by bytes.
const SIMPLE: &str = "simple";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaseFirst {
    Upper,
    Lower,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alternate {
    NonIgnorable,
    Shifted,
}

/// All options of a collation.
#[derive(Clone, Debug)]
struct Options {
    case_level: bool,
    case_first: CaseFirst,
    strength: i32,
    numeric_ordering: bool,
    alternate: Alternate,
    max_variable_is_space: bool,
    normalization: bool,
    backwards: bool,
}

/// Reads a specification. The result for `{locale: "simple"}` compares by bytes.
///
/// # Errors
/// MongoDB's: 40414 without a locale, 40415 for unknown options, 14 for wrong types, 2 for wrong
/// values, 51024 for a strength out of bounds, 161 for another version, 238 for variants of locales
/// that this server lacks.
pub fn parse(spec: &Doc) -> Result<Collator> {
    parse_in("collation", spec)
}

/// As [`parse`]; `owner` names the specification in messages, such as `create.collation`.
///
/// # Errors
/// As [`parse`].
pub fn parse_in(owner: &str, spec: &Doc) -> Result<Collator> {
    let given = Given::read(owner, spec)?;
    let Some(id) = given.locale else {
        return Err(Error::location(
            40414,
            format!("BSON field '{owner}.locale' is missing but a required field"),
        ));
    };
    if id.contains('\0') {
        return Err(Error::bad_value(format!(
            "Field 'locale' cannot contain null byte. Collation spec: {}",
            display::doc(spec)
        )));
    }
    if id == SIMPLE {
        return Ok(Collator::default());
    }
    let (locale, tag) = locale(id, spec)?;
    let options = given.resolve(locale.defaults);
    if let Some(version) = given.version.filter(|version| *version != VERSION) {
        return Err(Error::new(
            ErrorCode::IncompatibleCollationVersion,
            format!(
                "Requested collation version {version} but the only available collator version \
                 was {VERSION}. Requested collation spec: {}",
                display::doc(spec)
            ),
        ));
    }
    options.check(spec)?;
    let usual = locale.defaults == Defaults::Backwards;
    let backwards = (options.backwards != usual).then_some(options.backwards);
    let rules = Icu::new(&tag, &options, backwards, options.spec(id))?;
    Ok(Collator::new(Arc::new(rules)))
}

/// Finds a locale and its language tag.
fn locale(id: &str, spec: &Doc) -> Result<(&'static Locale, String)> {
    if id.is_empty() {
        return Err(Error::bad_value(format!(
            "Field 'locale' cannot be the empty string in: {}",
            display::doc(spec)
        )));
    }
    let (base, variant) = match id.split_once("@collation=") {
        Some((base, variant)) => (base, Some(variant)),
        None => (id, None),
    };
    if let Some(locale) = locales::find(base) {
        let mut tag = match base {
            "root" => "und".to_owned(),
            base => base.replace('_', "-"),
        };
        match variant {
            None => return Ok((locale, tag)),
            Some(variant) if locale.unsupported.contains(&variant) => {
                return Err(Error::not_supported(format_args!("The locale '{id}'")));
            }
            Some(variant) => {
                let known = locale.variants.iter().find(|(name, _)| *name == variant);
                if let Some((_, name)) = known {
                    tag.push_str("-u-co-");
                    tag.push_str(name);
                    return Ok((locale, tag));
                }
            }
        }
    }
    let mut message = format!("Field 'locale' is invalid in: {}", display::doc(spec));
    if let Some(suggestion) = locales::suggestion(id) {
        message.push_str(&format!(". Did you mean '{suggestion}'?"));
    }
    Err(Error::bad_value(message))
}

/// The options that a specification names.
#[derive(Debug, Default)]
struct Given<'a> {
    locale: Option<&'a str>,
    case_level: Option<bool>,
    case_first: Option<CaseFirst>,
    strength: Option<i32>,
    numeric_ordering: Option<bool>,
    alternate: Option<Alternate>,
    max_variable_is_space: Option<bool>,
    normalization: Option<bool>,
    backwards: Option<bool>,
    version: Option<&'a str>,
}

impl<'a> Given<'a> {
    fn read(owner: &str, spec: &'a Doc) -> Result<Given<'a>> {
        let mut given = Given::default();
        for (at, (name, value)) in spec.iter().enumerate() {
            if spec.iter().take(at).any(|(other, _)| other == name) {
                return Err(Error::location(
                    40413,
                    format!("BSON field '{owner}.{name}' is a duplicate field"),
                ));
            }
            let field = Field { owner, name, value };
            match name {
                // Null is left out.
                "locale" | "caseLevel" | "caseFirst" | "strength" | "numericOrdering"
                | "alternate" | "maxVariable" | "normalization" | "version"
                    if value.is_nullish() => {}
                "locale" => given.locale = Some(field.string()?),
                "caseLevel" => given.case_level = Some(field.boolean()?),
                "caseFirst" => {
                    given.case_first = Some(field.one_of(&[
                        ("upper", CaseFirst::Upper),
                        ("lower", CaseFirst::Lower),
                        ("off", CaseFirst::Off),
                    ])?);
                }
                "strength" => given.strength = Some(field.strength()?),
                "numericOrdering" => given.numeric_ordering = Some(field.boolean()?),
                "alternate" => {
                    given.alternate = Some(field.one_of(&[
                        ("non-ignorable", Alternate::NonIgnorable),
                        ("shifted", Alternate::Shifted),
                    ])?);
                }
                "maxVariable" => {
                    given.max_variable_is_space =
                        Some(field.one_of(&[("punct", false), ("space", true)])?);
                }
                "normalization" => given.normalization = Some(field.boolean()?),
                "backwards" => match value {
                    Value::Bool(backwards) => given.backwards = Some(backwards),
                    other => {
                        return Err(Error::type_mismatch(format!(
                            "Field 'backwards' should be a boolean value, but found: {}",
                            other.type_name()
                        )));
                    }
                },
                "version" => given.version = Some(field.string()?),
                _ => {
                    return Err(Error::location(
                        40415,
                        format!("BSON field '{owner}.{name}' is an unknown field."),
                    ));
                }
            }
        }
        Ok(given)
    }

    fn resolve(&self, defaults: Defaults) -> Options {
        let normalized = matches!(defaults, Defaults::Normalized | Defaults::Shifted);
        Options {
            case_level: self.case_level.unwrap_or(false),
            case_first: self.case_first.unwrap_or(match defaults {
                Defaults::UpperFirst => CaseFirst::Upper,
                _ => CaseFirst::Off,
            }),
            strength: self.strength.unwrap_or(3),
            numeric_ordering: self.numeric_ordering.unwrap_or(false),
            alternate: self.alternate.unwrap_or(match defaults {
                Defaults::Shifted => Alternate::Shifted,
                _ => Alternate::NonIgnorable,
            }),
            max_variable_is_space: self.max_variable_is_space.unwrap_or(false),
            normalization: self.normalization.unwrap_or(normalized),
            backwards: self.backwards.unwrap_or(defaults == Defaults::Backwards),
        }
    }
}

impl Options {
    /// Refuses options that have no effect together.
    fn check(&self, spec: &Doc) -> Result<()> {
        if self.backwards && self.strength == 1 {
            return Err(Error::bad_value(format!(
                "'backwards' is invalid with 'strength' of 1 in: {}",
                display::doc(spec)
            )));
        }
        if self.case_first != CaseFirst::Off && !self.case_level && self.strength <= 2 {
            return Err(Error::bad_value(format!(
                "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2 \
                 in: {}",
                display::doc(spec)
            )));
        }
        Ok(())
    }

    /// The specification with all its options, in MongoDB's order.
    fn spec(&self, id: &str) -> DocBuf {
        frond_bson::doc! {
            "locale": id,
            "caseLevel": self.case_level,
            "caseFirst": match self.case_first {
                CaseFirst::Upper => "upper",
                CaseFirst::Lower => "lower",
                CaseFirst::Off => "off",
            },
            "strength": self.strength,
            "numericOrdering": self.numeric_ordering,
            "alternate": match self.alternate {
                Alternate::NonIgnorable => "non-ignorable",
                Alternate::Shifted => "shifted",
            },
            "maxVariable": if self.max_variable_is_space { "space" } else { "punct" },
            "normalization": self.normalization,
            "backwards": self.backwards,
            "version": VERSION,
        }
    }
}

/// One field of a specification.
struct Field<'o, 'a> {
    owner: &'o str,
    name: &'a str,
    value: Value<'a>,
}

impl<'a> Field<'_, 'a> {
    fn wrong_type(&self, expected: &str) -> Error {
        Error::type_mismatch(format!(
            "BSON field '{}.{}' is the wrong type '{}', expected {expected}",
            self.owner,
            self.name,
            self.value.type_name()
        ))
    }

    fn invalid(&self, value: impl std::fmt::Display) -> Error {
        Error::bad_value(format!(
            "Enumeration value '{value}' for field '{}.{}' is not a valid value.",
            self.owner, self.name
        ))
    }

    fn string(&self) -> Result<&'a str> {
        match self.value {
            Value::String(text) => Ok(text),
            _ => Err(self.wrong_type("type 'string'")),
        }
    }

    fn boolean(&self) -> Result<bool> {
        match self.value {
            Value::Bool(value) => Ok(value),
            _ => Err(self.wrong_type("type 'bool'")),
        }
    }

    fn one_of<T: Copy>(&self, known: &[(&str, T)]) -> Result<T> {
        let text = self.string()?;
        match known.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Ok(*value),
            None => Err(self.invalid(text)),
        }
    }

    /// Any number, without its fraction, from 1 to 5.
    fn strength(&self) -> Result<i32> {
        let Some(number) = self.value.as_f64() else {
            return Err(self.wrong_type("types '[long, int, decimal, double]'"));
        };
        let strength = number as i32;
        let bound = match strength {
            0 => return Err(self.invalid(0)),
            1..=5 => return Ok(strength),
            ..0 => ">= 0",
            _ => "<= 5",
        };
        Err(Error::location(
            51024,
            format!("BSON field 'strength' value must be {bound}, actual value '{strength}'"),
        ))
    }
}
