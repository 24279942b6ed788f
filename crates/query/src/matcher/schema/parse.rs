//! From the document of a schema to its rules.

use std::collections::BTreeMap;

use frond_bson::{Collator, Doc, OwnedValue, Value, tag};

use super::{Allowed, Dependency, Needs, Otherwise, Property, Rule, Schema, same};
use crate::matcher::operators::integer;
use crate::matcher::{Comparison, Pattern, Relation, TypeSet};
use crate::number::Number;
use frond_error::{Error, Result};

/// The keywords that constrain values.
const KEYWORDS: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "bsonType",
    "dependencies",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
];

/// Keywords of JSON Schema that MongoDB refuses by name.
const UNSUPPORTED_BY_MONGODB: &[&str] =
    &["$ref", "$schema", "default", "definitions", "format", "id"];

/// Keywords of MongoDB that this server lacks.
const UNSUPPORTED: &[&str] = &["encrypt", "encryptMetadata"];

/// The types of JSON. Others are named by `bsonType` only.
const JSON_TYPES: &[&str] = &["array", "boolean", "null", "number", "object", "string"];

impl Schema {
    /// Parses the argument of `$jsonSchema`, which stands for a whole document.
    ///
    /// # Errors
    /// 9 (`FailedToParse`) for an unknown or unsupported keyword or a wrong combination, 14
    /// (`TypeMismatch`) for an argument of a wrong type, 2 (`BadValue`), and those of regular
    /// expressions.
    pub fn parse(schema: &Doc) -> Result<Schema> {
        parse(schema, true)
    }
}

/// The keywords of one schema, by name.
struct Keywords<'a>(BTreeMap<&'a str, Value<'a>>);

impl<'a> Keywords<'a> {
    fn read(schema: &'a Doc) -> Result<Keywords<'a>> {
        let mut found = BTreeMap::new();
        for (name, value) in schema.iter() {
            if UNSUPPORTED.contains(&name) {
                let what = format!("The $jsonSchema keyword '{name}'");
                return Err(Error::not_supported(what));
            }
            if !KEYWORDS.contains(&name) {
                return Err(Error::failed_to_parse(
                    if UNSUPPORTED_BY_MONGODB.contains(&name) {
                        format!("$jsonSchema keyword '{name}' is not currently supported")
                    } else {
                        format!("Unknown $jsonSchema keyword: {name}")
                    },
                ));
            }
            if found.insert(name, value).is_some() {
                return Err(Error::failed_to_parse(format!(
                    "Duplicate $jsonSchema keyword: {name}"
                )));
            }
        }
        Ok(Keywords(found))
    }

    fn get(&self, name: &str) -> Option<Value<'a>> {
        self.0.get(name).copied()
    }

    /// A keyword that must be a document.
    fn object(&self, name: &str) -> Result<Option<&'a Doc>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Document(doc)) => Ok(Some(doc)),
            Some(_) => Err(wrong(name, "must be an object")),
        }
    }

    /// A keyword that must be a number that is not negative.
    fn count(&self, name: &str) -> Result<Option<u64>> {
        self.get(name)
            .map(|value| integer::non_negative(name, &value).map_err(Error::failed_to_parse))
            .transpose()
    }

    /// `exclusiveMaximum`, `exclusiveMinimum`, `uniqueItems`.
    fn flag(&self, name: &str) -> Result<bool> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(value),
            Some(_) => Err(wrong(name, "must be a boolean")),
        }
    }
}

/// A value of a wrong type (14).
fn wrong(keyword: &str, reason: impl std::fmt::Display) -> Error {
    Error::type_mismatch(format!("$jsonSchema keyword '{keyword}' {reason}"))
}

/// An invalid value of the right type (9).
fn invalid(keyword: &str, reason: impl std::fmt::Display) -> Error {
    Error::failed_to_parse(format!("$jsonSchema keyword '{keyword}' {reason}"))
}

