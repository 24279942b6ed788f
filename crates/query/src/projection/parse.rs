//! From a projection document to a tree of rules.

use std::sync::Arc;

use frond_bson::{Collator, Doc, Value};

use super::node::{Node, Rule};
use super::slice::Slice;
use super::{Kind, Projection};
use crate::display;
use crate::environment::Environment;
use crate::expr::{self, Expr};
use crate::matcher::ElemMatch;
use crate::paths::{MAX_PATH_COMPONENTS, check_field_path, path_too_long};
use frond_error::{Error, ErrorCode, Result};

/// The context of a projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// In a `find`: with the positional operator, `$elemMatch` and a `$slice` of its own.
    Find,
    /// In a `$project` stage.
    Stage,
}

/// The parser, with what it has seen so far.
pub(super) struct Parser<'e> {
    dialect: Dialect,
    /// The environment of expressions; without it they are refused.
    environment: Option<&'e Environment<'e>>,
    /// The first field but `_id` decides.
    kind: Option<Kind>,
    positional: bool,
    elem_match: bool,
    slice: bool,
    /// Whether the specification names `_id` or a field below it.
    names_id: bool,
    /// `_id: 1` or `_id: 0`.
    id_included: Option<bool>,
}

/// A field of a projection: its name as written, where that starts, and the rules it goes to.
struct Field<'n, 'a> {
    parent: &'n mut Node,
    /// Number of components that lead to the parent.
    depth: usize,
    name: &'a str,
}

impl Field<'_, '_> {
    fn insert(self, rule: Rule) -> Result<()> {
        let name = self.name;
        self.insert_at(name, rule)
    }

    fn insert_at(self, name: &str, rule: Rule) -> Result<()> {
        let path = split(self.depth, name)?;
        self.parent.insert(&path, rule, name)
    }
}

