//! Why a value does not satisfy a schema, in the shape of the `errInfo` of MongoDB's validators.

use frond_bson::{ArrayBuf, Doc, DocBuf, Value};

use super::{Allowed, Dependency, Needs, Otherwise, Rule, Schema, duplicate, lookup};
use crate::matcher::failure::Detail;
use crate::matcher::operators::regex;
use crate::matcher::state::State;

impl Schema {
    /// The explanation for `$jsonSchema` as a whole. With `matched` it explains why a document
    /// passed that should not have.
    pub(crate) fn explain(&self, doc: &Doc, matched: bool, detail: Detail) -> DocBuf {
        let mut out = DocBuf::new();
        out.push("operatorName", "$jsonSchema");
        if matched {
            out.push("reason", "schema matched");
        } else if self.impossible {
            if detail == Detail::Full {
                out.push_doc("specifiedAs", |d| d.push("$jsonSchema", self.source()));
            }
            out.push("reason", "expression always evaluates to false");
        } else {
            self.annotate(&mut out);
            push_all(
                &mut out,
                "schemaRulesNotSatisfied",
                self.unsatisfied(Value::Document(doc), detail),
            );
        }
        out
    }

    /// Adds the schema's title and description.
    fn annotate(&self, out: &mut DocBuf) {
        annotate(out, &self.source);
    }

    /// The violated rules, one document for each.
    fn unsatisfied(&self, value: Value<'_>, detail: Detail) -> Vec<DocBuf> {
        let mut found = Vec::new();
        for rule in &self.rules {
            if !rule.accepts(value, &mut State::default()) {
                rule.explain(self, value, detail, &mut found);
            }
        }
        found
    }
}

fn annotate(out: &mut DocBuf, source: &Doc) {
    for name in ["title", "description"] {
        if let Some(Value::String(text)) = source.get(name) {
            out.push(name, text);
        }
    }
}

fn push_all(out: &mut DocBuf, name: &str, docs: Vec<DocBuf>) {
    out.push_array(name, |array| docs.iter().for_each(|doc| array.push(doc)));
}

