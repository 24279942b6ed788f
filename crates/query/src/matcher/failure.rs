//! Why a document does not pass a filter: the `errInfo` of MongoDB's validators.
//!
//! The filter is read again as it was written, since the explanation quotes it: `$ne` is a negated
//! equality to the matcher and an operator of its own to the user.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use frond_bson::{ArrayBuf, Doc, DocBuf, Value, tag, type_name_of_code};

use super::eval::matches_document;
use super::parse::{Context, operators_of};
use super::state::State;
use super::{Expr, Schema, operators};
use crate::environment::Environment;
use crate::paths::{LeafArrays, Path, walk};
use crate::raw;
use frond_error::Result;

/// Most values that an explanation lists; MongoDB's limit.
const MAX_CONSIDERED: usize = 10;

/// An explanation larger than this leaves out values and what was specified; MongoDB's limit.
const MAX_BYTES: usize = 12 * 1024 * 1024;

/// Documents in a reply must stay below the depth limit of BSON.
const MAX_DEPTH: usize = 180;

const NUMBERS: [u8; 4] = [tag::DECIMAL128, tag::DOUBLE, tag::INT32, tag::INT64];

/// Whether an explanation quotes the values and the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    Full,
    Brief,
}

/// Explains why `doc` does not pass the filter document `filter`, as MongoDB does in the `errInfo`
/// of error 121 (`DocumentValidationFailure`): `{failingDocumentId, details: {operatorName, …}}`.
///
/// # Errors
/// Those of parsing the filter.
pub fn explain_failure(filter: &Doc, doc: &Doc, environment: &Environment<'_>) -> Result<DocBuf> {
    let clause = document(filter, Context::top(environment))?;
    for detail in [Detail::Full, Detail::Brief] {
        let explainer = Explainer {
            doc,
            now_ms: environment.now_ms,
            detail,
        };
        let mut out = DocBuf::new();
        out.push("failingDocumentId", doc.get("_id").unwrap_or(Value::Null));
        if detail == Detail::Brief {
            out.push("truncated", true);
        }
        out.push("details", &explainer.explain(&clause, false));
        if raw::depth(&Value::Document(&out)) > MAX_DEPTH {
            let mut out = DocBuf::new();
            out.push("reason", "generated error was too deeply nested");
            out.push("truncated", true);
            return Ok(out);
        }
        if out.len_bytes() <= MAX_BYTES {
            return Ok(out);
        }
    }
    let mut out = DocBuf::new();
    out.push("failingDocumentId", doc.get("_id").unwrap_or(Value::Null));
    out.push("truncated", true);
    Ok(out)
}