impl<'e> Parser<'e> {
    pub(super) fn new(dialect: Dialect, environment: Option<&'e Environment<'e>>) -> Parser<'e> {
        Parser {
            dialect,
            environment,
            kind: None,
            positional: false,
            elem_match: false,
            slice: false,
            names_id: false,
            id_included: None,
        }
    }

    /// Parses a whole projection.
    pub(super) fn run(mut self, spec: &Doc) -> Result<Projection> {
        if spec.is_empty() && self.dialect == Dialect::Stage {
            return Err(Error::location(
                51272,
                "projection specification must have at least one field",
            ));
        }
        let mut root = Node::default();
        for (name, value) in spec.iter() {
            self.names_id |= name == "_id" || name.starts_with("_id.");
            self.element(
                Field {
                    parent: &mut root,
                    depth: 0,
                    name,
                },
                value,
            )?;
        }
        let kind = self.kind.unwrap_or_else(|| self.default_kind());
        if !self.names_id && kind == Kind::Inclusion {
            root.insert(&["_id"], Rule::Include, "_id")?;
        }
        if self.id_included == Some(true) && kind == Kind::Exclusion {
            root.remove("_id");
        }
        root.finish();
        let now_ms = self.environment.map_or(0, |environment| environment.now_ms);
        Ok(Projection {
            kind,
            root,
            matched: None,
            now_ms,
        })
    }

    /// The kind of a projection that names no field to include or exclude, except `_id`.
    fn default_kind(&self) -> Kind {
        let id_included = self.id_included == Some(true);
        let inclusion = if self.slice {
            id_included
        } else {
            self.elem_match || id_included
        };
        if inclusion {
            Kind::Inclusion
        } else {
            Kind::Exclusion
        }
    }

    fn element(&mut self, field: Field<'_, '_>, value: Value<'_>) -> Result<()> {
        if field.name.contains(".$.") {
            return Err(Error::location(
                31394,
                "As of 4.4, it's illegal to specify positional operator in the middle of a path.\
                 Positional projection may only be used at the end, for example: a.b.$. If the \
                 query previously used a form like a.b.$.d, remove the parts following the '$' \
                 and the results will be equivalent.",
            ));
        }
        let is_flag = value.is_number() || matches!(value, Value::Bool(_));
        if let Some(path) = field.name.strip_suffix(".$") {
            let (code, message) = match value {
                _ if self.dialect == Dialect::Stage => (
                    31324,
                    "Cannot use positional projection in aggregation projection",
                ),
                Value::Document(_) => (
                    31271,
                    "positional projection cannot be used with an expression or sub object",
                ),
                _ if !is_flag => (31308, "positional projection cannot be used with a literal"),
                _ if !value.truthy() => {
                    (31395, "positional projection cannot be used with exclusion")
                }
                _ => return self.positional(field, path),
            };
            return Err(Error::location(code, message));
        }
        match value {
            Value::Document(inner) => self.document(field, inner),
            value if is_flag => self.flag(field, value.truthy()),
            value => self.literal(field, value),
        }
    }

    /// `name: 1` or `name: 0`.
    fn flag(&mut self, field: Field<'_, '_>, include: bool) -> Result<()> {
        let (name, at_root) = (field.name, field.depth == 0);
        field.insert(if include {
            Rule::Include
        } else {
            Rule::Exclude
        })?;
        if at_root && name == "_id" {
            self.id_included = Some(include);
            return Ok(());
        }
        self.set_kind(
            if include {
                Kind::Inclusion
            } else {
                Kind::Exclusion
            },
            name,
        )
    }

    /// Records that a field is of this kind; all fields must agree.
    fn set_kind(&mut self, kind: Kind, name: &str) -> Result<()> {
        match (*self.kind.get_or_insert(kind), kind) {
            (Kind::Exclusion, Kind::Inclusion) => Err(Error::location(
                31253,
                format!("Cannot do inclusion on field {name} in exclusion projection"),
            )),
            (Kind::Inclusion, Kind::Exclusion) => Err(Error::location(
                31254,
                format!("Cannot do exclusion on field {name} in inclusion projection"),
            )),
            _ => Ok(()),
        }
    }

    /// `"path.$": 1`.
    fn positional(&mut self, field: Field<'_, '_>, path: &str) -> Result<()> {
        let name = field.name;
        if self.positional {
            return Err(Error::location(
                31276,
                "Cannot specify more than one positional projection per query.",
            ));
        }
        if self.elem_match {
            return Err(Error::location(
                31256,
                "Cannot specify positional operator and $elemMatch.",
            ));
        }
        if path.is_empty() {
            return Err(Error::location(
                5_392_900,
                format!("Projection on field {name} is invalid"),
            ));
        }
        self.positional = true;
        field.insert_at(path, Rule::Positional)?;
        self.set_kind(Kind::Inclusion, name)
    }

    /// `name: "$field"`, `name: "text"`, `name: […]`: an expression other than a document.
    fn literal(&mut self, field: Field<'_, '_>, value: Value<'_>) -> Result<()> {
        if self.kind == Some(Kind::Exclusion) {
            let shown = display::element(field.name, &value);
            return Err(Error::location(
                31310,
                format!("Cannot use an expression {shown} in an exclusion projection"),
            ));
        }
        self.computed(field, value)
    }

    /// `name: {…}`: an operator or rules for the fields below.
    fn document(&mut self, field: Field<'_, '_>, inner: &Doc) -> Result<()> {
        let path = split(field.depth, field.name)?;
        let Some((first, argument)) = inner.first() else {
            let name = field.name;
            return Err(Error::location(
                51270,
                format!("Invalid empty sub-projection: {name}"),
            ));
        };
        if inner.count() == 1 && first.starts_with('$') {
            return match (first, self.dialect) {
                ("$slice", Dialect::Find) => self.slice(field, inner, argument),
                ("$elemMatch", Dialect::Find) => self.elem_match(field, argument),
                ("$elemMatch", Dialect::Stage) => Err(Error::new(
                    ErrorCode::InvalidPipelineOperator,
                    "Cannot use $elemMatch in this context",
                )),
                _ => self.operator(field, inner, first),
            };
        }
        let depth = field.depth + path.len();
        let parent = field.parent.descend(&path, field.name)?;
        for (name, value) in inner.iter() {
            self.element(
                Field {
                    parent,
                    depth,
                    name,
                },
                value,
            )?;
        }
        Ok(())
    }

    /// `name: {$slice: …}`: the form of `find`, or else that of expressions.
    fn slice(&mut self, field: Field<'_, '_>, inner: &Doc, argument: Value<'_>) -> Result<()> {
        let reason = match Slice::parse(argument) {
            Ok(slice) => {
                self.slice = true;
                return field.insert(Rule::Slice(slice));
            }
            Err(reason) => reason,
        };
        self.operator(field, inner, "$slice").map_err(|error| {
            error.context(format_args!(
                "Invalid $slice syntax. The given syntax {} did not match the find() syntax \
                 because :: {reason} :: The given syntax did not match the expression $slice \
                 syntax.",
                display::doc(inner)
            ))
        })
    }

    /// `name: {$elemMatch: {…}}`.
    fn elem_match(&mut self, field: Field<'_, '_>, argument: Value<'_>) -> Result<()> {
        if !matches!(argument, Value::Document(_)) {
            let got = argument.type_name();
            return Err(Error::location(
                31274,
                format!("elemMatch: Invalid argument, object required, but got {got}"),
            ));
        }
        if self.positional {
            return Err(Error::location(
                31255,
                "Cannot specify positional operator and $elemMatch.",
            ));
        }
        if field.depth > 0 || field.name.contains('.') {
            return Err(Error::location(
                31275,
                "Cannot use $elemMatch projection on a nested field.",
            ));
        }
        self.elem_match = true;
        field.insert(Rule::ElemMatch(Box::new(ElemMatch::parse(
            argument,
            self.environment.map_or(Collator::BINARY, |e| e.collator),
        )?)))
    }

    /// `name: {$operator: …}`: an expression.
    fn operator(&mut self, field: Field<'_, '_>, inner: &Doc, operator: &str) -> Result<()> {
        if operator == "$meta" {
            // It goes with inclusions and exclusions alike.
            let environment = self.environment.copied().unwrap_or_default();
            let expression = Expr::parse(&Value::Document(inner), &environment)?;
            return field.insert(Rule::Computed(Arc::new(expression)));
        }
        if expr::operators::find(operator).is_none() {
            let error = expr::unknown(operator);
            return Err(match error.code() {
                ErrorCode::InvalidPipelineOperator => {
                    Error::location(31325, format!("Unknown expression {operator}"))
                }
                _ => error,
            });
        }
        if self.kind == Some(Kind::Exclusion) {
            return Err(Error::location(
                31252,
                "Cannot use expression other than $meta in exclusion projection",
            ));
        }
        self.computed(field, Value::Document(inner))
    }

    fn computed(&mut self, field: Field<'_, '_>, expression: Value<'_>) -> Result<()> {
        let Some(environment) = self.environment else {
            return Err(Error::new(
                ErrorCode::QueryFeatureNotAllowed,
                format!(
                    "The computed field '{}' is not allowed in this context",
                    field.name
                ),
            ));
        };
        self.kind = Some(Kind::Inclusion);
        let expression = Expr::parse(&expression, environment)?;
        field.insert(Rule::Computed(Arc::new(expression)))
    }
}

/// Splits a checked path that starts at some depth of the projection.
fn split(depth: usize, path: &str) -> Result<Vec<&str>> {
    check_field_path(path)?;
    let names: Vec<&str> = path.split('.').collect();
    if depth + names.len() > MAX_PATH_COMPONENTS {
        return Err(path_too_long());
    }
    Ok(names)
}
