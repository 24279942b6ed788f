//! Adding computed fields to documents: `$addFields` and `$set`.

use crate::bounds;
use crate::environment::Environment;
use crate::expr::{Context, Node, Parser};
use crate::meta::MetaFields;
use crate::paths::check_field_path;
use crate::raw;
use frond_bson::{ArrayBuf, Doc, DocBuf, MAX_DEPTH, Value};
use frond_error::{Error, Result};

/// A parsed specification: the fields of one level, in their order.
#[derive(Debug, Default)]
pub(crate) struct AddFields {
    fields: Vec<(Box<str>, Field)>,
}

#[derive(Debug)]
enum Field {
    Computed(Node),
    Below(AddFields),
}

impl AddFields {
    /// Reads the argument of `stage`.
    ///
    /// Errors: 40177 if it is empty, 31249 and 31250 for colliding paths, those of paths and
    /// expressions.
    pub(crate) fn parse(
        stage: &str,
        spec: &Doc,
        environment: &Environment<'_>,
    ) -> Result<AddFields> {
        let parse = || {
            if spec.is_empty() {
                return Err(Error::location(
                    40177,
                    "specification must have at least one field",
                ));
            }
            let mut root = AddFields::default();
            read(&mut Parser::new(environment), &mut root, spec, "")?;
            Ok(root)
        };
        parse().map_err(|error: Error| error.context(format!("Invalid {stage}")))
    }

    /// The document with the fields; `context` has it as its root.
    pub(crate) fn apply(&self, doc: &Doc, context: &Context<'_>) -> Result<DocBuf> {
        let mark = bounds::mark();
        let bytes = doc.len_bytes() + 64;
        bounds::reserve_large(bytes)?;
        // Each element is compared with the fields.
        if self.fields.len() > 16 {
            bounds::work(self.fields.len() / 16 * doc.count())?;
        }
        let mut out = DocBuf::with_capacity(bytes);
        let mut written = vec![false; self.fields.len()];
        for element in doc.iter_raw() {
            let name = element.name();
            let at = self.fields.iter().position(|(n, _)| **n == *name);
            let field = at.and_then(|at| self.fields.get(at).zip(written.get_mut(at)));
            match field {
                None => bounds::push_element(&mut out, &element)?,
                // A new value takes the place of the old one.
                Some(((_, field), written)) => {
                    *written = true;
                    field.write(name, element.value(), context, &mut out)?;
                }
            }
        }
        for ((name, field), written) in self.fields.iter().zip(written) {
            if !written {
                field.write(name, None, context, &mut out)?;
            }
        }
        bounds::settle_large(mark, out.capacity());
        Ok(out)
    }

    /// The fields added to each element of an array.
    fn array(&self, items: &Doc, context: &Context<'_>) -> Result<ArrayBuf> {
        let mark = bounds::mark();
        let mut out = ArrayBuf::new();
        for item in items.values() {
            match item {
                Value::Array(inner) => {
                    bounds::push(&mut out, &self.array(inner, context)?.as_value())?;
                }
                Value::Document(inner) => {
                    bounds::push(&mut out, &Value::Document(&self.apply(inner, context)?))?;
                }
                _ => {
                    let new = self.apply(Doc::empty(), context)?;
                    bounds::push(&mut out, &Value::Document(&new))?;
                }
            }
            bounds::settle(mark, out.capacity());
        }
        Ok(out)
    }

