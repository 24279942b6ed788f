//! The arguments of `$out` and `$merge`, checked by MongoDB's rules.

use std::fmt;

use frond_bson::{Doc, DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};

use crate::options::{Options, Type};
use crate::paths::check_field_path;

/// The argument of `$out`.
#[derive(Clone, Debug, PartialEq)]
pub struct Out {
    /// The database; that of the pipeline if there is none.
    pub db: Option<String>,
    /// The collection that the documents replace.
    pub coll: String,
    /// The options of the time series that is made of them.
    pub time_series: Option<DocBuf>,
}

/// The argument of `$merge`.
#[derive(Clone, Debug, PartialEq)]
pub struct Merge {
    /// The database; that of the pipeline if there is none.
    pub db: Option<String>,
    /// The collection that is merged into.
    pub coll: String,
    /// The fields that identify a document, if the argument names them; `_id` otherwise.
    pub on: Option<Vec<String>>,
    /// The action for a document that the target has.
    pub matched: WhenMatched,
    /// The action for a document that the target lacks.
    pub not_matched: WhenNotMatched,
}

/// The values of `whenMatched`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum WhenMatched {
    /// Its fields are set.
    #[default]
    Merge,
    Replace,
    /// It stays as it is.
    KeepExisting,
    /// That is an error.
    Fail,
    /// These stages change it.
    Pipeline(DocBuf),
}

/// The values of `whenNotMatched`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenNotMatched {
    #[default]
    Insert,
    Discard,
    /// That is an error.
    Fail,
}

const NOT_MATCHED: [(&str, WhenNotMatched); 3] = [
    ("discard", WhenNotMatched::Discard),
    ("fail", WhenNotMatched::Fail),
    ("insert", WhenNotMatched::Insert),
];

impl fmt::Display for WhenMatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhenMatched::Merge => "merge",
            WhenMatched::Replace => "replace",
            WhenMatched::KeepExisting => "keepExisting",
            WhenMatched::Fail => "fail",
            WhenMatched::Pipeline(_) => "pipeline",
        })
    }
}

impl fmt::Display for WhenNotMatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NOT_MATCHED.iter().find(|(_, mode)| mode == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

/// The fields of an argument, each given once.
struct Fields<'s> {
    name: &'static str,
    spec: &'s Doc,
    options: Options<'s>,
}

impl<'s> Fields<'s> {
    fn new(name: &'static str, spec: &'s Doc, known: &[&str]) -> Result<Fields<'s>> {
        let options = Options::new(name, spec);
        options.only(known)?;
        let mut seen: Vec<&str> = Vec::new();
        for (field, _) in spec.iter() {
            if seen.contains(&field) {
                return Err(Error::new(
                    ErrorCode::IDLDuplicateField,
                    format!("BSON field '{name}.{field}' is a duplicate field"),
                ));
            }
            seen.push(field);
        }
        Ok(Fields {
            name,
            spec,
            options,
        })
    }

    /// A field that may be left out; null leaves it out.
    fn optional(&self, field: &str, kind: Type) -> Result<Option<Value<'s>>> {
        match self.spec.get(field) {
            None | Some(Value::Null | Value::Undefined) => Ok(None),
            Some(_) => self.options.optional(field, kind),
        }
    }

    fn text(&self, field: &str) -> Result<Option<String>> {
        let value = self.optional(field, Type::String)?;
        Ok(value.and_then(|value| value.as_str().map(str::to_owned)))
    }

    fn missing(&self, field: &str) -> Error {
        Error::new(
            ErrorCode::IDLFailedToParse,
            format!(
                "BSON field '{}.{field}' is missing but a required field",
                self.name
            ),
        )
    }
}

impl Out {
    pub(super) fn parse(argument: Value<'_>) -> Result<Out> {
        let spec = match argument {
            Value::String(coll) => {
                return Ok(Out {
                    db: None,
                    coll: coll.to_owned(),
                    time_series: None,
                });
            }
            Value::Document(spec) => spec,
            other => {
                return Err(Error::location(
                    16990,
                    format!(
                        "$out only supports a string or object argument, but found {}",
                        other.type_name()
                    ),
                ));
            }
        };
        let fields = Fields::new("$out", spec, &["db", "coll", "timeseries"])?;
        let time_series = fields.optional("timeseries", Type::Object)?;
        let required = |field| fields.text(field)?.ok_or_else(|| fields.missing(field));
        Ok(Out {
            db: Some(required("db")?),
            coll: required("coll")?,
            time_series: time_series.and_then(|options| options.as_doc().map(Doc::to_owned)),
        })
    }
}

