//! `$unwind`: one document for each element of an array.

use super::Stage;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{DocSource, ExecContext, Fault, Source};
use crate::bounds;
use crate::expr::{FieldPath, field_path};
use crate::memory::StageMemory;
use crate::paths::check_field_path;
use frond_bson::{Doc, DocBuf, RawElement, Value};
use frond_error::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// `{$unwind: "$path"}` or the form with options.
#[derive(Debug)]
pub(crate) struct Unwind {
    path: FieldPath,
    index: Option<Vec<Box<str>>>,
    preserve: bool,
}

impl Unwind {
    /// The path that is unwound, with dots.
    pub(crate) fn path(&self) -> String {
        self.path.dotted()
    }

    /// The first name of the path that the index is written to.
    pub(crate) fn index_name(&self) -> Option<&str> {
        self.index
            .as_ref()
            .and_then(|path| path.first())
            .map(|name| &**name)
    }

    /// Whether documents without elements are kept.
    pub(super) fn preserves(&self) -> bool {
        self.preserve
    }
}

pub(super) fn parse(
    argument: Value<'_>,
    _context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let (mut path, mut index, mut preserve) = (None, None, false);
    match argument {
        Value::String(text) => path = Some(text),
        Value::Document(spec) => {
            for (name, value) in spec.iter() {
                match (name, value) {
                    ("path", Value::String(text)) => path = Some(text),
                    ("path", other) => {
                        return Err(Error::location(
                            28808,
                            format!(
                                "expected a string as the path for $unwind stage, got {}",
                                other.type_name()
                            ),
                        ));
                    }
                    ("preserveNullAndEmptyArrays", Value::Bool(value)) => preserve = value,
                    ("preserveNullAndEmptyArrays", other) => {
                        return Err(Error::location(
                            28809,
                            format!(
                                "expected a boolean for the preserveNullAndEmptyArrays option to \
                                 $unwind stage, got {}",
                                other.type_name()
                            ),
                        ));
                    }
                    ("includeArrayIndex", Value::String(name)) if !name.is_empty() => {
                        index = Some(index_path(name)?);
                    }
                    ("includeArrayIndex", other) => {
                        return Err(Error::location(
                            28810,
                            format!(
                                "expected a non-empty string for the includeArrayIndex  option to \
                                 $unwind stage, got {}",
                                other.type_name()
                            ),
                        ));
                    }
                    _ => {
                        return Err(Error::location(
                            28811,
                            format!("unrecognized option to $unwind stage: {name}"),
                        ));
                    }
                }
            }
        }
        other => {
            return Err(Error::location(
                15981,
                format!(
                    "expected either a string or an object as specification for $unwind stage, \
                     got {}",
                    other.type_name()
                ),
            ));
        }
    }
    let path = path
        .filter(|path| !path.is_empty())
        .ok_or_else(|| Error::location(28812, "no path specified to $unwind stage"))?;
    let Some(below) = path.strip_prefix('$') else {
        return Err(Error::location(
            28818,
            format!("path option to $unwind stage should be prefixed with a '$': {path}"),
        ));
    };
    out.push(Stage::Unwind(Arc::new(Unwind {
        path: field_path(path, below)?,
        index,
        preserve,
    })));
    Ok(())
}

fn index_path(name: &str) -> Result<Vec<Box<str>>> {
    if name.starts_with('$') {
        return Err(Error::location(
            28822,
            format!(
                "includeArrayIndex option to $unwind stage should not be prefixed with a '$': \
                 {name}"
            ),
        ));
    }
    check_field_path(name)?;
    Ok(name.split('.').map(Into::into).collect())
}

pub(super) fn open<E: Fault>(
    stage: &Arc<Unwind>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    Box::new(Unwinding {
        stage: stage.clone(),
        input,
        held: context.held(),
        current: None,
    })
}

/// A document and the array in it that is being unwound.
struct Current {
    doc: DocBuf,
    /// The bytes of the document from the next element to the end of the array.
    rest: Range<usize>,
    /// The index of the next element.
    index: i64,
}

