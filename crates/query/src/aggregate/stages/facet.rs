//! `$facet`: several pipelines over the same documents.

use super::Stage;
use crate::aggregate::exec::{Deferred, DocSource, Docs, ExecContext, Fault, Source};
use crate::aggregate::{ParseContext, Pipeline};
use crate::bounds::check_bytes;
use crate::spill::SpillBuffer;
use frond_bson::{ArrayBuf, DocBuf, Value};
use frond_error::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// `{$facet: {<field>: [<stage>, ..], ..}}`.
#[derive(Debug)]
pub(crate) struct Facet {
    facets: Vec<(Box<str>, Pipeline)>,
}

pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let spec = match argument {
        Value::Document(spec) if !spec.is_empty() => spec,
        _ => {
            return Err(Error::location(
                40169,
                "the $facet specification must be a non-empty object",
            ));
        }
    };
    let mut facets = Vec::new();
    for (name, stages) in spec.iter() {
        crate::paths::check_field_path(name)?;
        if name.contains('.') {
            return Err(Error::location(
                40235,
                format!("The field name '{name}' cannot contain '.'"),
            ));
        }
        let Value::Array(stages) = stages else {
            return Err(Error::location(
                40170,
                format!(
                    "arguments to $facet must be arrays, {name} is type {}",
                    stages.type_name()
                ),
            ));
        };
        for stage in stages.values() {
            if let Value::Document(stage) = stage
                && let Some((operator, _)) = stage.first()
                && !super::find(operator)?.in_facets
            {
                return Err(Error::location(
                    40600,
                    format!("{operator} is not allowed to be used within a $facet stage"),
                ));
            }
        }
        let inner = ParseContext {
            depth: context.depth + 1,
            ..*context
        };
        facets.push((name.into(), Pipeline::parse_in(stages, &inner)?));
    }
    out.push(Stage::Facet(Arc::new(Facet { facets })));
    Ok(())
}

pub(super) fn open<E: Fault>(
    stage: &Arc<Facet>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    let stage = stage.clone();
    let context = context.clone();
    Box::new(Deferred::new(input, move |mut input: Source<E>| {
        let mut buffer = SpillBuffer::new(context.budget("$facet", context.limits.facet));
        while let Some(doc) = input.next()? {
            buffer.push(doc)?;
        }
        drop(input);
        let buffer = Arc::new(Mutex::new(buffer));
        let mut held = context.held();
        let mut result = DocBuf::new();
        for (name, pipeline) in &stage.facets {
            let input: Source<E> = Box::new(Reading {
                buffer: buffer.clone(),
                position: 0,
            });
            let mut source = pipeline.execute(input, &context)?;
            let mut array = ArrayBuf::new();
            while let Some(doc) = source.next()? {
                array.push(&doc);
                check_bytes(result.len_bytes() + array.len_bytes())?;
                held.require(result.capacity() + array.capacity(), "$facet")?;
            }
            result.push(name, &array);
        }
        Ok(Box::new(Docs::new(vec![result])) as Source<E>)
    }))
}

/// Reads the documents that all facets share.
struct Reading {
    buffer: Arc<Mutex<SpillBuffer>>,
    position: usize,
}

impl<E: Fault> DocSource<E> for Reading {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        // A facet that panicked leaves the documents as they were.
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if self.position >= buffer.len() {
            return Ok(None);
        }
        let doc = buffer.get(self.position)?.clone();
        self.position += 1;
        Ok(Some(doc))
    }
}