fn push_names(out: &mut DocBuf, name: &str, names: &[&str]) {
    out.push_array(name, |array| {
        names.iter().for_each(|name| array.push(*name))
    });
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

impl Rule {
    fn explain(&self, schema: &Schema, value: Value<'_>, detail: Detail, found: &mut Vec<DocBuf>) {
        let begin = |name: &str| {
            let mut out = DocBuf::new();
            out.push("operatorName", name);
            out
        };
        let specified = |out: &mut DocBuf, names: &[&str]| {
            if detail == Detail::Full {
                out.push_doc("specifiedAs", |d| {
                    for name in names {
                        if let Some(argument) = schema.source.get(name) {
                            d.push_value(name, &argument);
                        }
                    }
                });
            }
        };
        let considered = |out: &mut DocBuf| {
            if detail == Detail::Full {
                out.push_value("consideredValue", &value);
            }
        };
        let leaf = |names: &[&str], reason: &str| {
            let mut out = begin(names.first().copied().unwrap_or_default());
            specified(&mut out, names);
            out.push("reason", reason);
            considered(&mut out);
            out
        };
        let fields = match value {
            Value::Document(doc) | Value::Array(doc) => doc,
            _ => Doc::empty(),
        };
        let length = "specified string length was not satisfied";
        let items = |name: &str| {
            let mut out = leaf(&[name], "array did not match specified length");
            out.push("numberOfItems", number(fields.count()));
            out
        };
        let properties = |name: &str| {
            let mut out = begin(name);
            specified(&mut out, &[name]);
            out.push("reason", "specified number of properties was not satisfied");
            out.push("numberOfProperties", number(fields.count()));
            out
        };
        let out = match self {
            Rule::Pattern(_) => leaf(&["pattern"], "regular expression did not match"),
            Rule::MaxLength(_) => leaf(&["maxLength"], length),
            Rule::MinLength(_) => leaf(&["minLength"], length),
            Rule::MultipleOf(_) => leaf(
                &["multipleOf"],
                "considered value is not a multiple of the specified value",
            ),
            Rule::Bound(name, exclusive, _) => {
                let is_open = schema.source.get_bool(exclusive) == Some(true);
                let names = [*name, *exclusive];
                leaf(
                    if is_open { &names } else { &names[..1] },
                    "comparison failed",
                )
            }
            Rule::MinItems(_) => items("minItems"),
            Rule::MaxItems(_) => items("maxItems"),
            Rule::UniqueItems => {
                let mut out = leaf(&["uniqueItems"], "found a duplicate item");
                if let Some(item) = duplicate(fields) {
                    out.push_value("duplicatedValue", &item);
                }
                out
            }
            Rule::Items(inner) => {
                let reason = "At least one item did not match the sub-schema";
                first_item("items", reason, inner, fields, 0, detail)
            }
            Rule::ItemsAt(schemas) => {
                let mut out = begin("items");
                out.push_array("details", |details| {
                    for (index, (item, inner)) in fields.values().zip(schemas).enumerate() {
                        let wrong = inner.unsatisfied(item, detail);
                        if !wrong.is_empty() {
                            details.push_doc(|d| {
                                d.push("itemIndex", number(index));
                                push_all(d, "details", wrong);
                            });
                        }
                    }
                });
                out
            }
            Rule::AdditionalItems(from, Otherwise::Schema(inner)) => {
                let reason = "At least one additional item did not match the sub-schema";
                first_item("additionalItems", reason, inner, fields, *from, detail)
            }
            Rule::AdditionalItems(from, _) => {
                let mut out = begin("additionalItems");
                specified(&mut out, &["additionalItems"]);
                out.push("reason", "found additional items");
                out.push_array("additionalItems", |array: &mut ArrayBuf| {
                    for item in fields.values().skip(*from) {
                        array.push(item);
                    }
                });
                out
            }
            Rule::Properties(list) => {
                let mut out = begin("properties");
                out.push_array("propertiesNotSatisfied", |array| {
                    for property in list {
                        let wrong = match property.value(fields) {
                            Some(value) => property.schema.unsatisfied(value, detail),
                            None => continue,
                        };
                        if !wrong.is_empty() {
                            array.push_doc(|d| {
                                d.push("propertyName", property.name.as_str());
                                property.schema.annotate(d);
                                push_all(d, "details", wrong);
                            });
                        }
                    }
                });
                out
            }
            Rule::Allowed(allowed) => {
                found.extend(allowed.explain_additional(fields, detail));
                found.extend(allowed.explain_patterns(fields, detail));
                return;
            }
            Rule::Required(names) => {
                let mut out = begin("required");
                specified(&mut out, &["required"]);
                push_names(&mut out, "missingProperties", &missing(fields, names));
                out
            }
            Rule::MinProperties(_) => properties("minProperties"),
            Rule::MaxProperties(_) => properties("maxProperties"),
            Rule::Dependencies(list) => {
                let mut out = begin("dependencies");
                if let Some(source) = schema.source.get_doc("dependencies") {
                    annotate(&mut out, source);
                }
                let failing = list.iter().filter_map(|one| one.explain(fields, detail));
                push_all(&mut out, "failingDependencies", failing.collect());
                out
            }
            Rule::AllOf(schemas) => not_satisfied(begin("allOf"), schemas, value, detail),
            Rule::AnyOf(schemas) => not_satisfied(begin("anyOf"), schemas, value, detail),
            Rule::OneOf(schemas) => {
                let state = &mut State::default();
                let matching: Vec<usize> = (0..)
                    .zip(schemas)
                    .filter_map(|(index, one)| one.accepts(value, state).then_some(index))
                    .collect();
                let mut out = begin("oneOf");
                if matching.is_empty() {
                    not_satisfied(out, schemas, value, detail)
                } else {
                    out.push("reason", "more than one subschema matched");
                    out.push_array("matchingSchemaIndexes", |array| {
                        matching
                            .into_iter()
                            .for_each(|index| array.push(number(index)));
                    });
                    out
                }
            }
            Rule::Not(_) => {
                let mut out = begin("not");
                out.push("reason", "child expression matched");
                out
            }
            Rule::Enum(_) => leaf(&["enum"], "value was not found in enum"),
            Rule::Type(keyword, _) => {
                let mut out = leaf(&[*keyword], "type did not match");
                out.push("consideredType", value.type_name());
                out
            }
        };
        found.push(out);
    }
}

/// The schemas of a list that a value does not satisfy, with their places.
fn not_satisfied(mut out: DocBuf, schemas: &[Schema], value: Value<'_>, detail: Detail) -> DocBuf {
    out.push_array("schemasNotSatisfied", |array| {
        for (index, schema) in schemas.iter().enumerate() {
            let wrong = schema.unsatisfied(value, detail);
            if !wrong.is_empty() {
                array.push_doc(|d| {
                    d.push("index", number(index));
                    schema.annotate(d);
                    push_all(d, "details", wrong);
                });
            }
        }
    });
    out
}

/// The first element from a place on that does not satisfy a schema.
fn first_item(
    name: &str,
    reason: &str,
    schema: &Schema,
    items: &Doc,
    from: usize,
    detail: Detail,
) -> DocBuf {
    let mut out = DocBuf::new();
    out.push("operatorName", name);
    schema.annotate(&mut out);
    out.push("reason", reason);
    let state = &mut State::default();
    let failing =
        (items.values().enumerate().skip(from)).find(|(_, item)| !schema.accepts(*item, state));
    if let Some((index, item)) = failing {
        out.push("itemIndex", number(index));
        push_all(&mut out, "details", schema.unsatisfied(item, detail));
    }
    out
}

fn missing<'n>(doc: &Doc, names: &'n [String]) -> Vec<&'n str> {
    names
        .iter()
        .map(String::as_str)
        .filter(|name| lookup(doc, name).is_none())
        .collect()
}

