//! `$rename`.

use super::{Argument, Change, Modifier, Operator, Placed, Scope, Target};
use crate::display;
use crate::paths::array_index;
use crate::update::path::{self, Component, MAX_DEPTH};
use frond_bson::{Doc, Value};
use frond_error::{Error, ErrorCode, Result};
use std::sync::Arc;

/// `{$rename: {<path>: <new path>}}`: moves the value from one path to the other.
pub(super) const RENAME: Operator = Operator {
    name: "$rename",
    parse,
};

fn parse<'a>(argument: &Argument<'a>) -> Result<Placed<'a>> {
    let element = || display::element(argument.path, &argument.value);
    let Value::String(to) = argument.value else {
        return Err(Error::bad_value(format!(
            "The 'to' field for $rename must be a string: {}",
            element()
        )));
    };
    if to.contains('\0') {
        return Err(Error::bad_value(
            "The 'to' field for $rename cannot contain an embedded null byte",
        ));
    }
    let (mut source, mut destination) = (Vec::new(), Vec::new());
    path::parse(argument.path, &mut source)?;
    path::parse(to, &mut destination)?;
    if source == destination {
        return Err(Error::bad_value(format!(
            "The source and target field for $rename must differ: {}",
            element()
        )));
    }
    let shared = source.len().min(destination.len());
    if source.get(..shared) == destination.get(..shared) {
        return Err(Error::bad_value(format!(
            "The source and target field for $rename must not be on the same path: {}",
            element()
        )));
    }
    for (role, components, path) in [
        ("source", &source, argument.path),
        ("destination", &destination, to),
    ] {
        if (components.iter()).any(|c| !matches!(c, Component::Field(_))) {
            return Err(Error::bad_value(format!(
                "The {role} field for $rename may not be dynamic: {path}"
            )));
        }
    }
    let names = Arc::new(Names {
        from: argument.path.to_owned(),
        to: to.to_owned(),
        to_depth: destination.len(),
    });
    Ok([
        Some((argument.path, Arc::new(Source(names.clone())))),
        Some((to, Arc::new(Destination(names)))),
    ])
}

#[derive(Debug)]
struct Names {
    from: String,
    to: String,
    /// Components of `to`.
    to_depth: usize,
}

impl Names {
    /// The value to move. Error 28 if a scalar is in the way of the source, 2 if either path leads
    /// through an array.
    fn value<'a>(&self, root: &'a Doc) -> Result<Option<Value<'a>>> {
        let value = source(root, &self.from)?;
        if value.is_some() {
            check_destination(root, &self.to)?;
        }
        Ok(value)
    }
}

fn source<'a>(root: &'a Doc, path: &str) -> Result<Option<Value<'a>>> {
    let mut here = Value::Document(root);
    let mut through: Option<&str> = None;
    let mut last = "";
    for name in path.split('.') {
        let next = match here {
            Value::Document(doc) => doc.get(name),
            Value::Array(array) if array_index(name).is_some() => {
                through = Some(last);
                array.get(name)
            }
            _ => {
                return Err(Error::new(
                    ErrorCode::PathNotViable,
                    format!(
                        "cannot use the part ({last} of {path}) to traverse the element ({{{}}})",
                        display::element(last, &here)
                    ),
                ));
            }
        };
        match next {
            Some(value) => here = value,
            None => return Ok(None),
        }
        last = name;
    }
    match through {
        Some(array) => Err(in_array(root, path, "source", array)),
        None => Ok(Some(here)),
    }
}

fn check_destination(root: &Doc, path: &str) -> Result<()> {
    let mut here = root;
    let mut names = path.split('.').peekable();
    while let Some(name) = names.next() {
        match here.get(name) {
            Some(Value::Document(below)) => here = below,
            Some(Value::Array(_)) if names.peek().is_some() => {
                return Err(in_array(root, path, "destination", name));
            }
            _ => break,
        }
    }
    Ok(())
}

fn in_array(root: &Doc, path: &str, role: &str, array: &str) -> Error {
    let id = match root.get("_id") {
        Some(id) => display::element("_id", &id),
        None => "no id".to_owned(),
    };
    Error::bad_value(format!(
        "The {role} field cannot be an array element, '{path}' in doc with {id} has an array field \
         called '{array}'"
    ))
}

#[derive(Debug)]
struct Source(Arc<Names>);

impl Modifier for Source {
    fn modify<'a>(&'a self, target: &Target<'a>) -> Result<Change<'a>> {
        self.0.value(target.scope.root)?;
        Ok(Change::Remove)
    }

    fn creates(&self, _scope: &Scope<'_>) -> bool {
        false
    }
}

#[derive(Debug)]
struct Destination(Arc<Names>);

impl Modifier for Destination {
    fn modify<'a>(&'a self, target: &Target<'a>) -> Result<Change<'a>> {
        match self.0.value(target.scope.root)? {
            None => Ok(Change::Keep),
            Some(value) => {
                if self.0.to_depth + crate::raw::depth(&value) > MAX_DEPTH {
                    return Err(Error::overflow(format!(
                        "Document exceeds maximum nested object depth: {MAX_DEPTH}"
                    )));
                }
                Ok(Change::Value(value))
            }
        }
    }

    fn creates(&self, scope: &Scope<'_>) -> bool {
        // An error counts as present, so that it is reported.
        !matches!(self.0.value(scope.root), Ok(None))
    }
}
