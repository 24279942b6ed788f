//! `$jsonSchema`: MongoDB's dialect of JSON Schema draft 4, which also knows BSON types.
//!
//! [`Schema::parse`] turns the schema into rules once. A rule says something only about values of
//! its own type: `minLength` is satisfied by every number. The rules stand in the order in which
//! MongoDB reports those that are not satisfied.

mod explain;
mod parse;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use frond_bson::{Doc, DocBuf, OwnedValue, Value, compare};

use super::operators::regex;
use super::state::State;
use super::{Comparison, Pattern, TypeSet};
use crate::characters::code_points;
use crate::number::Number;

#[derive(Clone, Debug)]
pub struct Schema {
    /// The keywords as written, for explanations.
    source: DocBuf,
    rules: Vec<Rule>,
    /// Whether it stands for the whole document and asks for another type than a document's: then
    /// nothing passes.
    impossible: bool,
}

/// One keyword, or several that work together.
#[derive(Clone, Debug)]
enum Rule {
    Pattern(Box<Pattern>),
    MaxLength(u64),
    MinLength(u64),
    MultipleOf(Number),
    /// `maximum` and `minimum`, with the name and that of the keyword that excludes the bound.
    Bound(&'static str, &'static str, Comparison),
    MinItems(u64),
    MaxItems(u64),
    UniqueItems,
    /// `items` with one schema for all.
    Items(Schema),
    /// `items` with a schema for each place.
    ItemsAt(Vec<Schema>),
    /// `additionalItems`: what holds from this place on.
    AdditionalItems(usize, Otherwise),
    Properties(Vec<Property>),
    /// `patternProperties` and `additionalProperties`.
    Allowed(Box<Allowed>),
    /// The names in order.
    Required(Vec<String>),
    MinProperties(u64),
    MaxProperties(u64),
    Dependencies(Vec<Dependency>),
    AllOf(Vec<Schema>),
    AnyOf(Vec<Schema>),
    OneOf(Vec<Schema>),
    Not(Schema),
    Enum(Vec<OwnedValue>),
    /// `type` or `bsonType`.
    Type(&'static str, TypeSet),
}

/// The rule for items and properties that no other keyword covers.
#[derive(Clone, Debug)]
enum Otherwise {
    Anything,
    Nothing,
    Schema(Schema),
}

#[derive(Clone, Debug)]
struct Property {
    name: String,
    schema: Schema,
}

#[derive(Clone, Debug)]
struct Allowed {
    /// The names that `properties` lists.
    names: Vec<String>,
    patterns: Vec<(Pattern, Schema)>,
    otherwise: Otherwise,
}

#[derive(Clone, Debug)]
struct Dependency {
    /// The property that must be there for the rest to matter.
    name: String,
    needs: Needs,
}

#[derive(Clone, Debug)]
enum Needs {
    Properties(Vec<String>),
    Schema(Schema),
}

impl Schema {
    /// The schema as it was written.
    pub fn source(&self) -> &Doc {
        &self.source
    }

    /// Whether a value satisfies every rule.
    pub(crate) fn accepts(&self, value: Value<'_>, state: &mut State) -> bool {
        !self.impossible
            && (self.rules.iter()).all(|rule| state.goes_on(1) && rule.accepts(value, state))
    }
}

impl Otherwise {
    fn accepts(&self, value: Value<'_>, state: &mut State) -> bool {
        match self {
            Otherwise::Anything => true,
            Otherwise::Nothing => false,
            Otherwise::Schema(schema) => schema.accepts(value, state),
        }
    }
}

impl Rule {
    fn accepts(&self, value: Value<'_>, state: &mut State) -> bool {
        match self {
            Rule::Enum(values) => {
                state.goes_on(values.len())
                    && (values.iter()).any(|known| same(&known.as_value(), &value))
            }
            Rule::Type(_, types) => types.contains(&value),
            Rule::AllOf(schemas) => schemas.iter().all(|schema| schema.accepts(value, state)),
            Rule::AnyOf(schemas) => schemas.iter().any(|schema| schema.accepts(value, state)),
            Rule::OneOf(schemas) => {
                let mut accepting = schemas.iter().filter(|schema| schema.accepts(value, state));
                accepting.next().is_some() && accepting.next().is_none()
            }
            Rule::Not(schema) => !schema.accepts(value, state),
            _ => match value {
                value if value.is_string() => self.accepts_text(value, state),
                Value::Array(items) => self.accepts_array(items, state),
                Value::Document(doc) => self.accepts_document(doc, state),
                value if value.is_number() => self.accepts_number(&value),
                _ => true,
            },
        }
    }

    fn accepts_text(&self, text: Value<'_>, state: &mut State) -> bool {
        let length = || code_points(text.string_bytes().unwrap_or_default()) as u64;
        match self {
            Rule::Pattern(pattern) => regex::matches(pattern, Some(text), state),
            Rule::MaxLength(most) => length() <= *most,
            Rule::MinLength(least) => length() >= *least,
            _ => true,
        }
    }