/// A part of the filter that an explanation covers.
enum Clause<'f> {
    And(Vec<Clause<'f>>),
    Or(Vec<Clause<'f>>),
    Nor(Vec<Clause<'f>>),
    Not(Box<Clause<'f>>),
    Schema(Arc<Schema>),
    /// A condition without nested clauses.
    Leaf(Box<Leaf<'f>>),
}

struct Leaf<'f> {
    name: &'f str,
    /// The path of the condition; empty for top-level operators.
    path: &'f str,
    specified: DocBuf,
    /// The condition, without the negation that `$ne`, `$nin` and `$exists: false` imply.
    condition: Expr,
    negated: bool,
}

/// Reads a filter document as clauses.
fn document<'f>(filter: &'f Doc, context: Context<'_>) -> Result<Clause<'f>> {
    let context = context.deeper()?;
    let mut clauses = Vec::new();
    for (name, value) in filter.iter() {
        match (name, value) {
            ("$comment", _) => {}
            ("$and" | "$or" | "$nor", Value::Array(items)) => {
                let inner = items
                    .values()
                    .filter_map(|item| item.as_doc())
                    .map(|item| document(item, context))
                    .collect::<Result<Vec<_>>>()?;
                clauses.push(match name {
                    "$and" => Clause::And(inner),
                    "$or" => Clause::Or(inner),
                    _ => Clause::Nor(inner),
                });
            }
            ("$jsonSchema", Value::Document(schema)) => {
                clauses.push(Clause::Schema(Arc::new(Schema::parse(schema)?)));
            }
            _ if name.starts_with('$') => clauses.push(leaf(name, "", value, context)?),
            _ => match operators_of(&value) {
                Some(operators) => field(name, operators, context, &mut clauses)?,
                None => {
                    let operator = match value {
                        Value::Regex { .. } => "$regex",
                        _ => "$eq",
                    };
                    clauses.push(implicit(operator, name, value, context)?);
                }
            },
        }
    }
    Ok(joined(clauses))
}

/// Reads the operators of a field.
fn field<'f>(
    path: &'f str,
    operators: &'f Doc,
    context: Context<'_>,
    clauses: &mut Vec<Clause<'f>>,
) -> Result<()> {
    for (name, value) in operators.iter() {
        match (name, value) {
            ("$options" | "$maxDistance" | "$minDistance", _) => {}
            ("$not", Value::Document(inner)) => {
                let mut negated = Vec::new();
                field(path, inner, context.deeper()?, &mut negated)?;
                clauses.push(Clause::Not(Box::new(joined(negated))));
            }
            ("$not", Value::Regex { .. }) => {
                let inner = implicit("$regex", path, value, context)?;
                clauses.push(Clause::Not(Box::new(inner)));
            }
            ("$regex", _) => {
                let mut regex = DocBuf::new();
                regex.push_value("$regex", &value);
                if let Some(options) = operators.get("$options") {
                    regex.push_value("$options", &options);
                }
                let specified = nested(path, &regex);
                clauses.push(Clause::Leaf(Box::new(Leaf {
                    condition: operators::parse_document(&specified, context)?,
                    name,
                    path,
                    specified,
                    negated: false,
                })));
            }
            _ => clauses.push(leaf(name, path, value, context)?),
        }
    }
    Ok(())
}

/// `{path: inner}`.
fn nested(path: &str, inner: &Doc) -> DocBuf {
    let mut out = DocBuf::new();
    out.push(path, inner);
    out
}

fn leaf<'f>(
    name: &'f str,
    path: &'f str,
    argument: Value<'_>,
    context: Context<'_>,
) -> Result<Clause<'f>> {
    let mut specified = DocBuf::new();
    specified.push_value(name, &argument);
    if !path.is_empty() {
        specified = nested(path, &specified);
    }
    let negated = matches!(name, "$ne" | "$nin") || (name == "$exists" && !argument.truthy());
    let condition = match operators::parse_document(&specified, context)? {
        Expr::Not(inner) if negated => *inner,
        other => other,
    };
    Ok(Clause::Leaf(Box::new(Leaf {
        name,
        path,
        specified,
        condition,
        negated,
    })))
}

/// `field: value`.
fn implicit<'f>(
    operator: &'static str,
    path: &'f str,
    value: Value<'_>,
    context: Context<'_>,
) -> Result<Clause<'f>> {
    let mut specified = DocBuf::new();
    specified.push_value(path, &value);
    Ok(Clause::Leaf(Box::new(Leaf {
        condition: operators::parse_document(&specified, context)?,
        name: operator,
        path,
        specified,
        negated: false,
    })))
}

/// A conjunction, without a wrapper around a single clause.
fn joined(mut clauses: Vec<Clause<'_>>) -> Clause<'_> {
    match clauses.pop() {
        Some(only) if clauses.is_empty() => only,
        last => {
            clauses.extend(last);
            Clause::And(clauses)
        }
    }
}

struct Explainer<'d> {
    doc: &'d Doc,
    now_ms: i64,
    detail: Detail,
}