/// The recursion ends because documents from outside nest at most 200 deep.
fn parse(schema: &Doc, is_top: bool) -> Result<Schema> {
    let keywords = Keywords::read(schema)?;
    for name in ["description", "title"] {
        if !matches!(keywords.get(name), None | Some(Value::String(_))) {
            return Err(wrong(name, "must be of type string"));
        }
    }
    let types = types(&keywords)?;
    let mut rules = Vec::new();
    scalars(&keywords, &mut rules)?;
    arrays(&keywords, &mut rules)?;
    documents(&keywords, &mut rules)?;
    logic(&keywords, &mut rules)?;
    let mut impossible = false;
    if let Some((keyword, types)) = types {
        if is_top {
            impossible = !types.contains_code(tag::DOCUMENT);
        } else {
            rules.push(Rule::Type(keyword, types));
        }
    }
    Ok(Schema {
        source: schema.to_owned(),
        rules,
        impossible,
    })
}

fn types(keywords: &Keywords<'_>) -> Result<Option<(&'static str, TypeSet)>> {
    let (keyword, argument) = match (keywords.get("type"), keywords.get("bsonType")) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(Error::failed_to_parse(
                "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'",
            ));
        }
        (Some(argument), None) => ("type", argument),
        (None, Some(argument)) => ("bsonType", argument),
    };
    let mut names: Vec<&str> = Vec::new();
    match argument {
        Value::String(name) => names.push(name),
        Value::Array(items) => {
            for item in items.values() {
                let Value::String(name) = item else {
                    return Err(wrong(keyword, "array elements must be strings"));
                };
                if names.contains(&name) {
                    return Err(invalid(keyword, format!("has duplicate value: {name}")));
                }
                names.push(name);
            }
        }
        _ => {
            return Err(wrong(
                keyword,
                "must be either a string or an array of strings",
            ));
        }
    }
    if names.contains(&"integer") {
        return Err(Error::failed_to_parse(
            "$jsonSchema type 'integer' is not currently supported.",
        ));
    }
    if names.is_empty() {
        return Err(invalid(keyword, "must name at least one type"));
    }
    let mut set = TypeSet::default();
    for name in names {
        let bson = match name {
            "boolean" if keyword == "type" => "bool",
            name if keyword == "type" && !JSON_TYPES.contains(&name) => "",
            name => name,
        };
        set.add_alias(bson)
            .map_err(|_| Error::bad_value(format!("Unknown type name alias: {name}")))?;
    }
    Ok(Some((keyword, set)))
}

fn scalars(keywords: &Keywords<'_>, rules: &mut Vec<Rule>) -> Result<()> {
    match keywords.get("pattern") {
        None => {}
        Some(Value::String(source)) => {
            rules.push(Rule::Pattern(Box::new(Pattern::new(source, "")?)));
        }
        Some(_) => return Err(wrong("pattern", "must be a string")),
    }
    rules.extend(keywords.count("maxLength")?.map(Rule::MaxLength));
    rules.extend(keywords.count("minLength")?.map(Rule::MinLength));
    if let Some(unit) = keywords.get("multipleOf") {
        let Some(number) = Number::from_value(&unit) else {
            return Err(wrong("multipleOf", "must be a number"));
        };
        let decimal = number.to_decimal();
        if decimal.is_negative() || decimal.is_zero() {
            return Err(invalid("multipleOf", "must have a positive value"));
        }
        rules.push(Rule::MultipleOf(number));
    }
    for (name, exclusive, closed, open) in [
        ("maximum", "exclusiveMaximum", Relation::Lte, Relation::Lt),
        ("minimum", "exclusiveMinimum", Relation::Gte, Relation::Gt),
    ] {
        match keywords.get(name) {
            Some(bound) => {
                let relation = if keywords.flag(exclusive)? {
                    open
                } else {
                    closed
                };
                if !bound.is_number() {
                    return Err(wrong(name, "must be a number"));
                }
                let comparison = Comparison::new(relation, bound, Collator::BINARY);
                rules.push(Rule::Bound(name, exclusive, comparison));
            }
            None if keywords.get(exclusive).is_some() => {
                let reason = format!("must be a present if {exclusive} is present");
                return Err(invalid(name, reason));
            }
            None => {}
        }
    }
    Ok(())
}