struct Unwinding<E> {
    stage: Arc<Unwind>,
    input: Source<E>,
    held: StageMemory,
    current: Option<Current>,
}

impl<E: Fault> DocSource<E> for Unwinding<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        loop {
            if let Some(current) = &mut self.current {
                match current.next(&self.stage)? {
                    Some(doc) => return Ok(Some(doc)),
                    None => {
                        self.current = None;
                        self.held.remove(self.held.bytes());
                    }
                }
            }
            let Some(doc) = self.input.next()? else {
                return Ok(None);
            };
            let names = &self.stage.path.0;
            let found = at_path(&doc, names);
            match found {
                Some(Value::Array(array)) if array.is_empty() => {
                    if self.stage.preserve {
                        let without = with_value(&doc, names, None);
                        return Ok(Some(self.stage.indexed(without, None)));
                    }
                }
                Some(Value::Array(array)) => {
                    let rest = elements_in(array, &doc);
                    self.held.require(doc.capacity(), "$unwind")?;
                    self.current = Some(Current {
                        doc,
                        rest,
                        index: 0,
                    });
                }
                None | Some(Value::Null | Value::Undefined) => {
                    if self.stage.preserve {
                        return Ok(Some(self.stage.indexed(doc, None)));
                    }
                }
                // A value that is not an array counts as an array of one element.
                Some(_) => return Ok(Some(self.stage.indexed(doc, None))),
            }
        }
    }
}

impl Current {
    fn next(&mut self, stage: &Unwind) -> Result<Option<DocBuf>> {
        bounds::work_on(self.doc.len_bytes())?;
        let rest = self.doc.as_bytes().get(self.rest.clone());
        let Some((element, _)) = rest.and_then(RawElement::split) else {
            return Ok(None);
        };
        self.rest.start += element.as_bytes().len();
        let index = self.index;
        self.index += 1;
        let doc = with_value(&self.doc, &stage.path.0, element.value());
        Ok(Some(stage.indexed(doc, Some(index))))
    }
}

/// The place of the elements of an array that is a part of a document.
fn elements_in(array: &Doc, doc: &Doc) -> Range<usize> {
    let (array, doc) = (array.as_bytes().as_ptr_range(), doc.as_bytes().as_ptr());
    let (start, end) = (
        array.start.addr() - doc.addr(),
        array.end.addr() - doc.addr(),
    );
    // Between the length and the end of the array.
    start + size_of::<i32>()..end - 1
}

impl Unwind {
    /// The document with the array index, if that is asked for.
    pub(super) fn indexed(&self, doc: DocBuf, index: Option<i64>) -> DocBuf {
        match &self.index {
            None => doc,
            Some(path) => with_value(&doc, path, Some(index.map_or(Value::Null, Value::Int64))),
        }
    }
}

/// The value at a path through documents; arrays on the way end it.
fn at_path<'d>(doc: &'d Doc, names: &[Box<str>]) -> Option<Value<'d>> {
    let (last, parents) = names.split_last()?;
    let mut here = doc;
    for name in parents {
        here = here.get_doc(name)?;
    }
    here.get(last)
}

/// A copy of the document with another value at the path, or without one. Missing documents on the
/// way are made, and other values there are replaced.
pub(super) fn with_value(doc: &Doc, names: &[Box<str>], value: Option<Value<'_>>) -> DocBuf {
    let mut out = DocBuf::with_capacity(doc.len_bytes() + 16);
    let Some((name, below)) = names.split_first() else {
        return out;
    };
    let changed = |old: Option<Value<'_>>, out: &mut DocBuf| {
        if below.is_empty() {
            if let Some(value) = value {
                out.push_value(name, &value);
            }
            return;
        }
        let inner = match old {
            Some(Value::Document(inner)) => inner,
            _ => Doc::empty(),
        };
        out.push(name, &with_value(inner, below, value));
    };
    let mut found = false;
    for element in doc.iter_raw() {
        if !found && element.name() == &**name {
            found = true;
            changed(element.value(), &mut out);
        } else {
            out.push_raw(&element);
        }
    }
    if !found {
        changed(None, &mut out);
    }
    out
}