impl Explainer<'_> {
    /// Whether the document passes; `None` if that is unknown.
    fn holds(&self, clause: &Clause<'_>) -> Option<bool> {
        let mut state = State::default();
        let holds = match clause {
            Clause::And(all) => return self.all(all, true),
            Clause::Or(any) => return self.all(any, false).map(|none| !none),
            Clause::Nor(any) => return self.all(any, false),
            Clause::Not(inner) => return self.holds(inner).map(|holds| !holds),
            Clause::Schema(schema) => schema.accepts(Value::Document(self.doc), &mut state),
            Clause::Leaf(leaf) => {
                matches_document(&leaf.condition, self.doc, &mut state) != leaf.negated
            }
        };
        state.error.is_none().then_some(holds)
    }

    /// Whether all clauses hold, or none does.
    fn all(&self, clauses: &[Clause<'_>], wanted: bool) -> Option<bool> {
        for clause in clauses {
            if self.holds(clause)? != wanted {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Explains why a clause does not hold or, inverted, why it does.
    fn explain(&self, clause: &Clause<'_>, inverted: bool) -> DocBuf {
        match clause {
            Clause::And(all) => self.several("$and", all, inverted, inverted),
            Clause::Or(any) => self.several("$or", any, inverted, !inverted),
            Clause::Nor(any) => self.several("$nor", any, !inverted, inverted),
            Clause::Not(inner) => {
                let mut out = DocBuf::new();
                out.push("operatorName", "$not");
                out.push("details", &self.explain(inner, !inverted));
                out
            }
            Clause::Schema(schema) => schema.explain(self.doc, inverted, self.detail),
            Clause::Leaf(leaf) => self.leaf(leaf, inverted != leaf.negated),
        }
    }

    /// A logical operator: all of its clauses, or those that failed.
    fn several(&self, name: &str, clauses: &[Clause<'_>], inverted: bool, every: bool) -> DocBuf {
        let mut out = DocBuf::new();
        out.push("operatorName", name);
        let list = if inverted {
            "clausesSatisfied"
        } else {
            "clausesNotSatisfied"
        };
        out.push_array(list, |array| {
            for (clause, index) in clauses.iter().zip(0i32..) {
                if every || self.holds(clause).is_none_or(|holds| holds == inverted) {
                    array.push_doc(|d| {
                        d.push("index", index);
                        d.push("details", &self.explain(clause, inverted));
                    });
                }
            }
        });
        out
    }

    fn leaf(&self, leaf: &Leaf<'_>, inverted: bool) -> DocBuf {
        let mut out = DocBuf::new();
        out.push("operatorName", leaf.name);
        if self.detail == Detail::Full {
            out.push("specifiedAs", &leaf.specified);
        }
        if let Expr::Computed(computed) = &leaf.condition {
            match computed.expression().eval_owned(self.doc, self.now_ms) {
                Ok(result) => {
                    out.push("reason", pick(inverted, EXPRESSION));
                    if let Some(result) = result {
                        out.push("expressionResult", &result);
                    }
                }
                Err(error) => {
                    out.push("reason", "failed to evaluate aggregation expression");
                    out.push_doc("details", |d| {
                        d.push("code", error.code().code());
                        d.push("codeName", &*error.code().name());
                        d.push("errmsg", error.message());
                    });
                }
            }
            return out;
        }
        if leaf.path.is_empty() || matches!(leaf.condition, Expr::False) {
            out.push("reason", pick(inverted, CONSTANT));
            return out;
        }
        let kind = Kind::by_name(leaf.name);
        if leaf.name == "$exists" {
            out.push("reason", pick(inverted, kind.reasons));
            return out;
        }
        self.values(&mut out, leaf.path, &kind, inverted);
        out
    }

    /// The values that a condition looked at, and what was wrong with them.
    fn values(&self, out: &mut DocBuf, path: &str, kind: &Kind, inverted: bool) {
        let mut values = ArrayBuf::new();
        let mut is_cut = false;
        let mut exists = false;
        let mut consider = |value: Value<'_>| {
            if values.len() == MAX_CONSIDERED {
                is_cut = true;
                return ControlFlow::Break(());
            }
            values.push_value(&value);
            ControlFlow::Continue(())
        };
        let _ = walk(
            self.doc,
            &Path::new(path),
            LeafArrays::Whole,
            &mut |value, _| {
                let Some(value) = value else {
                    return ControlFlow::Break(());
                };
                exists = true;
                match value {
                    Value::Array(items) if !kind.whole_arrays => {
                        items.values().try_for_each(&mut consider)
                    }
                    value => consider(value),
                }
            },
        );
        if !exists {
            out.push("reason", "field was missing");
            return;
        }
        let considered: BTreeSet<&str> = (values.as_doc().values())
            .map(|value| value.type_name())
            .collect();
        let expected: BTreeSet<&str> = (kind.expected.iter())
            .filter_map(|code| type_name_of_code(*code))
            .collect();
        let wrong_type = !expected.is_empty() && considered.is_disjoint(&expected);
        if wrong_type {
            out.push("reason", "type did not match");
            types(out, "consideredType", &considered);
            types(out, "expectedType", &expected);
        } else {
            out.push("reason", pick(inverted, kind.reasons));
        }
        if self.detail == Detail::Full {
            match values.as_doc().first() {
                Some((_, only)) if values.len() == 1 => out.push_value("consideredValue", &only),
                _ => out.push_value("consideredValues", &values.as_value()),
            }
            if is_cut {
                out.push("consideredValuesTruncated", true);
            }
        }
        if kind.shows_types {
            types(out, "consideredType", &considered);
        }
    }
}

/// One type's name, or several under the plural.
fn types(out: &mut DocBuf, name: &str, types: &BTreeSet<&str>) {
    let mut list = types.iter();
    match (list.next(), list.next()) {
        (None, _) => {}
        (Some(only), None) => out.push(name, *only),
        _ => out.push_array(&format!("{name}s"), |array| {
            types.iter().for_each(|one| array.push(*one));
        }),
    }
}

/// Why a condition did not hold, and why it did.
type Reasons = [&'static str; 2];

fn pick(inverted: bool, [normal, other]: Reasons) -> &'static str {
    if inverted { other } else { normal }
}

const EXPRESSION: Reasons = ["expression did not match", "expression did match"];
const CONSTANT: Reasons = [
    "expression always evaluates to false",
    "expression always evaluates to true",
];

/// Words that explain an operator.
struct Kind {
    reasons: Reasons,
    expected: &'static [u8],
    /// Whether arrays are looked at as they are, not element by element.
    whole_arrays: bool,
    shows_types: bool,
}

impl Kind {
    fn by_name(name: &str) -> Kind {
        const BITS: [u8; 5] = [
            tag::BINARY,
            tag::DECIMAL128,
            tag::DOUBLE,
            tag::INT32,
            tag::INT64,
        ];
        let comparison: Reasons = ["comparison failed", "comparison succeeded"];
        let (reasons, expected): (Reasons, &'static [u8]) = match name {
            "$in" | "$nin" => (
                [
                    "no matching value found in array",
                    "matching value found in array",
                ],
                &[],
            ),
            "$exists" => (["path does not exist", "path does exist"], &[]),
            "$type" => (["type did not match", "type did match"], &[]),
            "$mod" => (
                [
                    "$mod did not evaluate to expected remainder",
                    "$mod did evaluate to expected remainder",
                ],
                &NUMBERS,
            ),
            "$regex" => (
                [
                    "regular expression did not match",
                    "regular expression did match",
                ],
                &[tag::STRING, tag::SYMBOL, tag::REGEX],
            ),
            "$size" => (
                [
                    "array length was not equal to given size",
                    "array length was equal to given size",
                ],
                &[tag::ARRAY],
            ),
            "$elemMatch" => (
                [
                    "array did not satisfy the child predicate",
                    "array did satisfy the child predicate",
                ],
                &[tag::ARRAY],
            ),
            "$all" => (
                [
                    "array did not contain all specified values",
                    "array did contain all specified values",
                ],
                &[],
            ),
            "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear" => (
                [
                    "bitwise operator failed to match",
                    "bitwise operator matched successfully",
                ],
                &BITS,
            ),
            "$geoWithin" | "$within" => (
                [
                    "none of the considered geometries were contained within the expression’s \
                     geometry",
                    "at least one of considered geometries was contained within the \
                     expression’s geometry",
                ],
                &[],
            ),
            "$geoIntersects" => (
                [
                    "none of the considered geometries intersected the expression’s geometry",
                    "at least one of considered geometries intersected the expression’s geometry",
                ],
                &[],
            ),
            _ => (comparison, &[]),
        };
        Kind {
            reasons,
            expected,
            whole_arrays: matches!(name, "$size" | "$elemMatch" | "$all"),
            shows_types: name == "$type",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{json, show};

    fn details(filter: &str, doc: &str) -> String {
        let environment = Environment::default();
        let found = explain_failure(&json(filter), &json(doc), &environment);
        let found = found.unwrap_or_else(|e| panic!("{filter}: {e}"));
        found.get("details").map_or(String::new(), |v| show(&v))
    }

    #[test]
    fn conditions_are_quoted_with_the_values_they_looked_at() {
        for (filter, doc, expected) in [
            (
                "{a: {$eq: 2}}",
                "{a: 1}",
                "{operatorName: '$eq', specifiedAs: {a: {$eq: 2}}, reason: 'comparison failed', \
                 consideredValue: 1}",
            ),
            (
                "{a: 2}",
                "{b: 1}",
                "{operatorName: '$eq', specifiedAs: {a: 2}, reason: 'field was missing'}",
            ),
            (
                "{a: {$lt: 0}}",
                "{a: [3, 4]}",
                "{operatorName: '$lt', specifiedAs: {a: {$lt: 0}}, reason: 'comparison failed', \
                 consideredValues: [3, 4]}",
            ),
            (
                "{a: {$gte: 3}}",
                "{a: []}",
                "{operatorName: '$gte', specifiedAs: {a: {$gte: 3}}, reason: 'comparison failed', \
                 consideredValues: []}",
            ),
            (
                "{a: {$ne: 2}}",
                "{a: 2}",
                "{operatorName: '$ne', specifiedAs: {a: {$ne: 2}}, reason: 'comparison succeeded', \
                 consideredValue: 2}",
            ),
            (
                "{a: {$nin: [1, 2]}}",
                "{a: 2}",
                "{operatorName: '$nin', specifiedAs: {a: {$nin: [1, 2]}}, \
                 reason: 'matching value found in array', consideredValue: 2}",
            ),
            (
                "{a: {$exists: false}}",
                "{a: 1}",
                "{operatorName: '$exists', specifiedAs: {a: {$exists: false}}, \
                 reason: 'path does exist'}",
            ),
            (
                "{a: {$type: 'int'}}",
                "{a: 'one'}",
                "{operatorName: '$type', specifiedAs: {a: {$type: 'int'}}, \
                 reason: 'type did not match', consideredValue: 'one', consideredType: 'string'}",
            ),
            (
                "{a: {$mod: [2, 1]}}",
                "{a: 'x'}",
                "{operatorName: '$mod', specifiedAs: {a: {$mod: [2, 1]}}, \
                 reason: 'type did not match', consideredType: 'string', \
                 expectedTypes: ['decimal', 'double', 'int', 'long'], consideredValue: 'x'}",
            ),
            (
                "{a: {$regex: 'x', $options: 'i'}}",
                "{a: 'y'}",
                "{operatorName: '$regex', specifiedAs: {a: {$regex: 'x', $options: 'i'}}, \
                 reason: 'regular expression did not match', consideredValue: 'y'}",
            ),
            (
                "{a: {$size: 2}}",
                "{a: [1]}",
                "{operatorName: '$size', specifiedAs: {a: {$size: 2}}, \
                 reason: 'array length was not equal to given size', consideredValue: [1]}",
            ),
            (
                "{a: {$all: []}}",
                "{a: 1}",
                "{operatorName: '$all', specifiedAs: {a: {$all: []}}, \
                 reason: 'expression always evaluates to false'}",
            ),
            (
                "{$expr: {$eq: ['$a', 1]}}",
                "{a: 2}",
                "{operatorName: '$expr', specifiedAs: {$expr: {$eq: ['$a', 1]}}, \
                 reason: 'expression did not match', expressionResult: false}",
            ),
            (
                "{$expr: {$divide: [10, 0]}}",
                "{}",
                "{operatorName: '$expr', specifiedAs: {$expr: {$divide: [10, 0]}}, \
                 reason: 'failed to evaluate aggregation expression', \
                 details: {code: 2, codeName: 'BadValue', errmsg: \"can't $divide by zero\"}}",
            ),
        ] {
            let expected = show(&Value::Document(&json(expected)));
            assert_eq!(details(filter, doc), expected, "{filter} on {doc}");
        }
    }

    #[test]
    fn logical_operators_name_the_clauses_to_blame() {
        for (filter, doc, expected) in [
            (
                "{a: {$gt: 0, $lt: 10}}",
                "{a: 11}",
                "{operatorName: '$and', clausesNotSatisfied: [{index: 1, details: \
                 {operatorName: '$lt', specifiedAs: {a: {$lt: 10}}, reason: 'comparison failed', \
                 consideredValue: 11}}]}",
            ),
            (
                "{$or: [{a: 1}]}",
                "{a: 2}",
                "{operatorName: '$or', clausesNotSatisfied: [{index: 0, details: \
                 {operatorName: '$eq', specifiedAs: {a: 1}, reason: 'comparison failed', \
                 consideredValue: 2}}]}",
            ),
            (
                "{$nor: [{a: 1}, {b: {$lt: 10}}]}",
                "{a: 2, b: 9}",
                "{operatorName: '$nor', clausesSatisfied: [{index: 1, details: \
                 {operatorName: '$lt', specifiedAs: {b: {$lt: 10}}, \
                 reason: 'comparison succeeded', consideredValue: 9}}]}",
            ),
            (
                "{a: {$not: {$not: {$lt: 10}}}}",
                "{a: 11}",
                "{operatorName: '$not', details: {operatorName: '$not', details: \
                 {operatorName: '$lt', specifiedAs: {a: {$lt: 10}}, reason: 'comparison failed', \
                 consideredValue: 11}}}",
            ),
        ] {
            let expected = show(&Value::Document(&json(expected)));
            assert_eq!(details(filter, doc), expected, "{filter} on {doc}");
        }
    }
}