impl Merge {
    pub(super) fn parse(argument: Value<'_>) -> Result<Merge> {
        let spec = match argument {
            Value::String(coll) => {
                return Ok(Merge {
                    db: None,
                    coll: coll.to_owned(),
                    on: None,
                    matched: WhenMatched::default(),
                    not_matched: WhenNotMatched::default(),
                });
            }
            Value::Document(spec) => spec,
            other => {
                return Err(Error::type_mismatch(format!(
                    "$merge requires a string or object argument, but found {}",
                    other.type_name()
                )));
            }
        };
        let known = ["into", "on", "let", "whenMatched", "whenNotMatched"];
        let fields = Fields::new("$merge", spec, &known)?;
        let into = spec.get("into").ok_or_else(|| fields.missing("into"))?;
        let (db, coll) = target(into)?;
        let on = spec.get("on").map(key_fields).transpose()?;
        let has_variables = fields.optional("let", Type::Object)?.is_some();
        let matched = spec.get("whenMatched").map(when_matched).transpose()?;
        let matched = matched.unwrap_or_default();
        let not_matched = match fields.text("whenNotMatched")? {
            None => WhenNotMatched::default(),
            Some(name) => when_not_matched(&name)?,
        };
        if matches!(matched, WhenMatched::KeepExisting | WhenMatched::Fail)
            && not_matched != WhenNotMatched::Insert
        {
            return Err(Error::location(
                51181,
                format!(
                    "Combination of $merge modes 'whenMatched: {matched}' and 'whenNotMatched: \
                     {not_matched}' is not supported"
                ),
            ));
        }
        if has_variables && !matches!(matched, WhenMatched::Pipeline(_)) {
            return Err(Error::location(
                51199,
                format!("Cannot use 'let' variables with 'whenMatched: {matched}' mode"),
            ));
        }
        Ok(Merge {
            db,
            coll,
            on,
            matched,
            not_matched,
        })
    }
}

/// Reads `into`: a database, if it names one, and a collection.
fn target(into: Value<'_>) -> Result<(Option<String>, String)> {
    match into {
        Value::String("") => Err(Error::location(
            5_786_800,
            "$merge 'into' field cannot be an empty string",
        )),
        Value::String(coll) => Ok((None, coll.to_owned())),
        Value::Document(spec) => {
            let fields = Fields::new("into", spec, &["db", "coll"])?;
            let db = fields.text("db")?.filter(|db| !db.is_empty());
            let coll = fields.text("coll")?.filter(|coll| !coll.is_empty());
            let coll = coll.ok_or_else(|| {
                Error::location(
                    5_786_801,
                    "$merge 'into' field must specify a 'coll' that is not empty, null or undefined",
                )
            })?;
            Ok((db, coll))
        }
        other => Err(Error::location(
            51178,
            format!(
                "$merge 'into' field  must be either a string or an object, but found {}",
                other.type_name()
            ),
        )),
    }
}

/// Reads `on`.
fn key_fields(on: Value<'_>) -> Result<Vec<String>> {
    let mut fields: Vec<String> = Vec::new();
    match on {
        Value::String(field) => fields.push(field.to_owned()),
        Value::Array(list) => {
            for value in list.values() {
                let Value::String(field) = value else {
                    return Err(Error::location(
                        51134,
                        format!(
                            "$merge 'on' array elements must be strings, but found {}",
                            value.type_name()
                        ),
                    ));
                };
                fields.push(field.to_owned());
            }
        }
        other => {
            return Err(Error::location(
                51186,
                format!(
                    "$merge 'on' field  must be either a string or an array of strings, but found {}",
                    other.type_name()
                ),
            ));
        }
    }
    if fields.is_empty() {
        return Err(Error::location(
            51187,
            "If explicitly specifying $merge 'on', must include at least one field",
        ));
    }
    for (at, field) in fields.iter().enumerate() {
        check_field_path(field)?;
        if fields[..at].contains(field) {
            return Err(Error::location(
                31465,
                format!("Found a duplicate field '{field}'"),
            ));
        }
    }
    Ok(fields)
}

fn when_matched(mode: Value<'_>) -> Result<WhenMatched> {
    match mode {
        Value::String("merge") => Ok(WhenMatched::Merge),
        Value::String("replace") => Ok(WhenMatched::Replace),
        Value::String("keepExisting") => Ok(WhenMatched::KeepExisting),
        Value::String("fail") => Ok(WhenMatched::Fail),
        Value::String(other) => Err(unknown_mode("whenMatched", other)),
        Value::Array(stages) => {
            if stages.values().any(|stage| stage.as_doc().is_none()) {
                return Err(Error::type_mismatch(
                    "Each element of the 'pipeline' array must be an object",
                ));
            }
            Ok(WhenMatched::Pipeline(stages.to_owned()))
        }
        other => Err(Error::location(
            51191,
            format!(
                "$merge 'whenMatched' field  must be either a string or an array, but found {}",
                other.type_name()
            ),
        )),
    }
}

fn when_not_matched(name: &str) -> Result<WhenNotMatched> {
    let found = NOT_MATCHED.iter().find(|(known, _)| *known == name);
    found
        .map(|(_, mode)| *mode)
        .ok_or_else(|| unknown_mode("$merge.whenNotMatched", name))
}

fn unknown_mode(field: &str, name: &str) -> Error {
    Error::bad_value(format!(
        "Enumeration value '{name}' for field '{field}' is not a valid value."
    ))
}