    /// The names of the fields at the top that change.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| &**name)
    }

    /// Calls `found` with the paths that the new fields are made of.
    pub(crate) fn reads(&self, found: &mut dyn FnMut(String)) {
        self.each("", &mut |path, node| {
            if let Some((first, _)) = path.split_once('.') {
                // Whether there are documents or arrays decides what becomes of them.
                found(first.to_owned());
            }
            node.fields(&mut |path| found(path.dotted()));
        });
    }

    /// Calls `visit` with the path of each new field and the expression for it.
    pub(crate) fn each(&self, above: &str, visit: &mut dyn FnMut(&str, &Node)) {
        for (name, field) in &self.fields {
            let path = match above {
                "" => name.to_string(),
                above => format!("{above}.{name}"),
            };
            match field {
                Field::Computed(node) => visit(&path, node),
                Field::Below(below) => below.each(&path, visit),
            }
        }
    }

    /// The metadata that the stage reads.
    pub(crate) fn meta(&self) -> MetaFields {
        self.fields
            .iter()
            .fold(MetaFields::default(), |found, (_, field)| {
                found
                    | match field {
                        Field::Computed(node) => node.meta(),
                        Field::Below(below) => below.meta(),
                    }
            })
    }

    /// Adds a field; `full` is its whole path, `path` what of it is below this level.
    ///
    /// Errors 31249 and 31250 for a path that meets another one.
    pub(super) fn insert(&mut self, path: &str, full: &str, node: Node) -> Result<()> {
        let (name, below) = match path.split_once('.') {
            Some((name, below)) => (name, Some(below)),
            None => (path, None),
        };
        let existing = self.fields.iter_mut().find(|(n, _)| **n == *name);
        match (existing, below) {
            (None, None) => {
                self.fields.push((name.into(), Field::Computed(node)));
                Ok(())
            }
            (None, Some(below)) => {
                let mut fields = AddFields::default();
                fields.insert(below, full, node)?;
                self.fields.push((name.into(), Field::Below(fields)));
                Ok(())
            }
            (Some((_, Field::Below(fields))), Some(below)) => fields.insert(below, full, node),
            (Some(_), None) => Err(Error::location(31250, format!("Path collision at {full}"))),
            (Some(_), Some(below)) => Err(Error::location(
                31249,
                format!("Path collision at {full} remaining portion {below}"),
            )),
        }
    }
}

impl Field {
    /// Appends the field; `old` is the value it had.
    fn write(
        &self,
        name: &str,
        old: Option<Value<'_>>,
        context: &Context<'_>,
        out: &mut DocBuf,
    ) -> Result<()> {
        match (self, old) {
            (Field::Computed(node), _) => {
                let result = node.eval_part(context)?;
                if let Some(value) = result.get() {
                    check_depth(&value)?;
                    bounds::push_field(out, name, &value)?;
                }
                bounds::release(result.heap_bytes());
            }
            (Field::Below(below), Some(Value::Array(items))) => {
                let new = below.array(items, context)?;
                bounds::push_field(out, name, &new.as_value())?;
                bounds::release(new.capacity());
            }
            (Field::Below(below), old) => {
                // A value other than a document is replaced by a new one.
                let inner = old.and_then(|old| old.as_doc()).unwrap_or(Doc::empty());
                let new = below.apply(inner, context)?;
                bounds::push_field(out, name, &Value::Document(&new))?;
                bounds::release_large(new.capacity());
            }
        }
        Ok(())
    }
}

/// Reads the fields of one level; those of documents that are no expressions are a level below.
fn read(parser: &mut Parser<'_>, root: &mut AddFields, spec: &Doc, prefix: &str) -> Result<()> {
    for (name, value) in spec.iter() {
        check_field_path(name)?;
        let path = if prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{prefix}.{name}")
        };
        match value {
            Value::Document(inner) if inner.first().is_some_and(|(n, _)| !n.starts_with('$')) => {
                read(parser, root, inner, &path)?;
            }
            value => root.insert(&path, &path, parser.parse(value)?)?,
        }
    }
    Ok(())
}

/// Error 15 for a computed value that nests too deep to be a part of a document.
pub(super) fn check_depth(value: &Value<'_>) -> Result<()> {
    let nests = matches!(value, Value::Document(_) | Value::Array(_));
    if nests && raw::depth(value) >= MAX_DEPTH {
        return Err(Error::overflow(format!(
            "a computed value is nested deeper than the limit of {MAX_DEPTH}"
        )));
    }
    Ok(())
}
