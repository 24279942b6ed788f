//! The document that an upsert starts from: the equality conditions of its filter.

use super::path::MAX_DEPTH;
use frond_bson::{Doc, DocBuf, OwnedValue, Value};
use frond_error::{Error, ErrorCode, Result};

/// Builds the document made of a filter's equality conditions: `{a: 1}`, `$eq`, `$in` and `$all`
/// with one element, below `$and`, and below `$or` with one branch.
///
/// The update is applied to it when an upsert finds nothing. Errors: 54 where two conditions set the
/// same path or one sets a part of another; 28 for a path that leads through a scalar.
pub fn upsert_base(filter: &Doc) -> Result<DocBuf> {
    let mut equalities = Vec::new();
    collect(filter, &mut equalities)?;
    let mut tree = Branch::default();
    for (path, value) in equalities {
        tree.insert(&path, value)?;
    }
    let mut doc = DocBuf::new();
    // `_id` goes first, as in every stored document.
    tree.names.sort_by_key(|(name, _)| name != "_id");
    tree.write(&mut doc);
    Ok(doc)
}

/// As [`upsert_base`] for an update that replaces the document: only `_id` is taken.
pub fn upsert_base_for_replacement(filter: &Doc) -> Result<DocBuf> {
    let mut equalities = Vec::new();
    collect(filter, &mut equalities)?;
    let mut doc = DocBuf::new();
    let mut ids = equalities
        .iter()
        .filter(|(path, _)| path == "_id" || path.starts_with("_id."));
    if let Some((path, value)) = ids.next() {
        if path != "_id" {
            return Err(Error::new(
                ErrorCode::NotExactValueField,
                "field at '_id' must be exactly specified, field at sub-path '_id.x' found"
                    .replace("_id.x", path),
            ));
        }
        if ids.next().is_some() {
            return Err(twice("_id"));
        }
        doc.push_value("_id", &value.as_value());
    }
    Ok(doc)
}

/// Finds the equality conditions, in the order of the filter.
fn collect(filter: &Doc, found: &mut Vec<(String, OwnedValue)>) -> Result<()> {
    for (key, value) in filter.iter() {
        match (key, value) {
            ("$and", Value::Array(branches)) => {
                for branch in branches.values() {
                    if let Value::Document(branch) = branch {
                        collect(branch, found)?;
                    }
                }
            }
            ("$or", Value::Array(branches)) => {
                let mut branches = branches.values();
                if let (Some(Value::Document(only)), None) = (branches.next(), branches.next()) {
                    collect(only, found)?;
                }
            }
            _ if key.starts_with('$') => {}
            (path, Value::Document(spec)) if is_operators(spec) => {
                for (operator, operand) in spec.iter() {
                    if let Some(value) = equal_to(operator, operand) {
                        found.push((path.to_owned(), value.into()));
                    }
                }
            }
            (_, value) if value.is_regex() => {}
            (path, value) => found.push((path.to_owned(), value.into())),
        }
    }
    Ok(())
}

/// `{$eq: 1}` rather than the value `{a: 1}`.
fn is_operators(spec: &Doc) -> bool {
    spec.first()
        .is_some_and(|(name, _)| name.starts_with('$') && !matches!(name, "$ref" | "$id" | "$db"))
}

/// The only value that a condition allows, if it is an equality.
fn equal_to<'a>(operator: &str, operand: Value<'a>) -> Option<Value<'a>> {
    let single = |values: &'a Doc| {
        let mut values = values.values();
        let first = values.next().filter(|value| !value.is_regex());
        first.filter(|_| values.next().is_none())
    };
    match (operator, operand) {
        ("$eq", value) => Some(value),
        ("$in", Value::Array(values)) => single(values),
        ("$all", Value::Array(values)) => match single(values) {
            Some(Value::Document(spec)) if is_operators(spec) => None,
            value => value,
        },
        _ => None,
    }
}

fn twice(path: &str) -> Error {
    Error::new(
        ErrorCode::NotSingleValueField,
        format!("cannot infer query fields to set, path '{path}' is matched twice"),
    )
}

/// Equalities arranged by path.
#[derive(Default)]
struct Branch {
    names: Vec<(String, Entry)>,
}

enum Entry {
    Value(OwnedValue),
    Branch(Branch),
}

impl Branch {
    fn insert(&mut self, path: &str, value: OwnedValue) -> Result<()> {
        let parts: Vec<&str> = path.split('.').collect();
        if parts.len() > MAX_DEPTH {
            return Err(Error::overflow(format!(
                "The path of a condition is nested deeper than the limit of {MAX_DEPTH}"
            )));
        }
        let mut here = self;
        for (at, part) in parts.iter().enumerate() {
            let so_far = || parts.get(..=at).unwrap_or_default().join(".");
            let last = at + 1 == parts.len();
            let position = match here.names.iter().position(|(name, _)| name == part) {
                Some(_) if last => return Err(twice(path)),
                Some(position) => position,
                None if last => {
                    here.names.push(((*part).to_owned(), Entry::Value(value)));
                    return Ok(());
                }
                None => {
                    here.names
                        .push(((*part).to_owned(), Entry::Branch(Branch::default())));
                    here.names.len() - 1
                }
            };
            here = match here.names.get_mut(position) {
                Some((_, Entry::Branch(branch))) => branch,
                _ => {
                    return Err(Error::new(
                        ErrorCode::NotSingleValueField,
                        format!(
                            "cannot infer query fields to set, both paths '{}' and '{path}' are \
                             matched",
                            so_far()
                        ),
                    ));
                }
            };
        }
        Ok(())
    }

    fn write(&self, doc: &mut DocBuf) {
        for (name, entry) in &self.names {
            match entry {
                Entry::Value(value) => doc.push_value(name, &value.as_value()),
                Entry::Branch(branch) => doc.push_doc(name, |inner| branch.write(inner)),
            }
        }
    }
}