fn arrays(keywords: &Keywords<'_>, rules: &mut Vec<Rule>) -> Result<()> {
    rules.extend(keywords.count("minItems")?.map(Rule::MinItems));
    rules.extend(keywords.count("maxItems")?.map(Rule::MaxItems));
    if keywords.flag("uniqueItems")? {
        rules.push(Rule::UniqueItems);
    }
    let mut from = None;
    match keywords.get("items") {
        None => {}
        Some(Value::Document(schema)) => rules.push(Rule::Items(parse(schema, false)?)),
        Some(Value::Array(schemas)) => {
            let schemas = schemas
                .values()
                .map(|item| match item {
                    Value::Document(schema) => parse(schema, false),
                    other => Err(wrong(
                        "items",
                        format!(
                            "requires that each element of the array is an object, but found a {}",
                            other.type_name()
                        ),
                    )),
                })
                .collect::<Result<Vec<_>>>()?;
            from = Some(schemas.len());
            rules.push(Rule::ItemsAt(schemas));
        }
        Some(other) => {
            let reason = format!("must be an array or an object, not {}", other.type_name());
            return Err(wrong("items", reason));
        }
    }
    if let Some(argument) = keywords.get("additionalItems") {
        let Some(otherwise) = otherwise(argument)? else {
            let reason = format!(
                "must be either an object or a boolean, but got a {}",
                argument.type_name()
            );
            return Err(wrong("additionalItems", reason));
        };
        // Without a list of items there are no additional ones.
        rules.extend(from.map(|from| Rule::AdditionalItems(from, otherwise)));
    }
    Ok(())
}

/// A boolean or a schema; `None` for another type.
fn otherwise(argument: Value<'_>) -> Result<Option<Otherwise>> {
    Ok(match argument {
        Value::Bool(true) => Some(Otherwise::Anything),
        Value::Bool(false) => Some(Otherwise::Nothing),
        Value::Document(schema) => Some(Otherwise::Schema(parse(schema, false)?)),
        _ => None,
    })
}

fn documents(keywords: &Keywords<'_>, rules: &mut Vec<Rule>) -> Result<()> {
    let required = keywords.get("required").map(required).transpose()?;
    let properties = match keywords.object("properties")? {
        Some(doc) => Some(properties(doc)?),
        None => None,
    };
    let names: Vec<String> = properties
        .iter()
        .flatten()
        .map(|property| property.name.clone())
        .collect();
    rules.extend(properties.map(Rule::Properties));
    let patterns = keywords.object("patternProperties")?;
    let additional = keywords.get("additionalProperties");
    if patterns.is_some() || additional.is_some() {
        let patterns = match patterns {
            Some(doc) => pattern_properties(doc)?,
            None => Vec::new(),
        };
        let otherwise = match additional {
            None => Otherwise::Anything,
            Some(argument) => otherwise(argument)?
                .ok_or_else(|| wrong("additionalProperties", "must be an object or a boolean"))?,
        };
        rules.push(Rule::Allowed(Box::new(Allowed {
            names,
            patterns,
            otherwise,
        })));
    }
    rules.extend(required.map(Rule::Required));
    rules.extend(keywords.count("minProperties")?.map(Rule::MinProperties));
    rules.extend(keywords.count("maxProperties")?.map(Rule::MaxProperties));
    if let Some(doc) = keywords.object("dependencies")? {
        rules.push(Rule::Dependencies(dependencies(doc)?));
    }
    Ok(())
}