impl Allowed {
    fn explain_additional(&self, doc: &Doc, detail: Detail) -> Option<DocBuf> {
        let mut additional = doc.iter().filter(|(name, _)| self.is_additional(name));
        let mut out = DocBuf::new();
        out.push("operatorName", "additionalProperties");
        match &self.otherwise {
            Otherwise::Anything => None,
            Otherwise::Nothing => {
                let names: Vec<&str> = additional.map(|(name, _)| name).collect();
                if detail == Detail::Full {
                    out.push_doc("specifiedAs", |d| d.push("additionalProperties", false));
                }
                push_names(&mut out, "additionalProperties", &names);
                (!names.is_empty()).then_some(out)
            }
            Otherwise::Schema(schema) => {
                let (name, value) =
                    additional.find(|(_, value)| !schema.accepts(*value, &mut State::default()))?;
                schema.annotate(&mut out);
                out.push(
                    "reason",
                    "at least one additional property did not match the subschema",
                );
                out.push("failingProperty", name);
                push_all(&mut out, "details", schema.unsatisfied(value, detail));
                Some(out)
            }
        }
    }

    fn explain_patterns(&self, doc: &Doc, detail: Detail) -> Option<DocBuf> {
        let state = &mut State::default();
        let mut details = Vec::new();
        for (pattern, schema) in &self.patterns {
            let failing = doc.iter().find(|(name, value)| {
                regex::matches(pattern, Some(Value::String(name)), state)
                    && !schema.accepts(*value, state)
            });
            if let Some((name, value)) = failing {
                let mut out = DocBuf::new();
                out.push("propertyName", name);
                schema.annotate(&mut out);
                out.push("regexMatched", pattern.source());
                push_all(&mut out, "details", schema.unsatisfied(value, detail));
                details.push(out);
            }
        }
        if details.is_empty() {
            return None;
        }
        let mut out = DocBuf::new();
        out.push("operatorName", "patternProperties");
        push_all(&mut out, "details", details);
        Some(out)
    }
}

impl Dependency {
    fn explain(&self, doc: &Doc, detail: Detail) -> Option<DocBuf> {
        if self.accepts(doc, &mut State::default()) {
            return None;
        }
        let mut out = DocBuf::new();
        out.push("conditionalProperty", self.name.as_str());
        match &self.needs {
            Needs::Properties(names) => {
                push_names(&mut out, "missingProperties", &missing(doc, names));
            }
            Needs::Schema(schema) => {
                let wrong = schema.unsatisfied(Value::Document(doc), detail);
                push_all(&mut out, "details", wrong);
            }
        }
        Some(out)
    }
}
