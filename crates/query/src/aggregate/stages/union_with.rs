//! `$unionWith`: the documents of another collection after those of the input.

use super::Stage;
use crate::aggregate::exec::{DocSource, Docs, ExecContext, Fault, Source};
use crate::aggregate::{ParseContext, Pipeline};
use frond_bson::{Doc, DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};
use std::sync::Arc;

/// `{$unionWith: "collection"}` or `{$unionWith: {coll: .., pipeline: [..]}}`.
#[derive(Debug)]
pub(crate) struct UnionWith {
    /// Absent where the pipeline makes its own documents.
    collection: Option<String>,
    pipeline: Pipeline,
}

pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let (mut collection, mut stages) = (None, Doc::empty());
    match argument {
        Value::String(name) => collection = Some(name.to_owned()),
        Value::Document(spec) => {
            for (name, value) in spec.iter() {
                match (name, value) {
                    // Null is left out.
                    ("coll", value) if value.is_nullish() => {}
                    ("coll", Value::String(name)) => collection = Some(name.to_owned()),
                    ("pipeline", Value::Array(array)) => stages = array,
                    ("coll" | "pipeline", other) => {
                        return Err(Error::type_mismatch(format!(
                            "BSON field '$unionWith.{name}' is the wrong type '{}'",
                            other.type_name()
                        )));
                    }
                    _ => {
                        return Err(Error::new(
                            ErrorCode::IDLUnknownField,
                            format!("BSON field '$unionWith.{name}' is an unknown field."),
                        ));
                    }
                }
            }
        }
        other => {
            return Err(Error::failed_to_parse(format!(
                "the $unionWith stage specification must be an object or string, but found {}",
                other.type_name()
            )));
        }
    }
    let inner = ParseContext {
        depth: context.depth + 1,
        ..*context
    };
    let pipeline = Pipeline::parse_in(stages, &inner)?;
    if collection.is_none() && !pipeline.has_documents() {
        return Err(Error::failed_to_parse(
            "$unionWith stage without explicit collection must have a pipeline with $documents as \
             first stage",
        ));
    }
    out.push(Stage::UnionWith(Arc::new(UnionWith {
        collection,
        pipeline,
    })));
    Ok(())
}

pub(super) fn open<E: Fault>(
    stage: &Arc<UnionWith>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    Box::new(Union {
        first: Some(input),
        stage: stage.clone(),
        context: context.clone(),
        second: None,
    })
}

struct Union<E> {
    first: Option<Source<E>>,
    stage: Arc<UnionWith>,
    context: ExecContext<E>,
    second: Option<Source<E>>,
}

impl<E: Fault> DocSource<E> for Union<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        if let Some(first) = &mut self.first {
            if let Some(doc) = first.next()? {
                return Ok(Some(doc));
            }
            self.first = None;
            let pipeline = &self.stage.pipeline;
            self.second = Some(match &self.stage.collection {
                Some(collection) => {
                    let host = &self.context.host;
                    host.run("$unionWith", None, collection, pipeline.clone())?
                }
                None => pipeline.execute(Box::new(Docs::new(Vec::new())), &self.context)?,
            });
        }
        match &mut self.second {
            Some(second) => second.next(),
            None => Ok(None),
        }
    }
}
