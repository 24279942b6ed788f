//! Which names that begin with `$` may be stored.
//!
//! Below the first level all may. At the first level an inserted document may have any, also one that an upsert
//! inserts or a pipeline makes; an operator or a replacement that writes to a stored document may only write those
//! of a reference: `$ref`, `$id` and `$db`, in this order. In `_id` only references are allowed, at every level.

use frond_bson::{Doc, Text, Value, tag};
use frond_error::{Error, ErrorCode, Result};

/// Whether a field of this name has to be checked at the first level of a document.
pub(super) fn is_prefixed(name: &str) -> bool {
    name.starts_with('$')
}

/// Checks the fields of a changed document's first level that begin with `$` and that `written` takes.
///
/// Errors: 55 for a part of a reference that is not at its place, 52 for other names.
pub(super) fn check_first_level(doc: &Doc, written: impl Fn(&str) -> bool) -> Result<()> {
    let mut before = [None; 2];
    let mut elements = doc.iter_raw().peekable();
    while let Some(element) = elements.next() {
        let here = (element.name(), element.tag());
        if is_prefixed(here.0) && written(here.0) {
            let next = elements.peek().map(|element| element.name());
            check(before, here, next)?;
        }
        before = [before[1], Some(here)];
    }
    Ok(())
}

/// Checks one field by the names and types of the two before it and the name of that after it.
fn check(before: [Option<(&str, u8)>; 2], here: (&str, u8), next: Option<&str>) -> Result<()> {
    let invalid = |message: String| Err(Error::new(ErrorCode::InvalidDBRef, message));
    let not_text = |name: &str, tag: u8| {
        let name_of_type = frond_bson::type_name_of_code(tag).unwrap_or_default();
        invalid(format!(
            "The DBRef {name} field must be a String, not a {name_of_type}"
        ))
    };
    let [second, first] = before;
    let mut field = (Some(here), first, next);
    if here.0 == "$db" {
        if here.1 != tag::STRING {
            return not_text("$db", here.1);
        }
        if first.is_none_or(|(name, _)| name != "$id") {
            return invalid(
                "Found $db field without a $id before it, which is invalid.".to_owned(),
            );
        }
        field = (first, second, Some(here.0));
    }
    if field.0.is_some_and(|(name, _)| name == "$id") {
        if field.1.is_none_or(|(name, _)| name != "$ref") {
            return invalid(
                "Found $id field without a $ref before it, which is invalid.".to_owned(),
            );
        }
        field = (field.1, None, Some("$id"));
    }
    match field {
        (Some(("$ref", tag::STRING)), _, Some("$id")) => Ok(()),
        (Some(("$ref", tag::STRING)), _, _) => {
            invalid("The DBRef $ref field must be followed by a $id field".to_owned())
        }
        (Some(("$ref", other)), _, _) => not_text("$ref", other),
        _ => Err(Error::new(
            ErrorCode::DollarPrefixedFieldName,
            format!(
                "The dollar ($) prefixed field '{0}' in '{0}' is not allowed in the context of an \
                 update's replacement document. Consider using an aggregation pipeline with \
                 $replaceWith.",
                here.0
            ),
        )),
    }
}

/// Checks a value that is to be an `_id`.
///
/// # Errors
/// 53 for arrays, regular expressions and undefined; 52 for documents with a name that begins with `$`, at any
/// depth, unless they are references.
pub fn check_id(id: &Value<'_>) -> Result<()> {
    match id {
        _ if matches!(id, Value::Array(_) | Value::Undefined) || id.is_regex() => Err(Error::new(
            ErrorCode::InvalidIdField,
            format!("The '_id' value cannot be of type {}", id.type_name()),
        )),
        Value::Document(doc) => match prefixed_in_id(doc, 0) {
            Some(name) => Err(Error::new(
                ErrorCode::DollarPrefixedFieldName,
                format!(
                    "_id fields may not contain '$'-prefixed fields: {name} is not valid for storage."
                ),
            )),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The first name that begins with `$` and is not of a reference at the beginning of its document.
fn prefixed_in_id(doc: &Doc, depth: usize) -> Option<&str> {
    let mut elements = doc.iter_raw().enumerate().peekable();
    while let Some((place, element)) = elements.next() {
        let name = element.name();
        if name.starts_with('$') {
            let id = elements.next_if(|(_, next)| next.name() == "$id");
            if place != 0 || name != "$ref" || element.tag() != tag::STRING || id.is_none() {
                return Some(name);
            }
            elements.next_if(|(_, next)| next.name() == "$db" && next.tag() == tag::STRING);
            continue;
        }
        // Validated documents are never this deep.
        if depth > frond_bson::MAX_DEPTH {
            return None;
        }
        let below = match element.value() {
            Some(Value::Document(below) | Value::Array(below)) => prefixed_in_id(below, depth + 1),
            Some(value) => match value.text() {
                Some(Text::Scoped { scope, .. }) => prefixed_in_id(scope, depth + 1),
                _ => None,
            },
            None => None,
        };
        if below.is_some() {
            return below;
        }
    }
    None
}