    fn accepts_number(&self, value: &Value<'_>) -> bool {
        match self {
            Rule::MultipleOf(unit) => Number::from_value(value).is_some_and(|number| {
                let (number, unit) = (number.to_decimal(), unit.to_decimal());
                (number % unit).is_zero()
            }),
            Rule::Bound(_, _, comparison) => comparison.matches(Some(*value)),
            _ => true,
        }
    }

    fn accepts_array(&self, items: &Doc, state: &mut State) -> bool {
        match self {
            Rule::MinItems(least) => items.count() as u64 >= *least,
            Rule::MaxItems(most) => items.count() as u64 <= *most,
            Rule::UniqueItems => duplicate(items).is_none(),
            Rule::Items(schema) => items.values().all(|item| schema.accepts(item, state)),
            Rule::ItemsAt(schemas) => items
                .values()
                .zip(schemas)
                .all(|(item, schema)| schema.accepts(item, state)),
            Rule::AdditionalItems(from, otherwise) => items
                .values()
                .skip(*from)
                .all(|item| otherwise.accepts(item, state)),
            _ => true,
        }
    }

    fn accepts_document(&self, doc: &Doc, state: &mut State) -> bool {
        match self {
            Rule::Properties(properties) => properties.iter().all(|property| {
                property
                    .value(doc)
                    .is_none_or(|value| property.schema.accepts(value, state))
            }),
            Rule::Allowed(allowed) => doc
                .iter()
                .all(|(name, value)| allowed.accepts(name, value, state)),
            Rule::Required(names) => names.iter().all(|name| lookup(doc, name).is_some()),
            Rule::MinProperties(least) => doc.count() as u64 >= *least,
            Rule::MaxProperties(most) => doc.count() as u64 <= *most,
            Rule::Dependencies(dependencies) => dependencies
                .iter()
                .all(|dependency| dependency.accepts(doc, state)),
            _ => true,
        }
    }
}

impl Property {
    fn value<'a>(&self, doc: &'a Doc) -> Option<Value<'a>> {
        lookup(doc, &self.name)
    }
}

impl Allowed {
    fn accepts(&self, name: &str, value: Value<'_>, state: &mut State) -> bool {
        if !state.goes_on(1 + self.names.len() / 16) {
            return false;
        }
        let mut is_named = self.names.iter().any(|known| known == name);
        for (pattern, schema) in &self.patterns {
            if regex::matches(pattern, Some(Value::String(name)), state) {
                if !schema.accepts(value, state) {
                    return false;
                }
                is_named = true;
            }
        }
        is_named || self.otherwise.accepts(value, state)
    }

    /// Whether neither `properties` nor a pattern covers a property.
    fn is_additional(&self, name: &str) -> bool {
        let state = &mut State::default();
        !self.names.iter().any(|known| known == name)
            && !(self.patterns.iter())
                .any(|(pattern, _)| regex::matches(pattern, Some(Value::String(name)), state))
    }
}

impl Dependency {
    fn accepts(&self, doc: &Doc, state: &mut State) -> bool {
        lookup(doc, &self.name).is_none()
            || match &self.needs {
                Needs::Properties(names) => names.iter().all(|name| lookup(doc, name).is_some()),
                Needs::Schema(schema) => schema.accepts(Value::Document(doc), state),
            }
    }
}

/// The value of a property. A name with dots is a path through documents, as in MongoDB.
fn lookup<'a>(doc: &'a Doc, name: &str) -> Option<Value<'a>> {
    if name.contains('.') {
        doc.path(name)
    } else {
        doc.get(name)
    }
}

/// Whether two values are equal when the order of fields does not matter.
fn same(a: &Value<'_>, b: &Value<'_>) -> bool {
    compare_unordered(a, b).is_eq()
}

/// MongoDB's order, the fields of documents being sorted by name first. The recursion ends because
/// validated documents nest at most 200 deep.
fn compare_unordered(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    fn pairs<'a>(
        a: impl Iterator<Item = (&'a str, Value<'a>)>,
        b: impl Iterator<Item = (&'a str, Value<'a>)>,
    ) -> Ordering {
        let (mut a, mut b) = (a, b);
        loop {
            let order = match (a.next(), b.next()) {
                (Some((name, x)), Some((other, y))) => {
                    name.cmp(other).then_with(|| compare_unordered(&x, &y))
                }
                (x, y) => return x.is_some().cmp(&y.is_some()),
            };
            if order.is_ne() {
                return order;
            }
        }
    }
    fn sorted(doc: &Doc) -> std::vec::IntoIter<(&str, Value<'_>)> {
        let mut fields: Vec<_> = doc.iter().collect();
        fields.sort_by_key(|(name, _)| *name);
        fields.into_iter()
    }
    match (a, b) {
        (Value::Document(a), Value::Document(b)) => pairs(sorted(a), sorted(b)),
        (Value::Array(a), Value::Array(b)) => pairs(a.iter(), b.iter()),
        (a, b) => compare(a, b),
    }
}

/// An element that equals an earlier one.
fn duplicate(items: &Doc) -> Option<Value<'_>> {
    let mut sorted: Vec<Value<'_>> = items.values().collect();
    sorted.sort_by(compare_unordered);
    sorted.windows(2).find_map(|pair| match pair {
        [a, b] if same(a, b) => Some(*b),
        _ => None,
    })
}
