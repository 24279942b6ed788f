//! From a projection document to a tree of rules.

use frond_bson::{Doc, Value};

use super::node::{Node, Rule};
use super::slice::Slice;
use super::{Kind, Projection};
use crate::display;
use crate::error::{Error, Result};
use crate::matcher::ElemMatch;
use crate::paths::{MAX_PATH_COMPONENTS, check_field_path, path_too_long};

/// What the parser has seen so far.
#[derive(Default)]
struct Seen {
    /// The first field but `_id` decides.
    kind: Option<Kind>,
    positional: bool,
    elem_match: bool,
    slice: bool,
    /// Whether the specification names `_id` or a field below it.
    id: bool,
    /// `_id: 1` or `_id: 0`.
    id_included: Option<bool>,
}

/// Parses the projection of a `find`.
pub(super) fn find(spec: &Doc) -> Result<Projection> {
    let mut root = Node::default();
    let mut seen = Seen::default();
    for (name, value) in spec.iter() {
        seen.id |= name == "_id" || name.starts_with("_id.");
        element(&mut seen, &mut root, 0, name, value)?;
    }
    let kind = seen.kind.unwrap_or_else(|| default_kind(&seen));
    if !seen.id && kind == Kind::Inclusion {
        root.insert(&["_id"], Rule::Include, "_id")?;
    }
    if seen.id_included == Some(true) && kind == Kind::Exclusion {
        root.remove("_id");
    }
    root.finish();
    Ok(Projection { kind, root })
}

/// The kind of a projection that names no field to include or exclude, except `_id`.
fn default_kind(seen: &Seen) -> Kind {
    let inclusion = if seen.slice {
        seen.id_included == Some(true)
    } else {
        seen.elem_match || seen.id_included == Some(true)
    };
    if inclusion {
        Kind::Inclusion
    } else {
        Kind::Exclusion
    }
}

fn element(
    seen: &mut Seen,
    parent: &mut Node,
    depth: usize,
    name: &str,
    value: Value<'_>,
) -> Result<()> {
    if name.contains(".$.") {
        return Err(Error::location(
            31394,
            "As of 4.4, it's illegal to specify positional operator in the middle of a path.\
             Positional projection may only be used at the end, for example: a.b.$. If the query \
             previously used a form like a.b.$.d, remove the parts following the '$' and the \
             results will be equivalent.",
        ));
    }
    let positional = name.strip_suffix(".$");
    match (value, positional) {
        (Value::Document(_), Some(_)) => Err(Error::location(
            31271,
            "positional projection cannot be used with an expression or sub object",
        )),
        (Value::Document(inner), None) => sub_document(seen, parent, depth, name, inner),
        (value, Some(path)) if value.is_number() || matches!(value, Value::Bool(_)) => {
            if !value.truthy() {
                return Err(Error::location(
                    31395,
                    "positional projection cannot be used with exclusion",
                ));
            }
            include_positional(seen, parent, depth, name, path)
        }
        (value, None) if value.is_number() || matches!(value, Value::Bool(_)) => {
            flag(seen, parent, depth, name, value.truthy())
        }
        (_, Some(_)) => Err(Error::location(
            31308,
            "positional projection cannot be used with a literal",
        )),
        (value, None) => {
            if seen.kind == Some(Kind::Exclusion) {
                let shown = display::element(name, &value);
                return Err(Error::location(
                    31310,
                    format!("Cannot use an expression {shown} in an exclusion projection"),
                ));
            }
            Err(computed_field(name))
        }
    }
}

/// `name: 1` or `name: 0`.
fn flag(seen: &mut Seen, parent: &mut Node, depth: usize, name: &str, include: bool) -> Result<()> {
    let rule = if include {
        Rule::Include
    } else {
        Rule::Exclude
    };
    insert(parent, depth, name, rule)?;
    if depth == 0 && name == "_id" {
        seen.id_included = Some(include);
        return Ok(());
    }
    let kind = if include {
        Kind::Inclusion
    } else {
        Kind::Exclusion
    };
    match (*seen.kind.get_or_insert(kind), kind) {
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
fn include_positional(
    seen: &mut Seen,
    parent: &mut Node,
    depth: usize,
    name: &str,
    path: &str,
) -> Result<()> {
    if seen.positional {
        return Err(Error::location(
            31276,
            "Cannot specify more than one positional projection per query.",
        ));
    }
    if seen.elem_match {
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
    seen.positional = true;
    insert(parent, depth, path, Rule::Positional)?;
    if *seen.kind.get_or_insert(Kind::Inclusion) == Kind::Exclusion {
        return Err(Error::location(
            31253,
            format!("Cannot do inclusion on field {name} in exclusion projection"),
        ));
    }
    Ok(())
}

/// `name: {…}`: an operator or rules for the fields below.
fn sub_document(
    seen: &mut Seen,
    parent: &mut Node,
    depth: usize,
    name: &str,
    inner: &Doc,
) -> Result<()> {
    let path = split(depth, name)?;
    let Some((first, argument)) = inner.first() else {
        return Err(Error::location(
            51270,
            format!("Invalid empty sub-projection: {name}"),
        ));
    };
    if inner.count() == 1 && first.starts_with('$') {
        return operator(seen, parent, depth, name, first, argument);
    }
    let node = parent.descend(&path, name)?;
    for (name, value) in inner.iter() {
        element(seen, node, depth + path.len(), name, value)?;
    }
    Ok(())
}

fn operator(
    seen: &mut Seen,
    parent: &mut Node,
    depth: usize,
    name: &str,
    operator: &str,
    argument: Value<'_>,
) -> Result<()> {
    match operator {
        "$slice" => {
            let slice = Slice::parse(argument).map_err(|reason| {
                Error::location(
                    28667,
                    format!(
                        "Invalid $slice syntax. The given syntax {{ {} }} did not match the find() \
                         syntax because :: {reason}",
                        display::element(operator, &argument)
                    ),
                )
            })?;
            seen.slice = true;
            insert(parent, depth, name, Rule::Slice(slice))
        }
        "$elemMatch" => {
            if !matches!(argument, Value::Document(_)) {
                let got = argument.type_name();
                return Err(Error::location(
                    31274,
                    format!("elemMatch: Invalid argument, object required, but got {got}"),
                ));
            }
            if seen.positional {
                return Err(Error::location(
                    31255,
                    "Cannot specify positional operator and $elemMatch.",
                ));
            }
            if depth > 0 || name.contains('.') {
                return Err(Error::location(
                    31275,
                    "Cannot use $elemMatch projection on a nested field.",
                ));
            }
            seen.elem_match = true;
            insert(
                parent,
                depth,
                name,
                Rule::ElemMatch(Box::new(ElemMatch::parse(argument)?)),
            )
        }
        "$meta" => Err(Error::not_supported(format_args!(
            "The projection operator '$meta' of the field '{name}'"
        ))),
        _ if seen.kind == Some(Kind::Exclusion) => Err(Error::location(
            31252,
            "Cannot use expression other than $meta in exclusion projection",
        )),
        _ => Err(computed_field(name)),
    }
}

fn computed_field(name: &str) -> Error {
    Error::not_supported(format_args!("The computed field '{name}' in a projection"))
}

fn insert(parent: &mut Node, depth: usize, name: &str, rule: Rule) -> Result<()> {
    let path = split(depth, name)?;
    parent.insert(&path, rule, name)
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