fn required(argument: Value<'_>) -> Result<Vec<String>> {
    const NAME: &str = "required";
    let Value::Array(items) = argument else {
        let reason = format!(
            "must be an array, but found an element of type {}",
            argument.type_name()
        );
        return Err(wrong(NAME, reason));
    };
    let mut names = Vec::new();
    for item in items.values() {
        let Value::String(name) = item else {
            let reason = format!(
                "must be an array of strings, but found an element of type: {}",
                item.type_name()
            );
            return Err(wrong(NAME, reason));
        };
        names.push(name.to_owned());
    }
    if names.is_empty() {
        return Err(invalid(NAME, "cannot be an empty array"));
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    if names.len() < count {
        return Err(invalid(NAME, "array cannot contain duplicate values"));
    }
    Ok(names)
}

fn properties(doc: &Doc) -> Result<Vec<Property>> {
    doc.iter()
        .map(|(name, value)| {
            let Value::Document(schema) = value else {
                return Err(Error::type_mismatch(format!(
                    "Nested schema for $jsonSchema property '{name}' must be an object"
                )));
            };
            Ok(Property {
                name: name.to_owned(),
                schema: parse(schema, false)?,
            })
        })
        .collect()
}

fn pattern_properties(doc: &Doc) -> Result<Vec<(Pattern, Schema)>> {
    doc.iter()
        .map(|(source, value)| {
            let Value::Document(schema) = value else {
                let reason = format!("has property '{source}' which is not an object");
                return Err(wrong("patternProperties", reason));
            };
            let schema = parse(schema, false)?;
            Ok((Pattern::new(source, "")?, schema))
        })
        .collect()
}

fn dependencies(doc: &Doc) -> Result<Vec<Dependency>> {
    const KEYWORD: &str = "in $jsonSchema keyword 'dependencies'";
    let mut dependencies = Vec::new();
    for (name, value) in doc.iter() {
        let needs = match value {
            Value::String(_) if matches!(name, "title" | "description") => continue,
            Value::Document(schema) => Needs::Schema(parse(schema, false)?),
            Value::Array(items) => {
                if items.is_empty() {
                    return Err(Error::failed_to_parse(format!(
                        "property '{name}' {KEYWORD} cannot be an empty array"
                    )));
                }
                let mut names: Vec<String> = Vec::new();
                for item in items.values() {
                    let Value::String(needed) = item else {
                        return Err(Error::type_mismatch(format!(
                            "array '{name}' {KEYWORD} can only contain strings, but found element \
                             of type: {}",
                            item.type_name()
                        )));
                    };
                    if names.iter().any(|known| known == needed) {
                        return Err(Error::failed_to_parse(format!(
                            "array '{name}' {KEYWORD} contains duplicate element: {needed}"
                        )));
                    }
                    names.push(needed.to_owned());
                }
                Needs::Properties(names)
            }
            _ => {
                return Err(Error::type_mismatch(format!(
                    "property '{name}' {KEYWORD} must be either an object or an array"
                )));
            }
        };
        dependencies.push(Dependency {
            name: name.to_owned(),
            needs,
        });
    }
    Ok(dependencies)
}

fn logic(keywords: &Keywords<'_>, rules: &mut Vec<Rule>) -> Result<()> {
    type Make = fn(Vec<Schema>) -> Rule;
    let lists: [(&str, Make); 3] = [
        ("allOf", Rule::AllOf),
        ("anyOf", Rule::AnyOf),
        ("oneOf", Rule::OneOf),
    ];
    for (name, make) in lists {
        if let Some(argument) = keywords.get(name) {
            rules.push(make(schemas(name, argument)?));
        }
    }
    match keywords.get("not") {
        None => {}
        Some(Value::Document(schema)) => rules.push(Rule::Not(parse(schema, false)?)),
        Some(other) => {
            let reason = format!(
                "must be an object, but found an element of type {}",
                other.type_name()
            );
            return Err(wrong("not", reason));
        }
    }
    if let Some(argument) = keywords.get("enum") {
        rules.push(Rule::Enum(values_of_enum(argument)?));
    }
    Ok(())
}

fn schemas(name: &str, argument: Value<'_>) -> Result<Vec<Schema>> {
    let Value::Array(items) = argument else {
        return Err(wrong(name, "must be an array"));
    };
    if items.is_empty() {
        return Err(Error::bad_value(format!(
            "$jsonSchema keyword '{name}' must be a non-empty array"
        )));
    }
    items
        .values()
        .map(|item| match item {
            Value::Document(schema) => parse(schema, false),
            other => Err(wrong(
                name,
                format!(
                    "must be an array of objects, but found an element of type {}",
                    other.type_name()
                ),
            )),
        })
        .collect()
}

fn values_of_enum(argument: Value<'_>) -> Result<Vec<OwnedValue>> {
    let Value::Array(items) = argument else {
        let reason = format!(
            "must be an array, but found an element of type {}",
            argument.type_name()
        );
        return Err(wrong("enum", reason));
    };
    if items.is_empty() {
        return Err(invalid("enum", "cannot be an empty array"));
    }
    let mut values: Vec<OwnedValue> = Vec::new();
    for item in items.values() {
        if values.iter().any(|known| same(&known.as_value(), &item)) {
            return Err(invalid("enum", "array cannot contain duplicate values."));
        }
        values.push(item.to_owned());
    }
    Ok(values)
}
